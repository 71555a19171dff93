from __future__ import annotations

import pytest
from django.db import connection

from bench._agent import lines
from relayweb.recording.store.recent import Recent, named
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.recorder import Line
from tests.scale.sending import turn


def test_what_was_not_asked_for_longest_goes_first():
    recent: Recent[int, str] = Recent(4)
    for key in range(10):
        recent.put(key, str(key))
        assert recent.get(0) == "0"
        recent.trim()
    assert len(recent) <= 4 and recent.get(9) == "9" and recent.get(1) is None


def test_a_memory_is_told_by_its_name_as_long_as_it_lasts():
    lasting: Recent[int, int] = Recent(10, "lasting")
    passing: Recent[int, int] = Recent(20, "lasting")
    assert named["lasting"] is lasting
    del lasting, passing
    assert "lasting" not in named


@pytest.mark.django_db(transaction=True)
def test_nothing_that_the_recorder_remembers_grows_with_the_record():
    recorder = RunRecorder(Tables(connection))
    holders = (recorder, recorder.store, recorder.chunks)
    found = [(holder, name) for holder in holders for name, value in vars(holder).items() if isinstance(value, Recent)]
    for holder, name in found:
        setattr(holder, name, Recent(20))
    for number in range(60):
        recorder.record(
            [Line(event, 0) for event in lines(turn(f"a session of many words, number {number}")).split(b"\n")]
        )
    sizes = {name: len(getattr(holder, name)) for holder, name in found}
    assert len(sizes) == 4 and all(0 < size <= 40 for size in sizes.values()), sizes
