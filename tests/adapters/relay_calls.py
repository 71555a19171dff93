"""Calls through the real Relay for the tests of wire, intercepts and actions."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import nemo_relay

from adapters import intercepts, json_patch
from adapters.intercepts import RuleSet
from adapters.wire import ProviderCall

MODES = ("chat_completions", "codex_responses", "anthropic_messages")

CHAT: dict[str, Any] = {
    "model": "m",
    "zeta": {"q": 1},
    "messages": [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi there", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "first, look",
            "reasoning_details": [{"type": "reasoning.text", "text": "first, look"}],
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"z": 1, "a": 2}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok, hi"},
        {"role": "user", "content": "go on"},
    ],
    "temperature": 0.5,
    "top_p": 1,
    "max_tokens": 10,
    "n": 1,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "reads",
                "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}},
                "strict": True,
            },
            "vendor": 1,
        },
        {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {}}}},
    ],
    "tool_choice": "auto",
    "logit_bias": {"5": 1},
    "response_format": {"type": "json_object"},
    "extra_body": {"top_k": 1},
    "metadata": {"u": 1},
    "stream_options": {"include_usage": True},
}

RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be kind.",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi there"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            ],
        },
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "E"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"z": 1, "a": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "ok, hi"},
        {"role": "user", "content": "go on"},
    ],
    "tools": [
        {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"z": {}}}, "strict": True},
        {"type": "function", "name": "write", "parameters": {"type": "object", "properties": {}}, "strict": True},
        {"type": "web_search"},
    ],
    "store": False,
    "reasoning": {"effort": "low"},
    "previous_response_id": "p",
    "truncation": "auto",
    "max_output_tokens": 5,
    "temperature": 1,
    "vendor": {"a": 1},
    "include": ["x"],
}

ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 50,
    "zeta": None,
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "hi there"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "first, look", "signature": "sig"},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"z": 1, "a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "ok, hi"}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ],
    "tools": [
        {
            "name": "read",
            "description": "reads",
            "input_schema": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}},
            "cache_control": {"type": "ephemeral"},
        },
        {"name": "write", "input_schema": {"type": "object", "properties": {}}},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "thinking": {"type": "enabled", "budget_tokens": 10},
    "future": {"k": [1.0, 2]},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["x"],
    "top_k": 3,
    "tool_choice": {"type": "auto"},
}

_BODIES = dict(zip(MODES, (CHAT, RESPONSES, ANTHROPIC), strict=True))


def body(api_mode: str, **more: Any) -> dict[str, Any]:
    """A rich request of its own: unknown fields, tool history, reasoning, images, cache_control."""
    return {**copy.deepcopy(_BODIES[api_mode]), **more}


def text(value: Any) -> str:
    """JSON text with the order of keys, to compare bytes."""
    return json.dumps(value)


@dataclass
class Done:
    """What became of one call."""

    call: ProviderCall
    sent: Any = None  # what the provider's callback got
    result: Any = None
    events: list[dict[str, Any]] = field(default_factory=list)
    late: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def sent_body(self) -> dict[str, Any]:
        return {k: v for k, v in self.sent.items() if k not in ("extra_headers", "timeout")}

    @property
    def start(self) -> dict[str, Any]:
        """Data of the llm scope's start."""
        (found,) = (e for e in self.events if e["category"] == "llm" and e["scope_category"] == "start")
        return dict(found)

    @property
    def request(self) -> dict[str, Any]:
        """Data of the last `relay.request` mark, with `app` put together from its patch."""
        pending = [e["data"] for e in self.events if e["name"] == "relay.request"]
        mark = [*pending, *(data for name, data in self.late if name == "relay.request")][-1]
        if "app_patch" in mark:
            mark = {**mark, "app": json_patch.apply(self.start["data"]["content"], mark["app_patch"])}
        return dict(mark)

    @property
    def rewrites(self) -> list[dict[str, Any]]:
        """Data of the `relay.rewrite` marks, in order: those Relay emitted, then those that the callback has to."""
        pending = [e["data"] for e in self.events if e["name"] == "relay.rewrite"]
        return [*pending, *(data for name, data in self.late if name == "relay.rewrite")]


@contextlib.contextmanager
def rules(*configs: dict[str, Any], etag: str = "e") -> Iterator[RuleSet]:
    """The rule set in force inside."""
    rule_set = RuleSet.parse(configs, etag)
    previous = intercepts.swap(rule_set)
    try:
        yield rule_set
    finally:
        intercepts.swap(previous)
        intercepts.failures.clear()


@contextlib.contextmanager
def dispatched(on: bool) -> Iterator[None]:
    """Whether our intercept is in Relay from the beginning, or comes when a call needs it."""

    def forget() -> None:
        nemo_relay.intercepts.deregister_llm_request(intercepts.NAME)
        intercepts._registered = False

    forget()
    if on:
        intercepts.ensure_dispatcher()
    try:
        yield
    finally:
        forget()


@contextlib.contextmanager
def intercept(name: str, priority: int, fn: Any, *, break_chain: bool = False) -> Iterator[None]:
    """An intercept of the host's own."""
    nemo_relay.intercepts.register_llm_request(name, priority, break_chain, fn)
    try:
        yield
    finally:
        nemo_relay.intercepts.deregister_llm_request(name)


def passing(change: Any = None) -> Any:
    """An intercept function that changes the annotation, or a body without one, by `change(annotation, content)`."""

    def fn(_name: str, request: Any, annotation: Any) -> Any:
        headers, content = request.headers, request.content
        if change is not None:
            headers, content = change(headers, annotation, content)
        if annotation is None or headers != request.headers:
            request = nemo_relay.LLMRequest(headers, content if annotation is None else request.content)
        return nemo_relay.LLMRequestInterceptOutcome(request, annotation)

    return fn


async def run(
    request: dict[str, Any], api_mode: str, *, stream: bool = False, result: Any = None, **facts: Any
) -> Done:
    """One call through the real Relay; the provider answers `result` (streams it as one chunk)."""
    events: list[dict[str, Any]] = []
    facts.setdefault("provider", "prov")
    facts.setdefault("model", request.get("model"))
    call = ProviderCall(request, api_mode=api_mode, stream=stream, **facts)
    intercepts.prepare(call)
    done = Done(call, events=events)
    answer = {"ok": 1} if result is None else result

    def provider(passed: Any) -> Any:
        done.sent = call.outgoing(passed)
        done.late = call.late_marks()
        return answer

    async def streamed(passed: Any) -> AsyncIterator[Any]:
        yield provider(passed)

    name = f"test-{id(events)}"
    nemo_relay.subscribers.register(name, lambda event: events.append(json.loads(event.to_json())))
    try:
        with nemo_relay.scope.scope("agent", nemo_relay.ScopeType.Agent), call.activate():
            options: dict[str, Any] = {"codec": call.codec, "response_codec": call.response_codec, "model_name": "m"}
            if stream:
                live = await nemo_relay.llm.stream_execute(
                    call.operation, call.relay_request, streamed, lambda _chunk: None, lambda: {}, **options
                )
                try:
                    done.result = [chunk async for chunk in live]
                finally:
                    await live.aclose()
            else:
                done.result = await nemo_relay.llm.execute(call.operation, call.relay_request, provider, **options)
    finally:
        try:
            await nemo_relay.subscribers.flush_async()
        finally:  # a test that is cancelled here would leave a copy of every later event behind
            nemo_relay.subscribers.deregister(name)
    return done
