"""Chunk marks in columns: many marks of one attempt in one row, each to be had back exactly.

A mark is its template, a text with holes kept in the content store and shared by all marks that look alike, and what is
its own: uuid, time, numbers. A UUIDv7 begins with its millisecond, which its time nearly tells, so ten bytes of it are
stored. `relay.chunks` marks carry content: their texts stand in the block itself and are compressed together.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, repeat

import msgspec

from relayweb.recording.events.atof import Parsed, format_timestamp, uuid_text
from relayweb.recording.kernels import pack, pack_differences, split_uuids, write_varint
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.encoding import read_varint

MARKS, CONTENTS = 0, 1
_BIG_ENDIAN = sys.byteorder == "big"
_EPOCH = 1 << 63  # added to a time, which may lie before 1970

_NUMBER = re.compile(rb"(?<=[:,\[ ])(0|[1-9]\d{0,14})(?=[,}\]])")


class Mark(msgspec.Struct, gc=False):
    """One mark as it is kept: `text` has holes; `template` is its number in the content store (0 in CONTENTS)."""

    seq: int
    uuid: bytes
    at_ns: int
    text: bytes
    numbers: tuple[int, ...] = ()
    template: int = 0

    @property
    def identity(self) -> tuple[int, bytes, tuple[int, ...]]:
        """Equal for equal events of one uuid and attempt."""
        return self.at_ns, self.text, self.numbers


def hole(event: Parsed, line: bytes, root: bytes | None) -> bytes:
    """An event's text with holes for what is its own. `root` is that of its block."""
    text = line.replace(uuid_text(event.uuid).encode(), b"\0u")
    if event.parent is not None:
        text = text.replace(uuid_text(event.parent).encode(), b"\0p")
    if root is not None and root == event.root:
        text = text.replace(uuid_text(root).encode(), b"\0r")
    if event.style is not None:
        text = text.replace(str(event.envelope.timestamp).encode(), b"\0t" + event.style.encode(), 1)
    return text


def take_numbers(text: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The text with holes for its numbers, and the numbers."""
    parts = _NUMBER.split(text)
    return b"\0n".join(parts[::2]), tuple(map(int, parts[1::2]))


_CODES = "bhiq"  # of `array`: 1, 2, 4 or 8 bytes a number, as `pack` writes them


def _signed(value: int) -> int:
    """Of 64 bits: what lies further apart than they reach is told by the way around."""
    return (value + _EPOCH) % (2 * _EPOCH) - _EPOCH


def _unpack(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    values = array(_CODES[data[at]])
    end = at + 1 + count * values.itemsize
    values.frombytes(data[at + 1 : end])
    if _BIG_ENDIAN:
        values.byteswap()
    return values.tolist(), end


def _pack_deltas(out: bytearray, values: Sequence[int]) -> None:
    write_varint(out, values[0])
    if len(values) > 1:
        pack_differences(out, values)


def _unpack_deltas(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    first, at = read_varint(data, at)
    if count == 1:
        return [first], at
    deltas, at = _unpack(data, at, count - 1)
    return list(accumulate(deltas, initial=first)), at


def encode(kind: int, marks: Sequence[Mark], root: bytes | None) -> bytes:
    """The body of a block. `marks` in the order of their numbers."""
    low = bytearray()  # columns that compress well
    high = bytearray()  # times and uuids, which do not
    write_varint(low, len(marks))
    low.append(1 if root else 0)
    times = [m.at_ns for m in marks]
    _pack_deltas(low, [m.seq for m in marks])
    millis, tails = split_uuids([m.uuid for m in marks], times)
    pack(low, millis)
    if kind == MARKS:
        groups: dict[int, list[tuple[int, ...]]] = {}
        for mark in marks:
            groups.setdefault(mark.template, []).append(mark.numbers)
        number = {template: i for i, template in enumerate(groups)}
        write_varint(low, len(groups))
        pack(low, list(groups))
        pack(low, [number[m.template] for m in marks])
        for rows in groups.values():
            write_varint(low, len(rows[0]))
            for column in zip(*rows, strict=True):
                _pack_deltas(low, column)
    else:
        pack(low, [len(m.text) for m in marks])
    write_varint(high, times[0] + _EPOCH)
    if len(times) > 1:
        pack_differences(high, times)
    small = bytes(low) + (b"" if kind == MARKS else b"".join([m.text for m in marks]))
    head = 0
    if len(small) > 48:
        packed = CONTENT.compress(small)
        if len(packed) < len(small):
            small, head = packed, 1
    out = bytearray((head,))
    write_varint(out, len(small))
    return bytes(out) + small + (root or b"") + bytes(high) + tails


def decode(kind: int, body: bytes) -> tuple[list[Mark], bytes | None]:
    """The marks of a block and their common root; in MARKS their texts are still to be looked up by template."""
    body = bytes(body)
    length, at = read_varint(body, 1)
    low, at = body[at : at + length], at + length
    if body[0]:
        low = CONTENT.expand(low)
    count, low_at = read_varint(low, 0)
    root = None
    if low[low_at]:
        root, at = body[at : at + 16], at + 16
    seqs, low_at = _unpack_deltas(low, low_at + 1, count)
    millis, low_at = _unpack(low, low_at, count)
    first, at = read_varint(body, at)
    moments = [first - _EPOCH]
    if count > 1:
        deltas, at = _unpack(body, at, count - 1)
        moments = [_signed(moment) for moment in accumulate(deltas, initial=moments[0])]
    uuids = [
        (millis[i] + moments[i] // 1_000_000).to_bytes(6, "big") + body[at + 10 * i : at + 10 * i + 10]
        for i in range(count)
    ]
    if kind == MARKS:
        templates, numbers = _read_templates(low, low_at, count)
        return [Mark(*m) for m in zip(seqs, uuids, moments, [b""] * count, numbers, templates, strict=True)], root
    lengths, low_at = _unpack(low, low_at, count)
    ends = list(accumulate(lengths, initial=low_at))
    texts = [low[a:b] for a, b in pairwise(ends)]
    return [Mark(*m) for m in zip(seqs, uuids, moments, texts, strict=True)], root


def _read_templates(low: bytes, at: int, count: int) -> tuple[list[int], list[tuple[int, ...]]]:
    kinds, at = read_varint(low, at)
    known, at = _unpack(low, at, kinds)
    which, at = _unpack(low, at, count)
    rows: list[Iterator[tuple[int, ...]]] = []
    for kind in range(kinds):
        size, (width, at) = which.count(kind), read_varint(low, at)
        columns = []
        for _ in range(width):
            column, at = _unpack_deltas(low, at, size)
            columns.append(column)
        rows.append(iter(zip(*columns, strict=True)) if columns else repeat(()))
    return [known[kind] for kind in which], [next(rows[kind]) for kind in which]


_HOLES = re.compile(rb"\0(?:([uprn])|t(i|\d[Z+]))")


def fill(mark: Mark, attempt: str, root: bytes | None) -> bytes:
    """The mark's JSON text, as it was stored."""
    numbers = iter(mark.numbers)

    def value(match: re.Match[bytes]) -> bytes:
        letter = match[1]
        if letter == b"n":
            return str(next(numbers)).encode()
        if letter == b"u":
            return uuid_text(mark.uuid).encode()
        if letter == b"p":
            return attempt.encode()
        if letter == b"r":
            return uuid_text(root or b"").encode()
        return format_timestamp(mark.at_ns, match[2].decode()).encode()

    return _HOLES.sub(value, mark.text)
