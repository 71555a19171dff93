"""A writer for each test: one that outlived them would keep its connection to the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relayweb.recording.writing import writer as writer_module
from relayweb.recording.writing.writer import Writer


@contextmanager
def own_writer() -> Iterator[Writer]:
    """What `writer()` gives out meanwhile; closed at the end."""
    before, one = writer_module._writer, Writer()
    writer_module._writer = one
    try:
        yield one
    finally:
        writer_module._writer = before
        one.close()
