/* Message formats 0 and 1, used by brokers before 0.11 and in the logs that they wrote.
 *
 * A set is a sequence of messages, each with its own offset, length and CRC-32. The value of a compressed message is a
 * set. In format 0 the offsets inside are absolute. In format 1 (KIP-31, KIP-32) they are relative, and the message
 * around them has the absolute offset of the last one; if its attributes specify log-append time, its timestamp applies
 * to all. Nested compression was never allowed. The layouts are "Message sets" in the protocol documentation.
 */
#include "kernels.h"

enum {
    ATTRIBUTES_AT = 17, CRC_AT = 12, CRC_END = 16 /* the checksum covers the bytes after it */, TIMESTAMP_AT = 18,
    SMALLEST = 14 /* length of a message of format 0 without key and value; format 1 adds the timestamp */,
    TIMESTAMP_BYTES = 8
};

static inline int64_t smallest(int64_t magic) { return SMALLEST + TIMESTAMP_BYTES * magic; }

/* The length of the message at `at`, from its offset on; -1 if it is not inside, or too short for its format. */
static inline int64_t message_bytes(const uint8_t *at, const uint8_t *end) {
    if (end - at < LENGTH_END + SMALLEST || at[MAGIC_AT] > 1) return -1;
    int64_t length = int32_at(at + LENGTH_AT);
    return length < smallest(at[MAGIC_AT]) || length > end - at - LENGTH_END ? -1 : LENGTH_END + length;
}

typedef struct {
    const uint8_t *key, *value;
    int64_t key_length, value_length; /* -1: null */
} fields;

/* Key and value of the message from `at` to `end`, whose length is known to be valid: false if theirs are not. */
static inline bool read_fields(const uint8_t *at, const uint8_t *end, fields *f) {
    f->key = at + LENGTH_END + smallest(at[MAGIC_AT]) - 4;
    f->key_length = int32_at(f->key - 4);
    if (f->key_length < -1 || f->key_length > end - f->key - 4) return false;
    f->value = f->key + max64(f->key_length, 0) + 4;
    f->value_length = int32_at(f->value - 4);
    return f->value_length >= -1 && max64(f->value_length, 0) == end - f->value;
}

/* Find messages of formats 0 and 1; arguments and result as for zk_scan. */
EXPORT int zk_scan_messages(const uint8_t *raw, int64_t bytes, table_row *table, int64_t room, int64_t state[3],
                            int64_t requested) {
    int64_t at = state[0], rows = state[1], last = state[2];
    const int64_t first = rows;
    int why = COMPLETE;
    while (bytes - at > MAGIC_AT) {
        const uint8_t *message = raw + at;
        int64_t magic = message[MAGIC_AT], length = int32_at(message + LENGTH_AT);
        if (magic > 1) {
            why = OTHER_FORMAT;
            break;
        }
        if (length < smallest(magic)) {
            why = BAD_LENGTH;
            break;
        }
        if (length > bytes - at - LENGTH_END) break;
        int64_t end = at + LENGTH_END + length, offset = int64_at(message), attributes = message[ATTRIBUTES_AT];
        if (offset <= last || offset > MAX_BASE_OFFSET) {
            why = BAD_HEADER;
            break;
        }
        bool compressed = attributes & CODEC_MASK;
        if (!compressed && rows > first) {
            int64_t *row = table[rows - 1];
            if (row[FORMAT] == magic && row[ATTRIBUTES] == attributes
                && offset - row[BASE_OFFSET] < (INT64_C(1) << 31)) {
                row[END] = row[BODY_END] = at = end;
                row[COUNT]++;
                row[LAST_DELTA] = offset - row[BASE_OFFSET];
                last = offset;
                if (offset >= requested) row[SOURCE] = RAW;
                continue;
            }
        }
        if (rows >= room) {
            why = TABLE_FULL;
            break;
        }
        int64_t *row = table[rows];
        memset(row, 0, sizeof(table_row));
        row[START] = row[BODY] = at;
        row[END] = row[BODY_END] = end;
        row[BASE_OFFSET] = offset;
        row[FORMAT] = magic;
        row[ATTRIBUTES] = attributes;
        row[PRODUCER_ID] = -1;
        row[COUNT] = 1;
        row[SOURCE] = offset >= requested ? RAW : NOTHING;
        if (compressed) {
            fields f;
            if (!read_fields(message, raw + end, &f) || f.value_length < 0) {
                why = BAD_HEADER;
                break;
            }
            row[BODY] = f.value - raw;
            row[MAX_TIMESTAMP] = magic == 1 ? int64_at(message + TIMESTAMP_AT) : NO_TIMESTAMP;
        }
        last = offset;
        at = end;
        rows++;
    }
    state[0] = at, state[1] = rows, state[2] = last;
    return why;
}

/* Number of messages in `bytes` bytes, and the last one's offset; 0 if they do not end exactly there. */
EXPORT int64_t zk_extent(const uint8_t *data, int64_t bytes, int64_t *last) {
    const uint8_t *at = data, *end = data + bytes;
    int64_t count = 0;
    *last = -1;
    for (; at < end; count++) {
        int64_t length = message_bytes(at, end);
        if (length < 0) return 0;
        *last = int64_at(at);
        at += length;
    }
    return count;
}

/* How far a check of messages came: their number, the position after them, the last one's offset. */
typedef struct {
    int64_t count, position, last;
} progress;

/* Check messages from `at` to `end`, all of one format and compressed or not; returns the result for the first bad one.
 *
 * `shift` is added to their offsets, of which the first is at least `floor`. Checksums of messages before the requested
 * offset are not checked.
 */
static int check_messages(const uint8_t *data, int64_t at, int64_t end, int64_t magic, int64_t shift, int64_t floor,
                          bool compressed, int64_t requested, bool check, progress *reached) {
    *reached = (progress){0, at, floor - 1};
    while (at < end) {
        int64_t length = message_bytes(data + at, data + end);
        if (length < 0) return CUT_OFF;
        const uint8_t *message = data + at;
        int64_t offset = int64_at(message);
        if (offset < 0 || offset > MAX_BASE_OFFSET || add64(offset, shift) < floor) return BAD_ORDER;
        offset = add64(offset, shift);
        if (message[MAGIC_AT] != magic) return BAD_INNER_FORMAT;
        if (((message[ATTRIBUTES_AT] & CODEC_MASK) != 0) != compressed) return NESTED;
        if (check && offset >= requested
            && crc32_of(message + CRC_END, length - CRC_END) != (uint32_t)int32_at(message + CRC_AT))
            return BAD_CRC;
        fields f;
        if (!read_fields(message, message + length, &f)) return CUT_OFF;
        floor = offset + 1;
        at += length;
        *reached = (progress){reached->count + 1, at, offset};
    }
    return VALID;
}

/* Check the messages inside a compressed one that zk_extent has found; returns VALID or what is wrong with one. */
EXPORT int zk_verify_inside(const uint8_t *data, int64_t bytes, int64_t magic, int64_t shift, int64_t floor,
                            int64_t requested, int check) {
    progress reached;
    return check_messages(data, 0, bytes, magic, shift, floor, false, requested, check, &reached);
}

/* Check rows that zk_scan_messages has found, up to the first fault; those before the requested offset are not checked.
 *
 * `result` receives the number of valid rows; and for the row after them the number of valid messages, the position
 * after these and the last one's offset. Returns VALID if there is no such row, or what is wrong with the next message.
 */
EXPORT int zk_verify_messages(const uint8_t *raw, int64_t bytes, const table_row *table, int64_t rows, int64_t floor,
                              int64_t requested, int check, int64_t result[4]) {
    for (int64_t current = 0; current < rows; current++) {
        const int64_t *row = table[current];
        int64_t last = row[BASE_OFFSET] + row[LAST_DELTA];
        if (last >= requested) {
            progress reached = {0, row[START], floor - 1};
            bool inside = row[START] >= 0 && row[START] <= row[END] && row[END] <= bytes;
            int why = !inside ? CUT_OFF
                              : check_messages(raw, row[START], row[END], row[FORMAT], 0, floor,
                                               row[ATTRIBUTES] & CODEC_MASK, requested, check, &reached);
            if (why != VALID) {
                result[0] = current, result[1] = reached.count, result[2] = reached.position, result[3] = reached.last;
                return why;
            }
        }
        floor = last + 1;
    }
    result[0] = rows, result[1] = result[2] = 0, result[3] = floor - 1;
    return VALID;
}

/* Read every record of verified rows of formats 0 and 1; as zk_index. */
EXPORT int zk_index_messages(const index_task *task) {
    if (!is_valid_task(task)) return -1;
    int64_t *totals = task->totals;
    int64_t records = totals[RECORDS], key_bytes = totals[KEY_BYTES], value_bytes = totals[VALUE_BYTES];
    for (int64_t current = 0; current < task->rows; current++) {
        int64_t *row = task->table[current];
        if (row[SOURCE] == NOTHING) continue;
        const uint8_t *at, *end;
        if (!body_of(task, row, &at, &end)) return -1;
        const bool own_time = row[SOURCE] != SCRATCH || !(row[ATTRIBUTES] & LOG_APPEND_TIME);
        int64_t before = records;
        for (int64_t number = 0; number < row[COUNT]; number++) {
            int64_t length = message_bytes(at, end);
            if (length < 0) return -1;
            int64_t offset = add64(int64_at(at), row[SHIFT]);
            if (offset >= task->requested) {
                fields f;
                if (records >= task->capacity || !read_fields(at, at + length, &f)) return -1;
                int64_t millis = NO_TIMESTAMP;
                if (row[FORMAT] == 1 && at[MAGIC_AT] == 1)
                    millis = own_time ? int64_at(at + TIMESTAMP_AT) : row[MAX_TIMESTAMP];
                task->offset[records] = offset;
                task->timestamp[records] = micros(millis);
                task->key_valid[records] = f.key_length >= 0;
                task->value_valid[records] = f.value_length >= 0;
                records++;
                if (f.key_length < 0) {
                    totals[HAS_NULL_KEY] = 1;
                } else if (f.key_length > 0 && task->keys_room > 0) {
                    if (f.key_length > task->keys_room - key_bytes) return -1;
                    move_bytes(task->keys + key_bytes, f.key, (size_t)f.key_length);
                    key_bytes += f.key_length;
                }
                if (f.value_length < 0) {
                    totals[HAS_NULL_VALUE] = 1;
                } else if (f.value_length > 0 && task->values_room > 0) {
                    if (f.value_length > task->values_room - value_bytes) return -1;
                    move_bytes(task->values + value_bytes, f.value, (size_t)f.value_length);
                    value_bytes += f.value_length;
                }
                task->key_end[records] = (int32_t)key_bytes;
                task->value_end[records] = (int32_t)value_bytes;
                task->header_end[records] = (int32_t)totals[HEADER_COUNT];
            }
            at += length;
        }
        row[KEPT] = records - before;
    }
    totals[ROWS] = task->rows;
    totals[RECORDS] = records;
    totals[KEY_BYTES] = key_bytes;
    totals[VALUE_BYTES] = value_bytes;
    return 0;
}
