"""`wrap`: makes the calls of an openai or anthropic client managed ones.

The SDK does all it does anyway; only the `send` of its own HTTP client is watched. Each request, SDK retries included,
becomes an attempt, and all attempts of one call of the SDK share a logical call.
"""

from __future__ import annotations

import contextvars
import functools
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from adapters import failures, loops, relay_llm, rules
from adapters.attempt import CallCut
from adapters.managed_stream import AsyncManagedLlmStream, ManagedLlmStream
from adapters.places import placed
from adapters.sdk_wire import Exchange, Frame, Frames, ProviderStatus, Whole, streams, streams_async
from adapters.sessions import active_turn
from adapters.unplaced import Unplaced

C = TypeVar("C")


@dataclass
class _Call:
    """One call of the SDK, with all its retries."""

    request_id: str = field(default_factory=lambda: f"req-{uuid.uuid4().hex}")
    attempts: int = 0

    def arguments(self, exchange: Exchange) -> dict[str, Any]:
        attempt, self.attempts = self.attempts, self.attempts + 1
        return exchange.arguments(self.request_id, attempt)


_CALL: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("relay_sdk_call", default=None)


def wrap(client: C) -> C:
    """Let the calls of an SDK client run through Relay wherever a turn is live; gives the client itself.

    Args:
        client: An `OpenAI`, `AsyncOpenAI`, `Anthropic` or `AsyncAnthropic`, or one derived from them. Copies made with
            `with_options` are wrapped too. Wrapping twice changes nothing.

    Raises:
        TypeError: For anything else.
    """
    held: Any = client
    http: Any = getattr(held, "_client", None)
    if not callable(getattr(http, "send", None)) or not callable(getattr(held, "request", None)):
        raise TypeError(f"wrap() takes a client of the openai or anthropic package, not {type(client).__name__}")
    if "_relay_wrapped" in held.__dict__:
        return client
    held.__dict__["_relay_wrapped"] = True
    asynchronous = hasattr(http, "aclose")
    if "send" not in http.__dict__:
        http.send = _async_send(http.send) if asynchronous else _send(http.send)
    held.request = _async_request(held.request) if asynchronous else _request(held.request)
    for name in ("copy", "with_options"):
        if hasattr(held, name):
            setattr(held, name, _copying(getattr(held, name)))
    return client


def _copying(copy: Any) -> Any:
    @functools.wraps(copy)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrap(copy(*args, **kwargs))

    return wrapped


def _request(request: Any) -> Any:
    """The SDK's own retry loop, as one logical call."""

    @functools.wraps(request)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        call = _Call()
        token = _CALL.set(call)
        try:
            return request(*args, **kwargs)
        except BaseException as error:
            relay_llm.complete_logical_call(call.request_id, outcome=failures.outcome(error))
            raise
        finally:
            _CALL.reset(token)

    return wrapped


def _async_request(request: Any) -> Any:
    @functools.wraps(request)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        call = _Call()
        token = _CALL.set(call)
        try:
            return await request(*args, **kwargs)
        except BaseException as error:
            relay_llm.complete_logical_call(call.request_id, outcome=failures.outcome(error))
            raise
        finally:
            _CALL.reset(token)

    return wrapped


def _exchange(request: Any, *, asynchronous: bool) -> Exchange | None:
    """What a request begins, None where it is not managed (a synchronous client on an event loop neither)."""
    try:
        managed = placed(None) is not None
    except Unplaced:  # as if there were no Relay, unless a rule may refuse it
        managed = bool(rules.current().closed)
    if not managed or (not asynchronous and loops.has_running_loop()):
        return None
    return Exchange.of(request)


def _send(send: Any) -> Any:
    @functools.wraps(send)
    def wrapped(request: Any, **options: Any) -> Any:
        exchange = _exchange(request, asynchronous=False)
        if exchange is None:
            return send(request, **options)
        sdk_call = _CALL.get() or _Call()
        sender, arguments = _Sender(exchange, sdk_call), sdk_call.arguments(exchange)
        try:
            if exchange.streaming:

                def factory(call: Any) -> Any:
                    with sender.asking():
                        response = send(exchange.outgoing(call), **{**options, "stream": True})
                        if not (streamed := streams(response)):
                            response.read()
                    return sender.opened(response, streamed)

                stream = relay_llm.stream_current(exchange.call, factory, **sender.stream_options, **arguments)
                return sender.streamed(stream, _sync_stream)

            def callback(call: Any) -> Any:
                with sender.asking():
                    response = send(exchange.outgoing(call), **options)
                    response.read()
                return sender.answered(response)

            return sender.buffered(relay_llm.execute_current(exchange.call, callback, **arguments))
        except Exception as error:
            return sender.failed(error)

    return wrapped


def _async_send(send: Any) -> Any:
    @functools.wraps(send)
    async def wrapped(request: Any, **options: Any) -> Any:
        exchange = _exchange(request, asynchronous=True)
        if exchange is None:
            return await send(request, **options)
        sdk_call = _CALL.get() or _Call()
        sender, arguments = _Sender(exchange, sdk_call), sdk_call.arguments(exchange)
        try:
            if exchange.streaming:

                async def factory(call: Any) -> Any:
                    with sender.asking():
                        response = await send(exchange.outgoing(call), **{**options, "stream": True})
                        if not (streamed := await streams_async(response)):
                            await response.aread()
                    return sender.opened(response, streamed)

                stream = await relay_llm.stream_current_async(
                    exchange.call, factory, **sender.stream_options, **arguments
                )
                return sender.streamed(stream, _async_stream)

            async def callback(call: Any) -> Any:
                with sender.asking():
                    response = await send(exchange.outgoing(call), **options)
                    await response.aread()
                return sender.answered(response)

            return sender.buffered(await relay_llm.execute_current_async(exchange.call, callback, **arguments))
        except Exception as error:
            return sender.failed(error)

    return wrapped


class _Sender:
    """What becomes of one request: the provider's response, and the response the SDK gets."""

    def __init__(self, exchange: Exchange, call: _Call) -> None:
        self.exchange = exchange
        self.call = call
        self.turn = active_turn()
        self.response: Any = None  # the provider's last
        self.body: Any = None  # its JSON
        self.error: Exception | None = None
        self.frames: Frames | None = None
        self.stream_options: dict[str, Any] = {
            "defer_logical_completion": True,  # a stream that is refused will be tried again by the SDK
            "chunk_json": lambda frame: frame.json,
            "chunk_adapter": lambda chunk: Frame(exchange.sse(chunk), chunk),
            "completed_response_predicate": lambda value: isinstance(value, Whole),
        }

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around what the HTTP client does: its errors are the SDK's business."""
        self.response = self.error = None
        try:
            yield
        except Exception as error:
            self.error = error
            raise

    def _checked(self, response: Any) -> Any:
        self.response = response
        if response.status_code >= 400:
            raise ProviderStatus(response)
        return response

    def answered(self, response: Any) -> Any:
        """The body of a buffered response, as the answer of the attempt."""
        self._checked(response)
        try:
            self.body = response.json()
        except Exception:  # no JSON; each HTTP library raises its own error
            self.body = {"content": response.text}
        return self.body

    def opened(self, response: Any, streamed: bool) -> Any:
        """The chunks of a streamed response, or the whole of one that is none."""
        self._checked(response)
        if streamed:
            self.frames = Frames(response)
            return self.frames
        body = self.answered(response)
        return Whole(body if isinstance(body, dict) else {"content": body})

    def buffered(self, body: Any) -> Any:
        if self.response is None:
            return self.exchange.answer(body)
        return self.response if body is self.body else self.exchange.rewritten(self.response, body)

    def streamed(self, stream: Any, make: Any) -> Any:
        if isinstance(stream, Whole):
            self.ended("success")
            return self.response
        library, response = self.exchange.library, self.response
        made = make(library, stream, self)
        if response is None:  # answered by a rule
            headers = {"content-type": "text/event-stream"}
            return library.Response(200, headers=headers, stream=made, request=self.exchange.request)
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)
        response.stream = made
        return response

    def ended(self, outcome: str) -> None:
        """The stream is over; where that happens its turn need not be the current one."""
        if self.turn is not None:
            with self.turn.activate():
                relay_llm.complete_logical_call(self.call.request_id, outcome=outcome)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around the reading of a stream: how it ends, and a cut as the HTTP client would tell it."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            self.ended(failures.outcome(error))
            if isinstance(error, CallCut):
                raise self.exchange.library.ReadError(str(error)) from error
            raise
        self.ended("success")

    def failed(self, error: Exception) -> Any:
        """The response for an error; errors of the HTTP client are raised, for the SDK to handle."""
        if isinstance(error, ProviderStatus):
            return error.response
        if isinstance(error, CallCut):
            raise self.exchange.library.ReadError(str(error), request=self.exchange.request) from error
        if error is self.error:
            raise error
        return self.exchange.refused(error)


def _sync_stream(library: Any, stream: ManagedLlmStream, sender: _Sender) -> Any:
    class Bytes(library.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            with sender.reading():
                for frame in stream:
                    yield frame.raw
            if sender.frames is not None:
                yield sender.frames.tail

        def close(self) -> None:
            try:
                stream.close()
            finally:
                sender.ended("cancelled")

    return Bytes()


def _async_stream(library: Any, stream: AsyncManagedLlmStream, sender: _Sender) -> Any:
    class Bytes(library.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            with sender.reading():
                async for frame in stream:
                    yield frame.raw
            if sender.frames is not None:
                yield sender.frames.tail

        async def aclose(self) -> None:
            try:
                await stream.aclose()
            finally:
                sender.ended("cancelled")

    return Bytes()
