from __future__ import annotations

import pytest

from relayweb import conf
from relayweb.recording.reading import queries
from tests.recording.recorded import FAILED, Talk, answer, record, scope, uid

pytestmark = pytest.mark.django_db(transaction=True)


def opened(*, profile: str | None = "gateway", start: float = 0) -> tuple[Talk, str]:
    """A turn whose call failed at 110 ms and is still open."""
    talk = Talk(f"s-{start}", profile=profile, start=start)
    call = talk.call(end=None)
    talk.failed = talk.attempt(call, 10, 110, status=FAILED, out=answer("x", 1, 0, None))
    talk.tail = []
    return talk, call


def waits(turn: str) -> dict[str, object] | None:
    (one,) = [found for found in queries.turns()["turns"] if found["uuid"] == turn]
    assert one["awaiting_retry"] == queries.turn_summary(turn)["awaiting_retry"]
    return one["awaiting_retry"]


def node_waits(call: str) -> dict[str, object] | None:
    told = queries.scope(call)["awaiting_retry"]
    whole = next(n for n in queries.turn_nodes(queries.scope(call)["turn_uuid"]) if n["uuid"] == call)
    assert whole["awaiting_retry"] == told
    return told


def test_a_call_that_failed_waits_for_its_retry_as_long_as_the_gateway_keeps_it_open():
    talk, call = opened()
    turn = talk.record()
    failed_us = queries.scope(talk.failed)["end_us"]
    told = waits(turn)
    assert told == node_waits(call)
    assert (told["since_us"], told["until_us"]) == (failed_us, failed_us + conf.RETRY_WINDOW * 1_000_000)
    assert queries.turn_summary(turn)["status"] == "running"


def test_only_a_sender_knows_until_when_it_tries_again():
    talk, call = opened(profile="mine")
    told = waits(talk.record())
    assert told["until"] is told["until_us"] is None and told == node_waits(call)


def test_a_retry_that_runs_waits_for_nothing_and_one_that_fails_waits_again():
    talk, call = opened()
    turn = talk.record()
    retry = uid()
    record(scope("start", retry, call, 300, name="openai.chat_completions", category="llm", data={}))
    assert waits(turn) is None and node_waits(call) is None
    end = {"name": "openai.chat_completions", "category": "llm", "metadata": FAILED}
    record(scope("end", retry, call, 400, **end))
    assert waits(turn)["since_us"] == queries.scope(retry)["end_us"]


@pytest.mark.parametrize("category", ["tool", "llm"])
def test_a_turn_in_which_something_else_runs_does_not_wait(category):
    talk, call = opened()
    if category == "tool":
        talk.tool("terminal", end=None)
    else:
        talk.attempt(talk.call(end=None), 100, None)
    assert waits(talk.record()) is None
    assert node_waits(call) is not None


def test_a_turn_waits_as_long_as_the_call_that_waits_longest():
    talk, _ = opened()
    last = talk.attempt(talk.call(end=None), 10, 700, status=FAILED, out=answer("x", 1, 0, None))
    assert waits(talk.record())["since_us"] == queries.scope(last)["end_us"]


def test_what_is_closed_or_went_well_waits_for_nothing():
    talk = Talk(profile="gateway")
    talk.attempt(talk.call(outcome="failure"), 10, 110, status=FAILED, out=answer("x", 1, 0, None))
    assert waits(talk.record()) is None
    other = Talk("s-2", profile="gateway", start=20_000)
    call = other.call(end=None)
    other.attempt(call, 10, 110)
    other.tail = []
    assert waits(other.record()) is None and node_waits(call) is None


def test_a_list_without_running_turns_asks_nothing_more(django_assert_num_queries):
    for number in range(3):
        talk = Talk(f"s-{number}", start=20_000 * number)
        talk.attempt(talk.call())
        talk.record()
    with django_assert_num_queries(3):  # one tells whose cost is not whole
        queries.turns()
