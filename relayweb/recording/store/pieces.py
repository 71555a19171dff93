"""An event taken apart: a skeleton, and the contents it refers to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from relayweb.recording import kernels
from relayweb.recording.events.atof import MARK, Parsed
from relayweb.recording.store.compression import EVENT
from relayweb.recording.store.encoding import PARENT, ROOT, SURROGATES, encode, pack_surrogates

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
    style = event.style
    stamp = b"" if style is None else str(event.envelope.timestamp).encode()
    mark = b"" if style is None else style.encode().ljust(2)
    packed.text, in_parent, in_root = kernels.make_holes(text, event.uuid, event.parent, event.root, stamp, mark)
    if in_parent and event.kind != MARK and event.parent is not None:
        packed.head, packed.tail = PARENT, event.parent
    if in_root and event.root is not None:
        packed.head, packed.tail = packed.head | ROOT, packed.tail + event.root


def encode_event(event: Parsed, packed: Packed, compress: Callable[[bytes], bytes] = EVENT.compress) -> bytes:
    """The body of an event's row."""
    head, tail = packed.head, packed.tail
    if event.surrogates:
        head |= SURROGATES
        tail += pack_surrogates(event.surrogates)
    return encode(packed.text, [piece.id for piece in packed.refs], compress, head, tail)
