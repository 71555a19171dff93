"""Arguments of tools as they stream: the values of secret members are masked in what is recorded, piece by piece.

A model writes `{"pass`, `word": "hun`, `ter2"}`. No piece of it is JSON, and none tells alone that it holds a secret:
whoever records the pieces must remember what came before. What the agent gets is never touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from adapters.secret_names import MASK, is_secret_name

_TOKEN = re.compile(r'"|[{}\[\]:,]|\\.?|[^"\\{}\[\]:,]+', re.DOTALL)
_LONGEST = 100  # characters of a name that count
_RESPONSES = frozenset(("response.function_call_arguments.delta", "response.mcp_call_arguments.delta"))


class SecretArguments:
    """Of one stream. `hide` gives the chunk for the record: the same object where it holds no secret."""

    def __init__(self) -> None:
        self._texts: dict[Any, _Text] = {}

    def hide(self, chunk: Any) -> Any:
        if not isinstance(chunk, dict):
            return chunk
        for key, path in pieces(chunk):
            piece = value_at(chunk, path)
            if isinstance(piece, str):
                text = self._texts.get(key)
                if text is None:
                    text = self._texts[key] = _Text()
                shown = text.read(piece)
                if shown != piece:
                    chunk = _with(chunk, path, shown)
        return chunk


def pieces(chunk: dict[str, Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Where a chunk of OpenAI or Anthropic holds pieces of arguments: of which call, and the path there."""
    choices, delta = chunk.get("choices"), chunk.get("delta")
    for at, choice in enumerate(choices if isinstance(choices, list) else ()):
        told = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(told, dict):
            continue
        calls = told.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                key = (choice.get("index"), call.get("index", place))
                yield repr(key), ("choices", at, "delta", "tool_calls", place, "function", "arguments")
        if isinstance(told.get("function_call"), dict):
            yield repr(choice.get("index")), ("choices", at, "delta", "function_call", "arguments")
    if isinstance(delta, dict) and delta.get("type") == "input_json_delta":
        yield repr(chunk.get("index")), ("delta", "partial_json")
    elif isinstance(delta, str) and chunk.get("type") in _RESPONSES:
        yield repr((chunk.get("output_index"), chunk.get("item_id"))), ("delta",)


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else value[step]
    return value


def _with(value: Any, path: tuple[Any, ...], new: str) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy


class _Text:
    """The arguments of one call: JSON, read as far as it has come."""

    def __init__(self) -> None:
        self._inside = False  # a string
        self._halved = False  # an escape: its backslash ended the piece before
        self._string: list[str] = []
        self._length = 0
        self._name: str | None = None  # the string that ended last, while only a colon may follow
        self._secret = False  # the value that comes now
        self._masked = False  # of which the mask was written
        self._depth = 0  # of brackets within a secret value

    def read(self, piece: str) -> str:
        out: list[str] = []
        begun = 1 if self._halved else 0  # the character that the escape before it takes in
        for token in (*piece[:begun], *_TOKEN.findall(piece, begun)):
            if self._inside:
                self._in_string(token, out)
            elif token == '"':
                self._inside, self._string, self._length = True, [], 0
                out.append(token)
            else:
                self._between(token, out)
        return "".join(out)

    def _in_string(self, token: str, out: list[str]) -> None:
        if token == '"' and not self._halved:
            self._inside = False
            out.append(token)
            self._name = None if self._secret or self._length > _LONGEST else "".join(self._string)
            self._end_scalar()
            return
        self._halved = token == "\\" and not self._halved
        if self._secret:
            self._mask(out)
            return
        out.append(token)
        if self._length <= _LONGEST:
            self._string.append(token)
            self._length += len(token)

    def _between(self, token: str, out: list[str]) -> None:
        if token == ":":
            if self._name is not None and not self._secret:
                self._secret = _is_secret(self._name)
            out.append(token)
        elif token in ("{", "["):
            self._depth += self._secret
            out.append(token)
        elif token in ("}", "]", ","):
            if self._depth and token != ",":
                self._depth -= 1
            self._secret = self._secret and self._depth > 0
            self._masked = False
            out.append(token)
        elif self._secret and token.strip() and not token.strip().isalpha():  # a number; true, false and null stay
            self._mask(out, '"')
        else:
            out.append(token)
        if token.strip():
            self._name = None

    def _mask(self, out: list[str], quote: str = "") -> None:
        if not self._masked:
            self._masked = True
            out.append(f"{quote}{MASK}{quote}")

    def _end_scalar(self) -> None:
        self._masked = False
        if self._secret and not self._depth:
            self._secret = False


def _is_secret(name: str) -> bool:
    try:
        return is_secret_name(str(json.loads(f'"{name}"')))
    except ValueError:
        return is_secret_name(name)
