"""`relayweb serve --demo`: a turn with the demo provider every few seconds, so that there is something to see."""

from __future__ import annotations

import asyncio
import contextlib
import logging

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 8.0

_task: asyncio.Task[None] | None = None


async def start() -> None:
    """Begin making turns."""
    global _task
    _task = asyncio.create_task(_make_turns())


async def close() -> None:
    """Break off the turn under way."""
    global _task
    task, _task = _task, None
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _make_turns() -> None:
    from relayweb.gateway.demo import run_turn

    while True:
        try:
            await run_turn()
        except Exception:
            logger.exception("a demo turn failed")
        await asyncio.sleep(PAUSE_SECONDS)
