import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.gateway.conversation import CHAT, MESSAGES, RESPONSES, StreamWatch, ToolCall, read_answer, read_question

FIRST = {
    CHAT: {"messages": [{"role": "system", "content": "It is noon"}, {"role": "user", "content": "Why?"}]},
    MESSAGES: {"system": "It is noon", "messages": [{"role": "user", "content": "Why?"}]},
    RESPONSES: {"instructions": "It is noon", "input": "Why?"},
}
AFTER_TOOL = {
    CHAT: {
        "messages": [
            {"role": "system", "content": "It is one"},
            {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
            {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ]
    },
    MESSAGES: {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "42"},
                    {"type": "text", "text": "a reminder"},
                ],
            },
        ]
    },
    RESPONSES: {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
            {"type": "reasoning", "id": "rs", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "42"},
        ]
    },
}
NEXT = {
    CHAT: [{"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}],
    MESSAGES: [{"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}],
    RESPONSES: [
        {"type": "message", "role": "assistant", "content": "So."},
        {"type": "message", "role": "user", "content": "And?"},
    ],
}
MODES = [CHAT, MESSAGES, RESPONSES]


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_loop_shares_the_prefix_up_to_the_last_user_message(mode):
    first, then = read_question(mode, FIRST[mode]), read_question(mode, AFTER_TOOL[mode])
    assert first.prefixes == then.prefixes and len(first.prefixes) == 1
    assert first.asks_anew and not then.asks_anew
    assert first.tool_results == {} and then.tool_results == {"c1": "42"}


@pytest.mark.parametrize("mode", MODES)
def test_the_next_user_message_keeps_the_prefix_of_the_turn_before(mode):
    key = "input" if mode == RESPONSES else "messages"
    then = read_question(mode, {key: AFTER_TOOL[mode][key] + NEXT[mode]})
    assert len(then.prefixes) == 2 and then.prefixes[:1] == read_question(mode, FIRST[mode]).prefixes
    assert then.asks_anew and then.tool_results == {}


def test_two_messages_are_not_one_joined_message():
    one = read_question(CHAT, {"messages": [{"role": "user", "content": "ab"}]})
    two = read_question(CHAT, {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})
    assert one.prefixes[-1] != two.prefixes[-1]


@pytest.mark.parametrize(
    ("mode", "response"),
    [
        (
            CHAT,
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"at": "x"}'}}]
                        }
                    }
                ]
            },
        ),
        (
            MESSAGES,
            {
                "content": [
                    {"type": "text", "text": "t"},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "x"}},
                ]
            },
        ),
        (
            RESPONSES,
            {"output": [{"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "x"}'}]},
        ),
    ],
)
def test_an_answer_that_asks_for_a_tool_goes_on(mode, response):
    answer = read_answer(mode, response)
    assert answer.goes_on and answer.tool_calls == (ToolCall("c1", "look", {"at": "x"}),)


def test_tools_that_the_provider_runs_do_not_keep_a_turn_open():
    assert not read_answer(
        MESSAGES, {"content": [{"type": "server_tool_use", "id": "s", "name": "web_search"}]}
    ).goes_on
    assert not read_answer(RESPONSES, {"output": [{"type": "web_search_call", "id": "w"}]}).goes_on
    assert read_answer(MESSAGES, {"content": [], "stop_reason": "pause_turn"}).goes_on


def test_cut_tool_arguments_are_kept_as_text():
    response = {
        "choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": "n", "arguments": '{"a": '}}]}}]
    }
    (call,) = read_answer(CHAT, response).tool_calls
    assert call.arguments == '{"a": ' and not call.complete
    function = response["choices"][0]["message"]["tool_calls"][0]["function"]
    for whole in ("", "{}"):
        function["arguments"] = whole
        assert read_answer(CHAT, response).tool_calls[0].complete


@pytest.mark.parametrize(
    "body", [{"error": {"message": "m"}}, {"type": "error", "error": None}, {"status": "failed"}, [], None]
)
def test_an_error_in_a_200_body_is_a_failure(body):
    assert read_answer(RESPONSES, body).failed


def test_sessions_hide_in_what_clients_send():
    user = "user_ab12_account_0-1_session_1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    assert (
        read_question(MESSAGES, {"metadata": {"user_id": user}}).session_hint == "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    )
    as_json = json.dumps({"device_id": "d" * 300, "session_id": "s-1"})
    assert read_question(MESSAGES, {"metadata": {"user_id": as_json}}).session_hint == "s-1"
    assert read_question(MESSAGES, {"metadata": {"user_id": "ann"}}).session_hint == "ann"
    assert read_question(RESPONSES, {"conversation": {"id": "conv_1"}}).session_hint == "conv_1"
    assert read_question(RESPONSES, {"previous_response_id": "resp_1", "input": "x"}).previous_response_id == "resp_1"


@pytest.mark.parametrize(
    ("mode", "chunks", "goes_on"),
    [
        (
            CHAT,
            [
                {"choices": [{"delta": {"content": "a"}}]},
                {"choices": [{"delta": {}, "finish_reason": "stop"}]},
                {"choices": []},
            ],
            False,
        ),
        (
            CHAT,
            [{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, {"choices": [{"finish_reason": "stop"}]}],
            True,
        ),
        (
            MESSAGES,
            [
                {"type": "content_block_start", "content_block": {"type": "tool_use"}},
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            ],
            True,
        ),
        (
            MESSAGES,
            [
                {"type": "content_block_start", "content_block": {"type": "text"}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            ],
            False,
        ),
        (
            RESPONSES,
            [
                {"type": "response.output_item.added", "item": {"type": "function_call"}},
                {"type": "response.completed", "response": {"id": "resp_1"}},
            ],
            True,
        ),
        (
            RESPONSES,
            [
                {"type": "response.output_item.added", "item": {"type": "message"}},
                {"type": "response.completed", "response": {"id": "resp_1"}},
            ],
            False,
        ),
    ],
)
def test_a_stream_tells_before_its_end_whether_the_turn_goes_on(mode, chunks, goes_on):
    watch = StreamWatch(mode)
    for chunk in chunks:
        watch.observe(chunk)
    assert (watch.finished, watch.failed, watch.goes_on) == (True, False, goes_on)
    assert watch.response_id == ("resp_1" if mode == RESPONSES else None)


@pytest.mark.parametrize(
    "chunk", [{"error": {"message": "m"}}, {"type": "error"}, {"type": "response.failed", "response": {}}]
)
def test_an_error_in_a_stream_is_a_failure(chunk):
    watch = StreamWatch(RESPONSES)
    watch.observe(chunk)
    assert watch.failed


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "input",
                    "role",
                    "content",
                    "type",
                    "tool_calls",
                    "function",
                    "delta",
                    "choices",
                    "output",
                    "error",
                ]
            ),
            inner
            | st.sampled_from(["user", "assistant", "tool", "tool_result", "function_call", "function_call_output"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values, st.sampled_from(MODES))
def test_no_body_of_whatever_shape_raises(value, mode):
    read_question(mode, value)
    read_answer(mode, value)
    if isinstance(value, dict):
        StreamWatch(mode).observe(value)


LOOK = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
CALL = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("mode", "whole", "chunks", "cut"),
    [
        (
            CHAT,
            lambda why: {"choices": [{"message": {"tool_calls": [CALL]}, "finish_reason": why or "tool_calls"}]},
            lambda why: [{"choices": [{"delta": {"tool_calls": [CALL]}}]}, {"choices": [{"finish_reason": why}]}],
            "length",
        ),
        (
            MESSAGES,
            lambda why: {"content": [LOOK], "stop_reason": why or "tool_use"},
            lambda why: [
                {"type": "content_block_start", "index": 0, "content_block": LOOK},
                {"type": "message_delta", "delta": {"stop_reason": why}},
            ],
            "max_tokens",
        ),
        (
            RESPONSES,
            lambda why: {"output": [ITEM], "status": why or "completed"},
            lambda why: [
                {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
                {"type": f"response.{why or 'completed'}", "response": {}},
            ],
            "incomplete",
        ),
    ],
)
def test_b23_a_tool_call_in_which_the_answer_reached_its_limit_is_not_complete(mode, whole, chunks, cut):
    for why in (None, cut):
        watch = StreamWatch(mode)
        for chunk in chunks(why):
            watch.observe(chunk)
        for answer in (read_answer(mode, whole(why)), watch.answer()):
            assert [call.complete for call in answer.tool_calls] == [why is None], (why, answer)
