"""An event taken apart: a skeleton, and the contents it refers to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from relayweb.recording.events.atof import MARK, Parsed, uuid_text
from relayweb.recording.store.compression import EVENT
from relayweb.recording.store.encoding import PARENT, ROOT, SURROGATES, encode, pack_surrogates

VALUE, MESSAGE, TEMPLATE = 0, 1, 2

MIN_MESSAGE: Final = 48  # bytes; below, a reference would cost more than the text
MIN_VALUE: Final = 512

HOLE: Final = b"\0c"


class Piece(msgspec.Struct, eq=False, gc=False):
    """One content."""

    digest: bytes
    kind: int
    size: int
    text: bytes = b""
    refs: Sequence[Piece] = ()
    id: int = 0
    """0 until the batch is numbered."""
    asked: str | None = ""
    """The words of a user's message; "" while nobody has looked."""


class Packed(msgspec.Struct, eq=False, gc=False):
    """One event, split."""

    line: bytes
    text: bytes
    refs: list[Piece]
    masked: bool = False
    messages: list[tuple[bytes, Piece | None]] | None = None
    """Those of its own request: text, and content where it has one."""
    digest: bytes = b""
    """Equal for equal lines."""
    head: int = 0
    tail: bytes = b""
    """What its body begins with, together with `head`: see `encode`."""


def make_holes(packed: Packed, event: Parsed) -> None:
    """Take out of an event's text what other columns or the head of its body tell."""
    text = packed.text
    packed.digest = sha256(b"".join((text, *[piece.digest for piece in packed.refs]))).digest()[:16]
    text = text.replace(_text(event.uuid), b"\0u")
    if event.parent is not None:
        holed = text.replace(_text(event.parent), b"\0p")
        if holed != text and event.kind != MARK:
            packed.head, packed.tail = PARENT, event.parent
        text = holed
    if event.root is not None:
        holed = text.replace(_text(event.root), b"\0r")
        if holed != text:
            packed.head, packed.tail, text = packed.head | ROOT, packed.tail + event.root, holed
    if event.style is not None:
        stamp = str(event.envelope.timestamp).encode()
        text = text.replace(stamp, b"\0t" + event.style.encode().ljust(2), 1)
    packed.text = text


@lru_cache(8192)
def _text(uuid: bytes) -> bytes:
    return uuid_text(uuid).encode()


def encode_event(event: Parsed, packed: Packed, compress: Callable[[bytes], bytes] = EVENT.compress) -> bytes:
    """The body of an event's row."""
    head, tail = packed.head, packed.tail
    if event.surrogates:
        head |= SURROGATES
        tail += pack_surrogates(event.surrogates)
    return encode(packed.text, [piece.id for piece in packed.refs], compress, head, tail)
