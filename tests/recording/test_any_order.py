"""The record depends on the set of events, not on their order, their repetition, or the batches they came in."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relayweb.recording.models import ChunkBlock, Event, Rewrite, Scope
from relayweb.recording.reading import chunks as chunk_reader
from relayweb.recording.store.stored import Reader
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.rebuilding import Rebuilt
from relayweb.recording.writing.recorder import Line
from tests.recording import streams

pytestmark = pytest.mark.django_db(transaction=True)

CAPTURES = Path(__file__).parent.parent / "captures"
DEEP = int(os.environ.get("RELAYWEB_ORDER_STREAMS", "0"))
"""How many streams `make soak` tries, new ones each time. Otherwise a few, the same ones everywhere."""

any_stream = settings(
    max_examples=DEEP or 60,
    derandomize=not DEEP,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # a smaller seed is no smaller stream
    suppress_health_check=list(HealthCheck),
)

_BY_ARRIVAL = {"seq", "start_seq", "end_seq", "arrived_us", "state"}
_COLUMNS = [f.name for f in Scope._meta.fields if f.name not in _BY_ARRIVAL]


def empty() -> None:
    with connection.cursor() as cursor:
        for table in ("event", "scope", "chunkblock", "rewrite", "content", "unsettled"):
            cursor.execute(f"DELETE FROM recording_{table}")
        cursor.execute("UPDATE recording_ledger SET epoch = epoch + 1")  # numbers are never given twice


def record(batches: list[list[bytes]], *, restart: bool = False) -> Any:
    """Everything on record after these batches, as far as it does not tell when it arrived."""
    empty()
    recorder = RunRecorder(Tables(connection))
    for batch in batches:
        if restart:
            recorder = RunRecorder(Tables(connection))
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


@any_stream
@given(seed=st.integers(0, 10**9), order=st.randoms(use_true_random=False), restart=st.booleans())
def test_any_order_with_any_repetition_in_any_batches_gives_the_same_rows(
    seed: int, order: random.Random, restart: bool
) -> None:
    in_any_order([streams.line(event) for event in streams.Growing(random.Random(seed)).grow()], order, restart)


@any_stream
@given(seed=st.integers(0, 10**9), order=st.randoms(use_true_random=False), restart=st.booleans())
def test_nor_do_they_where_events_contradict_each_other(seed: int, order: random.Random, restart: bool) -> None:
    in_any_order([streams.line(event) for event in streams.Tangled(random.Random(seed)).grow()], order, restart)
    assert not list(Rebuilt().differences(lambda _: None))


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.glob("*.gz")))
def test_nor_do_they_in_streams_of_real_clients(name: str) -> None:
    lines = gzip.decompress((CAPTURES / name).read_bytes()).splitlines()
    for restart in (False, True):
        in_any_order(lines, random.Random(name), restart)
        assert not list(Rebuilt().differences(lambda _: None))


def in_any_order(lines: list[bytes], order: random.Random, restart: bool) -> None:
    want = record([lines])
    again = lines + [text for text in lines if order.random() < 0.3]
    order.shuffle(again)
    got = record(cut(again, order), restart=restart)
    assert not differences(want, got)


def turn(kind: str, n: int, parent: int | None, ms: float, session: str, turn_id: str = "t", **more: Any) -> Any:
    metadata = {"session_id": session, "turn_id": turn_id}
    above = None if parent is None else streams.uid(parent)
    return streams.scope(kind, streams.uid(n), above, ms, **{"name": "relay.turn", "metadata": metadata, **more})


def session(kind: str, n: int, parent: int | None, ms: float, **more: Any) -> Any:
    above = None if parent is None else streams.uid(parent)
    return streams.scope(kind, streams.uid(n), above, ms, **{"name": "relay.session", "category": "agent", **more})


FOUND: dict[str, list[Any]] = {
    "a scope whose end tells a root that its start does not": [
        streams.scope("end", streams.uid(2), streams.uid(1), 80, name="plan", root=streams.uid(7)),
        streams.scope("start", streams.uid(2), streams.uid(1), 10, name="plan"),
    ],
    "a session whose smaller start makes it a plain agent keeps no id its turns told": [
        turn("end", 3, 1, 0.5, "s"),
        session("start", 1, 9, 40),
        session("start", 1, 9, 3, name="renamed"),
    ],
    "a session by its end that is an agent by its start keeps no id its turns told": [
        turn("start", 2, 1, 41, "s"),
        streams.scope("start", streams.uid(3), streams.uid(1), 622, name="openai.chat_completions", category="llm"),
        session("end", 1, 9, 665),
        session("start", 1, 9, 0, name="renamed"),
    ],
    "an earlier start that tells no session takes back what the later one told": [
        session("start", 1, None, 40, metadata={"session_id": "s"}),
        session("start", 1, None, 3, metadata={}),
        turn("start", 2, 1, 50, "t"),
    ],
    "turns that have no start join by their ends, whatever they count": [
        turn("start", 1, 9, 2, "s"),
        session("start", 2, 3, 1000, metadata={"nemo_relay_scope_role": "subagent"}),
        turn("end", 3, 4, 1, "s"),
        session("end", 4, None, 1),
    ],
    "those joined to a turn that is none any more are turns again": [
        turn("start", 1, 8, 2, "s"),
        turn("start", 1, 8, 1, "s", name="renamed"),
        turn("start", 2, 9, 5, "s"),
        streams.scope("start", streams.uid(3), streams.uid(2), 6, name="openai.chat_completions", category="llm"),
    ],
    "those joined to a turn that tells another id since are turns again": [
        turn("start", 1, 8, 2, "s", "t1"),
        turn("start", 1, 8, 1, "s", "t2"),
        turn("start", 2, 9, 5, "s", "t1"),
        streams.mark("note", streams.uid(2), 6, metadata={"session_id": "told"}, uuid=streams.uid(4)),
    ],
    "an end tells the session that its start does not": [
        session("start", 1, None, 1, metadata={}),
        session("end", 1, None, 9, metadata={"session_id": "s"}),
        turn("start", 2, 1, 2, "t", metadata={}),
    ],
    "a session lasts as long as a turn in it that counts elsewhere": [
        turn("end", 1, 9, 60, "s"),
        session("start", 2, None, 1),
        turn("start", 3, 2, 70, "s"),
    ],
    "so does one inside the turn that counts": [
        turn("start", 1, 9, 40, "s"),
        session("start", 2, 1, 242, metadata={"nemo_relay_scope_role": "subagent", "session_id": "s"}),
        turn("start", 3, 2, 243, "s"),
    ],
    "a circle of two opens at the same one": [
        streams.scope("start", streams.uid(1), streams.uid(2), 1, name="plan"),
        streams.scope("start", streams.uid(2), streams.uid(1), 0, name="plan"),
        streams.scope("end", streams.uid(3), streams.uid(1), 3, name="openai.chat_completions", category="llm"),
        streams.scope("end", streams.uid(4), streams.uid(2), 3, name="read", category="tool"),
    ],
    "a circle of three with a turn in it": [
        session("start", 2, 3, 0),
        turn("start", 1, 2, 1, "s"),
        streams.scope("start", streams.uid(3), streams.uid(1), 2, name="plan"),
        streams.scope("end", streams.uid(4), streams.uid(3), 3, name="openai.chat_completions", category="llm"),
    ],
    "a scope that is its own parent, and another below": [
        streams.scope("start", streams.uid(1), streams.uid(1), 0, name="plan"),
        streams.scope("start", streams.uid(2), streams.uid(1), 1, name="plan"),
        streams.scope("end", streams.uid(2), streams.uid(1), 2, name="plan"),
    ],
    "a circle of a session, its turn, a call of that and its attempt": [
        streams.scope("end", streams.uid(4), streams.uid(3), 1, name="openai.chat_completions", category="llm"),
        streams.scope("end", streams.uid(3), streams.uid(2), 2, name="relay.logical_llm_call"),
        turn("end", 2, 1, 3, "s"),
        session("end", 1, 4, 4),
    ],
    "no scope at which a circle opens is late for what is below it": [
        streams.scope("end", streams.uid(2), streams.uid(1), 1, name="openai.chat_completions", category="llm"),
        streams.scope("end", streams.uid(1), streams.uid(2), 9, name="relay.logical_llm_call"),
    ],
    "a tool has no chunks, but they are signs of life": [
        turn("start", 1, 9, 1, "s"),
        streams.scope("start", streams.uid(2), streams.uid(1), 2, name="read", category="tool"),
        {**streams.chunk(streams.uid(2), 0, 77), "uuid": streams.uid(4)},
    ],
    "a turn that was an attempt by its end shows no price": [
        streams.scope(
            "end",
            streams.uid(1),
            None,
            9,
            name="custom",
            category="llm",
            data=streams.answer(),
            metadata={"otel.status_code": "OK"},
        ),
        turn("start", 1, None, 1, "s"),
    ],
    "an attempt that a smaller start moves takes its request id along": [
        turn("start", 1, 9, 1, "s"),
        streams.scope("start", streams.uid(2), streams.uid(1), 2, name="relay.logical_llm_call"),
        streams.scope(
            "start", streams.uid(3), streams.uid(2), 5, name="custom", category="llm", metadata={"api_request_id": "r"}
        ),
        streams.scope("start", streams.uid(3), streams.uid(1), 4, name="custom", category="llm"),
    ],
    "a mark under two scopes is a conflict of the one it is not shown under": [
        turn("start", 1, 9, 1, "s"),
        streams.scope("start", streams.uid(2), streams.uid(1), 2, name="plan"),
        streams.mark("relay.orphan_drain", streams.uid(1), 6, {}, uuid=streams.uid(4)),
        streams.mark("relay.orphan_drain", streams.uid(2), 5, {}, uuid=streams.uid(4)),
    ],
    "a call that began is not blocked, though a mark of its uuid says so": [
        turn("start", 2, 9, 0, "s"),
        streams.mark("relay.attempt_blocked", streams.uid(2), 3, {"stage": "guardrail"}, uuid=streams.uid(1)),
        streams.scope("start", streams.uid(1), streams.uid(2), 2, name="custom", category="llm"),
        streams.scope("end", streams.uid(1), streams.uid(2), 4, name="custom", category="llm", data=streams.answer()),
    ],
    "what an auxiliary call asks stands for its turn only if no other asks, also if its end tells its role": [
        turn("start", 1, 9, 0, "s"),
        streams.scope(
            "start", streams.uid(2), streams.uid(1), 1, name="custom", category="llm", data=streams.request("a")
        ),
        streams.scope(
            "end",
            streams.uid(2),
            streams.uid(1),
            2,
            name="custom",
            category="llm",
            metadata={"call_role": "auxiliary:title"},
        ),
        streams.scope(
            "start", streams.uid(3), streams.uid(1), 3, name="custom", category="llm", data=streams.request("b")
        ),
    ],
    "an attempt whose end says it is something else has its chunks and its price": [
        streams.scope("start", streams.uid(1), None, 1, name="custom", category="llm", data=streams.request()),
        {
            **streams.chunk(streams.uid(1), 0, 2, usage={"prompt_tokens": 9, "completion_tokens": 4}),
            "uuid": streams.uid(5),
        },
        streams.scope("end", streams.uid(1), None, 3, name="plan", data=streams.answer()),
    ],
    "a rewrite under another scope may have the uuid of one that is told anew": [
        turn("start", 1, 9, 0, "s"),
        streams.scope("start", streams.uid(2), streams.uid(1), 5, name="plan"),
        streams.scope("start", streams.uid(2), streams.uid(8), 4, name="plan"),
        streams.mark("relay.rewrite", streams.uid(7), 3, {"position": 0, "key": "k"}, uuid=streams.uid(2)),
    ],
    "a mark under a call that never began": [
        streams.mark("relay.orphan_drain", streams.uid(2), 1, {"scope": "x"}, uuid=streams.uid(3)),
        streams.mark("openai.chat", streams.uid(1), 2, {"rejected": True}, uuid=streams.uid(2)),
    ],
    "a scope does not live as long as a mark elsewhere that bears its uuid": [
        streams.mark("relay.rewrite", streams.uid(8), 44, {"position": 0, "key": "k"}, uuid=streams.uid(2)),
        session("end", 1, 9, 124, metadata={"session_id": "s"}),
        streams.scope("start", streams.uid(2), streams.uid(1), 0, name="read", category="tool"),
    ],
    "of two refusals under one uuid both are signs of life": [
        streams.mark("openai.chat", streams.uid(1), 1, {"rejected": True}, uuid=streams.uid(2)),
        session("end", 1, None, 83, metadata={"session_id": "s"}),
        streams.mark("openai.chat", streams.uid(3), 900, {"rejected": True}, uuid=streams.uid(2)),
    ],
    "so is one of a tool that did begin": [
        streams.scope("start", streams.uid(2), streams.uid(1), 120, name="read", category="tool"),
        streams.mark("openai.chat", streams.uid(1), 161, {"rejected": True}, uuid=streams.uid(2)),
        session("end", 1, 9, 162, metadata={"session_id": "s"}),
    ],
    "no parent is missing where a circle opens": [
        session("start", 3, 1, 81),
        streams.scope("start", streams.uid(2), streams.uid(3), 121, name="plan"),
        session("start", 1, 2, 0, root=streams.uid(9)),
    ],
    "chunks under a call that never began": [
        streams.mark("openai.chat", streams.uid(1), 84, {"rejected": True}, uuid=streams.uid(2)),
        streams.mark("relay.chunks", streams.uid(2), 291, {"first": 0, "chunks": [{}]}, uuid=streams.uid(3)),
    ],
    "a chunk counts beside a content of the same uuid": [
        streams.scope("start", streams.uid(1), None, 0, name="custom", category="llm"),
        {**streams.chunk(streams.uid(1), 0, 3), "uuid": streams.uid(5)},
        streams.mark("relay.chunks", streams.uid(1), 4, {"first": 0, "chunks": [{}]}, uuid=streams.uid(5)),
    ],
    "a circle that a smaller start opens": [
        streams.scope("start", streams.uid(1), streams.uid(2), 5, name="plan"),
        streams.scope("start", streams.uid(2), streams.uid(1), 5, name="plan"),
        streams.scope("start", streams.uid(2), streams.uid(9), 1, name="plan"),
        streams.scope("end", streams.uid(3), streams.uid(1), 6, name="openai.chat_completions", category="llm"),
    ],
    "a turn that a smaller start moves takes its time along": [
        session("start", 1, None, 0),
        session("start", 2, None, 1),
        turn("start", 3, 1, 90, "s"),
        turn("start", 3, 2, 80, "s"),
    ],
    "so does a scope that counts nothing": [
        session("start", 1, None, 0),
        session("start", 2, None, 1),
        streams.scope("start", streams.uid(3), streams.uid(1), 90, name="plan"),
        streams.scope("start", streams.uid(3), streams.uid(2), 80, name="plan"),
    ],
    "a mark displaced by another tells no session": [
        session("start", 1, None, 1, metadata={}),
        streams.mark("note", streams.uid(1), 6, metadata={"session_id": "late"}, uuid=streams.uid(4)),
        streams.mark("note", streams.uid(1), 5, metadata={}, uuid=streams.uid(4)),
        turn("start", 2, 1, 2, "t", metadata={}),
    ],
}


@pytest.mark.parametrize("stream", FOUND.values(), ids=list(FOUND))
def test_no_order_of_these_few_events_makes_a_difference(stream: list[Any]) -> None:
    lines = [streams.line(event) for event in stream]
    want = record([lines])
    assert not list(Rebuilt().differences(lambda _: None))
    for order, restart in itertools.product(itertools.permutations(lines), (False, True)):
        assert not differences(want, record([[text] for text in order], restart=restart))
