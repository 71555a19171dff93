"""Chunk marks on disk: many small blocks while they come, one in the end."""

from __future__ import annotations

import pytest
from django.db import connection

from relayweb.recording.models import ChunkBlock
from relayweb.recording.recorder import Line, Recorder
from relayweb.recording.tables import Tables
from tests.recording import streams


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
