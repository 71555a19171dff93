"""The engine of a managed stream: Relay's stream on one side, the provider's on the other, each chunk matched."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

from adapters import accumulators, exits, loops, marks
from adapters.attempt import Attempt
from adapters.chunk_marks import ChunkMarks
from adapters.failures import in_stream, outcome
from adapters.json_values import frozen, holds, to_json
from adapters.options import StreamOptions
from adapters.places import _MANAGED, managed
from adapters.scopes import CLOSE_TIMEOUT
from adapters.views import view

log = logging.getLogger("adapters")

GRACE = 0.005
"""Seconds a blocking provider is left alone while Relay works on the last chunk; longer means an intercept kept it."""


class _Produced:
    """A chunk of the provider on its way through Relay, as the app's object, as JSON and as Relay carries it."""

    __slots__ = ("carried", "chunk", "escaped", "plain")

    def __init__(self, chunk: Any, plain: Any, carried: Any, escaped: list[str]) -> None:
        self.chunk, self.plain, self.carried, self.escaped = chunk, plain, carried, escaped


class StreamRun:
    """One streamed attempt. `step` gives the next chunk, `aclose` ends it early; one of them ends everything, once.

    With `blocking` the provider's stream is synchronous: it is read in the consumer's thread, and only while the
    consumer waits and Relay has nothing on its way, so that no chunk waits for the one after it.
    """

    def __init__(
        self, attempt: Attempt, factory: Callable[[Any], Any], options: StreamOptions, *, blocking: bool
    ) -> None:
        self.attempt = attempt
        self.factory = factory
        self.options = options
        self.blocking = blocking
        self.caller = contextvars.copy_context()
        self.ended = False
        self.output_modified = False
        self.complete = False  # the provider gave a complete response instead of a stream
        self.final_response: Any = None
        self.close_error: BaseException | None = None
        self._closing = False
        self._finished = False
        self._raw: Any = None
        self._iterator: Any = None
        self._raw_open = False
        self._asynchronous = False
        self._provider_done = False
        self._canned_body: Any = None
        self._relay_stream: Any = None
        self._pending: deque[_Produced] = deque()  # given to Relay, not yet seen after its intercepts
        self._ready: deque[Any] = deque()  # seen after its intercepts, not yet delivered
        self._foreign = False  # something of an intercept was seen
        self._caller_error: BaseException | None = None  # raised by a callback of the caller
        self._marks: ChunkMarks | None = None
        self._accumulator = accumulators.for_api_mode(attempt.api_mode) if options.finalizer is None else None
        self._produced = self._collected = self._delivered = self._kept = 0
        self._failure_told = False  # by the stream itself: Relay sees such a stream end well
        self._waiting = False
        self._gate: asyncio.Future[bool] | None = None

    # -- the consumer's side

    async def open(self) -> None:
        """Start the attempt. Raises what the provider's factory raised, or what refused the call."""
        try:
            with self.attempt.entered():
                future = self.attempt.relay.llm.stream_execute(
                    self.attempt.wire.operation,
                    self.attempt.wire.relay_request,
                    self._produce,
                    self._collect,
                    self._finalize,
                    **self.attempt.arguments(),
                )
            self._relay_stream = await future
        except BaseException as error:
            await self._broken(error)

    async def step(self) -> Any:
        """The next chunk; StopAsyncIteration at the end and ever after."""
        if self.ended:
            if self.owed:
                return self._ready.popleft()
            raise StopAsyncIteration
        self._waiting = True
        self._wake()
        try:
            await self._relay_stream.__anext__()
        except StopAsyncIteration:
            await self._exhausted()
            raise StopAsyncIteration from None
        except BaseException as error:
            await self._broken(error)
            return await self.step()
        finally:
            self._waiting = False
        self._delivered += 1
        return self._ready.popleft()

    @property
    def owed(self) -> bool:
        """Whether the run has ended with chunks of the provider that Relay failed to deliver."""
        return self.ended and bool(self._ready)

    def interrupt(self) -> None:
        """Close a synchronous provider's stream that another thread is reading, so that it comes back."""
        self._closing = True
        if self._raw_open:
            try:
                for close in closables(self._raw, self._iterator, asynchronous=False):
                    close()
                self._raw_open = False
            except ValueError:  # a generator that is executing cannot be closed from here
                return
            except Exception as error:
                self._raw_open, self.close_error = False, error

    def forsake(self) -> None:
        """End the record of a stream whose event loop is closed: there is nothing left to close it on."""
        if not self.ended:
            self.ended = True
            self._finish("cancelled")

    async def aclose(self, outcome: str = "cancelled") -> None:
        """End the stream: Relay's within a bound, then the provider's. Does nothing once it has ended."""
        self._ready.clear()
        if self.ended:
            return
        self.ended = True
        exits.note_cancelled()
        try:
            await self._close_relay()
            await self._close_raw()
        finally:
            self._finish(outcome)

    async def _exhausted(self) -> None:
        if self.ended:
            return
        self.ended = True
        await self._close_raw()
        self.output_modified = self.output_modified or bool(self._pending)
        self._ready.clear()
        self._finish("failed" if self._caller_error is not None else "success")
        if self._caller_error is not None:
            raise self._caller_error

    async def _broken(self, error: BaseException) -> None:
        """Relay's stream raised: raise what the caller shall see, or keep in `_ready` what the provider still gave."""
        original = self.attempt.original_error(error)
        if not isinstance(original, Exception):
            await self.aclose("cancelled")
        elif await self._made_up_for(original):
            return
        try:
            raise original
        finally:
            del original, error  # or this frame and their tracebacks keep each other until a full collection

    async def _made_up_for(self, error: Exception) -> bool:
        self.ended = True
        await self._close_relay()
        await self._close_raw()
        ours = any(error is known for known in (self.attempt.error, self.attempt.own_error, self._caller_error))
        if self._provider_done and not self._foreign and not ours:
            log.warning("Relay failed after the provider's stream had ended: %s", error)
            for produced in self._pending:
                if self.options.on_chunk is not None:
                    self._call(self.options.on_chunk, produced.plain)
                self._ready.append(produced.chunk)
            self._finish("success")
            return True
        self._ready.clear()
        self.attempt.blocked(error)
        self._finish("cancelled" if self._closing else outcome(error))
        return False

    def _finish(self, outcome: str) -> None:
        if self._finished:
            return
        self._finished = True
        if self._marks is not None:
            self._marks.flush()
        try:
            self.attempt.complete(outcome)
        finally:
            # Their tracebacks lead to this run: they would keep each other until a full collection.
            self.attempt.error = self.attempt.own_error = None
            self.attempt.where.host.end_operation()

    async def _close_relay(self) -> None:
        stream = self._relay_stream
        if stream is None:
            return

        async def close() -> None:
            await stream.aclose()

        task = asyncio.ensure_future(close())
        done, _ = await asyncio.wait({task}, timeout=CLOSE_TIMEOUT)
        if not done:
            task.cancel()
            log.warning("Relay's stream did not close within %g s and was left", CLOSE_TIMEOUT)
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.debug("Relay's stream closed with %r", error)

    # -- the provider's side, called by Relay

    async def _produce(self, passed: Any) -> AsyncIterator[Any]:
        attempt, options = self.attempt, self.options
        outgoing = attempt.outgoing(passed)
        self._provider_done = False
        if self._marks is None:
            self._marks = ChunkMarks(attempt.relay, attempt.captured(), redacted=attempt.wire.redacts)
        ruled = await attempt.ruled(streaming=True)
        if ruled is not None:
            self._canned_body = ruled.body
            return self._answered(ruled.chunks)
        try:
            with managed():
                self._raw, self._raw_open = await self._provider(self.factory, outgoing), True
                if options.on_stream_created is not None:
                    self._call(options.on_stream_created, self._raw)
                predicate = options.completed_response_predicate
                if predicate is not None and predicate(self._raw):
                    self.complete, self.final_response, self._raw_open = True, self._raw, False
                    attempt.tell_flags()
                    return self._answered(())
                self._asynchronous = not self.blocking and hasattr(self._raw, "__aiter__")
                self._iterator = self._raw.__aiter__() if self._asynchronous else iter(self._raw)
        except BaseException as error:
            if error is self._caller_error:
                raise
            raise attempt.provider_failed(error) from None
        return self._pull()

    async def _answered(self, chunks: tuple[Any, ...]) -> AsyncIterator[Any]:
        """A stream that no provider gave."""
        for chunk in chunks:
            if self.blocking:
                await self._demanded()
            adapter = self.options.chunk_adapter
            made = self._call(adapter, chunk) if adapter is not None else view(chunk)
            yield self._take(made, chunk).carried
        self._provider_done = True

    async def _pull(self) -> AsyncIterator[Any]:
        accept, to_plain, cut = self.options.accept_chunk, self.options.chunk_json or to_json, self.attempt.cut_after
        direct = self.options.chunk_json is None
        try:
            while True:
                if self.blocking:
                    await self._demanded()
                try:
                    chunk = await self._next()
                except StopAsyncIteration:
                    break
                if accept is not None and not self._call(accept, chunk):
                    break
                plain = chunk if direct and type(chunk) is dict and holds(chunk) else to_plain(chunk)
                yield self._take(chunk, plain).carried
                if cut is not None and self._produced >= cut:
                    self.attempt.own_error = self.attempt.cut()
                    raise self.attempt.own_error
            self._provider_done = True
        finally:
            await self._close_raw()

    async def _next(self) -> Any:
        token = _MANAGED.set(True)  # as `managed()`, without its cost a chunk
        try:
            if self._asynchronous:
                return await self._iterator.__anext__()
            with self._unlooped():
                return next(self._iterator)
        except (StopIteration, StopAsyncIteration):
            raise StopAsyncIteration from None
        except BaseException as error:
            raise self.attempt.provider_failed(error) from None
        finally:
            _MANAGED.reset(token)

    async def _provider(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._unlooped():
            value = function(*arguments)
        return await value if not self.blocking and inspect.isawaitable(value) else value

    def _unlooped(self) -> Any:
        return loops.hidden_loop() if self.blocking else nullcontext()

    def _take(self, chunk: Any, plain: Any) -> _Produced:
        if holds(plain):
            produced = _Produced(chunk, plain, plain, [])
        else:
            produced = _Produced(chunk, plain, *self.attempt.escaped(plain))
        self._pending.append(produced)
        self._produced += 1
        if not self._failure_told and (failure := in_stream(plain)) is not None:
            self._failure_told = True
            self.attempt.told(failure)
        if type(plain) is dict and plain.get("type") == marks.UNREADABLE_CHUNK:
            self.attempt.wire.flags.add("unreadable_chunk")
        if self.attempt.wire.flags:
            self.attempt.tell_flags()
        return produced

    def _collect(self, seen: Any) -> None:
        """Relay shows each chunk after its intercepts, in the order in which it delivers them."""
        self._collected += 1
        if self._kept > self._produced - self._collected:
            self._kept = self._produced - self._collected
        produced = self._found(seen)
        if produced is None:
            self._foreign = self.output_modified = True
            adapter = self.options.chunk_adapter
            made = self._call(adapter, seen) if adapter is not None else view(seen)
            produced = _Produced(made, seen, seen, [])
        self._ready.append(produced.chunk)
        if self._marks is not None:
            self._marks.add(produced.carried, produced.escaped)
        if self._accumulator is not None:
            self._accumulator.observe(produced.plain)
        if self.options.on_chunk is not None:
            self._call(self.options.on_chunk, produced.plain)
        self._wake()

    def _found(self, seen: Any) -> _Produced | None:
        """The provider's chunk that this one is; those before it were left out by an intercept."""
        for position, produced in enumerate(self._pending):
            # What differs is cheap to find; then 1, 1.0 and true, which Python takes for equal, are told apart.
            if produced.carried == seen and frozen(produced.carried) == frozen(seen):
                if position:
                    self.output_modified = True
                    for _ in range(position):
                        self._pending.popleft()
                return self._pending.popleft()
        return None

    def _finalize(self) -> Any:
        """The response for the record. Runs when the provider's stream ended, usually before the consumer is there."""
        if self._marks is not None:
            self._marks.flush()
        try:
            return self.attempt.carried(self._record())
        except BaseException as error:
            self._caller_error = self._caller_error or error
            return {}

    def _record(self) -> Any:
        if self.complete:
            return to_json(self.final_response)
        if self._canned_body is not None:
            return self._canned_body
        if self.options.finalizer is None:
            return self._accumulator.finalize() if self._accumulator is not None else {}
        return to_json(self._call(self.options.finalizer)) if self._provider_done else {}

    # -- demand: a blocking provider is read only when its next chunk is wanted

    async def _demanded(self) -> None:
        """Wait until the consumer wants a chunk that Relay does not have on its way already."""
        while True:
            if not self._waiting or self._delivered != self._collected:
                await self._woken(None)
            elif self._produced - self._collected <= self._kept:
                return
            elif not await self._woken(GRACE):
                self._kept = self._produced - self._collected

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

    # -- callbacks of the caller, and the end of the provider's stream

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a callback of the caller in a fresh copy of its context; what it calls runs unmanaged."""

        def call() -> Any:
            with managed():
                return function(*arguments)

        try:
            with self._unlooped():
                return self.caller.copy().run(call)
        except Exception as error:
            self._caller_error = error
            raise

    async def _close_raw(self) -> None:
        """Close the provider's stream once; an error is kept for whoever closes explicitly."""
        if not self._raw_open:
            return
        self._raw_open = False
        for target in closables(self._raw, self._iterator, asynchronous=not self.blocking):
            try:
                with managed():
                    await self._provider(target)
            except Exception as error:
                self.close_error = self.close_error or error


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
