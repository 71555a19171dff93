"""System text, regex replacement, headers and the model."""

from __future__ import annotations

import time
from typing import Any

import pytest

from adapters.intercepts import Rule, RuleError
from tests.adapters.relay_calls import MODES, body, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])


def system(where: str, words: str = "Be brief.", **more: Any) -> dict[str, Any]:
    return {"key": "s", "action": {"type": "system_text", "where": where, "text": words, **more}}


def system_of(sent: dict[str, Any], api_mode: str) -> Any:
    if api_mode == "chat_completions":
        return sent["messages"][0]["content"]
    return sent["instructions" if api_mode == "codex_responses" else "system"]


CACHED = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
ADDED = {"type": "text", "text": "Be brief."}


@each_way
@pytest.mark.parametrize(
    "where, plain, blocks",
    [
        ("prepend", "Be brief.\n\nBe kind.", [ADDED, CACHED]),
        ("append", "Be kind.\n\nBe brief.", [CACHED, ADDED]),
        ("replace", "Be brief.", [{**ADDED, "cache_control": {"type": "ephemeral"}}]),
    ],
)
@each_mode
async def test_system_text_goes_where_the_wire_format_keeps_it(
    api_mode: str, where: str, plain: str, blocks: Any, stream: bool
) -> None:
    with rules(system(where)):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    sent = done.sent_body
    wanted = blocks if api_mode == "anthropic_messages" else plain
    assert system_of(sent, api_mode) == wanted
    if api_mode == "chat_completions":
        sent["messages"] = [request["messages"][0], *sent["messages"][1:]]
    else:
        name = "instructions" if api_mode == "codex_responses" else "system"
        sent[name] = request[name]
    assert text(sent) == text(request)


@each_mode
async def test_a_request_without_system_text_gets_one(api_mode: str) -> None:
    request = {"model": "m", "max_tokens": 5}
    request["input" if api_mode == "codex_responses" else "messages"] = [{"role": "user", "content": "hi"}]
    with rules(system("append")):
        done = await run(request, api_mode)
    assert system_of(done.sent_body, api_mode) == "Be brief."


async def test_a_chat_system_message_made_of_parts_keeps_their_cache_control() -> None:
    request = {"model": "m", "messages": [{"role": "developer", "name": "d", "content": [CACHED]}]}
    with rules(system("append")):
        done = await run(request, "chat_completions")
    assert done.sent["messages"] == [{"role": "developer", "name": "d", "content": [CACHED, ADDED]}]


async def test_an_anthropic_system_string_stays_a_string() -> None:
    with rules(system("prepend", separator=" ")):
        done = await run(body("anthropic_messages", system="Be kind."), "anthropic_messages")
    assert done.sent["system"] == "Be brief. Be kind."


def swap_text(pattern: str, replacement: str, **more: Any) -> dict[str, Any]:
    return {"key": "x", "action": {"type": "regex_replace", "pattern": pattern, "replacement": replacement, **more}}


def texts_of(value: Any) -> list[str]:
    """All texts under content, output, text, instructions and system."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [t for item in value for t in texts_of(item)]
    if isinstance(value, dict):
        keys = ("content", "output", "text", "instructions", "system", "messages", "input")
        return [t for key in keys if key in value for t in texts_of(value[key])]
    return []


@each_way
@pytest.mark.parametrize(
    "role, before, after",
    [
        ("system", "Be kind.", "Be K1ND."),
        ("user", "hi there", "h1 there"),
        ("tool", "ok, hi", "ok, h1"),
    ],
)
@each_mode
async def test_a_pattern_replaces_text_of_the_chosen_role_only(
    api_mode: str, role: str, before: str, after: str, stream: bool
) -> None:
    pattern, replacement = (r"k(i)nd", "K1ND") if role == "system" else (r"\bhi\b", "h1")
    with rules(swap_text(pattern, replacement, roles=[role])):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    assert text(done.sent_body) == text(request).replace(f'"{before}"', f'"{after}"')
    assert text(done.sent_body) != text(request)
    assert [op["op"] for op in done.rewrites[0]["patch"]] == ["replace"]


@each_mode
async def test_arguments_and_reasoning_are_left_alone(api_mode: str) -> None:
    with rules(swap_text(r"first|look|\"z\"|sig", "XX")):
        done = await run(request := body(api_mode), api_mode)
    assert text(done.sent_body) == text(request)
    assert done.rewrites[0]["result"] == "miss"


async def test_groups_case_and_a_plain_string_input() -> None:
    with rules(swap_text(r"(?P<a>HI) (\w+)", r"\2 \g<a>", ignore_case=True, roles=["user"])):
        done = await run({"model": "m", "input": "hi there"}, "codex_responses")
    assert done.sent["input"] == "there hi"


async def test_a_pattern_that_runs_away_is_stopped_and_reported() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "a" * 40 + "!"}] * 20}
    started = time.monotonic()
    with rules(swap_text(r"(a|aa|aaa)+$", "b")):
        done = await run(request, "chat_completions")
    assert time.monotonic() - started < 30  # for ever without the limit
    assert text(done.sent_body) == text(request)
    assert done.rewrites[0]["result"] == "error" and "TimeoutError" in done.rewrites[0]["error"]


@each_way
@each_mode
async def test_the_model_is_swapped_and_later_rules_still_match_the_apps_model(api_mode: str, stream: bool) -> None:
    swap = {"key": "a", "match": {"model": ["m"]}, "action": {"type": "swap_model", "model": "cheap"}}
    after = {"key": "b", "match": {"model": ["m"]}, "action": {"type": "set_parameters", "parameters": {"seed": 1}}}
    with rules(swap, after):
        done = await run(request := body(api_mode), api_mode, stream=stream)
    assert text(done.sent_body) == text({**request, "model": "cheap", "seed": 1})
    assert done.start["data"]["content"]["model"] == "cheap"


@each_way
@each_mode
async def test_headers_are_set_and_removed_and_only_their_names_recorded(api_mode: str, stream: bool) -> None:
    request = body(api_mode, extra_headers={"X-Old": "sesame-old", "x-keep": "1"})
    action = {"type": "headers", "set": {"x-new": "sesame-new"}, "remove": ["x-old"]}
    with rules({"key": "h", "action": action}):
        done = await run(request, api_mode, stream=stream)
    headers = dict(done.sent["extra_headers"])
    headers.pop("traceparent")
    assert headers == {"x-keep": "1", "x-new": "sesame-new"}
    assert text(done.sent_body) == text(body(api_mode))
    (mark,) = done.rewrites
    assert (mark["result"], mark["patch"], mark["headers"]) == ("hit", [], ["X-Old", "x-new", "x-old"])
    assert "sesame" not in text([e["data"] for e in done.events if e["name"] == "relay.rewrite"] + done.late)
    late = done.request
    assert late == {"headers": ["X-Old", "x-new", "x-old"]}


@pytest.mark.parametrize(
    "action, field, says",
    [
        ({"type": "system_text", "where": "middle", "text": "x"}, "action.where", "one of prepend, append, replace"),
        ({"type": "system_text", "where": "append", "text": ""}, "action.text", "must not be empty"),
        ({"type": "system_text", "where": "append", "text": 5}, "action.text", "must be text, not a number"),
        ({"type": "regex_replace", "pattern": "("}, "action.pattern", "is no regular expression"),
        ({"type": "regex_replace", "pattern": "a" * 4001}, "action.pattern", "has 4001 characters"),
        ({"type": "regex_replace", "pattern": "(" * 900 + ")" * 900}, "action.pattern", "nested too deeply"),
        ({"type": "redact", "patterns": ["a", "("]}, "action.patterns", "pattern 2 is no regular expression"),
        ({"type": "regex_replace", "pattern": "a", "replacement": r"\2"}, "action.replacement", "does not fit"),
        ({"type": "regex_replace", "pattern": "a", "roles": ["boss"]}, "action.roles", "one of system, user"),
        ({"type": "regex_replace", "pattern": "a", "roles": []}, "action.roles", "at least one role"),
        ({"type": "swap_model"}, "action.model", "is required"),
        ({"type": "headers"}, "action.set", "a header to set or to remove"),
        ({"type": "headers", "set": {"a b": "1"}}, "action.set", "'a b' is no header name"),
        ({"type": "headers", "set": {"Host": "x"}}, "action.set", "set by the HTTP client"),
        ({"type": "headers", "set": {"x": "a\nb"}}, "action.set", "no header can carry"),
        ({"type": "headers", "set": {"x": 5}}, "action.set", "the value of 'x' must be text"),
        ({"type": "headers", "remove": ["content-length"]}, "action.remove", "set by the HTTP client"),
    ],
)
def test_wrong_values_name_their_field(action: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse({"key": "k", "action": action})
    assert error.value.field == field and says in error.value.message
