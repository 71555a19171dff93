"""What rules cost a call: bare Relay, our call without rules, and with 20 rules of which 2 match, in one run.

In time of the processor, as bench/core.py.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nemo_relay

from adapters import intercepts
from adapters.wire import WIRES, ProviderCall
from bench import Row, table

ROUNDS = 40
CALLS = 8
FIRST_WITH_DISPATCHER = "empty"


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


Call = Callable[[], Awaitable[Any]]


def bare(request: dict[str, Any]) -> Call:
    """One call of Relay as it comes: its codec, no intercept at work."""
    wire = WIRES["chat_completions"]
    codec = wire.codec()

    async def call() -> Any:
        relay_request = nemo_relay.LLMRequest({}, request)
        return await nemo_relay.llm.execute(
            wire.operation,
            relay_request,
            lambda passed: {"ok": passed.content is None},
            codec=codec,
            model_name="gpt-4o",
        )

    return call


def ours(request: dict[str, Any], rule_set: intercepts.RuleSet) -> Call:
    """One call carried by ProviderCall under `rule_set`."""

    async def call() -> Any:
        intercepts.swap(rule_set)
        made = ProviderCall(request, api_mode="chat_completions", provider="openai", model="gpt-4o", session_id="s")

        def provider(passed: nemo_relay.LLMRequest) -> Any:
            made.outgoing(passed)
            made.late_marks()
            return {"ok": True}

        with made.activate():
            return await nemo_relay.llm.execute(
                made.operation, made.relay_request, provider, codec=made.codec, model_name="gpt-4o"
            )

    return call


async def _compare(calls: dict[str, Call]) -> dict[str, float]:
    """Best µs a call of each. Rounds are interleaved, so that a busy machine hits all alike; the first two run
    without our dispatcher in Relay."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    # A logical call has a stack of its own with a Function on it; below an Agent Relay would add headers of its own.
    with nemo_relay.scope.scope("bench", nemo_relay.ScopeType.Function):
        for turn in range(ROUNDS + 1):
            for name, call in calls.items():
                if name == FIRST_WITH_DISPATCHER:
                    nemo_relay.intercepts.register_llm_request(intercepts.NAME, 0, False, intercepts.dispatch)
                started = time.process_time()
                for _ in range(CALLS):
                    await call()
                if turn:  # the first round only warms up
                    times[name].append((time.process_time() - started) / CALLS * 1e6)
            nemo_relay.intercepts.deregister_llm_request(intercepts.NAME)
    return {name: min(values) for name, values in times.items()}


def run() -> list[Row]:
    """The rules' share is what they and the dispatch add to our own call without a dispatcher."""
    gc.collect()
    gc.freeze()
    previous = intercepts.current()
    rows: list[Row] = []
    try:
        for label, size, budget in (("1 KB", 1_000, "≤ 450"), ("10 KB", 10_000, "")):
            request = body(size)
            none = intercepts.RuleSet()
            calls = {
                "bare": bare(request),
                "ours": ours(request, none),
                FIRST_WITH_DISPATCHER: ours(request, none),
                "rules": ours(request, rules()),
            }
            took = asyncio.run(_compare(calls))
            rows += [
                (f"rules: bare Relay call, {label}", took["bare"], "µs", ""),
                (f"rules: carrying the app's body, {label}, added", took["ours"] - took["bare"], "µs", ""),
                (f"rules: an empty set, {label}, added by the dispatch", took["empty"] - took["ours"], "µs", ""),
                (
                    f"rules: 20 of which 2 match, {label}, added with dispatch",
                    took["rules"] - took["ours"],
                    "µs",
                    budget,
                ),
            ]
    finally:
        intercepts.swap(previous)
        nemo_relay.subscribers.flush()  # without it the native library may crash at exit
    return rows


if __name__ == "__main__":
    print(table(run()))
