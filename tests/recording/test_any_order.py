"""The record depends on the set of events, not on their order, their repetition, or the batches they came in."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relayweb.recording import chunks as chunk_reader
from relayweb.recording.models import ChunkBlock, Event, Rewrite, Scope
from relayweb.recording.recorder import Line, Recorder
from relayweb.recording.stored import Reader
from relayweb.recording.tables import Tables
from tests.recording import streams

pytestmark = pytest.mark.django_db(transaction=True)

_BY_ARRIVAL = {"seq", "start_seq", "end_seq", "arrived_us", "state"}
_COLUMNS = [f.name for f in Scope._meta.fields if f.name not in _BY_ARRIVAL]


def empty() -> None:
    with connection.cursor() as cursor:
        for table in ("event", "scope", "chunkblock", "rewrite", "content"):
            cursor.execute(f"DELETE FROM recording_{table}")
        cursor.execute("UPDATE recording_ledger SET epoch = epoch + 1")  # numbers are never given twice


def record(batches: list[list[bytes]], *, restart: bool = False) -> Any:
    """Everything on record after these batches, as far as it does not tell when it arrived."""
    empty()
    recorder = Recorder(Tables(connection))
    for batch in batches:
        if restart:
            recorder = Recorder(Tables(connection))
        lines = [Line(text, 0) for text in batch]
        recorder.record(lines)
        assert not [line.error for line in lines if line.error]
    recorder.sweep(10**16, 1, 0)
    return snapshot()


def snapshot() -> dict[str, Any]:
    rows = {str(row["uuid"]): row for row in Scope.objects.values(*_COLUMNS)}
    events = list(Event.objects.order_by("uuid", "kind", "digest"))
    texts = [(bool(e.flags & Event.Flag.CONFLICT), t) for e, t in zip(events, Reader(0).texts(events), strict=True)]
    chunks = {
        str(uuid): sorted((c.at_us, i, c.data, c.body) for i, c in chunk_reader.joined(uuid))
        for uuid in set(ChunkBlock.objects.values_list("attempt_uuid", flat=True))
    }
    rewrites = sorted(
        json.dumps([str(r.attempt_uuid), r.position, r.key, r.result, r.mode]) for r in Rewrite.objects.all()
    )
    return {"rows": rows, "events": sorted(texts), "chunks": chunks, "rewrites": rewrites}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[Any]:
    found: list[Any] = [k for k in ("events", "chunks", "rewrites") if a[k] != b[k]]
    for uuid in sorted(a["rows"].keys() | b["rows"].keys()):
        one, other = a["rows"].get(uuid), b["rows"].get(uuid)
        if one is None or other is None:
            found.append((uuid, "only in one", one or other))
        else:
            found += [(uuid, one["role"], one["name"], c, one[c], other[c]) for c in _COLUMNS if one[c] != other[c]]
    return found


def cut(lines: list[bytes], rng: random.Random) -> list[list[bytes]]:
    batches, left = [], list(lines)
    while left:
        size = rng.choice((1, 2, 7, 50))
        batches.append(left[:size])
        left = left[size:]
    return batches


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**9), order=st.randoms(use_true_random=False), restart=st.booleans())
def test_any_order_with_any_repetition_in_any_batches_gives_the_same_rows(
    seed: int, order: random.Random, restart: bool
) -> None:
    lines = [streams.line(event) for event in streams.Growing(random.Random(seed)).grow()]
    want = record([lines])
    again = lines + [text for text in lines if order.random() < 0.3]
    order.shuffle(again)
    got = record(cut(again, order), restart=restart)
    assert not differences(want, got)
