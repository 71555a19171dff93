from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from relayweb.recording.store.tables import Tables
from relayweb.recording.writing import writer as writer_module
from relayweb.recording.writing.recorder import Line, Recorder
from relayweb.recording.writing.writer import Writer
from tests.recording import streams


@pytest.fixture
def record(transactional_db: None) -> Callable[..., list[Line]]:
    """Records events (or lines) in one batch: `record(event, …)`; one recorder for the whole test."""
    recorder = Recorder(Tables(connection))

    def record(*events: streams.Event | bytes, arrived_us: int = 1) -> list[Line]:
        lines = [Line(e if isinstance(e, bytes) else streams.line(e), arrived_us) for e in events]
        recorder.record(lines)
        return lines

    record.recorder = recorder  # type: ignore[attr-defined]
    return record


@pytest.fixture
def recording(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """A writer of its own for the test, which `writer()` gives out."""
    one = Writer()
    monkeypatch.setattr(writer_module, "_writer", one)
    yield one
    one.close()
