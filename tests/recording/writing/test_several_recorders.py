"""Several processes that record into one database end in the rows that one of them would have made."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.recorder import Line
from tests.recording import streams
from tests.recording.test_any_order import any_stream, cut, differences, empty, record, snapshot

pytestmark = pytest.mark.django_db(transaction=True)


def record_in_turn(batches: list[list[bytes]], rng: random.Random, recorders: int) -> dict[str, Any]:
    """Each batch goes to one of several recorders, which all remember what they have seen."""
    empty()
    several = [RunRecorder(Tables(connection)) for _ in range(recorders)]
    for batch in batches:
        rng.choice(several).record([Line(text, 0) for text in batch])
        if rng.random() < 0.1:
            rng.choice(several).sweep(10**16, 1, 0)
    rng.choice(several).sweep(10**16, 1, 0)
    return snapshot()


@any_stream
@given(
    seed=st.integers(0, 10**9),
    order=st.randoms(use_true_random=False),
    recorders=st.integers(2, 3),
    kind=st.sampled_from([streams.Growing, streams.Tangled]),
)
def test_recorders_that_take_turns_lose_no_update(
    seed: int, order: random.Random, recorders: int, kind: type[streams.Growing]
) -> None:
    lines = [streams.line(event) for event in kind(random.Random(seed)).grow()]
    want = record([lines])
    again = lines + [text for text in lines if order.random() < 0.3]
    order.shuffle(again)
    assert not differences(want, record_in_turn(cut(again, order), order, recorders))


def test_every_changed_row_gets_a_new_number(record: Any) -> None:
    """A scope that hangs elsewhere once its parent has come was changed then, though no event of its own came."""
    from relayweb.recording.models import Scope

    turn, call, attempt = streams.uid(), streams.uid(), streams.uid()
    record(streams.scope("start", attempt, call, 3, name="openai.chat_completions", category="llm"))
    record(streams.scope("start", call, turn, 2, name="relay.logical_llm_call", category="function"))
    before = Scope.objects.get(uuid=attempt)
    record(streams.scope("start", turn, None, 1, name="relay.turn", category="function"))
    after = Scope.objects.get(uuid=attempt)
    assert str(before.turn_uuid) != turn and str(after.turn_uuid) == turn
    assert after.seq == record.recorder.newest > before.seq
