"""`kernels` in Python alone, for machines where nothing could be compiled."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from relayweb.recording.kernels.names import (
    ARGUMENTS,
    CONTENT,
    FRAME,
    IN_DATA,
    INDEX,
    LIST,
    LISTS,
    LONGEST_NAME,
    LOOSE,
    LOOSE_NAME,
    MESSAGE,
    MESSAGE_NAME,
    MIN_MESSAGE,
    MIN_VALUE,
    NAMING,
    OPENED,
    PAYLOAD,
    SAME_MESSAGES,
    SAME_TOOLS,
    STAND_IN,
    SUSPECT,
    TOOLS,
    TOOLS_NAME,
    VALUE,
    WHOLE,
    meaning,
)

Cut = tuple[int, int, int, int, list[int] | None]
"""`(start, end, kind, flags, items)`: bytes of the text, a kind and flags of `names`, and for a list of messages the
starts and ends of its items one after the other, for all else None. Cuts come in order and never overlap."""

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


@lru_cache(10_000)
def _meaning(name: str) -> int:
    return meaning(msgspec.json.encode(name)[1:-1])


def _find(text: bytes, part: bytes, guess: int, at: int) -> int:
    """Where `part` stands in `text`, at `at` or later. In JSON without spaces and escapes the guess is right."""
    return guess if guess >= at and text.startswith(part, guess) else text.find(part, at)


class _Plan:
    def __init__(self, same: bool) -> None:
        self.same = same
        self.cuts: list[Cut] = []

    def large(self, value: bytes) -> bool:
        return len(value) >= MIN_VALUE or (self.same and STAND_IN in value)

    def put(self, start: int, value: bytes, kind: int, flags: int) -> int:
        self.cuts.append((start, start + len(value), kind, flags, None))
        return len(value) - 2

    def cut(self, name: int, value: bytes, start: int, flags: int) -> int:
        """Plan one value that stands at `start`; how much shorter its text becomes."""
        first = value[:1]
        if first == b"[" and name & LISTS:
            return self.items(value, start, flags)
        if not self.large(value):
            if first == b"{" and name & MESSAGE_NAME:
                return self.put(start, value, MESSAGE, flags)
            if (first == b"{" and name & CONTENT) or (first in b"[{" and name & OPENED):
                return self.inside(value, start, flags)
            return 0
        if first == b'"' or name & WHOLE:
            if name & TOOLS_NAME:
                return 0 if self.same and value == SAME_TOOLS else self.put(start, value, TOOLS, flags)
            return self.put(start, value, VALUE, flags)
        if first == b"{" and name & MESSAGE_NAME:
            return self.put(start, value, MESSAGE, flags)
        if first not in b"[{":
            return 0
        mark = len(self.cuts)
        saved = self.inside(value, start, flags)
        if not name & FRAME and (len(value) - saved >= MIN_VALUE or (self.same and self.stands(value, start, mark))):
            del self.cuts[mark:]
            return self.put(start, value, VALUE, flags)
        return saved

    def stands(self, value: bytes, start: int, mark: int) -> bool:
        """Whether a stand-in is left between what is cut out."""
        at = start
        for a, b, _, _, items in self.cuts[mark:]:
            if items is not None:
                return STAND_IN in value
            if STAND_IN in value[at - start : a - start]:
                return True
            at = b
        return STAND_IN in value[at - start :]

    def items(self, value: bytes, start: int, flags: int) -> int:
        """A list of messages."""
        places: list[int] = []
        saved, at, guess = 0, 1, 1
        for raw in _raw_array(value):
            item = bytes(raw)
            at = _find(value, item, guess, at)
            places += (start + at, start + at + len(item))
            at = guess = at + len(item)
            guess += 1
            if len(item) >= MIN_MESSAGE and not (self.same and item[:2] == SAME_MESSAGES[1:3]):
                saved += len(item) - 2
        self.cuts.append((start, start + len(value), LIST, flags, places))
        return saved

    def inside(self, value: bytes, start: int, flags: int) -> int:
        """Plan what is large inside an object or a list; how much shorter its text becomes."""
        names: Iterable[str] = repeat("")
        if value[:1] == b"{":
            names = members = _raw_object(value)
            children, key = list(map(bytes, members.values())), 3
        else:
            children, key = list(map(bytes, _raw_array(value))), 0
        sizes = list(map(len, children))
        if max(sizes, default=0) < MIN_MESSAGE:
            return 0
        saved, at, place = 0, 0, 1
        for name, child, size in zip(names, children, sizes, strict=False):
            place += len(name) + key
            if size >= MIN_MESSAGE:
                said, where = _meaning(name), _find(value, child, place, at)
                if where >= 0:  # else it came before, and stands behind a second member of its name
                    at = where + size
                    saved += self.cut(said, child, start + where, flags | (LOOSE if said & LOOSE_NAME else 0))
            place += size + 1
        return saved


def plan(line: bytes, loose_data: bool, same: bool) -> list[Cut]:
    """What of an event's payloads is kept apart.

    Args:
        line: a JSON object.
        loose_data: its member `data` is an error text as a whole.
        same: stand-ins (see `names`) may stand in it.
    """
    one, at, place = _Plan(same), 0, 1
    for name, raw in _raw_object(line).items():
        value, said = bytes(raw), _meaning(name)
        place += len(name) + 3
        if said & PAYLOAD and len(value) >= MIN_MESSAGE and (start := _find(line, value, place, at)) >= 0:
            at = start + len(value)
            flags = IN_DATA if name == "data" else 0
            if said & LOOSE_NAME or (loose_data and flags):
                flags |= LOOSE
            one.cut(said, value, start, flags)
        place += len(value) + 1
    return one.cuts


def plan_inside(value: bytes) -> list[Cut]:
    """What of a message is kept apart."""
    one = _Plan(False)
    if value[:1] in (b"{", b"["):
        one.inside(value, 0, 0)
    return one.cuts


# Chunk marks ----------------------------------------------------------------------------------------------------------

_INDEX = len(INDEX)
_REMEMBERED = 4096
_seconds: dict[bytes, int] = {}


def mark_parts(line: bytes) -> tuple[bytes, bytes | None, int, bytes, int] | None:
    """A line that ends as Relay ends a mark, in pieces.

    Returns:
        the members that name parent and root as they stand; all before them without the number of the chunk (None if
        it has none), and that number; the uuid; the time in ns since 1970. None for any other line.
    """
    if len(line) < 212 or line[-2:] != b'"}' or line[-48:-38] != b'","uuid":"' or line[-98:-83] != b'","timestamp":"':
        return None
    text, fraction, second = line[-38:-2], line[-63:-54], line[-83:-63]
    digits = text.replace(b"-", b"").decode("ascii", "replace")
    if text[8:24:5] != b"----" or line[-54:-48] != b"+00:00" or not fraction.isdigit():
        return None
    try:
        uuid = bytes.fromhex(digits)
        at_ns = (_seconds.get(second) or _second(second)) + int(fraction)
    except ValueError:
        return None
    if len(uuid) != 16 or uuid.hex() != digits:
        return None
    look, index = None, -1
    cut = line.find(INDEX, 0, -212) + _INDEX
    if cut >= _INDEX:
        stop = line.find(b",", cut, -212)
        number = line[cut:stop]
        if stop > 0 and number.isdigit() and len(number) <= 15 and (number[0] != 48 or len(number) == 1):
            look, index = line[:cut] + line[stop:-212], int(number)
    return line[-212:-98], look, index, uuid, at_ns


def identity(
    uuid: str, parent: str | None, root: str | None, timestamp: str | int
) -> tuple[bytes, bytes | None, bytes | None, int] | None:
    """What tells one event from others, where it is written as Relay does; None for any other writing.

    Returns:
        the uuids in 16 bytes each, and the time in ns since 1970.
    """
    if not isinstance(timestamp, str) or len(timestamp) != 35 or not timestamp.isascii() or timestamp[29:] != "+00:00":
        return None
    texts = [text for text in (uuid, parent, root) if text or text is uuid]
    fraction, second = timestamp[20:29], timestamp[:20].encode()
    if not fraction.isdigit() or not all(_CANONICAL.fullmatch(text) for text in texts):
        return None
    try:
        at_ns = (_seconds.get(second) or _second(second)) + int(fraction)
    except ValueError:
        return None
    own, above, top = (bytes.fromhex(text.replace("-", "")) if text else None for text in (uuid, parent, root))
    return own or b"", above, top, at_ns


_CANONICAL = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _second(text: bytes) -> int:
    """`2026-11-30T10:00:00.` in ns. Remembered, because marks come by the dozen a second."""
    moment = datetime.strptime(text.decode("ascii", "replace"), "%Y-%m-%dT%H:%M:%S.").replace(tzinfo=UTC)
    if not 1900 <= moment.year < 2200 or moment.strftime("%Y-%m-%dT%H:%M:%S.").encode() != text:
        raise ValueError
    if len(_seconds) > _REMEMBERED:
        _seconds.clear()
    _seconds[text] = at_ns = round(moment.timestamp()) * 1_000_000_000
    return at_ns


# Holes ----------------------------------------------------------------------------------------------------------------


@lru_cache(8192)
def _text(uuid: bytes) -> bytes:
    return str(UUID(bytes=uuid)).encode()


def make_holes(
    text: bytes, uuid: bytes, parent: bytes | None, root: bytes | None, stamp: bytes, mark: bytes
) -> tuple[bytes, bool, bool]:
    """A text without the uuids and the time that others tell of it.

    Args:
        uuid, parent, root: 16 bytes each.
        stamp: the time as it is written; empty if it is to stay.
        mark: two bytes that tell how it is written.

    Returns:
        the text with holes, and whether it held the parent and the root.
    """
    text = text.replace(_text(uuid), b"\0u")
    in_parent = in_root = False
    if parent is not None and (holed := text.replace(_text(parent), b"\0p")) != text:
        text, in_parent = holed, True
    if root is not None and (holed := text.replace(_text(root), b"\0r")) != text:
        text, in_root = holed, True
    return text.replace(stamp, b"\0t" + mark, 1) if stamp else text, in_parent, in_root


# Whole numbers --------------------------------------------------------------------------------------------------------


def write_varint(out: bytearray, value: int) -> None:
    """A number below 2 to the 64th, seven bits a byte."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def write_deltas(out: bytearray, values: Iterable[int]) -> None:
    """Whole numbers as zigzag varints of their differences."""
    last = 0
    for value in values:
        delta = value - last
        last = value
        write_varint(out, delta << 1 if delta >= 0 else (-delta << 1) - 1)


_CODES = "bhiq"  # 1, 2, 4 or 8 bytes a number
_BIG_ENDIAN = sys.byteorder == "big"


def pack(out: bytearray, values: Sequence[int]) -> None:
    """A column of whole numbers of 64 bits at most, each as wide as the widest needs."""
    low, high = min(values), max(values)
    span = max(high, -low - 1)
    code = "b" if span < 1 << 7 else "h" if span < 1 << 15 else "i" if span < 1 << 31 else "q"
    packed = array(code, values)
    if _BIG_ENDIAN:
        packed.byteswap()
    out.append(_CODES.index(code))
    out += packed.tobytes()


def pack_differences(out: bytearray, values: Sequence[int]) -> None:
    """The differences of two or more numbers, around the end of 64 bits if need be."""
    pack(out, [(b - a + (1 << 63)) % (1 << 64) - (1 << 63) for a, b in pairwise(values)])


def split_uuids(uuids: list[bytes], times: list[int]) -> tuple[list[int], bytes]:
    """The milliseconds with which UUIDv7s begin, as differences to these times in ns, and the other ten bytes."""
    millis = [int.from_bytes(uuid[:6], "big") - ns // 1_000_000 for uuid, ns in zip(uuids, times, strict=True)]
    return millis, b"".join([uuid[6:] for uuid in uuids])


# Looking through ------------------------------------------------------------------------------------------------------


class Signs:
    """Texts, of which any is looked for, whatever the case of their letters.

    Args:
        signs: each of one byte or of 3 to 255.
    """

    def __init__(self, signs: Iterable[bytes]) -> None:
        self._signs = [sign.lower() for sign in signs]

    def within(self, text: bytes) -> bool:
        """Whether one of them stands in this text."""
        return max(map(text.lower().find, self._signs), default=-1) >= 0


class Names:
    """Names of members, of which most are plain.

    Args:
        kind: what a name says of itself and of its value (`SUSPECT`, `NAMING`, `ARGUMENTS`), given as the JSON text
            between its quotes; asked once of most.
        arguments: whether such a value may hold a secret.
    """

    def __init__(self, kind: Callable[[bytes], int], arguments: Callable[[bytes], bool]) -> None:
        self._kind, self._arguments = kind, arguments

    def are_plain(self, text: bytes) -> bool:
        """Whether no member of this JSON text is suspect, by its name or what it names. True is certain."""
        try:
            return self._plain(text.strip())
        except (msgspec.DecodeError, RecursionError):
            return False

    def _plain(self, text: bytes) -> bool:
        if text[:1] == b"[":
            items = list(map(bytes, _raw_array(text)))
            return not (len(items) == 2 and self._names_a_secret(items[0])) and all(map(self._plain, items))
        if text[:1] != b"{":
            return True
        for name, raw in _raw_object(text).items():
            kind, value = self._kind(msgspec.json.encode(name)[1:-1]), bytes(raw)
            if kind & SUSPECT or (kind & NAMING and self._names_a_secret(value)) or not self._plain(value):
                return False
            if kind & ARGUMENTS and self._arguments(value):
                return False
        return True

    def _names_a_secret(self, value: bytes) -> bool:
        return value[:1] == b'"' and len(value) < LONGEST_NAME and bool(self._kind(value[1:-1]) & SUSPECT)


_NO_OPENING = bytes(set(range(256)).difference(b"{["))


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether valid JSON nests deeper than `levels`. Only values long enough to do so are opened."""
    if len(text.translate(None, _NO_OPENING)) <= levels:
        return False
    stack = [(text, levels)]
    while stack:
        text, levels = stack.pop()
        if len(text) < 2 * levels + 2:
            continue
        first = text.lstrip()[:1]
        if first not in (b"{", b"["):
            continue
        if levels == 0:
            return True
        try:
            children = _raw_object(text).values() if first == b"{" else _raw_array(text)
        except msgspec.DecodeError:  # duplicate of what the caller found, or a key that is no text
            return True
        stack += [(bytes(child), levels - 1) for child in children if len(bytes(child)) >= 2 * levels]
    return False


# Remembering ----------------------------------------------------------------------------------------------------------

K = TypeVar("K")
V = TypeVar("V")


class Generations(Generic[K, V]):
    """At most about `size` values; what has not been asked for longest goes first.

    Two generations instead of a linked list: a hit costs one or two dict look-ups.
    """

    def __init__(self, size: int) -> None:
        self.size, self._half = size, max(1, size // 2)
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None and self._old:
            value = self._old.pop(key, None)
            if value is not None:
                self._young[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        self._young[key] = value

    def trim(self, full: bool = False) -> bool:
        """Drop the older half when the younger is full, or said to be; gives whether it did.

        Between batches, so that no batch loses what it works on.
        """
        full = full or len(self._young) > self._half
        if full:
            self._old, self._young = self._young, {}
        return full

    def drop(self, key: K) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        self._young.clear()
        self._old.clear()

    def __iter__(self) -> Iterator[V]:
        yield from self._young.values()
        yield from self._old.values()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
