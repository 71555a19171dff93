"""What an answer says: finish reason, tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from relayweb.recording.conventions.shapes import Json, as_list, as_map, as_text, content_text, text_or_none


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call of a tool as the model wrote it: `arguments` digit for digit, `complete` when they are JSON."""

    id: str | None
    name: str | None
    arguments: str
    complete: bool
    server: bool = False


_ANSWERS = frozenset(("choices", "candidates", "output", "content", "usageMetadata", "usage"))


def _gemini_array(data: Sequence[Json]) -> Mapping[str, Json]:
    """Gemini's stream without `alt=sse`, which is one array: the last object, with the candidates of all."""
    pieces = [as_map(piece) for piece in data]
    if not pieces or not all("candidates" in piece or "usageMetadata" in piece for piece in pieces):
        return {}
    return {**pieces[-1], "candidates": [found for piece in pieces for found in as_list(piece.get("candidates"))]}


def unwrap(data: Json) -> Mapping[str, Json]:
    """The provider's body inside what integrations put around it (LangChain's serialised messages)."""
    if isinstance(data, (list, tuple)):
        return _gemini_array(data)
    body = as_map(data)
    inside = body.get("response", body.get("result"))
    if isinstance(inside, Mapping) and _ANSWERS.isdisjoint(body) and not _ANSWERS.isdisjoint(inside):
        return inside  # Gemini's Code Assist, Cloudflare
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
    found = found or body.get("done_reason") or as_map(body.get("messageStop")).get("stopReason")
    for result in as_list(body.get("results")):
        found = as_map(result).get("stop_reason") or found
    found = found or as_map(body.get("promptFeedback")).get("blockReason")  # Gemini would not read the prompt
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


def tool_input(value: Json) -> str:
    """The arguments of a tool call as text, whether they came as text or as values."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


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
    return tool_input(value), True


def _call(
    id: Json, name: Json, arguments: Json, *, server: bool = False, custom: bool = False, cut: bool = False
) -> ToolCall:
    """One call. Of one that may have been `cut` only an object is whole, which ends where it ends."""
    text, complete = (arguments, True) if custom and isinstance(arguments, str) else _arguments(arguments)
    if cut and (custom or not text.rstrip().endswith("}") or arguments == {}):
        complete = False
    return ToolCall(text_or_none(id), text_or_none(name), text, complete, server)


def tool_calls(body: Json) -> list[ToolCall]:
    """The tool calls in an answer of any format, with unfinished ones and those the provider ran itself (`server`)."""
    return list(_tool_calls(unwrap(body)))


def _spoken(body: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The messages of an answer: of each choice, or the one of Cohere and Ollama, Bedrock or Hermes."""
    messages = [as_map(c).get("message") for c in as_list(body.get("choices"))]
    one = (body.get("assistant_message"), body.get("message"), as_map(body.get("output")).get("message"))
    return [as_map(message) for message in (*messages, *one) if message]


def _gemini_parts(body: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    for candidate in as_list(body.get("candidates")):
        yield from map(as_map, as_list(as_map(as_map(candidate).get("content")).get("parts")))


_CUT = (None, "length", "max_tokens")
"""Reasons to stop, in the middle of a tool call if there is one."""


_RUN_BY_THE_APP = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call")
_GIVEN = ("arguments", "action", "operation", "queries", "code")
"""Where calls of OpenAI's own tools keep what they were given."""


def _tool_calls(body: Mapping[str, Json]) -> Iterator[ToolCall]:
    messages = _spoken(body)
    choices = [choice for choice in map(as_map, as_list(body.get("choices"))) if "finish_reason" in choice]
    cut = bool(choices) and all(choice["finish_reason"] in _CUT for choice in choices)
    for message in messages:
        if legacy := as_map(message.get("function_call")):
            yield _call(None, legacy.get("name"), legacy.get("arguments"), cut=cut)
        blocks = as_list(message.get("content"))
        for place, block in enumerate(blocks, 1):
            if used := as_map(as_map(block).get("toolUse")):
                broken = body.get("stopReason") == "max_tokens" and place == len(blocks)
                yield _call(used.get("toolUseId"), used.get("name"), used.get("input"), cut=broken)
    for part in _gemini_parts(body):
        if called := as_map(part.get("functionCall") or part.get("function_call")):
            yield _call(called.get("id"), called.get("name"), called.get("args"))
    for message in (*messages, body):
        for call in as_list(message.get("tool_calls")):
            call, custom = as_map(call), as_map(as_map(call).get("custom"))
            function = custom or as_map(call.get("function"))
            arguments = custom.get("input") or function.get("arguments", call.get("arguments", call.get("args")))
            name = function.get("name") or call.get("name")
            yield _call(call.get("id"), name, arguments, custom=bool(custom), cut=cut)
    blocks = as_list(body.get("content"))
    for place, block in enumerate(map(as_map, blocks), 1):
        kind = block.get("type")
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            # Only the last block of a stream that was cut may lack something.
            cut = "stop_reason" in body and body["stop_reason"] in _CUT and place == len(blocks)
            given = block.get("input")
            yield _call(block.get("id"), block.get("name"), given, server=kind != "tool_use", cut=cut)
    for item in as_list(body.get("output")):
        item = as_map(item)
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            given, cut = item.get("arguments", item.get("input")), item.get("status") in ("in_progress", "incomplete")
            yield _call(item.get("call_id"), item.get("name"), given, custom=kind == "custom_tool_call", cut=cut)
        elif isinstance(kind, str) and kind.endswith("_call"):
            given = next((item[name] for name in _GIVEN if item.get(name) is not None), None)
            app, code = kind in _RUN_BY_THE_APP, "arguments" not in item
            id, name = item.get("call_id" if app else "id"), item.get("name") or kind
            yield _call(id, name, given, server=not app, custom=code)


_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "tool_plan")


def thought_text(part: Json) -> str:
    """The thoughts in a part of a message: Mistral's are parts again."""
    thinking = as_map(part).get("thinking")
    return thinking if isinstance(thinking, str) else content_text(thinking)


def answer_texts(body: Json) -> tuple[str, str]:
    """What the model said and what it thought, as text, in an answer of any format."""
    body = unwrap(body)
    said: list[str] = []
    thought: list[str] = []
    for message in _spoken(body):
        spoken = as_text(as_map(message.get("audio")).get("transcript"))
        said.append(content_text(message.get("content")) or as_text(message.get("refusal")) or spoken)
        thought.append(next((as_text(message[k]) for k in _THOUGHTS if message.get(k)), ""))
        for block in as_list(message.get("content")):
            told = as_map(as_map(block).get("reasoningContent"))
            thought.append(as_text(as_map(told.get("reasoningText")).get("text")) or thought_text(block))
    said += [as_text(as_map(choice).get("text")) for choice in as_list(body.get("choices"))]
    said += [as_text(as_map(result).get("generated_text")) for result in as_list(body.get("results"))]
    said += [as_text(body.get("text")), as_text(body.get("response"))]
    for part in map(as_map, (*as_list(body.get("content")), *as_list(body.get("output")))):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("_result"):  # what a tool of the provider gave
            continue
        inner = [part, *map(as_map, (*as_list(part.get("content")), *as_list(part.get("summary"))))]
        for block in inner:
            text = as_text(block.get("thinking") or block.get("text") or block.get("refusal"))
            (thought if kind in ("thinking", "reasoning") else said).append(text)
    if isinstance(body.get("content"), str):
        said.append(body["content"])
    for part in _gemini_parts(body):
        (thought if part.get("thought") else said).append(as_text(part.get("text")))
    return "".join(said), "".join(thought)
