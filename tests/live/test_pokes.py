"""Pokes between processes, here between two hubs on one channel layer."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer

from relayweb.live import hub, pokes
from tests.live.test_hub import TURN, Record, soon


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> InMemoryChannelLayer:
    shared = InMemoryChannelLayer()
    monkeypatch.setattr(hub, "shared_layer", lambda: shared)
    monkeypatch.setattr(hub, "POLL_SECONDS", 30)
    return shared


async def test_a_commit_in_one_process_reaches_the_viewers_of_another(layer: Any) -> None:
    here, there = hub.Hub(Record()), hub.Hub(Record())
    here.start()
    there.start()
    topic = await there.watch(TURN, asyncio.Event())
    await asyncio.sleep(0.1)
    record: Any = there.source
    record.commit(TURN, poke=False)  # the record is shared; only the other process knows that it changed
    here.poke(record.seq)
    await soon(lambda: topic.after(0))
    await here.close()
    await there.close()


async def test_a_layer_that_fails_is_tried_again(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pokes, "RETRY_SECONDS", 0.01)
    failing = iter([ConnectionError("gone")] * 3)
    new_channel = layer.new_channel

    async def flaky(prefix: str) -> str:
        if error := next(failing, None):
            raise error
        return str(await new_channel(prefix))

    monkeypatch.setattr(layer, "new_channel", flaky)
    woken = asyncio.Event()
    told = pokes.Pokes(layer, woken.set)
    told.start()
    await soon(lambda: layer.groups)
    await layer.group_send(pokes.GROUP, {"type": "poke", "from": "another"})
    await asyncio.wait_for(woken.wait(), 3)
    await told.close()
    assert not layer.groups.get(pokes.GROUP)


async def test_it_stops_though_the_layer_breaks_just_then_and_swallows_its_cancellation(
    layer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = layer.receive

    async def broken(channel: str) -> Any:
        try:
            return await receive(channel)
        except asyncio.CancelledError:
            raise ConnectionError("gone") from None

    monkeypatch.setattr(layer, "receive", broken)
    told = pokes.Pokes(layer, lambda: None)
    told.start()
    await soon(lambda: layer.groups)
    await asyncio.wait_for(told.close(), 1)


async def test_a_process_does_not_wake_itself(layer: Any) -> None:
    woken = asyncio.Event()
    told = pokes.Pokes(layer, woken.set)
    told.start()
    await soon(lambda: layer.groups)
    told.tell()
    await asyncio.sleep(0.2)
    assert not woken.is_set()
    await told.close()


def test_one_process_needs_no_layer() -> None:
    assert pokes.shared_layer() is None


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """Address of a redis server of our own."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    yield f"redis://127.0.0.1:{port}"
    server.terminate()
    server.wait(10)


async def test_pokes_travel_over_redis(redis: str) -> None:
    from channels_redis.core import RedisChannelLayer

    woken = asyncio.Event()
    layers = [RedisChannelLayer([redis]) for _ in range(2)]
    here, there = pokes.Pokes(layers[0], lambda: None), pokes.Pokes(layers[1], woken.set)
    here.start()
    there.start()
    async with asyncio.timeout(15):
        while not woken.is_set():
            here.tell()
            await asyncio.sleep(0.1)
    await here.close()
    await there.close()
    for layer in layers:
        await layer.close_pools()
