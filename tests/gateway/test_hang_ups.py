"""Clients that hang up at any moment while a stream opens: nothing reads on for them."""

from __future__ import annotations

import asyncio

from relayweb.gateway.app import Gateway
from relayweb.gateway.upstreams import Target
from tests.gateway.inprocess import ask
from tests.gateway.provider import HANG, Provider, Script, chat_stream

STEP = 0.00003
MOMENTS = 300  # on a quiet machine four of them once left a stream open for good


async def test_whenever_a_client_hangs_up_its_stream_ends(gateway: Gateway, target: Target, provider: Provider) -> None:
    script = Script(headers={"content-type": "text/event-stream"}, pieces=[*chat_stream("A")[:1], HANG])
    provider.scripts["gone"] = script
    body = {"model": "gone", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    before = asyncio.all_tasks()
    for moment in range(MOMENTS):
        hang_up = asyncio.Event()
        asyncio.get_running_loop().call_later(moment * STEP, hang_up.set)
        await ask(gateway, target, "chat/completions", body, {"x-relay-session-id": f"s{moment}"}, hang_up)
    for _ in range(400):
        if not (left := asyncio.all_tasks() - before):
            break
        await asyncio.sleep(0.05)
    assert not left
    assert gateway.registry.counts()["calls"] == 0
