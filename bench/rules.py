"""What rules cost a call of the core: without rules and with 20 rules of which 2 match, in one run.

In time of the processor, Relay's threads included: on a quiet machine that is how long a call takes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nemo_relay

from adapters import intercepts, relay_llm, turn
from adapters.wire import WIRES
from bench import Row, table

ROUNDS = 40
CALLS = 10


def body(size: int) -> dict[str, Any]:
    """A Chat Completions request of an agent at work, about `size` bytes."""
    tool = {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of the project",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a careful engineer. " * 8}]
    request = {"model": "gpt-4o", "messages": messages, "tools": [tool] * 3, "temperature": 0.2, "max_tokens": 800}
    step = 0
    while len(json.dumps(request)) < size:
        arguments = json.dumps({"path": f"src/module_{step}.py"})
        call = {"id": f"call_{step}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": "def f(x):\n    return x\n" * 12})
        step += 1
    messages.append({"role": "user", "content": "Go on."})
    return request


def rules() -> intercepts.RuleSet:
    """20 rules: one sets a parameter and one appends to the system text; 18 are for other models."""
    configs: list[dict[str, Any]] = [
        {
            "key": f"other-{i}",
            "match": {"model": [f"claude-{i}*"], "provider": ["anthropic*"]},
            "action": {"type": "set_parameters", "parameters": {"temperature": i / 20}},
        }
        for i in range(18)
    ]
    configs.append({"key": "cool", "action": {"type": "set_parameters", "parameters": {"temperature": 0}}})
    text = {"type": "system_text", "where": "append", "text": "Be brief."}
    configs.append({"key": "brief", "match": {"model": ["gpt-*"]}, "action": text})
    return intercepts.RuleSet.parse(configs, "bench")


Calls = Callable[[], Awaitable[None]]


def _idle(_name: str, request: Any, annotation: Any) -> Any:
    return nemo_relay.LLMRequestInterceptOutcome(request, annotation)


async def _provider(_request: Any) -> Any:
    return {"ok": True}


def bare(request: dict[str, Any]) -> Calls:
    """Relay as it comes: its codec, no intercept."""
    wire = WIRES["chat_completions"]
    codec = wire.codec()

    async def calls() -> None:
        for _ in range(CALLS):
            relay_request = nemo_relay.LLMRequest({}, request)
            await nemo_relay.llm.execute(wire.operation, relay_request, _provider, codec=codec, model_name="gpt-4o")

    return calls


def ours(
    request: dict[str, Any], rule_set: intercepts.RuleSet, *, dispatched: bool = False, host: bool = False
) -> Calls:
    """Calls of the core under `rule_set`, `dispatched` by Relay, beside an intercept of a `host`, which needs that."""

    async def calls() -> None:
        intercepts.swap(rule_set)
        if host:
            nemo_relay.intercepts.register_llm_request("host", 50, False, _idle)
        if dispatched:
            intercepts.ensure_dispatcher()
        for number in range(CALLS):
            metadata = {"api_mode": "chat_completions", "api_request_id": f"bench-{number}"}
            await relay_llm.execute_current_async(
                request, _provider, name="openai", model_name="gpt-4o", metadata=metadata
            )
        if host:
            nemo_relay.intercepts.deregister_llm_request("host")
        if dispatched:
            nemo_relay.intercepts.deregister_llm_request(intercepts.NAME)
            intercepts._registered = False

    return calls


async def _compare(measured: dict[str, Calls]) -> dict[str, float]:
    """Best µs a call of each. Rounds are interleaved, so that a busy machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(ROUNDS + 1):
        for name, calls in measured.items():
            started = time.process_time()
            await calls()
            if number:  # the first round only warms up
                times[name].append((time.process_time() - started) / CALLS * 1e6)
            await nemo_relay.subscribers.flush_async()
    return {name: min(values) for name, values in times.items()}


def run() -> list[Row]:
    """What rules add to a call of the core without rules."""
    gc.collect()
    gc.freeze()
    previous = intercepts.current()
    rows: list[Row] = []
    try:
        with turn(session="bench"):
            for label, size, budget in (("1 KB", 1_000, "≤ 450"), ("10 KB", 10_000, "≤ 450")):
                request = body(size)
                measured = {
                    "bare": bare(request),
                    "none": ours(request, intercepts.RuleSet()),
                    "rules": ours(request, rules()),
                    "dispatched": ours(request, rules(), dispatched=True),
                    "host": ours(request, intercepts.RuleSet(), host=True),
                    "host and rules": ours(request, rules(), dispatched=True, host=True),
                }
                took = asyncio.run(_compare(measured))
                match = f"20 of which 2 match, {label}"
                none, host = took["none"], took["host"]
                rows += [
                    (f"bare Relay call, {label}", took["bare"], "µs", ""),
                    (f"{match}, added", took["rules"] - none, "µs", budget),
                    (f"{match}, with Relay's dispatch, added", took["dispatched"] - none, "µs", budget),
                    (f"{match}, added to a host's intercept", took["host and rules"] - host, "µs", ""),
                ]
    finally:
        intercepts.swap(previous)
    return rows


if __name__ == "__main__":
    print(table(run()))
