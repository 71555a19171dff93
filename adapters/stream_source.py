"""A provider's stream as the core reads it: in the consumer's thread or on its loop, only when wanted, closed once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from adapters import loops
from adapters.places import _MANAGED, managed

GRACE = 0.005
"""Seconds a blocking provider is left alone while Relay works on the last chunk; longer means an intercept kept it."""


class Source:
    """The stream of one attempt. With `blocking` it is synchronous and read in the consumer's thread.

    `close_error` is what closing it raised, kept for whoever closes explicitly.
    """

    def __init__(self, *, blocking: bool) -> None:
        self.blocking = blocking
        self.raw: Any = None
        self.is_open = False
        self.close_error: BaseException | None = None
        self._iterator: Any = None
        self._asynchronous = False

    async def ask(self, factory: Callable[[Any], Any], request: Any) -> Any:
        """Ask the provider; what it gives is `raw` and open."""
        self.raw, self.is_open = await self._called(factory, request), True
        return self.raw

    def read(self) -> None:
        """Begin to read it as a stream."""
        self._asynchronous = not self.blocking and hasattr(self.raw, "__aiter__")
        self._iterator = self.raw.__aiter__() if self._asynchronous else iter(self.raw)

    async def next(self) -> Any:
        """The next chunk; StopAsyncIteration at the end."""
        token = _MANAGED.set(True)  # as `managed()`, without its cost a chunk
        try:
            if self._asynchronous:
                return await self._iterator.__anext__()
            with self.unlooped():
                return next(self._iterator)
        except StopIteration:
            raise StopAsyncIteration from None
        finally:
            _MANAGED.reset(token)

    def interrupt(self) -> None:
        """Close a synchronous stream that another thread is reading, so that it comes back."""
        if not self.is_open:
            return
        try:
            for close in closables(self.raw, self._iterator, asynchronous=False):
                close()
            self.is_open = False
        except ValueError:  # a generator that is executing cannot be closed from here
            return
        except Exception as error:
            self.is_open, self.close_error = False, error

    async def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        for target in closables(self.raw, self._iterator, asynchronous=not self.blocking):
            try:
                with managed():
                    await self._called(target)
            except Exception as error:
                self.close_error = self.close_error or error

    def unlooped(self) -> AbstractContextManager[None]:
        """The context of synchronous code of the app: as if there were no loop."""
        return loops.hidden_loop() if self.blocking else nullcontext()

    async def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self.unlooped():
            value = function(*arguments)
        return await value if not self.blocking and inspect.isawaitable(value) else value


class Demand:
    """Tells when a blocking provider is to be read: when the consumer waits and Relay has nothing on its way for it.

    A chunk is `produced` by the provider, `collected` after Relay's intercepts and `delivered` to the consumer.
    """

    __slots__ = ("_collected", "_gate", "_kept", "_waiting", "delivered", "produced")

    def __init__(self) -> None:
        self.produced = self.delivered = self._collected = 0
        self._kept = 0  # chunks that an intercept holds back
        self._waiting = False
        self._gate: asyncio.Future[bool] | None = None

    def wait(self, waiting: bool) -> None:
        """The consumer waits for a chunk, or does not any more."""
        self._waiting = waiting
        if waiting:
            self._wake()

    def collect(self) -> None:
        self._collected += 1
        self._kept = min(self._kept, self.produced - self._collected)
        self._wake()

    async def wanted(self) -> None:
        """Wait until the consumer wants a chunk that Relay does not have on its way already."""
        while True:
            if not self._waiting or self.delivered != self._collected:
                await self._woken(None)
            elif self.produced - self._collected <= self._kept:
                return
            elif not await self._woken(GRACE):
                self._kept = self.produced - self._collected

    async def _woken(self, seconds: float | None) -> bool:
        """Wait for the consumer or the collector; False when `seconds` passed first."""
        loop = asyncio.get_running_loop()
        gate = self._gate = loop.create_future()
        timer = loop.call_later(seconds, _settle, gate, False) if seconds is not None else None
        try:
            woken: bool = await gate
            return woken
        finally:
            self._gate = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._gate is not None:
            _settle(self._gate, True)


def _settle(gate: asyncio.Future[bool], woken: bool) -> None:
    if not gate.done():
        gate.set_result(woken)


def closables(raw: Any, iterator: Any, *, asynchronous: bool) -> list[Callable[[], Any]]:
    """How to close the iterator over a provider's stream and the stream itself, each once, also when they are one."""
    targets = []
    for owner in (iterator,) if iterator is raw else (iterator, raw):
        close = getattr(owner, "aclose", None) if asynchronous else None
        close = close if close is not None else getattr(owner, "close", None)
        if callable(close):
            targets.append(close)
    return targets
