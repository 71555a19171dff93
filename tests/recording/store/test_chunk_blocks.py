"""Chunk marks on disk: many small blocks while they come, one in the end."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relayweb.recording.events.atof import parse
from relayweb.recording.models import ChunkBlock, Content, Event, Ledger, Scope
from relayweb.recording.reading import chunks
from relayweb.recording.store.chunk_marks import MarkReader
from relayweb.recording.store.content import Store
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording import streams
from tests.recording.recorded import Talk


@pytest.mark.django_db(transaction=True)
def test_blocks_are_joined_when_the_attempt_ends_also_in_a_later_batch_than_its_last_chunk() -> None:
    recorder = Recorder(Tables(connection))
    attempt = streams.uid()
    common = {"category": "llm", "name": "openai.chat_completions"}
    start = streams.scope("start", attempt, None, 0, data=streams.request(), **common)
    end = streams.scope("end", attempt, None, 99, data=streams.answer(), metadata=streams.OK, **common)
    for event in (start, *[streams.chunk(attempt, index, index) for index in range(5)]):
        recorder.record([Line(streams.line(event), 1)])
    assert ChunkBlock.objects.filter(sealed=False).count() == 5
    recorder.record([Line(streams.line(end), 1)])
    assert list(ChunkBlock.objects.values_list("sealed", "count")) == [(True, 5)]


def as_relay_writes(event: dict[str, Any], root: str) -> bytes:
    event = {**event, "propagation_root_uuid": root}
    return json.dumps(event, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


USAGES = st.fixed_dictionaries(
    {"completion_tokens": st.integers(0, 10**16), "prompt_tokens": st.integers(-1, 10**6)},
    optional={"cost": st.floats(0, 1), "note": st.sampled_from(["1,2", "[3]", "sk-abcdefghijk", "é"])},
)
SAID = st.fixed_dictionaries({}, optional={"usage": USAGES, "finish_reason": st.sampled_from(["stop", "length"])})


def recorded(lines: list[bytes]) -> tuple[list[str], dict[str, Any], list[bool]]:
    for table in (ChunkBlock, Scope, Event, Content, Ledger):
        table.objects.all().delete()
    chunks.forget()
    taken = [Line(line, 1) for line in lines]
    Recorder(Tables(connection)).record(taken)
    stored = [text.decode() for block in ChunkBlock.objects.order_by("id") for _, text in chunks.texts(block)]
    row = Scope.objects.values().get(role="attempt")
    return sorted(stored), row, [line.duplicate for line in taken]


@pytest.mark.django_db(transaction=True)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(SAID, min_size=1, max_size=12), repeated=st.integers(0, 11))
def test_a_mark_is_recorded_alike_whether_it_is_recognised_or_parsed(said: list[Any], repeated: int) -> None:
    attempt = streams.uid()
    start = streams.scope("start", attempt, None, 0, category="llm", data=streams.request())
    marks = [streams.chunk(attempt, index, index, **more) for index, more in enumerate(said)]
    lines = [as_relay_writes(event, attempt) for event in (start, *marks, marks[repeated % len(marks)])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarkReader, "quick", lambda reader, line: None)
        parsed = recorded(lines)
    assert recorded(lines) == parsed
    assert parsed[2] == [False] * (len(lines) - 1) + [True]


def test_marks_that_differ_in_numbers_only_are_recognised() -> None:
    reader, attempt = MarkReader(Store()), streams.uid()
    usage = {"completion_tokens": 3, "prompt_tokens": 4}
    first, second = (
        as_relay_writes(streams.chunk(attempt, index, index, usage={**usage, "total_tokens": index}), attempt)
        for index in (7, 8)
    )
    assert reader.quick(first) is None
    reader.learn(parse(first))
    mark = reader.quick(second)
    assert mark is not None and mark.numbers == (0, 8, 3, 4, 8)
    assert mark.said is not None and mark.said.usage.output_tokens == 3


@pytest.mark.django_db(transaction=True)
def test_a_mark_with_half_a_character_is_listed_once_at_its_index() -> None:
    attempt = streams.uid()
    start = streams.scope("start", attempt, None, 0, category="llm", data=streams.request())
    said = streams.line(streams.chunk(attempt, 2, 3, finish_reason="half")).replace(b'"half"', b'"\\ud83d"')
    content = streams.mark("relay.chunks", attempt, 4, {"first": 2, "chunks": [{"choices": []}]})
    lines = [Line(text, 1) for text in (streams.line(start), said, streams.line(content))]
    Recorder(Tables(connection)).record(lines)
    assert [index for index, _ in chunks.joined(UUID(attempt))] == [2]


@pytest.mark.django_db(transaction=True)
def test_a_mark_of_one_uuid_under_two_attempts_is_one_of_each() -> None:
    first, second = (streams.uid() for _ in range(2))
    starts = [streams.scope("start", uuid, None, 0, category="llm", data=streams.request()) for uuid in (first, second)]
    marks = [{**streams.chunk(uuid, 0, 3), "uuid": streams.uid(7)} for uuid in (first, second, first)]
    lines = [Line(streams.line(event), 1) for event in (*starts, *marks)]
    Recorder(Tables(connection)).record(lines)
    assert [line.duplicate for line in lines] == [False, False, False, False, True]
    found = Scope.objects.filter(uuid__in=[first, second]).values_list("chunk_count", "flags")
    assert list(found) == [(1, Scope.Flag.SYNTHETIC)] * 2


@pytest.mark.django_db(transaction=True)
def test_b19_what_an_error_in_a_stream_says_is_read_from_its_content_where_its_mark_tells_only_the_kind() -> None:
    talk = Talk()
    attempt = talk.attempt(talk.call(), metadata={"api_mode": "codex_responses"})
    error = {"code": "server_error", "message": "oops"}
    failed = {"type": "response.failed", "response": {"object": "response", "status": "failed", "error": error}}
    told = {"chunk_index": 0, "event_type": "response.failed", "provider": "openai_responses"}
    talk.add(streams.mark("llm.chunk", attempt, 30, told))
    talk.add(streams.mark("relay.chunks", attempt, 31, {"first": 0, "chunks": [failed]}))
    talk.record()
    found = chunks.page(attempt)
    assert found and found["chunks"][0]["error"] == {"type": "server_error", "status": None, "message": "oops"}
