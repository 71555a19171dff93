"""Keeping and dropping tools."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.intercepts import Rule, RuleError
from tests.adapters.relay_calls import MODES, body, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])


def tools(mode: str, *names: str) -> dict[str, Any]:
    return {"key": "t", "action": {"type": "tools", "mode": mode, "names": list(names)}}


@each_way
@each_mode
async def test_dropped_tools_are_gone_and_nothing_else(api_mode: str, stream: bool) -> None:
    with rules(tools("drop", "wr*")):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    wanted = {**request, "tools": [t for t in request["tools"] if "write" not in text(t)]}
    assert text(done.sent_body) == text(wanted)
    assert done.rewrites[0]["patch"] == [{"op": "remove", "path": "/tools/1"}]


@each_way
@each_mode
async def test_only_kept_tools_stay(api_mode: str, stream: bool) -> None:
    with rules(tools("keep", "read", "web_search*")):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    assert text(done.sent_body) == text({**request, "tools": [t for t in request["tools"] if "write" not in text(t)]})


@each_mode
async def test_without_tools_the_choice_goes_too_unless_anthropic_needs_them_for_the_history(api_mode: str) -> None:
    with rules(tools("drop", "*")):
        done = await run(request := body(api_mode, parallel_tool_calls=True), api_mode)
    if api_mode == "anthropic_messages":
        assert text(done.sent_body) == text({**request, "tool_choice": {"type": "none"}})
    else:
        gone = ("tools", "tool_choice", "parallel_tool_calls")
        assert text(done.sent_body) == text({k: v for k, v in request.items() if k not in gone})


async def test_an_anthropic_request_without_tool_history_loses_its_tools() -> None:
    request = {**body("anthropic_messages"), "messages": [{"role": "user", "content": "hi"}]}
    with rules(tools("drop", "*")):
        done = await run(request, "anthropic_messages")
    assert "tools" not in done.sent and "tool_choice" not in done.sent


@pytest.mark.parametrize(
    "api_mode, choice",
    [
        ("chat_completions", {"type": "function", "function": {"name": "write"}}),
        ("codex_responses", {"type": "function", "name": "write"}),
        ("anthropic_messages", {"type": "tool", "name": "write"}),
    ],
)
async def test_a_choice_of_a_dropped_tool_goes_with_it_one_of_a_kept_tool_stays(api_mode: str, choice: Any) -> None:
    request = body(api_mode, tool_choice=choice)
    with rules(tools("drop", "write")):
        assert "tool_choice" not in (await run(request, api_mode)).sent
    with rules(tools("drop", "read")):
        assert (await run(request, api_mode)).sent["tool_choice"] == choice


async def test_a_list_of_allowed_tools_shrinks() -> None:
    one, two = ({"type": "function", "name": n} for n in ("read", "write"))
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [one, two]}
    with rules(tools("drop", "write")):
        done = await run(body("codex_responses", tool_choice=choice), "codex_responses")
    assert done.sent["tool_choice"] == {**choice, "tools": [one]}


async def test_legacy_functions_of_chat_completions() -> None:
    request = {
        "model": "m",
        "messages": [],
        "functions": [{"name": "a"}, {"name": "b"}],
        "function_call": {"name": "b"},
    }
    with rules(tools("drop", "b")):
        done = await run(request, "chat_completions")
    assert done.sent_body == {"model": "m", "messages": [], "functions": [{"name": "a"}]}


@pytest.mark.parametrize("odd", [None, "text", [None, 5, {"type": []}], {}])
async def test_odd_tools_do_no_harm(odd: Any) -> None:
    with rules(tools("drop", "write")):
        done = await run(request := body("chat_completions", tools=odd), "chat_completions")
    assert text(done.sent_body) == text(request)
    assert done.rewrites[0]["result"] == "miss"


def test_wrong_values_name_their_field() -> None:
    for config, field in (({"mode": "hide", "names": ["a"]}, "action.mode"), ({"mode": "keep"}, "action.names")):
        with pytest.raises(RuleError) as error:
            Rule.parse({"key": "k", "action": {"type": "tools", **config}})
        assert error.value.field == field
