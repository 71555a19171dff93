"""What Relay was told: the events of this process, as trees, for tests that call the gateway in-process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nemo_relay


class Events:
    """The events seen so far; `scopes(name)` pairs starts with their ends."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    async def flushed(self) -> Events:
        await nemo_relay.subscribers.flush_async()
        return self

    def scopes(self, name: str = "", category: str = "") -> list[dict[str, Any]]:
        """Starts, oldest first, each with its end event (or None) as `end`."""
        events = self.all
        ends = {e["uuid"]: e for e in events if e.get("scope_category") == "end"}
        return [
            {**e, "end": ends.get(e["uuid"])}
            for e in events
            if e.get("scope_category") == "start" and name in ("", e["name"]) and category in ("", e["category"])
        ]

    def marks(self, name: str, parent: str | None = None) -> list[dict[str, Any]]:
        return [e for e in self.all if e["kind"] == "mark" and e["name"] == name and parent in (None, e["parent_uuid"])]

    @property
    def sessions(self) -> list[dict[str, Any]]:
        return self.scopes("relay.session")

    @property
    def turns(self) -> list[dict[str, Any]]:
        return self.scopes("relay.turn")

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.scopes("relay.logical_llm_call")

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return self.scopes(category="llm")

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self.scopes(category="tool")


@asynccontextmanager
async def recorded() -> AsyncIterator[Events]:
    events = Events()
    nemo_relay.subscribers.register("tests", lambda event: events.lines.append(event.to_json()))
    try:
        yield events
    finally:
        try:
            await nemo_relay.subscribers.flush_async()
        finally:
            nemo_relay.subscribers.deregister("tests")


def outcome(scope: dict[str, Any]) -> str | None:
    """How a session, turn or logical call ended; None while it is open."""
    return scope["end"]["data"].get("outcome") if scope["end"] else None


def status(attempt: dict[str, Any]) -> str | None:
    """OK, ERROR, or None while the attempt runs."""
    return attempt["end"]["metadata"].get("otel.status_code") if attempt["end"] else None
