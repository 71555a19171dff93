"""Server-Sent Events cut into slices whose bytes, joined, are the input (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from adapters.marks import UNREADABLE_CHUNK

_LINE = re.compile(rb"\r\n|\n|\r")
_BLANK_LINES = re.compile(rb"[\r\n]+")
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")
_LONGEST = 65_536  # bytes kept of what cannot be read


def is_said(content_type: str) -> bool:
    """Whether a response says that it is an event stream."""
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


def begins(head: bytes) -> bool | None:
    """Whether a body, without its content coding, begins as an event stream; None while `head` does not tell.

    Some providers call a stream JSON, or nothing.
    """
    begun = head.removeprefix(_BOM).lstrip()
    if begun.startswith(_FIELDS):
        return True
    return None if _BOM.startswith(head) or any(field.startswith(begun) for field in _FIELDS) else False


class Slice(NamedTuple):
    """One event or comment block as it came: raw bytes, event name (None: not named), joined data (None: no data)."""

    raw: bytes
    event: str | None
    data: bytes | None


class Splitter:
    """Feed bytes in pieces of any size, get whole slices; `rest()` gives what a cut stream left over.

    Lines end with LF, CRLF or CR; a blank line ends a slice, which is given out with its last byte. A CR that ends a
    piece ends its line at once; the LF that may follow is not another line (and, if its slice is out already, a slice
    of its own without data). Further blank lines are one slice. Nothing is decoded but the event name (UTF-8 always).
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._line = 0  # start of the line being scanned
        self._scan = 0  # where to look for its end
        self._after_cr = False
        self._first = True
        self.lines = 0
        """Lines of the event that has not ended yet."""

    def feed(self, data: bytes) -> list[Slice]:
        if not data:
            return []
        out: list[Slice] = []
        buffer = self._buffer
        if self._after_cr and data[0] == 0x0A:
            if not buffer:
                out.append(Slice(b"\n", None, None))
                data = data[1:]
            else:
                self._line = self._scan = len(buffer) + 1
        buffer += data
        start = 0
        while (end := _LINE.search(buffer, self._scan)) is not None:
            blank = end.start() == self._line
            self._line = self._scan = end.end()
            self.lines += 1
            if blank:
                out.append(self._slice(bytes(buffer[start : end.end()])))
                start = end.end()
                self.lines = 0
                if (more := _BLANK_LINES.match(buffer, start)) is not None:  # one slice, not millions
                    out.append(Slice(more.group(), None, None))
                    start = self._line = self._scan = more.end()
        self._scan = len(buffer)
        self._after_cr = bool(data) and data[-1] == 0x0D
        if start:
            del buffer[:start]
            self._line -= start
            self._scan -= start
        return out

    @property
    def held(self) -> int:
        """Bytes of the event that has not ended yet."""
        return len(self._buffer)

    def rest(self) -> Slice | None:
        """What came after the last blank line, None if nothing; the splitter is empty afterwards.

        By the standard such an event is not dispatched: a stream that ends with one was cut.
        """
        if not self._buffer:
            return None
        raw = bytes(self._buffer)
        self._buffer.clear()
        self._line = self._scan = 0
        return self._slice(raw)

    def _slice(self, raw: bytes) -> Slice:
        text = raw
        if self._first:
            self._first = False
            text = raw.removeprefix(_BOM)
        event: str | None = None
        lines: list[bytes] = []
        for line in _LINE.split(text):
            name, _, value = line.partition(b":")
            if name == b"data":
                lines.append(value.removeprefix(b" "))
            elif name == b"event":
                event = value.removeprefix(b" ").decode("utf-8", "replace")
        return Slice(raw, event, b"\n".join(lines) if lines else None)


def chunk(piece: Slice, parse: Callable[[bytes], Any]) -> dict[str, Any] | None:
    """The chunk that an event holds, None where it holds none: a comment, a keep-alive, `[DONE]`.

    `parse` gives the JSON value of bytes, None where they are none. An event named error is one whatever its data is;
    other data that is no JSON object becomes a chunk of the type `relay.unreadable` with its text.
    """
    data = (piece.data or b"").strip()
    if not data or data == b"[DONE]":
        return None
    value = parse(data)
    if isinstance(value, dict):
        if piece.event == "error":
            value.setdefault("type", "error")  # some say only there that it is one
        return value
    text = value if isinstance(value, str) else data[:_LONGEST].decode("utf-8", "replace")
    if piece.event == "error":
        return {"type": "error", "error": {"message": text[:_LONGEST]}}
    return {"type": UNREADABLE_CHUNK, "text": data[:_LONGEST].decode("utf-8", "replace"), "bytes": len(data)}


def encode(data: bytes, event: str | None = None) -> bytes:
    """One event as bytes; `data` may hold line breaks."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"".join(b"data: " + line + b"\n" for line in _LINE.split(data)) + b"\n"
