"""Events of the Anthropic Messages API to one response (R61-R64)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from adapters.accumulators.base import RECORDED, combined, gathered, grown, index_of, settled


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
            at, block = index_of(chunk.get("index")), chunk.get("content_block")
            if at is not None and isinstance(block, Mapping):
                self._blocks[at] = dict(block)
                self._inputs.pop(at, None)
        elif kind == "content_block_delta":
            at, delta = index_of(chunk.get("index")), chunk.get("delta")
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
            block["citations"] = gathered(block.get("citations"), [delta.get("citation")])
        else:
            source, target = self._TEXT[kind]
            if source not in delta:
                return
            piece, old = delta[source], block.get(target)
            if isinstance(piece, str):
                block[target] = grown(old, piece)
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
                old = start if isinstance(start, Mapping) else {}
                new = {k: v for k, v in value.items() if v is not None and not (v == 0 and old.get(k))}
                self._message["usage"] = {**old, **new}
            elif key not in ("type", "delta", "usage"):
                self._message[key] = value

    def finalize(self) -> dict[str, Any]:
        return self._build(RECORDED)

    def _build(self, most: int | None) -> dict[str, Any]:
        content = []
        for index in sorted(self._blocks)[:most]:
            block = settled(self._blocks[index], 1)
            if index in self._inputs:
                exact = most is not None  # what is recorded keeps every digit; a caller gets the numbers Python has
                block["input"] = _parsed("".join(self._inputs[index]), block.get("input"), exact)
            content.append(block)
        return {"type": "message", "role": "assistant", **self._message, "content": content}

    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return combined(base, self._build(None))


def _parsed(text: str, empty: Any, exact: bool) -> Any:
    """The tool input a text means; the text itself when it is no JSON (an input that was cut), or no `exact` value."""
    if not text:
        return {} if empty is None else empty
    try:
        return json.loads(text, parse_float=_exact, parse_constant=_exact) if exact else json.loads(text)
    except (ValueError, ArithmeticError, RecursionError):
        return text


def _exact(text: str) -> float:
    """A number whose digits all stay; raises ValueError for others."""
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError(text)
    return number
