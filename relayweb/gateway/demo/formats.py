"""A reply of the demo upstream written in each of the three wire formats, whole or as a stream of events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from relayweb.gateway.conversation import CHAT, MESSAGES
from relayweb.gateway.demo.script import Reply

CREATED = 1767225600
# What a block or item is before its deltas.
_EMPTY: dict[str, dict[str, Any]] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}
Event = tuple[str | None, dict[str, Any]]
"""Name of the SSE event (None: not named) and its data."""


def whole(api_mode: str, reply: Reply) -> dict[str, Any]:
    """The response body of a buffered call."""
    return {CHAT: _chat, MESSAGES: _message}.get(api_mode, _response)(reply)


def events(api_mode: str, reply: Reply, include_usage: bool) -> Iterator[Event]:
    """The events of a streamed call, without the closing `[DONE]` of Chat Completions."""
    if api_mode == CHAT:
        return ((None, chunk) for chunk in _chat_chunks(reply, include_usage))
    named = _message_events(reply) if api_mode == MESSAGES else _response_events(reply)
    return ((event["type"], event) for event in named)


def pieces(text: str, words: int = 2) -> list[str]:
    """`text` cut after every `words` words; joined they are the text."""
    parts = re.findall(r"\S+\s*|\s+", text)
    return ["".join(parts[i : i + words]) for i in range(0, len(parts), words)]


def _chat_usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
    }


def _chat(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tools:
        message["tool_calls"] = [
            {"id": t.id, "type": "function", "function": {"name": t.name, "arguments": json.dumps(t.arguments)}}
            for t in reply.tools
        ]
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion",
        "created": CREATED,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if reply.tools else "stop"}],
        "usage": _chat_usage(reply),
    }


def _chat_chunks(reply: Reply, include_usage: bool) -> Iterator[dict[str, Any]]:
    head = {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": reply.model,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(reply.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in pieces(reply.text):
        yield chunk({"content": piece})
    for i, tool in enumerate(reply.tools):
        start = {"index": i, "id": tool.id, "type": "function", "function": {"name": tool.name, "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in pieces(json.dumps(tool.arguments)):
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if reply.tools else "stop")
    if include_usage:
        yield {**head, "choices": [], "usage": _chat_usage(reply)}


def _message_usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.input_tokens - reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens,
        "output_tokens": reply.output_tokens,
    }


def _message(reply: Reply) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": f"sig-{reply.id}"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [{"type": "tool_use", "id": t.id, "name": t.name, "input": t.arguments} for t in reply.tools]
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": "tool_use" if reply.tools else "end_turn",
        "stop_sequence": None,
        "usage": _message_usage(reply),
    }


def _message_events(reply: Reply) -> Iterator[dict[str, Any]]:
    message = _message(reply)
    started = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": started}
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **_EMPTY[kind]}}
        deltas: list[dict[str, Any]]
        if kind == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif kind == "text":
            deltas = [{"type": "text_delta", "text": p} for p in pieces(block["text"])]
        else:
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces(json.dumps(block["input"]))]
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": reply.output_tokens}}
    yield {"type": "message_stop"}


def _items(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"id": f"rs_{reply.id}", "type": "reasoning", "summary": summary})
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{reply.id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        )
    for i, tool in enumerate(reply.tools):
        items.append(
            {
                "id": f"fc_{reply.id}_{i}",
                "type": "function_call",
                "status": "completed",
                "call_id": tool.id,
                "name": tool.name,
                "arguments": json.dumps(tool.arguments),
            }
        )
    return items


def _response(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": _items(reply),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def _response_events(reply: Reply) -> Iterator[dict[str, Any]]:
    response = _response(reply)
    running = {**response, "status": "in_progress", "output": [], "usage": None}
    bare: list[dict[str, Any]] = [
        {"type": "response.created", "response": running},
        {"type": "response.in_progress", "response": running},
    ]
    for index, item in enumerate(response["output"]):
        bare += _item_events(index, item)
    bare.append({"type": "response.completed", "response": response})
    for number, event in enumerate(bare):
        yield {"type": event["type"], "sequence_number": number, **event}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **_EMPTY[kind]}}
    if kind == "reasoning":
        part = item["summary"][0]
        at = {**at, "summary_index": 0}
        yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
    elif kind == "message":
        part = item["content"][0]
        at = {**at, "content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}
    else:
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **at, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
