"""The two faces of a managed stream: an iterator for a thread, an async iterator for an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from adapters import exits, loops
from adapters.attempt import Attempt
from adapters.json_values import to_json
from adapters.options import StreamOptions
from adapters.scopes import CLOSE_TIMEOUT
from adapters.stream_run import StreamRun
from adapters.stream_source import closables

log = logging.getLogger("adapters")

_NOTHING = object()


class BypassRun:
    """A stream beside Relay. `on_chunk` and `accept_chunk` still hold; the finalizer is not called."""

    def __init__(self, raw: Any, options: StreamOptions, *, blocking: bool) -> None:
        self.ended = False
        self.output_modified = False
        self.complete = False
        self.final_response: Any = None
        self.close_error: BaseException | None = None
        self.raw = raw
        self._options = options
        self._blocking = blocking
        self._iterator: Any = None
        self._asynchronous = False
        if options.on_stream_created is not None:
            options.on_stream_created(raw)
        predicate = options.completed_response_predicate
        if predicate is not None and predicate(raw):
            self.complete, self.final_response, self.ended = True, raw, True
        else:
            self._asynchronous = not blocking and hasattr(raw, "__aiter__")
            self._iterator = raw.__aiter__() if self._asynchronous else iter(raw)

    def step_now(self) -> Any:
        """The next chunk of a synchronous stream."""
        if self.ended:
            raise StopIteration
        try:
            return self._passed(next(self._iterator))
        except BaseException:
            self.close_now()
            raise

    async def step(self) -> Any:
        if self.ended:
            raise StopAsyncIteration
        try:
            if self._asynchronous:
                return self._passed(await self._iterator.__anext__())
            return self._passed(next(self._iterator))
        except BaseException as error:
            await self.aclose()
            if isinstance(error, StopIteration):
                raise StopAsyncIteration from None
            raise

    def _passed(self, chunk: Any) -> Any:
        if self._options.accept_chunk is not None and not self._options.accept_chunk(chunk):
            raise StopIteration
        if self._options.on_chunk is not None:
            self._options.on_chunk((self._options.chunk_json or to_json)(chunk))
        return chunk

    def close_now(self) -> None:
        for close in self._targets():
            try:
                close()
            except Exception as error:
                self.close_error = self.close_error or error

    async def aclose(self, outcome: str = "cancelled") -> None:
        for close in self._targets():
            try:
                closing = close()
                if inspect.isawaitable(closing):
                    await closing
            except Exception as error:
                self.close_error = self.close_error or error

    def _targets(self) -> list[Callable[[], Any]]:
        if self.ended:
            return []
        self.ended = True
        return closables(self.raw, self._iterator, asynchronous=not self._blocking)


class _Face:
    """What both faces tell about the stream."""

    _run: StreamRun | BypassRun

    @property
    def output_modified(self) -> bool:
        """Whether an intercept changed, added or left out a chunk: then the SDK's own final object is not the truth."""
        return self._run.output_modified

    @property
    def final_response(self) -> Any:
        """The complete response a provider gave instead of a stream, else None."""
        return self._run.final_response

    def _raise_close_error(self) -> None:
        error, self._run.close_error = self._run.close_error, None
        if error is not None:
            raise error


class ManagedLlmStream(_Face):
    """A synchronous iterator over a managed or bypassed stream, made by `relay_llm.stream`. Close it or exhaust it."""

    def __init__(self, run: StreamRun | BypassRun, loop: asyncio.AbstractEventLoop | None) -> None:
        self._run = run
        self._loop = loop
        self._lock = threading.Lock()
        self._first: Any = _NOTHING
        # Not at exit: the runtime's own end covers that.
        self._finalizer = weakref.finalize(self, _abandon, run, loop)
        self._finalizer.atexit = False

    @classmethod
    def open(cls, attempt: Attempt, factory: Callable[[Any], Any], options: StreamOptions) -> ManagedLlmStream:
        run = StreamRun(attempt, factory, options, blocking=True)
        loop = loops.acquire()
        stream = cls(run, loop)
        stream._drive(run.open)
        return stream

    @classmethod
    def bypass(cls, request: Any, factory: Callable[[Any], Any], options: StreamOptions) -> ManagedLlmStream:
        return cls(BypassRun(factory(request), options, blocking=True), None)

    def settled(self) -> Any:
        """This stream with its first chunk read, or the complete response that the provider gave instead of one."""
        try:
            self._first = self.__next__()
        except StopIteration:
            if self._run.complete:
                return self._run.final_response
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._first is not _NOTHING:
            chunk, self._first = self._first, _NOTHING
            return chunk
        if isinstance(self._run, BypassRun):
            return self._run.step_now()
        try:
            return self._drive(self._run.step)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the stream. Raises, once, what closing the provider's stream raised."""
        self._first = _NOTHING
        if isinstance(self._run, BypassRun):
            self._run.close_now()
        elif not self._lock.acquire(blocking=False):
            self._interrupt(self._run)
        else:
            self._lock.release()
            self._drive(self._run.aclose)
        self._raise_close_error()

    def _interrupt(self, run: StreamRun) -> None:
        """Close a stream another thread is reading: its provider's end makes that thread come back."""
        run.interrupt()
        if self._lock.acquire(timeout=CLOSE_TIMEOUT):
            self._lock.release()
            self._drive(run.aclose)
        else:
            log.warning("a stream did not end within %g s of its close and was left", CLOSE_TIMEOUT)

    def _drive(self, action: Callable[[], Any]) -> Any:
        run = self._run
        assert isinstance(run, StreamRun)
        with self._lock:
            if self._loop is None:
                return _now(action)
            try:
                return loops.drive(self._loop, action())
            except Exception:
                raise
            except BaseException:
                # A signal came while the loop ran: what it was doing is still there and has to be ended.
                with contextlib.suppress(Exception):
                    loops.drive(self._loop, run.aclose("cancelled"))
                self._release(reusable=False)
                raise
            finally:
                if run.ended:
                    self._release(reusable=True)

    def _release(self, *, reusable: bool) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            self._finalizer.detach()
            loops.release(loop, reusable=reusable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _now(action: Callable[[], Any]) -> Any:
    """Run a coroutine that does not wait for anything."""
    coroutine = action()
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    finally:
        coroutine.close()
    raise RuntimeError("an ended stream waited for something")


def _abandon(run: StreamRun | BypassRun, loop: asyncio.AbstractEventLoop | None) -> None:
    """A synchronous stream was dropped without being read to its end. Runs wherever the collector runs: do not wait."""

    def close() -> None:
        if isinstance(run, BypassRun):
            run.close_now()
        elif loop is not None:
            with contextlib.suppress(Exception):
                loop.run_until_complete(run.aclose("cancelled"))
            loops.release(loop)

    if not run.ended:
        exits.note_cancelled()
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=contextvars.Context().run, args=(close,), name="relay-dropped", daemon=True).start()


class AsyncManagedLlmStream(_Face):
    """An async iterator over a managed or bypassed stream, from `relay_llm.stream_async`. Close it or exhaust it."""

    def __init__(self, run: StreamRun | BypassRun) -> None:
        self._run = run
        self._first: Any = _NOTHING
        self._finalizer = weakref.finalize(self, _abandon_async, run, asyncio.get_running_loop())
        self._finalizer.atexit = False

    @classmethod
    async def open(
        cls, attempt: Attempt, factory: Callable[[Any], Any], options: StreamOptions
    ) -> AsyncManagedLlmStream:
        run = StreamRun(attempt, factory, options, blocking=False)
        stream = cls(run)
        await run.open()
        return stream

    @classmethod
    async def bypass(cls, request: Any, factory: Callable[[Any], Any], options: StreamOptions) -> AsyncManagedLlmStream:
        raw = factory(request)
        if inspect.isawaitable(raw):
            raw = await raw
        return cls(BypassRun(raw, options, blocking=False))

    async def settled(self) -> Any:
        """This stream with its first chunk read, or the complete response that the provider gave instead of one."""
        try:
            self._first = await self.__anext__()
        except StopAsyncIteration:
            if self._run.complete:
                return self._run.final_response
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._first is not _NOTHING:
            chunk, self._first = self._first, _NOTHING
            return chunk
        return await self._run.step()

    async def aclose(self) -> None:
        """End the stream. Raises, once, what closing the provider's stream raised."""
        self._first = _NOTHING
        # Shielded: a cancelled consumer must not leave the provider's stream open.
        await asyncio.shield(asyncio.ensure_future(self._run.aclose("cancelled")))
        self._raise_close_error()

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _abandon_async(run: StreamRun | BypassRun, loop: asyncio.AbstractEventLoop) -> None:
    """An async stream was dropped without being read to its end: close it on its own loop, if that still runs."""
    if run.ended:
        return
    if not loop.is_closed():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: loop.create_task(run.aclose("cancelled")))
    elif isinstance(run, StreamRun):
        run.forsake()
