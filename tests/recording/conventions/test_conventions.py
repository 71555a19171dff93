"""The cases of public faults that concern reading providers' conventions, and our own."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording import conventions
from relayweb.recording.conventions import (
    ErrorFacts,
    Stream,
    asked_text,
    chunk_content,
    finish_reason,
    guess_api_mode,
    read_block,
    read_chunk,
    read_chunk_mark,
    read_end,
    read_failure,
    read_outcome,
    read_request,
    settle,
    tool_calls,
)

OK = {"otel.status_code": "OK"}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


def error_metadata(kind="RuntimeError", text="boom"):
    return {
        "otel.status_code": "ERROR",
        "error.type": "internal_error",
        "exception.type": kind,
        "otel.status_description": f"internal error: {kind}: {text}",
    }


def chat(text="ok", finish="stop", **more):
    message = {"role": "assistant", "content": text}
    return {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}


def mark(index, **more):
    return read_chunk_mark({"chunk_index": index, "provider": "openai_chat_completions", **more})


def fold(*chunks):
    stream = Stream()
    for chunk in chunks:
        stream = stream.fold(chunk)
    return stream


# Streams: aborted, usage, errors


def test_b07_a_stream_cut_after_its_first_count_knows_at_least_that():
    start = {"input_tokens": 20, "output_tokens": 1}
    stream = fold(
        read_chunk("anthropic_messages", {"type": "message_start", "message": {"usage": start}}),
        *[read_chunk("anthropic_messages", {"type": "content_block_delta", "delta": {}}) for _ in range(3)],
    )
    end = read_end(api_mode="anthropic_messages", metadata=error_metadata("APIConnectionError"))
    usage = settle(end, stream).usage
    assert (usage.output_tokens, usage.complete) == (1, False)
    assert settle(None, stream).usage.complete is False
    silent = settle(read_end(api_mode="anthropic_messages", metadata=OK), stream)
    assert silent.usage.complete is False, "a Messages stream without a stop reason was cut, however it ended"


def test_b10_the_finish_reason_may_come_before_a_last_chunk_without_choices():
    chunks = [
        read_chunk("chat_completions", {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
        read_chunk("chat_completions", {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}),
    ]
    found = settle(read_end(metadata=OK, data={}), fold(*chunks))
    assert (found.finish_reason, found.usage.total_tokens, found.usage.complete) == ("tool_calls", 13, True)


def test_b11_the_last_finish_reason_that_is_not_null_wins():
    first = mark(4, finish_reasons=[{"choice_index": 0, "finish_reason": "length"}])
    last = mark(5, finish_reasons=[{"choice_index": 0, "finish_reason": "stop"}])
    nothing = mark(6, finish_reasons=[{"choice_index": 0, "finish_reason": None}])
    for order in itertools.permutations([first, last, nothing]):
        assert fold(*order).finish_reason == "stop"


def test_l6_end_and_stream_may_disagree_on_why_the_model_stopped():
    end = read_end(metadata=OK, data=chat(finish="stop"))
    found = settle(end, fold(mark(21, finish_reasons=[{"choice_index": 0, "finish_reason": "tool_calls"}])))
    assert (found.finish_reason, found.stream_finish_reason) == ("stop", "tool_calls")
    assert "finish_reason_mismatch" in found.flags


def test_relays_own_words_for_a_finish_reason_are_no_mismatch():
    profile = {"annotated_response": {"finish_reason": "tool_use"}}
    end = read_end(metadata=OK, data=None, profile=profile)
    found = settle(end, fold(mark(1, finish_reasons=[{"choice_index": 0, "finish_reason": "tool_calls"}])))
    assert "finish_reason_mismatch" not in found.flags


def test_l7_an_auxiliary_stream_without_recorded_text_has_its_usage_from_the_chunks():
    found = settle(read_end(metadata=OK, data={}), fold(mark(3, usage={"prompt_tokens": 7, "completion_tokens": 2})))
    assert (found.status, found.usage.total_tokens, found.usage.complete) == ("ok", 9, True)


def test_l8_usage_told_in_three_chunks_and_at_the_end_counts_once():
    provider = {"provider": "anthropic_messages"}
    first = {"cache_read_tokens": 1024, "cache_write_tokens": 0, "completion_tokens": 1, "prompt_tokens": 177}
    marks = [
        read_chunk_mark({"chunk_index": 0, "usage": first, **provider}),
        read_chunk_mark({"chunk_index": 61, "usage": {"completion_tokens": 41}, "stop_reason": "tool_use", **provider}),
        read_chunk_mark({"chunk_index": 62, "usage": {**first, "completion_tokens": 41}, **provider}),
    ]
    body = {
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 177, "cache_read_input_tokens": 1024, "output_tokens": 41},
    }
    end = read_end(api_mode="anthropic_messages", metadata=OK, data=body)
    for order in itertools.permutations(marks):
        for told in (end, read_end(api_mode="anthropic_messages", metadata=OK, data=None)):
            assert settle(told, fold(*order)).usage.total_tokens == 1201 + 41


def test_an_error_event_inside_a_stream_fails_an_attempt_that_relay_saw_end_well():
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    found = settle(read_end(metadata=OK, data={}), fold(read_chunk("anthropic_messages", told)))
    assert (found.status, found.error) == ("failed", ErrorFacts("overloaded_error", None, "Overloaded"))
    responses = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}
    assert settle(read_end(metadata=OK), fold(read_chunk(None, responses))).status == "failed"
    assert settle(read_end(metadata=OK), fold(read_chunk_mark({"event_type": "error"}))).status == "failed"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            {"error": {"message": "quota", "type": "insufficient_quota", "code": 429}},
            ("insufficient_quota", 429, "quota"),
        ),
        ({"type": "error", "error": {"type": "api_error", "message": "no"}}, ("api_error", None, "no")),
        ({"error": "overloaded"}, (None, None, "overloaded")),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow"}}, ("rate_limit_exceeded", None, "slow")),
        ({"choices": [{"error": {"code": 502, "message": "bad"}}]}, (None, 502, "bad")),
        ({"object": "response", "status": "failed", "error": {"code": "server_error"}}, ("server_error", None, None)),
    ],
)
def test_an_error_object_in_an_http_200_body_fails_the_attempt(body, error):
    end = read_end(metadata=OK, data=body)
    assert (end.status, end.error) == ("failed", ErrorFacts(*error))


@pytest.mark.parametrize("error", [None, {}, "", False, 0, []])
def test_an_empty_error_member_is_no_error(error):
    assert read_end(metadata=OK, data=chat(error=error)).status == "ok"


def test_what_the_provider_answered_wins_over_what_the_exception_says():
    body = json.dumps({"error": {"type": "rate_limit_error", "message": "Slow down."}})
    failed = read_failure({"status": 429, "error_type": "RateLimitError", "message": "Error code: 429", "body": body})
    found = settle(read_end(metadata=error_metadata("RateLimitError", "Error code: 429")), None, failed)
    assert found.error == ErrorFacts("rate_limit_error", 429, "Slow down.")
    assert read_failure({"status": 502, "body": "<html>"}).status == 502


def test_the_http_status_is_read_from_an_sdk_message():
    end = read_end(metadata=error_metadata("InternalServerError", "Error code: 500 - {'error': …}"))
    assert end.error == ErrorFacts("InternalServerError", 500, "Error code: 500 - {'error': …}")


def test_a_call_the_provider_refused_misses_nothing_and_a_cut_one_does():
    refused = settle(read_end(metadata=error_metadata("X", "Error code: 503")), None)
    assert (refused.usage.total_tokens, refused.usage.complete) == (None, True)
    cut = settle(read_end(metadata=error_metadata("X", "peer closed connection")), fold(mark(0)))
    assert (cut.usage.total_tokens, cut.usage.complete) == (None, False)


# Status and outcome


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        (OK, "ok"),
        ({}, "ok"),
        (error_metadata(), "failed"),
        (error_metadata("CancelledError", ""), "cancelled"),
        ({"otel.status_code": "ERROR", "otel.status_description": "LLM execution cancelled"}, "cancelled"),
        (
            {"otel.status_code": "ERROR", "otel.status_description": "stream dropped before clean completion"},
            "cancelled",
        ),
        (error_metadata("CallBlocked", "no"), "blocked"),
        ({"otel_status_code": "ERROR", "exception_type": "ValueError"}, "failed"),
    ],
)
def test_the_status_of_a_call_is_read_from_its_end(metadata, status):
    assert read_end(metadata=metadata).status == status


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("success", "ok"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("canceled", "cancelled"),
        ("Blocked", "blocked"),
    ],
)
def test_the_status_of_a_turn_is_its_outcome(outcome, status):
    end = read_end(category="function", data={"outcome": outcome})
    assert (end.status, end.outcome) == (status, outcome)
    assert read_outcome(outcome) == status


def test_an_unknown_outcome_is_kept_and_no_failure():
    end = read_end(category="function", data={"outcome": "handed over"})
    assert (end.status, end.outcome) == ("ok", "handed over")


def test_a_guardrail_that_rejected_blocked():
    rejected = {"allowed": False, "rejected": True, "rejection_reason": "policy: weapons"}
    end = read_end(category="guardrail", data=rejected)
    assert (end.status, end.error.message) == ("blocked", "policy: weapons")
    assert read_end(category="guardrail", data={"allowed": True, "rejected": False}).status == "ok"
    as_span = {"otel.status_code": "ERROR", "otel.status_description": "policy: weapons"}
    assert read_end(category="guardrail", data=rejected, metadata=as_span) == end
    blocked = {"stage": "intercept", "reason": "rule raised", "error_type": "ValueError", "request": {}}
    assert read_block(blocked) == ErrorFacts("ValueError", None, "rule raised")
    assert read_block({"rejected": False}) is None


# Tool calls


def test_b23_b25_an_unfinished_tool_call_is_kept_and_flagged():
    body = chat(None, "tool_calls")
    cut = {"id": "c1", "function": {"name": "read_file", "arguments": '{"path": "note'}}
    body["choices"][0]["message"]["tool_calls"] = [cut]
    (call,) = tool_calls(body)
    assert (call.name, call.arguments, call.complete) == ("read_file", '{"path": "note', False)
    end = read_end(metadata=OK, data=body)
    assert end.status == "ok" and "incomplete_tool_call" in end.flags


def tool_answer(arguments, finish, **call):
    body = chat(None, finish)
    body["choices"][0]["message"]["tool_calls"] = [{"id": "c1", "function": {"name": "f", "arguments": arguments}}]
    return body


def message_answer(given, stop, *after):
    return {"content": [{"type": "tool_use", "id": "t", "name": "f", "input": given}, *after], "stop_reason": stop}


def response_answer(kind, given, status):
    return {"object": "response", "output": [{"type": kind, "name": "f", "input": given, "status": status}]}


@pytest.mark.parametrize(
    ("body", "complete"),
    [
        (tool_answer("", "tool_calls"), True),
        (tool_answer("", None), False),
        (tool_answer("", "length"), False),
        (tool_answer("12", None), False),
        (tool_answer("{}", None), True),
        (message_answer({}, "tool_use"), True),
        (message_answer({}, None), False),
        (message_answer({}, "max_tokens"), False),
        (message_answer(12, None), False),
        (message_answer({"a": 1}, None), True),
        (message_answer({}, None, {"type": "text", "text": "on"}), True),
        (response_answer("custom_tool_call", "*** Begin", "in_progress"), False),
        (response_answer("custom_tool_call", "*** Begin", "completed"), True),
        (response_answer("function_call", "", "incomplete"), False),
        ({"type": "function", "tool_calls": [{"name": "f", "args": {}}]}, True),
    ],
)
def test_b23_a_tool_call_is_unfinished_where_the_stream_ended_in_it(body, complete):
    assert [call.complete for call in tool_calls(body)] == [complete]


def test_a_custom_tool_of_a_chat_has_its_name_and_free_text():
    body = chat(None, "tool_calls")
    custom = {"name": "patch", "input": "*** Begin"}
    body["choices"][0]["message"]["tool_calls"] = [{"id": "c1", "type": "custom", "custom": custom}]
    (call,) = tool_calls(body)
    assert (call.name, call.arguments, call.complete) == ("patch", "*** Begin", True)


def test_b30_the_whole_input_of_a_tool_is_the_text_of_its_chunk():
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {"n": 12345678901234567890123}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    assert chunk_content("anthropic_messages", start) == ("tool", '{"n": 12345678901234567890123}')
    assert chunk_content("anthropic_messages", {**start, "content_block": {**block, "input": {}}}) == ("tool", "")
    call = {"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}
    assert chunk_content("chat_completions", {"choices": [{"delta": {"tool_calls": [call]}}]}) == ("tool", '{"a": 1}')


def test_b19_the_members_of_a_bare_error_event_are_read():
    said = {"type": "error", "code": "rate_limit", "message": "slow down", "status": 429}
    assert read_chunk("chat_completions", said).error == ErrorFacts("rate_limit", 429, "slow down")


def test_b24_the_digits_of_arguments_stay():
    body = {
        "output": [
            {"type": "function_call", "call_id": "c", "name": "pay", "arguments": '{"n":12345678901234567890123}'}
        ]
    }
    assert tool_calls(body)[0].arguments == '{"n":12345678901234567890123}'
    assert (
        "12345678901234567890123"
        in tool_calls({"content": [{"type": "tool_use", "input": {"n": 12345678901234567890123}}]})[0].arguments
    )


def test_b30_whole_blocks_without_deltas_are_complete():
    body = {
        "content": [
            {"type": "mcp_tool_use", "id": "m", "name": "find", "input": {}},
            {"type": "tool_use", "name": "x", "input": {"a": 1}},
        ]
    }
    assert [(c.complete, c.server) for c in tool_calls(body)] == [(True, True), (True, False)]
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "whole"}}
    assert chunk_content("anthropic_messages", start) == ("text", "whole")


def test_b32_tools_the_provider_ran_itself_are_labelled():
    body = {"content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}]}
    assert tool_calls(body)[0].server is True
    assert tool_calls({"output": [{"type": "web_search_call", "id": "ws"}]})[0].server is True


def test_b29_a_compaction_is_read_and_its_null_kept():
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "sum"}}
    assert chunk_content("anthropic_messages", delta) == ("other", "sum")
    assert chunk_content("anthropic_messages", {**delta, "delta": {"type": "compaction_delta", "content": None}}) == (
        "other",
        "",
    )


# Chunks


@pytest.mark.parametrize(
    ("chunk", "kind", "text"),
    [
        ({"choices": [{"delta": {"content": "A"}}]}, "text", "A"),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, "reasoning", "hm"),
        ({"choices": [{"delta": {"reasoning": "hm"}}]}, "reasoning", "hm"),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}}]}, "tool", '{"a'),
        (
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "ls", "arguments": ""}}]}}]},
            "tool",
            "",
        ),
        ({"choices": [{"delta": {"role": "assistant"}}]}, "other", ""),
        ({"choices": []}, "other", ""),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "A"}}, "text", "A"),
        ({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}, "reasoning", "hm"),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"a'}}, "tool", '{"a'),
        ({"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "x"}}, "other", ""),
        ({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "ls", "input": {}}}, "tool", ""),
        ({"type": "message_start", "message": {}}, "other", ""),
        ({"type": "response.output_text.delta", "delta": "A"}, "text", "A"),
        ({"type": "response.reasoning_summary_text.delta", "delta": "hm"}, "reasoning", "hm"),
        ({"type": "response.function_call_arguments.delta", "delta": '{"a'}, "tool", '{"a'),
        ({"type": "response.completed", "response": {}}, "other", ""),
        ({"candidates": [{"content": {"parts": [{"text": "A"}]}}]}, "text", "A"),
        ({"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]}, "reasoning", "hm"),
        ("A", "text", "A"),
        (None, "other", ""),
    ],
)
def test_a_chunk_has_a_kind_and_a_text(chunk, kind, text):
    assert chunk_content(None, chunk) == (kind, text)


def test_the_finish_of_a_responses_stream_is_in_its_last_event():
    done = {
        "type": "response.incomplete",
        "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    }
    assert read_chunk("codex_responses", done).finish_reason == "max_output_tokens"
    done = {
        "type": "response.completed",
        "response": {"status": "completed", "usage": {"input_tokens": 3, "output_tokens": 2}},
    }
    assert (read_chunk(None, done).finish_reason, read_chunk(None, done).usage.total_tokens) == ("completed", 5)


# Requests


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (
            {"messages": [{"role": "user", "content": "first"}, {"role": "user", "content": " two\n words "}]},
            "two words",
        ),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "content": "r"}]}, "q"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "content": "r"}, {"type": "text", "text": "q"}],
                    }
                ]
            },
            "q",
        ),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "user", "content": [{"type": "tool_result"}]}]}, "q"),
        ({"input": "hello"}, "hello"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]}, "hello"),
        ({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}, "hello"),
        ({"messages": [{"type": "human", "data": {"content": "hello"}}]}, "hello"),
        ({"messages": []}, None),
        ({"messages": None}, None),
        ({"messages": [{"role": "user", "content": "nul \0 and \ud800"}]}, "nul ␀ and ?"),
    ],
)
def test_what_the_user_asked_is_the_text_of_the_last_user_message(body, asked):
    assert asked_text(body) == asked


def test_a_long_question_is_cut():
    asked = asked_text({"input": "word " * 1000})
    assert len(asked) == 200 and asked.endswith("…")


@pytest.mark.parametrize(
    ("given_", "mode"),
    [
        ({"api_mode": "codex_responses"}, "codex_responses"),
        ({"metadata": {"api_mode": "anthropic_messages"}}, "anthropic_messages"),
        ({"name": "openai.responses"}, "codex_responses"),
        ({"profile": {"annotated_request": {"api_specific": {"api": "openai_chat"}}}}, "chat_completions"),
        ({"content": {"messages": [], "system": "x"}}, "anthropic_messages"),
        ({"content": {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}}, "anthropic_messages"),
        ({"content": {"messages": [{"role": "user", "content": "x"}]}}, "chat_completions"),
        ({"content": {"input": "x"}}, "codex_responses"),
        ({"content": {"contents": []}}, "gemini"),
        ({"content": {}}, None),
    ],
)
def test_the_wire_format_is_stated_or_guessed(given_, mode):
    assert guess_api_mode(given_.pop("api_mode", None), **given_) == mode


def test_a_request_is_read_with_what_stands_around_it():
    body = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "hi"}], "tools": [{}]}
    facts = read_request(None, body, name="openai.chat_completions", metadata={"relay.provider": "azure"})
    assert (facts.model, facts.provider, facts.api_mode) == ("gpt-4o", "azure", "chat_completions")
    assert (facts.streaming, facts.message_count, facts.tool_count) == (True, 1, 1)
    assert read_request(None, {}, attributes=["streaming"]).streaming is True
    assert read_request(None, None).streaming is None


def test_relays_pricing_and_time_to_first_chunk_are_taken():
    profile = {
        "time_to_first_chunk": 0.25,
        "annotated_response": {"usage": {"cost": {"total": 0.5, "currency": "USD"}}},
    }
    end = read_end(metadata=OK, data=chat(), profile=profile)
    assert (end.ttft_us, end.cost_usd) == (250_000, 0.5)
    profile["annotated_response"]["usage"]["cost"]["currency"] = "EUR"
    assert read_end(metadata=OK, data=chat(), profile=profile).cost_usd is None


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        (chat(finish="length"), "length"),
        ({"stop_reason": "end_turn"}, "end_turn"),
        ({"object": "response", "status": "completed"}, "completed"),
        ({"candidates": [{"finishReason": "STOP"}]}, "STOP"),
        ({"choices": [{"finish_reason": None}]}, None),
    ],
)
def test_the_finish_reason_is_the_providers_word(body, finish):
    assert finish_reason(body) == finish


@given(ANYTHING, ANYTHING, ANYTHING)
def test_b65_nothing_makes_a_reader_raise(a, b, c):
    """data null, data "text", messages null, content with unknown parts, and worse."""
    read_request(a, b, name=c, metadata=a, profile=b, attributes=c)
    read_request(None, {"messages": a, "model": b, "stream": c, "tools": a})
    read_request(None, {"messages": [{"role": "user", "content": a}, a]}, profile={"annotated_request": b})
    end = read_end(category=a, api_mode=b, name=c, data=a, metadata=b, profile=c)
    for body in (a, {"choices": a, "usage": b, "error": c}, {"content": a, "output": b, "tool_calls": c}):
        assert read_end(api_mode=None, data=body, metadata={"otel.status_code": a}).status
        tool_calls(body)
    read_failure({"body": a, "status": b, "message": c})
    read_block(a)
    facts = [read_chunk_mark(a), read_chunk(b, c), read_chunk_mark({"chunk_index": a, "usage": b, "finish_reasons": c})]
    for chunk in (
        a,
        {"type": a, "delta": b},
        {"choices": a},
        {"choices": [{"delta": b}]},
        {"candidates": a, "type": c},
    ):
        kind, text = chunk_content(a, chunk)
        assert kind in ("text", "reasoning", "tool", "other") and isinstance(text, str)
        facts.append(read_chunk(b, chunk))
    assert settle(end, fold(*facts), None).status


@given(
    st.lists(
        st.builds(
            mark,
            st.integers(0, 9),
            finish_reasons=st.sampled_from([[], [{"finish_reason": "stop"}], [{"finish_reason": "length"}]]),
            usage=st.sampled_from(
                [None, {"prompt_tokens": 3}, {"completion_tokens": 5}, {"prompt_tokens": 2, "completion_tokens": 1}]
            ),
        ),
        max_size=5,
    )
)
def test_what_a_stream_says_does_not_depend_on_order_or_repeats(chunks):
    assert len({fold(*order, *order[:2]) for order in itertools.permutations(chunks)}) == 1


CHAT_CUT = {"choices": [{"index": 0, "message": {"content": "half"}, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("api_mode", "body"),
    [
        ("chat_completions", CHAT_CUT),
        ("anthropic_messages", {"type": "message", "content": [], "stop_reason": None}),
        ("codex_responses", {"object": "response", "status": "in_progress", "output": []}),
    ],
)
def test_a_stream_that_ends_without_its_end_is_flagged(api_mode, body):
    end = read_end(api_mode=api_mode, data=body, metadata=OK)
    found = settle(end, streaming=True)
    assert (found.status, found.finish_reason, found.flags) == ("ok", None, ("unfinished_stream",))
    assert settle(end, fold(read_chunk(api_mode, {"x": 1}))).flags == ("unfinished_stream",)
    assert settle(end).flags == (), "nothing was streamed"
    assert settle(end, fold(mark(3, finish_reasons=[{"finish_reason": "stop"}])), streaming=True).flags == ()
    assert settle(end, failed=ErrorFacts(message="cut"), streaming=True).flags == (), "a failure says more"
    assert settle(read_end(api_mode=api_mode, data={}, metadata=OK), streaming=True).flags == (), "not recorded"


def test_an_end_that_counts_nothing_does_not_hide_what_the_stream_counted():
    end = read_end(data={"usage": {"prompt_tokens": 0, "completion_tokens": 0}, **CHAT_CUT}, metadata=OK)
    found = settle(end, fold(mark(1, usage={"prompt_tokens": 100, "completion_tokens": 70})))
    assert (found.usage.input_tokens, found.usage.output_tokens) == (100, 70)


def test_the_names_promised_are_there():
    for name in conventions.__all__:
        assert hasattr(conventions, name)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"cost": 0.0125, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.0125}}, 0.0125),
        ({"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}, 0.021),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
        ({"cost": 0}, 0),
        ({"cost": {"input_tokens_cost": 0.001, "request_cost": 0.006, "total_cost": 0.0086}}, 0.0086),
        ({"cost": -1}, None),
        ({"cost": True}, None),
        ({"cost": "0.5"}, None),
        ({"cost": float("nan")}, None),
        ({"cost": {"total_cost": None}}, None),
    ],
)
def test_what_the_provider_says_a_call_cost_is_read(usage, cost):
    body = {**chat(), "usage": {"prompt_tokens": 10, "completion_tokens": 5, **usage}}
    assert read_end(metadata=OK, data=body).cost_usd == (cost if cost is None else pytest.approx(cost))


def test_what_the_provider_says_wins_over_the_estimate_of_relay():
    body = {**chat(), "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}}
    profile = {"annotated_response": {"usage": {"cost": {"total": 0.5, "currency": "USD"}}}}
    assert read_end(metadata=OK, data=body, profile=profile).cost_usd == 0.25


@pytest.mark.parametrize(
    ("body", "read", "written"),
    [
        ({"inputTextTokenCount": 7, "results": [{"tokenCount": 4, "outputText": "a"}, {"tokenCount": 5}]}, 7, 9),
        ({"inputTextTokenCount": 7, "results": [{"tokenCount": None}]}, 7, None),
        ({"inputTextTokenCount": 7, "totalOutputTextTokenCount": 3, "outputText": "a"}, 7, 3),
        ({"inputTextTokenCount": 7, "embedding": [0.5]}, 7, None),
        ({"generation": "a", "prompt_token_count": 11, "generation_token_count": 2, "stop_reason": "stop"}, 11, 2),
        ({"generation": "a", "prompt_token_count": None, "generation_token_count": 2}, None, 2),
    ],
)
def test_titan_and_llama_on_bedrock_tell_their_tokens_beside_the_answer(body, read, written):
    usage = read_end(metadata=OK, data=body).usage
    assert (usage.input_tokens, usage.output_tokens) == (read, written)
