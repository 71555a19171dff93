"""Turns of thousands of scopes: what one more scope costs does not grow with those that are there (cases B40, B59)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from relayweb.recording.events.atof import Parsed
from relayweb.recording.models import Scope, Unsettled
from relayweb.recording.projection.memory import Memory
from relayweb.recording.reading import queries
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.recorder import Line, Recorder
from relayweb.recording.writing.retelling import Settling
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


def steps(run: Callable[[], object]) -> int:
    """Thousands of SQLite's steps that this takes."""
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    connection.ensure_connection()
    connection.connection.set_progress_handler(counted, 1_000)
    try:
        run()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return count


class Reading(RunRecorder):
    """Counts how often the log is read."""

    reads = 0

    def _read(self, seqs: list[int]) -> list[tuple[Parsed, int]]:
        self.reads += bool(seqs)
        return super()._read(seqs)


def in_batches(events: list[streams.Event]) -> None:
    recorder = Settling(Tables(connection))
    for at in range(0, len(events), 500):
        recorder.record([Line(streams.line(event), 0) for event in events[at : at + 500]])


def test_a_parent_that_comes_after_all_its_children_reads_the_log_in_portions():
    turn, recorder = streams.uid(), Reading(Tables(connection))
    in_batches(fan(turn))
    recorder.record([Line(streams.line(streams.scope("start", turn, None, 0, name="relay.turn")), 0)])
    assert recorder.reads < SCOPES // 50
    assert {node["status"] for node in queries.turn_nodes(turn)[1:]} == {"ok"}


def session_of(scopes: int) -> tuple[list[streams.Event], streams.Event]:
    """A session of turns of 50 scopes each, and a start that contradicts what was told of its name."""
    session, events = streams.uid(), []
    told = {"name": "relay.session", "metadata": {"session_id": "told later"}}
    events.append(streams.scope("start", session, None, 5, **{**told, "metadata": {"session_id": "told first"}}))
    for number in range(scopes // 50):
        turn = streams.uid()
        events.append(streams.scope("start", turn, session, 10 + number, name="relay.turn"))
        events += fan(turn)[:100]
    return events, streams.scope("start", session, None, 1, **told)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="counts the steps of SQLite")
def test_telling_a_session_anew_costs_in_proportion_to_its_size(monkeypatch):
    monkeypatch.setattr(Memory.__init__, "__defaults__", (100,))  # sessions larger than what the writer remembers
    taken = []
    for scopes in (300, 1_800):
        events, contradiction = session_of(scopes)
        in_batches([*events, contradiction])
        assert Unsettled.objects.count()
        recorder = Reading(Tables(connection))
        taken.append(steps(recorder.clear_up))
        assert not Unsettled.objects.count()
        assert Scope.objects.get(uuid=contradiction["uuid"]).session_id == "told later"
    assert taken[1] < 11 * taken[0]
