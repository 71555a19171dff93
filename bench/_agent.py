"""An agent in another process, as far as the recorder sees it: ATOF events of a turn whose attempts stream."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

Event = dict[str, Any]


def uuid7() -> str:
    """A uuid of version 7, as Relay makes them."""
    ms = time.time_ns() // 1_000_000
    value = (ms << 80) | (0x7 << 76) | (int.from_bytes(os.urandom(10)) & ((1 << 76) - 1))
    return str(UUID(int=(value & ~(0x3 << 62)) | (0x2 << 62)))


def timestamp(ns: int | None = None) -> str:
    seconds, rest = divmod(time.time_ns() if ns is None else ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}+00:00"


class Agent:
    """Makes the events of one session with one turn. Nothing is sent: each call returns events."""

    def __init__(self, session_id: str) -> None:
        self.session, self.turn = uuid7(), uuid7()
        self.session_id = session_id

    def _event(self, kind: str, name: str, parent: str | None, **more: Any) -> Event:
        return {
            "atof_version": "0.1",
            "attributes": [],
            "category": None,
            "category_profile": None,
            "data": None,
            "data_schema": None,
            "kind": kind,
            "metadata": {},
            "name": name,
            "parent_uuid": parent,
            "propagation_root_uuid": self.session,
            "timestamp": timestamp(),
            **more,
        }

    def scope(self, edge: str, uuid: str, name: str, category: str, parent: str | None, **more: Any) -> Event:
        return self._event("scope", name, parent, uuid=uuid, category=category, scope_category=edge, **more)

    def begin(self, asked: str = "Stream, please.") -> list[Event]:
        metadata = {"session_id": self.session_id, "nemo_relay_scope_role": "session"}
        return [
            self.scope("start", self.session, "relay.session", "agent", None, metadata=metadata, data={}),
            self.scope("start", self.turn, "relay.turn", "function", self.session, data={"asked": asked}),
        ]

    def attempt(self, asked: str = "Stream, please.") -> tuple[str, list[Event]]:
        """A logical call and its one streamed attempt, both begun; returns the uuid of the attempt."""
        call, attempt = uuid7(), uuid7()
        body = {"model": "bench-1", "stream": True, "messages": [{"role": "user", "content": asked}]}
        metadata = {"api_mode": "chat_completions", "call_role": "primary", "streaming": True}
        start = {"data": {"content": body, "headers": {}}, "metadata": metadata, "attributes": ["streaming"]}
        return attempt, [
            self.scope("start", call, "relay.logical_llm_call", "function", self.turn, data={}),
            self.scope("start", attempt, "openai.chat_completions", "llm", call, **start),
        ]

    def chunk(self, attempt: str, index: int) -> Event:
        data = {"chunk_index": index, "provider_event_type": None}
        return self._event("mark", "llm.chunk", attempt, uuid=uuid7(), data=data)

    def contents(self, attempt: str, first: int, texts: list[str]) -> Event:
        chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
        return self._event("mark", "relay.chunks", attempt, uuid=uuid7(), data={"first": first, "chunks": chunks})

    def end(self, uuid: str, name: str, category: str, parent: str | None, data: Any = None) -> Event:
        return self.scope("end", uuid, name, category, parent, data=data or {})


def lines(events: list[Event]) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
