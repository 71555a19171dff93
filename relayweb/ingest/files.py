"""Files of recorded events, read in pieces so that their size does not matter."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import zstandard

from relayweb.ingest.reading import Lines
from relayweb.ingest.tally import Tally
from relayweb.recording.writer import Full, writer

PIECE = 2 * 1024 * 1024


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

    gzip and zstd are recognised by their first bytes, whatever the name.

    Raises:
        OSError: the file cannot be read.
        Unreadable: it breaks off or is damaged. What came before is recorded.
    """
    with _opened(path) as raw:
        size = os.fstat(raw.fileno()).st_size if path != "-" else None
        stream = _unpacked(raw)
        tally, lines = Tally("file"), Lines()
        more = True
        while more:
            try:
                piece = stream.read(PIECE)
            except (EOFError, gzip.BadGzipFile, zstandard.ZstdError) as error:
                raise Unreadable(f"the file is damaged or breaks off: {error}") from None
            more = bool(piece)
            _submit(tally, lines.feed(piece) if more else lines.rest())
            tally.reject_too_long(lines)
            yield Progress(raw.tell() if size else 0, size, tally)


def _opened(path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    return contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb")


def _unpacked(raw: BinaryIO) -> BinaryIO:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    magic = buffered.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=buffered)  # type: ignore[return-value]
    if magic == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(buffered, read_across_frames=True)
    return buffered


def _submit(tally: Tally, lines: bytes) -> None:
    while lines:
        with contextlib.suppress(Full):
            tally.count(writer().submit_sync(lines, source="file"), lines)
            return
