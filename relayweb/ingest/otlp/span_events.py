"""Messages that instrumentations tell in events of a span, or in a list of such events in an attribute.

OpenTelemetry's conventions up to 1.36 (`gen_ai.user.message` …, `gen_ai.choice`) as Strands and others write them, the
older `gen_ai.content.prompt` and `gen_ai.content.completion`, and Logfire's attribute `events`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relayweb.ingest.otlp.chat import messages_of
from relayweb.ingest.otlp.reading import items, parsed
from relayweb.ingest.otlp.spans import Span

_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def told(span: Span) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], Any]]]:
    """The messages of a request, and those of the answer with their finish reasons."""
    asked: list[dict[str, Any]] = []
    answered: list[tuple[dict[str, Any], Any]] = []
    for name, said in _events(span):
        if name in _ROLES:
            asked += _message(said, _ROLES[name])
        elif name == "gen_ai.choice":
            message = parsed(said.get("message", said.get("content")))
            extra = {"tool_calls": items(said["tool_calls"])} if said.get("tool_calls") else {}
            answered += [({**m, **extra}, said.get("finish_reason")) for m in messages_of(message, "assistant") or [{}]]
        elif name == "gen_ai.content.prompt":
            asked += messages_of(said.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            answered += [
                (m, m.pop("finish_reason", None)) for m in messages_of(said.get("gen_ai.completion"), "assistant")
            ]
    return asked, answered


def of_tool(span: Span) -> tuple[Any, Any]:
    """What a tool was given and what it gave, each None where nothing is told."""
    given = answered = None
    for name, said in _events(span):
        if name == "gen_ai.tool.message":
            given = parsed(said.get("content"))
        elif name == "gen_ai.choice":
            answered = parsed(said.get("message"))
    return given, answered


def _events(span: Span) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in span.events:
        yield event.name, event.attributes
    for item in items(span.attributes.get("events")):
        if isinstance(item, dict) and isinstance(item.get("event.name"), str):
            yield item["event.name"], item


def _message(said: dict[str, Any], role: str) -> list[dict[str, Any]]:
    message = {"role": said.get("role") or role, "content": parsed(said.get("content"))}
    if said.get("tool_calls"):
        message["tool_calls"] = items(said["tool_calls"])
    if role == "tool" and said.get("id"):
        message["tool_call_id"] = said["id"]
    return messages_of([message])
