"""What log records and span events of any shape tell of a call: the record reads them as they come in."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relayweb.recording.conventions import asked_text, finish_reason, genai

PARTS = [
    {"type": "text", "content": "a"},
    {"type": "blob", "mime_type": "image/png", "modality": "image", "content": "QQ"},
    {"type": "uri", "uri": "https://h/p.png", "modality": "image"},
    {"type": "tool_call", "id": "1", "name": "n", "arguments": {"a": 1}},
    {"type": "tool_call_response", "id": "1", "response": [{"text": "x"}]},
    {"type": "reasoning", "content": "t"},
    {"toolUse": {"toolUseId": "1", "name": "n", "input": {}}},
    {"toolResult": {"toolUseId": "1", "content": [{"text": "x"}]}},
    {"reasoningContent": {"reasoningText": {"text": "x"}}},
]
CALLS = [{"id": "1", "type": "function", "function": {"name": "n", "arguments": "{}"}}]
DETAILS = {
    "gen_ai.input.messages": [{"role": "user", "parts": PARTS}],
    "gen_ai.output.messages": [{"role": "assistant", "parts": PARTS, "finish_reason": "stop"}],
    "gen_ai.system_instructions": [{"type": "text", "content": "x"}],
    "gen_ai.tool.definitions": [{"type": "function", "name": "x", "parameters": {}}],
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 3,
    "gen_ai.prompt.0.content": "x",
    "gen_ai.prompt.0.tool_calls.0.name": "x",
    "llm.request.functions.0.parameters": "{}",
}
GOOD: list[tuple[str, Any]] = [
    ("gen_ai.user.message", {"body": {"content": PARTS, "role": "user"}}),
    ("gen_ai.assistant.message", {"body": {"content": PARTS, "tool_calls": CALLS}}),
    ("gen_ai.tool.message", {"body": {"id": "1", "content": {"a": 1}}}),
    ("gen_ai.choice", {"body": {"finish_reason": "stop", "message": {"content": "x"}, "tool_calls": CALLS}}),
    ("gen_ai.choice", {"attributes": {"gen_ai.event.content": '{"message": {"content": "x"}}'}}),
    (genai.DETAILS, {"attributes": DETAILS}),
    ("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role": "user", "content": "x"}]'}),
    ("gen_ai.content.completion", {"gen_ai.completion": '[{"content": "x", "finish_reason": "stop"}]'}),
    ("claude_code.user_prompt", {"attributes": {"prompt": "x"}}),
    ("claude_code.assistant_response", {"attributes": {"response": "x"}}),
]
ODD: list[Any] = [
    None,
    0,
    1.5,
    True,
    "",
    [],
    {},
    "x",
    [None],
    [[]],
    [{}],
    {"a": []},
    "[1]",
    '{"a": 1}',
    "[[]]",
    "\ud800",
]
ODD += [float("nan"), 10**30, {"content": None}, {"role": 5}, [{"role": []}], {"type": []}, {"type": {}}, {"text": [1]}]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*above, key))


def put(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    value = value.copy()
    value[place[0]] = put(value[place[0]], place[1:], odd)
    return value


def read(told: list[tuple[str, Any]], body: Any, answer: Any) -> None:
    events = [(name, genai.said_in(data)) for name, data in told]
    call = genai.read_call({}, events)
    json.dumps([call.request(), call.answer(), genai.of_tool(events)])
    asked_text({"messages": call.messages})
    finish_reason(call.answer())
    if genai.lacks_messages(body):
        json.dumps(genai.filled_request(body, call))
    if genai.lacks_answer(answer):
        json.dumps(genai.filled_answer(answer, call))


@given(st.randoms(use_true_random=False), st.sampled_from(ODD), st.sampled_from(ODD), st.sampled_from(ODD))
@settings(max_examples=1_000, suppress_health_check=list(HealthCheck))
def test_good_records_with_something_odd_in_them_are_read(
    rng: random.Random, body: Any, choice: Any, said: Any
) -> None:
    told = rng.sample(GOOD, rng.choice((1, 2)))
    for _ in range(2):
        told = [(name, put(data, rng.choice(list(places(data))), rng.choice(ODD))) for name, data in told]
    for answer in (body, {"choices": choice}, {"choices": [{"message": choice, "finish_reason": said}]}):
        read(told, body, answer)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.sampled_from([name for name, _ in GOOD]), ANYTHING), max_size=4), ANYTHING, ANYTHING)
@example([("gen_ai.user.message", {"body": {"content": [{"type": "tool_call"}], "tool_calls": "x"}})], None, None)
def test_records_of_any_shape_are_read(told: list[tuple[str, Any]], body: Any, answer: Any) -> None:
    read(told, body, answer)


@pytest.mark.parametrize("depth", [399, 600, 925, 950, 990, 100_000])
def test_texts_of_any_depth_are_read(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    for name, told in GOOD:
        for place in list(places(told)):
            read([(name, put(told, place, deep))], deep, None)
