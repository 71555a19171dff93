"""Bodies as they are stored: whole numbers as varints, skeletons compressed, and their holes filled again.

A hole is a NUL byte (which JSON text cannot hold) and a letter. `c` is a reference to a `Content` row, by number; `u`,
`p`, `r`, `t` are an event's uuid, parent, root and timestamp, which other columns or the head of the body give in
binary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from relayweb.recording.events.atof import format_timestamp, restore_surrogates, uuid_text
from relayweb.recording.kernels import write_deltas, write_varint


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def read_deltas(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    values, last = [], 0
    for _ in range(count):
        coded, at = read_varint(data, at)
        last += (coded >> 1) ^ -(coded & 1)
        values.append(last)
    return values, at


_ZSTD, PARENT, ROOT, SURROGATES = 1, 2, 4, 8
"""Flags of a body: compressed; which parts stand between flags and text."""


def encode(
    text: bytes, refs: Sequence[int], compress: Callable[[bytes], bytes], head: int = 0, tail: bytes = b""
) -> bytes:
    """A body: one byte of flags, binary uuids, then the number of references, the references and the text.

    Raises:
        ValueError: a reference to a content without a number; what is written so cannot be read.
    """
    payload = b"\0" + text
    if refs:
        if 0 in refs:
            raise ValueError("a content has no number")
        numbers = bytearray()
        write_varint(numbers, len(refs))
        write_deltas(numbers, refs)
        payload = bytes(numbers) + text
    if len(payload) > 48:
        small = compress(payload)
        if len(small) < len(payload):
            return b"%c%b%b" % (head | _ZSTD, tail, small)
    return b"%c%b%b" % (head, tail, payload)


def pack_surrogates(surrogates: Sequence[tuple[int, bytes]]) -> bytes:
    out = bytearray()
    write_varint(out, len(surrogates))
    write_deltas(out, [offset for offset, _ in surrogates])
    return bytes(out) + b"".join(digits for _, digits in surrogates)


class Body(msgspec.Struct):
    """A decoded body: text with holes, and the contents that fill those of letter `c`, in order."""

    text: bytes
    refs: list[int]
    parent: bytes | None = None
    root: bytes | None = None
    surrogates: list[tuple[int, bytes]] = []


def decode(body: bytes, expand: Callable[[bytes], bytes]) -> Body:
    """The inverse of `encode` and `encode_event`, up to the holes."""
    body = bytes(body)
    head, at = body[0], 1
    parent = root = None
    surrogates: list[tuple[int, bytes]] = []
    if head & PARENT:
        parent, at = body[at : at + 16], at + 16
    if head & ROOT:
        root, at = body[at : at + 16], at + 16
    if head & SURROGATES:
        count, at = read_varint(body, at)
        offsets, at = read_deltas(body, at, count)
        surrogates = [(offset, body[at + 4 * i : at + 4 * i + 4]) for i, offset in enumerate(offsets)]
        at += 4 * count
    payload = expand(body[at:]) if head & _ZSTD else body[at:]
    count, at = read_varint(payload, 0)
    refs, at = read_deltas(payload, at, count)
    return Body(payload[at:], refs, parent, root, surrogates)


_HOLES = re.compile(rb"\0(?:([cupr])|t(..))", re.DOTALL)


def fill(body: Body, contents: dict[int, bytes], row: Any = None) -> bytes:
    """A body's text with its holes filled.

    Args:
        contents: the full text of each content it refers to.
        row: the event's row (uuid, mark_of, at_ns), for an event's body.
    """
    if b"\0" not in body.text:
        text = body.text
    else:
        refs = iter(body.refs)

        def value(match: re.Match[bytes]) -> bytes:
            letter = match[1]
            if letter == b"c":
                return contents[next(refs)]
            if letter == b"u":
                return str(row.uuid).encode()
            if letter == b"p":
                return uuid_text(body.parent).encode() if body.parent else str(row.mark_of).encode()
            if letter == b"r":
                return uuid_text(body.root or b"").encode()
            return format_timestamp(row.at_ns, match[2].decode().strip()).encode()

        text = _HOLES.sub(value, body.text)
    return restore_surrogates(text, body.surrogates) if body.surrogates else text
