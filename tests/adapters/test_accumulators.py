"""Chunks put together to a response, for the three wire formats."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.accumulators import (
    AnthropicStreamAccumulator,
    ChatStreamAccumulator,
    ResponsesStreamAccumulator,
    for_api_mode,
)


def feed(accumulator: Any, *chunks: Any) -> dict[str, Any]:
    for chunk in chunks:
        accumulator.observe(chunk)
    return accumulator.finalize()


def test_each_wire_format_has_an_accumulator() -> None:
    kinds = {m: type(for_api_mode(m)) for m in ("chat_completions", "codex_responses", "anthropic_messages", "own")}
    assert kinds == {
        "chat_completions": ChatStreamAccumulator,
        "codex_responses": ResponsesStreamAccumulator,
        "anthropic_messages": AnthropicStreamAccumulator,
        "own": type(None),
    }


# -- Chat Completions (R60) --------------------------------------------------------------------------------------------


def chat(*choices: Any, **top: Any) -> dict[str, Any]:
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "created": 5, "choices": list(choices), **top}


def delta(index: int = 0, finish: str | None = None, **members: Any) -> dict[str, Any]:
    return {"index": index, "delta": members, "finish_reason": finish}


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    return feed(ChatStreamAccumulator(), *(chat(delta(**d)) for d in deltas))["choices"][0]["message"]


def test_R60_text_role_and_top_level_fields() -> None:
    out = feed(
        ChatStreamAccumulator(),
        chat(delta(role="assistant", content=""), system_fingerprint="f", vendor={"x": 1}),
        chat(delta(content="Hel")),
        chat(delta(content="lo"), vendor=None),
        chat(delta(finish="stop")),
    )
    assert out == {
        "id": "c1",
        "model": "m",
        "created": 5,
        "system_fingerprint": "f",
        "vendor": {"x": 1},
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    }


def test_R60_B10_usage_of_a_chunk_without_choices_and_the_finish_reason_before_it() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    out = feed(
        ChatStreamAccumulator(), chat(delta(finish="tool_calls"), usage=None), chat(usage=usage), chat(usage={}), chat()
    )
    assert out["choices"][0]["finish_reason"] == "tool_calls"
    assert out["usage"] == usage


def test_R60_B11_the_last_finish_reason_that_is_not_null_wins() -> None:
    out = feed(ChatStreamAccumulator(), chat(delta(content="x", finish="length")), chat(delta(content="")))
    assert out["choices"][0]["finish_reason"] == "length"


def test_R60_a_missing_finish_reason_stays_null_in_the_record_and_is_stop_for_a_caller() -> None:
    accumulator = ChatStreamAccumulator()
    assert feed(accumulator, chat(delta(content="x")))["choices"][0]["finish_reason"] is None
    assert accumulator.response()["choices"][0]["finish_reason"] == "stop"


def test_R60_every_choice() -> None:
    out = feed(ChatStreamAccumulator(), chat(delta(1, content="b"), delta(0, content="a")), chat(delta(1, content="B")))
    assert [(c["index"], c["message"]["content"]) for c in out["choices"]] == [(0, "a"), (1, "bB")]


def test_R60_reasoning_refusal_and_glued_blocks() -> None:
    out = message(
        {"reasoning_content": "**Plan**\n\nlook first."},
        {"reasoning_content": "**Next** step"},
        {"reasoning_content": " here"},
        {"refusal": "I "},
        {"refusal": "won't"},
    )
    assert out["reasoning_content"] == "**Plan**\n\nlook first.\n\n**Next** step here"
    assert out["refusal"] == "I won't"
    assert out["content"] is None
    bold = ["use", " ", "**", "bold", "**", " (", "**x**", ") or", "**y**"]
    assert message(*({"reasoning": piece} for piece in bold))["reasoning"] == "".join(bold)
    assert message({"reasoning": "a"}, {"reasoning": "b"})["reasoning"] == "ab"


def test_R60_reasoning_details_verbatim_in_order() -> None:
    one, two = {"type": "reasoning.text", "text": "a", "index": 0}, {"type": "reasoning.encrypted", "data": "E"}
    assert message({"reasoning_details": [one]}, {"reasoning_details": [two]})["reasoning_details"] == [one, two]


def test_R60_content_as_a_list_of_parts() -> None:
    assert message({"content": [{"type": "text", "text": "a"}]}, {"content": [{"type": "image"}]})["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image"},
    ]


def fragment(index: int | str, arguments: str = "", **members: Any) -> dict[str, Any]:
    name = {"name": members.pop("name")} if "name" in members else {}
    return {"index": index, **members, "function": {**name, "arguments": arguments}}


def test_R60_B21_interleaved_fragments_are_joined_by_index() -> None:
    out = message(
        {"tool_calls": [fragment(0, id="a", type="function", name="f")]},
        {"tool_calls": [fragment(1, id="b", type="function", name="g")]},
        {"tool_calls": [fragment(0, '{"x"'), fragment(1, '{"y"')]},
        {"tool_calls": [fragment(1, ":2}")]},
        {"tool_calls": [fragment(0, ":1}")]},
    )
    assert out["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"y":2}'}},
    ]


A_AND_B = [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}], ids=["none", "all 0", "null"])
def test_B21_fragments_that_only_their_ids_tell_apart_are_joined_by_id(index: dict[str, Any]) -> None:
    def part(id: str, arguments: str, **name: str) -> dict[str, Any]:
        return {"tool_calls": [{**index, "id": id, "function": {**name, "arguments": arguments}}]}

    out = message(part("a", '{"x"', name="f"), part("b", '{"y"', name="g"), part("a", ":1}"), part("b", ":2}"))
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in out["tool_calls"]] == A_AND_B


def test_B21_an_index_may_be_a_text() -> None:
    out = message(
        {"tool_calls": [fragment("0", '{"x"', id="a", name="f")]},
        {"tool_calls": [fragment("1", '{"y"', id="b", name="g")]},
        {"tool_calls": [fragment("0", ":1}")]},
        {"tool_calls": [fragment("1", ":2}")]},
    )
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in out["tool_calls"]] == A_AND_B


def test_B21_whole_calls_without_ids_at_one_index_are_calls_of_their_own() -> None:
    out = message(
        {"tool_calls": [fragment(0, '{"x":1}', name="f")]},
        {"tool_calls": [fragment(0, '{"x":2}', name="f")]},
        {"tool_calls": [fragment(0, '{"y"', name="g")]},
        {"tool_calls": [fragment(0, ":{}", name="g")]},
        {"tool_calls": [fragment(0, "}", name="g")]},
    )
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in out["tool_calls"]] == [
        ("f", '{"x":1}'),
        ("f", '{"x":2}'),
        ("g", '{"y":{}}'),
    ]


def test_R60_a_new_id_on_a_used_index_opens_a_new_call() -> None:
    out = message(
        {"tool_calls": [fragment(0, "{}", id="a", name="f")]},
        {"tool_calls": [fragment(0, "{", id="b", name="g")]},
        {"tool_calls": [fragment(0, "}")]},
    )
    assert [(c["id"], c["function"]) for c in out["tool_calls"]] == [
        ("a", {"name": "f", "arguments": "{}"}),
        ("b", {"name": "g", "arguments": "{}"}),
    ]


def test_R60_a_repeated_id_and_name_stay_one_call() -> None:
    out = message(
        {"tool_calls": [fragment(0, "{", id="a", name="f")]}, {"tool_calls": [fragment(0, "}", id="a", name="f")]}
    )
    assert out["tool_calls"] == [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]


def test_B23_an_unfinished_tool_call_is_kept_with_what_arrived() -> None:
    out = message({"tool_calls": [fragment(0, '{"path": "/tm', id="a", name="f")]})
    assert out["tool_calls"][0]["function"]["arguments"] == '{"path": "/tm'


def test_B24_digits_of_arguments_are_exact() -> None:
    digits = "123456789012345678901234567890"
    out = message(
        {"tool_calls": [fragment(0, '{"n": ' + digits, id="a", name="f")]}, {"tool_calls": [fragment(0, "}")]}
    )
    assert out["tool_calls"][0]["function"]["arguments"] == '{"n": ' + digits + "}"


def test_unknown_members_of_a_delta_and_logprobs_are_kept() -> None:
    out = feed(
        ChatStreamAccumulator(),
        chat({**delta(audio={"id": "x", "data": "AA"}, annotations=[1]), "logprobs": {"content": [{"token": "a"}]}}),
        chat({**delta(audio={"data": "BB"}, annotations=[2]), "logprobs": {"content": [{"token": "b"}]}, "vendor": 7}),
    )["choices"][0]
    assert out["message"]["audio"] == {"id": "x", "data": "AABB"}
    assert out["message"]["annotations"] == [1, 2]
    assert out["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}
    assert out["vendor"] == 7


# -- Anthropic (R61-R65) -----------------------------------------------------------------------------------------------

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 1},
    },
}


def block(index: Any, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def grow(index: Any, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def blocks(*events: Any) -> list[Any]:
    return feed(AnthropicStreamAccumulator(), START, *events)["content"]


def test_R61_message_start_and_appended_deltas() -> None:
    out = feed(
        AnthropicStreamAccumulator(),
        START,
        block(0, type="thinking", thinking="", signature=""),
        grow(0, "thinking_delta", thinking="a"),
        grow(0, "thinking_delta", thinking="b"),
        grow(0, "signature_delta", signature="s1"),
        grow(0, "signature_delta", signature="s2"),
        {"type": "content_block_stop", "index": 0},
        block(1, type="text", text=""),
        {"type": "ping"},
        grow(1, "text_delta", text="Hel"),
        grow(1, "text_delta", text="lo"),
        grow(1, "citations_delta", citation={"n": 1}),
        grow(1, "citations_delta", citation={"n": 2}),
        grow(1, "future_delta", text="!"),
        {"type": "error", "error": {}},
        {"type": "message_stop"},
    )
    assert {k: out[k] for k in ("id", "type", "role", "model")} == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
    }
    assert out["content"] == [
        {"type": "thinking", "thinking": "ab", "signature": "s1s2"},
        {"type": "text", "text": "Hello", "citations": [{"n": 1}, {"n": 2}]},
    ]


def test_R62_a_delta_for_an_unseen_index_creates_the_block_and_indexes_order_them() -> None:
    assert blocks(
        grow(2, "text_delta", text="c"), grow(0, "thinking_delta", thinking="a"), block(1, type="text", text="b")
    ) == [
        {"type": "thinking", "thinking": "a"},
        {"type": "text", "text": "b"},
        {"type": "text", "text": "c"},
    ]


@pytest.mark.parametrize("index", [None, "0", 1.0, True, []])
def test_R62_an_index_that_is_no_integer_is_ignored(index: Any) -> None:
    assert blocks(grow(index, "text_delta", text="x"), block(index, type="text", text="x")) == []


@pytest.mark.parametrize("odd", [None, "text", 5, []])
def test_R62_a_delta_that_is_no_object_is_ignored(odd: Any) -> None:
    assert blocks({"type": "content_block_delta", "index": 0, "delta": odd}) == []


def test_R63_usage_of_message_delta_is_merged_over_that_of_the_start() -> None:
    out = feed(
        AnthropicStreamAccumulator(),
        START,
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": "x", "stop_details": {"d": 1}},
            "usage": {"output_tokens": 30, "input_tokens": None},
        },
    )
    assert (out["stop_reason"], out["stop_sequence"], out["stop_details"]) == ("end_turn", "x", {"d": 1})
    assert out["usage"] == {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 30}


def test_R64_tool_input_is_parsed_at_the_end() -> None:
    use = block(0, type="tool_use", id="t", name="f", input={})
    pieces = [grow(0, "input_json_delta", partial_json=p) for p in ('{"a": ', "123456789012345678901234567890", "}")]
    assert blocks(use, *pieces)[0]["input"] == {"a": 123456789012345678901234567890}


def test_R64_B23_a_cut_tool_input_stays_text() -> None:
    use = block(0, type="tool_use", id="t", name="f", input={})
    assert blocks(use, grow(0, "input_json_delta", partial_json='{"a": [1'))[0]["input"] == '{"a": [1'


@pytest.mark.parametrize(
    "number", ["1e400", "1.00000000000000000001", "-1e-400", "NaN", "123456789.123456789123456789"]
)
def test_B24_a_tool_input_whose_digits_no_float_holds_stays_text_in_the_record(number: str) -> None:
    text = f'{{"a":{number}}}'
    whole = AnthropicStreamAccumulator()
    for chunk in (
        block(0, type="tool_use", id="t", name="f", input={}),
        grow(0, "input_json_delta", partial_json=text),
    ):
        whole.observe(chunk)
    assert whole.finalize()["content"][0]["input"] == text
    assert isinstance(whole.response()["content"][0]["input"]["a"], float), "a caller gets what its SDK gives it"


def test_B24_a_tool_input_whose_digits_all_stay_is_a_value() -> None:
    use = block(0, type="tool_use", id="t", name="f", input={})
    text = '{"a":0.1,"b":1e2,"c":2.50,"d":-0.0,"e":1.7976931348623157e308}'
    assert blocks(use, grow(0, "input_json_delta", partial_json=text))[0]["input"] == json.loads(text)


def test_R64_a_tool_without_arguments_has_an_empty_object() -> None:
    use = block(0, type="tool_use", id="t", name="f", input={})
    assert blocks(use)[0]["input"] == {}
    assert blocks(use, grow(0, "input_json_delta", partial_json=""))[0]["input"] == {}


def test_R64_B30_whole_blocks_pass_and_mcp_tools_take_fragments() -> None:
    whole = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}
    out = blocks(
        block(0, type="redacted_thinking", data="D"),
        block(1, **whole),
        block(2, type="mcp_tool_use", id="m", name="f", server_name="srv", input={}),
        grow(2, "input_json_delta", partial_json='{"q": 1}'),
        block(3, type="mcp_tool_result", tool_use_id="m", is_error=False, content=[{"type": "text", "text": "r"}]),
    )
    assert out[0] == {"type": "redacted_thinking", "data": "D"}
    assert out[1] == whole
    assert out[2]["input"] == {"q": 1} and out[2]["server_name"] == "srv"
    assert out[3]["content"] == [{"type": "text", "text": "r"}]


def test_B32_fragments_of_a_server_tool_stay_a_server_tool() -> None:
    out = blocks(
        block(0, type="server_tool_use", id="s", name="web_search", input={}),
        grow(0, "input_json_delta", partial_json='{"query": "x"}'),
    )
    assert out == [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}]


def test_B29_compaction_is_appended_and_null_stays_null() -> None:
    start = block(0, type="compaction", content=None)
    assert blocks(start)[0]["content"] is None
    assert blocks(start, grow(0, "compaction_delta", content=None))[0]["content"] is None
    grown = blocks(start, grow(0, "compaction_delta", content="a"), grow(0, "compaction_delta", content="b"))
    assert grown == [{"type": "compaction", "content": "ab"}]
    assert blocks(grow(0, "compaction_delta", content=None)) == [{"type": "compaction", "content": None}]


def test_R65_the_callers_response_is_the_base_overridden_by_what_was_assembled() -> None:
    accumulator = AnthropicStreamAccumulator()
    base = {"id": "base", "container": "c", "content": [{"type": "text", "text": "base"}], "role": "assistant"}
    feed(accumulator, START)
    assert accumulator.response(base)["content"] == base["content"]
    assert accumulator.response(base)["id"] == "msg_1" and accumulator.response(base)["container"] == "c"
    feed(accumulator, grow(0, "text_delta", text="x"))
    assert accumulator.response(base)["content"] == [{"type": "text", "text": "x"}]
    assert accumulator.response({"id": "base"})["content"] == [{"type": "text", "text": "x"}]


# -- Responses ---------------------------------------------------------------------------------------------------------


def item(index: int, **members: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": members}


def event(kind: str, index: int = 0, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **members}


CREATED = {"type": "response.created", "response": {"id": "r1", "model": "m", "status": "in_progress", "output": []}}


def test_the_terminal_event_is_the_response() -> None:
    whole = {
        "id": "r1",
        "status": "completed",
        "output": [{"type": "message", "content": []}],
        "usage": {"total_tokens": 3},
    }
    out = feed(
        ResponsesStreamAccumulator(),
        CREATED,
        item(0, type="message", content=[]),
        event("output_text.delta", content_index=0, delta="x"),
        {"type": "response.completed", "response": whole},
    )
    assert out == {"object": "response", "model": "m", **whole}


def test_B21_items_that_only_their_ids_tell_apart_are_joined_by_id() -> None:
    def part(id: str, delta: str) -> dict[str, Any]:
        return {"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta}

    def added(id: str, name: str) -> dict[str, Any]:
        item = {"type": "function_call", "id": id, "call_id": id, "name": name, "arguments": ""}
        return {"type": "response.output_item.added", "item": item}

    out = feed(
        ResponsesStreamAccumulator(),
        *(CREATED, added("a", "f"), added("b", "g")),
        *(part("a", '{"x"'), part("b", '{"y"'), part("a", ":1}"), part("b", ":2}")),
    )
    assert [(i["id"], i["name"], i["arguments"]) for i in out["output"]] == A_AND_B


def test_a_terminal_event_without_output_keeps_the_items_that_were_streamed() -> None:
    out = feed(
        ResponsesStreamAccumulator(),
        CREATED,
        item(0, type="message", id="i"),
        event("output_text.delta", content_index=0, delta="x"),
        {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": []}},
    )
    assert out["output"] == [{"type": "message", "id": "i", "content": [{"type": "output_text", "text": "x"}]}]
    assert out["status"] == "completed"


def test_a_cut_stream_is_put_together_from_its_deltas() -> None:
    out = feed(
        ResponsesStreamAccumulator(),
        CREATED,
        item(1, type="function_call", call_id="c", name="f", arguments=""),
        item(0, type="reasoning", id="rs", summary=[]),
        event("reasoning_summary_part.added", 0, summary_index=0, part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.delta", 0, summary_index=0, delta="thi"),
        event("reasoning_summary_text.delta", 0, summary_index=0, delta="nk"),
        event("function_call_arguments.delta", 1, delta='{"n": 123456789012345678901234567890'),
        event("output_text.delta", 2, item_id="m1", content_index=0, delta="Hel"),
        event("output_text.delta", 2, item_id="m1", content_index=0, delta="lo"),
        event("output_text.annotation.added", 2, content_index=0, annotation={"url": "u"}),
        event("refusal.delta", 3, content_index=1, delta="no"),
    )
    assert (out["id"], out["status"]) == ("r1", "in_progress")
    assert out["output"] == [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "think"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"n": 123456789012345678901234567890'},
        {
            "type": "message",
            "id": "m1",
            "content": [{"type": "output_text", "text": "Hello", "annotations": [{"url": "u"}]}],
        },
        {"type": "message", "content": [{}, {"type": "refusal", "refusal": "no"}]},
    ]


def test_done_events_correct_what_deltas_said() -> None:
    out = feed(
        ResponsesStreamAccumulator(),
        item(0, type="custom_tool_call", name="f"),
        event("custom_tool_call_input.delta", delta="a"),
        event("custom_tool_call_input.done", input="abc"),
        item(1, type="message"),
        event("output_text.done", 1, content_index=0, text="whole"),
        event("output_item.done", 2, item={"type": "web_search_call", "id": "w"}),
    )
    assert out["output"] == [
        {"type": "custom_tool_call", "name": "f", "input": "abc"},
        {"type": "message", "content": [{"type": "output_text", "text": "whole"}]},
        {"type": "web_search_call", "id": "w"},
    ]


def test_an_error_event_is_kept() -> None:
    out = feed(ResponsesStreamAccumulator(), CREATED, {"type": "error", "code": "server_error", "message": "boom"})
    assert out["error"] == {"code": "server_error", "message": "boom"}


# -- any input ---------------------------------------------------------------------------------------------------------

KEYS = [
    "type", "choices", "delta", "index", "content", "tool_calls", "function", "arguments", "usage", "message", "item",
    "content_block", "output_index", "content_index", "summary_index", "part", "response", "partial_json", "text", "id",
]  # fmt: skip
WORDS = [
    "message_start", "content_block_start", "content_block_delta", "message_delta", "text_delta", "input_json_delta",
    "citations_delta", "compaction_delta", "response.created", "response.completed", "response.output_item.added",
    "response.output_text.delta", "response.content_part.added", "response.refusal.done", "error", "x", "\ud83d",
    "response.output_text.annotation.added", "response.reasoning_summary_part.added",
]  # fmt: skip
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.sampled_from(WORDS),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYS), below, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("api_mode", ["chat_completions", "codex_responses", "anthropic_messages"])
@given(chunks=st.lists(junk, max_size=8))
def test_nothing_makes_an_accumulator_raise_or_change_a_chunk(api_mode: str, chunks: list[Any]) -> None:
    before = repr(chunks)
    accumulator = for_api_mode(api_mode)
    assert accumulator is not None
    out = feed(accumulator, *chunks)
    json.dumps(out), json.dumps(accumulator.response({"content": []}))
    assert repr(chunks) == before
    assert repr(feed(accumulator)) == repr(out)


@given(texts=st.lists(st.text(), max_size=8))
def test_joined_pieces_are_the_text_in_every_format(texts: list[str]) -> None:
    whole = "".join(texts)
    chat_out = feed(ChatStreamAccumulator(), *(chat(delta(content=t)) for t in texts))
    assert not texts or chat_out["choices"][0]["message"]["content"] == whole
    assert not texts or blocks(*(grow(0, "text_delta", text=t) for t in texts))[0]["text"] == whole
    out = feed(ResponsesStreamAccumulator(), *(event("output_text.delta", content_index=0, delta=t) for t in texts))
    assert not texts or out["output"][0]["content"][0]["text"] == whole


def test_chunks_are_not_changed_by_later_ones() -> None:
    start, first = copy.deepcopy(START), block(0, type="text", text="a")
    accumulator = AnthropicStreamAccumulator()
    feed(accumulator, start, first, grow(0, "text_delta", text="b"))
    assert (start, first) == (START, block(0, type="text", text="a"))


def test_usage_of_zeros_does_not_wipe_what_was_counted() -> None:
    real, zeros = {"prompt_tokens": 100, "completion_tokens": 70}, {"prompt_tokens": 0, "completion_tokens": 0}
    chat = ChatStreamAccumulator()
    assert feed(chat, {"choices": [], "usage": real}, {"choices": [], "usage": zeros})["usage"] == real
    assert feed(ChatStreamAccumulator(), {"choices": [], "usage": zeros})["usage"] == zeros
    message = AnthropicStreamAccumulator()
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    late = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 5}}
    assert feed(message, start, late)["usage"] == {"input_tokens": 9, "output_tokens": 5}


@pytest.mark.parametrize("api_mode", ["chat_completions", "codex_responses", "anthropic_messages"])
def test_what_could_not_be_read_is_no_part_of_the_answer(api_mode: str) -> None:
    unread = {"type": "relay.unreadable", "text": "{", "bytes": 1}
    assert feed(for_api_mode(api_mode), unread) == feed(for_api_mode(api_mode))
