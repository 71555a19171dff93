"""Scenarios that go wrong in the field, put on record by one process or several, with sweeps, restarts and repeats."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.spans import Span, SpanEvent
from relayweb.recording.models import Scope
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import integrity, retention
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.recorder import Line
from tests.recording import streams
from tests.recording.streams import FAILED, OK, answer, chunk, mark, request, scope
from tests.recording.test_any_order import cut, differences, empty, record, snapshot

pytestmark = pytest.mark.django_db(transaction=True)

U = streams.uid
TURN, CALL, LLM = "relay.turn", "relay.logical_llm_call", "openai.chat_completions"
Unit = list[bytes]
"""Lines that a door takes together: an event, or all of a span."""


def atof(*told: Any) -> list[Unit]:
    return [[streams.line(event)] for event in told]


def around(uuid: str, parent: str | None, start: float, end: float, **more: Any) -> list[Any]:
    out, status = more.pop("out", None), more.pop("status", {})
    ended = {**more, "data": out, "metadata": {**(more.get("metadata") or {}), **status}}
    return [scope("start", uuid, parent, start, **more), scope("end", uuid, parent, end, **ended)]


def span(uuid: str, parent: str | None, trace: str, start: float, end: float, name: str, **told: Any) -> Unit:
    """A span as an exporter that knows nothing of Relay tells of this scope."""
    half = UUID(parent).bytes[8:] if parent else b""
    begin, over = (1_768_089_600_000_000_000 + round(ms * 1e6) for ms in (start, end))
    failed, marks = told.pop("failed", False), told.pop("marks", [])
    attributes = {"gen_ai.operation.name": "chat", **told} if told else {}
    found = [SpanEvent(name, begin + n, {"n": n}) for n, name in enumerate(marks)]
    ids = UUID(trace).bytes, UUID(uuid).bytes[8:], half
    return events(Span(*ids, name, begin, over, attributes, found, failed, "", None))


MODEL = {"gen_ai.request.model": "gpt-4o", "gen_ai.system": "openai"}
COUNTED = {**MODEL, "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 3}
SPOKEN = {
    **COUNTED,
    "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"hi"}]}]',
    "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"hello"}]}]',
}

IN_SESSION: dict[str, Any] = {"metadata": {"session_id": "s"}}

SCENARIOS: dict[str, list[Unit]] = {
    "a run in the middle of which everything comes before its parent": atof(
        *around(U(1), None, 0, 900, name="relay.session", category="agent", **IN_SESSION),
        *around(U(2), U(1), 1, 800, name=TURN, out={"outcome": "success"}, **IN_SESSION),
        *around(U(3), U(2), 2, 700, name=CALL, out={"outcome": "success"}),
        *around(U(4), U(3), 3, 300, name=LLM, category="llm", data=request(), status=FAILED),
        *around(U(5), U(3), 400, 600, name=LLM, category="llm", data=request(), out=answer(), status=OK),
        *(chunk(U(5), n, 410 + n) for n in range(3)),
        *around(U(6), U(5), 420, 430, name="read_file", category="tool", data={"a": 1}, out="x", status=OK),
    ),
    "ends that bear other names, categories and parents than their starts": atof(
        scope("start", U(1), None, 0, name=TURN, **IN_SESSION),
        scope("end", U(1), U(9), 90, name="hermes.turn", data={"outcome": "failed"}),
        scope("start", U(2), U(1), 1, name="plan"),
        scope("end", U(2), U(1), 80, name=LLM, category="llm", data=answer(), metadata=OK),
        scope("end", U(3), U(2), 60, name="read_file", category="tool"),
        scope("start", U(3), U(1), 70, name="custom", category="llm", data=request()),
        mark("relay.rewrite", U(2), 5, {"position": 0, "key": "k", "result": "hit"}, uuid=U(4)),
    ),
    "one uuid for a scope, a mark beside it and a chunk under it": atof(
        *around(U(1), None, 0, 90, name=TURN, **IN_SESSION),
        *around(U(2), U(1), 1, 80, name=LLM, category="llm", data=request(), out=answer(), status=OK),
        mark("note", U(1), 2, {"a": 1}, uuid=U(2)),
        mark("relay.rewrite", U(2), 3, {"position": 0, "key": "k", "result": "hit"}, uuid=U(1)),
        {**chunk(U(2), 0, 4), "uuid": U(2)},
        mark("relay.chunks", U(2), 5, {"first": 0, "chunks": [{"a": 1}]}, uuid=U(2)),
    ),
    "circles, one of them opened by an earlier start, and a scope that is its own parent": atof(
        scope("start", U(1), U(2), 5, name=TURN, **IN_SESSION),
        scope("start", U(2), U(3), 6, name="plan"),
        scope("start", U(3), U(1), 7, name=CALL),
        scope("start", U(3), None, 1, name=CALL),
        scope("start", U(4), U(4), 8, name=LLM, category="llm", data=request()),
        scope("end", U(4), U(3), 9, name=LLM, category="llm", data=answer(), metadata=OK),
    ),
    "a turn that comes to hang under another turn's tool": atof(
        *around(U(1), None, 0, 900, name=TURN, metadata={"session_id": "a", "turn_id": "1"}),
        *around(U(2), U(1), 10, 800, name="spawn", category="tool", status=OK),
        *around(U(3), U(2), 20, 700, name=TURN, metadata={"session_id": "b", "turn_id": "2"}),
        *around(U(4), U(3), 30, 600, name=LLM, category="llm", data=request(), out=answer(), status=OK),
        scope("start", U(3), None, 40, name=TURN, metadata={"session_id": "b", "turn_id": "2"}),
    ),
    "roots that say otherwise than the chain of parents": atof(
        *around(U(1), None, 0, 90, name=TURN, root=U(8), **IN_SESSION),
        *around(U(2), U(1), 1, 80, name=CALL, root=U(7)),
        *around(U(3), U(2), 2, 70, name=LLM, category="llm", data=request(), out=answer(), status=OK, root=U(3)),
        *around(U(4), U(6), 3, 60, name="read_file", category="tool", root=U(6), status=OK),
        *around(U(5), U(6), 3, 60, name="read_file", category="tool", root=U(1), status=OK),
    ),
    "ends long before their starts, and chunks before both": atof(
        *around(U(1), None, 500, 0, name=TURN, out={"outcome": "success"}, **IN_SESSION),
        *around(U(2), U(1), 400, 100, name=LLM, category="llm", data=request(), out=answer(), status=OK),
        *(chunk(U(2), n, -50 + n) for n in range(3)),
        *around(U(3), U(1), 300, 299, name="read_file", category="tool", status=OK),
    ),
    "one run by ATOF and by OTLP, neither whole": [
        *atof(
            *around(U(1), None, 0, 900, name=TURN, out={"outcome": "success"}, root=U(1), **IN_SESSION),
            scope("start", U(2), U(1), 10, name=LLM, category="llm", data=request(), root=U(1)),
            chunk(U(2), 0, 20),
            chunk(U(2), 1, 30, usage={"prompt_tokens": 10, "completion_tokens": 3}),
        ),
        span(U(1), None, U(1), 0, 900, "turn", marks=["note", "note"]),
        span(U(2), U(1), U(1), 10, 600, "chat gpt-4o", **SPOKEN),
        span(U(3), U(1), U(1), 610, 700, "execute_tool f", **{"gen_ai.operation.name": "execute_tool"}),
    ],
    "a span sent again with more attributes": [
        span(U(1), None, U(1), 0, 900, "agent"),
        span(U(2), U(1), U(1), 10, 600, "chat gpt-4o", **MODEL),
        span(U(2), U(1), U(1), 10, 600, "chat gpt-4o", **COUNTED),
        span(U(2), U(1), U(1), 10, 600, "chat gpt-4o", **SPOKEN),
        span(U(2), U(1), U(1), 10, 650, "chat gpt-4o", failed=True, **SPOKEN),
    ],
    "two conversations whose traces share the halves of their ids": [
        span(U(1), None, U(1), 0, 900, "agent"),
        span(U(2), U(1), U(1), 10, 600, "chat gpt-4o", **SPOKEN),
        span(U(1), None, U(9), 0, 900, "agent"),
        span(U(2), U(1), U(9), 10, 600, "chat gpt-4o", **COUNTED),
        *atof(*around(U(9), None, 0, 950, name=TURN, root=U(9), **IN_SESSION)),
    ],
}  # fmt: skip


def by_several(batches: list[list[bytes]], rng: random.Random) -> dict[str, Any]:
    """Each batch by one of three processes, some of which begin anew, with sweeps between them."""
    empty()
    several = [RunRecorder(Tables(connection)) for _ in range(3)]
    for batch in batches:
        at = rng.randrange(3)
        if rng.random() < 0.2:
            several[at] = RunRecorder(Tables(connection))
        lines = [Line(text, 0) for text in batch]
        several[at].record(lines)
        assert not [line.error for line in lines if line.error]
        if rng.random() < 0.2:
            rng.choice(several).sweep(10**16, 1, 0)
    rng.choice(several).sweep(10**16, 1, 0)
    return snapshot()


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", range(8))
def test_however_it_comes_it_is_one_record(name: str, seed: int) -> None:
    units, rng = SCENARIOS[name], random.Random(f"{name}{seed}")
    want = record([[line for unit in units for line in unit]])
    again = units + [unit for unit in units if rng.random() < 0.3]
    rng.shuffle(again)
    lines = [line for unit in again for line in unit]
    if seed % 2 == 0:  # as if every line came by itself
        rng.shuffle(lines)
    assert not differences(want, by_several(cut(lines, rng), rng))
    assert not list(integrity.problems())


def test_two_results_under_one_span_id_are_a_conflict_and_both_kept() -> None:
    first = span(U(2), None, U(1), 10, 600, "chat gpt-4o", failed=True, **COUNTED)
    second = span(U(2), None, U(1), 10, 650, "chat gpt-4o", **COUNTED)
    for batches in ([first, second], [second, first], [first + second], [first, second, first, second]):
        got = record(batches)
        (call,) = got["rows"].values()
        assert (call["status"], call["input_tokens"], bool(call["flags"] & Scope.Flag.CONFLICT)) == ("failed", 10, True)
        assert len(got["events"]) == 3, "the start is the same"


@pytest.mark.parametrize("seed", range(8))
def test_what_is_forgotten_while_it_comes_leaves_a_whole_record(seed: int) -> None:
    """Turns are pruned between the batches of three processes that all remember them; what comes then comes anew."""
    rng = random.Random(seed)
    units = [unit for name in SCENARIOS for unit in SCENARIOS[name]]
    rng.shuffle(units)
    empty()
    several = [RunRecorder(Tables(connection)) for _ in range(3)]
    for batch in cut([line for unit in units for line in unit], rng):
        several[rng.randrange(3)].record([Line(text, 0) for text in batch])
        if rng.random() < 0.3 and (found := list(Scope.objects.filter(is_home=True).values_list("uuid", flat=True))):
            retention.matching(rng.sample(found, 1))
        assert not list(integrity.problems())
    for recorder in several:
        recorder.sweep(10**16, 1, 0)
    assert not list(integrity.problems())
    kept = {text for _, text in snapshot()["events"]}
    assert record([[line for unit in units for line in unit]])["events"]
    assert kept <= {text for _, text in snapshot()["events"]}
