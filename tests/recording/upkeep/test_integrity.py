"""Rows are what the events say; where they are not, `check` finds it and `check --repair` makes them so."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.conventions import pricing
from relayweb.recording.events import masking
from relayweb.recording.models import Content, Event, Ledger, Price, Scope
from relayweb.recording.reading import rhythm
from relayweb.recording.store import search_index
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing.recorder import Line, Recorder
from relayweb.recording.writing.writer import Writer
from tests.recording import streams
from tests.recording.recorded import Talk, record
from tests.recording.test_any_order import any_stream, cut, differences, snapshot
from tests.recording.test_any_order import record as record_batches

pytestmark = pytest.mark.django_db(transaction=True)


def problems() -> list[tuple[str, str]]:
    return list(integrity.problems())


@any_stream
@given(seed=st.integers(0, 10**9), order=st.randoms(use_true_random=False))
def test_events_told_again_from_the_log_come_to_the_same_rows(seed: int, order: random.Random) -> None:
    lines = [streams.line(event) for event in streams.Growing(random.Random(seed)).grow()]
    order.shuffle(lines)
    record_batches(cut(lines, order))
    assert not problems()


@pytest.fixture
def stream() -> dict[str, Any]:
    """A large stream on record with every kind of thing in it; returns the snapshot of it."""
    Price.objects.create(model="*", input=1, output=2)
    pricing.forget()
    lines = []
    for seed in range(25):
        lines += [streams.line(event) for event in streams.Growing(random.Random(seed)).grow()]
    found = record_batches([lines[at : at + 300] for at in range(0, len(lines), 300)])
    Ledger.objects.update(swept_us=0)
    return found


def execute(sql: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.rowcount


DAMAGE = {
    "a row is gone": "DELETE FROM recording_scope WHERE role = 'attempt' AND attempt = 1",
    "a turn is gone": "DELETE FROM recording_scope WHERE is_turn",
    "a sum is wrong": "UPDATE recording_scope SET attempts = attempts + 1, retries = 7 WHERE is_turn",
    "tokens are wrong": "UPDATE recording_scope SET input_tokens = 0 WHERE input_tokens IS NOT NULL",
    "a cost is wrong": "UPDATE recording_scope SET cost_pusd = 5 WHERE cost_pusd IS NOT NULL",
    "a status is wrong": "UPDATE recording_scope SET status = 'ok' WHERE status = 'failed'",
    "a time is wrong": "UPDATE recording_scope SET start_us = start_us + 1, last_us = last_us + 1",
    "it hangs elsewhere": "UPDATE recording_scope SET parent_uuid = uuid, turn_uuid = uuid, top = NOT top",
    "its end is forgotten": "UPDATE recording_scope SET end_seq = NULL, end_us = NULL, status = 'interrupted'",
    "what it was called": "UPDATE recording_scope SET name = 'x', model = 'y', session_id = 'z'",
    "a flag is wrong": "UPDATE recording_scope SET flags = 0",
    "the state is empty": "UPDATE recording_scope SET state = NULL WHERE is_home",
    "rewrites are gone": "DELETE FROM recording_rewrite",
    "a rewrite is wrong": "UPDATE recording_rewrite SET result = 'hit', position = 9",
    "a block says something else": "UPDATE recording_chunkblock SET count = 9, last_seq = first_seq + 1",
    "two are shown": "UPDATE recording_event SET flags = 0",
    "none is shown": "UPDATE recording_event SET flags = 1",
    "the counter is behind": "UPDATE recording_ledger SET seq = 3",
    "a number ahead of the counter": "UPDATE recording_scope SET seq = seq + 100000",
    "a logical call elsewhere": "UPDATE recording_scope SET logical_uuid = uuid WHERE logical_uuid IS NOT NULL",
    "what was asked": "UPDATE recording_scope SET asked = 'x' WHERE asked IS NOT NULL",
    "a rewrite elsewhere": "UPDATE recording_rewrite SET position = position + 7",
    "a length is wrong": "UPDATE recording_content SET size = size + 1",
    "a word index without a text": "DELETE FROM {index} = (SELECT max(doc) FROM recording_mention)",
    "a word index without an answer": "DELETE FROM {index} = (SELECT min(doc) FROM recording_mention)",
    "a text nobody said": "DELETE FROM recording_mention WHERE doc = (SELECT max(doc) FROM recording_mention)",
    "an answer that is not there": "UPDATE recording_mention SET doc = doc - 90000 WHERE doc < 0",
    "figures of a stream": "UPDATE recording_stream SET stalls = stalls + 5, longest_us = 7",
    "figures of no stream": "UPDATE recording_stream SET attempt_uuid ="
    " (SELECT uuid FROM recording_scope WHERE role = 'turn' LIMIT 1)"
    " WHERE seq = (SELECT max(seq) FROM recording_stream)",
}


@pytest.mark.parametrize("sql", DAMAGE.values(), ids=list(DAMAGE))
def test_damage_of_any_row_is_found_and_repaired(stream: dict[str, Any], sql: str) -> None:
    index = "recording_search WHERE rowid" if connection.vendor == "postgresql" else "recording_search_docsize WHERE id"
    while search_index.catch_up() or rhythm.catch_up():
        pass
    assert not problems()
    exported = call("export")
    assert execute(sql.format(index=index)), "nothing was damaged"
    assert problems()
    with pytest.raises(CommandError, match="check --repair"):
        call("check")
    assert "made" in call("check", "--repair")
    assert not problems()
    assert not differences(stream, snapshot())
    assert call("export") == exported
    while search_index.catch_up() or rhythm.catch_up():
        pass
    assert not problems()


def call(*command: str) -> str:
    out = io.TextIOWrapper(io.BytesIO())
    call_command(*command, stdout=out, stderr=io.StringIO())
    out.flush()
    return out.buffer.getvalue().decode()


def test_what_was_recorded_when_fewer_secrets_were_known_is_whole(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"note": "nvapi-0123456789abcdef", "fill": "x" * 3_000, "password": "p"}
    with monkeypatch.context() as older:
        older.setattr(masking, "suspects_names", lambda text: False)
        older.setattr(masking.Prefilter, "suspects", lambda self, text: False)
        record(streams.scope("start", streams.uid(), None, 1, data={"message": told}, metadata={"error": told}))
    assert Event.objects.get().flags == 0
    assert not problems()


LOST = {
    "a content is gone": "DELETE FROM recording_content WHERE id = (SELECT max(id) FROM recording_content)",
    "a content is another": "UPDATE recording_content SET body = (SELECT body FROM recording_content WHERE id = 1)"
    " WHERE id = (SELECT max(id) FROM recording_content)",
    "a torn content": "UPDATE recording_content SET body = substr(body, 1, length(body) / 2)",
    "a torn event": "UPDATE recording_event SET body = substr(body, 1, length(body) / 2) WHERE seq = {seq}",
    "an event is another": "UPDATE recording_event SET body = (SELECT body FROM recording_event ORDER BY seq LIMIT 1)"
    " WHERE seq = {seq}",
    "an event of another time": "UPDATE recording_event SET at_ns = at_ns + 1 WHERE seq = {seq}",
    "an event of another kind": "UPDATE recording_event SET kind = 2 WHERE seq = {seq}",
    "a mark of nothing": "UPDATE recording_event SET mark_of = uuid WHERE mark_of IS NOT NULL",
    "a torn block": "UPDATE recording_chunkblock SET body = substr(body, 1, length(body) / 2)",
    "a block of another kind": "UPDATE recording_chunkblock SET kind = 1 - kind",
}


@pytest.mark.parametrize("sql", LOST.values(), ids=list(LOST))
def test_what_is_lost_of_the_log_is_found_and_what_remains_is_not_touched(stream: dict[str, Any], sql: str) -> None:
    talk = Talk()
    attempt = talk.attempt(talk.call(), asks="a long question " * 300)
    talk.add(streams.mark("relay.chunks", attempt, 60, {"first": 0, "chunks": [{"choices": []}]}))
    talk.record()
    assert not problems()
    seq = Event.objects.filter(kind=Event.Kind.END).values_list("seq", flat=True).last()
    assert execute(sql.format(seq=seq)), "nothing was damaged"
    assert {kind for kind, _ in problems()} & integrity.LOG
    with pytest.raises(CommandError, match="restore"):
        call("check", "--repair")


@pytest.mark.parametrize("under", ["attempt", "tool"])
@pytest.mark.parametrize("name", ["relay.chunks", "llm.chunk"])
def test_a_block_of_chunks_that_is_gone_whole_is_missed(name: str, under: str) -> None:
    talk = Talk()
    scope = talk.attempt(talk.call()) if under == "attempt" else talk.tool("bash")
    for index in range(2):
        data = {"first": index, "chunks": [{"choices": []}]} if name == "relay.chunks" else {"chunk_index": index}
        talk.add(streams.mark(name, scope, 60, data))
        talk.record()
    assert not problems()
    assert execute("DELETE FROM recording_chunkblock WHERE id = (SELECT min(id) FROM recording_chunkblock)") == 1
    assert [kind for kind, _ in problems()][0] == "a scope is not what its events say"
    call("check", "--repair")
    assert not problems()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="FTS5 is SQLite's")
def test_a_word_index_that_cannot_be_read_is_made_anew(stream: dict[str, Any]) -> None:
    while search_index.catch_up():
        pass
    execute("UPDATE recording_search_data SET block = substr(block, 1, length(block) / 2) WHERE id > 10")
    assert [kind for kind, _ in problems()] == ["the word index is damaged"]
    integrity.mend()
    while search_index.catch_up():
        pass
    assert not problems()


def test_rows_without_an_event_go(stream: dict[str, Any]) -> None:
    columns = ", ".join(f.column for f in Scope._meta.fields if f.column != "uuid")
    new = "gen_random_uuid()" if connection.vendor == "postgresql" else "randomblob(16)"
    execute(f"INSERT INTO recording_scope (uuid, {columns}) SELECT {new}, {columns} FROM recording_scope LIMIT 3")
    assert {kind for kind, _ in problems()} >= {"a scope that no event tells"}
    assert integrity.mend().rows >= 3
    assert not problems() and not differences(stream, snapshot())


def test_contents_that_nothing_refers_to_go(stream: dict[str, Any]) -> None:
    before, newest = Content.objects.count(), Ledger.objects.get().seq
    text = streams.request("words that nobody else says " * 90)
    event = streams.scope("start", streams.uid(), None, 1, name="openai.chat_completions", category="llm", data=text)
    Recorder(Tables(connection)).record([Line(streams.line(event), 0)])
    execute(f"DELETE FROM recording_event WHERE seq > {newest}")
    assert Content.objects.count() > before
    assert integrity.mend().contents >= 1
    assert Content.objects.count() == before
    assert not problems() and not differences(stream, snapshot())


def test_what_the_log_lost_is_named_and_nothing_is_touched(stream: dict[str, Any]) -> None:
    seq = Event.objects.filter(kind=Event.Kind.END).values_list("seq", flat=True)[0]
    execute(f"UPDATE recording_event SET digest = body WHERE seq = {seq}")
    execute("UPDATE recording_scope SET name = 'x'")
    with pytest.raises(CommandError, match="restore"):
        call("check", "--repair")
    assert set(Scope.objects.values_list("name", flat=True)) == {"x"}


def test_costs_of_an_earlier_price_table_and_interruptions_stay(stream: dict[str, Any]) -> None:
    execute("UPDATE recording_scope SET price_version = 'old' WHERE role = 'attempt' AND cost_pusd IS NOT NULL")
    assert Scope.objects.filter(status="interrupted").exists()
    assert not problems()
    execute("UPDATE recording_scope SET name = 'x'")
    integrity.mend()
    assert Scope.objects.filter(price_version="old").exists() and Scope.objects.filter(status="interrupted").exists()
    assert not problems()


def test_recording_goes_on_where_it_was_after_a_repair(recording: Writer) -> None:
    events = [streams.line(event) for event in streams.Growing(random.Random(5)).grow(6)]
    half = len(events) // 2
    recording.submit_sync(b"\n".join(events[:half]))
    execute("UPDATE recording_scope SET name = 'x', flags = 0, turn_uuid = uuid, state = NULL")
    integrity.mend()
    assert recording.submit_sync(b"\n".join(events[half:])).accepted
    assert not problems()


def test_viewers_and_other_writers_learn_of_a_repair(stream: dict[str, Any]) -> None:
    before = Ledger.objects.get()
    changed = Scope.objects.filter(role="tool").update(name="x")
    assert changed
    integrity.mend()
    after = Ledger.objects.get()
    assert after.epoch > before.epoch and after.seq > before.seq
    assert set(Scope.objects.filter(role="tool").values_list("seq", flat=True)) == {after.seq}
    assert Recorder(Tables(connection)).record([]) == after.seq


def test_whatever_lossless_tests_record_is_whole(record: Any) -> None:
    odd = [
        streams.line(
            streams.scope("start", streams.uid(), None, 1, data=value, metadata={"authorization": "Bearer xyz"})
        )
        for value in (
            10**30,
            {"a": "\0"},
            ["\u2028", {"deep": [[[]]]}],
            "x" * 5_000,
            {"api_key": "sk-12345678901234567890"},
        )
    ]
    odd += [odd[0].replace(b"null", b'"\\ud800"', 1), odd[1].replace(b"null", b"NaN", 1), odd[2][:-1] + b',"x":"\xff"}']
    assert not [line.error for line in record(*odd) if line.error]
    assert not problems()


def test_what_is_recorded_while_a_check_runs_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    record(streams.scope("start", streams.uid(), None, 0))
    monkeypatch.setattr(integrity, "SCAN", 1)
    monkeypatch.setattr(integrity, "_database", lambda _: iter(()))
    came, read = [], integrity.Reader.texts

    def texts(self: integrity.Reader, rows: Any) -> Any:
        if len(came) < 5:
            came.append(record(streams.scope("start", streams.uid(), None, 1)))
        return read(self, rows)

    monkeypatch.setattr(integrity.Reader, "texts", texts)
    assert not list(integrity.problems())
    assert len(came) == 5
