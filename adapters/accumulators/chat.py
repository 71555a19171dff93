"""Chat Completions chunks to one response (R60)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from adapters.accumulators.base import combined, counts, index_of
from adapters.marks import UNREADABLE_CHUNK

_HEADING = re.compile(r"\*\*[^*\s]")
_SENTENCE_ENDS = ".!?:…)\"'`*"


class ChatStreamAccumulator:
    """`chat.completion.chunk` objects to one `chat.completion` (R60)."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._usage: Any = None
        self._choices: dict[int, _Choice] = {}

    def observe(self, chunk: Any) -> None:
        if not isinstance(chunk, Mapping) or chunk.get("type") == UNREADABLE_CHUNK:
            return
        for key, value in chunk.items():
            if key not in ("choices", "usage", "object") and (value is not None or key not in self._top):
                self._top[key] = value
        if chunk.get("usage") and (not self._usage or counts(chunk["usage"])):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, Mapping):
                index = index_of(choice.get("index"))
                self._choice(position if index is None else index).observe(choice)

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice(index)
        return self._choices[index]

    def finalize(self) -> dict[str, Any]:
        return self._build(None)

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return combined(base, self._build("stop"))

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
                index = index_of(fragment.get("index"))
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
    """Whether a new reasoning block starts without a break: a bold heading right after the end of a sentence."""
    if not _HEADING.match(new):
        return False
    before = "".join(pieces)
    return before[-1:] in _SENTENCE_ENDS and bool(before) and before.count("**") % 2 == 0


def _joined(old: Any, new: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call's function: its name as given (some providers repeat it), its argument text joined."""
    out = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if key in ("arguments", "input") and isinstance(value, str):
            out[key] = (out.get(key) or "") + value
        elif value is not None and (value != "" or key not in out):
            out[key] = value
    return out
