"""The order in which the parts of a serving process start, and the reverse in which they stop."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connections

from relayweb.backups import mark_in_use
from relayweb.database import ensure_migrated

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A module and what starts and stops it. `blocking` parts touch the database and are kept off the event loop."""

    module: str
    start: Callable[[Any], Any]
    stop: Callable[[Any], Any]
    blocking: bool = True


# The writer comes first and goes last: everything else feeds it.
PARTS = [
    Part("relayweb.recording.writing.writer", lambda m: m.writer().start(), lambda m: m.writer().close(timeout=5)),
    Part("relayweb.recording.reading.search", lambda m: m.indexer().start(), lambda m: m.indexer().close()),
    Part("relayweb.recording.writing.subscriber", lambda m: m.attach(), lambda m: m.detach()),
    Part("relayweb.live.hub", lambda m: m.hub().start(), lambda m: m.hub().close(), blocking=False),
    Part("relayweb.intercepts.publish", lambda m: m.start(), lambda m: m.close()),
    Part("relayweb.gateway.app", lambda m: m.startup(), lambda m: m.shutdown(), blocking=False),
]
DEMO = Part("relayweb.demo_traffic", lambda m: m.start(), lambda m: m.close(), blocking=False)
_started: list[tuple[Part, Any]] = []

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while others want it. With Python's 5 ms each read and write of a socket
can cost the event loop that long while the writer works: under 100 streams chunks took 420 ms instead of 80."""


_M_ARENA_MAX, _ARENAS = -8, 2


def share_arenas() -> None:
    """Let glibc's malloc take memory from two arenas, unless the environment says otherwise.

    By itself it makes eight for each core, one a thread. What one thread has freed another cannot use: under an even
    load 31 of the 78 MB a server grew by in ten minutes were such memory.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(_M_ARENA_MAX, _ARENAS)


async def start(*, demo: bool = False) -> None:
    """Migrate, then start all parts, each before the next needs it; with `demo`, also what makes demo turns."""
    share_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    mark_in_use()
    await asyncio.to_thread(_with_connections_closed, ensure_migrated)
    for part in [*PARTS, DEMO] if demo else PARTS:
        module = importlib.import_module(part.module)
        await _run(part.start, module, part.blocking)
        _started.append((part, module))


async def stop() -> None:
    """Stop what was started; a part that fails to stop does not keep the others from it."""
    while _started:
        part, module = _started.pop()
        try:
            if part.module == "relayweb.recording.writing.subscriber":
                await _flush_relay()
            await _run(part.stop, module, part.blocking)
        except Exception:
            logger.exception("%s did not stop cleanly", part.module)


async def _run(deed: Callable[[Any], Any], module: Any, blocking: bool) -> None:
    if blocking:
        await asyncio.to_thread(_with_connections_closed, partial(deed, module))
    elif inspect.isawaitable(result := deed(module)):
        await result


def _with_connections_closed(deed: Callable[[], Any]) -> None:
    try:
        deed()
    finally:
        connections.close_all()


async def _flush_relay() -> None:
    # Relay delivers to the subscriber from a thread of its own, and crashes at exit when events are still on their way.
    import nemo_relay

    try:
        await asyncio.wait_for(nemo_relay.subscribers.flush_async(), 2)
    except TimeoutError:
        logger.warning("a call through Relay was still running; its last events may be missing")


async def lifespan(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """ASGI's lifespan protocol, by which uvicorn and others start and stop the same parts."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await start()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        else:
            await stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
