"""What the pieces of a stream say, one by one and together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from adapters.marks import UNREADABLE_CHUNK
from relayweb.recording.conventions.answers import finish_reason, thought_text, tool_input
from relayweb.recording.conventions.errors import ErrorFacts, error_object
from relayweb.recording.conventions.shapes import (
    ANTHROPIC,
    ChunkKind,
    Json,
    as_list,
    as_map,
    as_text,
    content_text,
    known_api_mode,
    text_or_none,
    usage_object,
)
from relayweb.recording.conventions.usage import UNKNOWN, Usage, merge, read_usage


class ChunkFacts(msgspec.Struct, frozen=True, gc=False):
    """What one `llm.chunk` mark says, or one chunk's content."""

    index: int | None = None
    kind: ChunkKind = "other"
    event_type: str | None = None
    finish_reason: str | None = None
    usage: Usage = UNKNOWN
    error: ErrorFacts | None = None


def read_chunk_mark(data: Json, *, api_mode: Json = None) -> ChunkFacts:
    """What an `llm.chunk` mark says. Relay gives index, event type, usage and reasons, never content."""
    data = as_map(data)
    index = data.get("chunk_index")
    provider = known_api_mode(data.get("provider")) or known_api_mode(api_mode)
    finish: Json = data.get("stop_reason") or data.get("finish_reason")
    for reason in as_list(data.get("finish_reasons")):
        finish = (reason if isinstance(reason, str) else as_map(reason).get("finish_reason")) or finish
    event_type = text_or_none(data.get("event_type"))
    error = error_object(data)
    if error is None and event_type in ("error", "response.failed"):
        error = ErrorFacts(type=event_type)
    return ChunkFacts(
        index=index if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 2**31 else None,
        event_type=event_type,
        finish_reason=text_or_none(finish, 64),
        usage=read_usage(data.get("usage"), beside=provider == ANTHROPIC),
        error=error,
    )


_ANTHROPIC_DELTAS: dict[str, tuple[ChunkKind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "input_json_delta": ("tool", "partial_json"),
    "compaction_delta": ("other", "content"),
}
_RESPONSES_DELTAS: tuple[tuple[str, ChunkKind], ...] = (
    ("response.output_text.delta", "text"),
    ("response.refusal.delta", "text"),
    ("response.audio.transcript.delta", "text"),
    ("response.reasoning", "reasoning"),
    ("response.function_call_arguments.delta", "tool"),
    ("response.custom_tool_call_input.delta", "tool"),
    ("response.mcp_call_arguments.delta", "tool"),
    ("response.code_interpreter_call_code.delta", "tool"),
)


def _chat_delta(choices: Sequence[Json]) -> tuple[ChunkKind, str]:
    parts: dict[ChunkKind, list[str]] = {"text": [], "reasoning": [], "tool": []}
    named = False
    for choice in choices:
        delta = as_map(as_map(choice).get("delta") or as_map(choice).get("message"))
        parts["text"] += [
            content_text(delta.get("content")),
            as_text(delta.get("refusal")),
            as_text(as_map(choice).get("text")),
        ]
        if "audio" in delta:
            parts["text"].append(as_text(as_map(delta["audio"]).get("transcript")))
        parts["reasoning"].append(as_text(delta.get("reasoning_content") or delta.get("reasoning")))
        parts["reasoning"] += map(thought_text, as_list(delta.get("content")))
        for call in (*as_list(delta.get("tool_calls")), delta.get("function_call")):
            function = as_map(as_map(call).get("function") or call)
            custom = as_map(as_map(call).get("custom"))
            parts["tool"].append(tool_input(function.get("arguments")) or tool_input(custom.get("input")))
            named = named or bool(function)
    for kind, texts in parts.items():
        if text := "".join(texts):
            return kind, text
    return ("tool", "") if named else ("other", "")


def _anthropic_chunk(chunk: Mapping[str, Json]) -> tuple[ChunkKind, str]:
    delta = as_map(chunk.get("delta"))
    if delta.get("type") in _ANTHROPIC_DELTAS:
        kind, member = _ANTHROPIC_DELTAS[delta["type"]]
        return kind, as_text(delta.get(member))
    block = as_map(chunk.get("content_block"))  # a whole block may come without any delta
    if block.get("type") == "text":
        return "text", as_text(block.get("text"))
    if block.get("type") == "thinking":
        return "reasoning", as_text(block.get("thinking"))
    if not str(block.get("type", "")).endswith("tool_use"):
        return "other", ""
    return "tool", tool_input(block.get("input")) if block.get("input") else ""


def chunk_content(api_mode: Json, chunk: Json) -> tuple[ChunkKind, str]:
    """Kind and text of one streamed chunk. Its shape decides; `api_mode` is there for symmetry."""
    if isinstance(chunk, str):
        return "text", chunk
    chunk = as_map(chunk)
    kind = chunk.get("type")
    if kind == UNREADABLE_CHUNK:
        return "other", as_text(chunk.get("text"))
    if isinstance(chunk.get("choices"), (list, tuple)):
        return _chat_delta(chunk["choices"])
    if isinstance(kind, str) and kind.startswith("response."):
        for prefix, found in _RESPONSES_DELTAS:
            if kind.startswith(prefix) and kind.endswith(".delta"):
                return found, as_text(chunk.get("delta"))
        return "other", ""
    if isinstance(chunk.get("candidates"), (list, tuple)):
        parts = [as_map(p) for c in chunk["candidates"] for p in as_list(as_map(as_map(c).get("content")).get("parts"))]
        called = [as_map(p.get("functionCall") or p.get("function_call")) for p in parts]
        if any(called):
            return "tool", "".join(tool_input(call.get("args")) for call in called)
        spoken = "".join(as_text(p.get("text")) for p in parts if not p.get("thought"))
        thought = "".join(as_text(p.get("text")) for p in parts if p.get("thought"))
        return ("text", spoken) if spoken else ("reasoning", thought) if thought else ("other", "")
    if isinstance(chunk.get("contentBlockDelta"), Mapping):
        return _bedrock_delta(as_map(chunk["contentBlockDelta"].get("delta")))
    message = as_map(chunk.get("message") or as_map(chunk.get("delta")).get("message"))
    if "done" in chunk or (isinstance(kind, str) and kind.endswith("-delta") and message):
        return _message_delta(message, chunk)
    return _anthropic_chunk(chunk)


def _bedrock_delta(delta: Mapping[str, Json]) -> tuple[ChunkKind, str]:
    if "toolUse" in delta:
        return "tool", as_text(as_map(delta["toolUse"]).get("input"))
    if "reasoningContent" in delta:
        return "reasoning", as_text(as_map(delta["reasoningContent"]).get("text"))
    return ("text" if "text" in delta else "other"), as_text(delta.get("text"))


def _message_delta(message: Mapping[str, Json], chunk: Mapping[str, Json]) -> tuple[ChunkKind, str]:
    """A piece of Ollama's or Cohere's."""
    calls = message.get("tool_calls")
    if calls:
        first = as_map(next(iter(as_list(calls)), calls))
        return "tool", tool_input(as_map(first.get("function")).get("arguments"))
    content = message.get("content", chunk.get("response"))
    if thought := message.get("thinking") or message.get("tool_plan") or as_map(content).get("thinking"):
        return "reasoning", as_text(thought)
    said = as_text(as_map(content).get("text")) or content_text(content)
    return ("text" if said else "other"), said


def read_chunk(api_mode: Json, chunk: Json) -> ChunkFacts:
    """What one chunk's content says beyond its text: usage, finish reason, an error inside the stream."""
    body = as_map(chunk)
    mode = known_api_mode(api_mode) or (ANTHROPIC if "message" in body or "delta" in body else None)
    inner = as_map(body.get("message")) or as_map(body.get("response"))
    usage = usage_object(body) or usage_object(inner)
    finish = finish_reason(body) or finish_reason(body.get("delta"))
    if finish is None and body.get("type") in ("response.completed", "response.incomplete", "response.failed"):
        finish = finish_reason({"object": "response", **inner})
    return ChunkFacts(
        kind=chunk_content(api_mode, chunk)[0],
        event_type=text_or_none(body.get("type") or body.get("object")),
        finish_reason=finish,
        usage=read_usage(usage, beside=mode == ANTHROPIC),
        error=error_object(body),
    )


def _error_order(error: ErrorFacts) -> tuple[bool, str, str, int]:
    return error.message is None, error.message or "", error.type or "", error.status or 0


class Stream(msgspec.Struct, frozen=True, gc=False):
    """What a stream's chunks say together. `fold` gives the same value in any order and with repeats."""

    finish_index: int = -1
    finish_reason: str | None = None
    usage: Usage = UNKNOWN
    error: ErrorFacts | None = None

    def fold(self, chunk: ChunkFacts) -> Stream:
        index, finish = self.finish_index, self.finish_reason
        at = -1 if chunk.index is None else chunk.index
        if chunk.finish_reason and (finish is None or (at, chunk.finish_reason) > (index, finish)):
            index, finish = at, chunk.finish_reason
        errors = [e for e in (self.error, chunk.error) if e is not None]
        error = min(
            errors, key=lambda e: (e.message is None, e.message or "", e.type or "", e.status or 0), default=None
        )
        usage = merge(self.usage, chunk.usage) if chunk.usage.known else self.usage
        return Stream(finish_index=index, finish_reason=finish, usage=usage, error=error)
