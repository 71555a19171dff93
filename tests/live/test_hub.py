"""The hub: one pull for all, bounded rings, lost pokes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from relayweb.live import frames, hub
from relayweb.live.source import Changes, Source

TURN = uuid4()


class Record(Source):
    """A record in memory: what the hub reads, without a database."""

    def __init__(self) -> None:
        super().__init__()
        self.seq = 0
        self.changed: dict[int, set[UUID | None]] = {}
        self.reads: list[tuple[int, set[UUID], bool]] = []
        self.poke: Callable[[int], None] | None = None
        self.fail = 0

    def subscribe(self, poke: Callable[[int], None]) -> Callable[[], None]:
        self.poke = poke
        return lambda: setattr(self, "poke", None)

    def guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    def latest(self) -> int:
        return self.seq

    def watch(self, turn: UUID) -> None: ...

    def snapshot(self, turn: UUID | None, since: int) -> tuple[int, bytes]:
        return self.seq, frames.encode(self.seq, resync=True)

    def changes(self, since: int, watched: set[UUID], turns: bool) -> Changes:
        if self.fail:
            self.fail -= 1
            raise RuntimeError("database is gone")
        self.reads.append((since, set(watched), turns))
        keys = {key for seq, of in self.changed.items() if seq > since for key in of}
        return Changes(self.seq, {key: frames.encode(self.seq) for key in keys})

    def commit(self, *keys: UUID | None, poke: bool = True) -> None:
        self.seq += 1
        self.changed[self.seq] = set(keys)
        if poke and self.poke:
            self.poke(self.seq)


@pytest.fixture
async def started() -> Any:
    one = hub.Hub(Record())
    one.start()
    yield one
    await one.close()


async def soon(check: Callable[[], Any], seconds: float = 3) -> None:
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110 (any condition, not one of ours)
            await asyncio.sleep(0.01)


async def test_nothing_is_read_while_nobody_watches(started: hub.Hub) -> None:
    record: Any = started.source
    record.commit(TURN)
    await asyncio.sleep(0.2)
    assert record.reads == []


async def test_many_viewers_of_one_turn_cost_one_read_and_get_the_same_bytes(started: hub.Hub) -> None:
    record: Any = started.source
    events = [asyncio.Event() for _ in range(50)]
    topics = [await started.watch(TURN, event) for event in events]
    record.commit(TURN)
    await soon(lambda: all(event.is_set() for event in events))
    assert len(record.reads) == 1
    assert len({id(topic.after(0)[0]) for topic in topics}) == 1  # type: ignore[index]


async def test_pokes_are_gathered_into_at_most_twenty_reads_a_second(started: hub.Hub) -> None:
    record: Any = started.source
    await started.watch(TURN, asyncio.Event())
    began = time.monotonic()
    for _ in range(200):
        record.commit(TURN)
        await asyncio.sleep(0.0025)
    # By the clock: on a busy machine the loop takes longer than its sleeps.
    assert len(record.reads) <= (time.monotonic() - began) * 20 + 2


async def test_a_lost_poke_costs_a_second_and_nothing_else(started: hub.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "POLL_SECONDS", 0.1)
    record: Any = started.source
    event = asyncio.Event()
    topic = await started.watch(TURN, event)
    record.commit(TURN, poke=False)
    await soon(lambda: topic.after(0), 3)


async def test_a_turn_that_did_not_change_gets_no_frame_but_a_newer_cursor(started: hub.Hub) -> None:
    record: Any = started.source
    other = uuid4()
    still = await started.watch(TURN, asyncio.Event())
    moving = await started.watch(other, asyncio.Event())
    record.commit(other)
    await soon(lambda: moving.after(0))
    assert still.after(0) == []
    assert still.cursor == record.seq


async def test_a_read_that_fails_is_tried_again(started: hub.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "POLL_SECONDS", 0.1)
    record: Any = started.source
    topic = await started.watch(TURN, asyncio.Event())
    record.fail = 1
    record.commit(TURN)
    await soon(lambda: topic.after(0))


async def test_the_ring_is_bounded_and_says_when_it_reaches_no_further_back() -> None:
    topic = hub.Topic(TURN, 0)
    for seq in range(1, 1000):
        topic.put(seq, b"x" * 10_000)
    assert topic.size <= hub.RING_BYTES
    assert len(topic.ring) <= hub.RING_FRAMES
    assert topic.after(0) is None
    assert len(topic.after(998) or []) == 1
    assert topic.after(999) == []


async def test_the_last_viewer_takes_the_topic_with_it(started: hub.Hub) -> None:
    one, two = asyncio.Event(), asyncio.Event()
    topic = await started.watch(TURN, one)
    await started.watch(TURN, two)
    started.leave(topic, one)
    assert TURN in started.topics
    started.leave(topic, two)
    assert started.topics == {}


async def test_closing_twice_is_closing_once() -> None:
    one = hub.Hub(Record())
    one.start()
    one.start()
    await one.close()
    await one.close()
