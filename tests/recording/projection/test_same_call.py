"""Attempts of a foreign stream that tell one request id are attempts of one logical call, in any order."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from relayweb.live.frames import node_columns
from relayweb.recording.models import Scope
from relayweb.recording.reading import queries
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording import streams
from tests.recording.streams import FAILED, OK, answer, request, scope, uid
from tests.recording.test_any_order import differences, record

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = uid()


def attempt(ms: float, request_id: str | None, ok: bool = True, parent: str = AGENT) -> list[dict[str, Any]]:
    uuid = uid()
    told = {"api_mode": "chat_completions", **({"api_request_id": request_id} if request_id else {})}
    common: dict[str, Any] = {"name": "openai.chat_completions", "category": "llm"}
    out, status = (answer(prompt=10, completion=1), OK) if ok else (None, FAILED)
    return [
        scope("start", uuid, parent, ms, data=request(), metadata=told, **common),
        scope("end", uuid, parent, ms + 5, data=out, metadata={**told, **status}, **common),
    ]


def agent(uuid: str = AGENT) -> list[dict[str, Any]]:
    return [
        scope("start", uuid, None, 0, name="worker", category="agent"),
        scope("end", uuid, None, 900, name="worker", category="agent"),
    ]


def turn(uuid: str = AGENT) -> dict[str, Any]:
    found = queries.turn(uuid)
    assert found is not None
    return found


def test_a_retried_call_is_one_call_with_its_attempts() -> None:
    first, second, third, other = (
        attempt(10, "r", ok=False),
        attempt(20, "r", ok=False),
        attempt(30, "r"),
        attempt(40, "q"),
    )
    record([list(map(streams.line, [*agent(), *first, *second, *third, *other]))])
    found = turn()
    assert (found["logical_calls"], found["attempts"], found["retries"]) == (2, 4, 2)
    calls = found["tree"]["children"]
    assert [(call["role"], call["attempts"], call["retries"]) for call in calls] == [
        ("logical_call", 3, 2),
        ("logical_call", 1, 0),
    ]
    retried = calls[0]
    assert (retried["uuid"], retried["status"], retried["api_request_id"]) == (first[0]["uuid"], "ok", "r")
    assert (retried["duration_us"], retried["error"]) == (25_000, None)
    assert retried["usage"]["input_tokens"] == 10 and "synthetic" in retried["flags"]
    assert [(a["uuid"], a["attempt"]) for a in retried["children"]] == [
        (first[0]["uuid"], 1),
        (second[0]["uuid"], 2),
        (third[0]["uuid"], 3),
    ]
    assert not list(integrity.problems())


def test_the_live_page_hangs_them_under_the_same_call() -> None:
    first, second = attempt(10, "r", ok=False), attempt(20, "r")
    record([list(map(streams.line, [*agent(), *first, *second]))])
    columns = node_columns(queries.read_rows(Scope.objects.filter(turn_uuid=UUID(AGENT))), {})
    nodes = {uuid: {name: column[i] for name, column in columns.items()} for i, uuid in enumerate(columns["uuid"])}
    call = nodes["call:" + first[0]["uuid"]]
    assert (call["status"], call["retries"], call["end_us"]) == ("ok", 1, nodes[second[0]["uuid"]]["end_us"])
    assert nodes[second[0]["uuid"]]["parent_uuid"] == nodes[first[0]["uuid"]]["parent_uuid"] == call["uuid"]


def test_the_call_is_sent_again_when_one_of_its_attempts_changes() -> None:
    record([])
    recorder = Recorder(Tables(connection))
    first, second = attempt(10, "r", ok=False), attempt(20, "r")
    recorder.record([Line(streams.line(event), 0) for event in [agent()[0], *first, second[0]]])
    before = recorder.newest
    recorder.record([Line(streams.line(second[1]), 0)])
    changed = {(node["role"], node["uuid"]): node for node in queries.turn_nodes(AGENT, since_seq=before)}
    assert changed["logical_call", first[0]["uuid"]]["status"] == "ok"


def test_one_id_in_two_turns_is_two_calls() -> None:
    other = uid()
    events = [*agent(), *agent(other), *attempt(10, "r"), *attempt(20, "r", parent=other), *attempt(30, None)]
    record([list(map(streams.line, events))])
    assert turn()["logical_calls"] == 2 and turn(other)["logical_calls"] == 1


def test_a_logical_call_that_comes_late_takes_its_attempts() -> None:
    call = uid()
    mine, loose = attempt(10, "r", parent=call), attempt(20, "r")
    holder = scope("start", call, AGENT, 5, name="relay.logical_llm_call")
    events = [agent()[0], *mine, *loose, holder]
    want = record([list(map(streams.line, events))])
    assert (turn()["logical_calls"], turn()["retries"]) == (2, 0)
    assert not differences(want, record([[streams.line(event)] for event in events]))


@pytest.mark.parametrize("restart", [False, True])
def test_no_order_makes_a_difference(restart: bool) -> None:
    events = [
        agent()[0],
        attempt(10, "r")[0],
        *attempt(10, "r", ok=False),
        {**attempt(5, "r")[1], "timestamp": streams.at(4)},
    ]
    lines = list(map(streams.line, events))
    want = record([lines])
    for order in itertools.permutations(lines):
        assert not differences(want, record([[line] for line in order], restart=restart))
