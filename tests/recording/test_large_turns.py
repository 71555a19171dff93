"""Turns of thousands of scopes: what one more scope costs does not grow with those that are there (cases B40, B59)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection

from relayweb.recording.reading import queries
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording import streams

pytestmark = pytest.mark.django_db(transaction=True)

SCOPES = 1_200


class Counting(Tables):
    """Counts the rows of scopes that are read."""

    rows = 0

    def _scope_out(self, row: Any) -> list[Any]:
        self.rows += 1
        return super()._scope_out(row)


def chain(parent: str) -> list[streams.Event]:
    """Each in the one before it, and each outlived by what came earlier."""
    events = []
    for i in range(SCOPES):
        uuid = streams.uid()
        events += [
            streams.scope("start", uuid, parent, 10 + i, name=f"s{i}"),
            streams.scope("end", uuid, parent, 100_000 - i, name=f"s{i}"),
        ]
        parent = uuid
    return events


def fan(parent: str) -> list[streams.Event]:
    events = []
    for i in range(SCOPES):
        uuid = streams.uid()
        events += [
            streams.scope("start", uuid, parent, 10 + i, name=f"s{i}", category="tool"),
            streams.scope("end", uuid, parent, 5_000 + i, name=f"s{i}", category="tool"),
        ]
    return events


def record(events: list[streams.Event]) -> int:
    """Rows of scopes that were read while the events were recorded, 250 a batch."""
    tables = Counting(connection)
    recorder = Recorder(tables)
    for at in range(0, len(events), 250):
        lines = [Line(streams.line(event), 0) for event in events[at : at + 250]]
        recorder.record(lines)
        assert not [line.error for line in lines if line.error]
    return tables.rows


@pytest.mark.parametrize("shape", [chain, fan])
@pytest.mark.parametrize("order", ["as it came", "reversed", "shuffled"])
def test_b40_b59_a_large_turn_whose_end_is_known_first_is_recorded_without_reading_it_again_and_again(shape, order):
    turn = streams.uid()
    around = [
        streams.scope("start", turn, None, 0, name="relay.turn"),
        streams.scope("end", turn, None, 1_000_000, name="relay.turn", data={"outcome": "success"}),
    ]
    inside = shape(turn)
    if order == "reversed":
        inside.reverse()
    elif order == "shuffled":
        random.Random(5).shuffle(inside)
    rows = record(around + inside)
    # Chains that come from their inner end must be hung anew when each outer part comes.
    assert rows < (30 if shape is chain else 4) * SCOPES
    nodes = queries.turn_nodes(turn)
    assert len(nodes) == SCOPES + 1
    assert max(node["depth"] for node in nodes) == (SCOPES if shape is chain else 1)
    assert {node["status"] for node in nodes} == {"ok"}
    assert not [node["name"] for node in nodes if node["flags"]]
