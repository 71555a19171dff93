"""Event loops for synchronous callers, driven in the caller's own thread.

Relay is asynchronous. A synchronous call borrows a loop that is not running anywhere and runs it until its answer is
there: no thread is added, the provider callback runs in the caller's thread and a signal interrupts it as usual.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from adapters import exits

T = TypeVar("T")

KEEP = 8
"""Loops kept for reuse; more may be in use at once."""

_lock = threading.Lock()
_idle: list[asyncio.AbstractEventLoop] = []


def acquire() -> asyncio.AbstractEventLoop:
    with _lock:
        if _idle:
            return _idle.pop()
    return asyncio.new_event_loop()


def release(loop: asyncio.AbstractEventLoop, *, reusable: bool = True) -> None:
    """Give a loop back. One that was left in the middle of something (`reusable=False`) is wound up and closed."""
    if loop.is_closed() or loop.is_running():
        return
    if reusable:
        with _lock:
            if len(_idle) < KEEP:
                _idle.append(loop)
                return
    else:
        _wind_up(loop)
    loop.close()


def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        with contextlib.suppress(BaseException):
            drive(loop, asyncio.wait(tasks, timeout=1.0))
    with contextlib.suppress(BaseException):
        drive(loop, loop.shutdown_asyncgens())


def has_running_loop() -> bool:
    return asyncio._get_running_loop() is not None


def _complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except Exception:
        raise
    except BaseException:
        exits.note_cancelled()
        if not task.done():  # a signal came: whatever becomes of the task, nobody will ask for it
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def drive(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` on `loop` to its end, in this thread, or in one beside it when this one runs a loop itself."""
    if not has_running_loop():
        return _complete(loop, coroutine)
    outcome: list[Any] = [None, None]
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome[0] = context.run(_complete, loop, coroutine)
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(target=work, name="relay-sync", daemon=True)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]  # type: ignore[no-any-return]


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` to its end on a borrowed loop in this thread."""
    loop = acquire()
    reusable = True
    try:
        return _complete(loop, coroutine)
    except Exception:
        raise
    except BaseException:
        reusable = False
        raise
    finally:
        release(loop, reusable=reusable)


@contextlib.contextmanager
def hidden_loop() -> Iterator[None]:
    """Let synchronous code run inside a borrowed loop as if there were none, so that it may call `asyncio.run`."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


@atexit.register
def close_idle() -> None:
    with _lock:
        loops, _idle[:] = list(_idle), []
    for loop in loops:
        loop.close()


def _after_fork() -> None:
    # A loop's selector belongs to the parent process.
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
