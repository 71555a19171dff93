"""A turn that a killed gateway left open ends as the gateway told that went on with it, in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection

from relayweb.recording.models import Scope
from relayweb.recording.reading import queries
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording import streams
from tests.recording.streams import FAILED, OK, Event, answer, request, scope, uid
from tests.recording.test_any_order import cut, differences, record

pytestmark = pytest.mark.django_db(transaction=True)

KILLED, OTHER = 0, 100
"""Where the uuids of each process's scopes begin, which is also when it takes the turn up, in ms."""


def began(process: int, profile: str = "gateway", at: float | None = None) -> list[Event]:
    ms = process if at is None else at
    told = {"profile": profile}
    ids = {"session_id": "s", "turn_id": "t"}
    return [
        scope("start", uid(process + 1), None, ms, name="relay.session", category="agent",
              metadata={"session_id": "s", **told}),
        scope("start", uid(process + 2), uid(process + 1), ms + 1, name="relay.turn", metadata={**ids, **told}),
    ]  # fmt: skip


def call(process: int, n: int, ms: float, request_id: str = "r", *, outcome: str | None = "success") -> list[Event]:
    """A call with one attempt; without `outcome` both are open."""
    holder, attempt = uid(process + 10 * n), uid(process + 10 * n + 1)
    of_call = {"name": "relay.logical_llm_call", "metadata": {"profile": "gateway"}}
    of_attempt = {"name": "custom", "category": "llm", "metadata": {"api_request_id": request_id}}
    told = [scope("start", holder, uid(process + 2), ms, **of_call),
            scope("start", attempt, holder, ms + 1, **of_attempt, data=request())]  # fmt: skip
    if outcome is None:
        return told
    out, status = (answer(), OK) if outcome == "success" else (None, FAILED)
    of_attempt["metadata"] |= status
    return [*told, scope("end", attempt, holder, ms + 5, **of_attempt, data=out),
            scope("end", holder, uid(process + 2), ms + 6, **of_call, data={"outcome": outcome})]  # fmt: skip


def ended(process: int, ms: float, outcome: str = "success", profile: str = "gateway") -> Event:
    told = {"session_id": "s", "turn_id": "t", "profile": profile}
    end = {"outcome": outcome}
    return scope("end", uid(process + 2), uid(process + 1), ms, name="relay.turn", metadata=told, data=end)


def shown() -> dict[str, Any]:
    assert not list(integrity.problems())
    (found,) = queries.turns()["turns"]
    assert found["uuid"] == uid(KILLED + 2)
    return found


def take(events: list[Event]) -> None:
    Recorder(Tables(connection)).record([Line(streams.line(event), 0) for event in events])


def test_a_turn_ends_as_the_process_told_that_went_on_with_it() -> None:
    record([])
    take([*began(KILLED), *call(KILLED, 1, 5), *began(OTHER), *call(OTHER, 1, 110, "q")])
    assert shown()["status"] == "running"
    take([ended(OTHER, 120)])
    found = shown()
    assert (found["status"], found["duration_us"], found["logical_calls"]) == ("ok", 119_000, 2)
    assert "derived_end" not in found["flags"]


def test_it_goes_on_while_an_attempt_does_and_ends_when_that_is_given_up() -> None:
    record([])
    take([*began(KILLED), *call(KILLED, 1, 5, outcome=None), *began(OTHER), *call(OTHER, 1, 110), ended(OTHER, 120)])
    assert shown()["status"] == "running"
    Recorder(Tables(connection)).sweep(10**16, 1, 0)
    assert Scope.objects.get(uuid=uid(KILLED + 11)).status == "interrupted"
    assert shown()["status"] == "ok"
    assert [c["status"] for c in queries.turn(uid(KILLED + 2))["tree"]["children"]] == ["ok"]  # a retry of one call


def test_it_goes_on_where_the_first_process_asked_later_than_the_other_ended() -> None:
    record([])
    take([*began(KILLED), *began(OTHER), *call(OTHER, 1, 110), ended(OTHER, 120), *call(KILLED, 1, 130, "q")])
    assert shown()["status"] == "running"
    take([ended(KILLED, 150, "failed")])
    assert (shown()["status"], shown()["duration_us"]) == ("failed", 149_000)


def test_a_call_that_was_left_open_between_two_attempts_ends_where_it_was_tried_again() -> None:
    record([])
    first = call(KILLED, 1, 5, outcome="failed")[:-1]
    take([*began(KILLED), *first, *began(OTHER), *call(OTHER, 1, 110, outcome="failed"), ended(OTHER, 120, "failed")])
    found = shown()
    assert (found["status"], found["error"]["type"]) == ("failed", "InternalServerError")
    (holder,) = queries.turn(found["uuid"])["tree"]["children"]
    assert (holder["status"], holder["attempts"], holder["duration_us"]) == ("failed", 2, 111_000)


def test_its_own_end_counts_when_it_is_told_after_all() -> None:
    record([])
    take([*began(KILLED), *call(KILLED, 1, 5), *began(OTHER), *call(OTHER, 1, 110, "q"), ended(OTHER, 120)])
    take([ended(KILLED, 130, "cancelled")])
    assert (shown()["status"], shown()["duration_us"]) == ("cancelled", 129_000)


def test_a_gateway_does_not_speak_for_the_agent_that_calls_it() -> None:
    record([])
    take([*began(KILLED, "coder"), *call(KILLED, 1, 5), *began(OTHER), *call(OTHER, 1, 110, "q"), ended(OTHER, 120)])
    assert shown()["status"] == "running"
    Recorder(Tables(connection)).sweep(10**16, 1, 0)
    assert shown()["status"] == "interrupted"


def test_another_that_began_earlier_takes_the_end_over() -> None:
    earlier = 200
    lines = list(map(streams.line, [*began(earlier, at=-9), *began(KILLED), *began(OTHER), ended(OTHER, 120)]))
    want = record([lines])
    assert not differences(want, record([lines[2:], lines[:2]]))
    assert Scope.objects.get(uuid=uid(earlier + 2)).status == "ok"
    assert Scope.objects.get(uuid=uid(KILLED + 2)).status == "interrupted"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_no_order_makes_a_difference(seed: int, restart: bool) -> None:
    events = [*began(KILLED), *call(KILLED, 1, 5, outcome="failed")[:-1], *call(KILLED, 2, 20, "p"),
              *began(OTHER), *call(OTHER, 1, 110), *call(OTHER, 2, 120, "q"), ended(OTHER, 131)]  # fmt: skip
    lines = list(map(streams.line, events))
    want = record([lines])
    assert shown()["status"] == "ok"
    rng = random.Random(seed)
    rng.shuffle(lines)
    assert not differences(want, record(cut(lines, rng), restart=restart))
    assert shown()["status"] == "ok"
