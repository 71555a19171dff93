"""Streams under any intercept, any failure, many threads: what is delivered, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import time
import uuid
import weakref
from typing import Any

import nemo_relay
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import loops, relay_llm, relay_runtime
from tests.adapters.conftest import Conversation, body, call, chunk
from tests.adapters.test_streams import Source, open_stream, text, words

KEEP, DROP, CHANGE, DOUBLE = "keep", "drop", "change", "double"
PLAN = st.lists(st.sampled_from([KEEP, KEEP, DROP, CHANGE, DOUBLE]), max_size=12)


class Intercept:
    """Does with each chunk what the plan says; an error at the end if wanted. Registered for the `with` body."""

    def __init__(self, plan: list[str], error: bool = False) -> None:
        self.plan, self.error, self.name = plan, error, f"plan-{uuid.uuid4().hex}"

    async def __call__(self, name: str, request: Any, context: Any, following: Any) -> Any:
        async def generate() -> Any:
            position = 0
            async for item in await following(request):
                wish = self.plan[position]
                position += 1
                if wish == CHANGE:
                    yield chunk(text(item) + "!")
                elif wish != DROP:
                    yield item
                if wish == DOUBLE:
                    yield chunk(text(item) + "+")
            if self.error:
                raise RuntimeError("after the provider had finished")

        return generate()

    def __enter__(self) -> None:
        nemo_relay.intercepts.register_llm_stream_execution(self.name, 1, self)

    def __exit__(self, *_: object) -> None:
        nemo_relay.intercepts.deregister_llm_stream_execution(self.name)


def expected(plan: list[str]) -> list[str]:
    out: list[str] = []
    for position, wish in enumerate(plan):
        out += {KEEP: [f"{position}"], DROP: [], CHANGE: [f"{position}!"], DOUBLE: [f"{position}", f"{position}+"]}[
            wish
        ]
    return out


def check(plan: list[str], chunks: list[Any], got: list[Any], modified: bool) -> None:
    assert [text(c) for c in got] == expected(plan)
    own = {id(c) for c in chunks}
    assert all((id(c) in own) == text(c).isdigit() for c in got)
    assert modified == any(wish != KEEP for wish in plan)


@settings(max_examples=40, deadline=None)
@given(plan=PLAN)
def test_r37_r38_r39_any_intercept_over_a_sync_stream(plan: list[str]) -> None:
    talk = Conversation("properties")
    chunks = words(*(f"{i}" for i in range(len(plan))))
    source = Source(chunks)
    with Intercept(plan):
        stream = open_stream(source, uuid.uuid4().hex, chunk_adapter=lambda c: c)
        got = list(stream)
    check(plan, chunks, got, stream.output_modified)
    assert source.closed == 1
    assert talk.turn.logical_llm_calls == {}
    relay_runtime.reset_for_tests()


@settings(max_examples=40, deadline=None)
@given(plan=PLAN, pauses=st.lists(st.booleans(), min_size=12, max_size=12))
def test_r37_r38_r39_any_intercept_over_an_async_stream(plan: list[str], pauses: list[bool]) -> None:
    talk = Conversation("properties")
    chunks = words(*(f"{i}" for i in range(len(plan))))

    async def source(request: Any) -> Any:
        for item, pause in zip(chunks, pauses, strict=False):
            if pause:
                await asyncio.sleep(0)
            yield item

    async def run() -> Any:
        stream = await relay_llm.stream_current_async(body(), source, chunk_adapter=lambda c: c, **call("a"))
        return [c async for c in stream], stream

    with Intercept(plan):
        got, stream = asyncio.run(run())
    check(plan, chunks, got, stream.output_modified)
    assert talk.turn.logical_llm_calls == {}
    relay_runtime.reset_for_tests()


@settings(max_examples=30, deadline=None)
@given(plan=st.lists(st.sampled_from([KEEP, DROP]), max_size=8))
def test_r50_r51_after_a_late_failure_all_that_was_not_left_out_arrives_once(plan: list[str]) -> None:
    Conversation("properties")
    chunks = words(*(f"{i}" for i in range(len(plan))))
    with Intercept(plan, error=True):
        got = [text(c) for c in open_stream(Source(chunks), uuid.uuid4().hex)]
    last = max((i for i, wish in enumerate(plan) if wish == KEEP), default=-1)
    # Those left out before one that was delivered are known to be left out; later ones can only be owed.
    assert got == expected(plan[: last + 1]) + [f"{i}" for i in range(last + 1, len(plan))]
    relay_runtime.reset_for_tests()


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 6), take=st.integers(0, 8), fail=st.booleans())
def test_a_stream_read_to_any_point_ends_everything_once(count: int, take: int, fail: bool) -> None:
    talk = Conversation("properties")
    source = Source(words(*(f"{i}" for i in range(count))), ValueError("cut") if fail else None)
    stream = open_stream(source, "a")
    taken = 0
    ended = False
    for _ in range(take):
        try:
            next(stream)
            taken += 1
        except (StopIteration, ValueError):
            ended = True
            break
    stream.close()
    stream.close()
    assert taken == min(count, take) and ended == (take > count)
    assert source.closed == 1
    assert talk.host._operations == 0
    assert talk.turn.logical_llm_calls == {}
    relay_runtime.reset_for_tests()


def test_streams_in_many_threads_keep_apart(talk: Conversation) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for round in range(5):
                names = [f"{number}-{round}-{i}" for i in range(10)]
                got = [text(c) for c in open_stream(Source(words(*names)), f"{number}-{round}")]
                assert got == names
                answer = relay_llm.execute_current(body(), lambda r: {"n": number}, **call(f"x{number}-{round}"))  # noqa: B023
                assert answer == {"n": number}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(work, number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert talk.turn.logical_llm_calls == {}
    assert talk.host._operations == 0


def test_nothing_is_left_behind_by_many_calls_and_streams(talk: Conversation) -> None:
    runs: list[Any] = []

    def one(number: int) -> None:
        relay_llm.execute_current(body(), lambda r: {"ok": 1}, **call(f"call-{number}"))
        stream = open_stream(Source(words("a", "b")), f"stream-{number}")
        runs.append(weakref.ref(stream._run))
        next(stream)
        stream.close() if number % 2 else list(stream)

    for number in range(20):
        one(number)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for number in range(20, 120):
        one(number)
    deadline = time.monotonic() + 10
    while any(run() is not None for run in runs) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    assert sum(run() is not None for run in runs) == 0
    assert len(os.listdir("/proc/self/fd")) <= files + 3
    assert threading.active_count() <= threads + 1
    assert len(loops._idle) <= loops.KEEP
