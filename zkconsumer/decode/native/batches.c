/* Record batches of format 2 (KIP-98; "Record Batch" in the protocol documentation), and the table of all formats. */
#include "kernels.h"

/* Find batches from `state[0]` on, and fill the table from row `state[1]` on; `state[2]` is the last offset before.
 *
 * Batches that end before the requested offset get the source NOTHING, as do control batches. On return `state` has the
 * same after the last row. Returns why the scan stopped.
 */
EXPORT int zk_scan(const uint8_t *raw, int64_t bytes, table_row *table, int64_t room, int64_t state[3],
                   int64_t requested) {
    int64_t at = state[0], rows = state[1], last = state[2];
    int why = COMPLETE;
    while (bytes - at > MAGIC_AT) {
        const uint8_t *batch = raw + at;
        if (batch[MAGIC_AT] < 2) {
            why = OTHER_FORMAT;
            break;
        }
        int64_t length = int32_at(batch + LENGTH_AT);
        if (batch[MAGIC_AT] > 2 || length < BATCH_HEADER_BYTES - LENGTH_END) {
            why = BAD_LENGTH;
            break;
        }
        if (length > bytes - at - LENGTH_END) break;
        if (rows >= room) {
            why = TABLE_FULL;
            break;
        }
        int64_t *row = table[rows];
        row[START] = at;
        row[END] = at + LENGTH_END + length;
        row[BASE_OFFSET] = int64_at(batch);
        row[FORMAT] = 2;
        row[CRC] = int32_at(batch + 17) & 0xFFFFFFFF;
        row[ATTRIBUTES] = int16_at(batch + CRC_START);
        row[LAST_DELTA] = int32_at(batch + LAST_DELTA_AT);
        row[BASE_TIMESTAMP] = int64_at(batch + 27);
        row[MAX_TIMESTAMP] = int64_at(batch + 35);
        row[PRODUCER_ID] = int64_at(batch + 43);
        row[COUNT] = int32_at(batch + 57);
        row[BODY] = at + BATCH_HEADER_BYTES;
        row[BODY_END] = row[END];
        row[SHIFT] = 0;
        row[KEPT] = 0;
        if (row[BASE_OFFSET] <= last || row[BASE_OFFSET] > MAX_BASE_OFFSET || row[LAST_DELTA] < 0 || row[COUNT] < 0
            || row[COUNT] > row[LAST_DELTA] + 1
            || (!(row[ATTRIBUTES] & CODEC_MASK) && row[COUNT] * SMALLEST_RECORD > row[END] - row[BODY])) {
            why = BAD_HEADER;
            break;
        }
        last = row[BASE_OFFSET] + row[LAST_DELTA];
        row[SOURCE] = last < requested || row[ATTRIBUTES] & CONTROL ? NOTHING : RAW;
        at = row[END];
        rows++;
    }
    state[0] = at, state[1] = rows, state[2] = last;
    return why;
}

/* Check the checksums of rows that zk_scan has found, up to the first wrong one.
 *
 * Returns the number of rows before it, which are valid or end before the requested offset; `found` receives the
 * checksum computed for it.
 */
EXPORT int64_t zk_verify(const uint8_t *raw, int64_t bytes, const table_row *table, int64_t rows, int64_t requested,
                         int64_t *found) {
    for (int64_t current = 0; current < rows; current++) {
        const int64_t *row = table[current];
        if (row[BASE_OFFSET] + row[LAST_DELTA] < requested) continue;
        int64_t at = row[START] + CRC_START;
        *found = at < CRC_START || row[END] > bytes || at > row[END] ? -1 : (int64_t)crc32c_of(raw + at, row[END] - at);
        if (*found != row[CRC]) return current;
    }
    return rows;
}

/* Sums over the batches of a table that have a source: the number of records that they announce, the length of all
 * bodies together, the IN_... bits of their sources and states, and the TIME_... bits of their timestamps' types.
 */
EXPORT void zk_survey(const table_row *table, int64_t rows, int64_t sums[4]) {
    int64_t records = 0, body_bytes = 0, sources = 0, times = 0;
    for (int64_t current = 0; current < rows; current++) {
        const int64_t *row = table[current];
        if (row[SOURCE] == NOTHING) continue;
        records += row[COUNT];
        body_bytes += row[BODY_END] - row[BODY];
        if (row[SOURCE] == SCRATCH)
            sources |= IN_SCRATCH;
        else
            sources |= row[ATTRIBUTES] & CODEC_MASK ? IN_COMPRESSED : IN_RAW;
        if (row[FORMAT] < 2) sources |= IN_OLD_FORMAT;
        if (row[FORMAT] == 0)
            times |= TIME_NONE;
        else
            times |= row[ATTRIBUTES] & LOG_APPEND_TIME ? TIME_APPENDED : TIME_CREATED;
    }
    sums[0] = records, sums[1] = body_bytes, sums[2] = sources, sums[3] = times;
}

/* The number of leading rows of one kind: formats 0 and 1, or format 2. */
EXPORT int64_t zk_piece(const table_row *table, int64_t rows) {
    int64_t current = 1;
    while (current < rows && (table[current][FORMAT] < 2) == (table[0][FORMAT] < 2)) current++;
    return min64(current, rows);
}

/* Write the numbers of the rows that have to be decompressed, at most `rows`; returns how many there are. */
EXPORT int64_t zk_compressed(const table_row *table, int64_t rows, int64_t *numbers) {
    int64_t count = 0;
    for (int64_t current = 0; current < rows; current++)
        if (table[current][SOURCE] == RAW && table[current][ATTRIBUTES] & CODEC_MASK) numbers[count++] = current;
    return count;
}

/* The number of rows to read at once: at most so many records, but at least one row that has records. */
EXPORT int64_t zk_within(const table_row *table, int64_t rows, int64_t most_records) {
    int64_t records = 0, current = 0;
    for (; current < rows; current++) {
        if (table[current][SOURCE] == NOTHING) continue;
        if (records > 0 && records + table[current][COUNT] > most_records) break;
        records += table[current][COUNT];
    }
    return current;
}

/* The place of a value in an ascending list; -1 if it is not in it. */
static int64_t place_of(const int64_t *list, int64_t count, int64_t value) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (list[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && list[low] == value ? low : -1;
}

/* True for an abort marker: the key of its record is a version and a type of two bytes each, and its type is 0. */
static bool is_abort(const uint8_t *at, const uint8_t *end) {
    int64_t ignored;
    at = varint(at, end, &ignored); /* length */
    if (at == NULL || at >= end) return false;
    at++; /* attributes */
    for (int field = 0; field < 3; field++) { /* timestamp and offset deltas, length of the key */
        at = varint(at, end, &ignored);
        if (at == NULL) return false;
    }
    return end - at >= 4 && int16_at(at + 2) == 0;
}

/* Set the source of batches of aborted transactions to NOTHING.
 *
 * `producers` are the ids of their producers, ascending; `of_producer` and `firsts` have for each transaction the place
 * of its producer and its first offset, ascending by the latter. `is_open` has a 0 for each producer; it is changed.
 */
EXPORT void zk_exclude_aborted(const uint8_t *raw, int64_t bytes, table_row *table, int64_t rows,
                               const int64_t *producers, int64_t producer_count, const int64_t *of_producer,
                               const int64_t *firsts, int64_t transactions, uint8_t *is_open) {
    int64_t begun = 0;
    for (int64_t current = 0; current < rows; current++) {
        int64_t *row = table[current];
        while (begun < transactions && firsts[begun] <= row[BASE_OFFSET] + row[LAST_DELTA])
            is_open[of_producer[begun++]] = 1;
        int64_t producer = place_of(producers, producer_count, row[PRODUCER_ID]);
        if (producer < 0 || !is_open[producer]) continue;
        if (row[ATTRIBUTES] & CONTROL) {
            if (row[BODY] < 0 || row[BODY] > row[BODY_END] || row[BODY_END] > bytes) continue;
            if (is_abort(raw + row[BODY], raw + row[BODY_END])) is_open[producer] = 0;
        } else if (row[ATTRIBUTES] & TRANSACTIONAL) {
            row[SOURCE] = NOTHING;
        }
    }
}

/* A record of format 2; lengths of -1 are nulls. */
typedef struct {
    int64_t delta_ms, delta, key_length, value_length, header_count, name_bytes, content_bytes;
    const uint8_t *key, *value, *headers, *end;
} record;

/* Read the record at `at`: false if a length contradicts the ones around it. */
static inline bool read_record(const uint8_t *at, const uint8_t *end, record *r) {
    int64_t length;
    if ((at = varint(at, end, &length)) == NULL || length < 1 || length > end - at) return false;
    r->end = end = at + length;
    at++; /* attributes, unused */
    if ((at = varint(at, end, &r->delta_ms)) == NULL || (at = varint(at, end, &r->delta)) == NULL) return false;
    if ((at = varint(at, end, &r->key_length)) == NULL || r->key_length < -1 || r->key_length > end - at) return false;
    r->key = at;
    if (r->key_length > 0) at += r->key_length;
    if ((at = varint(at, end, &r->value_length)) == NULL || r->value_length < -1 || r->value_length > end - at)
        return false;
    r->value = at;
    if (r->value_length > 0) at += r->value_length;
    if ((at = varint(at, end, &r->header_count)) == NULL || r->header_count < 0) return false;
    r->headers = at;
    r->name_bytes = r->content_bytes = 0;
    for (int64_t header = 0; header < r->header_count; header++) {
        if ((at = varint(at, end, &length)) == NULL || length < 0 || length > end - at) return false;
        at += length;
        r->name_bytes += length;
        if ((at = varint(at, end, &length)) == NULL || length < -1 || length > end - at) return false;
        if (length > 0) at += length, r->content_bytes += length;
    }
    return at == end;
}

/* Read every record of the batches in the table, all of format 2, up to the first fault; see native.IndexTask.
 *
 * Values are most of the bytes, so they can stay in their memory: each is only moved down to the end of the previous
 * one. No byte is overwritten before it was read, since values are shorter than the records that hold them. Returns -1
 * if the task itself contradicts itself.
 */
EXPORT int zk_index(const index_task *task) {
    if (!is_valid_task(task)) return -1;
    int64_t sums[TOTALS];
    memcpy(sums, task->totals, sizeof sums);
    for (int64_t current = 0; current < task->rows; current++) {
        sums[ROWS] = current;
        memcpy(task->totals, sums, sizeof sums); /* as a fault leaves them, except for the two flags */
        int64_t *row = task->table[current];
        if (row[SOURCE] == NOTHING) continue;
        const uint8_t *at, *end;
        if (!body_of(task, row, &at, &end)) return -1;
        int64_t previous = -1, before = sums[RECORDS];
        const bool appended = row[ATTRIBUTES] & LOG_APPEND_TIME;
        for (int64_t number = 0; number < row[COUNT]; number++) {
            record r;
            if (!read_record(at, end, &r) || r.delta <= previous || r.delta > row[LAST_DELTA]) return 0;
            previous = r.delta;
            at = r.end;
            if (row[BASE_OFFSET] + r.delta < task->requested) continue;
            int64_t place = sums[RECORDS];
            if (place >= task->capacity) return -1;
            task->offset[place] = row[BASE_OFFSET] + r.delta;
            task->timestamp[place] = micros(appended ? row[MAX_TIMESTAMP] : add64(row[BASE_TIMESTAMP], r.delta_ms));
            sums[HEADER_KEY_BYTES] += r.name_bytes;
            sums[HEADER_VALUE_BYTES] += r.content_bytes;
            if (r.key_length < 0) {
                sums[HAS_NULL_KEY] = 1;
            } else if (r.key_length > 0 && task->keys_room > 0) {
                if (r.key_length > task->keys_room - sums[KEY_BYTES]) return -1;
                move_bytes(task->keys + sums[KEY_BYTES], r.key, (size_t)r.key_length);
                sums[KEY_BYTES] += r.key_length;
            }
            if (r.value_length < 0) {
                sums[HAS_NULL_VALUE] = 1;
            } else if (r.value_length > 0 && task->values_room > 0) {
                if (r.value_length > task->values_room - sums[VALUE_BYTES]) return -1;
                move_bytes(task->values + sums[VALUE_BYTES], r.value, (size_t)r.value_length);
                sums[VALUE_BYTES] += r.value_length;
            }
            if (r.header_count > 0 && task->headers_room > 0) {
                if (r.end - r.headers > task->headers_room - sums[HEADER_BYTES]) return -1;
                memcpy(task->headers + sums[HEADER_BYTES], r.headers, (size_t)(r.end - r.headers));
                task->header_at[place] = sums[HEADER_BYTES];
                sums[HEADER_BYTES] += r.end - r.headers;
                sums[HEADER_COUNT] += r.header_count;
            }
            task->key_valid[place] = r.key_length >= 0;
            task->value_valid[place] = r.value_length >= 0;
            task->key_end[place + 1] = (int32_t)sums[KEY_BYTES];
            task->value_end[place + 1] = (int32_t)sums[VALUE_BYTES];
            task->header_end[place + 1] = (int32_t)sums[HEADER_COUNT];
            sums[RECORDS] = place + 1;
        }
        if (at != end) return 0;
        row[KEPT] = sums[RECORDS] - before;
    }
    sums[ROWS] = task->rows;
    memcpy(task->totals, sums, sizeof sums);
    return 0;
}
