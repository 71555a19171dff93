"""A demo turn: a small agent inside the process that works through the on-call story, by the gateway's own code."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import MutableMapping
from typing import Any

from django.apps import apps
from django.db import DatabaseError, close_old_connections

from adapters import accumulators, sse
from relayweb.gateway import routes
from relayweb.gateway.answering import Answering
from relayweb.gateway.conversation import CHAT, read_answer
from relayweb.gateway.demo import script
from relayweb.gateway.exchange import Incoming, dump, read
from relayweb.gateway.upstreams import Target, directory

log = logging.getLogger(__name__)

UPSTREAM = "demo"
# For an installation whose own `demo` was taken away.
_TARGET = Target(UPSTREAM, "demo://relayweb/v1", CHAT)
INTERCEPT = {
    "key": "demo-next-step",
    "title": "Ask for a next step",
    "enabled": True,
    "mode": "enforce",
    "priority": 50,
    "break_chain": False,
    "on_error": "open",
    "match": {"provider": [UPSTREAM], "call_role": ["primary"]},
    "action": {
        "type": "system_text",
        "where": "append",
        "text": "Always end a conclusion with one concrete next step.",
    },
}


class _Client:
    """The agent's HTTP client: makes calls in-process, and puts streamed answers together."""

    def __init__(self, session_id: str, pace: float) -> None:
        self.headers = {
            "content-type": "application/json",
            "user-agent": "relayweb-demo-agent",
            "x-relay-session-id": session_id,
            "x-demo-pace": str(pace),
        }
        self.pace = pace

    async def ask(self, path: str, body: dict[str, Any], role: str = "primary", retries: int = 2) -> Any:
        """The answer's JSON, after up to `retries` retries of a 503 (the last error's when all failed)."""
        for attempt in range(retries + 1):
            status, headers, content = await self._post(path, body, role, attempt)
            if status != 503:
                break
            await asyncio.sleep(float(headers.get("retry-after", 1)) * self.pace)
        if not headers.get("content-type", "").startswith("text/event-stream"):
            return read(content)
        accumulator = accumulators.for_api_mode(routes.api_mode("POST", path) or CHAT)
        assert accumulator is not None
        for event in sse.Splitter().feed(content):
            if event.data and event.data != b"[DONE]":
                accumulator.observe(read(event.data))
        return accumulator.finalize()

    async def _post(
        self, path: str, body: dict[str, Any], role: str, attempt: int
    ) -> tuple[int, dict[str, str], bytes]:
        from relayweb.gateway.app import gateway

        status, headers, parts = 0, {}, []

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in message["headers"]}
            else:
                parts.append(message["body"])

        target = await directory.find(UPSTREAM) or _TARGET
        sent = {**self.headers, "x-relay-call-role": role, "x-stainless-retry-count": str(attempt)}
        raw = [(k.encode(), v.encode()) for k, v in sent.items()]
        incoming = Incoming(target, "POST", target.url(path), routes.api_mode("POST", path), raw, dump(body))
        await gateway().call(incoming, "demo", Answering(send))
        return status, headers, b"".join(parts)


async def run_turn(pace: float = 1.0) -> str:
    """Plays one turn and returns its session id.

    It holds several logical calls, of which the first fails once and is retried, streams with reasoning and tool calls,
    tools, a buffered side call in another wire format, one that fails for good, and a rewrite by the demo intercept.
    It takes about fifteen seconds; `pace` scales that (0: as fast as it goes).
    """
    await asyncio.to_thread(_in_thread)
    session_id = f"demo-{uuid.uuid4().hex[:8]}"
    client = _Client(session_id, pace)
    title = asyncio.ensure_future(_title(client))
    try:
        await _agent_loop(client)
        await title
    finally:
        title.cancel()
    return session_id


async def _title(client: _Client) -> None:
    await asyncio.sleep(0.2 * client.pace)  # agents ask for it when the answer is on its way
    await client.ask("v1/messages", _title_request(), "auxiliary:title")


async def _agent_loop(client: _Client) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": script.SYSTEM},
        {"role": "user", "content": script.QUESTION},
    ]
    for step in range(5):
        body = {
            "model": "demo-flaky",
            "messages": messages,
            "tools": script.tool_definitions(CHAT),
            "temperature": 0.2,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = await client.ask("v1/chat/completions", body)
        calls = read_answer(CHAT, answer).tool_calls
        if not calls:
            return
        messages.append(answer["choices"][0]["message"])
        results = await asyncio.gather(*[_run_tool(call.name, client.pace) for call in calls])
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        if step == 1:
            # A side task that asks too much of a small model; the agent goes on without its answer.
            summary = {"model": "demo-small-context", "messages": messages}
            await client.ask("v1/chat/completions", summary, "auxiliary:compression")


async def _run_tool(name: str, pace: float) -> Any:
    seconds, result = script.RESULTS[name]
    await asyncio.sleep(seconds * pace)
    return result


def _title_request() -> dict[str, Any]:
    return {
        "model": "demo-mini",
        "max_tokens": 16,
        "system": "Write a title of at most six words for the user's request.",
        "messages": [{"role": "user", "content": script.QUESTION}],
    }


def _in_thread() -> None:
    close_old_connections()
    ensure_demo_intercept()


def ensure_demo_intercept() -> None:
    """Puts the demo's intercept in force, once: when someone changes or deletes it, that stays."""
    # By name, because intercepts and gateway are siblings that do not import each other.
    try:
        if not apps.get_model("intercepts", "Revision").objects.filter(key=INTERCEPT["key"]).exists():
            config: Any = apps.get_model("intercepts", "InterceptConfig")
            config.publish(INTERCEPT, author="relayweb", note="made for the demo turn")
    except (DatabaseError, LookupError) as error:
        log.warning("the demo intercept could not be made: %s", error)
