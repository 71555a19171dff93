"""Answers, errors and streams as providers beyond OpenAI, Anthropic and Gemini write them."""

from __future__ import annotations

from typing import Any

import pytest

from relayweb.recording.conventions import answer_texts, chunk_content, read_chunk, read_end, tool_calls

ANSWERS: dict[str, tuple[Any, str, tuple[int | None, int | None], str, str, list[tuple[str, str]]]] = {
    "cohere": (
        {
            "finish_reason": "COMPLETE",
            "message": {
                "content": [{"type": "text", "text": "hi"}],
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
            },
            "usage": {"billed_units": {"input_tokens": 5}, "tokens": {"input_tokens": 10, "output_tokens": 7}},
        },
        *("COMPLETE", (10, 7), "hi", "", [("f", "{}")]),
    ),
    "cohere v1": (
        {
            "text": "hi",
            "finish_reason": "MAX_TOKENS",
            "meta": {"billed_units": {"input_tokens": 5, "output_tokens": 7}},
        },
        *("MAX_TOKENS", (5, 7), "hi", "", []),
    ),
    "bedrock converse": (
        {
            "output": {
                "message": {
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": "hm"}}},
                        {"text": "hi"},
                        {"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}},
                    ]
                }
            },
            "stopReason": "tool_use",
            "usage": {"inputTokens": 5, "outputTokens": 6, "totalTokens": 11},
        },
        *("tool_use", (5, 6), "hi", "hm", [("f", '{"a": 1}')]),
    ),
    "gemini": (
        {
            "candidates": [
                {
                    "content": {
                        "parts": [{"text": "hm", "thought": True}, {"functionCall": {"name": "f", "args": {}}}]
                    },
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14},
        },
        *("STOP", (10, 4), "", "hm", [("f", "{}")]),
    ),
    "a prompt that gemini would not read": (
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 10}},
        *("SAFETY", (10, None), "", "", []),
    ),
    "ollama": (
        {
            "message": {
                "content": "hi",
                "thinking": "hm",
                "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
            },
            **{"done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 29},
        },
        *("stop", (26, 29), "hi", "hm", [("f", "{}")]),
    ),
    "ollama generate": (
        {"response": "hi", "done": True, "done_reason": "length", "prompt_eval_count": 26, "eval_count": 29},
        *("length", (26, 29), "hi", "", []),
    ),
    "watsonx": (
        {
            "results": [
                {
                    "generated_text": "hi",
                    "generated_token_count": 7,
                    "input_token_count": 9,
                    "stop_reason": "max_tokens",
                }
            ]
        },
        *("max_tokens", (9, 7), "hi", "", []),
    ),
    "a completion": (
        {"choices": [{"text": "hi", "finish_reason": "length"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        *("length", (1, 2), "hi", "", []),
    ),
    "a function call of before tools": (
        {"choices": [{"message": {"function_call": {"name": "f", "arguments": '{"a":1'}}, "finish_reason": "stop"}]},
        *("stop", (None, None), "", "", [("f", '{"a":1')]),
    ),
}


@pytest.mark.parametrize("sample", ANSWERS)
def test_an_answer_is_read(sample: str) -> None:
    body, finish, usage, said, thought, calls = ANSWERS[sample]
    end = read_end(name="x", data=body, metadata={"otel.status_code": "OK"})
    assert (end.status, end.error, end.finish_reason) == ("ok", None, finish)
    assert (end.usage.input_tokens, end.usage.output_tokens) == usage
    assert answer_texts(body) == (said, thought)
    assert [(call.name, call.arguments) for call in tool_calls(body)] == calls
    assert ("incomplete_tool_call" in end.flags) is (sample == "a function call of before tools")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, ("BadRequestError", 400, "m")),
        ({"object": "error", "message": "m", "type": "bad", "code": "1500"}, ("bad", None, "m")),
        ([{"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}], ("UNAVAILABLE", 503, "m")),
        ({"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "m"}]}, ("missing", None, "body.model: m")),
        ({"detail": "Not authenticated"}, (None, None, "Not authenticated")),
        ({"error": "overloaded", "error_type": "overloaded_error"}, ("overloaded_error", None, "overloaded")),
        ({"errors": [{"code": "gone", "message": "m"}], "trace": "t", "status_code": 404}, ("gone", 404, "m")),
        ({"result": None, "success": False, "errors": [{"code": 7003, "message": "m"}]}, (None, None, "m")),
        ({"message": "m", "__type": "com.amazon#ThrottlingException"}, ("ThrottlingException", None, "m")),
        ({"throttlingException": {"message": "m"}}, ("throttlingException", None, "m")),
    ],
)  # fmt: skip
def test_an_error_in_a_body_that_came_with_200_is_one(body: Any, error: tuple[Any, ...]) -> None:
    end = read_end(name="x", data=body, metadata={"otel.status_code": "OK"})
    assert end.status == "failed" and end.error is not None
    assert (end.error.type, end.error.status, end.error.message) == error


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "errors": [{"message": "warned"}]},
        {"choices": [], "detail": "high"},
        {"output": [], "object": "response", "status": "completed", "detail": "x"},
        {"embeddings": [[1]], "errors": []},
        {"a": 1, "b": 2, "c": 3, "detail": "told at length"},
        {"errors": [], "detail": None},
    ],
)
def test_what_only_resembles_an_error_is_none(body: Any) -> None:
    assert read_end(name="x", data=body, metadata={"otel.status_code": "OK"}).status == "ok"


COHERE_CALL = {"tool_calls": {"function": {"arguments": "{"}}}
COHERE_END = {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": 10, "output_tokens": 7}}}
OLLAMA_END = {"done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


@pytest.mark.parametrize(
    ("chunk", "content", "finish", "usage"),
    [
        ({"type": "content-delta", "delta": {"message": {"content": {"text": "hi"}}}}, ("text", "hi"), None, None),
        ({"type": "tool-call-delta", "delta": {"message": COHERE_CALL}}, ("tool", "{"), None, None),
        ({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "hm"}}}, ("reasoning", "hm"), None, None),
        ({"type": "message-end", "delta": COHERE_END}, ("other", ""), "COMPLETE", 17),
        ({"contentBlockDelta": {"delta": {"text": "hi"}}}, ("text", "hi"), None, None),
        ({"contentBlockDelta": {"delta": {"reasoningContent": {"text": "hm"}}}}, ("reasoning", "hm"), None, None),
        ({"contentBlockDelta": {"delta": {"toolUse": {"input": "{"}}}}, ("tool", "{"), None, None),
        ({"messageStop": {"stopReason": "end_turn"}}, ("other", ""), "end_turn", None),
        ({"metadata": {"usage": {"inputTokens": 5, "outputTokens": 6, "totalTokens": 11}}}, ("other", ""), None, 11),
        ({"message": {"content": "h"}, "done": False}, ("text", "h"), None, None),
        ({"response": "h", "done": False}, ("text", "h"), None, None),
        ({"message": {"thinking": "hm", "content": ""}, "done": False}, ("reasoning", "hm"), None, None),
        ({"message": {"content": ""}, "done": True, **OLLAMA_END}, ("other", ""), "stop", 7),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}], "x_groq": {"usage": USAGE}}, ("other", ""), "stop", 7),
    ],
)  # fmt: skip
def test_a_piece_of_a_stream_is_read(
    chunk: Any, content: tuple[str, str], finish: str | None, usage: int | None
) -> None:
    assert chunk_content(None, chunk) == content
    facts = read_chunk(None, chunk)
    assert (facts.finish_reason, facts.usage.total_tokens, facts.error) == (finish, usage, None)


def test_an_exception_within_a_stream_is_an_error() -> None:
    error = read_chunk(None, {"modelStreamErrorException": {"message": "m", "originalStatusCode": 500}}).error
    assert error is not None and (error.type, error.message) == ("modelStreamErrorException", "m")
