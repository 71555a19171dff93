"""Calls in the shape of OpenAI Chat Completions, into which the vocabularies of spans and logs are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from relayweb.recording.conventions.attributes import items, mapping, parsed, text, without_none

_FINISH = {"tool_call": "tool_calls", "tool-calls": "tool_calls", "content-filter": "content_filter"}
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def finish_word(reason: Any) -> str | None:
    """A finish reason by the name that the chat format gives it; an unknown one as it is."""
    return _FINISH.get(reason, reason) if isinstance(reason, str) and reason else None


class Call(msgspec.Struct, gc=False):
    """One call of a model, as a vocabulary tells it."""

    model: Any = None
    parameters: Mapping[str, Any] = {}
    messages: list[dict[str, Any]] = []
    tools: list[Any] = []
    answers: list[tuple[dict[str, Any], Any]] = []
    """Messages with their finish reasons."""
    answered: Mapping[str, Any] = {}
    """Other members of the answer, such as `id` and `model`."""
    usage: dict[str, Any] | None = None

    def request(self) -> dict[str, Any]:
        """The body of the request; what is not told is left out."""
        told = {"messages": self.messages or None, "tools": self.tools or None}
        return without_none({"model": self.model, **self.parameters, **told})

    def answer(self) -> dict[str, Any]:
        """The body of the answer, without choices where none is told."""
        choices = [
            {"index": index, "message": message, "finish_reason": finish_word(finish)}
            for index, (message, finish) in enumerate(self.answers)
        ]
        return without_none({**self.answered, "choices": choices, "usage": self.usage})


class Audio(msgspec.Struct, frozen=True, gc=False):
    """Tokens of audio: read, written, and read from the cache."""

    read: Any = None
    written: Any = None
    cached: Any = None


def tell_usage(
    prompt: Any,
    completion: Any,
    *,
    total: Any = None,
    cached: Any = None,
    written: Any = None,
    reasoning: Any = None,
    audio: Audio | None = None,
) -> dict[str, Any] | None:
    """Usage of the chat format: cached tokens inside the prompt, reasoning inside the completion, audio in both."""
    prompt, completion, total, cached, written, reasoning = map(
        _count, (prompt, completion, total, cached, written, reasoning)
    )
    if prompt is None and completion is None:
        return None
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    audio = audio or Audio()
    kept, heard, said = _count(audio.cached), _count(audio.read), _count(audio.written)
    details = without_none({"cached_tokens": cached, "cache_write_tokens": written, "audio_tokens": heard})
    if kept is not None:
        details["cached_tokens_details"] = {"audio_tokens": kept}
    answered = without_none({"reasoning_tokens": reasoning, "audio_tokens": said})
    return without_none(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": total,
            "prompt_tokens_details": details or None,
            "completion_tokens_details": answered or None,
        }
    )


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def tool_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    given = "{}" if arguments is None else text(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": given}}


# Messages of parts: OpenTelemetry's, the AI SDK's, Bedrock's ---------------------------------------------------------


def messages_of(value: Any, role: str = "user") -> list[dict[str, Any]]:
    """Messages, from a list of them or one, as text or not; answers of several tools in one become one each."""
    found = parsed(value)
    if isinstance(found, list) and not any(isinstance(item, dict) and _is_message(item) for item in found):
        found = {"role": role, "content": found}
    return [said for item in (found if isinstance(found, list) else [found]) for said in _messages(item, role)]


def _is_message(item: dict[str, Any]) -> bool:
    return "role" in item or "parts" in item or ("type" not in item and ("content" in item or "tool_calls" in item))


def _messages(message: Any, role: str) -> list[dict[str, Any]]:
    if not isinstance(message, dict):
        return [] if message is None else [{"role": role, "content": text(message)}]
    role = message.get("role") or role
    parts = message.get("parts", message.get("content"))
    parts = parsed(parts)
    if isinstance(parts, dict):
        parts = [parts]
    if not isinstance(parts, list):
        return [{**message, "role": role, "tool_calls": items(message["tool_calls"])} if message.get("tool_calls") else
                {**message, "role": role}]  # fmt: skip
    out: dict[str, Any] = {k: v for k, v in message.items() if k not in ("parts", "content", "finish_reason")}
    out |= {"role": role, "content": None}
    contents: list[dict[str, Any]] = []
    thoughts: list[str] = []
    answers: list[dict[str, Any]] = []
    calls = items(message.get("tool_calls")).copy()
    for part in parts:
        part = part if isinstance(part, dict) else {"type": "text", "text": text(part)}
        kind = _CAMEL.sub(r"_\1", str(part.get("type") or _kind_of(part))).lower().replace("-", "_")
        inner = part.get("toolUse") or part.get("toolResult") or part
        inner = inner if isinstance(inner, dict) else part
        id = next(
            (inner[k] for k in ("id", "toolCallId", "toolUseId", "tool_use_id", "tool_call_id") if k in inner), None
        )
        if kind in ("tool_call", "tool_use"):
            given = next((inner[k] for k in ("arguments", "input", "args") if k in inner), None)
            calls.append(tool_call(id, inner.get("name", inner.get("toolName")), given))
        elif kind in ("tool_call_response", "tool_result"):
            given = next((inner[k] for k in ("response", "result", "output", "content") if k in inner), "")
            answers.append({"role": "tool", "tool_call_id": id, "content": _answer_text(given)})
        elif kind in ("reasoning", "thinking", "reasoning_content"):
            thoughts.append(_thought(part))
        else:
            contents.append(_content(kind, part))
    if calls:
        out["tool_calls"] = calls
    if thoughts:
        out["reasoning_content"] = "\n".join(thoughts)
    if contents:
        plain = all(part.get("type") == "text" for part in contents)
        out["content"] = "\n".join(text(part["text"]) for part in contents) if plain else contents
    silent = not contents and not thoughts and "tool_calls" not in out
    return answers if answers and silent else [out, *answers]


def _kind_of(part: dict[str, Any]) -> str:
    """Bedrock names a part by its one member."""
    return next((name for name in ("text", "toolUse", "toolResult", "reasoningContent") if name in part), "text")


def _thought(part: dict[str, Any]) -> str:
    told = part.get("content", part.get("text", part.get("thinking", part.get("reasoningContent", ""))))
    if isinstance(told, dict):
        told = mapping(told.get("reasoningText")).get("text", told.get("text", ""))
    return text(told)


def _answer_text(given: Any) -> str:
    if isinstance(given, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in given):
        return "\n".join(part["text"] for part in given)
    if isinstance(given, dict) and given.get("type") in ("text", "json") and "value" in given:  # the AI SDK's
        given = given["value"]
    return text(given)


def _content(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    if kind in ("text", "input_text", "output_text"):
        return {"type": "text", "text": part.get("content", part.get("text", ""))}
    mime = str(part.get("mime_type") or part.get("mediaType") or part.get("mimeType") or "")
    if part.get("modality") == "image" or kind == "image" or mime.startswith("image/"):
        found = next(
            (part[k] for k in ("uri", "url", "content", "image", "data") if isinstance(part.get(k), str)), None
        )
        if found is not None:
            is_address = found.startswith(("http:", "https:", "data:")) or kind == "uri"
            url = found if is_address else f"data:{mime or 'image/png'};base64,{found}"
            return {"type": "image_url", "image_url": {"url": url}}
    return part
