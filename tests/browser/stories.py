"""Recorded turns with everything that the turn page has a sign for."""

# ruff: noqa: E501 (recorded events read best on a line of their own)

from __future__ import annotations

from typing import Any

from bench._agent import Agent, timestamp, uuid7

SECOND = 1_000_000_000
T0 = 1_790_000_000 * SECOND


class Story(Agent):
    """A recorded turn with everything that the page has a sign for. Times are seconds from its start."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.events: list[dict[str, Any]] = []

    def put(self, at: float, event: dict[str, Any]) -> str:
        event["timestamp"] = timestamp(T0 + int(at * SECOND))
        self.events.append(event)
        return str(event["uuid"])

    def span(self, start: float, end: float | None, name: str, category: str, parent: str | None, **more: Any) -> str:
        uuid, out = uuid7(), more.pop("out", {})
        self.put(start, self.scope("start", uuid, name, category, parent, **more))
        if end is not None:
            metadata = {**more.get("metadata", {}), **out.pop("metadata", {})}
            self.put(end, self.scope("end", uuid, name, category, parent, metadata=metadata, **out))
        return uuid

    def call(self, start: float, end: float, role: str = "primary", parent: str | None = None) -> str:
        metadata = {"relay.call_role": role}
        return self.span(start, end, "relay.logical_llm_call", "function", parent or self.turn, metadata=metadata)

    def mark(self, at: float, parent: str, name: str, data: Any) -> None:
        event = self.chunk(parent, 0)
        self.put(at, {**event, "name": name, "data": data})

    def answer(
        self, call: str, start: float, end: float, texts: list[tuple[float, dict[str, Any]]], **more: Any
    ) -> str:
        """A streamed attempt whose chunks come at these times."""
        body = more.pop("body", {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Why?"}]})
        message = more.pop("message", {"role": "assistant", "content": "Because."})
        metadata = {"api_mode": "chat_completions", "streaming": True, **more.pop("metadata", {})}
        data = {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 90, "completion_tokens": 30},
        }
        attempt = self.span(
            start, end, "openai.chat_completions", "llm", call,
            data={"content": body, "headers": {}}, metadata=metadata, out={"data": more.pop("answer", data), **more},
        )  # fmt: skip
        for index, (at, delta) in enumerate(texts):
            self.put(at, self.chunk(attempt, index))
            self.mark(
                at + 0.03,
                attempt,
                "relay.chunks",
                {"first": index, "chunks": [{"choices": [{"index": 0, "delta": delta}]}]},
            )
        return attempt


def story(name: str, asked: str = "The nightly build fails. Find out why and fix it.") -> Story:
    """One turn: a call that failed, was cut, and worked; a tool; a late child; a sub-agent; a call that never began."""
    told = Story(name)
    told.put(
        0,
        told.scope(
            "start",
            told.session,
            "relay.session",
            "agent",
            None,
            data={},
            metadata={"session_id": name, "nemo_relay_scope_role": "session"},
        ),
    )
    told.put(0, told.scope("start", told.turn, "relay.turn", "function", told.session, data={}))
    call = told.call(1, 16)
    body = {
        "model": "gpt-5.2",
        "messages": [{"role": "system", "content": "Work in small steps."}, {"role": "user", "content": asked}],
        "effort": "high",
    }
    failed = told.span(1.1, 2, "openai.chat_completions", "llm", call, data={"content": body, "headers": {}}, metadata={"api_mode": "chat_completions"},
                       out={"data": None, "metadata": {"otel.status_code": "ERROR", "otel.status_message": "429 rate limited"}})  # fmt: skip
    told.mark(
        1.9,
        failed,
        "relay.attempt_failed",
        {
            "status": 429,
            "error_type": "rate_limit_exceeded",
            "message": "Slow down.",
            "body": '{"error": {"message": "Slow down."}}',
            "request_id": "req_1",
            "retry_after": "2",
        },
    )
    pace = [(4.5 + k * 0.05, {"reasoning_content": f"think {k} "}) for k in range(40)]
    pace += [(6.6 + k * 0.05, {"content": f"word{k} "}) for k in range(20)]
    pace += [(10.0 + k * 0.05, {"content": f"more{k} "}) for k in range(30)]
    wire = {**body, "model": "claude-sonnet-4-5", "effort": "medium"}
    good = told.answer(
        call,
        4,
        12,
        pace,
        body=wire,
        message={
            "role": "assistant",
            "content": "It rounds **each line**.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search_code", "arguments": '{"q": "quantize("}'}}
            ],
        },
    )
    told.mark(
        4,
        good,
        "relay.rewrite",
        {
            "position": 0,
            "key": "house-style",
            "revision": 3,
            "action": "set_parameters",
            "priority": 10,
            "mode": "enforce",
            "result": "hit",
            "patch": [
                {"op": "replace", "path": "/model", "value": "claude-sonnet-4-5"},
                {"op": "replace", "path": "/effort", "value": "medium"},
            ],
            "headers": [],
            "duration_us": 38.0,
            "bytes_before": 180,
            "bytes_after": 184,
        },
    )
    told.mark(4, good, "relay.request", {"app": body})
    profile = {"tool_call_id": "c1"}
    told.span(
        16.2,
        17,
        "search_code",
        "tool",
        told.turn,
        data={"q": "quantize("},
        category_profile=profile,
        out={"data": "4 matches in 2 files"},
    )
    told.span(18, 19, "index_refresh", "tool", call, data={}, out={"data": {}})
    sub = told.span(20, 26, "test-runner", "agent", told.turn, metadata={"nemo_relay_scope_role": "subagent"}, data={})
    inner = told.call(20.2, 23, "delegated", sub)
    told.answer(inner, 20.2, 23, [(21 + k * 0.1, {"content": "x "}) for k in range(15)])
    told.span(
        23.1,
        25.8,
        "run_tests",
        "tool",
        sub,
        data={},
        out={"data": "exit 1", "metadata": {"otel.status_code": "ERROR", "otel.status_message": "exit 1"}},
    )
    told.put(28, told.end(told.turn, "relay.turn", "function", told.session, {"outcome": "success"}))
    told.put(28, told.end(told.session, "relay.session", "agent", None))
    return told
