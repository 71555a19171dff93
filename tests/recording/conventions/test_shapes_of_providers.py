"""What real providers and proxies send: is each member of a row right, or null where nothing was told?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from relayweb.recording.conventions import (
    Stream,
    answer_texts,
    chunk_content,
    read_chunk,
    read_end,
    read_request,
    settle,
    tool_calls,
)

OK = {"otel.status_code": "OK"}


def _chat(message: Any = None, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "message": message or {}, "finish_reason": finish}], **more}


def _responses(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"object": "response", "model": "m", "status": status, "error": None, "output": list(output), **more}


def _anthropic(*content: Any, stop: str | None = "end_turn") -> dict[str, Any]:
    return {"type": "message", "model": "m", "content": list(content), "stop_reason": stop}


def _gemini(*parts: Any, finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "finishReason": finish}
    return {"candidates": [candidate], "modelVersion": "m", **more}


SAID = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
ACTION = {"type": "click", "x": 1}

# name: (answer, status, finish reason, said, thought, tools as (id, name, arguments, complete, server))
ANSWERS: dict[str, tuple[Any, ...]] = {
    "a refusal in chat": (_chat({"content": None, "refusal": "no"}), "ok", "stop", "no", "", []),
    "a refusal in responses": (
        _responses({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}),
        *("ok", "completed", "no", "", []),
    ),
    "a refusal by anthropic": (_anthropic(stop="refusal"), "ok", "refusal", "", "", []),
    "spoken words": (
        _chat({"content": None, "audio": {"id": "a", "data": "AA", "transcript": "hi"}}),
        *("ok", "stop", "hi", "", []),
    ),
    "thoughts in parts": (_chat({"content": [THOUGHT, {"type": "text", "text": "hi"}]}), "ok", "stop", "hi", "hm", []),
    "a plan of cohere": (
        {"finish_reason": "TOOL_CALL", "message": {"tool_plan": "hm", "tool_calls": []}},
        *("ok", "TOOL_CALL", "", "hm", []),
    ),
    "a second choice that says nothing of its end": (
        {
            "choices": [
                {"message": {"content": "a"}, "finish_reason": "stop"},
                {"message": {"content": "b"}, "finish_reason": None},
            ]
        },
        *("ok", "stop", "ab", "", []),
    ),
    "no choices": ({"choices": [], "usage": None}, "ok", None, "", "", []),
    "choices that are null": ({"choices": None, "error": {}}, "ok", None, "", "", []),
    "what ended in an error": (_chat({"content": ""}, "error"), "failed", "error", "", "", []),
    "what ended in an error, by cohere": ({"finish_reason": "ERROR", "message": {}}, "failed", "ERROR", "", "", []),
    "a response still queued": (_responses(status="queued", usage=None), "ok", None, "", "", []),
    "a response that ran out of tokens": (
        _responses(SAID, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        *("ok", "max_output_tokens", "hi", "", []),
    ),
    "tools of openai's, the app's to run": (
        _responses(
            {"type": "computer_call", "id": "x", "call_id": "c1", "action": ACTION},
            {"type": "local_shell_call", "id": "x", "call_id": "c2", "action": {"command": ["ls"]}},
            {"type": "apply_patch_call", "id": "x", "call_id": "c3", "operation": {"type": "update_file"}},
        ),
        *("ok", "completed", "", ""),
        [
            ("c1", "computer_call", '{"type": "click", "x": 1}', True, False),
            ("c2", "local_shell_call", '{"command": ["ls"]}', True, False),
            ("c3", "apply_patch_call", '{"type": "update_file"}', True, False),
        ],
    ),
    "tools of openai's that it ran": (
        _responses(
            {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}},
            {"type": "code_interpreter_call", "id": "c", "code": "f(1"},
            {"type": "mcp_call", "id": "m", "name": "t", "arguments": '{"n":9007199254740993}'},
            SAID,
        ),
        *("ok", "completed", "hi", ""),
        [
            ("w", "web_search_call", '{"type": "search", "query": "q"}', True, True),
            ("c", "code_interpreter_call", "f(1", True, True),
            ("m", "t", '{"n":9007199254740993}', True, True),
        ],
    ),
    "what a tool of the provider gave is not what the model said": (
        _anthropic(
            {"type": "mcp_tool_use", "id": "m", "name": "t", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "given"}]},
            {"type": "text", "text": "hi"},
            stop="pause_turn",
        ),
        *("ok", "pause_turn", "hi", "", [("m", "t", "{}", True, True)]),
    ),
    "a tool call that bedrock cut": (
        {
            "output": {"message": {"content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}]}},
            "stopReason": "max_tokens",
        },
        *("ok", "max_tokens", "", "", [("t", "f", "{}", False, False)]),
    ),
    "gemini in python": (
        {
            "candidates": [
                {"content": {"parts": [{"function_call": {"name": "f", "args": {}}}]}, "finish_reason": "STOP"}
            ]
        },
        *("ok", "STOP", "", "", [(None, "f", "{}", True, False)]),
    ),
    "gemini's stream in one array": (
        [_gemini({"text": "h"}, finish=None), _gemini({"text": "i"})],
        *("ok", "STOP", "hi", "", []),
    ),
    "gemini's answer inside code assist's": ({"response": _gemini({"text": "hi"})}, "ok", "STOP", "hi", "", []),
    "cloudflare's answer inside its own": (
        {"result": {"response": "hi", "usage": {}}, "success": True, "errors": []},
        *("ok", None, "hi", "", []),
    ),
}  # fmt: skip


@pytest.mark.parametrize("sample", ANSWERS)
def test_an_answer_is_read_as_it_was_meant(sample: str) -> None:
    body, status, finish, said, thought, calls = ANSWERS[sample]
    told = settle(read_end(name="x", data=body, metadata=OK))
    assert (told.status, told.finish_reason) == (status, finish)
    assert answer_texts(body) == (said, thought)
    assert [(c.id, c.name, c.arguments, c.complete, c.server) for c in tool_calls(body)] == calls
    assert ("incomplete_tool_call" in told.flags) is any(not complete for *_, complete, _ in calls)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": ["a", "b"]}, (None, None, "a")),
        ({"error": [{"code": 429, "message": "m"}]}, (None, 429, "m")),
        ({"error": True, "message": "m", "code": "gone"}, ("gone", None, "m")),
        ({"error": 503, "message": "m"}, (None, 503, "m")),
        ({"code": "forbidden", "error": "no credits"}, ("forbidden", None, "no credits")),
        (
            {"error": {"code": "content_filter", "message": "m", "status": 400, "innererror": {}}},
            ("content_filter", 400, "m"),
        ),
        ({"choices": [{"error": {"code": 502, "message": "m"}, "finish_reason": "error"}]}, (None, 502, "m")),
    ],
)  # fmt: skip
def test_an_error_of_any_form_is_one(body: Any, error: tuple[Any, ...]) -> None:
    end = read_end(name="x", data=body, metadata=OK)
    assert end.status == "failed" and end.error is not None
    assert (end.error.type, end.error.status, end.error.message) == error


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


# name: (body, api mode, model, asked, messages, tools)
REQUESTS: dict[str, tuple[Any, ...]] = {
    "parts": (
        {"messages": [_user([{"type": "image_url"}, {"type": "text", "text": "hi"}])]},
        *("chat_completions", None, "hi", 1, None),
    ),
    "a cached block": (
        {"messages": [_user([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])]},
        *("anthropic_messages", None, "hi", 1, None),
    ),
    "a document": (
        {"messages": [_user([{"type": "document", "source": {}}, {"type": "text", "text": "hi"}])]},
        *("anthropic_messages", None, "hi", 1, None),
    ),
    "a stored prompt": ({"prompt": {"id": "p", "variables": {}}}, None, None, None, None, None),
    "bedrock": (
        {
            "modelId": "m",
            "messages": [_user([{"text": "hi"}])],
            "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]},
        },
        *(None, "m", "hi", 1, 1),
    ),
    "gemini without a role": (
        {
            "contents": {"parts": [{"text": "hi"}]},
            "tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}, {"googleSearch": {}}],
        },
        *("gemini", None, "hi", 1, 3),
    ),
    "cohere until version 1": ({"message": "hi", "chat_history": []}, None, None, "hi", 1, None),
    "several prompts": ({"prompt": ["a", "hi"]}, None, None, "hi", 2, None),
    "a prompt in tokens": ({"prompt": [1, 2, 3]}, None, None, None, None, None),
    "langchain": (
        {"messages": [[{"lc": 1, "type": "constructor", "kwargs": {"content": "hi", "type": "human"}}]]},
        *("chat_completions", None, "hi", 1, None),
    ),
    "langchain, plain": ({"messages": [{"type": "human", "content": "hi"}]}, "chat_completions", None, "hi", 1, None),
    "a model that is none": ({"model": 5, "input": "hi"}, "codex_responses", "told", "hi", 1, None),
}


@pytest.mark.parametrize("sample", REQUESTS)
def test_a_request_is_read_as_it_was_meant(sample: str) -> None:
    body, mode, model, asked, messages, tools = REQUESTS[sample]
    told = read_request(None, body, profile={"model_name": "told"} if model == "told" else None)
    assert (told.api_mode, told.model, told.asked) == (mode, model, asked)
    assert (told.message_count, told.tool_count) == (messages, tools)


@pytest.mark.parametrize("name", ["openai.embeddings", "moderation", "openai.images.edit", "rerank", "audio.speech"])
def test_an_input_that_is_no_conversation_speaks_no_format_of_one(name: str) -> None:
    assert read_request(None, {"model": "m", "input": "hi"}, name=name).api_mode is None


def _delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _finish(reason: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}

# name: (chunks, status, finish reason, total of tokens, kinds and texts)
STREAMS: dict[str, tuple[Any, ...]] = {
    "usage in a last chunk without choices": (
        [_delta(content="hi"), _finish("tool_calls"), {"choices": [], "usage": USAGE}],
        *("ok", "tool_calls", 3, [("text", "hi")]),
    ),
    "usage in every chunk": (
        [{**_delta(content="h"), "usage": {**USAGE, "completion_tokens": 1, "total_tokens": 2}},
         {**_delta(content="i"), "usage": USAGE}, _finish("stop")],
        *("ok", "stop", 3, [("text", "h"), ("text", "i")]),
    ),
    "azure's filters": (
        [{"choices": [], "prompt_filter_results": []}, {"choices": [{"index": 0, "content_filter_results": {}}]},
         _finish("content_filter")],
        *("ok", "content_filter", None, []),
    ),
    "spoken words": (
        [_delta(audio={"transcript": "hi"}), _delta(audio={"data": "AA"})],
        *("ok", None, None, [("text", "hi")]),
    ),
    "thoughts in parts": ([_delta(content=[THOUGHT]), _finish("stop")], "ok", "stop", None, [("reasoning", "hm")]),
    "thoughts of cohere": (
        [{"type": "content-delta", "delta": {"message": {"content": {"thinking": "hm"}}}}],
        *("ok", None, None, [("reasoning", "hm")]),
    ),
    "thoughts and words in one piece of gemini's": (
        [_gemini({"text": "hm", "thought": True}, {"text": "hi"})],
        *("ok", "STOP", None, [("text", "hi")]),
    ),
    "a call in one piece": (
        [_gemini({"functionCall": {"name": "f", "args": {"a": 1}}}),
         {"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "done": False}],
        *("ok", "STOP", None, [("tool", '{"a": 1}'), ("tool", '{"a": 1}')]),
    ),
    "null where something should be": (
        [{"choices": [{"delta": None}]}, {"choices": None}, {"choices": [None]}, _delta(content=None), None],
        *("ok", None, None, []),
    ),
    "an error as text": ([_delta(content="h"), {"error": "boom"}], "failed", None, None, [("text", "h")]),
    "an end in an error": ([_delta(content="h"), _finish("error")], "failed", "error", None, [("text", "h")]),
    "an end in an error, by cohere": (
        [{"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "boom"}}],
        *("failed", "ERROR", None, []),
    ),
    "an error of responses": (
        [{"type": "error", "code": "server_error", "message": "boom", "sequence_number": 3}],
        *("failed", None, None, []),
    ),
}  # fmt: skip


@pytest.mark.parametrize("sample", STREAMS)
def test_a_stream_is_read_as_it_was_meant(sample: str) -> None:
    chunks, status, finish, total, contents = STREAMS[sample]
    stream = Stream()
    for index, chunk in enumerate(chunks):
        stream = stream.fold(msgspec.structs.replace(read_chunk(None, chunk), index=index))
    told = settle(read_end(name="x", data=None, metadata=OK), stream, streaming=True)
    assert (told.status, told.finish_reason, told.usage.total_tokens) == (status, finish, total)
    found = [chunk_content(None, chunk) for chunk in chunks]
    assert [(kind, text) for kind, text in found if text] == contents


@pytest.mark.parametrize(("finish", "complete"), [(None, False), ("STOP", True)])
def test_what_gemini_counted_before_a_stream_ended_is_a_lower_bound(finish: str | None, complete: bool) -> None:
    counted = {"promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11}
    stream = Stream().fold(read_chunk("gemini", _gemini({"text": "h"}, finish=finish, usageMetadata=counted)))
    told = settle(read_end(name="x", api_mode="gemini", data=None, metadata=OK), stream, streaming=True)
    assert (told.usage.total_tokens, told.usage.complete) == (11, complete)
