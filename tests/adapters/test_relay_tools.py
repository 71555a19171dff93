"""Tool calls (R80-R83)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import nemo_relay
import pytest

from adapters import relay_tools
from tests.adapters.conftest import Conversation, Events


@pytest.fixture
def on_request() -> Iterator[Any]:
    def register(function: Any) -> None:
        nemo_relay.intercepts.register_tool_request("tools-request", 1, False, function)

    yield register
    nemo_relay.intercepts.deregister_tool_request("tools-request")


@pytest.fixture
def on_execution() -> Iterator[Any]:
    def register(function: Any) -> None:
        nemo_relay.intercepts.register_tool_execution("tools-execution", 1, function)

    yield register
    nemo_relay.intercepts.deregister_tool_execution("tools-execution")


def test_r80_unmanaged_the_tool_gets_and_gives_its_own_objects(talk: Conversation, events: Events) -> None:
    talk.host.release_managed_execution("tests")
    arguments, result = {"path": "x"}, object()
    got, used = relay_tools.execute("read", arguments, lambda a: result if a is arguments else None)
    assert got is result and used is arguments
    assert events.starts("read") == []


def test_r80_managed_it_gets_and_gives_its_own_objects_too(talk: Conversation, events: Events) -> None:
    arguments, result = {"path": "x"}, {"lines": (1, 2)}
    got, used = relay_tools.execute("read", arguments, lambda a: result if a is arguments else None)
    assert got is result and used is arguments
    [start], [end] = events.starts("read"), events.ends("read")
    assert (start["category"], start["parent_uuid"]) == ("tool", talk.turn.scope.uuid)
    assert (start["data"], end["data"]) == ({"path": "x"}, {"lines": [1, 2]})
    assert start["metadata"] == {"session_id": "session-1", "turn_id": "turn-1"}


async def test_r80_the_async_form_does_the_same(talk: Conversation, events: Events) -> None:
    result = object()

    async def tool(arguments: Any) -> Any:
        await asyncio.sleep(0)
        return result

    with talk.turn.activate():
        with pytest.raises(RuntimeError, match="execute_async"):
            relay_tools.execute("read", {}, lambda a: None)
        got, used = await relay_tools.execute_async("read", {"a": 1}, tool)
    assert got is result and used == {"a": 1}
    assert len(events.ends("read")) == 1


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_r80_the_tools_own_exception_is_raised(talk: Conversation, events: Events, error: BaseException) -> None:
    def tool(arguments: Any) -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        relay_tools.execute("read", {}, tool)
    assert caught.value is error
    assert events.ends("read")[0]["metadata"]["otel.status_code"] == "ERROR"


def test_r80_another_error_after_a_tools_failure_is_not_replaced(talk: Conversation, on_execution: Any) -> None:
    async def policy(context: Any, following: Any) -> Any:
        try:
            return await following(context.args)
        except ValueError:
            raise PermissionError("not today") from None

    on_execution(policy)

    def tool(arguments: Any) -> Any:
        raise ValueError("broken")

    with pytest.raises(PermissionError, match="not today"):
        relay_tools.execute("read", {}, tool)


def test_r80_a_relay_failure_after_the_result_does_not_cost_it(talk: Conversation, on_execution: Any) -> None:
    async def breaks(context: Any, following: Any) -> Any:
        await following(context.args)
        raise RuntimeError("post-processing")

    on_execution(breaks)
    result = object()
    assert relay_tools.execute("read", {}, lambda a: result)[0] is result


def test_r81_rewritten_arguments_reach_the_tool_once_and_are_reported(talk: Conversation, on_request: Any) -> None:
    on_request(lambda name, arguments: {**arguments, "path": "/safe"})
    seen: list[Any] = []
    keep = {"deep": [1]}
    _, used = relay_tools.execute("read", {"path": "/etc", "keep": keep}, lambda a: seen.append(a))
    assert seen == [{"path": "/safe", "keep": {"deep": [1]}}]
    assert used is seen[0]
    assert used["keep"] is keep


def test_r81_the_rewrite_can_be_had_before_the_tool_runs(talk: Conversation, on_request: Any, events: Events) -> None:
    on_request(lambda name, arguments: {**arguments, "path": "/safe"})
    assert relay_tools.rewritten_arguments("read", {"path": "/etc"}) == {"path": "/safe"}
    assert events.starts("read") == []


async def test_r81_the_rewrite_can_be_had_on_a_loop(talk: Conversation, on_request: Any) -> None:
    async def intercept(name: str, arguments: Any) -> Any:
        return {**arguments, "path": "/safe"}

    on_request(intercept)
    with talk.turn.activate():
        assert await relay_tools.rewritten_arguments_async("read", {"path": "/etc"}) == {"path": "/safe"}


def test_r81_a_result_that_is_no_object_is_ignored(talk: Conversation, on_request: Any) -> None:
    on_request(lambda name, arguments: ["no", "object"])
    arguments = {"path": "/etc"}
    assert relay_tools.rewritten_arguments("read", arguments) is arguments


@pytest.mark.parametrize(
    "changed, expected",
    [("a string", "a string"), ({"b": "ü"}, '{"b": "ü"}'), ([1, None], "[1, null]"), (7, "7")],
)
def test_r82_a_changed_result_is_a_string_or_json_text(
    talk: Conversation, on_execution: Any, changed: Any, expected: str
) -> None:
    async def change(context: Any, following: Any) -> Any:
        await following(context.args)
        return nemo_relay.ToolExecutionInterceptOutcome(result=changed, annotation={"note": "an annotation"})

    on_execution(change)
    assert relay_tools.execute("read", {}, lambda a: {"a": 1})[0] == expected


def test_r83_the_tool_call_id_is_recorded(talk: Conversation, events: Events) -> None:
    relay_tools.execute("read", {}, lambda a: 1, tool_call_id="call_1")
    relay_tools.execute("read", {}, lambda a: 1, tool_call_id="")
    first, second = events.starts("read")
    assert first["category_profile"]["tool_call_id"] == "call_1"
    assert not (second["category_profile"] or {}).get("tool_call_id")


@pytest.mark.parametrize("value", [2**64, "\ud83d", b"\xff", math.inf])
def test_r35_values_relay_cannot_hold_pass_through_tools(talk: Conversation, events: Events, value: Any) -> None:
    arguments, result = {"odd": value}, [value]
    got, used = relay_tools.execute("read", arguments, lambda a: result)
    assert got is result and used is arguments
    assert len(events.ends("read")) == 1
