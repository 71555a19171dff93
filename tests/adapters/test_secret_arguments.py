"""Secret members of tool arguments that come in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.secret_arguments import SecretArguments


def chat(piece: Any, index: Any = 0, choice: int = 0) -> dict[str, Any]:
    call = {"index": index, "function": {"arguments": piece}}
    return {"choices": [{"index": choice, "delta": {"tool_calls": [call]}}]}


def message(piece: Any, index: Any = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": piece}}


def response(piece: Any, index: Any = 0) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}


def legacy(piece: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"function_call": {"arguments": piece}}}]}


def said(chunk: dict[str, Any]) -> str:
    if "choices" in chunk:
        delta = chunk["choices"][0]["delta"]
        function = delta["tool_calls"][0]["function"] if "tool_calls" in delta else delta["function_call"]
        return str(function["arguments"])
    return str(chunk["delta"]["partial_json"] if chunk["type"] == "content_block_delta" else chunk["delta"])


def hidden(text: str, cuts: list[int], make: Any = chat) -> str:
    secrets, places = SecretArguments(), sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in zip(places, places[1:], strict=False)]
    return "".join(said(secrets.hide(make(piece))) for piece in pieces)


ARGUMENTS = [
    ({"user": "x", "password": "hunter2", "n": 1}, {"user": "x", "password": "[masked]", "n": 1}),
    ({"api_key": 'a"b\\c\\"', "z": "api_key"}, {"api_key": "[masked]", "z": "api_key"}),
    ({"a": [{"clientSecret": "s"}, {"b": "password"}]}, {"a": [{"clientSecret": "[masked]"}, {"b": "password"}]}),
    ({"secret": 12345, "t": True, "password": None}, {"secret": "[masked]", "t": True, "password": None}),
    ({"password": ["a", 1, ["b"]], "b": [1]}, {"password": ["[masked]", "[masked]", ["[masked]"]], "b": [1]}),
    ({"é": "\\", "p\u00e4": {"password": ""}, "x": "{"}, {"é": "\\", "p\u00e4": {"password": ""}, "x": "{"}),
]


@pytest.mark.parametrize(("given_", "shown"), ARGUMENTS)
@pytest.mark.parametrize("make", [chat, message, response, legacy])
def test_every_way_of_cutting_arguments_masks_the_same(given_: Any, shown: Any, make: Any) -> None:
    for spaces in ((",", ":"), (", ", ": ")):
        text = json.dumps(given_, separators=spaces)
        for cut in range(len(text)):
            assert json.loads(hidden(text, [cut], make)) == shown
        assert json.loads(hidden(text, list(range(len(text))), make)) == shown


values = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.none(), st.text('ab"\\{}:,é\n', max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('ab"\\:', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values, st.lists(st.integers(0, 300), max_size=20), st.booleans())
def test_what_is_no_secret_keeps_its_text_and_its_object(value: Any, cuts: list[int], ascii: bool) -> None:
    text = json.dumps({"a": value}, ensure_ascii=ascii)
    assert hidden(text, cuts) == text
    chunk = chat(text)
    assert SecretArguments().hide(chunk) is chunk


@given(values, st.lists(st.integers(0, 300), max_size=20))
def test_no_secret_shows_whatever_stands_around_it(value: Any, cuts: list[int]) -> None:
    text = json.dumps({"a": value, "password": "CANARY-1", "b": {"x": value, "api_key": "CANARY-2"}, "c": value})
    assert "CANARY" not in hidden(text, cuts)
    assert json.loads(hidden(text, cuts))["c"] == value


def test_an_escaped_name_and_calls_that_come_in_turns_are_told_apart() -> None:
    secrets = SecretArguments()
    chunks = [
        chat('{"\\u0070ass', 0),
        chat('{"note', 1),
        chat('word":"CAN', 0),
        chat('":"kept', 1),
        chat('ARY","b":"y"}', 0),
    ]
    shown = [said(secrets.hide(chunk)) for chunk in chunks]
    assert shown == ['{"\\u0070ass', '{"note', 'word":"[masked]', '":"kept', '","b":"y"}']
    assert said(chunks[2]) == 'word":"CAN', "the agent's own chunk was changed"


ODD: list[Any] = [
    *(None, 5, "x", [], {}, {"choices": None}, {"choices": [None, {"delta": 5}]}, chat(None), chat("{", {})),
    {"choices": [{"delta": {"tool_calls": [None, {"function": "x"}]}}]},
    {"delta": {"type": "input_json_delta"}},
    {"type": "content_block_delta", "delta": []},
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_chunks_stay_what_they_are(odd: Any) -> None:
    assert SecretArguments().hide(odd) is odd
