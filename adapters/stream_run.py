"""The engine of a managed stream: Relay's stream on one side, the provider's on the other, each chunk matched."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from adapters import accumulators, exits, marks
from adapters.attempt import Attempt
from adapters.chunk_marks import ChunkMarks
from adapters.failures import in_stream, outcome
from adapters.json_values import frozen, holds, to_json
from adapters.options import StreamOptions
from adapters.places import managed
from adapters.scopes import CLOSE_TIMEOUT
from adapters.stream_source import Demand, Source
from adapters.views import view

log = logging.getLogger("adapters")


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
        self._source = Source(blocking=blocking)
        self._demand = Demand()
        self._closing = False
        self._finished = False
        self._provider_done = False
        self._canned_body: Any = None
        self._relay_stream: Any = None
        self._ahead: asyncio.Task[Any] | None = None  # reads for a stream of Relay that is not here yet
        self._pending: deque[_Produced] = deque()  # given to Relay, not yet seen after its intercepts
        self._ready: deque[Any] = deque()  # seen after its intercepts, not yet delivered
        self._foreign = False  # something of an intercept was seen
        self._caller_error: BaseException | None = None  # raised by a callback of the caller
        self._broke_off: Exception | None = None  # what ended the provider's stream, and nothing came in its place
        self._marks: ChunkMarks | None = None
        self._accumulator = accumulators.for_api_mode(attempt.api_mode) if options.finalizer is None else None
        self._failure_told = False  # by the stream itself: Relay sees such a stream end well

    # -- the consumer's side

    async def open(self) -> None:
        """Start the attempt. Raises what the provider's factory raised, or what refused the call."""
        try:
            function = self.attempt.relay.llm.stream_execute
            started = self.attempt.started_by(function, self._produce, self._collect, self._finalize)
            self._relay_stream = await started
        except BaseException as error:
            await self._broken(error)

    async def step(self) -> Any:
        """The next chunk; StopAsyncIteration at the end and ever after."""
        if self.ended:
            if self.owed:
                return self._ready.popleft()
            raise StopAsyncIteration
        if self.blocking:
            self._demand.wait(True)
        try:
            await self._relay_stream.__anext__()
        except StopAsyncIteration:
            await self._exhausted()
            raise StopAsyncIteration from None
        except BaseException as error:
            await self._broken(error)
            return await self.step()
        finally:
            if self.blocking:
                self._demand.wait(False)
        self._demand.delivered += 1
        return self._ready.popleft()

    @property
    def owed(self) -> bool:
        """Whether the run has ended with chunks of the provider that Relay failed to deliver."""
        return self.ended and bool(self._ready)

    @property
    def close_error(self) -> BaseException | None:
        """What closing the provider's stream raised and nobody was told yet."""
        return self._source.close_error

    @close_error.setter
    def close_error(self, error: BaseException | None) -> None:
        self._source.close_error = error

    def interrupt(self) -> None:
        """Close a synchronous provider's stream that another thread is reading, so that it comes back."""
        self._closing = True
        self._source.interrupt()

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
            await self._source.close()
        finally:
            self._finish(outcome)

    async def _exhausted(self) -> None:
        if self.ended:
            return
        if self._broke_off is not None:
            # Beside stream intercepts of others, Relay often takes a stream that breaks off for one that ends.
            await self._broken(self._broke_off)
            return
        self.ended = True
        await self._source.close()
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
        await self._source.close()
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
            self.attempt.error = self.attempt.own_error = self._broke_off = None
            self.attempt.where.host.end_operation()

    async def _close_relay(self) -> None:
        stream = self._relay_stream
        if stream is None:
            if self._ahead is not None:  # Relay gives nobody the stream of a cancelled call, and reads on
                self._ahead.cancel()
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
        self._broke_off = None
        if self._marks is None:
            self._marks = ChunkMarks(attempt.relay, attempt.captured(), redacted=attempt.wire.redacts)
        ruled = await attempt.ruled(streaming=True)
        if ruled is not None:
            self._canned_body = ruled.body
            return self._answered(ruled.chunks)
        try:
            with managed():
                raw = await self._source.ask(self.factory, outgoing)
                if options.on_stream_created is not None:
                    self._call(options.on_stream_created, raw)
                predicate = options.completed_response_predicate
                if predicate is not None and predicate(raw):
                    self.complete, self.final_response, self._source.is_open = True, raw, False
                    attempt.tell_flags()
                    return self._answered(())
                self._source.read()
        except BaseException as error:
            if error is self._caller_error:
                raise
            raise attempt.provider_failed(error) from None
        return self._pull()

    async def _answered(self, chunks: tuple[Any, ...]) -> AsyncIterator[Any]:
        """A stream that no provider gave."""
        for chunk in chunks:
            if self.blocking:
                await self._demand.wanted()
            adapter = self.options.chunk_adapter
            made = self._call(adapter, chunk) if adapter is not None else view(chunk)
            yield self._take(made, chunk, *self.attempt.escaped(chunk))
        self._provider_done = True

    async def _pull(self) -> AsyncIterator[Any]:
        attempt, accept, cut = self.attempt, self.options.accept_chunk, self.attempt.cut_after
        to_plain, direct = self.options.chunk_json or to_json, self.options.chunk_json is None
        try:
            while True:
                if self.blocking:
                    await self._demand.wanted()
                if self._relay_stream is None:
                    self._ahead = asyncio.current_task()
                try:
                    chunk = await self._source.next()
                except StopAsyncIteration:
                    break
                except BaseException as error:
                    self._broke_off = error if isinstance(error, Exception) else None
                    raise attempt.provider_failed(error) from None
                if accept is not None and not self._call(accept, chunk):
                    break
                if direct and holds(chunk):
                    yield self._take(chunk, chunk, chunk, [])
                else:
                    plain = to_plain(chunk)
                    yield self._take(chunk, plain, *attempt.escaped(plain))
                if cut is not None and self._demand.produced >= cut:
                    attempt.own_error = self._broke_off = attempt.cut()
                    raise attempt.own_error
            self._provider_done = True
        finally:
            await self._source.close()

    def _take(self, chunk: Any, plain: Any, carried: Any, escaped: list[str]) -> Any:
        """Note a chunk, the app's object, as JSON and as Relay carries it; gives the last."""
        self._pending.append(_Produced(chunk, plain, carried, escaped))
        self._demand.produced += 1
        if not self._failure_told and (failure := in_stream(plain)) is not None:
            self._failure_told = True
            self.attempt.told(failure)
        if type(plain) is dict and plain.get("type") == marks.UNREADABLE_CHUNK:
            self.attempt.wire.flags.add("unreadable_chunk")
        if self.attempt.wire.flags:
            self.attempt.tell_flags()
        return carried

    def _collect(self, seen: Any) -> None:
        """Relay shows each chunk after its intercepts, in the order in which it delivers them."""
        if self.blocking:
            self._demand.collect()
        produced = self._found(seen)
        if produced is None:
            self._foreign = self.output_modified = True
            self._broke_off = None
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

    def _found(self, seen: Any) -> _Produced | None:
        """The provider's chunk that this one is; those before it were left out by an intercept."""
        shown = frozen(seen)  # tells 1, 1.0 and true apart, which Python takes for equal
        for position, produced in enumerate(self._pending):
            if frozen(produced.carried) == shown:
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

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a callback of the caller in a fresh copy of its context; what it calls runs unmanaged."""

        def call() -> Any:
            with managed():
                return function(*arguments)

        try:
            with self._source.unlooped():
                return self.caller.copy().run(call)
        except Exception as error:
            self._caller_error = error
            raise
