/* Shared by the kernels: the table of batches, the totals, and functions that read bytes.
 *
 * Bytes come from the network, so every length and position is checked against the enclosing one before it is used.
 * Nothing is allocated here, except the objects of messages. The numbers are those of decode/batchtable.py, where they
 * are explained; decode/native.py declares the functions. The code is C11 for little-endian processors of 64 bits.
 */
#ifndef ZKCONSUMER_KERNELS_H
#define ZKCONSUMER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Columns of the table of batches. */
enum {
    START, END, BASE_OFFSET, LAST_DELTA, FORMAT, CRC, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, COUNT,
    SOURCE, BODY, BODY_END, SHIFT, KEPT, COLUMNS
};

typedef int64_t table_row[COLUMNS];

enum { RAW = 0, SCRATCH = 1, NOTHING = -1 };
enum { IN_RAW = 1, IN_COMPRESSED = 2, IN_SCRATCH = 4, IN_OLD_FORMAT = 8 };
enum { TIME_CREATED = 1, TIME_APPENDED = 2, TIME_NONE = 4 };
enum { COMPLETE, TABLE_FULL, BAD_LENGTH, OTHER_FORMAT, BAD_HEADER };
enum {
    ROWS, RECORDS, KEY_BYTES, VALUE_BYTES, HEADER_COUNT, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, HEADER_BYTES,
    HAS_NULL_KEY, HAS_NULL_VALUE, TOTALS
};
enum { CODEC_MASK = 0x07, LOG_APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };
enum { VALID, CUT_OFF, BAD_CRC, BAD_ORDER, NESTED, BAD_INNER_FORMAT };
enum {
    BATCH_HEADER_BYTES = 61, CRC_START = 21, SMALLEST_RECORD = 7, MAGIC_AT = 16, LENGTH_AT = 8, LENGTH_END = 12,
    LAST_DELTA_AT = 23
};

#define MICROS 1000
#define MAX_MILLIS (INT64_MAX / MICROS)
#define MAX_BASE_OFFSET (INT64_MAX - (INT64_C(1) << 32))
#define NO_TIMESTAMP (-1)

/* What an index function reads and writes; decode/native.py has the same structure, and explains it. */
typedef struct {
    const uint8_t *raw;
    int64_t raw_bytes;
    const uint8_t *scratch;
    int64_t scratch_bytes;
    table_row *table;
    int64_t rows;
    int64_t requested;
    uint8_t *values;
    int64_t values_room;
    uint8_t *keys;
    int64_t keys_room;
    uint8_t *headers;
    int64_t headers_room;
    int64_t capacity;
    int64_t *offset;
    int64_t *timestamp;
    int32_t *value_end;
    int32_t *key_end;
    int32_t *header_end;
    int64_t *header_at;
    uint8_t *key_valid;
    uint8_t *value_valid;
    int64_t *totals;
} index_task;

uint32_t crc32c_of(const uint8_t *data, int64_t length);
uint32_t crc32_of(const uint8_t *data, int64_t length);

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Signed sum of 64 bits; an overflow wraps around. */
static inline int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline int64_t int16_at(const uint8_t *at) {
    uint16_t word;
    memcpy(&word, at, sizeof word);
    return (int16_t)__builtin_bswap16(word);
}

static inline int64_t int32_at(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return (int32_t)__builtin_bswap32(word);
}

static inline int64_t int64_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return (int64_t)__builtin_bswap64(word);
}

/* Eight bytes, in the processor's order. */
static inline uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline int64_t unzigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* Read a zigzag varint; returns the position after it, or NULL if it is cut off or too long. */
static inline const uint8_t *varint(const uint8_t *at, const uint8_t *end, int64_t *value) {
    if (at < end && *at < 0x80) { /* most have one byte */
        *value = unzigzag(*at);
        return at + 1;
    }
    uint64_t bits = 0;
    for (unsigned shift = 0; at < end && shift < 70; shift += 7) {
        uint8_t byte = *at++;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = unzigzag(bits);
            return at;
        }
    }
    return NULL;
}

/* Copy bytes; the two may overlap. Most keys and many values are short, for which a call costs more than the copy. */
static inline void move_bytes(uint8_t *target, const uint8_t *source, size_t count) {
    if (count > 32) {
        memmove(target, source, count);
    } else if (count >= 16) {
        uint64_t first[2], last[2];
        memcpy(first, source, 16);
        memcpy(last, source + count - 16, 16);
        memcpy(target, first, 16);
        memcpy(target + count - 16, last, 16);
    } else if (count >= 8) {
        uint64_t first, last;
        memcpy(&first, source, 8);
        memcpy(&last, source + count - 8, 8);
        memcpy(target, &first, 8);
        memcpy(target + count - 8, &last, 8);
    } else if (count >= 4) {
        uint32_t first, last;
        memcpy(&first, source, 4);
        memcpy(&last, source + count - 4, 4);
        memcpy(target, &first, 4);
        memcpy(target + count - 4, &last, 4);
    } else if (count > 0) {
        uint8_t first = source[0], middle = source[count / 2], last = source[count - 1];
        target[0] = first;
        target[count / 2] = middle;
        target[count - 1] = last;
    }
}

static inline int64_t micros(int64_t millis) {
    return min64(max64(millis, -MAX_MILLIS), MAX_MILLIS) * MICROS;
}

/* The bytes of a row's records: false if they are not inside its source. */
static inline bool body_of(const index_task *task, const int64_t *row, const uint8_t **at, const uint8_t **end) {
    const uint8_t *source = row[SOURCE] == RAW ? task->raw : task->scratch;
    int64_t bytes = row[SOURCE] == RAW ? task->raw_bytes : task->scratch_bytes;
    if (row[BODY] < 0 || row[BODY] > row[BODY_END] || row[BODY_END] > bytes) return false;
    *at = source + row[BODY];
    *end = source + row[BODY_END];
    return true;
}

/* True if the sizes in a task fit into the columns. */
static inline bool is_valid_task(const index_task *task) {
    const int64_t *totals = task->totals;
    return task->values_room <= INT32_MAX && task->keys_room <= INT32_MAX && task->headers_room <= INT32_MAX
           && totals[RECORDS] >= 0 && totals[RECORDS] <= task->capacity && totals[KEY_BYTES] >= 0
           && totals[VALUE_BYTES] >= 0 && totals[HEADER_BYTES] >= 0;
}

#endif
