"""A turn as a conversation: what was asked, what each call answered, what the tools gave back, where it went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from relayweb.recording import bodies, queries, stored
from relayweb.ui.inspect import facts, messages
from relayweb.ui.inspect.messages import Message

CALLS = 25
"""Logical calls on a page of a transcript: each costs a look into its bodies."""


@dataclass
class Entry:
    """One logical call. `asked` is what the user said before it, on the first call only."""

    node: Mapping[str, Any]
    title: str
    asked: list[Message] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)
    attempts: list[Mapping[str, Any]] = field(default_factory=list)
    shown: Mapping[str, Any] | None = None
    """The attempt whose answer this is."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Of attempts that failed: uuid and reason."""
    depth: int = 0
    agent: str = ""


def transcript(turn: UUID, page: int = 1) -> dict[str, Any]:
    """One page of a turn's calls, in the order they began."""
    nodes = queries.turn_nodes(turn)
    calls: list[Entry] = []
    home: list[tuple[int, str]] = []
    by_id: dict[str, Mapping[str, Any]] = {}
    for node in nodes:
        depth = node["depth"] or 0
        while home and home[-1][0] >= depth:
            home.pop()
        if node["role"] in ("turn", "subagent", "session"):
            home.append((depth, node["name"]))
        elif node["role"] == "logical_call":
            inside = [name for _, name in home[1:]]
            calls.append(Entry(node, facts.title(node), depth=len(inside), agent=inside[-1] if inside else ""))
        elif node["role"] == "attempt" and calls:
            calls[-1].attempts.append(node)
        elif node["role"] == "tool" and node.get("tool_call_id"):
            by_id[node["tool_call_id"]] = node
    calls.sort(key=lambda entry: entry.node["start_us"] or 0)
    pages = max(1, -(-len(calls) // CALLS))
    page = min(max(1, page), pages)
    shown = calls[(page - 1) * CALLS : page * CALLS]
    for n, entry in enumerate(shown):
        _fill(entry, by_id, first=page == 1 and n == 0)
    return {"entries": shown, "page": page, "pages": pages, "total": len(calls)}


def _fill(entry: Entry, tools: Mapping[str, Mapping[str, Any]], first: bool) -> None:
    good = [node for node in entry.attempts if node["status"] in ("ok", "running")]
    entry.shown = good[-1] if good else entry.attempts[-1] if entry.attempts else None
    entry.errors = [
        (n["uuid"], facts.error_line(n) or n["status"]) for n in entry.attempts if n["status"] not in ("ok", "running")
    ]
    if entry.shown is None:
        return
    uuid = UUID(entry.shown["uuid"])
    if first:
        asked = bodies.request(uuid) or {}
        body = messages.request(_value(asked.get("request")))
        users = [message for message in body.messages if message.role == "user"]
        entry.asked = users[-1:]
    answered = bodies.response(uuid) or {}
    body = messages.response(_value(answered.get("response")))
    messages.pair(body, tools, lambda of: _value((bodies.response(UUID(of)) or {}).get("response")))
    entry.said = body.messages


def _value(text: Any) -> Any:
    return stored.load(text) if isinstance(text, bytes) else text
