"""Streamed calls to a model: the provider's bytes to the client as they arrive, each chunk to the core beside them.

Where nothing can change a stream it is a tee: the client's bytes never wait for Relay, and Relay's faults never reach
them. Where a rule or a foreign intercept may change it, the client gets what comes out of Relay: chunks that came
through as they are keep their bytes, comments and `[DONE]` keep their place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import httpx2

from adapters import relay_llm, sse, wire
from adapters.actions.base import UNREADABLE
from relayweb import conf
from relayweb.gateway import exchange as provider
from relayweb.gateway.answering import Answering, Cut
from relayweb.gateway.conversation import CHAT, StreamWatch, read_answer
from relayweb.gateway.exchange import ProviderError
from relayweb.gateway.headers import to_client
from relayweb.gateway.proxy import Managed

log = logging.getLogger(__name__)

# How far Relay may fall behind the client before a tee goes on without it.
MOST_BEHIND = 20_000
# The same in bytes: chunks may be large.
MOST_BYTES_BEHIND = conf.MAX_BODY
# Lines of one event; they are gone through when it ends.
MOST_LINES = 10_000
# How far the provider may be ahead of Relay where the client waits for Relay.
MOST_AHEAD = 256
# How long Relay may stand still over an answer that the client has.
WIND_UP_SECONDS = 10.0
# For what a client got of an answer that it did not wait for.
HANG_UP_SECONDS = 1.0


def _nothing(data: bytes) -> bytes:
    return b""


class Chunk:
    """One parsed chunk and the bytes it came in; `after` are bytes without a chunk that followed it."""

    __slots__ = ("after", "json", "raw")

    def __init__(self, raw: bytes, json: dict[str, Any]) -> None:
        self.raw, self.json, self.after = raw, json, b""


class Feed:
    """Chunks on their way from the provider to Relay."""

    def __init__(self, most: int) -> None:
        self._queue: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()
        self._most = most
        self._room = asyncio.Event()
        self._bytes = 0
        self.lost = 0

    def offer(self, chunk: Chunk) -> None:
        if self._queue.qsize() < self._most and self._bytes < MOST_BYTES_BEHIND:
            self._bytes += len(chunk.raw)
            self._queue.put_nowait(chunk)
        else:
            self.lost += 1

    async def put(self, chunk: Chunk) -> None:
        while self._queue.qsize() >= self._most:
            self._room.clear()
            await self._room.wait()
        self._bytes += len(chunk.raw)
        self._queue.put_nowait(chunk)

    def end(self, error: Exception | None = None) -> None:
        self._queue.put_nowait(error)

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while (item := await self._queue.get()) is not None:
            self._room.set()
            if isinstance(item, Exception):
                raise item
            self._bytes -= len(item.raw)
            yield item


class StreamedCall:
    """One streamed call. `run` is its owner: whatever ends it ends the provider call and the record."""

    def __init__(self, managed: Managed, client: Answering) -> None:
        self.managed = managed
        self.client = client
        self.exchange = managed.exchange
        self.watch = StreamWatch(managed.api_mode)
        self.splitter = sse.Splitter()
        self.tee = True
        self.feed = Feed(MOST_BEHIND)
        self.opened: asyncio.Future[httpx2.Response] = asyncio.get_running_loop().create_future()
        self.pending: deque[Chunk] = deque()
        self.recording: asyncio.Future[Any] | None = None
        self.pumping: asyncio.Future[Any] | None = None
        self.offered = self.recorded = 0
        self.caught_up: asyncio.Future[None] | None = None
        self.whole: Any = None
        self.wire: wire.ProviderCall | None = None

    async def run(self) -> None:
        """Makes the call. Raises what should be answered with an error, or Cut once an answer has begun."""
        if self.managed.call is None:
            await self._unrecorded()
            return
        with self.managed.call.turn.relay.activate():
            recording = self.recording = asyncio.ensure_future(self._record())
        try:
            waiting: set[asyncio.Future[Any]] = {recording, self.opened}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.opened.done() and self.tee:
                await self._pump(self.opened.result(), self.feed)
                await self._recorded(recording)
            else:
                # Not awaited by itself: being cancelled, we would cancel it before it has what passed.
                await asyncio.wait({recording})
                recording.result()
            await self._conclude()
        except asyncio.CancelledError:
            await self._hung_up(recording)
            raise
        finally:
            await self.exchange.close()
            for task in (recording, self.pumping):
                if task is not None:
                    await _wind_up(task)

    async def _hung_up(self, recording: asyncio.Future[Any]) -> None:
        """The client hung up: the provider call ends at once; what has passed goes on record before the attempt ends.

        SDKs hang up when they have read the last event, or one that tells of an error, which is often before the
        provider's stream has ended.
        """
        await self.exchange.close()
        if self.watch.finished or self.watch.failed:
            self.feed.end()
            await self._catch_up(recording)
            self.managed.answered(self.watch.answer())
            return
        if self.recorded < self.offered:
            self.caught_up = asyncio.get_running_loop().create_future()
            waiting: set[asyncio.Future[Any]] = {recording, self.caught_up}
            await asyncio.wait(waiting, timeout=HANG_UP_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    async def _recorded(self, recording: asyncio.Future[Any]) -> None:
        """Waits until Relay has all of a tee; the client has its answer, so a fault of Relay is only logged."""
        await self._catch_up(recording)
        error = recording.exception() if recording.done() else TimeoutError("Relay stands still")
        if error is not None:
            self.managed.registry.losses["streams"] += 1
            log.warning("a stream is not fully recorded: %s: %s", type(error).__name__, error)
        if self.feed.lost:
            self.managed.registry.losses["chunks"] += self.feed.lost
            log.warning("%d chunks of a stream are not recorded: Relay did not keep up", self.feed.lost)

    async def _catch_up(self, recording: asyncio.Future[Any]) -> None:
        """Waits for Relay as long as it gets on: on a busy machine it may be far behind."""
        before = -1
        while not recording.done() and self.recorded > before:
            before = self.recorded
            await asyncio.wait({recording}, timeout=WIND_UP_SECONDS)

    # -- the record ------------------------------------------------------------------------------------------------

    async def _record(self) -> None:
        stream = await relay_llm.stream_async(
            self.exchange.body,
            self._open,
            chunk_json=lambda chunk: chunk.json,
            chunk_adapter=lambda value: value,
            completed_response_predicate=lambda value: not isinstance(value, Feed),
            **self.managed.options,
        )
        try:
            async for chunk in stream:
                self.recorded += 1
                if self.caught_up and self.recorded >= self.offered and not self.caught_up.done():
                    self.caught_up.set_result(None)
                if not self.tee or not self.opened.done():
                    await self._deliver(chunk)
            self.whole = stream.final_response
        finally:
            await stream.aclose()

    async def _open(self, request: Mapping[str, Any]) -> Any:
        """Relay's callback: asks the provider, and gives its stream, or its whole answer where it does not stream."""
        call = self.wire = wire.current_call()
        self._flag(self.exchange.replaced)
        self.tee = not (call and call.decision) and not foreign_stream_intercepts()
        response = await self.exchange.send(request)
        if not response.is_success:
            raise ProviderError(response, await self._read(response))
        if not await self.exchange.streams():
            return Whole(await self._read(response), response)
        if not self.tee:
            self._begin_pumping(response)
        if not self.opened.done():
            self.opened.set_result(response)
        return self.feed

    async def _read(self, response: httpx2.Response) -> bytes:
        content = await self.exchange.read()
        self._flag(provider.is_replaced(provider.plain(response, content)))
        return content

    def _flag(self, replaced: bool) -> None:
        if replaced and self.wire is not None:
            self.wire.flags.add("replaced_text")

    def _begin_pumping(self, response: httpx2.Response) -> None:
        """Feeds Relay from this response; an intercept that tries again takes the place of what it had before."""
        if self.pumping is not None:
            self.pumping.cancel()
        self.pending.clear()
        self.splitter = sse.Splitter()
        self.feed = Feed(MOST_AHEAD)
        self.pumping = asyncio.ensure_future(self._pump(response, self.feed))

    async def _deliver(self, chunk: Any) -> None:
        """Passes on what came out of Relay."""
        if not self.client.started:
            # An answer of ours, or of an intercept, to which no provider was asked.
            await self.client.start(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
        data = b""
        if isinstance(chunk, Chunk):
            self._observe(chunk.json)
            while self.pending and self.pending[0] is not chunk:
                data += self.pending.popleft().after
            data += chunk.raw
        elif UNREADABLE in chunk:
            raise Cut("an intercept changed a chunk that has too many values to be read")
        else:
            name = None if self.managed.api_mode == CHAT else chunk.get("type")
            self._observe(chunk)
            data = sse.encode(provider.dump(chunk), name)
        if self.pending:
            data += self.pending.popleft().after
        await self.client.piece(data)

    def _observe(self, chunk: dict[str, Any]) -> None:
        self.watch.observe(chunk)
        call = self.managed.call
        if call is not None and self.watch.finished and not self.watch.goes_on:
            call.final = True

    # -- the provider's bytes --------------------------------------------------------------------------------------

    async def _pump(self, response: httpx2.Response, feed: Feed) -> None:
        """Reads the provider's stream to its end; a cut one ends with its error, for the record and for the client."""
        headers = to_client(response.headers.raw, keep_length=self.tee)
        if not self.tee:
            headers = [(name, value) for name, value in headers if name != b"content-encoding"]
        decode = provider.decoder(response)
        if not self.client.started:
            await self.client.start(response.status_code, headers)
        try:
            async for data in provider.raw(response):
                chunks = self._split(decode(data))
                if self.splitter.held > conf.MAX_BODY or self.splitter.lines > MOST_LINES:
                    if not self.tee:
                        limits = f"{conf.MAX_BODY} bytes or {MOST_LINES} lines"
                        raise httpx2.RemoteProtocolError(f"an event of more than {limits}")
                    # It passes, and what follows too; the record does without.
                    feed.lost += 1
                    decode, self.splitter = _nothing, sse.Splitter()
                if self.tee:
                    for chunk in chunks:
                        feed.offer(chunk)
                    await self.client.piece(data)
                    continue
                if waited_for := self._asides():
                    await self.client.piece(waited_for)
                for chunk in chunks:
                    await feed.put(chunk)
        except httpx2.TransportError as error:
            feed.end(error)
            if self.tee:
                await self._cut(error)
            return
        if (rest := self.splitter.rest()) is not None:
            self._aside(rest.raw)  # passed on at the end
        if self.tee:
            await self.client.end()
        feed.end()

    async def _cut(self, error: Exception) -> None:
        """The provider broke off: so do we, once the record has what came."""
        if self.recording is not None:
            await asyncio.wait({self.recording}, timeout=1.0)
        raise Cut(f"the upstream broke off: {error}") from error

    def _split(self, data: bytes) -> list[Chunk]:
        """The chunks that end in `data`. What is no chunk keeps its place among those that wait for Relay."""
        found = []
        for piece in self.splitter.feed(data):
            parsed = sse.chunk(piece, provider.read)
            if parsed is None:
                self._aside(piece.raw)
                continue
            self._flag(provider.is_replaced(piece.raw))
            chunk = Chunk(piece.raw, parsed)
            self.offered += 1
            found.append(chunk)
            if self.tee:
                self._observe(parsed)
            else:
                self.pending.append(chunk)
        return found

    def _aside(self, raw: bytes) -> None:
        """Bytes that are no chunk follow the one before them; with none under way they stand for themselves."""
        if not self.tee:
            if not self.pending:
                self.pending.append(Chunk(b"", {}))
            self.pending[-1].after += raw

    def _asides(self) -> bytes:
        """The bytes that wait for no chunk."""
        data = b""
        while self.pending and not self.pending[0].raw:
            data += self.pending.popleft().after
        return data

    # -- the end ---------------------------------------------------------------------------------------------------

    async def _conclude(self) -> None:
        """Everything went well up to here: say so to the client, and where the call stands."""
        managed, client = self.managed, self.client
        if isinstance(self.whole, Whole):
            response, content = self.whole.response, self.whole.content
            managed.answered(read_answer(managed.api_mode, self.whole.json))
            await client.whole(response.status_code, to_client(response.headers.raw, length=len(content)), content)
            return
        managed.answered(self.watch.answer())
        if not self.tee or not self.opened.done():
            left = b"".join(chunk.after for chunk in self.pending)
            if not self.opened.done():
                left = b"data: [DONE]\n\n" if managed.api_mode == CHAT else b""
                if not client.started:
                    await client.start(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
            if left:
                await client.piece(left)
            await client.end()

    async def _unrecorded(self) -> None:
        try:
            response = await self.exchange.send()
            if not response.is_success:
                raise ProviderError(response, await self.exchange.read())
            await self._pump(response, self.feed)
        finally:
            await self.exchange.close()


class Whole:
    """A complete answer to a call that asked for a stream. Relay sees its JSON, the client its bytes."""

    def __init__(self, content: bytes, response: httpx2.Response) -> None:
        self.content, self.response = content, response
        shown = provider.plain(response, content)
        parsed = provider.read(shown)
        self.json = {"text": shown[:65_536].decode("utf-8", "replace")} if parsed is None else parsed

    def model_dump(self, **_: Any) -> Any:
        return self.json


async def streamed(managed: Managed, client: Answering) -> None:
    """Makes a streamed call and passes the stream on."""
    await StreamedCall(managed, client).run()


def foreign_stream_intercepts() -> bool:
    """Whether anyone registered an intercept in Relay that may change a stream."""
    try:
        from nemo_relay import runtime_registrations as relay

        wanted = relay.RuntimeRegistrationKind.LLM_STREAM_EXECUTION_INTERCEPT
        return any(found.kind == wanted for found in relay.list_runtime_registrations())
    except Exception:  # a Relay that cannot tell: the bytes pass as they came
        return False


async def _wind_up(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=WIND_UP_SECONDS)
    if task.done():
        with suppress(BaseException):
            task.exception()
