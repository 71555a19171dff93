"""What the hub reads: recorded events as frames, through the real writer and database."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from bench._agent import Agent, lines
from relayweb.live.hub import Hub, Topic
from relayweb.live.source import Source, turn_frame
from relayweb.recording.reading import queries
from relayweb.recording.writing.writer import Writer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def record() -> Any:
    writer = Writer()
    writer.start()
    yield lambda *events: writer.submit_sync(lines(list(events)), source="post")
    writer.close()


def rows(columns: dict[str, list[Any]], key: str = "uuid") -> dict[str, dict[str, Any]]:
    names = list(columns)
    return {row[names.index(key)]: dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)}


def test_a_turn_grows_frame_by_frame(record: Any) -> None:
    agent = Agent("s1")
    record(*agent.begin())
    source, turn = Source(), UUID(agent.turn)
    since = source.latest()
    attempt, events = agent.attempt()
    record(*events)
    changes = source.changes(since, {turn}, True)
    nodes = rows(json.loads(changes.frames[turn])["nodes"])
    assert nodes[attempt]["role"] == "attempt"
    assert nodes[attempt]["status"] == "running"
    assert nodes[nodes[attempt]["parent_uuid"]]["role"] == "logical_call"
    listed = json.loads(changes.frames[None])["turns"]["uuid"]
    assert agent.turn in listed and agent.session not in listed
    assert source.changes(changes.cursor, {turn}, True).frames == {}


def test_chunks_come_once_and_their_content_after_them(record: Any) -> None:
    agent = Agent("s2")
    attempt, events = agent.attempt()
    record(*agent.begin(), *events)
    source, turn = Source(), UUID(agent.turn)
    source.watch(turn)
    cursor = source.latest()
    seen: list[tuple[int, str | None, str]] = []
    for k in range(300):
        record(agent.chunk(attempt, k))
        if k % 10 == 9:
            record(agent.contents(attempt, k - 9, [f"w{n}" for n in range(k - 9, k + 1)]))
        changes = source.changes(cursor, {turn}, False)
        cursor = changes.cursor
        chunks = json.loads(changes.frames[turn])["chunks"]
        seen += zip(chunks["index"], chunks["text"], chunks["kind"], strict=True)
    marks = [index for index, text, _ in seen if text is None]
    said = [(index, text) for index, text, _ in seen if text is not None]
    # The mark of every tenth chunk and its content come in one pull: one row says both.
    assert sorted({*marks, *(index for index, _ in said)}) == list(range(300))
    assert len(marks) == len(set(marks))
    assert said == [(k, f"w{k}") for k in range(300)]
    assert {kind for _, text, kind in seen if text is not None} == {"t"}


def test_a_turn_that_nobody_watches_is_in_no_frame(record: Any) -> None:
    agent, other = Agent("s3"), Agent("s4")
    record(*agent.begin(), *other.begin())
    source = Source()
    since = source.latest()
    record(*other.attempt()[1])
    assert set(source.changes(since, {UUID(agent.turn)}, False).frames) == set()


def test_the_last_viewer_of_a_turn_may_leave_while_its_changes_are_read(
    record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaver, stayer = Agent("s6"), Agent("s7")
    record(*leaver.begin(), *stayer.begin())
    viewed = Hub(Source())
    gone, kept = (Topic(UUID(agent.turn), 0) for agent in (leaver, stayer))
    viewed.topics = {gone.key: gone, kept.key: kept}
    since = viewed.source.latest()
    record(*leaver.attempt()[1], *stayer.attempt()[1])
    read_rows = queries.read_rows

    def reading(*args: Any) -> Any:
        viewed.leave(gone, asyncio.Event())
        return read_rows(*args)

    monkeypatch.setattr(queries, "read_rows", reading)
    assert kept.key in viewed.source.changes(since, {gone.key, kept.key}, True).frames
    assert set(viewed.topics) == {kept.key}
    viewed.source.changes(since, {kept.key}, True)
    assert set(viewed.source._watches) == {kept.key}


def test_the_frame_of_the_page_and_a_snapshot_hold_the_same_nodes(record: Any) -> None:
    agent = Agent("s5")
    attempt, events = agent.attempt()
    record(*agent.begin(), *events, agent.chunk(attempt, 0))
    page = json.loads(turn_frame(UUID(agent.turn)))
    cursor, frame = Source().snapshot(UUID(agent.turn), 0)
    snapshot = json.loads(frame)
    assert page["nodes"] == snapshot["nodes"]
    assert (page["resync"], snapshot["resync"]) == (False, True)
    assert page["cursor"] == cursor
    assert page["turn"]["uuid"] == agent.turn


def test_an_attempt_without_a_logical_call_gets_one_above_it(record: Any) -> None:
    agent = Agent("s6")
    start = {"data": {"content": {"model": "m"}}, "metadata": {}}
    lone = "019b76da-0000-7000-8000-0000000000aa"
    record(*agent.begin(), agent.scope("start", lone, "openai", "llm", agent.turn, **start))
    nodes = rows(json.loads(turn_frame(UUID(agent.turn)))["nodes"])
    assert nodes[lone]["parent_uuid"] == f"call:{lone}"
    assert nodes[f"call:{lone}"]["parent_uuid"] == agent.turn
    assert nodes[f"call:{lone}"]["flags"] == ["synthetic"]
