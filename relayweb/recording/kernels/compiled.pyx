# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""`plain`, compiled: one pass over the bytes, no values made of what is only passed by.

Every function holds for any bytes: what is no JSON gives some answer and is never read beyond its end.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_COMPACT_ASCII(object text)

from relayweb.recording.kernels.names import (
    ARGUMENTS as _ARGUMENTS,
    CONTENT as _CONTENT,
    FRAME as _FRAME,
    IN_DATA as _IN_DATA,
    INDEX as _INDEX,
    LISTS as _LISTS,
    LOOSE as _LOOSE,
    LOOSE_NAME as _LOOSE_NAME,
    MESSAGE_NAME as _MESSAGE_NAME,
    LONGEST_NAME as _LONGEST_NAME,
    MIN_MESSAGE as _MIN_MESSAGE,
    MIN_VALUE as _MIN_VALUE,
    NAMING as _NAMING,
    OPENED as _OPENED,
    PAYLOAD as _PAYLOAD,
    SUSPECT as _SUSPECT,
    SAME_MESSAGES,
    SAME_TOOLS,
    TOOLS_NAME as _TOOLS_NAME,
    WHOLE as _WHOLE,
    LIST,
    MESSAGE,
    TOOLS,
    VALUE,
    meaning,
)

ctypedef const uint8_t *Text

cdef int CONTENT = _CONTENT, FRAME = _FRAME, LISTS = _LISTS, LOOSE_NAME = _LOOSE_NAME, MESSAGE_NAME = _MESSAGE_NAME
cdef int OPENED = _OPENED, PAYLOAD = _PAYLOAD, TOOLS_NAME = _TOOLS_NAME, WHOLE = _WHOLE
cdef int LOOSE = _LOOSE, IN_DATA = _IN_DATA
cdef Py_ssize_t MIN_MESSAGE = _MIN_MESSAGE, MIN_VALUE = _MIN_VALUE
cdef bytes INDEX = _INDEX
cdef const char *INDEX_TEXT = PyBytes_AS_STRING(INDEX)
cdef Py_ssize_t INDEX_SIZE = len(_INDEX)
cdef dict _meanings = {}


# Passing by -----------------------------------------------------------------------------------------------------------

cdef inline Text _space(Text at, Text end) noexcept nogil:
    while at < end and (at[0] == 32 or 9 <= at[0] <= 13):
        at += 1
    return at


cdef inline Text _string(Text at, Text end) noexcept nogil:
    """Behind the text whose opening quote is before `at`."""
    cdef Text first = at, quote, back
    while at < end:
        quote = <Text> memchr(at, 34, end - at)
        if quote == NULL:
            return end
        back = quote
        while back > first and (back - 1)[0] == 92:
            back -= 1
        at = quote + 1
        if ((quote - back) & 1) == 0:
            return at
    return end


cdef Text _value(Text at, Text end) noexcept nogil:
    """Behind the value that begins at `at`."""
    cdef Py_ssize_t depth = 0
    cdef uint8_t sign
    if at < end and at[0] == 34:
        return _string(at + 1, end)
    while at < end:
        sign = at[0]
        if sign == 34:
            at = _string(at + 1, end)
            continue
        if sign == 123 or sign == 91:
            depth += 1
        elif sign == 125 or sign == 93:
            if depth == 0:
                return at
            depth -= 1
            if depth == 0:
                return at + 1
        elif depth == 0 and (sign == 44 or sign == 32 or 9 <= sign <= 13):
            return at
        at += 1
    return end


# What is kept apart ---------------------------------------------------------------------------------------------------

cdef class _Plan:
    cdef Text base
    cdef bint same
    cdef list cuts

    cdef inline bint large(self, Text start, Text end) noexcept:
        return end - start >= MIN_VALUE or (self.same and memchr(start, 0x7F, end - start) != NULL)

    cdef Py_ssize_t put(self, Text start, Text end, object kind, int flags) except -1:
        self.cuts.append((start - self.base, end - self.base, kind, flags & (LOOSE | IN_DATA), None))
        return end - start - 2

    cdef Py_ssize_t cut(self, int name, Text start, Text end, int flags, int depth) except -1:
        """Plan one value; how much shorter its text becomes."""
        cdef uint8_t first = start[0]
        cdef Py_ssize_t mark, saved
        if first == 91 and name & LISTS:
            return self.items(start, end, flags)
        if not self.large(start, end):
            if first == 123 and name & MESSAGE_NAME:
                return self.put(start, end, MESSAGE, flags)
            if (first == 123 and name & CONTENT) or ((first == 123 or first == 91) and name & OPENED):
                return self.inside(start, end, flags, depth)
            return 0
        if first == 34 or name & WHOLE:
            if name & TOOLS_NAME:
                if self.same and end - start == len(SAME_TOOLS) and memcmp(start, <Text> PyBytes_AS_STRING(SAME_TOOLS), end - start) == 0:
                    return 0
                return self.put(start, end, TOOLS, flags)
            return self.put(start, end, VALUE, flags)
        if first == 123 and name & MESSAGE_NAME:
            return self.put(start, end, MESSAGE, flags)
        if first != 123 and first != 91:
            return 0
        mark = len(self.cuts)
        saved = self.inside(start, end, flags, depth)
        if not name & FRAME and (end - start - saved >= MIN_VALUE or (self.same and self.stands(start, end, mark))):
            del self.cuts[mark:]
            return self.put(start, end, VALUE, flags)
        return saved

    cdef bint stands(self, Text start, Text end, Py_ssize_t mark) except -1:
        """Whether a stand-in is left between what is cut out."""
        cdef Text at = start
        cdef Py_ssize_t a, b
        for a, b, _, _, items in self.cuts[mark:]:
            if items is not None:
                return memchr(start, 0x7F, end - start) != NULL
            if memchr(at, 0x7F, self.base + a - at) != NULL:
                return True
            at = self.base + b
        return memchr(at, 0x7F, end - at) != NULL

    cdef Py_ssize_t items(self, Text start, Text end, int flags) except -1:
        """A list of messages."""
        cdef Text at = start + 1, item
        cdef Py_ssize_t saved = 0
        cdef list places = []
        while True:
            at = _space(at, end)
            if at >= end or at[0] == 93:
                break
            item = at
            at = _value(at, end)
            if at == item:
                break
            places.append(item - self.base)
            places.append(at - self.base)
            if at - item >= MIN_MESSAGE and not (self.same and item[0] == 34 and item[1] == 0x7F):
                saved += at - item - 2
            at = _space(at, end)
            if at >= end or at[0] != 44:
                break
            at += 1
        self.cuts.append((start - self.base, end - self.base, LIST, flags & (LOOSE | IN_DATA), places))
        return saved

    cdef Py_ssize_t inside(self, Text start, Text end, int flags, int depth) except -1:
        """Plan what is large inside an object or a list; how much shorter its text becomes."""
        cdef Text at = start + 1, name_at = NULL, name_end = NULL, value
        cdef bint is_object = start[0] == 123
        cdef Py_ssize_t saved = 0
        cdef int name = 0
        if depth > 1000:
            return 0
        while True:
            at = _space(at, end)
            if at >= end:
                break
            if is_object:
                if at[0] != 34:
                    break
                name_at = at + 1
                at = _string(name_at, end)
                name_end = at - 1
                at = _space(at, end)
                if at >= end or at[0] != 58:
                    break
                at = _space(at + 1, end)
            value = at
            at = _value(at, end)
            if at == value:
                break
            if at - value >= MIN_MESSAGE:
                if is_object:
                    name = _meaning(name_at, name_end)
                saved += self.cut(name, value, at, flags | (LOOSE if name & LOOSE_NAME else 0), depth + 1)
            at = _space(at, end)
            if at >= end or at[0] != 44:
                break
            at += 1
        return saved

    cdef int payloads(self, Text start, Text end, bint loose_data) except -1:
        """Plan the payloads of an event."""
        cdef Text at = _space(start, end) + 1, name_at, name_end, value
        cdef int name, flags
        while True:
            at = _space(at, end)
            if at >= end or at[0] != 34:
                break
            name_at = at + 1
            at = _string(name_at, end)
            name_end = at - 1
            at = _space(at, end)
            if at >= end or at[0] != 58:
                break
            value = at = _space(at + 1, end)
            at = _value(at, end)
            if at == value:
                break
            if at - value >= MIN_MESSAGE:
                name = _meaning(name_at, name_end)
                if name & PAYLOAD:
                    flags = IN_DATA if name & OPENED else 0
                    if name & LOOSE_NAME or (loose_data and flags):
                        flags |= LOOSE
                    self.cut(name, value, at, flags, 0)
            at = _space(at, end)
            if at >= end or at[0] != 44:
                break
            at += 1
        return 0


cdef int _meaning(Text start, Text end) except -1:
    cdef bytes name = PyBytes_FromStringAndSize(<const char *> start, end - start if end > start else 0)
    found = _meanings.get(name)
    if found is None:
        if len(_meanings) > 10_000:
            _meanings.clear()
        found = _meanings[name] = meaning(name)
    return found


def plan(bytes line not None, bint loose_data, bint same):
    cdef _Plan one = _Plan.__new__(_Plan)
    one.base, one.same, one.cuts = <Text> PyBytes_AS_STRING(line), same, []
    one.payloads(one.base, one.base + PyBytes_GET_SIZE(line), loose_data)
    return one.cuts


def plan_inside(bytes value not None):
    cdef _Plan one = _Plan.__new__(_Plan)
    one.base, one.same, one.cuts = <Text> PyBytes_AS_STRING(value), False, []
    if PyBytes_GET_SIZE(value) and (one.base[0] == 123 or one.base[0] == 91):
        one.inside(one.base, one.base + PyBytes_GET_SIZE(value), 0, 0)
    return one.cuts


# Chunk marks ----------------------------------------------------------------------------------------------------------

cdef int[256] _HEX
for _code in range(256):
    _HEX[_code] = b"0123456789abcdef".find(_code)


cdef inline bint _uuid(Text at, uint8_t *out) noexcept nogil:
    """The uuid in small letters that stands at `at`, in 36 bytes."""
    cdef int i, place = 0, high, low
    for i in range(16):
        if place == 8 or place == 13 or place == 18 or place == 23:
            if at[place] != 45:
                return False
            place += 1
        high, low = _HEX[at[place]], _HEX[at[place + 1]]
        if high < 0 or low < 0:
            return False
        out[i] = high << 4 | low
        place += 2
    return True


cdef inline int64_t _digits(Text at, int count) noexcept nogil:
    """A number of so many digits; -1 if it is none."""
    cdef int64_t value = 0
    cdef int i
    for i in range(count):
        if not 48 <= at[i] <= 57:
            return -1
        value = value * 10 + (at[i] - 48)
    return value


cdef int64_t NOT_A_TIME = -0x7FFFFFFFFFFFFFFF
cdef int[12] _DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


cdef int64_t _time(Text at) noexcept nogil:
    """`2026-11-30T10:00:00.123456789+00:00` of the years 1900 to 2199 in ns since 1970."""
    cdef int64_t year, month, day, hour, minute, second, ns, era, of_era, of_year, days
    if at[4] != 45 or at[7] != 45 or at[10] != 84 or at[13] != 58 or at[16] != 58 or at[19] != 46:
        return NOT_A_TIME
    if memcmp(at + 29, b"+00:00", 6) != 0:
        return NOT_A_TIME
    year, month, day = _digits(at, 4), _digits(at + 5, 2), _digits(at + 8, 2)
    hour, minute, second, ns = _digits(at + 11, 2), _digits(at + 14, 2), _digits(at + 17, 2), _digits(at + 20, 9)
    if not (1900 <= year < 2200 and 1 <= month <= 12 and 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return NOT_A_TIME
    if ns < 0 or day < 1 or day > _DAYS[month - 1] + (
        month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    ):
        return NOT_A_TIME
    # Days of the proleptic Gregorian calendar, years beginning in March.
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + ns


def mark_parts(bytes line not None):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(line)
    cdef Text text = <Text> PyBytes_AS_STRING(line), end = text + size, own, cut, stop
    cdef uint8_t[16] uuid
    cdef int64_t at_ns, index = -1
    cdef Py_ssize_t before
    if size < 212 or text[size - 1] != 125 or text[size - 2] != 34:
        return None
    if memcmp(end - 48, b'","uuid":"', 10) != 0 or memcmp(end - 98, b'","timestamp":"', 15) != 0:
        return None
    at_ns = _time(end - 83)
    if at_ns == NOT_A_TIME or not _uuid(end - 38, uuid):
        return None
    own = end - 212
    cut = _index(text, own)
    look = None
    if cut != NULL:
        stop = cut
        while stop < own and 48 <= stop[0] <= 57:
            stop += 1
        if 0 < stop - cut <= 15 and stop < own and stop[0] == 44 and (cut[0] != 48 or stop - cut == 1):
            index = _digits(cut, stop - cut)
            before = cut - text
            look = PyBytes_FromStringAndSize(NULL, before + (own - stop))
            memcpy(PyBytes_AS_STRING(look), text, before)
            memcpy(PyBytes_AS_STRING(look) + before, stop, own - stop)
    return (
        PyBytes_FromStringAndSize(<const char *> own, 114),
        look,
        index,
        PyBytes_FromStringAndSize(<const char *> uuid, 16),
        at_ns,
    )


cdef object _uuid_of(object text):
    """The 16 bytes of a uuid written as Relay does; None for any other text."""
    cdef Py_ssize_t size = 0
    cdef const char *at
    cdef uint8_t[16] uuid
    if not PyUnicode_CheckExact(text) or not PyUnicode_IS_COMPACT_ASCII(text):
        return None
    at = PyUnicode_AsUTF8AndSize(text, &size)
    if size != 36 or not _uuid(<Text> at, uuid):
        return None
    return PyBytes_FromStringAndSize(<const char *> uuid, 16)


def identity(uuid, parent, root, timestamp):
    cdef Py_ssize_t size = 0
    cdef const char *at
    cdef int64_t at_ns
    if not PyUnicode_CheckExact(timestamp) or not PyUnicode_IS_COMPACT_ASCII(timestamp):
        return None
    at = PyUnicode_AsUTF8AndSize(timestamp, &size)
    if size != 35:
        return None
    at_ns = _time(<Text> at)
    own = _uuid_of(uuid)
    above = _uuid_of(parent) if parent else None
    top = own if root == uuid else _uuid_of(root) if root else None
    if at_ns == NOT_A_TIME or own is None or (parent and above is None) or (root and top is None):
        return None
    return own, above, top, at_ns


cdef Text _index(Text at, Text end) noexcept nogil:
    """Behind the first `"chunk_index":`, or NULL."""
    cdef Text quote
    while end - at >= INDEX_SIZE:
        quote = <Text> memchr(at, 34, end - at - INDEX_SIZE + 1)
        if quote == NULL:
            return NULL
        if memcmp(quote, INDEX_TEXT, INDEX_SIZE) == 0:
            return quote + INDEX_SIZE
        at = quote + 1
    return NULL


# Holes ----------------------------------------------------------------------------------------------------------------

cdef const char *_LETTERS = b"0123456789abcdef"


cdef bint _spell(object uuid, uint8_t *out) except -1:
    """A uuid of 16 bytes as its text of 36; False if there is none."""
    cdef Text value
    cdef int i, place = 0
    if uuid is None:
        return False
    if PyBytes_GET_SIZE(<bytes?> uuid) != 16:
        raise ValueError("a uuid has 16 bytes")
    value = <Text> PyBytes_AS_STRING(uuid)
    for i in range(16):
        if place == 8 or place == 13 or place == 18 or place == 23:
            out[place] = 45
            place += 1
        out[place] = _LETTERS[value[i] >> 4]
        out[place + 1] = _LETTERS[value[i] & 15]
        place += 2
    return True


def make_holes(bytes text not None, bytes uuid not None, bytes parent, bytes root, bytes stamp not None, bytes mark not None):
    cdef uint8_t[36] own, above, top
    cdef bint has_parent = _spell(parent, above), has_root = _spell(root, top), in_parent = False, in_root = False, dated
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text), stamp_size = PyBytes_GET_SIZE(stamp)
    cdef Text base = <Text> PyBytes_AS_STRING(text), end = base + size, at = base, done = base, dash, start
    cdef Text time = <Text> PyBytes_AS_STRING(stamp)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(made)
    cdef Py_ssize_t length = 0
    cdef uint8_t letter
    _spell(uuid, own)
    if stamp_size and PyBytes_GET_SIZE(mark) != 2:
        raise ValueError("a mark has two bytes")
    dated = stamp_size >= 10 and time[4] == 45
    if not dated:
        stamp_size = 0
    while at < end:
        dash = <Text> memchr(at, 45, end - at)
        if dash == NULL:
            break
        at = dash + 1
        start = dash - 8
        letter = 0
        if start >= done and end - start >= 36 and start[13] == 45:
            if memcmp(start, own, 36) == 0:
                letter = 117
            elif has_parent and memcmp(start, above, 36) == 0:
                letter = 112
                in_parent = True
            elif has_root and memcmp(start, top, 36) == 0:
                letter = 114
                in_root = True
        if letter:
            memcpy(out + length, done, start - done)
            length += start - done
            out[length] = 0
            out[length + 1] = letter
            length += 2
            at = done = start + 36
            continue
        start = dash - 4
        if stamp_size and start >= done and end - start >= stamp_size and memcmp(start, time, stamp_size) == 0:
            memcpy(out + length, done, start - done)
            length += start - done
            memcpy(out + length, b"\0t", 2)
            memcpy(out + length + 2, PyBytes_AS_STRING(mark), 2)
            length += 4
            at = done = start + stamp_size
            stamp_size = 0
    memcpy(out + length, done, end - done)
    length += end - done
    text = made[:length]
    return text if dated or not stamp else text.replace(stamp, b"\0t" + mark, 1), in_parent, in_root


# Whole numbers --------------------------------------------------------------------------------------------------------

cdef int _varint(uint8_t *out, uint64_t value) noexcept nogil:
    cdef int size = 0
    while value > 127:
        out[size] = value & 127 | 128
        value >>= 7
        size += 1
    out[size] = value
    return size + 1


def write_varint(bytearray out not None, uint64_t value):
    cdef uint8_t[10] room
    cdef int size = _varint(room, value)
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(out)
    PyByteArray_Resize(out, at + size)
    memcpy(PyByteArray_AS_STRING(out) + at, room, size)


def write_deltas(bytearray out not None, values):
    cdef uint8_t[10] room
    cdef int64_t last = 0, value, delta
    cdef int size
    cdef Py_ssize_t at
    for value in values:
        delta = value - last
        last = value
        size = _varint(room, <uint64_t> delta << 1 if delta >= 0 else (<uint64_t> (-delta) << 1) - 1)
        at = PyByteArray_GET_SIZE(out)
        PyByteArray_Resize(out, at + size)
        memcpy(PyByteArray_AS_STRING(out) + at, room, size)


cdef int _column(bytearray out, int64_t *values, Py_ssize_t count) except -1:
    cdef int64_t low = values[0], high = values[0]
    cdef Py_ssize_t i, at = PyByteArray_GET_SIZE(out)
    cdef int code, width, byte
    cdef uint8_t *to
    for i in range(1, count):
        low, high = min(low, values[i]), max(high, values[i])
    if -0x80 <= low and high < 0x80:
        code = 0
    elif -0x8000 <= low and high < 0x8000:
        code = 1
    elif -0x80000000 <= low and high < 0x80000000:
        code = 2
    else:
        code = 3
    width = 1 << code
    PyByteArray_Resize(out, at + 1 + count * width)
    to = <uint8_t *> PyByteArray_AS_STRING(out) + at
    to[0] = code
    to += 1
    for i in range(count):
        for byte in range(width):
            to[byte] = (<uint64_t> values[i] >> (8 * byte)) & 255
        to += width
    return 0


def pack(bytearray out not None, values):
    cdef Py_ssize_t count = len(values), i
    cdef int64_t *room = <int64_t *> PyMem_Malloc(max(count, 1) * sizeof(int64_t))
    if room == NULL:
        raise MemoryError
    try:
        for i in range(count):
            room[i] = values[i]
        _column(out, room, count)
    finally:
        PyMem_Free(room)


def pack_differences(bytearray out not None, values):
    cdef Py_ssize_t count = len(values) - 1, i
    cdef int64_t *room = <int64_t *> PyMem_Malloc(max(count, 1) * sizeof(int64_t))
    cdef int64_t before, value
    if room == NULL:
        raise MemoryError
    try:
        before = values[0]
        for i in range(count):
            value = values[i + 1]
            room[i] = value - before
            before = value
        _column(out, room, count)
    finally:
        PyMem_Free(room)


def split_uuids(list uuids not None, list times not None):
    cdef Py_ssize_t count = len(uuids), i
    cdef bytes tails = PyBytes_FromStringAndSize(NULL, 10 * count)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(tails)
    cdef Text uuid
    cdef int64_t ns, millis
    cdef list columns = []
    if len(times) != count:
        raise ValueError("each uuid has a time")
    for i in range(count):
        if PyBytes_GET_SIZE(<bytes?> uuids[i]) != 16:
            raise ValueError("a uuid has 16 bytes")
        uuid, ns = <Text> PyBytes_AS_STRING(uuids[i]), times[i]
        millis = (
            <int64_t> uuid[0] << 40 | <int64_t> uuid[1] << 32 | <int64_t> uuid[2] << 24
            | <int64_t> uuid[3] << 16 | <int64_t> uuid[4] << 8 | uuid[5]
        )
        memcpy(out + 10 * i, uuid + 6, 10)
        # Rounded down, as in Python.
        columns.append(millis - (ns // 1_000_000 - (1 if ns % 1_000_000 < 0 else 0)))
    return columns, tails


# Looking through ------------------------------------------------------------------------------------------------------

cdef uint8_t[256] _SMALL
for _code in range(256):
    _SMALL[_code] = _code + 32 if 65 <= _code <= 90 else _code

cdef dict _OFTEN = {sign: 30 for sign in b'etaoinsrdl"'} | {sign: 10 for sign in b"hcumpgyf_:,0123456789"}


cdef inline uint16_t _mixed(uint32_t three) noexcept nogil:
    return <uint16_t> ((three * <uint32_t> 0x9E3779B1) >> 16)


cdef class Signs:
    """Three bytes of each sign, the rarest, are looked for; what has them is compared."""
    cdef uint8_t[8192] threes
    cdef list signs
    cdef list short
    cdef int16_t[256] head, following
    cdef uint16_t[256] three
    cdef uint8_t[256] place
    cdef uint8_t[256] size
    cdef Text[256] text

    def __cinit__(self, signs):
        cdef bytes sign
        cdef int i, place
        every = dict.fromkeys(bytes(sign).lower() for sign in signs)
        self.short = [sign[0] for sign in every if len(sign) == 1]
        self.signs = [sign for sign in every if len(sign) > 2]
        if len(self.signs) > 256 or any(len(sign) in (0, 2) or len(sign) > 255 for sign in every):
            raise ValueError("256 signs at most, of one byte or of 3 to 255")
        for i in range(256):
            self.head[i] = -1
        for i, sign in enumerate(self.signs):
            place = min(range(len(sign) - 2), key=lambda at: _rarity(sign[at : at + 3]))
            self.text[i], self.size[i], self.place[i] = <Text> PyBytes_AS_STRING(sign), len(sign), place
            self.three[i] = _mixed(sign[place] << 16 | sign[place + 1] << 8 | sign[place + 2])
            self.threes[self.three[i] >> 3] |= 1 << (self.three[i] & 7)
            self.following[i], self.head[self.three[i] & 255] = self.head[self.three[i] & 255], i

    def within(self, bytes text not None):
        cdef Text base = <Text> PyBytes_AS_STRING(text)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(text), at
        cdef uint32_t three
        cdef uint16_t mixed
        cdef int sign
        for sign in self.short:
            if memchr(base, sign, size) != NULL:
                return True
        if size < 3:
            return False
        three = _SMALL[base[0]] << 8 | _SMALL[base[1]]
        for at in range(2, size):
            three = (three << 8 | _SMALL[base[at]]) & 0xFFFFFF
            mixed = _mixed(three)
            if self.threes[mixed >> 3] >> (mixed & 7) & 1 and self.at(base, size, at - 2, mixed):
                return True
        return False

    cdef bint at(self, Text base, Py_ssize_t size, Py_ssize_t place, uint16_t three) noexcept nogil:
        cdef int i = self.head[three & 255]
        cdef Py_ssize_t start, step
        while i >= 0:
            start = place - self.place[i]
            if self.three[i] == three and start >= 0 and start + self.size[i] <= size:
                for step in range(self.size[i]):
                    if _SMALL[base[start + step]] != self.text[i][step]:
                        break
                else:
                    return True
            i = self.following[i]
        return False


def _rarity(three):
    rarity = 1
    for sign in three:
        rarity *= _OFTEN.get(sign, 1)
    return rarity


def is_deeper(bytes text not None, Py_ssize_t levels):
    cdef Text at = <Text> PyBytes_AS_STRING(text), end = at + PyBytes_GET_SIZE(text)
    cdef Py_ssize_t depth = 0
    cdef uint8_t sign
    while at < end:
        sign = at[0]
        at += 1
        if sign == 34:
            at = _string(at, end)
        elif sign == 123 or sign == 91:
            depth += 1
            if depth > levels:
                return True
        elif sign == 125 or sign == 93:
            depth -= 1
    return False


cdef Py_ssize_t LONGEST_NAME = _LONGEST_NAME
cdef int SUSPECT = _SUSPECT, NAMING = _NAMING, ARGUMENTS = _ARGUMENTS


cdef class Names:
    cdef dict kinds
    cdef object kind, arguments

    def __init__(self, kind, arguments):
        self.kinds, self.kind, self.arguments = {}, kind, arguments

    def are_plain(self, bytes text not None):
        cdef Text at = <Text> PyBytes_AS_STRING(text), end = at + PyBytes_GET_SIZE(text)
        at = _space(at, end)
        return at < end and self.behind(at, end, 0) != NULL

    cdef int kind_of(self, Text start, Text end) except -1:
        """Of the text between two quotes."""
        cdef bytes name
        if end - start > LONGEST_NAME:
            return self.kind(PyBytes_FromStringAndSize(<const char *> start, end - start))
        name = PyBytes_FromStringAndSize(<const char *> start, end - start if end > start else 0)
        found = self.kinds.get(name)
        if found is None:
            if len(self.kinds) > 10_000:
                self.kinds.clear()
            found = self.kinds[name] = self.kind(name)
        return found

    cdef bint names_a_secret(self, Text start, Text end) except -1:
        """Whether this value is a short text that is the name of a secret."""
        return start[0] == 34 and end - start < LONGEST_NAME and self.kind_of(start + 1, end - 1) & SUSPECT

    cdef Text behind(self, Text at, Text end, int depth) except? NULL:
        """Behind a value whose names are all plain; NULL if they are not."""
        if at[0] != 123 and at[0] != 91:
            return _value(at, end)
        if depth > 600:
            return NULL
        return self.behind_object(at + 1, end, depth) if at[0] == 123 else self.behind_list(at + 1, end, depth)

    cdef Text behind_object(self, Text at, Text end, int depth) except? NULL:
        cdef Text name, value
        cdef int kind
        while True:
            at = _space(at, end)
            if at < end and at[0] == 125:
                return at + 1
            if at >= end or at[0] != 34:
                return NULL
            name = at + 1
            at = _string(name, end)
            kind = self.kind_of(name, at - 1)
            if kind & SUSPECT:
                return NULL
            at = _space(at, end)
            if at >= end or at[0] != 58:
                return NULL
            value = at = _space(at + 1, end)
            if at >= end:
                return NULL
            at = self.behind(at, end, depth + 1)
            if at == NULL or at == value:
                return NULL
            if kind & NAMING and self.names_a_secret(value, at):
                return NULL
            if kind & ARGUMENTS and self.arguments(PyBytes_FromStringAndSize(<const char *> value, at - value)):
                return NULL
            at = _space(at, end)
            if at < end and at[0] == 44:
                at += 1

    cdef Text behind_list(self, Text at, Text end, int depth) except? NULL:
        cdef Text first = NULL, first_end = NULL, item
        cdef Py_ssize_t count = 0
        while True:
            at = _space(at, end)
            if at < end and at[0] == 93:
                return NULL if count == 2 and self.names_a_secret(first, first_end) else at + 1
            if at >= end:
                return NULL
            item = at
            at = self.behind(at, end, depth + 1)
            if at == NULL or at == item:
                return NULL
            if count == 0:
                first, first_end = item, at
            count += 1
            at = _space(at, end)
            if at < end and at[0] == 44:
                at += 1


# Remembering ----------------------------------------------------------------------------------------------------------

cdef class Generations:
    cdef public Py_ssize_t size
    cdef Py_ssize_t half
    cdef dict young, old

    def __init__(self, Py_ssize_t size):
        self.size, self.half = size, max(1, size // 2)
        self.young, self.old = {}, {}

    def __class_getitem__(cls, _):
        return cls

    def get(self, key):
        cdef PyObject *found = PyDict_GetItemWithError(self.young, key)
        if found == NULL and len(self.old):
            value = self.old.pop(key, None)
            if value is not None:
                self.young[key] = value
            return value
        return <object> found if found != NULL else None

    def put(self, key, value):
        self.young[key] = value

    def trim(self, bint full=False):
        full = full or len(self.young) > self.half
        if full:
            self.old, self.young = self.young, {}
        return full

    def drop(self, key):
        self.young.pop(key, None)
        self.old.pop(key, None)

    def clear(self):
        self.young.clear()
        self.old.clear()

    def __iter__(self):
        yield from self.young.values()
        yield from self.old.values()

    def __len__(self):
        return len(self.young) + len(self.old)
