# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decode messages of pgoutput to columns of strings, compiled.

The results are those of pgoutput_rows.py, which is used if this module is not built. A message that
cannot be decoded, for whatever reason, is left to the caller and nothing of it is kept: the Python
code decodes it again, and raises the error.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

cdef enum:
    NULL_VALUE = -1
    UNCHANGED = -2
    MESSAGE_BYTES_MAX = 0x3FFFFFFF


cdef struct Value:
    const uint8_t* data
    int64_t size  # or NULL_VALUE or UNCHANGED


cdef struct Texts:
    uint8_t* data
    int32_t* offsets
    uint8_t* valid
    int64_t size
    int64_t room
    int64_t nulls


cdef inline uint64_t big(const uint8_t* b, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int k
    for k in range(size):
        value = value << 8 | b[k]
    return value


cdef const uint8_t* parse_image(
    const uint8_t* b, const uint8_t* end, Value* values, Py_ssize_t count
) noexcept nogil:
    """Parse the values of an image; return its end, or NULL if it is invalid."""
    cdef Py_ssize_t n
    cdef int64_t size
    if end - b < 2 or <Py_ssize_t>big(b, 2) != count:
        return NULL
    b += 2
    for n in range(count):
        if b >= end:
            return NULL
        if b[0] == c't':
            if end - b < 5:
                return NULL
            size = <int64_t>big(b + 1, 4)
            b += 5
            if size > end - b:
                return NULL
            values[n].data, values[n].size = b, size
            b += size
        elif b[0] == c'n':
            values[n].size = NULL_VALUE
            b += 1
        elif b[0] == c'u':
            values[n].size = UNCHANGED
            b += 1
        else:
            return NULL
    return b


cdef class RowBuffer:
    """RowBuffer of one table, column by column.

    `indexes` has the index of each column in a row of `count` values. If `needs_before` is true, a
    change must have its complete before image.
    """

    cdef readonly Py_ssize_t row_count
    cdef readonly int64_t message_bytes
    cdef Py_ssize_t count, width, room
    cdef bint needs_before
    cdef int32_t* indexes
    cdef Texts* texts
    cdef int8_t* kinds
    cdef Value* before
    cdef Value* after

    def __cinit__(self, indexes, Py_ssize_t count, bint needs_before=False):
        cdef Py_ssize_t n
        self.needs_before = needs_before
        self.width, self.count = len(indexes), count
        self.indexes = <int32_t*>malloc((self.width + 1) * sizeof(int32_t))
        self.texts = <Texts*>malloc((self.width + 1) * sizeof(Texts))
        self.before = <Value*>malloc((count + 1) * sizeof(Value))
        self.after = <Value*>malloc((count + 1) * sizeof(Value))
        if not (self.indexes and self.texts and self.before and self.after):
            raise MemoryError
        memset(self.texts, 0, (self.width + 1) * sizeof(Texts))
        for n in range(self.width):
            if not 0 <= indexes[n] < count:
                raise ValueError(f"there is no value {indexes[n]} in a row of {count}")
            self.indexes[n] = indexes[n]

    def __dealloc__(self):
        cdef Py_ssize_t n
        if self.texts:
            for n in range(self.width):
                free(self.texts[n].data)
                free(self.texts[n].offsets)
                free(self.texts[n].valid)
        free(self.texts)
        free(self.indexes)
        free(self.kinds)
        free(self.before)
        free(self.after)

    cdef int grow(self) except -1:
        """Allocate room for more rows in all columns."""
        cdef Py_ssize_t n, room = 2 * self.room if self.room else 1024
        cdef void* more = realloc(self.kinds, room)
        if not more:
            raise MemoryError
        self.kinds = <int8_t*>more
        for n in range(self.width):
            more = realloc(self.texts[n].offsets, (room + 1) * sizeof(int32_t))
            if not more:
                raise MemoryError
            self.texts[n].offsets = <int32_t*>more
            if not self.room:
                self.texts[n].offsets[0] = 0
            more = realloc(self.texts[n].valid, room // 8)
            if not more:
                raise MemoryError
            self.texts[n].valid = <uint8_t*>more
            memset(self.texts[n].valid + self.room // 8, 0, (room - self.room) // 8)
        self.room = room
        return 0

    cdef int append(self, int8_t kind, const Value* values) except -1:
        cdef Py_ssize_t n
        cdef Texts* column
        cdef const Value* value
        cdef int64_t room
        cdef void* more
        for n in range(self.width):
            column, value = &self.texts[n], &values[self.indexes[n]]
            if value.size < 0:
                column.nulls += 1
            else:
                if column.size + value.size > column.room:
                    room = 2 * (column.size + value.size) + 1024
                    more = realloc(column.data, room)
                    if not more:
                        raise MemoryError
                    column.data, column.room = <uint8_t*>more, room
                memcpy(column.data + column.size, value.data, value.size)
                column.size += value.size
                column.valid[self.row_count >> 3] |= 1 << (self.row_count & 7)
            column.offsets[self.row_count + 1] = <int32_t>column.size
        self.kinds[self.row_count] = kind
        self.row_count += 1
        return 0

    cdef int add(self, const uint8_t* b, Py_ssize_t size) except -1:
        """Add the rows of a message; return 0 and add nothing if it is invalid."""
        cdef const uint8_t* end = b + size
        cdef uint8_t what = b[0]
        cdef uint8_t known = 0
        cdef Py_ssize_t n
        b += 5
        if size > MESSAGE_BYTES_MAX or size < 6:
            return 0
        if b[0] == c'O' or b[0] == c'K':
            known = b[0]
            b = parse_image(b + 1, end, self.before, self.count)
            if not b:
                return 0
        if self.needs_before and what != c'I' and known != c'O':
            return 0
        if what == c'D':
            if not known or b != end:
                return 0
        else:
            if b >= end or b[0] != c'N' or (known and what == c'I'):
                return 0
            if parse_image(b + 1, end, self.after, self.count) != end:
                return 0
            for n in range(self.count):
                if self.after[n].size == UNCHANGED:
                    if known != c'O':
                        return 0
                    self.after[n] = self.before[n]
        if self.row_count + 2 > self.room:
            self.grow()
        if what == c'I':
            self.append(0, self.after)
        elif what == c'D':
            self.append(3, self.before)
        elif not known:
            self.append(2, self.after)
        elif known == c'O':
            self.append(1, self.before)
            self.append(2, self.after)
        else:  # the key changed, and the before image has only the key
            self.append(3, self.before)
            self.append(0, self.after)
        self.message_bytes += size
        return 1

    def take(self):
        """Return the kinds, and (validity, offsets, data, nulls) of each column; then reset."""
        cdef Py_ssize_t n
        cdef Texts* column
        kinds = PyBytes_FromStringAndSize(<const char*>self.kinds, self.row_count)
        found = []
        if not self.room:
            self.grow()
        for n in range(self.width):
            column = &self.texts[n]
            found.append((
                PyBytes_FromStringAndSize(<const char*>column.valid, (self.row_count + 7) // 8),
                PyBytes_FromStringAndSize(
                    <const char*>column.offsets, (self.row_count + 1) * sizeof(int32_t)
                ),
                PyBytes_FromStringAndSize(<const char*>column.data, column.size),
                column.nulls,
            ))
            column.size = column.nulls = 0
            memset(column.valid, 0, self.room // 8)
        self.row_count, self.message_bytes = 0, 0
        return kinds, found


cdef class MessageDecoder:
    """Collects the rows of transactions whose commit is in [start, end), by table."""

    cdef public bint in_range
    cdef public dict tables
    cdef public int64_t total_bytes
    cdef uint64_t start, end
    cdef Py_ssize_t rows_max
    cdef int64_t bytes_max, total_max

    def __init__(self, start, end, rows_max, bytes_max, total_max):
        self.start, self.end = start, end
        self.rows_max, self.bytes_max, self.total_max = rows_max, bytes_max, total_max
        self.in_range, self.tables, self.total_bytes = False, {}, 0

    def consume(self, list messages, Py_ssize_t at):
        """Decode messages from `at` on.

        Returns the index of the first that is not decoded, as it is not a row of a known table, or
        as the buffers are full.
        """
        cdef Py_ssize_t count = len(messages), size
        cdef const uint8_t* b
        cdef bytes data
        cdef object found
        cdef RowBuffer rows = None
        cdef int64_t known = -1, number
        cdef uint64_t commit
        while at < count:
            data = <bytes?>messages[at]
            b, size = <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
            if size == 0:
                return at
            if b[0] == c'I' or b[0] == c'U' or b[0] == c'D':
                if self.in_range:
                    if size < 6:
                        return at
                    number = <int64_t>big(b + 1, 4)
                    if number != known:
                        if number not in self.tables:
                            return at
                        found = self.tables[number]
                        rows, known = None if found is None else <RowBuffer?>found, number
                    if rows is not None:
                        if not rows.add(b, size):
                            return at
                        self.total_bytes += size
                        if (
                            rows.row_count >= self.rows_max
                            or rows.message_bytes >= self.bytes_max
                            or self.total_bytes >= self.total_max
                        ):
                            return at + 1
            elif b[0] == c'B':
                if size < 21:
                    return at
                commit = big(b + 1, 8)
                self.in_range = self.start <= commit < self.end
            elif b[0] == c'R' or (b[0] == c'T' and self.in_range):
                return at
            at += 1
        return at


def single_values(list chunks):
    """Return the values of chunks that are one row with one value each.

    None if one of them is not.
    """
    cdef const uint8_t* b
    cdef Py_ssize_t size
    cdef list found = []
    for chunk in chunks:
        b, size = <const uint8_t*>PyBytes_AS_STRING(<bytes?>chunk), PyBytes_GET_SIZE(chunk)
        if size < 6 or b[0] != 0 or b[1] != 1 or <Py_ssize_t>big(b + 2, 4) != size - 6:
            return None
        found.append(PyBytes_FromStringAndSize(<const char*>(b + 6), size - 6))
    return found
