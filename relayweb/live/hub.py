"""The hub: one pull from the record for all viewers, after each poke.

The writer pokes with a sequence number after commit, nothing else; a lost poke costs a second. The hub then reads once
what came since, makes one frame for each topic that somebody watches and that changed, and wakes its viewers. Frames
wait in a bounded ring as bytes; a viewer that the ring no longer reaches is served from the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID

from relayweb.live.pokes import Pokes, shared_layer
from relayweb.live.source import Changes, Source

log = logging.getLogger(__name__)

T = TypeVar("T")

TURNS = None
"""Topic of the turn list; any other topic is a turn's uuid."""
Key = UUID | None

FRAME_SECONDS = 0.05
"""At most 20 pulls, and so at most 20 frames, a second."""
POLL_SECONDS = 1.0
"""How long a lost poke can go unnoticed."""
RING_FRAMES = 128
RING_BYTES = 2_000_000


class Topic:
    """What viewers of one turn (or of the list) share: a ring of frames, contiguous from `since` to `cursor`."""

    def __init__(self, key: Key, cursor: int) -> None:
        self.key = key
        self.since = cursor
        self.cursor = cursor
        self.ring: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.viewers: set[asyncio.Event] = set()

    def put(self, cursor: int, frame: bytes) -> None:
        self.ring.append((cursor, frame))
        self.size += len(frame)
        self.cursor = cursor
        while len(self.ring) > RING_FRAMES or (self.size > RING_BYTES and len(self.ring) > 1):
            gone, old = self.ring.popleft()
            self.size -= len(old)
            self.since = gone
        for event in self.viewers:
            event.set()

    def after(self, cursor: int) -> list[bytes] | None:
        """The frames that a viewer at `cursor` lacks; None when the ring does not reach back so far.

        A viewer fresh from the database may be ahead of the hub for a moment, and lacks nothing.
        """
        if cursor < self.since:
            return None
        return [frame for at, frame in self.ring if at > cursor]


class Hub:
    """One in each process. Everything but `poke` runs on the event loop that started it."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source or Source()
        self.topics: dict[Key, Topic] = {}
        self.cursor = 0
        self.pulls = 0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._pokes: Pokes | None = None

    def start(self) -> None:
        """Begin to listen to the writer. Idempotent; call it on the event loop that serves the sockets."""
        loop = asyncio.get_running_loop()
        if self._task and not self._task.done() and self._loop is loop:
            return
        self._loop = loop
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="relayweb-live")
        if layer := shared_layer():
            self._pokes = Pokes(layer, self._wake.set)
            self._pokes.start()
        self._unsubscribe = self.source.subscribe(self.poke)
        self._task = loop.create_task(self._run(), name="relayweb-live-hub")

    async def close(self) -> None:
        """Stop; sockets end by themselves when their topic does. Idempotent."""
        if self._unsubscribe:
            self._unsubscribe()
            self._unsubscribe = None
        if self._pokes:
            pokes, self._pokes = self._pokes, None
            await pokes.close()
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._pool:
            pool, self._pool = self._pool, None
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)
        for topic in self.topics.values():
            for event in topic.viewers:
                event.set()
        self.topics.clear()

    def poke(self, seq: int = 0) -> None:
        """Something was committed. From any thread; never blocks, never raises."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._poked)

    def _poked(self) -> None:
        self._wake.set()
        if self._pokes:
            self._pokes.tell()

    async def watch(self, key: Key, event: asyncio.Event) -> Topic:
        """Register a viewer, to be woken by `event`."""
        if not self._task or self._task.done():
            self.start()
        topic = self.topics.get(key)
        if topic is None:
            if not any(t.viewers for t in self.topics.values()):
                # Nobody watched, so the hub slept: what came meanwhile belongs to nobody.
                self.cursor = await self.read(self.source.latest)
            topic = self.topics.setdefault(key, Topic(key, self.cursor))
            if key is not None:
                await self.read(self.source.watch, key)
        topic.viewers.add(event)
        return topic

    def leave(self, topic: Topic, event: asyncio.Event) -> None:
        topic.viewers.discard(event)
        if not topic.viewers and self.topics.get(topic.key) is topic:
            del self.topics[topic.key]

    async def snapshot(self, key: Key, since: int) -> tuple[int, bytes]:
        """What changed since a cursor that the ring does not reach, from the database."""
        return await self.read(self.source.snapshot, key, since)

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Run a database read on the hub's own thread."""
        assert self._loop is not None and self._pool is not None, "the hub is not started"
        return await self._loop.run_in_executor(self._pool, self.source.guarded, call, *args)

    async def _run(self) -> None:
        last = 0.0
        while True:
            # Not wait_for: until Python 3.12 it can swallow a cancellation that comes together with a poke.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            if (early := last + FRAME_SECONDS - time.monotonic()) > 0:
                await asyncio.sleep(early)
            self._wake.clear()
            last = time.monotonic()
            if not any(topic.viewers for topic in self.topics.values()):
                continue
            try:
                await self._pull()
            except asyncio.CancelledError:
                raise
            except Exception:
                # The recorder may be degraded; viewers keep what they have and the next poke tries again.
                log.exception("live: reading the record failed")
                await asyncio.sleep(POLL_SECONDS)

    async def _pull(self) -> None:
        self.pulls += 1
        watched = {key for key in self.topics if key is not None}
        changes: Changes = await self.read(self.source.changes, self.cursor, watched, TURNS in self.topics)
        if changes.cursor <= self.cursor:
            return
        self.cursor = changes.cursor
        for key, topic in self.topics.items():
            frame = changes.frames.get(key)
            if frame is not None:
                topic.put(changes.cursor, frame)
            elif topic.cursor < changes.cursor:
                topic.cursor = changes.cursor


_hub: Hub | None = None


def hub() -> Hub:
    """The process's one hub."""
    global _hub
    if _hub is None:
        _hub = Hub()
    return _hub
