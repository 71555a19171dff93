"""Small ATOF streams for tests: written by hand, or grown at random with everything that goes wrong in the field."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

Event = dict[str, Any]
_ids = itertools.count(1)
T0 = 1_767_225_600_000_000  # µs: 2026-01-01; streams begin ten days later


def uid(n: int | None = None) -> str:
    n = next(_ids) if n is None else n
    return f"019b76da-{n >> 16 & 0xFFFF:04x}-7000-8000-{n:012x}"


def at(ms: float, style: str = "ns") -> str | int:
    us = T0 + 864_000_000_000 + round(ms * 1000)
    if style == "us":
        return us
    seconds, rest = divmod(us, 1_000_000)
    day, second = divmod(seconds - T0 // 1_000_000, 86_400)
    text = f"2026-01-{day + 1:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{rest:06d}"
    return f"{text}000+00:00" if style == "ns" else f"{text}Z"


def scope(
    kind: str,
    uuid: str,
    parent: str | None,
    ms: float,
    *,
    name: str = "scope",
    category: str = "function",
    data: Any = None,
    metadata: Any = None,
    profile: Any = None,
    root: str | None = None,
    style: str = "ns",
) -> Event:
    event = {
        "atof_version": "0.1",
        "attributes": [],
        "category": category,
        "category_profile": profile,
        "data": data,
        "data_schema": None,
        "kind": "scope",
        "metadata": metadata,
        "name": name,
        "parent_uuid": parent,
        "scope_category": kind,
        "timestamp": at(ms, style),
        "uuid": uuid,
    }
    return event if root is None else {**event, "propagation_root_uuid": root}


def mark(
    name: str, parent: str | None, ms: float, data: Any = None, *, metadata: Any = None, uuid: str | None = None
) -> Event:
    return {
        "atof_version": "0.1",
        "category": None,
        "category_profile": None,
        "data": data,
        "data_schema": None,
        "kind": "mark",
        "metadata": metadata,
        "name": name,
        "parent_uuid": parent,
        "timestamp": at(ms),
        "uuid": uuid or uid(),
    }


def line(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def chunk(parent: str, index: int, ms: float, **more: Any) -> Event:
    data = {"chunk_index": index, "choice_indices": [0], "event_type": "chat.completion.chunk", **more}
    return mark("llm.chunk", parent, ms, {**data, "provider": "openai_chat_completions"})


def request(text: str = "hi", model: str = "gpt-4o", **more: Any) -> Any:
    return {"content": {"messages": [{"content": text, "role": "user"}], "model": model, **more}, "headers": {}}


def answer(text: str = "hello", prompt: int = 10, completion: int = 3, finish: str | None = "stop") -> Any:
    usage = {"completion_tokens": completion, "prompt_tokens": prompt, "total_tokens": prompt + completion}
    choice = {"finish_reason": finish, "index": 0, "message": {"content": text, "role": "assistant"}}
    return {"choices": [choice], "id": "r", "model": "gpt-4o", "usage": usage}


OK = {"otel.status_code": "OK"}
FAILED = {
    "error.type": "internal_error",
    "exception.type": "InternalServerError",
    "otel.status_code": "ERROR",
    "otel.status_description": "internal error: InternalServerError: Error code: 500",
}


class Growing:
    """A stream grown at random: `events` in the order they were emitted."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.events, self.ms = rng, [], 0.0
        self._n = rng.randrange(1 << 20) << 10
        self.process = {"profile": "gateway"} if rng.random() < 0.4 else {}
        """What turns and calls tell of their process."""

    def uid(self) -> str:
        self._n += 1
        return uid(self._n)

    def tick(self) -> float:
        self.ms += self.rng.choice((0, 0.25, 1, 40))
        return self.ms

    def grow(self, tops: int = 2) -> list[Event]:
        for _ in range(self.rng.randint(1, tops)):
            parent = self.rng.choice((None, self.uid()))
            kind = self.rng.choice(("session", "session", "foreign", "call", "odd"))
            if kind == "session":
                self.session(parent)
            elif kind == "foreign":
                self.agent(parent, depth=0)
            elif kind == "call":
                self.attempt(parent, None)
            else:
                self.function(parent, depth=0)
        self._spoil()
        return self.events

    def scope(
        self, parent: str | None, inside: Any = None, *, end: Any = None, end_metadata: Any = None, **more: Any
    ) -> str:
        uuid, rng = self.uid(), self.rng
        root = rng.choice((None, uuid, self.uid())) if rng.random() < 0.2 else None
        style = rng.choice(("ns", "ns", "us", "z"))
        start = scope("start", uuid, parent, self.tick(), root=root, style=style, **more)
        if rng.random() < 0.93:
            self.events.append(start)
        if inside is not None:
            inside(uuid)
        if rng.random() < 0.9:
            metadata = {**(more.get("metadata") or {}), **(end_metadata or {})}
            ended = {**more, "data": end, "metadata": metadata}
            at_ms = self.tick() - (60 if rng.random() < 0.03 else 0)
            self.events.append(scope("end", uuid, parent, at_ms, root=root, style=style, **ended))
        return uuid

    def session(self, parent: str | None, role: str | None = None) -> None:
        rng = self.rng
        metadata = {} if role is None else {"nemo_relay_scope_role": role}
        if rng.random() < 0.5:
            metadata["session_id"] = rng.choice(("s1", "s2", "s3"))

        def inside(uuid: str) -> None:
            for _ in range(rng.randint(0, 2)):
                self.turn(uuid)
            if rng.random() < 0.2:
                self.attempt(uuid, None)

        self.scope(parent, inside, name="relay.session", category="agent", metadata=metadata)

    def turn(self, parent: str) -> None:
        rng = self.rng
        metadata: dict[str, Any] = {}
        if rng.random() < 0.5:
            metadata = {"session_id": rng.choice(("s1", "s2", "s3")), "turn_id": rng.choice(("t1", "t2"))}

        metadata |= self.process

        def inside(uuid: str) -> None:
            if rng.random() < 0.3:
                self.events.append(
                    mark("relay.turn.start", uuid, self.tick(), {}, metadata={"session_id": "told"}, uuid=self.uid())
                )
            for _ in range(rng.randint(0, 3)):
                rng.choice((self.logical, self.logical, self.tool, self.function, self.sub, self.loose))(uuid)

        outcome = rng.choice(("success", "success", "failed", "cancelled"))
        self.scope(
            parent, inside, name=rng.choice(("relay.turn", "hermes.turn")), metadata=metadata, end={"outcome": outcome}
        )

    def sub(self, parent: str) -> None:
        if self.rng.random() < 0.5:
            self.session(parent, "subagent")

    def loose(self, parent: str) -> None:
        self.attempt(parent, None)

    def agent(self, parent: str | None, depth: int) -> None:
        rng = self.rng
        metadata = {"session_id": rng.choice(("a1", "a2"))} if rng.random() < 0.4 else None

        def inside(uuid: str) -> None:
            for _ in range(rng.randint(0, 3)):
                if depth < 2 and rng.random() < 0.3:
                    self.agent(uuid, depth + 1)
                else:
                    rng.choice((self.tool, self.function, self.loose, self.refused))(uuid)

        self.scope(parent, inside, name="worker", category="agent", metadata=metadata, end=None)

    def function(self, parent: str | None, depth: int = 1) -> None:
        def inside(uuid: str) -> None:
            for _ in range(self.rng.randint(0, 2)):
                self.rng.choice((self.tool, self.loose, self.drained))(uuid)
            if depth < 3 and self.rng.random() < 0.4:
                self.function(uuid, depth + 1)

        self.scope(parent, inside, name="plan", category=self.rng.choice(("function", "retriever", "x-new")))

    def drained(self, parent: str) -> None:
        self.events.append(mark("relay.orphan_drain", parent, self.tick(), {"scope": "x"}, uuid=self.uid()))

    def refused(self, parent: str) -> None:
        data = {"rejected": True, "rejection_reason": "no"}
        self.events.append(mark("openai.chat", parent, self.tick(), data, uuid=self.uid()))

    def tool(self, parent: str) -> None:
        status = self.rng.choice((OK, OK, FAILED))
        self.scope(
            parent,
            name="read_file",
            category="tool",
            data={"path": "a"},
            profile={"tool_call_id": "c1"},
            end="text",
            end_metadata=status,
        )

    def logical(self, parent: str) -> None:
        rng = self.rng
        call_id = rng.choice(("c1", "c2")) if self.process else self.uid()[-6:]

        def inside(uuid: str) -> None:
            for _ in range(rng.randint(0, 3)):
                self.attempt(uuid, call_id)
            if rng.random() < 0.1:
                data = {
                    "stage": "guardrail",
                    "reason": "no",
                    "error_type": None,
                    "request": request("blocked")["content"],
                    "model": "gpt-4o",
                }
                self.events.append(mark("relay.attempt_blocked", uuid, self.tick(), data, uuid=self.uid()))

        role = rng.choice(("primary", "primary", "auxiliary:title"))
        self.scope(
            parent,
            inside,
            name="relay.logical_llm_call",
            metadata={"relay.call_role": role, **self.process},
            end={"outcome": rng.choice(("success", "success", "failed"))},
        )

    def attempt(self, parent: str | None, call_id: str | None) -> None:
        rng = self.rng
        status = rng.choice((OK, OK, FAILED))
        metadata = {"api_mode": "chat_completions", "call_role": rng.choice(("primary", "auxiliary:title"))}
        if call_id:
            metadata["api_request_id"] = call_id
        elif rng.random() < 0.4:
            metadata["api_request_id"] = rng.choice(("r1", "r2"))

        def inside(uuid: str) -> None:
            for position in range(rng.choice((0, 0, 1, 2))):
                result = rng.choice(("hit", "miss", "block"))
                data = {
                    "position": position,
                    "key": "k",
                    "revision": 1,
                    "mode": rng.choice(("enforce", "shadow")),
                    "result": result,
                    "patch": [],
                }
                self.events.append(mark("relay.rewrite", uuid, self.tick(), data, uuid=self.uid()))
            count = rng.choice((0, 0, 2, 5))
            for index in range(count):
                more: dict[str, Any] = {}
                if index == count - 1:
                    more = {"usage": {"prompt_tokens": rng.randint(1, 90), "completion_tokens": 4, "total_tokens": 0}}
                if index == count - 2:
                    more = {
                        "finish_reasons": [{"choice_index": 0, "finish_reason": rng.choice(("stop", "tool_calls"))}]
                    }
                self.events.append({**chunk(uuid, index, self.tick(), **more), "uuid": self.uid()})
            if count:
                data = {"first": 0, "chunks": [{"choices": [{"delta": {"content": "x" * i}}]} for i in range(count)]}
                self.events.append(mark("relay.chunks", uuid, self.tick(), data, uuid=self.uid()))
            if status is FAILED and rng.random() < 0.6:
                data = {"status": 500, "error_type": "server_error", "message": "boom", "body": None}
                self.events.append(mark("relay.attempt_failed", uuid, self.tick(), data, uuid=self.uid()))

        model = rng.choice(("gpt-4o", "claude-sonnet-4-5", "m"))
        text = rng.choice(("first words", "other words"))
        self.scope(
            parent,
            inside,
            name=rng.choice(("openai.chat_completions", "custom")),
            category="llm",
            data=request(text, model),
            metadata=metadata,
            profile={"model_name": model} if rng.random() < 0.7 else None,
            end=answer("a", rng.randint(1, 50), 3, rng.choice(("stop", None))) if status is OK else None,
            end_metadata=status,
        )

    def _spoil(self) -> None:
        """Some events come again and say something else."""
        for event in list(self.events):
            if self.rng.random() < 0.04:
                other = {**event, "timestamp": at(self.rng.choice((0, 3, 1000)))}
                if event["kind"] == "scope" and self.rng.random() < 0.5:
                    other["data"] = {"outcome": "failed"}
                if event["kind"] == "scope" and self.rng.random() < 0.2:
                    other["name"] = "renamed"
                self.events.append(other)


class Tangled(Growing):
    """A stream in which events also contradict each other about what hangs where and of what it is."""

    def grow(self, tops: int = 2) -> list[Event]:
        super().grow(tops)
        self._turn_over()
        self._contradict()
        self._clash()
        return self.events

    def _clash(self) -> None:
        """Some marks have the uuid of something else."""
        for event in self.events:
            if event["kind"] == "mark" and self.rng.random() < 0.02:
                event["uuid"] = self.rng.choice(self.events)["uuid"]

    def _elsewhere(self, uuid: str) -> str | None:
        """Another parent: a scope of the stream, one that never comes, none at all, or the scope itself."""
        others = [event["uuid"] for event in self.events if event["kind"] == "scope"]
        return self.rng.choice((self.rng.choice(others), self.rng.choice(others), uuid, None, self.uid()))

    def _turn_over(self) -> None:
        """Some scopes hang under themselves or under what is below them, in all that is told of them."""
        for uuid in {event["uuid"]: None for event in self.events if event["kind"] == "scope"}:
            if self.rng.random() < 0.03:
                parent = self._elsewhere(uuid)
                for event in self.events:
                    if event["uuid"] == uuid:
                        event["parent_uuid"] = parent

    def _contradict(self) -> None:
        """Some events come again under another parent, as another kind of scope or of another session."""
        for event in list(self.events):
            if self.rng.random() > 0.06:
                continue
            other = {**event, "timestamp": at(self.rng.choice((0, 3, self.ms, 1000)))}
            if self.rng.random() < 0.8:
                other["parent_uuid"] = self._elsewhere(event["uuid"])
            if event["kind"] == "scope" and self.rng.random() < 0.3:
                kind = self.rng.choice(("relay.session", "relay.turn", "relay.logical_llm_call", "plan"))
                other |= {"name": kind, "category": self.rng.choice(("agent", "function", "llm", "tool"))}
            if self.rng.random() < 0.4:
                told = {"session_id": self.rng.choice(("s1", "s2")), "turn_id": self.rng.choice(("t1", "t2"))}
                other["metadata"] = {**told, "api_request_id": self.rng.choice(("r1", "r2", "r3"))}
            if other["parent_uuid"] is None and event["kind"] == "mark":
                continue  # a chunk without a parent is a mark like any other
            self.events.append(other)
