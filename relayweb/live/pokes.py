"""Pokes between processes: data-free words over the channel layer, at most twenty a second.

With one process there is nothing to do. A poke that is lost (the layer drops silently when full) costs a second, until
the hub's own poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings

log = logging.getLogger(__name__)

GROUP = "relayweb.live.pokes"
PAUSE_SECONDS = 0.05
RETRY_SECONDS = 2.0
CLOSE_SECONDS = 2.0
SILENT_SECONDS = 300.0
"""Between two lines in the log about the same outage."""
IN_MEMORY = "channels.layers.InMemoryChannelLayer"


def shared_layer() -> Any | None:
    """The channel layer that other processes are on, or None."""
    return None if settings.CHANNEL_LAYERS["default"]["BACKEND"] == IN_MEMORY else get_channel_layer()


class Pokes:
    """Tells the other processes of what this one committed, and wakes the hub for what they did."""

    def __init__(self, layer: Any, wake: Callable[[], None]) -> None:
        self._layer = layer
        self._wake = wake
        self._pending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._channel = ""
        self._closing = False

    def start(self) -> None:
        self._closing = False
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._lasting(work)) for work in (self._listen, self._tell)]

    async def close(self) -> None:
        """Stop, within a few seconds whatever becomes of the layer."""
        self._closing = True
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if self._channel:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._layer.group_discard(GROUP, self._channel)

    def tell(self) -> None:
        """Something was committed here. On the event loop; never blocks."""
        self._pending.set()

    async def _lasting(self, work: Callable[[], Any]) -> None:
        """A layer that is gone must not end the live views; they poll meanwhile."""
        said = float("-inf")
        while not self._closing:  # a client whose connection breaks just then swallows its cancellation
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if self._closing:
                    break
                if time.monotonic() - said > SILENT_SECONDS:
                    said = time.monotonic()
                    log.warning("live: the channel layer failed (%s); polling until it is back", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        self._channel = await self._layer.new_channel("relayweb")
        await self._layer.group_add(GROUP, self._channel)
        while True:
            message = await self._layer.receive(self._channel)
            if message.get("from") != self._channel:
                self._wake()

    async def _tell(self) -> None:
        while True:
            await self._pending.wait()
            self._pending.clear()
            await self._layer.group_send(GROUP, {"type": "poke", "from": self._channel})
            await asyncio.sleep(PAUSE_SECONDS)
