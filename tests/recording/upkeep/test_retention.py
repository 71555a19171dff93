"""Forgetting old turns, and finding what is broken."""

from __future__ import annotations

import io
import json
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from relayweb.recording.models import ChunkBlock, Content, Event, Rewrite, Scope, Turn
from relayweb.recording.store import search_index
from relayweb.recording.upkeep import integrity, retention
from relayweb.recording.writing.recorder import Line
from tests.recording import streams
from tests.recording.streams import OK, answer, at, chunk, mark, request, scope, uid
from tests.recording.test_lossless import values

Record = Callable[..., list[Line]]
LONG = "shared by all turns " * 60


@pytest.fixture(autouse=True)
def _nothing_indexed(transactional_db: None) -> None:
    """The full-text index is no model, so what tests before left there is not flushed with the rest."""
    search_index.clear()


def turn(record: Record, ms: float, session: str | None = None, text: str = "own") -> tuple[str, str]:
    """A finished turn with a streamed call; returns session and turn."""
    session, turn, call = session or uid(), uid(), uid()
    common: Any = {"category": "llm", "name": "openai.chat_completions"}
    data = request(f"{text} {ms} " * 40)
    data["content"]["messages"].insert(0, {"role": "system", "content": LONG})
    record(
        scope("start", session, None, ms, name="relay.session", category="agent"),
        scope("start", turn, session, ms, name="relay.turn"),
        scope("start", call, turn, ms, data=data, **common),
        chunk(call, 0, ms + 1),
        mark("relay.rewrite", call, ms + 1, {"key": "k", "result": "hit", "mode": "enforce"}),
        scope("end", call, turn, ms + 2, data=answer(text), metadata=OK, **common),
        scope("end", turn, session, ms + 3, name="relay.turn", data={"outcome": "success"}),
        scope("end", session, None, ms + 4, name="relay.session", category="agent"),
    )
    return session, turn


def whole() -> None:
    assert list(integrity.problems()) == []


def us(ms: float) -> int:
    return int(at(ms, "us"))


def test_old_turns_go_with_all_that_is_theirs_and_shared_content_stays(record: Record) -> None:
    turn(record, 0)
    _, kept = turn(record, 10_000)
    before = Content.objects.count()
    done = retention.older_than(us(5_000))
    assert (done.turns, [str(t.uuid) for t in Turn.objects.all()]) == (2, [kept])  # a turn, and its session
    assert (Event.objects.count(), ChunkBlock.objects.count(), Rewrite.objects.count()) == (7, 1, 1)
    assert 0 < Content.objects.count() < before
    assert LONG in json.dumps(values())
    whole()


def test_a_session_goes_with_its_last_turn_only(record: Record) -> None:
    session, _ = turn(record, 0)
    turn(record, 10_000, session)
    retention.older_than(us(5_000))
    assert Scope.objects.filter(uuid=session).exists() and Turn.objects.count() == 1
    retention.older_than(us(50_000))
    assert not Scope.objects.exists() and not Event.objects.exists() and not Content.objects.exists()


def test_running_turns_stay_and_stray_marks_go(record: Record) -> None:
    record(scope("start", uid(), None, 0, name="relay.turn"), mark("note", uid(), 1), mark("note", None, 2))
    done = retention.older_than(us(5_000))
    assert (done.turns, done.events, Event.objects.count()) == (0, 2, 1)


def test_recording_goes_on_after_a_prune_although_it_remembered_what_has_gone(record: Record) -> None:
    session, _ = turn(record, 0)
    retention.older_than(us(5_000))
    turn(record, 10_000, session)
    whole()
    assert Turn.objects.count() == 1 and LONG in json.dumps(values())


@pytest.mark.parametrize("whole_again", [True, False])
@pytest.mark.parametrize("before", range(4))
def test_what_comes_again_while_contents_go_is_kept_with_all_inside_it(
    record: Record, monkeypatch: pytest.MonkeyPatch, whole_again: bool, before: int
) -> None:
    """A message that goes is sent again meanwhile, or a new one that holds the same large text."""
    inner = [{"type": "text", "text": f"{part} " * 400} for part in ("one", "two")]
    call: Any = {"category": "llm", "name": "openai.chat_completions"}

    def say(ms: float, said: str) -> str:
        data = request("x")
        data["content"]["messages"] = [{"role": "user", "content": inner, "name": said}]
        record(scope("start", turn := uid(), None, ms, data=data, **call), scope("end", turn, None, ms + 1, **call))
        return turn

    monkeypatch.setattr(retention, "SCAN", 1)
    retention.matching([UUID(say(0, "first"))], lambda _: None)
    assert not Content.objects.exists()
    said: list[str] = []
    slices = 0

    def report(_: retention.Pruned) -> None:
        nonlocal slices
        if slices == before and not said:
            said.append(say(10_000, "first" if whole_again else "second"))
        slices += 1

    say(0, "first")
    Scope.objects.all().delete()
    Event.objects.all().delete()
    retention.collect_garbage(report=report)
    whole()
    if said:
        assert [inner[0]["text"] in text for text in map(json.dumps, values())] == [True, False]


def test_beside_a_busy_agent_shrinking_the_record_has_an_end(record: Record) -> None:
    turn(record, 0)
    came: list[str] = []

    def report(_: retention.Pruned) -> None:
        assert len(came) < 10, "it forgets what comes meanwhile, for ever"
        came.append(turn(record, 10_000 * (len(came) + 1))[1])

    done = retention.down_to(1, report)
    assert (done.turns, [str(row.uuid) for row in Turn.objects.all()]) == (1, came)
    whole()


def test_the_oldest_turns_go_until_the_record_is_small_enough(record: Record) -> None:
    for i in range(60):
        turn(record, i * 100, text=f"{i} " * 300)
    limit = retention.used_bytes() - 1
    done = retention.down_to(limit)
    assert 0 < done.turns <= 60
    if connection.vendor == "sqlite" and Turn.objects.exists():
        assert retention.used_bytes() <= limit
    whole()


def test_the_command_prunes_by_query_and_says_what_has_gone(record: Record) -> None:
    turn(record, 0)
    turn(record, 10)
    out = io.StringIO()
    call_command("prune", query="status:ok", quiet=True, stdout=out)
    assert not Turn.objects.exists() and "forgot 2 turns" in out.getvalue()


@pytest.mark.parametrize(("option", "told"), [("older_than", "30d"), ("max_size", "2GB"), ("query", "foo")])
def test_the_command_says_how_to_write_what_it_cannot_read(record: Record, option: str, told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("prune", **{option: "foo:bar"}, quiet=True)


def file_size() -> int:
    call_command("prune", quiet=True, stdout=io.StringIO())  # what is in the log beside it, too
    return Path(connection.settings_dict["NAME"]).stat().st_size


@pytest.mark.skipif(connection.vendor != "sqlite", reason="looks at the file of SQLite")
def test_room_goes_back_to_the_disk_while_others_record(record: Record) -> None:
    for i in range(20):
        turn(record, i * 100, text="".join(random.Random(i).choices("abcdefghij ", k=100_000)))
    out, waits = io.StringIO(), []
    pruning = threading.Thread(target=lambda: (call_command("prune", query="", stdout=out), connections.close_all()))
    pruning.start()
    while pruning.is_alive():
        began = time.monotonic()
        turn(record, 100_000)
        waits.append(time.monotonic() - began)
    pruning.join()
    given = re.search(r"gave ([\d.]+) MB back to the disk", out.getvalue())
    assert given and float(given[1]) > 0  # others took some of it meanwhile
    assert file_size() and not free_pages()
    assert waits and max(waits) < 5
    whole()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="looks at the file of SQLite")
def test_a_file_of_before_shrinks_when_it_is_told_to(record: Record) -> None:
    def prune(**options: Any) -> str:
        out = io.StringIO()
        call_command("prune", quiet=True, stdout=out, **options)
        return out.getvalue()

    execute("PRAGMA auto_vacuum=NONE")
    execute("VACUUM")
    for i in range(20):
        turn(record, i * 100, text="".join(random.Random(i).choices("abcdefghij ", k=100_000)))
    assert "--vacuum" in prune(query="")
    before, free = pragma("page_count"), free_pages()  # a part of them may still stand in the log beside the file
    assert free > 10
    prune(vacuum=True)
    assert pragma("page_count") <= before - free * 0.9 and not free_pages()
    assert file_size() == pragma("page_count") * pragma("page_size")
    turn(record, 0)
    assert "--vacuum" not in prune(query="")
    whole()


def free_pages() -> int:
    return pragma("freelist_count")


def pragma(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        return int(cursor.fetchone()[0])


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def broken(sql: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
    return [kind for kind, _ in integrity.problems()]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM recording_content WHERE kind = 1", "an event cannot be read"),
        ("UPDATE recording_content SET body = 'x' WHERE kind = 0", "a content cannot be read"),
        ("DELETE FROM recording_content WHERE kind = 2", "a chunk block refers to a content that is not there"),
        ("UPDATE recording_event SET at_ns = at_ns + 1", "an event is not what its digest says"),
        ("UPDATE recording_event SET seq = seq + 1000", "an event has a number that was never given"),
        ("UPDATE recording_chunkblock SET count = 9", "a chunk block is not what its row says"),
        ("DELETE FROM recording_scope WHERE role = 'attempt'", "an event has no scope that shows it"),
        ("DELETE FROM recording_event WHERE kind = 1", "a scope is not what its events say"),
        ("UPDATE recording_scope SET attempts = 5 WHERE role = 'turn'", "a scope is not what its events say"),
    ],
)
def test_damage_is_found_and_named(record: Record, sql: str, told: str) -> None:
    turn(record, 0, text="large " * 200)
    whole()
    if connection.vendor == "postgresql":
        sql = sql.replace("'x'", "'x'::bytea")
    assert told in broken(sql)


def test_check_runs_djangos_checks_and_says_what_it_looked_at(record: Record) -> None:
    turn(record, 0)
    out = io.StringIO()
    call_command("check", stdout=out)
    assert "no issues" in out.getvalue() and "the record is whole" in out.getvalue()
    broken("UPDATE recording_chunkblock SET count = 9")
    with pytest.raises(CommandError, match="1 problem"):
        call_command("check", stdout=out, stderr=io.StringIO())
    assert streams.T0


def test_the_word_index_takes_in_nothing_that_is_forgotten_while_it_reads(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn(record, 0, text="old")
    turn(record, 10_000, text="young")
    rows, forgotten = search_index._rows, []

    def meanwhile(*args: Any) -> Any:
        if not forgotten:
            forgotten.append(retention.older_than(us(5_000)).turns)
        return rows(*args)

    monkeypatch.setattr(search_index, "_rows", meanwhile)
    while search_index.catch_up():
        pass
    assert forgotten == [2]  # a session and its turn
    whole()


def test_a_session_goes_with_its_last_turn_whatever_chose_it(record: Record) -> None:
    session, old = turn(record, 0)
    _, young = turn(record, 10_000, session)
    open_ = uid()
    record(scope("start", open_, None, 20_000, name="relay.session", category="agent"))
    _, inside = turn(record, 30_000, open_)
    retention.matching([UUID(old)])
    assert Scope.objects.filter(uuid=session).exists()
    assert retention.matching([UUID(young)]).turns == 1
    assert not Scope.objects.filter(uuid=session).exists()
    retention.matching([UUID(inside)])
    assert not Turn.objects.exists()
    whole()


def test_sessions_go_with_their_turns_until_the_record_is_small_enough(record: Record) -> None:
    for i in range(60):
        turn(record, i * 100)
    assert retention.down_to(1).turns == 60
    assert not Scope.objects.exists() and not Event.objects.exists()
    whole()


def test_of_two_scopes_of_one_session_the_one_with_a_turn_stays(record: Record) -> None:
    named = {"session_id": "same"}
    first, second, turns = uid(), uid(), [uid(), uid()]
    for session, one in zip((first, second), turns, strict=True):
        record(
            scope("start", session, None, 0, name="relay.session", category="agent", metadata=named),
            scope("start", one, session, 1, name="relay.turn", metadata=named),
            scope("end", one, session, 2, name="relay.turn", data={"outcome": "success"}, metadata=named),
            scope("end", session, None, 3, name="relay.session", category="agent", metadata=named),
        )
    retention.matching([UUID(turns[1])])
    assert list(map(str, Scope.objects.values_list("uuid", flat=True))) == [first, turns[0]]
    whole()
    retention.matching([UUID(turns[0])])
    assert not Scope.objects.exists()
    whole()
