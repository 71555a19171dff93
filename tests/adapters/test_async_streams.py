"""Asynchronous streams: what R36-R58 promise, on an event loop; and cancelled ones, which must not run on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import intercepts, relay_llm
from tests.adapters.conftest import Conversation, Events, answer, body, call, chunk
from tests.adapters.test_streams import Down, complete, failing_at_end, rewriting, text, words


class AsyncSource:
    """A provider's async stream that counts what is done to it."""

    def __init__(self, chunks: list[Any], error: BaseException | None = None, pause: float = 0) -> None:
        self.chunks, self.error, self.pause = list(chunks), error, pause
        self.pulled = self.closed = 0
        self.close_error: Exception | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(self.pause)
        if self.pulled < len(self.chunks):
            self.pulled += 1
            return self.chunks[self.pulled - 1]
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def close(self) -> None:
        self.closed += 1
        if self.close_error is not None:
            raise self.close_error


async def open_stream(talk: Conversation, source: Any, request_id: str = "a", **options: Any) -> Any:
    async def factory(request: Any) -> Any:
        return source

    with talk.turn.activate():
        return await relay_llm.stream_current_async(body(), factory, **call(request_id), **options)


async def test_r36_iteration_gives_the_providers_own_chunks(talk: Conversation, events: Events) -> None:
    source = AsyncSource(words("a", "b", "c"))
    stream = await open_stream(talk, source)
    got = [c async for c in stream]
    assert [id(c) for c in got] == [id(c) for c in source.chunks]
    assert stream.output_modified is False
    assert source.closed == 1
    assert events.outcomes() == ["success"]


async def test_r36_a_synchronous_source_is_taken_as_well(talk: Conversation) -> None:
    stream = await open_stream(talk, iter(words("a", "b")))
    assert [text(c) async for c in stream] == ["a", "b"]


async def test_r37_rewritten_and_skipped_chunks(talk: Conversation, registered: Any) -> None:
    changes = {"a": ["a"], "b": [], "c": ["C", "!"]}
    registered("llm_stream_execution", 1, rewriting(lambda c: [chunk(t) for t in changes[text(c)]]))
    stream = await open_stream(talk, AsyncSource(words("a", "b", "c")), chunk_adapter=lambda c: c)
    assert [text(c) async for c in stream] == ["a", "C", "!"]
    assert stream.output_modified


async def test_r41_a_refused_chunk_ends_the_stream(talk: Conversation) -> None:
    source = AsyncSource(words("a", "b", "c"))
    stream = await open_stream(talk, source, accept_chunk=lambda c: text(c) != "b")
    assert [text(c) async for c in stream] == ["a"]
    assert (source.pulled, source.closed) == (2, 1)


async def test_r41_holds_on_a_bypassed_stream(talk: Conversation) -> None:
    talk.host.release_managed_execution("tests")
    source, seen = AsyncSource(words("a", "b", "c")), []
    stream = await open_stream(talk, source, accept_chunk=lambda c: text(c) != "b", on_chunk=seen.append)
    assert [text(c) async for c in stream] == ["a"]
    assert (source.pulled, source.closed, seen) == (2, 1, [chunk("a")])


async def test_r43_a_complete_response_comes_back_itself(talk: Conversation, events: Events) -> None:
    response = SimpleNamespace(**answer())
    assert await open_stream(talk, response, completed_response_predicate=complete) is response
    assert events.outcomes() == ["success"]
    assert events.attempts("end")[0]["data"] == answer()


async def test_r43_a_genuine_first_chunk_is_delivered_first(talk: Conversation) -> None:
    stream = await open_stream(talk, AsyncSource(words("a", "b")), completed_response_predicate=complete)
    assert [text(c) async for c in stream] == ["a", "b"]


async def test_r45_an_error_within_the_stream_is_the_providers_own(talk: Conversation, events: Events) -> None:
    error = Down("cut")
    stream = await open_stream(talk, AsyncSource(words("a"), error))
    assert text(await anext(stream)) == "a"
    with pytest.raises(Down) as caught:
        await anext(stream)
    assert caught.value is error
    assert events.outcomes() == ["failed"]


async def test_r45_an_error_of_the_factory_is_the_providers_own(talk: Conversation, events: Events) -> None:
    error = Down("refused")

    async def factory(request: Any) -> Any:
        raise error

    with talk.turn.activate(), pytest.raises(Down) as caught:
        await relay_llm.stream_current_async(body(), factory, **call("a"))
    assert caught.value is error
    assert events.outcomes() == ["failed"]
    assert talk.host._operations == 0


async def test_r47_closing_early_closes_the_provider_once(talk: Conversation, events: Events) -> None:
    source = AsyncSource(words(*"abcdefgh"), pause=0.01)
    async with await open_stream(talk, source) as stream:
        await anext(stream)
    await stream.aclose()
    assert source.closed == 1
    assert events.outcomes() == ["cancelled"]
    assert events.attempts("end")[0]["metadata"]["otel.status_description"] == "stream dropped before clean completion"


async def test_r48_the_first_close_error_is_raised_once(talk: Conversation) -> None:
    source = AsyncSource(words("a", "b"), pause=0.01)
    source.close_error = OSError("socket is gone")
    stream = await open_stream(talk, source)
    await anext(stream)
    with pytest.raises(OSError, match="socket is gone"):
        await stream.aclose()
    await stream.aclose()
    assert source.closed == 1


@pytest.mark.parametrize("keep", [0, 2])
async def test_r50_what_relay_owes_is_delivered(talk: Conversation, events: Events, registered: Any, keep: int) -> None:
    registered("llm_stream_execution", 1, failing_at_end(RuntimeError("post-processing"), keep=keep))
    source = AsyncSource(words("a", "b", "c"))
    got = [c async for c in await open_stream(talk, source)]
    assert [id(c) for c in got] == [id(c) for c in source.chunks]
    assert events.outcomes() == ["success"]


async def test_r52_cancelling_the_consumer_ends_the_provider_at_once(talk: Conversation, events: Events) -> None:
    source = AsyncSource([chunk("x")] * 1000)
    reached = asyncio.Event()

    async def consume() -> None:
        async for _ in await open_stream(talk, source):
            source.pause = 60
            reached.set()

    task = asyncio.create_task(consume())
    await reached.wait()
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pulled = source.pulled
    assert source.closed == 1
    assert events.outcomes() == ["cancelled"]
    source.pause = 0
    await asyncio.sleep(0.05)
    assert source.pulled == pulled


async def test_r52_cancelling_between_chunks_ends_the_provider_too(talk: Conversation, events: Events) -> None:
    source = AsyncSource([chunk("x")] * 100_000)
    reached = asyncio.Event()

    async def consume() -> None:
        async for _ in await open_stream(talk, source):
            reached.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(consume())
    await reached.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    for _ in range(500):
        if source.closed:
            break
        await asyncio.sleep(0.01)
    assert source.closed == 1
    pulled = source.pulled
    await asyncio.sleep(0.05)
    assert source.pulled == pulled < 1000
    assert events.outcomes() == ["cancelled"]


async def test_r53_an_error_of_the_finalizer_is_the_callers(talk: Conversation, events: Events) -> None:
    error = LookupError("my finalizer")

    def finalizer() -> Any:
        raise error

    stream = await open_stream(talk, AsyncSource(words("a")), finalizer=finalizer)
    await anext(stream)
    with pytest.raises(LookupError) as caught:
        await anext(stream)
    assert caught.value is error


async def test_r54_a_chunk_does_not_wait_for_the_next_one(talk: Conversation) -> None:
    produced: list[float] = []

    async def slow() -> AsyncIterator[Any]:
        for part in words("a", "b", "c"):
            await asyncio.sleep(0.15)
            produced.append(time.perf_counter())
            yield part

    delays = []
    async for _ in await open_stream(talk, slow()):
        delays.append(time.perf_counter() - produced[-1])
    assert max(delays) < 0.1


async def test_r56_a_live_stream_holds_up_the_end_of_shutdown(talk: Conversation) -> None:
    stream = await open_stream(talk, AsyncSource(words("a", "b")))
    await anext(stream)
    talk.host.shutdown()
    assert not talk.host.wait_closed(0.05)
    assert [text(c) async for c in stream] == ["b"]
    assert await asyncio.to_thread(talk.host.wait_closed, 10)


async def test_r57_a_dropped_stream_closes_itself(talk: Conversation, events: Events) -> None:
    source = AsyncSource(words("a", "b"), pause=0.01)
    stream = await open_stream(talk, source)
    await anext(stream)
    del stream
    gc.collect()
    for _ in range(500):
        if source.closed and not talk.host._operations:
            break
        await asyncio.sleep(0.01)
    assert source.closed == 1
    assert events.outcomes() == ["cancelled"]


def test_r57_a_stream_left_open_by_a_loop_that_closed_ends_on_record(talk: Conversation, events: Events) -> None:
    source = AsyncSource(words("a", "b"))
    left: list[Any] = []

    async def main() -> None:
        left.append(await open_stream(talk, source))
        await anext(left[0])

    asyncio.run(main())
    left.clear()
    gc.collect()
    assert talk.host._operations == 0
    assert events.outcomes() == ["cancelled"]


async def test_r58_the_end_stays_the_end(talk: Conversation) -> None:
    stream = await open_stream(talk, AsyncSource(words("a")))
    assert len([c async for c in stream]) == 1
    for _ in range(3):
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_many_streams_at_once_keep_their_chunks_apart(talk: Conversation) -> None:
    async def one(number: int) -> None:
        source = AsyncSource(words(*(f"{number}-{i}" for i in range(20))))
        got = [text(c) async for c in await open_stream(talk, source, f"call-{number}")]
        assert got == [f"{number}-{i}" for i in range(20)]

    await asyncio.gather(*(one(number) for number in range(20)))
    assert talk.turn.logical_llm_calls == {}


@pytest.fixture
def rules() -> Any:
    def put(*configs: dict[str, Any]) -> None:
        intercepts.swap(intercepts.RuleSet.parse(list(configs)))

    yield put
    intercepts.swap(intercepts.RuleSet())


async def test_a_rule_blocks_a_stream_before_the_provider_is_asked(talk: Conversation, rules: Any) -> None:
    rules({"key": "no", "action": {"type": "block", "message": "budget used up"}})
    source = AsyncSource(words("a"))
    with pytest.raises(relay_llm.CallBlocked, match="budget used up"):
        await open_stream(talk, source)
    assert source.pulled == 0


async def test_a_redact_rule_records_lengths_of_chunks_not_their_content(
    talk: Conversation, events: Events, rules: Any
) -> None:
    rules({"key": "hide", "action": {"type": "redact", "patterns": ["secret-[0-9]+"]}})
    source = AsyncSource(words("it is ", "secret-42", "."))
    assert [text(c) async for c in await open_stream(talk, source)] == ["it is ", "secret-42", "."]
    seen = events.all()
    assert "secret-42" not in str(seen)
    [mark] = events.marks("relay.chunks")
    assert mark["data"]["redacted"] is True
    assert all(set(c) == {"length"} and c["length"] > 0 for c in mark["data"]["chunks"])


CANCELLED = """
import asyncio, os
from adapters import relay_llm, relay_runtime
C = relay_runtime.SESSION_COORDINATOR
pulled = closed = 0

async def source(request):
    global pulled, closed
    try:
        while True:
            pulled += 1
            yield {"n": pulled}
            await asyncio.sleep(0.001)
    finally:
        closed += 1

async def consume():
    async for _ in await relay_llm.stream_current_async({}, source, name="p", metadata={"api_request_id": "a"}):
        pass

async def main():
    lease = C.acquire_conversation(session_id="s")
    lease.host.retain_managed_execution("t")
    turn = C.begin_turn(lease, turn_id="t1")
    task = asyncio.create_task(consume())
    while pulled < 20:
        await asyncio.sleep(0.001)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    before = pulled
    await asyncio.sleep(0.1)
    assert pulled == before, (before, pulled)
    assert closed == 1
    C.end_turn(turn, outcome="cancelled")

asyncio.run(main())
print("still", flush=True)
os._exit(0)  # Relay's own fault at the interpreter's exit is none of this stream's
"""


def test_a_cancelled_stream_does_not_keep_running() -> None:
    done = subprocess.run([sys.executable, "-c", CANCELLED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "still"), done.stderr
