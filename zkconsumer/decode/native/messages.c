/* Python objects for records. The caller holds the interpreter lock, and keeps all objects and buffers alive.
 *
 * Only functions of Python's stable ABI are called, so that one library serves all its versions. A message is a tuple,
 * which Python's garbage collector tracks. The collector runs after some hundred tuples, and repeatedly traverses
 * objects that are all alike; with thousands of messages that costs more than building them. A message holds bytes,
 * text, integers and tuples of them, so it cannot be part of a cycle. So messages are untracked, as the interpreter
 * itself untracks plain tuples of such objects. Messages of a class that refers to decoders stay tracked: a decoder may
 * refer to an application that keeps messages.
 */
#include "kernels.h"

typedef struct _object PyObject;
typedef PyObject *(*new_function)(PyObject *, PyObject *, PyObject *);

extern PyObject *PyBytes_FromStringAndSize(const char *, ptrdiff_t);
extern PyObject *PyUnicode_DecodeUTF8(const char *, ptrdiff_t, const char *);
extern PyObject *PyLong_FromLongLong(long long);
extern PyObject *PyTuple_New(ptrdiff_t);
extern PyObject *PyTuple_GetItem(PyObject *, ptrdiff_t);
extern int PyTuple_SetItem(PyObject *, ptrdiff_t, PyObject *);
extern PyObject *PyList_New(ptrdiff_t);
extern PyObject *PyList_GetItem(PyObject *, ptrdiff_t);
extern int PyList_SetItem(PyObject *, ptrdiff_t, PyObject *);
extern PyObject *PyType_GenericAlloc(PyObject *, ptrdiff_t);
extern void *PyType_GetSlot(PyObject *, int);
extern void PyObject_GC_UnTrack(void *);
extern void PyErr_SetString(PyObject *, const char *);
extern void PyErr_Clear(void);
extern void Py_IncRef(PyObject *);
extern void Py_DecRef(PyObject *);
extern PyObject *PyExc_SystemError;

/* As in Python's header files; a part of the stable ABI since Python 3.11. */
typedef struct {
    void *buf;
    PyObject *obj;
    ptrdiff_t len, itemsize;
    int readonly, ndim;
    char *format;
    ptrdiff_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;

extern int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
extern void PyBuffer_Release(Py_buffer *);

enum { FIELDS = 8, TUPLE_NEW_SLOT = 65 /* Py_tp_new */ };

/* A binary column. `valid` has a bit for each row, from bit `valid_at` on; NULL if no row is null. */
typedef struct {
    const uint8_t *valid;
    int64_t valid_at;
    const int32_t *end;
    const uint8_t *data;
    int64_t bytes;
} binary_column;

/* decode/native.py has the same structure, and explains it. */
typedef struct {
    PyObject *out, *kind, *topic, *partition, *none, *created, *appended, *no_headers, *headers, *tuple;
    int64_t rows;
    const int64_t *offset;
    const int64_t *timestamp;
    const int32_t *types;
    int64_t type;
    binary_column key, value;
    int64_t is_tracked;
    int64_t keeps_hash;
} message_task;

/* The address of the bytes of an object, as long as the caller keeps it; NULL with an exception if it has none. */
EXPORT void *zk_address(PyObject *object) {
    static uint8_t nowhere;
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, 0) != 0) return NULL;
    void *address = view.buf != NULL ? view.buf : &nowhere;
    PyBuffer_Release(&view);
    return address;
}

static inline PyObject *shared(PyObject *object) {
    Py_IncRef(object);
    return object;
}

/* Set an item to a new reference; false if it is NULL, because there is no memory for the object. */
static inline bool put(PyObject *tuple, int place, PyObject *item) {
    return item != NULL && PyTuple_SetItem(tuple, place, item) == 0;
}

/* The value of a row as a new reference; NULL if there is no memory. */
static inline PyObject *value_of(const binary_column *column, int64_t row, PyObject *none) {
    if (column->valid != NULL) {
        int64_t bit = column->valid_at + row;
        if (!(column->valid[bit / 8] >> bit % 8 & 1)) return shared(none);
    }
    int64_t start = column->end[row], end = column->end[row + 1];
    if (start < 0 || start > end || end > column->bytes) {
        PyErr_SetString(PyExc_SystemError, "a column of records ends outside of its data");
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)column->data + start, end - start);
}

/* Thousands of milliseconds, rounded towards the past. */
static inline int64_t millis(int64_t micros) {
    return micros / MICROS - (micros % MICROS < 0);
}

/* Set the fields of a message; false if there is no memory for one. `previous` is the timestamp of the row before, or
 * NULL: many rows have the same. */
static inline bool fill(const message_task *task, PyObject *message, int64_t row, int64_t *previous_millis,
                        PyObject **previous) {
    int64_t type = task->types != NULL ? task->types[row] : task->type;
    PyObject *timestamp = task->none, *type_object = task->none;
    if (type != NO_TIMESTAMP) {
        int64_t value = millis(task->timestamp[row]);
        if (*previous == NULL || *previous_millis != value) {
            if ((timestamp = PyLong_FromLongLong(value)) == NULL) return false;
            if (*previous != NULL) Py_DecRef(*previous);
            *previous = timestamp;
            *previous_millis = value;
        }
        timestamp = *previous;
        type_object = type ? task->appended : task->created;
    }
    PyObject *headers = task->headers == NULL ? task->no_headers : PyList_GetItem(task->headers, row);
    return put(message, 0, shared(task->topic)) && put(message, 1, shared(task->partition))
           && put(message, 2, PyLong_FromLongLong(task->offset[row])) && put(message, 3, shared(timestamp))
           && put(message, 4, shared(type_object)) && put(message, 5, value_of(&task->key, row, task->none))
           && put(message, 6, value_of(&task->value, row, task->none)) && put(message, 7, shared(headers));
}

/* Put a message for each row into a list, which has as many items; these are replaced.
 *
 * Returns the number of messages; it is less than the number of rows only if there is no memory, or if a column
 * contradicts itself.
 */
EXPORT int64_t zk_messages(const message_task *task) {
    PyObject *plain = NULL, *arguments = NULL, *timestamp = NULL;
    int64_t timestamp_millis = 0, row = 0;
    new_function new_tuple = NULL;
    if (task->keeps_hash) {
        /* A tuple with an unknown hash is not a zeroed one: only its class can make it, of another tuple. */
        new_tuple = (new_function)PyType_GetSlot(task->tuple, TUPLE_NEW_SLOT);
        plain = PyTuple_New(FIELDS);
        arguments = PyTuple_New(1);
        if (plain == NULL || arguments == NULL || PyTuple_SetItem(arguments, 0, plain) != 0) goto end;
    }
    for (; row < task->rows; row++) {
        PyObject *message = new_tuple != NULL ? plain : PyType_GenericAlloc(task->kind, FIELDS);
        if (message == NULL) break;
        bool complete = fill(task, message, row, &timestamp_millis, &timestamp);
        if (new_tuple != NULL) {
            if (!complete || (message = new_tuple(task->kind, arguments, NULL)) == NULL) break;
        } else if (!complete) {
            Py_DecRef(message);
            break;
        }
        if (!task->is_tracked) PyObject_GC_UnTrack(message);
        PyList_SetItem(task->out, row, message);
    }
end:
    if (row < task->rows) PyErr_Clear();
    if (timestamp != NULL) Py_DecRef(timestamp);
    if (arguments != NULL) Py_DecRef(arguments); /* with the plain tuple */
    return row;
}

/* The headers of one record, as a tuple of pairs; NULL with an exception if there is no memory. */
static PyObject *pairs(const uint8_t *at, const uint8_t *end, int64_t count, PyObject *none) {
    PyObject *all = PyTuple_New(count);
    if (all == NULL) return NULL;
    for (int64_t number = 0; number < count; number++) {
        PyObject *pair = PyTuple_New(2);
        if (pair == NULL || PyTuple_SetItem(all, number, pair) != 0) goto failed;
        int64_t length;
        if ((at = varint(at, end, &length)) == NULL || length < 0 || length > end - at) goto contradiction;
        if (!put(pair, 0, PyUnicode_DecodeUTF8((const char *)at, length, "replace"))) goto failed;
        at += length;
        if ((at = varint(at, end, &length)) == NULL || length < -1 || length > end - at) goto contradiction;
        if (!put(pair, 1, length < 0 ? shared(none) : PyBytes_FromStringAndSize((const char *)at, length))) goto failed;
        at += max64(length, 0);
    }
    return all;
contradiction:
    PyErr_SetString(PyExc_SystemError, "headers contradict their lengths");
failed:
    Py_DecRef(all);
    return NULL;
}

/* A list with the headers of each record; see zk_headers for the arguments, of which the bytes were checked. */
EXPORT PyObject *zk_header_tuples(const uint8_t *data, int64_t bytes, const int32_t *header_end,
                                  const int64_t *header_at, int64_t records, PyObject *none, PyObject *no_headers) {
    PyObject *out = PyList_New(records);
    for (int64_t number = 0; out != NULL && number < records; number++) {
        int64_t count = header_end[number + 1] - header_end[number];
        PyObject *item = no_headers;
        if (count > 0) {
            bool inside = header_at[number] >= 0 && header_at[number] <= bytes && count <= bytes;
            item = pairs(inside ? data + header_at[number] : data + bytes, data + bytes, count, none);
        } else {
            Py_IncRef(item);
        }
        if (item == NULL || PyList_SetItem(out, number, item) != 0) {
            Py_DecRef(out);
            return NULL;
        }
    }
    return out;
}
