"""What a call leaves behind goes at once, by reference counts: a server collects garbage seldom."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from relayweb.gateway.app import Gateway
from relayweb.gateway.upstreams import Target
from tests.gateway.inprocess import ask

DEMO = Target("demo", "demo://relayweb/v1", "chat_completions")


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """What only a collection would free, of the objects made meanwhile."""
    gc.collect()
    gc.disable()
    found: list[Any] = []
    yield found
    gc.enable()
    found.clear()
    gc.garbage.clear()


def ours() -> list[str]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = [type(one) for one in gc.garbage]
    return sorted(
        f"{kind.__module__}.{kind.__name__}" for kind in kinds if kind.__module__.startswith(("adapters", "relayweb"))
    )


@pytest.mark.parametrize("hangs_up", [False, True], ids=["read to its end", "hung up on"])
async def test_a_stream_leaves_no_cycle_of_ours_behind(hangs_up: bool, garbage: list[Any]) -> None:
    gateway = Gateway()
    for number in range(3):
        gone = asyncio.Event()
        body = {"model": "demo-mini", "stream": True, "messages": [{"role": "user", "content": f"Hi {number}"}]}
        headers = {"x-relay-session-id": "s", "x-demo-pace": "1" if hangs_up else "0"}
        told = lambda answer, gone=gone: gone.set() if hangs_up and len(answer.pieces) == 3 else None  # noqa: E731
        answer = await ask(gateway, DEMO, "/v1/chat/completions", body, headers, hang_up=gone, on_piece=told)
        assert answer.status == 200 and answer.ended != hangs_up
        del answer
    await asyncio.sleep(0.2)
    assert ours() == []
    await gateway.close()
