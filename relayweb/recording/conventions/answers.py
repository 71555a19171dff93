"""What an answer says: finish reason, tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import msgspec

from relayweb.recording.conventions.shapes import Json, as_list, as_map, as_text, content_text, text_or_none


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool as the model wrote it: `arguments` digit for digit, `complete` when they are JSON."""

    id: str | None
    name: str | None
    arguments: str
    complete: bool
    server: bool = False


def unwrap(data: Json) -> Mapping[str, Json]:
    """The provider's body inside what integrations put around it (LangChain's serialised messages)."""
    body = as_map(data)
    wrapped = body.get("__nemo_relay_integrations_langchain_model_response")
    if isinstance(wrapped, Mapping):
        message = next(iter(as_list(wrapped.get("messages"))), None)
        inner = as_map(as_map(message).get("data"))
        return {
            **inner,
            "usage": inner.get("usage_metadata"),
            "model": as_map(inner.get("response_metadata")).get("model_name"),
        }
    return body


def finish_reason(body: Json) -> str | None:
    """Why the model stopped, in the provider's own word; of several choices the last that has one."""
    body = as_map(body)
    found: Json = None
    for choice in (*as_list(body.get("choices")), *as_list(body.get("candidates"))):
        found = as_map(choice).get("finish_reason") or as_map(choice).get("finishReason") or found
    found = found or body.get("stop_reason") or body.get("finish_reason") or body.get("stopReason")
    if found is None and body.get("object") == "response":
        found = as_map(body.get("incomplete_details")).get("reason") or body.get("status")
        found = None if found in ("in_progress", "queued") else found
    return text_or_none(found, 64)


_SAME_FINISH = {
    "complete": "stop",
    "end_turn": "stop",
    "completed": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
}


def finish_reasons_differ(end: str | None, stream: str | None) -> bool:
    """Whether end event and stream disagree on why the model stopped; Relay's words count as the provider's."""
    if not end or not stream:
        return False
    a, b = end.lower(), stream.lower()
    return _SAME_FINISH.get(a, a) != _SAME_FINISH.get(b, b)


def _arguments(value: Json) -> tuple[str, bool]:
    if isinstance(value, str):
        if not value.strip():
            return value, True  # a tool without parameters
        try:
            json.loads(value)
        except ValueError:
            return value, False
        except RecursionError:
            return value, True
        return value, True
    return ("" if value is None else json.dumps(value)), True


def _call(id: Json, name: Json, arguments: Json, *, server: bool = False, custom: bool = False) -> ToolCall:
    text, complete = (arguments, True) if custom and isinstance(arguments, str) else _arguments(arguments)
    return ToolCall(text_or_none(id), text_or_none(name), text, complete, server)


def tool_calls(body: Json) -> list[ToolCall]:
    """The tool calls in an answer of any format, with unfinished ones and those the provider ran itself (`server`)."""
    return list(_tool_calls(unwrap(body)))


def _tool_calls(body: Mapping[str, Json]) -> Iterator[ToolCall]:
    messages = [as_map(c).get("message") for c in as_list(body.get("choices"))] + [body.get("assistant_message"), body]
    for message in messages:
        for call in as_list(as_map(message).get("tool_calls")):
            call, function = as_map(call), as_map(as_map(call).get("function"))
            arguments = function.get("arguments", call.get("arguments", call.get("args")))
            yield _call(call.get("id"), function.get("name") or call.get("name"), arguments)
    for block in as_list(body.get("content")):
        block = as_map(block)
        kind = block.get("type")
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            given = block.get("input")
            yield _call(block.get("id"), block.get("name"), given, server=kind != "tool_use")
    for item in as_list(body.get("output")):
        item = as_map(item)
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            given = item.get("arguments", item.get("input"))
            yield _call(item.get("call_id"), item.get("name"), given, custom=kind == "custom_tool_call")
        elif isinstance(kind, str) and kind.endswith("_call"):
            yield _call(item.get("id"), item.get("name") or kind, item.get("arguments"), server=True)


def answer_texts(body: Json) -> tuple[str, str]:
    """What the model said and what it thought, as text, in an answer of any format."""
    body = unwrap(body)
    said: list[str] = []
    thought: list[str] = []
    messages = [as_map(c).get("message") for c in as_list(body.get("choices"))] + [body.get("assistant_message")]
    for message in map(as_map, messages):
        said.append(content_text(message.get("content")) or as_text(message.get("refusal")))
        thought.append(as_text(message.get("reasoning_content") or message.get("reasoning")))
    for part in map(as_map, (*as_list(body.get("content")), *as_list(body.get("output")))):
        inner = [part, *map(as_map, (*as_list(part.get("content")), *as_list(part.get("summary"))))]
        reasoning = part.get("type") in ("thinking", "reasoning")
        for block in inner:
            (thought if reasoning else said).append(as_text(block.get("thinking") or block.get("text")))
    if isinstance(body.get("content"), str):
        said.append(body["content"])
    for candidate in as_list(body.get("candidates")):
        for part in map(as_map, as_list(as_map(as_map(candidate).get("content")).get("parts"))):
            (thought if part.get("thought") else said).append(as_text(part.get("text")))
    return "".join(said), "".join(thought)
