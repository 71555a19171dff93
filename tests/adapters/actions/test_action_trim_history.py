"""Trimming a history where the rest is a whole conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.actions.base import Draft, Facts
from adapters.actions.trim_history import TrimHistory
from adapters.intercepts import Rule, RuleError
from tests.adapters.relay_calls import MODES, body, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])


def trim(**config: Any) -> dict[str, Any]:
    return {"key": "t", "action": {"type": "trim_history", **config}}


def member(api_mode: str) -> str:
    return "input" if api_mode == "codex_responses" else "messages"


def user(api_mode: str, words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def step(api_mode: str, *ids: str) -> list[dict[str, Any]]:
    """A step of the model that calls a tool for each id, and the results."""
    if api_mode == "chat_completions":
        calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
        results = [{"role": "tool", "tool_call_id": i, "content": "r"} for i in ids]
        return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    if api_mode == "codex_responses":
        calls = [{"type": "function_call", "call_id": i, "name": "f", "arguments": "{}"} for i in ids]
        results = [{"type": "function_call_output", "call_id": i, "output": "r"} for i in ids]
        return [{"type": "reasoning", "id": f"rs-{ids[0]}", "summary": []}, *calls, *results]
    uses = [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids]
    results = [{"type": "tool_result", "tool_use_id": i, "content": "r"} for i in ids]
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    return [{"role": "assistant", "content": [thinking, *uses]}, {"role": "user", "content": results}]


def answer(api_mode: str, words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def trimmed(api_mode: str, history: list[Any], **config: Any) -> list[Any]:
    action = TrimHistory.parse({"type": "trim_history", **config})
    draft = action.apply(Draft({member(api_mode): history}, Facts(api_mode)))
    return draft.body[member(api_mode)]  # type: ignore[no-any-return]


@each_way
@each_mode
async def test_old_turns_go_and_the_rest_of_the_body_stays(api_mode: str, stream: bool) -> None:
    history = body(api_mode)[member(api_mode)]
    head = [m for m in history if m.get("role") == "system"]
    request = body(api_mode, **{member(api_mode): [*history, answer(api_mode, "done"), user(api_mode, "next")]})
    with rules(trim(keep_turns=1, keep_first=False)):
        done = await run(request, api_mode, stream=stream)
    assert text(done.sent_body) == text({**request, member(api_mode): [*head, user(api_mode, "next")]})
    assert {op["op"] for op in done.rewrites[0]["patch"]} == {"remove"}


@each_mode
def test_a_result_keeps_its_call(api_mode: str) -> None:
    history = [user(api_mode, "task"), *step(api_mode, "a"), *step(api_mode, "b", "c"), *step(api_mode, "d")]
    last = step(api_mode, "d")
    for count in range(1, len(last) + 1):
        assert trimmed(api_mode, history, keep_messages=count) == [history[0], *last]
    two = [*step(api_mode, "b", "c"), *last]
    assert trimmed(api_mode, history, keep_messages=len(last) + 1) == [history[0], *two]
    assert trimmed(api_mode, history, keep_messages=99) == history


@each_mode
def test_without_the_first_message_it_cuts_only_before_user_messages(api_mode: str) -> None:
    turns = [[user(api_mode, f"t{i}"), *step(api_mode, f"c{i}"), answer(api_mode, "ok")] for i in range(3)]
    history = [m for turn in turns for m in turn]
    assert trimmed(api_mode, history, keep_messages=1, keep_first=False) == turns[2]
    assert trimmed(api_mode, history, keep_turns=2, keep_first=False) == [*turns[1], *turns[2]]
    assert trimmed(api_mode, history, keep_turns=1) == [history[0], *turns[2]]
    assert trimmed(api_mode, history, keep_turns=3) == history


def test_reasoning_stays_with_the_call_it_led_to() -> None:
    mode = "codex_responses"
    history = [user(mode, "t"), *step(mode, "a"), *step(mode, "b")]
    assert trimmed(mode, history, keep_messages=2)[1] == {"type": "reasoning", "id": "rs-b", "summary": []}


def test_system_messages_in_the_middle_stay() -> None:
    mode = "chat_completions"
    note = {"role": "developer", "content": "note"}
    history = [{"role": "system", "content": "s"}, user(mode, "a"), note, answer(mode, "b"), user(mode, "c")]
    assert trimmed(mode, history, keep_turns=1, keep_first=False) == [history[0], note, history[4]]


def test_a_plain_text_input_is_left_alone() -> None:
    assert TrimHistory(keep_turns=1).apply(draft := Draft({"input": "hi"}, Facts("codex_responses"))) is draft


def _ids(item: dict[str, Any]) -> tuple[set[str], set[str]]:
    content = item.get("content") if isinstance(item.get("content"), list) else []
    calls = {c["id"] for c in item.get("tool_calls", [])} | {b["id"] for b in content if b.get("type") == "tool_use"}
    answers = {b["tool_use_id"] for b in content if b.get("type") == "tool_result"}
    if item.get("type") == "function_call":
        calls.add(item["call_id"])
    if item.get("type") == "function_call_output":
        answers.add(item["call_id"])
    return calls, answers | ({item["tool_call_id"]} if "tool_call_id" in item else set())


@each_mode
@given(
    shape=st.lists(st.sampled_from(["user", "answer", "step", "steps"]), max_size=12),
    count=st.integers(1, 12),
    turns=st.booleans(),
    keep_first=st.booleans(),
)
def test_no_history_loses_a_call_of_a_result_or_a_result_of_a_call(
    api_mode: str, shape: list[str], count: int, turns: bool, keep_first: bool
) -> None:
    history: list[Any] = []
    for i, kind in enumerate(shape):
        if kind == "user":
            history.append(user(api_mode, f"u{i}"))
        elif kind == "answer":
            history.append(answer(api_mode, f"a{i}"))
        else:
            history += step(api_mode, f"c{i}", *([f"d{i}"] if kind == "steps" else []))
    config = {"keep_turns" if turns else "keep_messages": count}
    rest = trimmed(api_mode, history, keep_first=keep_first, **config)
    calls = set().union(*(_ids(m)[0] for m in rest)) if rest else set()
    answers = set().union(*(_ids(m)[1] for m in rest)) if rest else set()
    assert calls == answers
    assert rest == [m for m in history if m in rest]
    if not turns:
        assert len(rest) >= min(count, len(history))


@pytest.mark.parametrize("config", [{}, {"keep_turns": 1, "keep_messages": 1}])
def test_exactly_one_measure_is_needed(config: dict[str, Any]) -> None:
    with pytest.raises(RuleError, match="either keep_turns or keep_messages"):
        Rule.parse(trim(**config))


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_measure_is_a_positive_whole_number(value: Any) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse(trim(keep_turns=value))
    assert error.value.field == "action.keep_turns"
