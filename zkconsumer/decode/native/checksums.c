/* CRC-32C (batches of format 2) and CRC-32 (messages of formats 0 and 1), kept bit-reflected, as both formats do.
 *
 * The instructions of the processor are looked up once, when the library is loaded. Processors without them use tables,
 * at about a tenth of the speed. Sources: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction"
 * (Gopal et al., Intel, 2009) for folding; "A Systematic Approach to Building High Performance Software-based CRC
 * Generators" (Kounavis and Berry, 2005) for eight tables.
 */
#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define CRC32C_POLYNOMIAL UINT32_C(0x82F63B78)
#define CRC32_POLYNOMIAL UINT32_C(0xEDB88320)

enum { HAS_CRC32C = 1, HAS_CRC32 = 2 }; /* instructions */

static uint32_t crc32c_tables[8][256], crc32_tables[8][256]; /* effect of a byte that is followed by 0 to 7 others */
static int available, used;

static void fill_tables(uint32_t tables[8][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        tables[0][byte] = crc;
    }
    for (int following = 1; following < 8; following++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = tables[following - 1][byte];
            tables[following][byte] = crc >> 8 ^ tables[0][crc & 0xFF];
        }
}

static uint32_t after_word(uint32_t tables[8][256], uint32_t crc, uint64_t word) {
    word ^= crc;
    return tables[7][word & 0xFF] ^ tables[6][word >> 8 & 0xFF] ^ tables[5][word >> 16 & 0xFF]
           ^ tables[4][word >> 24 & 0xFF] ^ tables[3][word >> 32 & 0xFF] ^ tables[2][word >> 40 & 0xFF]
           ^ tables[1][word >> 48 & 0xFF] ^ tables[0][word >> 56];
}

static uint32_t by_tables(uint32_t tables[8][256], uint32_t crc, const uint8_t *at, int64_t length) {
    for (; length >= 8; at += 8, length -= 8) crc = after_word(tables, crc, word_at(at));
    for (; length > 0; at++, length--) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xFF];
    return crc;
}

#if defined(__x86_64__)

/* Bytes of each of three runs whose CRC-32C is computed in parallel: an instruction takes three cycles, but one can
 * begin in each cycle. */
#define STRIDE 512
#define STRIDE_DOUBLINGS 9

static uint32_t after_stride_tables[4][256]; /* effect of a stride of zeros on each byte of a CRC */
static uint64_t one_block[2], four_blocks[2]; /* powers by which folding multiplies */

static uint32_t through(uint32_t tables[4][256], uint32_t crc) {
    return tables[0][crc & 0xFF] ^ tables[1][crc >> 8 & 0xFF] ^ tables[2][crc >> 16 & 0xFF] ^ tables[3][crc >> 24];
}

static void fill_stride_tables(void) {
    static uint32_t doubled[4][256];
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << 8 * place; /* a zero byte follows */
            after_stride_tables[place][byte] = crc >> 8 ^ crc32c_tables[0][crc & 0xFF];
        }
    for (int doubling = 0; doubling < STRIDE_DOUBLINGS; doubling++) {
        for (int place = 0; place < 4; place++)
            for (int byte = 0; byte < 256; byte++)
                doubled[place][byte] = through(after_stride_tables, after_stride_tables[place][byte]);
        memcpy(after_stride_tables, doubled, sizeof doubled);
    }
}

/* x ** exponent modulo the polynomial of CRC-32, reflected into 33 bits. */
static uint64_t power(int exponent) {
    uint32_t remainder = UINT32_C(1) << 31;
    for (; exponent > 0; exponent--) remainder = remainder >> 1 ^ (remainder & 1 ? CRC32_POLYNOMIAL : 0);
    return (uint64_t)remainder << 1;
}

static int look_up_instructions(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    return (c & bit_SSE4_2 ? HAS_CRC32C : 0) | ((c & bit_PCLMUL) && (c & bit_SSE4_1) ? HAS_CRC32 : 0);
}

static void prepare_instructions(void) {
    fill_stride_tables();
    one_block[0] = power(128 + 32), one_block[1] = power(128 - 32);
    four_blocks[0] = power(4 * 128 + 32), four_blocks[1] = power(4 * 128 - 32);
}

__attribute__((target("sse4.2,crc32"))) static uint32_t crc32c_by_instructions(uint32_t begin, const uint8_t *at,
                                                                         int64_t length) {
    uint64_t crc = begin;
    for (; length >= 3 * STRIDE; at += 3 * STRIDE, length -= 3 * STRIDE) {
        uint64_t second = 0, third = 0;
        for (int64_t place = 0; place < STRIDE; place += 8) {
            crc = _mm_crc32_u64(crc, word_at(at + place));
            second = _mm_crc32_u64(second, word_at(at + place + STRIDE));
            third = _mm_crc32_u64(third, word_at(at + place + 2 * STRIDE));
        }
        crc = through(after_stride_tables, through(after_stride_tables, (uint32_t)crc) ^ (uint32_t)second) ^ third;
    }
    for (; length >= 8; at += 8, length -= 8) crc = _mm_crc32_u64(crc, word_at(at));
    for (; length > 0; at++, length--) crc = _mm_crc32_u8((uint32_t)crc, *at);
    return (uint32_t)crc;
}

__attribute__((target("pclmul,sse4.1"))) static __m128i folded(__m128i lane, const uint64_t distance[2],
                                                               __m128i block) {
    __m128i powers = _mm_set_epi64x((long long)distance[1], (long long)distance[0]);
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00), high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), block);
}

__attribute__((target("pclmul,sse4.1"))) static __m128i block_at(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

/* Fold blocks of 16 bytes, four side by side as long as there are enough of them, into one; then use tables. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc32_by_instructions(uint32_t crc, const uint8_t *at,
                                                                               int64_t length) {
    if (length < 32) return by_tables(crc32_tables, crc, at, length);
    __m128i lane = _mm_xor_si128(block_at(at), _mm_cvtsi32_si128((int)crc));
    if (length >= 128) {
        __m128i second = block_at(at + 16), third = block_at(at + 32), fourth = block_at(at + 48);
        for (at += 64, length -= 64; length >= 64; at += 64, length -= 64) {
            lane = folded(lane, four_blocks, block_at(at));
            second = folded(second, four_blocks, block_at(at + 16));
            third = folded(third, four_blocks, block_at(at + 32));
            fourth = folded(fourth, four_blocks, block_at(at + 48));
        }
        lane = folded(folded(folded(lane, one_block, second), one_block, third), one_block, fourth);
    } else {
        at += 16, length -= 16;
    }
    for (; length >= 16; at += 16, length -= 16) lane = folded(lane, one_block, block_at(at));
    crc = after_word(crc32_tables, 0, (uint64_t)_mm_cvtsi128_si64(lane));
    crc = after_word(crc32_tables, crc, (uint64_t)_mm_extract_epi64(lane, 1));
    return by_tables(crc32_tables, crc, at, length);
}

#elif defined(__aarch64__)

static int look_up_instructions(void) {
    return getauxval(AT_HWCAP) & 1 << 7 /* HWCAP_CRC32 */ ? HAS_CRC32C | HAS_CRC32 : 0;
}

static void prepare_instructions(void) {}

__attribute__((target("crc"))) static uint32_t crc32c_by_instructions(uint32_t crc, const uint8_t *at, int64_t length) {
    for (; length >= 8; at += 8, length -= 8) crc = __crc32cd(crc, word_at(at));
    for (; length > 0; at++, length--) crc = __crc32cb(crc, *at);
    return crc;
}

__attribute__((target("crc"))) static uint32_t crc32_by_instructions(uint32_t crc, const uint8_t *at, int64_t length) {
    for (; length >= 8; at += 8, length -= 8) crc = __crc32d(crc, word_at(at));
    for (; length > 0; at++, length--) crc = __crc32b(crc, *at);
    return crc;
}

#else
#error "build the library for x86_64 or aarch64"
#endif

__attribute__((constructor)) static void prepare(void) {
    fill_tables(crc32c_tables, CRC32C_POLYNOMIAL);
    fill_tables(crc32_tables, CRC32_POLYNOMIAL);
    prepare_instructions();
    used = available = look_up_instructions();
}

/* Use these instructions at most (HAS_... bits; -1: all that the processor has); returns those in use. For tests. */
EXPORT int zk_use_instructions(int allowed) { return used = available & allowed; }

uint32_t crc32c_of(const uint8_t *data, int64_t length) {
    if (used & HAS_CRC32C) return ~crc32c_by_instructions(UINT32_MAX, data, length);
    return ~by_tables(crc32c_tables, UINT32_MAX, data, length);
}

uint32_t crc32_of(const uint8_t *data, int64_t length) {
    if (used & HAS_CRC32) return ~crc32_by_instructions(UINT32_MAX, data, length);
    return ~by_tables(crc32_tables, UINT32_MAX, data, length);
}

EXPORT uint32_t zk_crc32c(const uint8_t *data, int64_t length) { return crc32c_of(data, length); }

EXPORT uint32_t zk_crc32(const uint8_t *data, int64_t length) { return crc32_of(data, length); }

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif

EXPORT const char *zk_source_hash(void) { return SOURCE_HASH; }
