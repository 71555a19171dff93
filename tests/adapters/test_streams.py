"""Synchronous streams (R36-R58)."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import relay_llm, stream_run
from tests.adapters.conftest import Conversation, Events, answer, body, call, chunk

VAR: contextvars.ContextVar[str] = contextvars.ContextVar("stream_var", default="unset")


class Source:
    """A provider's stream that counts what is done to it."""

    def __init__(self, chunks: list[Any], error: BaseException | None = None) -> None:
        self.chunks = list(chunks)
        self.error = error
        self.pulled = 0
        self.closed = 0
        self.close_error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.pulled < len(self.chunks):
            self.pulled += 1
            return self.chunks[self.pulled - 1]
        if self.error is not None:
            raise self.error
        raise StopIteration

    def close(self) -> None:
        self.closed += 1
        if self.close_error is not None:
            raise self.close_error


def words(*texts: str) -> list[dict[str, Any]]:
    return [chunk(text) for text in texts]


def open_stream(source: Any, request_id: str = "a", **options: Any) -> Any:
    return relay_llm.stream_current(body(), lambda r: source, **call(request_id), **options)


def rewriting(change: Any) -> Any:
    """A stream intercept that puts every chunk through `change`, which gives a list."""

    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        async def generate() -> Any:
            async for item in await following(request):
                for changed in change(item):
                    yield changed

        return generate()

    return intercept


def text(item: Any) -> str:
    got = item["choices"][0]["delta"]["content"]
    assert isinstance(got, str)
    return got


def test_r36_iteration_gives_the_providers_own_chunks(talk: Conversation, events: Events) -> None:
    chunks = words("a", "b", "c")
    stream = open_stream(Source(chunks))
    got = list(stream)
    assert all(x is y for x, y in zip(got, chunks, strict=True))
    assert stream.output_modified is False  # R39
    assert events.outcomes() == ["success"]
    assert events.attempts()[0]["attributes"] == ["streaming"]


def test_r36_the_provider_is_read_in_the_consumers_thread(talk: Conversation) -> None:
    threads = set()

    def chunks(request: Any) -> Any:
        for part in words("a", "b"):
            threads.add(threading.current_thread())
            yield part

    list(relay_llm.stream_current(body(), chunks, **call("a")))
    assert threads == {threading.current_thread()}


def test_r37_a_rewritten_chunk_is_delivered_changed(talk: Conversation, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [chunk("B")] if text(c) == "b" else [c]))
    chunks = words("a", "b", "c")
    stream = open_stream(Source(chunks))
    got = list(stream)
    assert got[0] is chunks[0]
    assert got[1].choices[0].delta.content == "B"
    assert got[2] is chunks[2]
    assert stream.output_modified


def test_r37_a_skipped_chunk_is_dropped(talk: Conversation, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [] if text(c) == "b" else [c]))
    chunks = words("a", "b", "c")
    stream = open_stream(Source(chunks))
    assert [text(c) for c in stream] == ["a", "c"]
    assert stream.output_modified


def test_r37_the_adapter_makes_what_an_intercept_added(talk: Conversation, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [c, chunk("!")]))
    stream = open_stream(Source(words("a")), chunk_adapter=lambda c: ("adapted", text(c)))
    assert list(stream)[1] == ("adapted", "!")


def test_r38_chunks_left_over_at_the_end_mean_modified(talk: Conversation, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [c] if text(c) == "a" else []))
    stream = open_stream(Source(words("a", "b")))
    assert len(list(stream)) == 1
    assert stream.output_modified


def test_r40_callbacks_run_once_each_in_the_callers_context(talk: Conversation) -> None:
    VAR.set("caller")
    seen: list[tuple[str, str]] = []
    source = Source(words("a", "b"))

    def note(name: str) -> Any:
        def callback(*_: Any) -> Any:
            seen.append((name, VAR.get()))
            VAR.set("changed")
            nested = relay_llm.execute_current({"model": "x"}, lambda r: r, **call("nested"))
            assert nested == {"model": "x"}
            return {}

        return callback

    stream = open_stream(source, on_stream_created=note("created"), on_chunk=note("chunk"), finalizer=note("finalizer"))
    list(stream)
    assert seen == [("created", "caller"), ("chunk", "caller"), ("chunk", "caller"), ("finalizer", "caller")]
    assert VAR.get() == "caller"
    assert "nested" not in talk.turn.logical_llm_calls


def test_r40_a_context_that_is_entered_elsewhere_does_not_matter(talk: Conversation) -> None:
    context = contextvars.copy_context()
    stream = context.run(open_stream, Source(words("a", "b")), on_chunk=lambda c: None)
    assert context.run(lambda: len(list(stream))) == 2


def test_r40_on_chunk_sees_json_after_intercepts(talk: Conversation, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [chunk(text(c).upper())]))
    seen: list[Any] = []
    list(open_stream(Source([SimpleNamespace(**chunk("a"))]), on_chunk=seen.append))
    assert seen == [chunk("A")]


def test_r40_on_a_bypassed_stream_on_chunk_still_sees_every_chunk(talk: Conversation) -> None:
    talk.host.release_managed_execution("tests")
    seen: list[Any] = []
    source = Source([SimpleNamespace(text="a")])
    stream = open_stream(source, on_chunk=seen.append, finalizer=lambda: pytest.fail("finalizer was called"))
    assert list(stream) == source.chunks
    assert seen == [{"text": "a"}]
    assert source.closed == 1


@pytest.mark.parametrize("managed", [True, False])
def test_r41_a_refused_chunk_ends_the_stream(talk: Conversation, managed: bool) -> None:
    if not managed:
        talk.host.release_managed_execution("tests")
    source = Source(words("a", "b", "c", "d"))
    stream = open_stream(source, accept_chunk=lambda c: text(c) != "b")
    assert [text(c) for c in stream] == ["a"]
    assert (source.pulled, source.closed) == (2, 1)


def complete(value: Any) -> bool:
    return hasattr(value, "choices")


def test_r42_a_complete_response_is_kept_and_recorded(talk: Conversation, events: Events) -> None:
    response = SimpleNamespace(**answer())
    stream = relay_llm.stream(
        body(), lambda r: response, session_id=talk.session_id, completed_response_predicate=complete, **call("a")
    )
    assert list(stream) == []
    assert stream.final_response is response
    assert events.attempts("end")[0]["data"] == answer()


def test_r43_the_current_form_gives_the_complete_response_itself(talk: Conversation, events: Events) -> None:
    response = SimpleNamespace(**answer())
    assert open_stream(response, completed_response_predicate=complete) is response
    assert events.outcomes() == ["success"]
    assert talk.host._operations == 0


def test_r43_a_genuine_first_chunk_is_delivered_first(talk: Conversation) -> None:
    source = Source(words("a", "b"))
    stream = open_stream(source, completed_response_predicate=complete)
    assert source.pulled == 1
    assert [text(c) for c in stream] == ["a", "b"]


def test_r43_an_error_of_the_factory_surfaces_at_once(talk: Conversation) -> None:
    error = ValueError("no such model")

    def factory(request: Any) -> Any:
        raise error

    with pytest.raises(ValueError, match="no such model") as caught:
        relay_llm.stream_current(body(), factory, completed_response_predicate=complete, **call("a"))
    assert caught.value is error


async def test_r44_on_a_running_loop_the_raw_result_comes_back(talk: Conversation) -> None:
    source = Source(words("a"))
    with talk.turn.activate():
        assert open_stream(source) is source


class Down(Exception):
    status_code = 500


def test_r45_an_error_within_the_stream_is_the_providers_own(talk: Conversation, events: Events) -> None:
    error = Down("cut")
    stream = open_stream(Source(words("a"), error), finalizer=lambda: pytest.fail("finalizer was called"))
    assert text(next(stream)) == "a"
    with pytest.raises(Down) as caught:
        next(stream)
    assert caught.value is error
    assert events.outcomes() == ["failed"]
    [mark] = events.marks("relay.attempt_failed")
    assert mark["data"]["status"] == 500


def test_r45_a_deferred_stream_that_fails_leaves_its_call_open(talk: Conversation) -> None:
    stream = open_stream(Source([], Down("cut")), defer_logical_completion=True)
    with pytest.raises(Down):
        next(stream)
    assert list(talk.turn.logical_llm_calls) == ["a"]


def test_r46_a_partial_failure_is_closed_before_the_recovery_starts(talk: Conversation, events: Events) -> None:
    stream = open_stream(Source(words("a"), Down("cut")))
    next(stream)
    with pytest.raises(Down):
        next(stream)
    assert events.outcomes() == ["failed"]
    assert talk.turn.logical_llm_calls == {}
    list(open_stream(Source(words("b")), "recovery"))
    assert events.outcomes() == ["failed", "success"]


def test_r47_closing_early_closes_the_provider_once_and_cancels_the_call(talk: Conversation, events: Events) -> None:
    source = Source(words("a", "b", "c"))
    with open_stream(source) as stream:
        next(stream)
    stream.close()
    assert (source.closed, source.pulled) == (1, 1)
    assert events.outcomes() == ["cancelled"]
    end = events.attempts("end")[0]
    assert end["metadata"]["otel.status_description"] == "stream dropped before clean completion"


def test_r47_closing_before_the_first_chunk_works_too(talk: Conversation, events: Events) -> None:
    source = Source(words("a"))
    open_stream(source).close()
    assert (source.closed, source.pulled) == (1, 0)
    assert events.outcomes() == ["cancelled"]


@pytest.mark.parametrize("managed", [True, False])
def test_r48_the_first_close_error_is_raised_once(talk: Conversation, managed: bool) -> None:
    if not managed:
        talk.host.release_managed_execution("tests")
    source = Source(words("a", "b"))
    source.close_error = OSError("socket is gone")
    stream = open_stream(source)
    next(stream)
    with pytest.raises(OSError, match="socket is gone"):
        stream.close()
    stream.close()
    assert source.closed == 1


def test_r49_closing_a_bypassed_stream_reaches_iterator_and_resource(talk: Conversation) -> None:
    talk.host.release_managed_execution("tests")
    inner = Source(words("a", "b"))

    class Resource:
        closed = 0

        def __iter__(self) -> Any:
            return inner

        def close(self) -> None:
            self.closed += 1

    resource = Resource()
    stream = open_stream(resource)
    next(stream)
    stream.close()
    stream.close()
    assert (inner.closed, resource.closed) == (1, 1)


def failing_at_end(error: Exception, *, keep: int = 99) -> Any:
    """A stream intercept that reads the provider to its end, delivers `keep` chunks and then fails."""

    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        async def generate() -> Any:
            items = [item async for item in await following(request)]
            for item in items[:keep]:
                yield item
            raise error

        return generate()

    return intercept


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_r50_what_relay_owes_after_the_provider_finished_is_delivered(
    talk: Conversation, events: Events, registered: Any, keep: int, caplog: pytest.LogCaptureFixture
) -> None:
    registered("llm_stream_execution", 1, failing_at_end(RuntimeError("post-processing"), keep=keep))
    chunks = words("a", "b", "c")
    stream = open_stream(Source(chunks))
    got = list(stream)
    assert [id(c) for c in got] == [id(c) for c in chunks]
    assert events.outcomes() == ["success"]
    assert "after the provider's stream had ended" in caplog.text


def test_r51_nothing_is_replayed_once_something_else_was_delivered(
    talk: Conversation, events: Events, registered: Any
) -> None:
    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        async def generate() -> Any:
            items = [item async for item in await following(request)]
            yield chunk("[redacted]")
            assert items
            raise PermissionError("policy")

        return generate()

    registered("llm_stream_execution", 1, intercept)
    stream = open_stream(Source(words("secret", "more")))
    assert next(stream).choices[0].delta.content == "[redacted]"
    with pytest.raises(PermissionError, match="policy"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    assert events.outcomes() == ["failed"]


def test_r51_chunks_relay_skipped_are_not_resurrected(talk: Conversation, registered: Any) -> None:
    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        async def generate() -> Any:
            items = [item async for item in await following(request)]
            yield items[1]
            raise RuntimeError("post-processing")

        return generate()

    registered("llm_stream_execution", 1, intercept)
    assert [text(c) for c in open_stream(Source(words("a", "b", "c")))] == ["b", "c"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_r52_an_interrupt_ends_the_stream_and_propagates(
    talk: Conversation, events: Events, error: BaseException
) -> None:
    source = Source(words("a"), error)
    stream = open_stream(source)
    next(stream)
    with pytest.raises(type(error)) as caught:
        next(stream)
    assert caught.value is error
    assert source.closed == 1
    assert events.outcomes() == ["cancelled"]


def test_r53_an_error_of_the_finalizer_is_the_callers(talk: Conversation, events: Events) -> None:
    error = LookupError("my finalizer")

    def finalizer() -> Any:
        raise error

    stream = open_stream(Source(words("a")), finalizer=finalizer)
    next(stream)
    with pytest.raises(LookupError) as caught:
        next(stream)
    assert caught.value is error
    assert events.outcomes() == ["failed"]


def test_r53_an_error_of_on_chunk_is_the_callers(talk: Conversation) -> None:
    error = LookupError("my callback")

    def on_chunk(_: Any) -> None:
        raise error

    stream = open_stream(Source(words("a")), on_chunk=on_chunk)
    with pytest.raises(LookupError) as caught:
        next(stream)
    assert caught.value is error


def test_r54_a_chunk_does_not_wait_for_the_next_one(talk: Conversation) -> None:
    produced: list[float] = []

    def slow(request: Any) -> Any:
        for part in words("a", "b", "c"):
            time.sleep(0.15)
            produced.append(time.perf_counter())
            yield part

    delays = []
    for _ in relay_llm.stream_current(body(), slow, **call("a")):
        delays.append(time.perf_counter() - produced[-1])
        assert len(produced) == len(delays)
    assert max(delays) < 0.1


def test_r54_holds_when_an_intercept_keeps_chunks_back(talk: Conversation, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [c] if text(c) in "bd" else []))
    assert [text(c) for c in open_stream(Source(words(*"abcdef")))] == ["b", "d"]


def test_r55_closing_is_bounded(talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_run, "CLOSE_TIMEOUT", 0.2)

    async def intercept(name: str, request: Any, context: Any, following: Any) -> Any:
        return await following(request)

    stream = open_stream(Source(words("a", "b")))
    next(stream)

    class Stuck:
        async def aclose(self) -> None:
            await asyncio.sleep(60)

    run = stream._run
    run._relay_stream = Stuck()
    started = time.perf_counter()
    stream.close()
    assert time.perf_counter() - started < 5
    assert events.outcomes() == ["cancelled"]


def test_r56_a_live_stream_holds_up_the_end_of_shutdown(talk: Conversation, events: Events) -> None:
    stream = open_stream(Source(words("a", "b")))
    next(stream)
    talk.host.shutdown()
    assert not talk.host.wait_closed(0.05)
    assert [text(c) for c in stream] == ["b"]
    assert talk.host.wait_closed(10)
    ends = [e["name"] for e in events.all() if e.get("scope_category") == "end"]
    assert ends.index("openai.chat_completions") < ends.index("relay.session")


def test_r57_a_dropped_stream_closes_itself(talk: Conversation, events: Events) -> None:
    source = Source(words("a", "b"))
    stream = open_stream(source)
    next(stream)
    del stream
    gc.collect()
    deadline = time.monotonic() + 10
    while (not source.closed or talk.host._operations) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert source.closed == 1
    assert events.outcomes() == ["cancelled"]


@pytest.mark.parametrize("managed", [True, False])
def test_r58_the_end_stays_the_end(talk: Conversation, managed: bool) -> None:
    if not managed:
        talk.host.release_managed_execution("tests")
    stream = open_stream(Source(words("a")))
    assert len(list(stream)) == 1
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(stream)


def test_r59_the_record_is_made_of_what_on_chunk_saw(talk: Conversation, events: Events, registered: Any) -> None:
    registered("llm_stream_execution", 1, rewriting(lambda c: [chunk(text(c).upper())]))
    shown: list[str] = []
    stream = open_stream(
        Source(words("a", "b")), on_chunk=lambda c: shown.append(text(c)), finalizer=lambda: {"text": "".join(shown)}
    )
    list(stream)
    assert events.attempts("end")[0]["data"] == {"text": "AB"}


def test_r59_without_a_finalizer_the_response_is_put_together(talk: Conversation, events: Events) -> None:
    list(open_stream(Source([*words("a", "b"), chunk("c", "stop")])))
    [choice] = events.attempts("end")[0]["data"]["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("abc", "stop")


def test_a_stream_may_be_closed_while_another_thread_reads_it(talk: Conversation, events: Events) -> None:
    reading, closed = threading.Event(), threading.Event()

    class Blocking(Source):
        def __next__(self) -> Any:
            reading.set()
            assert closed.wait(10)
            raise ConnectionError("closed under the reader")

        def close(self) -> None:
            super().close()
            closed.set()

    source = Blocking([])
    stream = open_stream(source)
    raised: list[BaseException] = []

    def read() -> None:
        try:
            next(stream)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(10)
    stream.close()
    thread.join(10)
    assert [type(e) for e in raised] == [ConnectionError]
    assert source.closed == 1
    assert events.outcomes() == ["cancelled"]


def test_two_streams_may_be_read_in_turns(talk: Conversation) -> None:
    first, second = open_stream(Source(words("a", "b")), "1"), open_stream(Source(words("c", "d")), "2")
    got = [text(c) for pair in zip(first, second, strict=True) for c in pair]
    assert got == ["a", "c", "b", "d"]


def test_a_stream_opened_in_one_thread_may_be_read_in_another(talk: Conversation) -> None:
    stream = open_stream(Source(words("a", "b")))
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.extend(text(c) for c in stream))
    thread.start()
    thread.join(10)
    assert got == ["a", "b"]


def test_a_synchronous_stream_may_be_read_on_a_thread_with_a_loop(talk: Conversation) -> None:
    stream = open_stream(Source(words("a", "b")))

    async def read() -> list[str]:
        return [text(c) for c in stream]

    assert asyncio.run(read()) == ["a", "b"]


def test_r35_chunks_relay_cannot_hold_are_delivered_as_they_are(talk: Conversation, events: Events) -> None:
    chunks = [{**chunk("a"), "odd": value} for value in (2**64, "\ud83d", float("inf"), b"\xff")]
    seen: list[Any] = []
    stream = open_stream(Source(chunks), on_chunk=seen.append)
    got = list(stream)
    assert [id(c) for c in got] == [id(c) for c in chunks]
    assert seen == chunks
    assert not stream.output_modified
    marks = events.marks("relay.chunks")
    assert sum(len(m["data"]["chunks"]) for m in marks) == 4
    for data in (m["data"] for m in marks):
        assert data["escaped"] == [f"/{i}/odd" for i in range(len(data["chunks"]))]


def test_the_content_of_chunks_is_recorded_under_the_attempt(talk: Conversation, events: Events) -> None:
    chunks = words(*(f"w{i}" for i in range(150)))
    list(open_stream(Source(chunks)))
    marks = events.marks("relay.chunks")
    assert [c for m in marks for c in m["data"]["chunks"]] == chunks
    assert [m["data"]["first"] for m in marks] == [
        sum(len(m["data"]["chunks"]) for m in marks[:i]) for i in range(len(marks))
    ]
    assert max(len(m["data"]["chunks"]) for m in marks) <= 64
    assert {m["parent_uuid"] for m in marks} == {events.attempts()[0]["uuid"]}


def test_chunks_are_shown_while_the_consumer_blocks(talk: Conversation, events: Events) -> None:
    stream = open_stream(Source(words("a", "b")))
    next(stream)
    time.sleep(0.3)
    assert [c for m in events.marks("relay.chunks") for c in m["data"]["chunks"]] == words("a")
    list(stream)
