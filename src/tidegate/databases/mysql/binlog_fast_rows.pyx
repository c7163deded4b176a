# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decode row images of the binary log to lists of values, compiled.

The results are those of the functions that binlog_values.py generates, which are used if this
module is not built. `program` has five numbers for each column: the operation and four parameters,
as in `RawColumn.op` of binlog_values.py.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    SIGNED = 0
    UNSIGNED = 1
    FLOAT = 2
    DOUBLE = 3
    SIZED = 4
    YEAR = 5
    DATE = 6
    DATETIME = 7
    TIMESTAMP = 8
    TIME = 9
    DECIMAL = 10
    LITTLE = 11
    BIG = 12
    OLD_TIMESTAMP = 13
    OLD_DATETIME = 14
    OLD_TIME = 15

cdef int[10] DIGIT_BYTES = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
cdef int64_t[10] POWERS = [
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000
]
cdef int64_t[4] FRACTION_UNITS = [0, 10000, 100, 1]


cdef inline uint64_t little(const uint8_t* b, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int k
    for k in range(size):
        value |= <uint64_t>b[k] << (8 * k)
    return value


cdef inline uint64_t big(const uint8_t* b, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int k
    for k in range(size):
        value = value << 8 | b[k]
    return value


cdef inline int64_t sign_extended(uint64_t value, int size) noexcept nogil:
    cdef int shift = 64 - 8 * size
    return <int64_t>(value << shift) >> shift


cdef inline int64_t month_days(int64_t year, int64_t month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline bint days_of(int64_t year, int64_t month, int64_t day, int64_t* out) noexcept nogil:
    """Set the days since 1970; return false for invalid dates."""
    cdef int64_t era, of_era
    if year == 0 or month == 0 or day == 0 or (day > 28 and day > month_days(year, month)):
        return False
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    out[0] = (
        era * 146097 + of_era * 365 + of_era // 4 - of_era // 100
        + (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
        + day - 1 - 719468
    )
    return True


cdef object decimal(const uint8_t* b, int head, int groups, int tail):
    """Decode groups of nine digits in four bytes each; up to 18 digits fit a machine word."""
    cdef uint8_t mask = 0 if b[0] & 0x80 else 0xFF
    cdef uint8_t first = 0x80
    cdef int64_t small = 0
    cdef int64_t part
    cdef int at = 0, k, n, width, digits
    cdef int total = (1 if head else 0) + groups + (1 if tail else 0)
    cdef bint wide = head + 9 * groups + tail > 18
    cdef object large = 0
    for n in range(total):
        digits = head if (head and n == 0) else (tail if (tail and n == total - 1) else 9)
        width = DIGIT_BYTES[digits]
        part = 0
        for k in range(width):
            part = part << 8 | (b[at] ^ mask ^ first)
            first = 0
            at += 1
        if wide:
            large = large * POWERS[digits] + part
        else:
            small = small * POWERS[digits] + part
    if wide:
        return -large if mask else large
    return -small if mask else small


cdef int decimal_size(int head, int groups, int tail) noexcept nogil:
    return DIGIT_BYTES[head] + 4 * groups + DIGIT_BYTES[tail]


cdef int fixed_size(const int32_t* op) noexcept nogil:
    """Return the bytes of a column; of its length only, if it has one."""
    cdef int32_t what = op[0]
    if what == FLOAT or what == OLD_TIMESTAMP:
        return 4
    if what == DOUBLE or what == OLD_DATETIME:
        return 8
    if what == YEAR:
        return 1
    if what == DATE or what == OLD_TIME:
        return 3
    if what == DATETIME:
        return 5 + op[1]
    if what == TIMESTAMP:
        return 4 + op[1]
    if what == TIME:
        return 3 + op[1]
    if what == DECIMAL:
        return decimal_size(op[1], op[2], op[3])
    return op[1]


cdef object moment(const uint8_t* b, const int32_t* op):
    """Return a date or time as a number; None if it is invalid."""
    cdef int64_t v, w, f, d = 0
    cdef int width = op[1]
    cdef int32_t what = op[0]
    if what == DATE:
        v = <int64_t>little(b, 3)
        return d if days_of(v >> 9, v >> 5 & 15, v & 31, &d) else None
    if what == DATETIME:
        v = <int64_t>big(b, 5) - (<int64_t>1 << 39)
        f = <int64_t>big(b + 5, width) * FRACTION_UNITS[width]
        if v < 0 or not days_of((v >> 22) // 13, (v >> 22) % 13, v >> 17 & 31, &d):
            return None
        return ((d * 24 + (v >> 12 & 31)) * 60 + (v >> 6 & 63)) * 60000000 + (v & 63) * 1000000 + f
    if what == TIMESTAMP:
        v, f = <int64_t>big(b, 4), <int64_t>big(b + 4, width)
        return v * 1000000 + f * FRACTION_UNITS[width] if v or f else None
    if what == TIME:
        v = <int64_t>big(b, 3 + width) - (<int64_t>1 << (23 + 8 * width))
        w = -v if v < 0 else v
        f = w & ((<int64_t>1 << (8 * width)) - 1)
        w >>= 8 * width
        w = ((w >> 12 & 1023) * 3600 + (w >> 6 & 63) * 60 + (w & 63)) * 1000000
        w += f * FRACTION_UNITS[width]
        return -w if v < 0 else w
    return old_moment(b, what)


cdef object old_moment(const uint8_t* b, int32_t what):
    cdef int64_t v, w, d = 0
    cdef uint64_t u
    if what == OLD_TIMESTAMP:
        v = <int64_t>little(b, 4)
        return v * 1000000 if v else None
    if what == OLD_DATETIME:
        u = little(b, 8)
        if u > 99999999999999:
            return None
        if not days_of(u // 10000000000, u // 100000000 % 100, u // 1000000 % 100, &d):
            return None
        v = <int64_t>u
        return ((d * 24 + v // 10000 % 100) * 60 + v // 100 % 100) * 60000000 + v % 100 * 1000000
    v = sign_extended(little(b, 3), 3)
    w = -v if v < 0 else v
    w = ((w // 10000) * 3600 + w // 100 % 100 * 60 + w % 100) * 1000000
    return -w if v < 0 else w


cdef object value(const uint8_t* b, const int32_t* op):
    """Return the value of a column of fixed size."""
    cdef int32_t what = op[0]
    cdef float small
    cdef double wide
    if what == SIGNED:
        return sign_extended(little(b, op[1]), op[1])
    if what == UNSIGNED or what == LITTLE:
        return little(b, op[1])
    if what == FLOAT:
        memcpy(&small, b, 4)
        return <double>small
    if what == DOUBLE:
        memcpy(&wide, b, 8)
        return wide
    if what == YEAR:
        return 1900 + b[0] if b[0] else 0
    if what == DECIMAL:
        return decimal(b, op[1], op[2], op[3])
    if what == BIG:
        return big(b, op[1])
    return moment(b, op)


def decode(bytes data, Py_ssize_t p, Py_ssize_t end, program, list columns):
    """Append the values of all images in data[p:end] to the columns.

    Returns the number of images; raises ValueError if they end within a value.
    """
    cdef const uint8_t* b = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const int32_t[::1] ops = program
    cdef Py_ssize_t count = len(columns), c, nulls, size
    cdef Py_ssize_t bitmap = (count + 7) // 8
    cdef const int32_t* op
    cdef int64_t images = 0
    cdef list column
    if end > PyBytes_GET_SIZE(data) or p < 0:
        raise ValueError("rows end within a value")
    while p < end:
        nulls = p
        p += bitmap
        if p > end:
            raise ValueError("rows end within a value")
        images += 1
        for c in range(count):
            column = <list>columns[c]
            if b[nulls + (c >> 3)] >> (c & 7) & 1:
                column.append(None)
                continue
            op = &ops[5 * c]
            size = fixed_size(op)
            if p + size > end:
                raise ValueError("rows end within a value")
            if op[0] == SIZED:
                size = <Py_ssize_t>little(b + p, op[1])
                p += op[1]
                if size > end - p:
                    raise ValueError("rows end within a value")
                column.append(PyBytes_FromStringAndSize(<const char*>(b + p), size))
            else:
                column.append(value(b + p, op))
            p += size
    return images
