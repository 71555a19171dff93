"""Request bodies read as they arrive: decompressed within bounds and cut at line ends."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import zstandard

from relayweb import conf
from relayweb.access.answers import Receive

# JSON of one agent's conversation packs well, but nothing honest shrinks to less than a hundredth.
MAX_RATIO = 100
WINDOW = 1 << 23
"""Bytes a zstd sender may refer back to, each of which we keep: as many as RFC 9659 allows a content-encoding."""
SLICE = 4096
"""Packed bytes unpacked at a time; a byte may hold a thousand (gzip), or thirty thousand (zstd)."""
PART = 4 * 1024 * 1024
"""Unpacked bytes after which others have their turn."""


class BodyError(Exception):
    """A body that cannot be read on.

    Attributes:
        status: the HTTP status that says so.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Decoder(Protocol):
    def feed(self, data: bytes) -> bytes: ...
    def end(self) -> None: ...


_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""What packed bytes begin with, which no JSON and no OTLP does."""


class Identity:
    def __init__(self) -> None:
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        if data and not self._begun:
            self._begun = True
            for magic, coding in _PACKED.items():
                if data.startswith(magic):
                    raise BodyError(400, f"the body is {coding}; send the header content-encoding: {coding} with it")
        return data

    def end(self) -> None: ...


class Gzip:
    """RFC 1952, several members one after the other included, and zeros after them."""

    name, wbits = "gzip", 31

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=self.wbits)
        self._taken = self._given = 0

    def feed(self, data: bytes) -> bytes:
        self._taken += len(data)
        parts = []
        while data:
            if self._inflate.eof:
                if not (data := data.lstrip(b"\0")):
                    break
                self._inflate = zlib.decompressobj(wbits=self.wbits)
            try:
                parts.append(self._inflate.decompress(data, _room(self._taken, self._given)))
            except zlib.error as error:
                raise BodyError(400, f"the body is not {self.name}, as its content-encoding says: {error}") from None
            self._given += len(parts[-1])
            if self._inflate.unconsumed_tail:
                raise _bomb()
            data = self._inflate.unused_data
        return b"".join(parts)

    def end(self) -> None:
        if self._taken and not self._inflate.eof:
            raise BodyError(400, f"the {self.name} body breaks off before its end")


class Deflate(Gzip):
    """RFC 1950, which HTTP calls deflate."""

    name, wbits = "deflate", 15


class Zstd:
    """RFC 8878, several frames one after the other included."""

    def __init__(self) -> None:
        # One for all frames: making one takes 25 times as long as a frame without content.
        self._context = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        self._frame = self._context.decompressobj()
        self._taken = self._given = 0

    def feed(self, data: bytes) -> bytes:
        self._taken += len(data)
        parts = []
        # In slices, because the most a call can give is 128 KB for each four bytes of it.
        for at in range(0, len(data), 256):
            part = data[at : at + 256]
            while part:
                if self._frame.eof:
                    self._frame = self._context.decompressobj()
                try:
                    parts.append(self._frame.decompress(part))
                except zstandard.ZstdError as error:
                    raise BodyError(400, f"the body is not zstd, as its content-encoding says: {error}") from None
                self._given += len(parts[-1])
                if _room(self._taken, self._given) <= 0:
                    raise _bomb()
                part = self._frame.unused_data
        return b"".join(parts)

    def end(self) -> None:
        if self._taken and not self._frame.eof:
            raise BodyError(400, "the zstd body breaks off before its end")


_DECODERS: dict[str, type[Decoder]] = {
    **{"": Identity, "gzip": Gzip, "x-gzip": Gzip, "zstd": Zstd, "deflate": Deflate},
}


def decoder(content_encoding: str) -> Decoder:
    """The decoder for a Content-Encoding. Raises BodyError(415) for one that is not spoken here."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    real = [coding for coding in codings if coding not in ("", "identity")] or [""]
    if len(real) > 1 or real[0] not in _DECODERS:
        raise BodyError(
            415, f"content-encoding {content_encoding!r} is not understood; send gzip, zstd, deflate or none"
        )
    return _DECODERS[real[0]]()


def unpacked(decode: Decoder, piece: bytes) -> Iterator[bytes]:
    """A piece of a body without its coding, in parts that are not much longer than PART."""
    if isinstance(decode, Identity):
        yield decode.feed(piece)
        return
    parts, size = [], 0
    for at in range(0, len(piece), SLICE):
        parts.append(decode.feed(piece[at : at + SLICE]))
        size += len(parts[-1])
        if size >= PART:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _room(taken: int, given: int) -> int:
    return max(conf.MAX_BODY, MAX_RATIO * taken) - given + 1


def _bomb() -> BodyError:
    return BodyError(413, f"the body unpacks to more than {conf.MAX_BODY} bytes; send less at once")


class Lines:
    """Whole lines out of pieces of bytes. Lines end at LF only, as NDJSON has it; a CR before it is blank space.

    A line longer than MAX_BODY is dropped alone: an empty one stands in for it, so that counting goes on, and
    `too_long` has its number.
    """

    def __init__(self) -> None:
        self.given = 0
        self.too_long: list[int] = []
        self._tail: list[bytes] = []
        self._tail_size = 0

    def feed(self, data: bytes) -> bytes:
        """All lines that are complete now, as one piece ending with LF, or nothing."""
        first_end = data.find(b"\n") + 1
        if not first_end:
            self._keep(data)
            return b""
        self._keep(data[:first_end])
        first = self.rest()
        end = data.rfind(b"\n") + 1
        self._keep(data[end:])
        middle = data[first_end:end]
        if len(middle) > conf.MAX_BODY:
            middle = self._without_long_lines(middle)
        self.given += middle.count(b"\n")
        return first + middle

    def rest(self) -> bytes:
        """What came after the last LF."""
        rest = b"".join(self._tail)
        if self._tail_size > conf.MAX_BODY:
            self.too_long.append(self.given + 1)
            rest = b"\n"
        self.given += bool(rest)
        self._tail, self._tail_size = [], 0
        return rest

    def _without_long_lines(self, lines: bytes) -> bytes:
        kept = lines.split(b"\n")
        for number, line in enumerate(kept, self.given + 1):
            if len(line) >= conf.MAX_BODY:
                self.too_long.append(number)
        return b"\n".join(line if len(line) < conf.MAX_BODY else b"" for line in kept)

    def _keep(self, data: bytes) -> None:
        self._tail_size += len(data)
        if self._tail_size <= conf.MAX_BODY:
            self._tail.append(data)
        else:
            self._tail.clear()


class Disconnected(Exception):
    """The client is gone, or the server is stopping."""


async def body(receive: Receive) -> AsyncIterator[tuple[bytes, bool]]:
    """The pieces of a request body as they arrive, each with whether more will come.

    Raises Disconnected when the body does not come to its end.
    """
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        more = message.get("more_body", False)
        yield message.get("body", b""), more


async def whole_body(receive: Receive, decode: Decoder) -> bytes:
    """A body that makes sense only as a whole, decompressed. Raises Disconnected, or BodyError when too large."""
    parts, size = [], 0
    async for piece, _ in body(receive):
        for part in unpacked(decode, piece):
            parts.append(part)
            size += len(part)
            if size > conf.MAX_BODY:
                raise BodyError(413, f"the body is larger than {conf.MAX_BODY} bytes; send less at once")
            await asyncio.sleep(0)
    decode.end()
    return b"".join(parts)
