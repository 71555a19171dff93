"""Sessions, turns and sub-agents (R95-R106)."""

from __future__ import annotations

import contextvars
import threading
import time
from typing import Any

import nemo_relay
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import relay_llm, relay_runtime, scopes
from adapters.relay_runtime import SESSION_COORDINATOR
from tests.adapters.conftest import Conversation, Events, answer, body, call

C = SESSION_COORDINATOR


def test_r95_a_session_has_one_scope_whoever_asks_and_how_often(talk: Conversation, events: Events) -> None:
    sessions: list[Any] = []
    threads = [threading.Thread(target=lambda: sessions.append(talk.host.ensure_session("shared"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(s) for s in sessions}) == 1
    assert len([e for e in events.starts("relay.session") if e["metadata"]["session_id"] == "shared"]) == 1


def test_r95_the_callers_open_scopes_do_not_become_the_parent(events: Events) -> None:
    with (
        nemo_relay.use_scope_stack(nemo_relay.create_scope_stack()),
        nemo_relay.scope.scope("mine", nemo_relay.ScopeType.Agent) as mine,
    ):
        Conversation("s").end()
    [session] = events.starts("relay.session")
    assert session["parent_uuid"] != str(mine.uuid)


def test_r95_run_in_session_keeps_the_callers_context_and_adds_the_sessions_scope(
    talk: Conversation, events: Events
) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("caller")

    def work(name: str) -> str:
        nemo_relay.scope.event(name)
        return variable.get()

    assert talk.host.run_in_session("session-1", work, "inside") == "caller"
    assert talk.host.run_in_session(talk.lease.session, work, "inside") == "caller"
    assert {e["parent_uuid"] for e in events.marks("inside")} == {talk.lease.session.scope.uuid}


async def test_r95_run_in_session_async_does_so_too(talk: Conversation, events: Events) -> None:
    async def work(name: str) -> None:
        nemo_relay.scope.event(name)

    await talk.host.run_in_session_async("session-1", work, "inside")
    nemo_relay.scope.event("outside")
    assert events.marks("inside")[0]["parent_uuid"] == talk.lease.session.scope.uuid
    assert events.marks("outside")[0]["parent_uuid"] != talk.lease.session.scope.uuid


def test_r96_releasing_a_lease_leaves_the_session_open_for_the_next(talk: Conversation, events: Events) -> None:
    talk.end()
    C.release_conversation(talk.lease)
    with pytest.raises(RuntimeError, match="was released"):
        C.begin_turn(talk.lease, turn_id="turn-2", task_id="")
    assert events.ends("relay.session") == []
    again = C.acquire_conversation(session_id="session-1")
    assert again.session is talk.lease.session
    C.finalize_conversation(session_id="session-1")
    assert len(events.ends("relay.session")) == 1


def test_r97_sessions_and_turns_say_what_they_are(events: Events) -> None:
    lease = C.acquire_conversation(session_id="s", platform="cli", model="m1", cwd="/somewhere")
    turn = C.begin_turn(lease, turn_id="t", task_id="k", cwd="/somewhere")
    C.end_turn(turn, outcome="success")
    [session], [start], [end] = events.starts("relay.session"), events.starts("relay.turn"), events.ends("relay.turn")
    assert (session["category"], start["category"]) == ("agent", "function")
    assert (session["data"], start["data"], end["data"]) == (
        {"cwd": "/somewhere"},
        {"cwd": "/somewhere"},
        {"outcome": "success"},
    )
    for event, role in ((session, "session"), (start, "turn")):
        assert event["metadata"]["relay.schema_version"] == "relay.runtime.v1"
        assert event["metadata"]["relay.runtime_instance"] == lease.host.runtime_id
        assert event["metadata"]["relay.execution_surface"] == "cli"
        assert event["metadata"]["session_id"] == "s"
        assert event["metadata"]["profile"] == "default"
        assert event["metadata"]["nemo_relay_scope_role"] == role
    assert (start["metadata"]["turn_id"], start["metadata"]["task_id"]) == ("t", "k")


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(4)))
def test_r98_overlapping_turns_close_in_any_order_each_under_its_session(order: list[int]) -> None:
    relay_runtime.reset_for_tests()
    events = Events()
    nemo_relay.subscribers.register("overlap", events.add)
    try:
        lease = C.acquire_conversation(session_id="s")
        lease.host.retain_managed_execution("tests")
        turns = [C.begin_turn(lease, turn_id=f"t{i}", task_id="") for i in range(4)]
        for index, turn in enumerate(turns):
            with turn.activate():
                relay_llm.execute_current(body(), lambda r: answer(), **call(f"call-{index}"))
        for index in order:
            C.end_turn(turns[index], outcome=f"outcome-{index}")
        ids = {e["uuid"]: e["metadata"]["turn_id"] for e in events.starts("relay.turn")}
        assert [(ids[e["uuid"]], e["data"]["outcome"]) for e in events.ends("relay.turn")] == [
            (f"t{i}", f"outcome-{i}") for i in order
        ]
        assert {e["parent_uuid"] for e in events.starts("relay.turn")} == {lease.session.scope.uuid}
        logical = {e["metadata"]["api_request_id"]: e["parent_uuid"] for e in events.starts("relay.logical_llm_call")}
        assert {key: ids[parent] for key, parent in logical.items()} == {f"call-{i}": f"t{i}" for i in range(4)}
    finally:
        nemo_relay.subscribers.deregister("overlap")
        relay_runtime.reset_for_tests()


def test_r98_turns_of_one_session_in_many_threads(talk: Conversation, events: Events) -> None:
    def work(number: int) -> None:
        turn = C.begin_turn(talk.lease, turn_id=f"t{number}", task_id="")
        for index in range(10):
            relay_llm.execute_current(body(), lambda r: answer(), **call(f"{number}-{index}"))
        C.end_turn(turn, outcome="success")

    threads = [threading.Thread(target=contextvars.Context().run, args=(work, i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    talk.end()
    assert len(events.ends("relay.turn")) == 7
    assert events.outcomes() == ["success"] * 60


def test_r99_ending_a_turn_twice_does_nothing_more(talk: Conversation, events: Events) -> None:
    talk.end("failed")
    talk.end("success")
    assert [e["data"] for e in events.ends("relay.turn")] == [{"outcome": "failed"}]


def test_r99_the_previous_live_turn_comes_back(talk: Conversation) -> None:
    second = talk.begin("turn-2")
    third = talk.begin("turn-3")
    C.end_turn(second, outcome="success")
    assert relay_runtime.active_turn() is third  # R100
    C.end_turn(third, outcome="success")
    assert relay_runtime.active_turn() is talk.turn
    talk.end()
    assert relay_runtime.current_turn() is None


def test_r99_a_cycle_of_previous_turns_is_survived(talk: Conversation) -> None:
    second = talk.begin("turn-2")
    talk.turn.previous = second
    talk.turn.closed = True
    C.end_turn(second, outcome="success")
    assert relay_runtime.current_turn() is None
    talk.turn.closed = False


def test_r99_a_session_finalised_during_a_turn_closes_when_the_turn_ends(talk: Conversation, events: Events) -> None:
    C.finalize_conversation(session_id="session-1")
    assert events.ends("relay.session") == []
    assert relay_runtime.active_turn() is talk.turn
    talk.end()
    names = [e["name"] for e in events.all() if e.get("scope_category") == "end"]
    assert names == ["relay.turn", "relay.session"]


def test_r100_ending_an_older_turn_leaves_the_newer_one_alone(talk: Conversation) -> None:
    second = talk.begin("turn-2")
    talk.end()
    assert relay_runtime.active_turn() is second
    C.end_turn(second, outcome="success")


def test_r101_what_lies_above_a_scope_is_drained(talk: Conversation, events: Events) -> None:
    with talk.turn.scope.entered():
        nemo_relay.scope.push("orphan", nemo_relay.ScopeType.Function)
    talk.end()
    [mark] = events.marks("relay.orphan_drain")
    assert mark["data"]["scope"] == "orphan"
    assert len(events.ends("orphan")) == len(events.ends("relay.turn")) == 1


def test_r101_a_scope_that_will_not_pop_is_given_up(
    talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def pop(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(talk.host.relay.scope, "pop", pop)
    talk.end()
    assert "given up" in caplog.text
    assert events.ends("relay.turn") == []
    [mark] = events.marks("relay.orphan_drain")
    assert mark["data"]["scope"] == "relay.turn"


def test_r102_a_sub_agent_hangs_under_the_turn_that_spawned_it(talk: Conversation, events: Events) -> None:
    child = C.acquire_conversation(session_id="child", platform="subagent", parent_session_id="session-1")
    turn = C.begin_turn(child, turn_id="child-turn", task_id="")
    relay_llm.execute_current(body(), lambda r: answer(), **call("a"))
    C.end_turn(turn, outcome="success")
    session = events.starts("relay.session")[1]
    assert session["parent_uuid"] == talk.turn.scope.uuid
    assert session["metadata"]["nemo_relay_scope_role"] == "subagent"
    assert session["metadata"]["parent_session_id"] == "session-1"
    assert events.ends("relay.session")[0]["uuid"] == session["uuid"]  # closed by its own turn's end
    assert relay_runtime.active_turn() is talk.turn


def test_r102_without_a_live_turn_it_hangs_under_the_parent_session(talk: Conversation, events: Events) -> None:
    talk.end()
    assert talk.host.register_subagent("child", "session-1") is not None
    assert events.starts("relay.session")[1]["parent_uuid"] == talk.lease.session.scope.uuid
    talk.host.unregister_subagent("child")
    assert len(events.ends("relay.session")) == 1


@pytest.mark.parametrize("child, parent", [("", "session-1"), ("child", ""), ("session-1", "session-1"), ("c", "none")])
def test_r102_impossible_sub_agents_are_refused(talk: Conversation, events: Events, child: str, parent: str) -> None:
    assert talk.host.register_subagent(child, parent) is None
    assert len(events.starts("relay.session")) == 1


def test_r102_unregistering_something_else_does_nothing(talk: Conversation, events: Events) -> None:
    talk.host.unregister_subagent("session-1")
    talk.host.unregister_subagent("unknown")
    assert events.ends("relay.session") == []


def test_r104_a_mark_goes_to_the_live_turn_else_to_the_session(talk: Conversation, events: Events) -> None:
    assert talk.host.emit_mark("session-1", "compaction", {"kept": 3})
    other = contextvars.Context().run(talk.host.emit_mark, "session-1", "compaction", {"kept": 2})
    talk.end()
    assert talk.host.emit_mark("session-1", "compaction", {"kept": 1}) and other
    assert not talk.host.emit_mark("unknown", "compaction")
    turn, session = talk.turn.scope.uuid, talk.lease.session.scope.uuid
    assert [e["parent_uuid"] for e in events.marks("compaction")] == [turn, turn, session]


def test_r105_initialisers_run_before_a_session_opens_and_never_stop_it(
    talk: Conversation, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[Any, str, bool]] = []

    def note(host: Any, session_id: str) -> None:
        seen.append((host, session_id, host.get_session(session_id) is not None))
        raise RuntimeError("initialiser is broken")

    talk.host.add_session_initializer(note)
    talk.host.add_session_initializer(note)
    assert talk.host.ensure_session("new") is not None
    talk.host.ensure_session("new")
    assert seen == [(talk.host, "new", False)]
    assert "session initializer failed" in caplog.text


def test_r106_a_stuck_pipeline_costs_a_span_not_the_agent(
    talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "CLOSE_TIMEOUT", 0.2)
    release = threading.Event()
    real = talk.host.relay.scope.pop

    def stuck(*args: Any, **kwargs: Any) -> Any:
        release.wait(10)
        return real(*args, **kwargs)

    monkeypatch.setattr(talk.host.relay.scope, "pop", stuck)
    started = time.perf_counter()
    talk.end()
    assert time.perf_counter() - started < 5
    assert relay_runtime.current_turn() is None
    release.set()


def test_r106_a_healthy_end_is_visible_before_the_call_returns(talk: Conversation, events: Events) -> None:
    talk.end()
    assert len(events.ends("relay.turn")) == 1


def test_resolve_execution_context_says_where_a_call_belongs(talk: Conversation) -> None:
    runtime, session, parent = relay_runtime.resolve_execution_context("session-1")
    assert (runtime, session, parent) == (talk.host, talk.lease.session, talk.turn.handle)
    talk.host.release_managed_execution("tests")
    assert relay_runtime.resolve_execution_context("session-1") == (None, None, None)


def test_turns_that_ended_elsewhere_are_not_kept_alive(talk: Conversation) -> None:
    talk.end()
    last = talk.turn
    for number in range(5):
        last = talk.begin(f"next-{number}")
        contextvars.Context().run(C.end_turn, last, outcome="success")  # this context does not see it end
    assert relay_runtime.current_turn() is last
    assert talk.begin("newest").previous is None
