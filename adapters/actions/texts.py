"""The texts of a request body by role, wherever its wire format keeps them.

Roles are system (developer included), user, assistant and tool (results). Thinking and reasoning are left alone: they
are signed or opaque to the app.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

ROLES = ("system", "user", "assistant", "tool")
_SAME = {"developer": "system", "function": "tool"}
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})

Change = Callable[[str], str]


def change_texts(body: dict[str, Any], api_mode: str, roles: Collection[str], change: Change) -> dict[str, Any]:
    """The body with `change` done to each text of `roles`; the same object when no text changed."""
    out = body
    if "system" in roles and api_mode != "chat_completions":
        name = "instructions" if api_mode == "codex_responses" else "system"
        out = _member(out, name, lambda value: _content(value, change))
    if api_mode == "codex_responses":
        if isinstance(out.get("input"), str):
            return _member(out, "input", lambda value: _content(value, change)) if "user" in roles else out
        return _member(out, "input", lambda value: _list(value, lambda item: _item(item, roles, change)))
    return _member(out, "messages", lambda value: _list(value, lambda message: _message(message, roles, change)))


def _member(body: dict[str, Any], name: str, edit: Callable[[Any], Any]) -> dict[str, Any]:
    if name not in body:
        return body
    new = edit(body[name])
    return body if new is body[name] else {**body, name: new}


def _list(value: Any, edit: Callable[[Any], Any]) -> Any:
    if not isinstance(value, list):
        return value
    new = [edit(item) for item in value]
    return value if all(a is b for a, b in zip(value, new, strict=True)) else new


def _content(content: Any, change: Change) -> Any:
    """Text, or a list of parts of which the text parts are changed."""
    if isinstance(content, str):
        new = change(content)
        return content if new == content else new
    return _list(content, lambda part: _part(part, change))


def _part(part: Any, change: Change) -> Any:
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
        return _member(part, "text", lambda value: _content(value, change))
    return part


def _message(message: Any, roles: Collection[str], change: Change) -> Any:
    """A message of Chat Completions or Anthropic; tool results inside a user message are of the tool role."""
    if not isinstance(message, dict):
        return message
    role = _SAME.get(str(message.get("role")), message.get("role"))

    def block(part: Any) -> Any:
        if isinstance(part, dict) and part.get("type") == "tool_result":
            return _member(part, "content", lambda value: _content(value, change)) if "tool" in roles else part
        return _part(part, change) if role in roles else part

    content = message.get("content")
    if isinstance(content, list):
        return _member(message, "content", lambda value: _list(value, block))
    return _member(message, "content", lambda value: _content(value, change)) if role in roles else message


def _item(item: Any, roles: Collection[str], change: Change) -> Any:
    """An input item of the Responses API."""
    if not isinstance(item, dict):
        return item
    if str(item.get("type", "message")).endswith("_call_output"):
        return _member(item, "output", lambda value: _content(value, change)) if "tool" in roles else item
    if item.get("type", "message") == "message":
        role = _SAME.get(str(item.get("role")), item.get("role"))
        return _member(item, "content", lambda value: _content(value, change)) if role in roles else item
    return item
