"""When a call goes through Relay at all (R1-R7)."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from typing import Any

import pytest

from adapters import relay_llm, relay_runtime, relay_tools
from adapters.relay_runtime import SESSION_COORDINATOR
from tests.adapters.conftest import Conversation, Events, answer, body, call, chunk


def same_object(request: Any) -> Any:
    return request


def test_r1_without_a_consumer_the_callback_gets_the_callers_own_request(events: Events) -> None:
    talk = Conversation(managed=False)
    request = body()
    assert relay_llm.execute_current(request, same_object, **call("a")) is request
    assert relay_llm.execute(request, same_object, session_id=talk.session_id, **call("a")) is request
    assert list(relay_llm.stream_current(request, lambda r: iter([r]), **call("a")))[0] is request
    assert events.attempts() == []


async def test_r1_the_async_forms_pass_through_as_well(events: Events) -> None:
    request = body()

    async def echo(r: Any) -> Any:
        return r

    assert await relay_llm.execute_async(request, echo, session_id="none", **call("a")) is request
    assert await relay_llm.execute_current_async(request, same_object, **call("a")) is request
    stream = await relay_llm.stream_async(request, lambda r: iter([r]), session_id="none", **call("a"))
    assert [c async for c in stream][0] is request
    assert events.attempts() == []


def test_r1_with_consumer_runtime_and_session_it_is_managed(talk: Conversation, events: Events) -> None:
    relay_llm.execute_current(body(), lambda r: answer(), **call("a"))
    assert len(events.attempts()) == 1


def test_r2_without_an_active_turn_the_current_forms_run_unmanaged(talk: Conversation, events: Events) -> None:
    talk.end()
    request = body()
    assert relay_llm.execute_current(request, same_object, **call("a")) is request
    assert events.attempts() == []


def test_r3_a_context_copied_from_a_closed_turn_does_not_fall_back_to_the_session(
    talk: Conversation, events: Events
) -> None:
    copied = contextvars.copy_context()
    talk.end()
    request = body()
    assert copied.run(relay_llm.execute_current, request, same_object, **call("a")) is request
    got = copied.run(lambda: relay_llm.execute(request, same_object, session_id=talk.session_id, **call("a")))
    assert got is request
    assert events.attempts() == []


def test_r4_a_turn_is_active_only_while_nothing_around_it_has_ended(talk: Conversation) -> None:
    assert relay_runtime.active_turn() is talk.turn
    assert relay_runtime.active_turn("another") is None
    assert talk.turn.is_active("session-1", "another-profile") is False
    SESSION_COORDINATOR.release_conversation(talk.lease)
    assert relay_runtime.active_turn() is None


def test_r4_a_turn_is_not_active_when_its_session_was_replaced(talk: Conversation) -> None:
    talk.host.close_session(talk.session_id)
    talk.host.ensure_session(talk.session_id)
    assert relay_runtime.active_turn() is None


def test_r4_a_turn_of_another_profile_is_not_active(talk: Conversation) -> None:
    with relay_runtime.use_profile("other"):
        assert relay_runtime.active_turn() is None
    assert relay_runtime.active_turn() is talk.turn


def test_r5_consumers_are_counted_by_name(talk: Conversation) -> None:
    talk.host.release_managed_execution("tests")
    talk.host.retain_managed_execution("a")
    talk.host.retain_managed_execution("a")
    talk.host.release_managed_execution("unknown")
    assert talk.host.managed_execution_enabled()
    talk.host.release_managed_execution("a")
    assert not talk.host.managed_execution_enabled()


@pytest.mark.parametrize("name", ["", "  "])
def test_r5_an_empty_consumer_is_an_error(talk: Conversation, name: str) -> None:
    with pytest.raises(ValueError, match="non-empty"):
        talk.host.retain_managed_execution(name)


def nested(events: Events) -> Any:
    return relay_llm.execute_current(body("nested"), lambda r: answer("inner"), **call("inner"))


def test_r6_a_call_inside_a_managed_callback_runs_unmanaged(talk: Conversation, events: Events) -> None:
    def outer(request: Any) -> Any:
        nested(events)
        relay_tools.execute("inner-tool", {}, lambda a: "x")
        return answer()

    relay_llm.execute_current(body(), outer, **call("outer"))
    assert [e["data"]["content"]["messages"][0]["content"] for e in events.attempts()] == ["hi"]
    assert events.starts("inner-tool") == []


def test_r6_holds_in_threads_with_a_copied_context(talk: Conversation, events: Events) -> None:
    def outer(request: Any) -> Any:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(nested, events))
        thread.start()
        thread.join()
        return answer()

    relay_llm.execute_current(body(), outer, **call("outer"))
    assert len(events.attempts()) == 1


def test_r6_the_guard_is_undone_after_an_exception(talk: Conversation, events: Events) -> None:
    def fails(request: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        relay_llm.execute_current(body(), fails, **call("a"))
    nested(events)
    assert len(events.attempts()) == 2


def test_r6_holds_while_a_stream_is_pulled_and_inside_a_tool(talk: Conversation, events: Events) -> None:
    def chunks(request: Any) -> Any:
        yield chunk("a")
        nested(events)
        yield chunk("b")

    assert len(list(relay_llm.stream_current(body(), chunks, **call("outer")))) == 2
    relay_tools.execute("tool", {}, lambda a: nested(events))
    assert len(events.attempts()) == 1
    assert len(events.starts("tool")) == 1


async def test_r6_holds_for_async_callbacks(talk: Conversation, events: Events) -> None:
    async def outer(request: Any) -> Any:
        async def inner(request: Any) -> Any:
            return answer("inner")

        await asyncio.gather(*(relay_llm.execute_current_async(body(), inner, **call(f"i{i}")) for i in range(3)))
        return answer()

    with talk.turn.activate():
        await relay_llm.execute_current_async(body(), outer, **call("outer"))
    assert len(events.attempts()) == 1


def test_r7_an_existing_runtime_with_a_consumer_opens_the_session(events: Events) -> None:
    relay_runtime.get_runtime().retain_managed_execution("tests")
    relay_llm.execute(body(), lambda r: answer(), session_id="fresh", **call("a"))
    [session] = events.starts("relay.session")
    assert session["metadata"]["session_id"] == "fresh"
    assert [e["parent_uuid"] for e in events.attempts()] == [session["uuid"]]


def test_r7_without_a_consumer_relay_is_never_initialised() -> None:
    code = """
import sys
from adapters import relay_llm, relay_runtime
request = {"model": "m"}
assert relay_llm.execute(request, lambda r: r, session_id="s", name="p") is request
assert relay_llm.execute_current(request, lambda r: r, name="p") is request
assert relay_runtime.existing_runtime() is None
assert "nemo_relay" not in sys.modules, "Relay was imported"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
