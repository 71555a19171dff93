"""The writer: what it promises to senders, to the agent it watches, and when the database refuses."""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from relayweb.recording.models import Event, Ledger, Scope, Unsettled
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing import retelling
from relayweb.recording.writing import writer as writer_module
from relayweb.recording.writing.retelling import Retelling
from relayweb.recording.writing.submissions import Full, Receipt
from relayweb.recording.writing.writer import Writer
from tests.recording import streams

sqlite_only = pytest.mark.skipif(bool(os.environ.get("DATABASE_URL")), reason="about the file of SQLite")


def ndjson(*events: streams.Event) -> bytes:
    return b"\n".join(map(streams.line, events)) + b"\n"


def wait_for(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


async def test_a_receipt_comes_after_the_commit_and_counts_lines(recording: Writer) -> None:
    event = streams.scope("start", streams.uid(), None, 1)
    body = b"\n" + streams.line(event) + b"\r\n\nnot json\n" + streams.line(event) + b"\n" + b'{"kind":"mark"}'
    receipt = await recording.submit(body)
    assert (receipt.accepted, receipt.duplicates, [r.line for r in receipt.rejected]) == (1, 1, [4, 6])
    assert "JSON" in receipt.rejected[0].error and "uuid" in receipt.rejected[1].error
    assert recording.counters()["events"] == 1


async def test_one_event_may_be_spread_over_several_lines(recording: Writer) -> None:
    body = json.dumps(streams.mark("note", None, 1), indent=2).encode()
    assert await recording.submit(body) == Receipt(accepted=1)


async def test_nothing_but_blank_lines_is_no_trouble(recording: Writer) -> None:
    assert await recording.submit(b"\n\n  \n") == Receipt() and await recording.submit(b"") == Receipt()


def test_what_is_offered_is_recorded_without_waiting(recording: Writer) -> None:
    for index in range(50):
        recording.offer(json.dumps(streams.mark("note", None, index)))
    assert recording.flush_sync()
    assert Event.objects.count() == 50 and recording.counters()["dropped"] == 0


def test_subscribers_are_told_the_newest_number_after_the_commit(recording: Writer) -> None:
    told: list[tuple[int, int]] = []
    stop = recording.subscribe(lambda seq: told.append((seq, Event.objects.count())))
    recording.submit_sync(ndjson(streams.mark("a", None, 1), streams.mark("b", None, 2)))
    stop()
    recording.submit_sync(ndjson(streams.mark("c", None, 3)))
    assert told == [(2, 2)] and recording.counters()["seq"] == 3


def test_a_full_lane_of_the_process_counts_what_it_drops_and_never_raises(
    recording: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LANE_BYTES", 0)
    recording.offer(b"x")
    recording.offer(None)  # type: ignore[arg-type]
    assert recording.counters()["dropped"] == 2
    assert "2 events" in recording.state()["reason"]


async def test_a_full_door_is_held_open_then_sent_away(recording: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "HOLD", 0.1)
    monkeypatch.setattr(recording, "_is_full", lambda size: True)
    with pytest.raises(Full) as told:
        await recording.submit(ndjson(streams.mark("a", None, 1)))
    assert told.value.retry_after >= 1 and recording.counters()["refused"] == 1


def test_doors_do_not_crowd_out_the_process_nor_the_other_way_round(recording: Writer) -> None:
    threads = [
        threading.Thread(
            target=recording.submit_sync, args=(ndjson(*[streams.mark("d", None, i) for i in range(2_000)]),)
        ),
        threading.Thread(
            target=lambda: [recording.offer(streams.line(streams.mark("o", None, i))) for i in range(2_000)]
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert recording.flush_sync(60) and Event.objects.count() == 4_000


def test_an_event_that_cannot_be_recorded_is_rejected_alone(recording: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    from relayweb.recording.writing.recorder import Recorder

    record = Recorder._take

    def poisoned(self: Recorder, event: Any, packed: Any, line: Any) -> None:
        if b"poison" in line.text:
            raise KeyError("poison")
        record(self, event, packed, line)

    monkeypatch.setattr(Recorder, "_take", poisoned)
    events = [streams.mark("poison" if i == 7 else "fine", None, i) for i in range(40)]
    receipt = recording.submit_sync(ndjson(*events))
    assert receipt.accepted == 39 and [r.line for r in receipt.rejected] == [8]
    assert "KeyError" in receipt.rejected[0].error and Event.objects.count() == 39


@sqlite_only
def test_a_locked_database_is_told_and_recovered_from(recording: Writer) -> None:
    recording.submit_sync(ndjson(streams.mark("before", None, 1)))
    other = sqlite3.connect(django_settings.DATABASES["default"]["TEST"]["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recording.offer(streams.line(streams.mark("during", None, 2)))
    wait_for(lambda: recording.state()["status"] == "degraded")
    assert "locked" in recording.state()["reason"]
    other.execute("ROLLBACK")
    other.close()
    assert recording.flush_sync()
    assert recording.state()["status"] == "ok" and Event.objects.count() == 2


@pytest.mark.parametrize("message", ["database or disk is full", "attempt to write a readonly database"])
def test_a_database_that_takes_nothing_sends_senders_away_and_loses_nothing_that_was_offered(
    recording: Writer, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    from relayweb.recording.store.tables import Tables

    put, refusing = Tables.put_events, threading.Event()

    def refuse(self: Tables, rows: Any) -> None:
        if refusing.is_set():
            raise sqlite3.OperationalError(message)
        put(self, rows)

    monkeypatch.setattr(Tables, "put_events", refuse)
    monkeypatch.setattr(writer_module, "GIVE_UP", 0.2)
    refusing.set()
    sent = ndjson(streams.mark("sent", None, 2))
    recording.offer(streams.line(streams.mark("offered", None, 1)))
    wait_for(lambda: recording.state()["status"] == "degraded")
    with pytest.raises(Full, match=message.split()[-1]):
        recording.submit_sync(sent)
    assert message in recording.state()["reason"]
    refusing.clear()
    assert recording.flush_sync()
    assert recording.state()["status"] == "ok"
    recording.submit_sync(sent)
    assert Event.objects.count() == 2


def test_a_database_that_takes_nothing_is_tried_with_a_few_events_and_then_gets_all(
    recording: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relayweb.recording.writing.recorder import Line, Recorder

    record, tried = Recorder.record, list[int]()

    def refuse(self: Recorder, lines: list[Line]) -> int:
        tried.append(len(lines))
        if len(tried) < 4:
            raise sqlite3.OperationalError("database or disk is full")
        return record(self, lines)

    monkeypatch.setattr(Recorder, "record", refuse)
    sent = [streams.mark("one", None, at) for at in range(300)]
    assert recording.submit_sync(ndjson(*sent)) == Receipt(accepted=300)
    assert tried == [300, 8, 8, 8, 292]
    assert Event.objects.count() == 300 and recording.counters()["events"] == 300


def test_a_sender_whose_events_are_in_hand_is_sent_away_too(recording: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    from relayweb.recording.store.tables import Tables

    put, refusing = Tables.put_events, threading.Event()

    def refuse(self: Tables, rows: Any) -> None:
        if refusing.is_set():
            raise sqlite3.OperationalError("database is locked")
        put(self, rows)

    monkeypatch.setattr(Tables, "put_events", refuse)
    monkeypatch.setattr(writer_module, "GIVE_UP", 0.2)
    refusing.set()
    sent = ndjson(streams.mark("sent", None, 1))
    begun = time.monotonic()
    with pytest.raises(Full):
        recording.submit_sync(sent)
    assert time.monotonic() - begun < 5
    refusing.clear()
    assert recording.flush_sync()
    wait_for(lambda: recording.counters()["queued_bytes"] == 0)
    assert recording.submit_sync(sent).duplicates == 1
    assert Event.objects.count() == 1


def test_what_comes_from_a_file_is_interrupted_when_the_file_ends(recording: Writer) -> None:
    recording.submit_sync(ndjson(streams.scope("start", streams.uid(), None, 1)), source="file")
    recording.close()
    assert Scope.objects.get().status == "interrupted"


def test_two_writers_of_one_database_agree(recording: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Writer()
    turn, calls = streams.uid(), [streams.uid() for _ in range(6)]
    recording.submit_sync(ndjson(streams.scope("start", turn, None, 0, name="relay.turn")))
    for i, call in enumerate(calls):
        one = (recording, other)[i % 2]
        common: Any = {"category": "llm", "name": "custom"}
        one.submit_sync(ndjson(streams.scope("start", call, turn, i, data=streams.request(), **common)))
        one.submit_sync(ndjson(*[streams.chunk(call, n, i) for n in range(3)]))
        one = (other, recording)[i % 2]
        one.submit_sync(ndjson(streams.chunk(call, 3, i)))
        end = streams.scope("end", call, turn, i + 1, data=streams.answer(prompt=10), metadata=streams.OK, **common)
        one.submit_sync(ndjson(end))
    other.close()
    row = Scope.objects.get(uuid=turn)
    assert (row.attempts, row.input_tokens, row.chunk_count) == (6, 60, 24)
    assert not list(integrity.problems())


def test_closing_records_what_waits_and_may_be_repeated(recording: Writer) -> None:
    for index in range(300):
        recording.offer(streams.line(streams.mark("note", None, index)))
    recording.close()
    recording.close()
    assert Event.objects.count() == 300
    recording.offer(streams.line(streams.mark("again", None, 1)))
    recording.start()
    assert recording.flush_sync() and Event.objects.count() == 301


def test_what_comes_while_the_writer_finds_nothing_is_recorded_when_it_closes(
    recording: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather, came = recording._gather, threading.Event()

    def late() -> Any:
        found = gather()
        if not came.is_set():
            recording.offer(streams.line(streams.mark("note", None, 1)))
            recording._closing = True  # as `close` says, in another thread
            came.set()
        return found

    monkeypatch.setattr(recording, "_gather", late)
    recording.start()
    assert came.wait(5)
    recording.close()
    assert Event.objects.count() == 1


_SENDER = """
import os, sys, json, django
os.environ["DJANGO_SETTINGS_MODULE"] = "relayweb.settings"
django.setup()
from relayweb.database import ensure_migrated
ensure_migrated()
from relayweb.recording.writing.writer import writer
from tests.recording import streams
import random
one = writer()
seed = int(sys.argv[1])
events = streams.Growing(random.Random(seed)).grow(40)
print("ready", flush=True)
for at in range(0, len(events), 3):
    lines = [streams.line(e) for e in events[at : at + 3]]
    receipt = one.submit_sync(b"\\n".join(lines), source="post")
    if receipt.rejected: sys.exit(3)
    print(json.dumps([e["uuid"] + e["kind"] + str(e.get("scope_category")) for e in events[at : at + 3]]), flush=True)
print("done", flush=True)
"""


@sqlite_only
@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    env = {**os.environ, "RELAYWEB_HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
    acknowledged: list[str] = []
    for round in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", _SENDER, str(round)], env=env, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        killer = threading.Timer(0.05 + 0.07 * round, process.send_signal, (signal.SIGKILL,))
        killer.start()
        for line in process.stdout:
            if line.startswith("["):
                acknowledged += json.loads(line)
        killer.cancel()
        process.wait()
        process.stdout.close()
    assert acknowledged
    done = subprocess.run([sys.executable, "manage.py", "export"], env=env, capture_output=True, check=True)
    events = [json.loads(line) for line in done.stdout.split(b"\n") if line.strip()]
    found = {e["uuid"] + e["kind"] + str(e.get("scope_category")) for e in events}
    assert not set(acknowledged) - found
    check = subprocess.run([sys.executable, "manage.py", "check"], env=env, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    assert connection is not None


def test_what_contradictions_put_in_doubt_is_told_anew_while_nothing_comes(
    recording: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retelling, "REST", 40.0)
    tell, told = Retelling.tell, []

    def counted(self: Retelling, wanted: set[bytes]) -> None:
        told.append(wanted)
        tell(self, wanted)

    monkeypatch.setattr(Retelling, "tell", counted)
    turns = [streams.uid() for _ in range(2)]
    call = {"name": "custom", "category": "llm"}
    recording.submit_sync(ndjson(*(streams.scope("start", turn, None, 1, name="relay.turn") for turn in turns)))
    poked: list[int] = []
    recording.subscribe(poked.append)
    for n in range(8):  # each says of another turn that the call is its own
        recording.submit_sync(ndjson(streams.scope("start", streams.uid(5), turns[n % 2], 50 - n, **call)))
    wait_for(lambda: not Unsettled.objects.exists())
    assert 0 < len(told) < 7, "it was told anew after each"
    wait_for(lambda: poked[-1] == Ledger.objects.get().seq)
    assert [Scope.objects.get(uuid=turn).attempts for turn in turns] == [0, 1]
    assert not list(integrity.problems())


def test_a_telling_that_fails_harms_no_sender_and_is_tried_again(
    recording: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tell = Retelling.tell

    def fail(self: Retelling, wanted: set[bytes]) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Retelling, "tell", fail)
    call, turn = streams.uid(), streams.uid()
    receipt = recording.submit_sync(
        ndjson(streams.scope("start", call, None, 9, name="plan"), streams.scope("start", call, turn, 8, name="plan"))
    )
    assert (receipt.accepted, receipt.rejected) == (2, []) and Unsettled.objects.exists()
    wait_for(lambda: "could not be told anew" in caplog.text)
    assert "the sweep" not in caplog.text  # which goes on
    monkeypatch.setattr(Retelling, "tell", tell)
    recording.close()
    assert not list(integrity.problems()) and not Unsettled.objects.exists()


def test_a_writer_that_starts_again_freezes_nothing_more(recording: Writer) -> None:
    recording.submit_sync(ndjson(streams.mark("one", None, 1)))
    before = gc.get_freeze_count()
    kept = [[at] for at in range(5_000)]
    recording.close()
    recording.start()
    assert 0 < gc.get_freeze_count() <= before and len(kept) == 5_000
