"""A recorded request as a few lines that send it again: with curl, or with the provider's own Python package."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from relayweb.ui.inspect import jsonview
from relayweb.ui.inspect.jsonview import Digits

FORMS = {"curl": "curl", "python": "Python"}


@dataclass(frozen=True)
class Way:
    """How requests of one wire format are sent."""

    url: str
    """As the shell says it; its variable is the one that the provider's package reads as well."""
    headers: tuple[str, ...]
    client: str
    method: str
    named: frozenset[str]
    """Members that the method takes by name. All others go into `extra_body`, which is sent as it is."""


_OPENAI = "${OPENAI_BASE_URL:-https://api.openai.com/v1}"
_OPENAI_KEY = ("authorization: Bearer $OPENAI_API_KEY",)
_ALL = ("model", "stream", "tools", "tool_choice", "temperature", "top_p")
WAYS = {
    "chat_completions": Way(
        f"{_OPENAI}/chat/completions",
        _OPENAI_KEY,
        "openai.OpenAI",
        "chat.completions.create",
        frozenset((*_ALL, "messages", "max_tokens", "max_completion_tokens", "stop", "seed", "response_format")),
    ),
    "codex_responses": Way(
        f"{_OPENAI}/responses",
        _OPENAI_KEY,
        "openai.OpenAI",
        "responses.create",
        frozenset((*_ALL, "input", "instructions", "max_output_tokens", "reasoning", "store")),
    ),
    "anthropic_messages": Way(
        "${ANTHROPIC_BASE_URL:-https://api.anthropic.com}/v1/messages",
        ("x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"),
        "anthropic.Anthropic",
        "messages.create",
        frozenset((*_ALL, "messages", "system", "max_tokens", "stop_sequences", "thinking")),
    ),
}


def again(body: Any, api_mode: str | None, form: str) -> str | None:
    """The lines.

    Args:
        body: what the provider got.
        api_mode: its wire format.
        form: one of `FORMS`.

    Returns:
        None if it cannot be sent.
    """
    write = {"curl": _curl, "python": _python}.get(form)
    return write(body, WAYS[str(api_mode)]) if write and can_send(body, api_mode) else None


def can_send(body: Any, api_mode: str | None) -> bool:
    """Whether there is a request with messages, of a format that is known."""
    return api_mode in WAYS and isinstance(body, dict) and bool(body.get("messages") or body.get("input"))


def _curl(body: dict[str, Any], way: Way) -> str:
    headers = "".join(f'  -H "{header}" \\\n' for header in (*way.headers, "content-type: application/json"))
    # No line of the JSON can end the document: strings hold their line ends escaped.
    return (
        f"curl --no-buffer \"{way.url}\" \\\n{headers}  --data-binary @- <<'END_OF_REQUEST'\n"
        f"{jsonview.dump(body, indent=2)}\nEND_OF_REQUEST\n"
    )


def _python(body: dict[str, Any], way: Way) -> str:
    given = {name: value for name, value in body.items() if name in way.named}
    rest = {name: value for name, value in body.items() if name not in way.named}
    if rest:
        given["extra_body"] = rest
    arguments = "".join(f"    {name}={_literal(value, 1)},\n" for name, value in given.items())
    says = "for event in answer:\n    print(event)" if body.get("stream") is True else "print(answer)"
    package = way.client.partition(".")[0]
    return f"import {package}\n\nclient = {way.client}()\nanswer = client.{way.method}(\n{arguments})\n{says}\n"


def _literal(value: Any, depth: int) -> str:
    """A JSON value as Python writes it, one member a line where it holds others."""
    indent, end = "    " * (depth + 1), "    " * depth
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, dict) and value:
        lines = (f"{indent}{_literal(name, 0)}: {_literal(member, depth + 1)},\n" for name, member in value.items())
        return "{\n" + "".join(lines) + end + "}"
    if isinstance(value, list) and value:
        return "[\n" + "".join(f"{indent}{_literal(item, depth + 1)},\n" for item in value) + end + "]"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    return repr(value)


__all__ = ["FORMS", "again", "can_send"]
