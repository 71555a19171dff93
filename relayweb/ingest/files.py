"""Files of recorded events, read in pieces so that their size does not matter."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import msgspec
import zstandard

from relayweb.ingest.otlp import logs, spans
from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.values import BadRequest, Refused
from relayweb.ingest.reading import Lines
from relayweb.ingest.tally import Tally
from relayweb.recording.writing.submissions import Full, Receipt
from relayweb.recording.writing.writer import writer

PIECE = 2 * 1024 * 1024
PATIENCE_SECONDS = 30
_BOM = rb"(?:\xef\xbb\xbf)?"
_OTLP = re.compile(_BOM + rb'\s*\{\s*"resource(?:Spans|Logs|Metrics)"')
_LOGS = re.compile(_BOM + rb'\s*\{\s*"resourceLogs"')
_METRICS = re.compile(_BOM + rb'\s*\{\s*"resourceMetrics"')
_OTHERS = {
    "a zip archive": (b"PK\x03\x04", 0),
    "a tar archive": (b"ustar", 257),
    "packed with xz": (b"\xfd7zXZ\0", 0),
    "packed with bzip2": (b"BZh", 0),
    "a database": (b"SQLite format 3\0", 0),
    "in UTF-16": (b"\xff\xfe", 0),
}
"""What is no file of lines in UTF-8, by what stands where."""


class Unreadable(Exception):
    """A file that is not what its first bytes say."""


@dataclass
class Progress:
    """How far a file has come: bytes of the file itself, packed as it is, and what became of its lines."""

    read: int
    size: int | None
    tally: Tally


def load(path: str) -> Iterator[Progress]:
    """Record the events of a file, `-` for standard input; reports after each piece.

    gzip, zstd and OTLP JSON are recognised by what the file begins with, whatever its name.

    Raises:
        OSError: the file cannot be read.
        Unreadable: it breaks off, is damaged, or of another kind. What came before is recorded.
    """
    if os.path.isdir(path):
        raise Unreadable("a folder; name the files in it, such as folder/*.jsonl")
    with _opened(path) as raw:
        size = os.fstat(raw.fileno()).st_size if path != "-" else None
        tally, lines, take = Tally("file"), Lines(), None
        for piece in _documents(_pieces(raw)):
            if take is None:
                _recognise(piece)
                take = _take_otlp if _OTLP.match(piece) else _take_atof
            take(tally, lines.feed(piece) if piece else lines.rest())
            tally.reject_too_long(lines)
            yield Progress(raw.tell() if size else 0, size, tally)


def _recognise(first: bytes) -> None:
    for what, (magic, at) in _OTHERS.items():
        if first.startswith(magic, at):
            raise Unreadable(f"the file is {what}; import lines of JSON in UTF-8, plain or packed with gzip or zstd")


def _opened(path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    return contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb")


def _pieces(raw: BinaryIO) -> Iterator[bytes]:
    """The pieces of a file, unpacked, and an empty one at its end."""
    stream = _unpacked(raw)
    piece = b"-"
    while piece:
        try:
            piece = stream.read(PIECE)
        except (EOFError, gzip.BadGzipFile, zstandard.ZstdError) as error:
            raise Unreadable(f"the file is damaged or breaks off: {error}") from None
        yield piece


def _documents(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, but an indented OTLP document as one line: it makes sense only as a whole."""
    first = next(pieces)
    if _OTLP.match(first) and not _complete(first.partition(b"\n")[0]):
        whole = first + b"".join(pieces)
        with contextlib.suppress(msgspec.DecodeError):
            whole = msgspec.json.format(whole, indent=-1)
        yield whole
        yield b""
    else:
        yield first
        yield from pieces


def _complete(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _unpacked(raw: BinaryIO) -> BinaryIO:
    buffered = cast(io.BufferedReader, raw)
    magic = buffered.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    if magic == b"\x28\xb5\x2f\xfd":
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        return cast(BinaryIO, reader.stream_reader(buffered, read_across_frames=True))
    return raw


def _take_atof(tally: Tally, lines: bytes) -> None:
    if lines:
        tally.count(_submit(lines), lines)


def _take_otlp(tally: Tally, documents: bytes) -> None:
    """OTLP JSON as collectors write it, one request a line. Metrics are dropped, as at the door."""
    for document in documents.removesuffix(b"\n").split(b"\n") if documents else ():
        if document.strip() and not _METRICS.match(document):
            refused: list[Refused] = []
            try:
                lines = _events_of(document, refused)
            except BadRequest as error:
                tally.reject(tally.lines + 1, str(error))
            else:
                if lines:
                    tally.count_as_one(_submit(b"".join(lines)))
            for one in refused:
                tally.reject(tally.lines + 1, f"{one.what}: {one.error}")
        tally.lines += 1


def _events_of(document: bytes, refused: list[Refused]) -> list[bytes]:
    if _LOGS.match(document):
        return [line for log in logs.from_json(document, refused) for line in logs.events(log)]
    return [line for span in spans.from_json(document, refused) for line in events(span)]


def _submit(lines: bytes) -> Receipt:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return writer().submit_sync(lines, source="file")
        except Full as full:
            if time.monotonic() > deadline:
                raise OSError(f"the record cannot be written: {full}") from None
