"""Chunks of a stream, as JSON, put together to the response they make: one accumulator for each wire format.

Each has the same face: `observe(chunk)` takes anything and never raises, `finalize()` gives the response for the record
from what was observed so far (a cut stream gives what arrived, what is missing stays missing), `response(base)` the one
for a caller that must have a complete object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol


class Accumulator(Protocol):
    """What every accumulator offers."""

    def observe(self, chunk: Any) -> None: ...
    def finalize(self) -> dict[str, Any]: ...
    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]: ...


def for_api_mode(api_mode: str) -> Accumulator | None:
    """A new accumulator for the stream of one call, None where the wire format is not known."""
    kind = _KINDS.get(api_mode)
    return kind() if kind else None


def _index(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _combined(base: Mapping[str, Any] | None, made: dict[str, Any]) -> dict[str, Any]:
    """Base fields, overridden by assembled ones; content is taken if it is not empty or base has none (R65)."""
    out = dict(base or {})
    for key, value in made.items():
        if key in ("content", "output", "choices") and not value and out.get(key):
            continue
        out[key] = value
    return out


class ChatStreamAccumulator:
    """`chat.completion.chunk` objects to one `chat.completion` (R60)."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._usage: Any = None
        self._choices: dict[int, _Choice] = {}

    def observe(self, chunk: Any) -> None:
        if not isinstance(chunk, Mapping):
            return
        for key, value in chunk.items():
            if key not in ("choices", "usage", "object") and (value is not None or key not in self._top):
                self._top[key] = value
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, Mapping):
                index = _index(choice.get("index"))
                self._choice(position if index is None else index).observe(choice)

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice(index)
        return self._choices[index]

    def finalize(self) -> dict[str, Any]:
        return self._build(None)

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _combined(base, self._build("stop"))

    def _build(self, missing_finish: str | None) -> dict[str, Any]:
        out = {**self._top, "object": "chat.completion"}
        out["choices"] = [self._choices[i].build(missing_finish) for i in sorted(self._choices)]
        if self._usage is not None:
            out["usage"] = self._usage
        return out


class _Choice:
    """One choice of a Chat Completions stream."""

    _KNOWN = frozenset(
        {"role", "content", "reasoning_content", "reasoning", "refusal", "reasoning_details", "tool_calls"}
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish: Any = None
        self.other: dict[str, Any] = {}
        self.logprobs: dict[str, list[Any]] = {}
        self.message: dict[str, Any] = {}
        self.text: dict[str, list[str]] = {}
        self.parts: list[Any] = []
        self.details: list[Any] = []
        self.calls: list[dict[str, Any]] = []
        self.latest: dict[int, dict[str, Any]] = {}  # index -> the newest call that has it

    def observe(self, choice: Mapping[str, Any]) -> None:
        if choice.get("finish_reason") is not None:
            self.finish = choice["finish_reason"]
        for key, value in choice.items():
            if key == "logprobs" and isinstance(value, Mapping):
                for name, items in value.items():
                    if isinstance(items, list):
                        self.logprobs.setdefault(name, []).extend(items)
            elif key not in ("index", "delta", "finish_reason") and value is not None:
                self.other[key] = value
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            delta = choice.get("message")
            self.other.pop("message", None)
        if isinstance(delta, Mapping):
            self._delta(delta)

    def _delta(self, delta: Mapping[str, Any]) -> None:
        role = delta.get("role")
        if isinstance(role, str) and role:
            self.message["role"] = role
        content = delta.get("content")
        if isinstance(content, list):
            self.parts.extend(content)
        for name in ("content", "reasoning_content", "reasoning", "refusal"):
            value = delta.get(name)
            if isinstance(value, str):
                pieces = self.text.setdefault(name, [])
                if name.startswith("reasoning") and _glued(pieces, value):
                    pieces.append("\n\n")
                pieces.append(value)
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self.details.extend(details)
        calls = delta.get("tool_calls")
        for position, fragment in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(fragment, Mapping):
                index = _index(fragment.get("index"))
                self._tool_call(position if index is None else index, fragment)
        for key, value in delta.items():
            if key not in self._KNOWN and value is not None:
                self._other_delta(key, value)

    def _other_delta(self, key: str, value: Any) -> None:
        old = self.message.get(key)
        if isinstance(old, list) and isinstance(value, list):
            self.message[key] = [*old, *value]
        elif isinstance(old, Mapping) and isinstance(value, Mapping):  # function_call, audio
            self.message[key] = {
                **old,
                **{
                    k: old[k] + v if isinstance(v, str) and isinstance(old.get(k), str) else v for k, v in value.items()
                },
            }
        else:
            self.message[key] = value

    def _tool_call(self, index: int, fragment: Mapping[str, Any]) -> None:
        call = self.latest.get(index)
        given = fragment.get("id")
        if call is None or (given and call.get("id") and given != call["id"]):
            call = self.latest[index] = {"index": index}
            self.calls.append(call)
        for key, value in fragment.items():
            if key == "index" or value is None:
                continue
            if key in ("function", "custom") and isinstance(value, Mapping):
                call[key] = _joined(call.get(key), value)
            elif key not in call or value != "":
                call[key] = value

    def build(self, missing_finish: str | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, **self.message}
        for name, pieces in self.text.items():
            message[name] = "".join(pieces)
        if self.parts:
            text = message["content"]
            message["content"] = [*([{"type": "text", "text": text}] if text else []), *self.parts]
        if self.details:
            message["reasoning_details"] = self.details
        if self.calls:
            ordered = sorted(self.calls, key=lambda c: c["index"])
            message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in ordered]
        out = {"index": self.index, "message": message}
        if self.logprobs:
            out["logprobs"] = self.logprobs
        finish = self.finish if self.finish is not None else missing_finish
        return {**out, "finish_reason": finish, **self.other}


def _glued(pieces: list[str], new: str) -> bool:
    """Whether a new reasoning block starts without a break: a heading right after the end of a sentence."""
    return bool(pieces) and new.startswith("**") and bool(pieces[-1]) and not pieces[-1][-1].isspace()


def _joined(old: Any, new: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call's function: its name as given (some providers repeat it), its argument text joined."""
    out = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if key in ("arguments", "input") and isinstance(value, str):
            out[key] = (out.get(key) or "") + value
        elif value is not None and (value != "" or key not in out):
            out[key] = value
    return out


class AnthropicStreamAccumulator:
    """Events of the Messages API to one `message` (R61-R64)."""

    _TEXT = {
        "text_delta": ("text", "text"),
        "thinking_delta": ("thinking", "thinking"),
        "signature_delta": ("signature", "signature"),
        "compaction_delta": ("content", "content"),
    }
    _BLOCK = {
        "text_delta": "text",
        "citations_delta": "text",
        "thinking_delta": "thinking",
        "signature_delta": "thinking",
        "compaction_delta": "compaction",
        "input_json_delta": "tool_use",
    }

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}

    def observe(self, chunk: Any) -> None:
        if not isinstance(chunk, Mapping):
            return
        kind = chunk.get("type")
        if kind == "message_start" and isinstance(chunk.get("message"), Mapping):
            message = dict(chunk["message"])
            blocks = message.pop("content", None)
            for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
                if isinstance(block, Mapping):
                    self._blocks[index] = dict(block)
            self._message.update(message)
        elif kind == "content_block_start":
            at, block = _index(chunk.get("index")), chunk.get("content_block")
            if at is not None and isinstance(block, Mapping):
                self._blocks[at] = dict(block)
                self._inputs.pop(at, None)
        elif kind == "content_block_delta":
            at, delta = _index(chunk.get("index")), chunk.get("delta")
            if at is not None and isinstance(delta, Mapping):
                self._delta(at, delta)
        elif kind == "message_delta":
            self._message_delta(chunk)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type")
        if not isinstance(kind, str) or kind not in self._BLOCK:
            return
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = {"type": self._BLOCK[kind]}
        if kind == "input_json_delta":
            piece = delta.get("partial_json")
            if isinstance(piece, str):
                self._inputs.setdefault(index, []).append(piece)
        elif kind == "citations_delta":
            citations = block.get("citations")
            block["citations"] = [*(citations if isinstance(citations, list) else []), delta.get("citation")]
        else:
            source, target = self._TEXT[kind]
            if source not in delta:
                return
            piece, old = delta[source], block.get(target)
            if isinstance(piece, str):
                block[target] = old + piece if isinstance(old, str) else piece
            elif target not in block:
                block[target] = piece  # a null has a meaning of its own
            for key, value in delta.items():
                if key not in ("type", source):
                    block[key] = value

    def _message_delta(self, chunk: Mapping[str, Any]) -> None:
        delta = chunk.get("delta")
        if isinstance(delta, Mapping):
            self._message.update(delta)
        for key, value in chunk.items():
            if key == "usage" and isinstance(value, Mapping):
                start = self._message.get("usage")
                new = {k: v for k, v in value.items() if v is not None}
                self._message["usage"] = {**(start if isinstance(start, Mapping) else {}), **new}
            elif key not in ("type", "delta", "usage"):
                self._message[key] = value

    def finalize(self) -> dict[str, Any]:
        content = []
        for index in sorted(self._blocks):
            block = dict(self._blocks[index])
            if index in self._inputs:
                block["input"] = _parsed("".join(self._inputs[index]), block.get("input"))
            content.append(block)
        return {"type": "message", "role": "assistant", **self._message, "content": content}

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _combined(base, self.finalize())


def _parsed(text: str, empty: Any) -> Any:
    """The tool input a text means; the text itself when it is no JSON (an input that was cut)."""
    if not text:
        return {} if empty is None else empty
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class ResponsesStreamAccumulator:
    """Events of the Responses API to one `response`: the terminal event's object, else what the deltas add up to."""

    _TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})

    def __init__(self) -> None:
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._terminal = False

    def observe(self, chunk: Any) -> None:
        if not isinstance(chunk, Mapping):
            return
        kind = chunk.get("type")
        if not isinstance(kind, str):
            return
        if isinstance(chunk.get("response"), Mapping) and kind.startswith("response."):
            self._terminal = self._terminal or kind in self._TERMINAL
            self._response.update(chunk["response"])
            return
        if kind == "error":
            self._response["error"] = {k: v for k, v in chunk.items() if k not in ("type", "sequence_number")}
            return
        index = _index(chunk.get("output_index"))
        if index is not None:
            self._item_event(kind, index, chunk)

    def _item_event(self, kind: str, index: int, chunk: Mapping[str, Any]) -> None:
        if kind in ("response.output_item.added", "response.output_item.done"):
            if isinstance(chunk.get("item"), Mapping):
                self._items[index] = dict(chunk["item"])
            return
        item = self._items.setdefault(index, _new_item(kind, chunk))
        part, delta = chunk.get("part"), chunk.get("delta")
        if kind.startswith("response.content_part.") and isinstance(part, Mapping):
            _put(item, "content", _index(chunk.get("content_index")) or 0, part)
        elif kind.startswith("response.reasoning_summary_part.") and isinstance(part, Mapping):
            _put(item, "summary", _index(chunk.get("summary_index")) or 0, part)
        elif kind in ("response.output_text.annotation.added",):
            target = _part(item, "content", _index(chunk.get("content_index")) or 0, "output_text")
            target["annotations"] = [*(target.get("annotations") or []), chunk.get("annotation")]
        elif kind.endswith(".delta") and isinstance(delta, str):
            self._text(kind, item, chunk, delta, append=True)
        elif kind.endswith(".done"):
            self._text(kind, item, chunk, _first_text(chunk), append=False)

    def _text(
        self, kind: str, item: dict[str, Any], chunk: Mapping[str, Any], text: str | None, *, append: bool
    ) -> None:
        if text is None:
            return
        where = _TEXT_PLACES.get(kind.removeprefix("response.").rpartition(".")[0])
        if where is None:
            return
        member, part_type, field = where
        target = item
        if part_type is not None:
            number = chunk.get("summary_index") if member == "summary" else chunk.get("content_index")
            target = _part(item, member, _index(number) or 0, part_type)
        old = target.get(field)
        target[field] = old + text if append and isinstance(old, str) else text

    def finalize(self) -> dict[str, Any]:
        out: dict[str, Any] = {"object": "response", **self._response}
        items = [self._items[i] for i in sorted(self._items)]
        if items and not (self._terminal and out.get("output")):
            out["output"] = items
        out.setdefault("output", [])
        return out

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _combined(base, self.finalize())


_TEXT_PLACES: dict[str, tuple[str, str | None, str]] = {
    "output_text": ("content", "output_text", "text"),
    "refusal": ("content", "refusal", "refusal"),
    "reasoning_text": ("content", "reasoning_text", "text"),
    "reasoning_summary_text": ("summary", "summary_text", "text"),
    "function_call_arguments": ("", None, "arguments"),
    "custom_tool_call_input": ("", None, "input"),
    "mcp_call_arguments": ("", None, "arguments"),
    "code_interpreter_call_code": ("", None, "code"),
}


def _new_item(kind: str, chunk: Mapping[str, Any]) -> dict[str, Any]:
    place = kind.removeprefix("response.").partition(".")[0]
    types = {
        "function_call_arguments": "function_call",
        "custom_tool_call_input": "custom_tool_call",
        "mcp_call_arguments": "mcp_call",
        "code_interpreter_call_code": "code_interpreter_call",
    }
    item: dict[str, Any] = {"type": "reasoning" if place.startswith("reasoning") else types.get(place, "message")}
    if isinstance(chunk.get("item_id"), str):
        item["id"] = chunk["item_id"]
    return item


def _first_text(chunk: Mapping[str, Any]) -> str | None:
    for name in ("text", "refusal", "arguments", "input", "code"):
        if isinstance(chunk.get(name), str):
            return str(chunk[name])
    return None


def _part(item: dict[str, Any], member: str, index: int, part_type: str) -> dict[str, Any]:
    parts = item.get(member)
    if not isinstance(parts, list) or index >= len(parts) or not isinstance(parts[index], dict):
        _put(item, member, index, {"type": part_type})
    found: dict[str, Any] = item[member][index]
    return found


def _put(item: dict[str, Any], member: str, index: int, part: Mapping[str, Any]) -> None:
    parts = item.get(member)
    parts = list(parts) if isinstance(parts, list) else []
    if index > len(parts) + 64 or index < 0:
        return
    while len(parts) <= index:
        parts.append({})
    parts[index] = dict(part)
    item[member] = parts


_KINDS: dict[str, type[ChatStreamAccumulator | AnthropicStreamAccumulator | ResponsesStreamAccumulator]] = {
    "chat_completions": ChatStreamAccumulator,
    "codex_responses": ResponsesStreamAccumulator,
    "anthropic_messages": AnthropicStreamAccumulator,
}
