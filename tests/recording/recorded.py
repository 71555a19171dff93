"""Events put on record without a server, and small conversations to put there."""

from __future__ import annotations

from typing import Any

from django.db import connection

from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording.streams import FAILED, OK, Event, answer, chunk, line, request, scope, uid

__all__ = ["FAILED", "OK", "Talk", "answer", "chunk", "record", "request", "scope", "uid"]


def record(*events: Event) -> Recorder:
    """Record these events in one batch, as the writer does."""
    recorder = Recorder(Tables(connection))
    lines = [Line(line(event), 0) for event in events]
    recorder.record(lines)
    assert not [found.error for found in lines if found.error]
    return recorder


class Talk:
    """A session with one turn, and what happens in it; times are ms after the turn's start."""

    def __init__(
        self, session: str = "s-1", *, start: float = 0, outcome: str = "success", profile: str | None = None
    ) -> None:
        self.session, self.turn, self.start = uid(), uid(), start
        metadata = {"session_id": session, **({"relay.profile": profile} if profile else {})}
        self.events = [self._scope("start", self.session, None, 0, "relay.session", "agent", metadata=metadata)]
        self.events.append(
            self._scope("start", self.turn, self.session, 1, "relay.turn", "function", metadata=metadata)
        )
        self.tail = [
            self._scope("end", self.turn, self.session, 9_000, "relay.turn", "function", data={"outcome": outcome}),
            self._scope("end", self.session, None, 9_999, "relay.session", "agent", data={}),
        ]

    def _scope(
        self, kind: str, uuid: str, parent: str | None, ms: float, name: str, category: str, **more: Any
    ) -> Event:
        return scope(kind, uuid, parent, self.start + ms, name=name, category=category, **more)

    def around(self, name: str, category: str, parent: str, start: float, end: float | None, **more: Any) -> str:
        """Any scope; `data`, `metadata`, `profile` go to its start, `out`, `end_metadata`, `end_profile` to its end."""
        uuid = uid()
        out, end_metadata = more.pop("out", None), more.pop("end_metadata", None)
        end_profile = more.pop("end_profile", None)
        self.events.append(self._scope("start", uuid, parent, start, name, category, **more))
        if end is not None:
            more |= {"data": out, "metadata": {**(more.get("metadata") or {}), **(end_metadata or {})}}
            self.events.append(
                self._scope("end", uuid, parent, end, name, category, **{**more, "profile": end_profile})
            )
        return uuid

    def call(self, start: float = 10, end: float | None = 900, outcome: str = "success", role: str = "primary") -> str:
        metadata = {"relay.call_role": role}
        return self.around(
            "relay.logical_llm_call",
            "function",
            self.turn,
            start,
            end,
            data={},
            out={"outcome": outcome},
            metadata=metadata,
        )

    def attempt(self, call: str, start: float = 20, end: float | None = 500, **more: Any) -> str:
        model = more.pop("model", "gpt-4o")
        given: dict[str, Any] = {
            "data": request(more.pop("asks", "hi"), model),
            "out": more.pop("out", answer()),
            "end_metadata": more.pop("status", OK),
            "metadata": {"api_mode": "chat_completions", **more.pop("metadata", {})},
            "profile": {"model_name": model},
        }
        return self.around(more.pop("name", "openai.chat_completions"), "llm", call, start, end, **{**given, **more})

    def tool(self, name: str, start: float = 600, end: float | None = 700, **more: Any) -> str:
        return self.around(
            name, "tool", self.turn, start, end, **{"data": {"x": 1}, "out": "ok", "end_metadata": OK, **more}
        )

    def add(self, *events: Event) -> None:
        self.events += events

    def all(self) -> list[Event]:
        return self.events + self.tail

    def record(self) -> str:
        """Put it on record; gives the turn's uuid."""
        record(*self.all())
        return self.turn
