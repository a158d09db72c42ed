/* Headers of records of format 2, from the bytes that zk_index has copied, and bitmaps. */
#include "kernels.h"

/* Write one bit for each byte that is not 0, the lowest bit first; returns the number of these. */
EXPORT int64_t zk_bitmap(const uint8_t *valid, int64_t count, uint8_t *bits) {
    int64_t found = 0;
    for (int64_t item = 0; item < count; item += 8) {
        uint8_t byte = 0;
        for (int64_t bit = 0; bit < min64(8, count - item); bit++) byte |= (uint8_t)((valid[item + bit] != 0) << bit);
        bits[item / 8] = byte;
        found += __builtin_popcount(byte);
    }
    return found;
}

/* Read the headers of records into columns.
 *
 * `sizes` receives the bytes of all names and of all contents. Without columns (`names` is NULL) that is all; with
 * them, `sizes` has their room before. `header_end` has the number of headers up to the end of each record, preceded by
 * the number before the first. `list_end` gets the same, beginning with a 0; `present` one byte for each record, 0 if it
 * has no headers. `name_end` and `content_end` are Arrow offsets, beginning with a 0; `content_valid` gets
 * one byte for each header, 0 for a null. Returns false if the bytes contradict themselves.
 */
EXPORT int zk_headers(const uint8_t *data, int64_t bytes, const int32_t *header_end, const int64_t *header_at,
                      int64_t records, int32_t *list_end, uint8_t *present, int32_t *name_end, int32_t *content_end,
                      uint8_t *content_valid, uint8_t *names, uint8_t *contents, int64_t sizes[2]) {
    const uint8_t *end = data + bytes;
    int64_t header = 0, name_bytes = 0, content_bytes = 0;
    for (int64_t number = 0; number < records; number++) {
        int64_t count = header_end[number + 1] - header_end[number];
        if (names != NULL) {
            present[number] = count > 0;
            list_end[number + 1] = (int32_t)(header + max64(count, 0));
        }
        if (count <= 0) continue;
        if (header_at[number] < 0 || header_at[number] > bytes) return false;
        const uint8_t *at = data + header_at[number];
        for (; count > 0; count--, header++) {
            int64_t length;
            if ((at = varint(at, end, &length)) == NULL || length < 0 || length > end - at) return false;
            if (names != NULL) {
                if (length > sizes[0] - name_bytes) return false;
                memcpy(names + name_bytes, at, (size_t)length);
                name_end[header + 1] = (int32_t)(name_bytes + length);
            }
            name_bytes += length;
            at += length;
            if ((at = varint(at, end, &length)) == NULL || length < -1 || length > end - at) return false;
            if (names != NULL) content_valid[header] = length >= 0;
            length = max64(length, 0);
            if (names != NULL) {
                if (length > sizes[1] - content_bytes) return false;
                memcpy(contents + content_bytes, at, (size_t)length);
                content_end[header + 1] = (int32_t)(content_bytes + length);
            }
            content_bytes += length;
            at += length;
        }
    }
    sizes[0] = name_bytes, sizes[1] = content_bytes;
    return true;
}
