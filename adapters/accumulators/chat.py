"""Chat Completions chunks to one response (R60)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from adapters.accumulators.base import RECORDED, combined, counts, gathered, grown, index_of, settled
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
        if not isinstance(chunk, dict) or chunk.get("type") == UNREADABLE_CHUNK:
            return
        for key, value in chunk.items():
            if key not in ("choices", "usage", "object") and (value is not None or key not in self._top):
                self._top[key] = value
        if chunk.get("usage") and (not self._usage or counts(chunk["usage"])):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                index = index_of(choice.get("index"))
                self._choice(position if index is None else index).observe(choice)

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index)
        return choice

    def finalize(self) -> dict[str, Any]:
        return self._build(None, RECORDED)

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return combined(base, self._build("stop"))

    def _build(self, missing_finish: str | None, most: int | None = None) -> dict[str, Any]:
        out = {**self._top, "object": "chat.completion"}
        out["choices"] = [self._choices[i].build(missing_finish, most) for i in sorted(self._choices)[:most]]
        if self._usage is not None:
            out["usage"] = self._usage
        return out


class _Choice:
    """One choice of a Chat Completions stream."""

    _TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal"})

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish: Any = None
        self.other: dict[str, Any] = {}
        self.logprobs: dict[str, list[Any]] = {}
        self.message: dict[str, Any] = {}
        self.text: dict[str, list[str]] = {}
        self.bold: dict[str, _Bold] = {}
        self.parts: list[Any] = []
        self.details: list[Any] = []
        self.calls: list[dict[str, Any]] = []
        self.latest: dict[int, dict[str, Any]] = {}  # index -> the newest call that has it
        self.named: dict[tuple[int, str], dict[str, Any]] = {}  # by index and id

    def observe(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")
            self.other.pop("message", None)
        if isinstance(delta, dict):
            self._delta(delta)
        for key, value in choice.items():
            if value is None or key in ("index", "delta"):
                continue
            if key == "finish_reason":
                self.finish = value
            elif key == "logprobs" and isinstance(value, dict):
                for name, items in value.items():
                    if isinstance(items, list):
                        self.logprobs.setdefault(name, []).extend(items)
            elif key != "message" or value is not delta:
                self.other[key] = value

    def _delta(self, delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            if key in self._TEXTS and isinstance(value, str):
                self._add_text(key, value)
            elif key == "content" and isinstance(value, list):
                self.parts.extend(value)
            elif key == "role":
                if value and isinstance(value, str):
                    self.message["role"] = value
            elif key == "reasoning_details":
                if isinstance(value, list):
                    self.details.extend(value)
            elif key == "tool_calls":
                self._tool_calls(value)
            elif key not in self._TEXTS and value is not None:
                self._other_delta(key, value)

    def _add_text(self, name: str, text: str) -> None:
        pieces = self.text.setdefault(name, [])
        if name.startswith("reasoning"):
            bold = self.bold.setdefault(name, _Bold())
            if _HEADING.match(text) and bold.is_closed and pieces[-1][-1:] in _SENTENCE_ENDS:
                pieces.append("\n\n")  # a new block that starts without a break
            bold.add(text)
        if text or not pieces:
            pieces.append(text)

    def _tool_calls(self, fragments: Any) -> None:
        for position, fragment in enumerate(fragments if isinstance(fragments, list) else ()):
            if isinstance(fragment, dict):
                index = _place(fragment.get("index"))
                self._tool_call(position if index is None else index, fragment)

    def _other_delta(self, key: str, value: Any) -> None:
        old = self.message.get(key)
        if isinstance(old, list) and isinstance(value, list):
            self.message[key] = gathered(old, value)
        elif isinstance(old, Mapping) and isinstance(value, Mapping):  # function_call, audio
            self.message[key] = {
                **old,
                **{k: grown(old.get(k), v) if isinstance(v, str) else v for k, v in value.items()},
            }
        else:
            self.message[key] = value

    def _tool_call(self, index: int, fragment: Mapping[str, Any]) -> None:
        call = self.latest.get(index)
        given = fragment.get("id")
        other = given and call is not None and call.get("id") and given != call["id"]
        if other and isinstance(given, str) and (index, given) in self.named:
            call = self.latest[index] = self.named[index, given]  # fragments without an index, or all with the same
        elif call is None or other or _is_another(call, fragment):
            call = self.latest[index] = {"index": index}
            self.calls.append(call)
        if given and isinstance(given, str):
            self.named[index, given] = call
        for key, value in fragment.items():
            if key == "index" or value is None:
                continue
            if key in ("function", "custom") and isinstance(value, Mapping):
                call[key] = _joined(call.get(key), value)
            elif key not in call or value != "":
                call[key] = value

    def build(self, missing_finish: str | None, most: int | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, **settled(self.message, 2)}
        for name, pieces in self.text.items():
            message[name] = "".join(pieces)
        if self.parts:
            text = message["content"]
            message["content"] = [*([{"type": "text", "text": text}] if text else []), *self.parts[:most]]
        if self.details:
            message["reasoning_details"] = self.details[:most]
        if self.calls:
            ordered = sorted(self.calls, key=lambda c: c["index"])[:most]
            message["tool_calls"] = [settled({k: v for k, v in c.items() if k != "index"}, 2) for c in ordered]
        out = {"index": self.index, "message": message}
        if self.logprobs:
            out["logprobs"] = {name: items[:most] for name, items in self.logprobs.items()}
        finish = self.finish if self.finish is not None else missing_finish
        return {**out, "finish_reason": finish, **self.other}


def _place(value: Any) -> int | None:
    """The index of a tool call; some servers write it as a text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else index_of(value)


def _is_another(call: Mapping[str, Any], fragment: Mapping[str, Any]) -> bool:
    """Whether a fragment without an id begins a call of its own: it names a tool, and the call before it is whole."""
    old, new = call.get("function"), fragment.get("function")
    if fragment.get("id") or not isinstance(old, Mapping) or not isinstance(new, Mapping) or not new.get("name"):
        return False
    before, arguments = settled(old.get("arguments")), new.get("arguments")
    if not isinstance(before, str) or not isinstance(arguments, str) or not arguments.lstrip().startswith("{"):
        return False
    try:
        return before.rstrip().endswith("}") and isinstance(json.loads(before), dict)
    except (ValueError, RecursionError):
        return False


class _Bold:
    """Follows the bold marks of a text that grows."""

    def __init__(self) -> None:
        self._marks = 0
        self._half = ""
        self._begun = False

    @property
    def is_closed(self) -> bool:
        """Whether there is a text, and each of its marks has its other."""
        return self._begun and self._marks % 2 == 0

    def add(self, text: str) -> None:
        text = self._half + text
        self._begun = self._begun or bool(text)
        self._marks += text.count("**")
        self._half = "*" * ((len(text) - len(text.rstrip("*"))) % 2)


def _joined(old: Any, new: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call's function: its name as given (some providers repeat it), its argument text joined."""
    out = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if key in ("arguments", "input") and isinstance(value, str):
            out[key] = grown(out.get(key), value)
        elif value is not None and (value != "" or key not in out):
            out[key] = value
    return out
