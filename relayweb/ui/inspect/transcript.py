"""A turn as a conversation: what was asked, what each call answered, what the tools gave back, where it went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from relayweb.recording.reading import bodies, queries
from relayweb.recording.store import stored
from relayweb.ui.inspect import facts, jsonview, messages
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
    for entry in shown:
        _choose(entry)
    answers = outputs([entry.shown["uuid"] for entry in shown if entry.shown])
    said = [messages.response(answers.get(entry.shown["uuid"])) for entry in shown if entry.shown]
    messages.pair(said, by_id, outputs)
    for entry, body in zip([entry for entry in shown if entry.shown], said, strict=True):
        entry.said = body.messages
    if page == 1 and shown and shown[0].shown:
        shown[0].asked = _asked(UUID(shown[0].shown["uuid"]))
    return {"entries": shown, "page": page, "pages": pages, "total": len(calls)}


def _choose(entry: Entry) -> None:
    """Which of its attempts a call is told by, and why the others failed."""
    good = [node for node in entry.attempts if node["status"] in ("ok", "running")]
    entry.shown = good[-1] if good else entry.attempts[-1] if entry.attempts else None
    entry.errors = [
        (n["uuid"], facts.error_line(n) or n["status"]) for n in entry.attempts if n["status"] not in ("ok", "running")
    ]


def _asked(attempt: UUID) -> list[Message]:
    text = (bodies.request(attempt) or {}).get("request")
    if not isinstance(text, bytes):
        return []
    for key in ("messages", "input"):
        said = stored.member(text, key)
        if said is not None and said.startswith(b"["):
            found = messages.last_of("user", stored.items(said), f"/{key}")
        else:
            found = next(iter(messages.request({key: _value(said)}).messages), None)
        if found is not None:
            return [found]
    return []


def outputs(uuids: Sequence[str]) -> dict[str, Any]:
    """What these scopes gave back, by uuid."""
    found = bodies.responses([UUID(uuid) for uuid in uuids])
    return {str(uuid): _value(told["response"]) for uuid, told in found.items()}


def _value(text: Any) -> Any:
    return jsonview.read(text) if isinstance(text, bytes) else text
