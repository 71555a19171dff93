"""What the core costs an agent: a call and a chunk through it, against bare Relay and against no Relay, in one run.

In time of the processor until all events are with the subscriber, Relay's threads included: on a quiet machine that is
how long it takes. Alternating rounds, the best of each: the least disturbed round is the one that tells the cost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import nemo_relay

from adapters import intercepts, relay_llm
from adapters.relay_runtime import SESSION_COORDINATOR, RelayTurnContext
from bench import Row, table

ROUNDS = 25
CALLS = 20
CHUNKS = 100

BODY: nemo_relay.JsonObject = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You are a careful assistant. " * 20},
        {"role": "user", "content": "What does the core cost? " * 10},
    ],
    "temperature": 0.2,
}
ANSWER = {
    "id": "r",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Little. " * 20}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240},
}
CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}],
}
RULE = {"key": "bench", "action": {"type": "set_parameters", "parameters": {"temperature": 0.7}}}
NAME, MODEL = "openai.chat_completions", "m"


def _metadata(number: int) -> dict[str, Any]:
    return {"api_mode": "chat_completions", "api_request_id": f"bench-{number}", "call_role": "primary"}


async def _provider(request: Any) -> Any:
    return ANSWER


async def _source(request: Any) -> Any:
    for _ in range(CHUNKS):
        yield CHUNK


def _chunks(request: Any) -> Iterator[Any]:
    for _ in range(CHUNKS):
        yield CHUNK


async def _no_relay() -> None:
    for _ in range(CALLS):
        await _provider(BODY)


async def _bare_relay() -> None:
    codec = nemo_relay.codecs.OpenAIChatCodec()
    for _ in range(CALLS):
        await nemo_relay.llm.execute(
            NAME, nemo_relay.LLMRequest({}, BODY), _provider, codec=codec, response_codec=codec, model_name=MODEL
        )


class _Codec:
    """A codec in Python, as ours must be to keep the whole history in the start event."""

    def __init__(self) -> None:
        self._native = nemo_relay.codecs.OpenAIChatCodec()

    def decode(self, request: Any) -> Any:
        return self._native.decode(request)

    def encode(self, annotation: Any, original: Any) -> Any:
        return self._native.encode(annotation, original)


def _bare_grouped(turn: RelayTurnContext) -> Callable[[], Awaitable[None]]:
    """Bare Relay made to do what the core has it do: a scope and a stack for each logical call, metadata, a codec."""
    assert turn.scope is not None
    context = turn.scope.context

    async def calls() -> None:
        response_codec = nemo_relay.codecs.OpenAIChatCodec()
        for number in range(CALLS):
            metadata = {**_metadata(number), "session_id": "bench", "turn_id": "bench", "relay.provider": "openai"}
            stack = nemo_relay.create_scope_stack_from_propagation(context)
            with nemo_relay.use_scope_stack(stack):
                handle = nemo_relay.scope.push("call", nemo_relay.ScopeType.Function, metadata=metadata, input={})
                answer = nemo_relay.llm.execute(
                    NAME,
                    nemo_relay.LLMRequest({}, BODY),
                    _provider,
                    handle=handle,
                    metadata=metadata,
                    codec=_Codec(),
                    response_codec=response_codec,
                    model_name=MODEL,
                )
            await answer
            with nemo_relay.use_scope_stack(stack):
                nemo_relay.scope.pop(handle, output={"outcome": "success"})

    return calls


async def _core() -> None:
    for number in range(CALLS):
        await relay_llm.execute_current_async(
            BODY, _provider, name="openai", model_name=MODEL, metadata=_metadata(number)
        )


async def _bare_stream() -> None:
    codec = nemo_relay.codecs.OpenAIChatCodec()
    stream = await nemo_relay.llm.stream_execute(
        NAME,
        nemo_relay.LLMRequest({}, BODY),
        _source,
        lambda chunk: None,
        dict,
        codec=codec,
        response_codec=codec,
        model_name=MODEL,
    )
    async for _ in stream:
        pass


async def _core_stream() -> None:
    stream = await relay_llm.stream_current_async(BODY, _source, name="openai", model_name=MODEL, metadata=_metadata(0))
    async for _ in stream:
        pass


def _core_sync_stream() -> None:
    for _ in relay_llm.stream_current(BODY, _chunks, name="openai", model_name=MODEL, metadata=_metadata(0)):
        pass


def _core_sync() -> None:
    for number in range(CALLS):
        relay_llm.execute_current(BODY, lambda r: ANSWER, name="openai", model_name=MODEL, metadata=_metadata(number))


async def _timed(action: Callable[[], Awaitable[None]]) -> float:
    started = time.process_time()
    await action()
    await nemo_relay.subscribers.flush_async()
    return time.process_time() - started


def _in_loop(action: Callable[[], Awaitable[None]]) -> Callable[[], float]:
    return lambda: asyncio.run(_timed(action))


def _in_thread(action: Callable[[], None]) -> Callable[[], float]:
    def measure() -> float:
        started = time.process_time()
        action()
        nemo_relay.subscribers.flush()
        return time.process_time() - started

    return measure


def _best(measures: dict[str, Callable[[], float]], per: int) -> dict[str, float]:
    """Microseconds a piece, the best round of each; rounds alternate, the first warms up."""
    seen: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            seen[name].append(measure() / per * 1e6)
    return {name: min(times[1:]) for name, times in seen.items()}


def _begin() -> RelayTurnContext:
    lease = SESSION_COORDINATOR.acquire_conversation(session_id="bench")
    lease.host.retain_managed_execution("bench")
    return SESSION_COORDINATOR.begin_turn(lease, turn_id="bench")


def _calls(turn: RelayTurnContext) -> dict[str, float]:
    _core_sync()
    unruled = _best(
        {
            "none": _in_loop(_no_relay),
            "bare": _in_loop(_bare_relay),
            "bare, grouped": _in_loop(_bare_grouped(turn)),
            "bare, one intercept": _intercepted(_idle),
            "core": _in_loop(_core),
            "core, sync": _in_thread(_core_sync),
        },
        CALLS,
    )
    rewritten = _best({"core, one rewrite": _with_rule, "bare, one rewrite": _intercepted(_cooled)}, CALLS)
    return {**unruled, **rewritten}


def _with_rule() -> float:
    """A rule of ours that sets a parameter."""
    intercepts.swap(intercepts.RuleSet.parse([RULE]))
    try:
        return _in_loop(_core)()
    finally:
        intercepts.swap(intercepts.RuleSet())


def _intercepted(intercept: Any) -> Callable[[], float]:
    """Bare Relay with this one request intercept."""

    def measure() -> float:
        nemo_relay.intercepts.register_llm_request("bench", 50, False, intercept)
        try:
            return _in_loop(_bare_relay)()
        finally:
            nemo_relay.intercepts.deregister_llm_request("bench")

    return measure


def _idle(_name: str, request: Any, annotation: Any) -> Any:
    return nemo_relay.LLMRequestInterceptOutcome(request, annotation)


def _cooled(_name: str, request: Any, annotation: Any) -> Any:
    annotation.params = {**(annotation.params or {}), "temperature": 0.7}
    return nemo_relay.LLMRequestInterceptOutcome(request, annotation)


def _take(event: nemo_relay.ScopeEvent | nemo_relay.MarkEvent) -> None:
    event.to_json()


def run() -> list[Row]:
    """The core's cost a call and a chunk, with one subscriber that takes each event as JSON."""
    nemo_relay.subscribers.register("bench", _take)
    turn = _begin()
    try:
        calls = _calls(turn)
        chunks = _best(
            {
                "bare": _in_loop(_bare_stream),
                "core": _in_loop(_core_stream),
                "core, sync": _in_thread(_core_sync_stream),
            },
            CHUNKS,
        )
    finally:
        SESSION_COORDINATOR.end_turn(turn, outcome="success")
        nemo_relay.subscribers.flush()
        nemo_relay.subscribers.deregister("bench")
    added = calls["core"] - calls["none"]
    return [
        ("added to a call", added / 1e3, "ms", "≤ 1"),
        ("added to a call, sync", (calls["core, sync"] - calls["none"]) / 1e3, "ms", ""),
        ("bare Relay adds", (calls["bare"] - calls["none"]) / 1e3, "ms", ""),
        ("bare Relay with a scope for each call adds", (calls["bare, grouped"] - calls["none"]) / 1e3, "ms", ""),
        ("bare Relay with one intercept adds", (calls["bare, one intercept"] - calls["none"]) / 1e3, "ms", ""),
        ("a call, against bare Relay with one intercept", calls["core"] / calls["bare, one intercept"], "×", ""),
        (
            "a call that one intercept rewrites, against bare Relay",
            calls["core, one rewrite"] / calls["bare, one rewrite"],
            "×",
            "≤ 1.6",
        ),
        ("a chunk, async, over bare Relay", chunks["core"] - chunks["bare"], "µs", "≤ 60"),
        ("a chunk, sync, over bare Relay", chunks["core, sync"] - chunks["bare"], "µs", "≤ 250"),
        ("a chunk, bare Relay", chunks["bare"], "µs", ""),
    ]


if __name__ == "__main__":
    print(table(run()))
