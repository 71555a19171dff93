"""Identity and closing of logical calls (R8-R26)."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import relay_llm, relay_runtime
from adapters.relay_runtime import SESSION_COORDINATOR
from tests.adapters.conftest import Conversation, Events, answer, body, call

LOGICAL = "relay.logical_llm_call"


def ok(_request: Any) -> Any:
    return answer()


def fails(_request: Any) -> Any:
    raise ValueError("provider down")


def attempt(request_id: str | None, callback: Any = ok, *, deferred: bool = True, **metadata: Any) -> Any:
    return relay_llm.execute_current(
        body(), callback, defer_logical_completion=deferred, **call(request_id, **metadata)
    )


def test_r8_attempts_with_one_id_share_one_logical_scope(talk: Conversation, events: Events) -> None:
    with pytest.raises(ValueError, match="provider down"):
        attempt("a", fails)
    handle = talk.turn.logical_llm_calls["a"]
    attempt("a")
    assert talk.turn.logical_llm_calls["a"] is handle
    assert len(events.starts(LOGICAL)) == 1
    assert {e["parent_uuid"] for e in events.attempts()} == {str(handle.uuid)}  # also R11


def test_r8_an_id_means_another_call_in_another_turn(talk: Conversation, events: Events) -> None:
    attempt("a")
    talk.end()
    second = talk.begin("turn-2")
    attempt("a")
    SESSION_COORDINATOR.end_turn(second, outcome="success")
    assert len({e["parent_uuid"] for e in events.starts(LOGICAL)}) == 2


def test_r9_without_an_id_the_attempt_hangs_under_the_turn(talk: Conversation, events: Events) -> None:
    attempt(None)
    assert events.attempts()[0]["parent_uuid"] == talk.turn.scope.uuid
    assert events.starts(LOGICAL) == []


def test_r9_without_a_turn_the_attempt_hangs_under_the_session(talk: Conversation, events: Events) -> None:
    contextvars.Context().run(lambda: relay_llm.execute(body(), ok, session_id=talk.session_id, **call("a")))
    assert events.attempts()[0]["parent_uuid"] == talk.lease.session.scope.uuid
    assert events.starts(LOGICAL) == []


def test_r9_a_turn_of_another_runtime_gives_no_logical_call(talk: Conversation, events: Events) -> None:
    other = relay_runtime.RelayRuntime(profile_key="default")
    other.retain_managed_execution("tests")
    relay_runtime.install_runtime(other)
    try:
        relay_llm.execute(body(), ok, session_id="elsewhere", **call("a"))
        assert events.starts(LOGICAL) == []
        assert events.attempts()[0]["parent_uuid"] == other.get_session("elsewhere").scope.uuid
    finally:
        relay_runtime.install_runtime(talk.host)
        other.shutdown()


def test_r10_the_logical_scope_says_what_it_is(talk: Conversation, events: Events) -> None:
    attempt("a")
    attempt("b", call_role="fallback")
    first, second = events.starts(LOGICAL)
    assert (first["category"], first["name"], first["data"]) == ("function", LOGICAL, {})
    assert first["parent_uuid"] == talk.turn.scope.uuid
    metadata = first["metadata"]
    assert metadata[relay_runtime.RUNTIME_SCHEMA_KEY] == relay_runtime.RUNTIME_SCHEMA_VERSION
    assert metadata[relay_runtime.RUNTIME_INSTANCE_KEY] == talk.host.runtime_id
    assert metadata["relay.call_role"] == "primary"
    assert second["metadata"]["relay.call_role"] == "fallback"  # R13


@pytest.mark.parametrize("role", ["primary", "fallback", "delegated", "auxiliary:title"])
def test_r13_the_role_is_on_attempt_and_logical_call(talk: Conversation, events: Events, role: str) -> None:
    attempt("a", call_role=role)
    assert events.starts(LOGICAL)[0]["metadata"]["relay.call_role"] == role
    assert events.attempts()[0]["metadata"]["call_role"] == role


def test_r11_the_attempt_hangs_under_its_logical_call(talk: Conversation, events: Events) -> None:
    attempt("a")
    assert events.attempts()[0]["parent_uuid"] == events.starts(LOGICAL)[0]["uuid"]
    assert events.attempts()[0]["propagation_root_uuid"] == events.starts(LOGICAL)[0]["propagation_root_uuid"]


def test_r12_no_logical_call_opens_in_a_turn_that_is_ending(talk: Conversation, events: Events) -> None:
    for round in range(20):
        turn = talk.turn if round == 0 else talk.begin(f"turn-{round}")
        context = contextvars.copy_context()
        barrier = threading.Barrier(2)

        def run(context: contextvars.Context = context, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            context.run(attempt, "a")

        thread = threading.Thread(target=run)
        thread.start()
        barrier.wait()
        SESSION_COORDINATOR.end_turn(turn, outcome="success")
        thread.join()
        assert turn.logical_llm_calls == {}
    assert len(events.starts(LOGICAL)) == len(events.ends(LOGICAL))


def test_r14_retry_count_and_metadata_are_recorded_as_given(talk: Conversation, events: Events) -> None:
    attempt("a", retry_count=0)
    attempt("a", retry_count=1)
    attempt("b")
    assert [e["metadata"].get("retry_count") for e in events.attempts()] == [0, 1, None]
    assert events.attempts()[0]["metadata"]["api_request_id"] == "a"


def test_r15_a_call_closes_with_success_when_its_attempt_returns(talk: Conversation, events: Events) -> None:
    attempt("a", deferred=False)
    assert talk.turn.logical_llm_calls == {}
    assert events.outcomes() == ["success"]


def test_r16_a_deferred_call_is_closed_by_the_caller_only(talk: Conversation, events: Events) -> None:
    with pytest.raises(ValueError, match="provider down"):
        attempt("a", fails)
    attempt("a")
    assert list(talk.turn.logical_llm_calls) == ["a"]
    relay_llm.complete_logical_call("a", outcome="failed")
    assert talk.turn.logical_llm_calls == {}
    assert events.outcomes() == ["failed"]


@pytest.mark.parametrize("deferred", [True, False])
def test_r17_a_failed_attempt_leaves_the_call_open_for_a_retry(
    talk: Conversation, events: Events, deferred: bool
) -> None:
    with pytest.raises(ValueError, match="provider down"):
        attempt("a", fails, deferred=deferred)
    assert list(talk.turn.logical_llm_calls) == ["a"]
    attempt("a", deferred=False)
    assert events.outcomes() == ["success"]


@pytest.mark.parametrize("request_id", ["", "unknown"])
def test_r18_closing_what_is_not_there_does_nothing(talk: Conversation, events: Events, request_id: str) -> None:
    attempt("a")
    relay_llm.complete_logical_call(request_id, outcome="success")
    relay_llm.describe_logical_call(request_id, model="m")
    contextvars.Context().run(lambda: relay_llm.complete_logical_call("a", outcome="success"))
    assert list(talk.turn.logical_llm_calls) == ["a"]


def test_r19_a_second_close_does_nothing(talk: Conversation, events: Events) -> None:
    attempt("a")
    relay_llm.complete_logical_call("a", outcome="success")
    relay_llm.complete_logical_call("a", outcome="failed")
    assert events.outcomes() == ["success"]


def test_r19_an_old_handle_does_not_close_a_newer_call(talk: Conversation, events: Events) -> None:
    attempt("a")
    old = talk.turn.calls["a"]
    relay_llm.complete_logical_call("a", outcome="success")
    attempt("a")
    assert talk.turn.complete(old, "failed") is False
    assert list(talk.turn.logical_llm_calls) == ["a"]


@pytest.mark.parametrize(
    "how, outcome",
    [
        (ValueError("provider down"), "failed"),
        (InterruptedError("stop"), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        ("close", "cancelled"),
        (None, "success"),
    ],
    ids=["error", "interrupt", "ctrl-c", "closed", "exhausted"],
)
def test_r23_the_outcome_says_how_a_stream_ended(
    talk: Conversation, events: Events, how: BaseException | str | None, outcome: str
) -> None:
    def chunks(request: Any) -> Any:
        yield {"n": 1}
        if isinstance(how, BaseException):
            raise how

    stream = relay_llm.stream_current(body(), chunks, **call("a"))
    next(stream)
    if how == "close":
        stream.close()
    elif isinstance(how, BaseException):
        with pytest.raises(type(how)):
            next(stream)
    else:
        assert list(stream) == []
    assert events.outcomes() == [outcome]


class StuckPop:
    """Makes Relay's pop raise for chosen scopes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, talk: Conversation) -> None:
        self.uuids: set[str] = set()
        self.outputs: list[Any] = []
        real = talk.host.relay.scope.pop

        def pop(handle: Any, **kwargs: Any) -> Any:
            if str(handle.uuid) in self.uuids:
                raise RuntimeError("stuck")
            self.outputs.append(kwargs.get("output"))
            return real(handle, **kwargs)

        monkeypatch.setattr(talk.host.relay.scope, "pop", pop)


def test_r20_a_close_that_fails_does_not_cost_the_answer_and_is_tried_again(
    talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = StuckPop(monkeypatch, talk)

    def answering(request: Any) -> Any:
        stuck.uuids.add(str(talk.turn.logical_llm_calls["a"].uuid))
        return answer()

    assert attempt("a", answering, deferred=False) == answer()
    assert "did not close" in caplog.text
    assert list(talk.turn.logical_llm_calls) == ["a"]
    stuck.uuids.clear()
    talk.end("success")
    assert events.outcomes() == ["success"]
    assert talk.turn.logical_llm_calls == {}


def test_r21_the_output_is_the_outcome_and_what_was_described(talk: Conversation, events: Events) -> None:
    attempt("a", deferred=False)
    attempt("b")
    relay_llm.describe_logical_call("b", model="m2", provider="p2", response_model="m2-0101", error_class="none")
    relay_llm.complete_logical_call("b", outcome="success")
    first, second = (e["data"] for e in events.ends(LOGICAL))
    assert first == {"outcome": "success"}
    assert second == {
        "outcome": "success",
        "model": "m2",
        "provider": "p2",
        "response_model": "m2-0101",
        "error_class": "none",
    }


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "success"])
def test_r22_an_open_call_ends_with_the_outcome_of_its_turn(talk: Conversation, events: Events, outcome: str) -> None:
    with pytest.raises(ValueError, match="provider down"):
        attempt("a", fails, deferred=False)
    talk.end(outcome)
    assert events.outcomes() == [outcome]


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(4)))
def test_r24_logical_calls_close_in_any_order_with_outcomes_of_their_own(order: list[int]) -> None:
    events = Events()
    talk = Conversation("any-order")
    relay = talk.host.relay
    relay.subscribers.register("any-order", events.add)
    try:
        for index in range(4):
            attempt(f"call-{index}")
        for index in order:
            relay_llm.complete_logical_call(f"call-{index}", outcome=f"outcome-{index}")
        talk.end()
        starts = {e["uuid"]: e["metadata"]["api_request_id"] for e in events.starts(LOGICAL)}
        ends = [(starts[e["uuid"]], e["data"]["outcome"]) for e in events.ends(LOGICAL)]
        assert ends == [(f"call-{i}", f"outcome-{i}") for i in order]
        assert {e["parent_uuid"] for e in events.starts(LOGICAL)} == {talk.turn.scope.uuid}
    finally:
        relay.subscribers.deregister("any-order")
        relay_runtime.reset_for_tests()


def test_r25_turn_end_closes_the_newest_first(talk: Conversation, events: Events) -> None:
    for name in "abc":
        attempt(name)
    talk.end("failed")
    starts = {e["uuid"]: e["metadata"]["api_request_id"] for e in events.starts(LOGICAL)}
    assert [starts[e["uuid"]] for e in events.ends(LOGICAL)] == ["c", "b", "a"]
    assert events.outcomes() == ["failed"] * 3


def test_r25_what_cannot_be_closed_is_kept_with_all_older_ones_and_the_turn_still_ends(
    talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        attempt(name)
    stuck = StuckPop(monkeypatch, talk)
    stuck.uuids.add(str(talk.turn.logical_llm_calls["b"].uuid))
    talk.end("success")
    assert list(talk.turn.logical_llm_calls) == ["a", "b"]
    assert len(events.ends("relay.turn")) == 1
    assert relay_runtime.active_turn() is None


def test_r26_a_background_thread_may_finish_its_call_after_the_turn(talk: Conversation, events: Events) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(request: Any) -> Any:
        started.set()
        assert go_on.wait(10)
        return answer("a title")

    got: list[Any] = []
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: got.append(context.run(attempt, "title", slow, deferred=False)))
    thread.start()
    assert started.wait(10)
    talk.end("success")
    go_on.set()
    thread.join()
    assert got == [answer("a title")]
    order = [(e["name"], e["scope_category"]) for e in events.all() if e.get("scope_category") == "end"]
    assert order.index((LOGICAL, "end")) < order.index(("relay.turn", "end"))
    assert order[-1] == ("openai.chat_completions", "end")
