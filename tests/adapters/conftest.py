"""Relay for real, a recorder of its events, and conversations to make calls in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import nemo_relay
import pytest

from adapters import intercepts, relay_runtime
from adapters.relay_runtime import SESSION_COORDINATOR, RelayTurnContext
from adapters.scopes import bounded


class Events:
    """What Relay emitted since the test began, as dicts."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def add(self, event: Any) -> None:
        self.seen.append(json.loads(event.to_json()))

    def all(self) -> list[dict[str, Any]]:
        bounded(nemo_relay.subscribers.flush)
        return list(self.seen)

    def named(self, name: str, when: str | None = None) -> list[dict[str, Any]]:
        return [e for e in self.all() if e["name"] == name and (when is None or e.get("scope_category") == when)]

    def starts(self, name: str) -> list[dict[str, Any]]:
        return self.named(name, "start")

    def ends(self, name: str) -> list[dict[str, Any]]:
        return self.named(name, "end")

    def outcomes(self) -> list[str]:
        """How the logical calls ended, in the order in which they did."""
        return [e["data"]["outcome"] for e in self.ends("relay.logical_llm_call")]

    def attempts(self, when: str = "start") -> list[dict[str, Any]]:
        return [e for e in self.all() if e.get("category") == "llm" and e.get("scope_category") == when]

    def marks(self, name: str) -> list[dict[str, Any]]:
        return [e for e in self.named(name) if e["kind"] == "mark"]


class Conversation:
    """A session with one open turn, current in this context, and a consumer that wants managed execution."""

    def __init__(self, session_id: str = "session-1", *, managed: bool = True) -> None:
        self.session_id = session_id
        self.lease = SESSION_COORDINATOR.acquire_conversation(session_id=session_id, platform="test", model="m")
        self.host = self.lease.host
        if managed:
            self.host.retain_managed_execution("tests")
        self.turn = self.begin("turn-1")

    def begin(self, turn_id: str) -> RelayTurnContext:
        return SESSION_COORDINATOR.begin_turn(self.lease, turn_id=turn_id, task_id="task-1")

    def end(self, outcome: str = "success") -> None:
        SESSION_COORDINATOR.end_turn(self.turn, outcome=outcome)


def call(request_id: str | None = None, *, api_mode: str = "chat_completions", **metadata: Any) -> dict[str, Any]:
    """Keyword arguments of an attempt."""
    known = {"api_mode": api_mode, **metadata}
    if request_id:
        known["api_request_id"] = request_id
    return {"name": "provider-x", "model_name": "m", "metadata": known}


def body(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def answer(text: str = "yes") -> dict[str, Any]:
    return {
        "id": "r1",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


@pytest.fixture(autouse=True)
def fresh_runtimes() -> Iterator[None]:
    relay_runtime.reset_for_tests()
    yield
    relay_runtime.reset_for_tests()


@pytest.fixture
def events() -> Iterator[Events]:
    events = Events()
    name = f"tests-{uuid.uuid4().hex}"
    nemo_relay.subscribers.register(name, events.add)
    yield events
    nemo_relay.subscribers.deregister(name)


@pytest.fixture
def talk(events: Events) -> Iterator[Conversation]:
    conversation = Conversation()
    yield conversation
    conversation.end()


@pytest.fixture
def rules() -> Iterator[Any]:
    """Puts rules in force for one test, each as its config."""

    def put(*configs: dict[str, Any]) -> None:
        intercepts.swap(intercepts.RuleSet.parse(list(configs)))

    yield put
    intercepts.swap(intercepts.RuleSet())


@pytest.fixture
def registered() -> Iterator[Any]:
    """Registers middleware in Relay for one test: `registered("llm_request", priority, function)`."""
    names: list[tuple[Any, str]] = []

    def register(kind: str, *arguments: Any) -> None:
        holder = nemo_relay.guardrails if "conditional" in kind or "sanitize" in kind else nemo_relay.intercepts
        name = f"test-{uuid.uuid4().hex}"
        getattr(holder, f"register_{kind}")(name, *arguments)
        names.append((getattr(holder, f"deregister_{kind}"), name))

    yield register
    for deregister, name in names:
        deregister(name)
