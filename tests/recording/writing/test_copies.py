"""One run that Relay's real exporters tell in four ways is one run, whatever comes first and in whatever portions."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.spans import from_protobuf
from relayweb.recording.models import Event, Scope
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing import retelling
from relayweb.recording.writing.copies import COPY, MADE, RunRecorder, told_by_span
from relayweb.recording.writing.recorder import Line
from relayweb.recording.writing.retelling import Retelling
from tests.recording import streams
from tests.recording.test_any_order import cut, differences, empty, snapshot
from tests.served import PROJECT

pytestmark = pytest.mark.django_db(transaction=True)

SPANS = ["full", "openinference", "gen_ai"]


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, list[bytes]]]:
    """Two turns of an agent as each exporter tells them, in lines."""
    found: dict[str, list[bytes]] = {"atof": [], **{kind: [] for kind in SPANS}}

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.startswith("/ingest"):
                found["atof"] += body.splitlines()
            else:
                kind = self.path.split("/")[1]
                found[kind] += [line for span in from_protobuf(body) for line in events(span)]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-m", "tests.ingest.exporting", "http_post+full+gen_ai+openinference"]
        command += [f"http://127.0.0.1:{server.server_port}", "token", "2", "each"]
        subprocess.run(command, cwd=PROJECT, input="\n\n", text=True, check=True, timeout=60, capture_output=True)
        server.shutdown()
    assert all(found.values())
    return found


def record(*batches: list[bytes], restart: bool = False) -> dict[str, Any]:
    empty()
    recorder = RunRecorder(Tables(connection))
    for batch in batches:
        if restart:
            recorder = RunRecorder(Tables(connection))
        lines = [Line(line, 0) for line in batch]
        recorder.record(lines)
        assert not [line.error for line in lines if line.error]
    recorder.sweep(10**16, 1, 0)
    return snapshot()


def same(want: dict[str, Any], got: dict[str, Any]) -> None:
    assert not differences(want, got)
    assert not Event.objects.filter(flags__in=[COPY, MADE]).exists()
    assert not [row for row in got["rows"].values() if row["flags"] & Scope.Flag.CONFLICT]
    assert not list(integrity.problems())


def one_by_one(lines: list[bytes]) -> Iterator[list[bytes]]:
    """The lines of one span each: a door takes them in this order."""
    span: list[bytes] = []
    for line in lines:
        span.append(line)
        if b'"scope_category":"end"' in line:
            yield span
            span = []


@pytest.mark.parametrize("kind", SPANS)
def test_spans_and_atof_of_one_run_are_what_atof_alone_is(told: dict[str, list[bytes]], kind: str) -> None:
    atof, spans = told["atof"], told[kind]
    want = record(atof)
    turns = [row for row in want["rows"].values() if row["is_turn"]]
    assert [(row["attempts"], row["total_tokens"]) for row in turns] == [(2, 7), (2, 7)]
    same(want, record(atof, spans))
    same(want, record(spans, atof))
    same(want, record(spans + atof))
    same(want, record(atof + spans))
    same(want, record(*([line] for line in spans + atof)))
    same(want, record(*([line] for line in atof + spans), restart=True))
    same(want, record(*itertools.chain.from_iterable(([a], [b]) for a, b in zip(spans[:8], atof[:8], strict=True)),
                      spans[8:], atof[8:]))  # fmt: skip


@pytest.mark.parametrize("restart", [False, True])
def test_all_four_copies_come_to_one_run_in_any_order(told: dict[str, list[bytes]], restart: bool) -> None:
    want, rng = record(told["atof"]), random.Random(7)
    for _ in range(12):
        units = [[line] for line in told["atof"]] + [span for kind in SPANS for span in one_by_one(told[kind])]
        rng.shuffle(units)
        same(want, record(*cut([line for unit in units for line in unit], rng), restart=restart))


@pytest.mark.parametrize("first", [True, False])
def test_what_the_better_copy_lacks_comes_from_the_other(told: dict[str, list[bytes]], first: bool) -> None:
    want = record(told["atof"])
    call = next(
        line for line in told["atof"] if b'"scope_category":"end"' in line and b'"llm"' in line and b'"OK"' in line
    )
    atof = [line for line in told["atof"] if line != call]
    got = record(told["gen_ai"], atof) if first else record(atof, told["gen_ai"])
    assert got["rows"].keys() == want["rows"].keys()
    wanted = [row["total_tokens"] for row in want["rows"].values() if row["is_turn"]]
    assert [row["total_tokens"] for row in got["rows"].values() if row["is_turn"]] == wanted
    assert not list(integrity.problems())


def test_spans_alone_are_a_run_and_spans_that_tell_more_are_kept(told: dict[str, list[bytes]]) -> None:
    want = record(told["full"])
    assert {row["role"] for row in want["rows"].values()} == {"session", "turn", "logical_call", "attempt"}
    assert len(want["rows"]) == 10
    for batches in ((told["gen_ai"], told["full"]), (told["full"], told["gen_ai"])):
        assert not differences(want, record(*batches))
    assert len(record(told["gen_ai"])["rows"]) == 10


def test_two_recorders_learn_of_each_others_copies(told: dict[str, list[bytes]]) -> None:
    want, rng = record(told["atof"]), random.Random(3)
    for _ in range(6):
        empty()
        several = [RunRecorder(Tables(connection)) for _ in range(2)]
        for kind in rng.sample(["atof", "gen_ai", "full"], 3):
            for batch in cut(told[kind], rng):
                rng.choice(several).record([Line(line, 0) for line in batch])
        several[0].sweep(10**16, 1, 0)
        same(want, snapshot())


def test_a_running_turn_stays_running_when_its_copies_go(told: dict[str, list[bytes]]) -> None:
    empty()
    recorder = RunRecorder(Tables(connection))
    half = [line for line in told["atof"] if b'"start"' in line or b'"llm"' in line]
    recorder.record([Line(line, 5_000) for line in half[:1] + told["gen_ai"] + half[1:]])
    recorder.record([Line(line, 6_000) for line in half])
    assert recorder.sweep(10_000, 4_000, 0) == 0


def test_a_late_copy_of_a_long_session_tells_it_anew_now_and_then_only(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = [streams.scope("start", streams.uid(1), None, 0, name="relay.session", category="agent")]
    for n in range(2, 62, 2):
        inside = {"name": "custom", "category": "llm", "data": streams.answer(), "metadata": streams.OK}
        talk.append(streams.scope("start", streams.uid(n), streams.uid(1), n, name="relay.turn"))
        talk.append(streams.scope("start", streams.uid(n + 1), streams.uid(n), n, **{**inside, "data": None}))
        talk.append(streams.scope("end", streams.uid(n + 1), streams.uid(n), n + 1, **inside))
        talk.append(streams.scope("end", streams.uid(n), streams.uid(1), n + 1, name="relay.turn"))
    atof = [streams.line(event) for event in talk]
    trace = UUID(streams.uid(1)).bytes
    spans = [streams.line({**told_by_span(trace, made=False), **event, "data": None}) for event in talk]
    want = record(atof)

    clock, told, tell = [0.0], [], Retelling.tell_without

    def counted(self: Retelling, scopes: Any, seqs: Any, gone: Any) -> None:
        told.append(len(seqs))
        clock[0] += len(seqs) / 1_000
        tell(self, scopes, seqs, gone)

    monkeypatch.setattr(retelling, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(Retelling, "tell_without", counted)
    empty()
    recorder = RunRecorder(Tables(connection))
    recorder.record([Line(span, 0) for span in spans])
    for text in atof:
        clock[0] += 1 / 1_000
        recorder.record([Line(text, 0)])
    recorder.sweep(10**16, 1, 0)
    same(want, snapshot())
    assert told[-1] >= len(atof) and sum(told) < 2 * len(atof)


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"parent_uuid": None},
            {"parent_uuid": 5},
            {"parent_uuid": "x"},
            {"uuid": None},
            {"uuid": "x"},
            {"kind": None},
        ),
        *({"kind": "scope", "scope_category": ["start"]}, {"scope_category": {}}, {"kind": "scope"}, {"name": None}),
    ],
)
def test_what_only_begins_like_a_copy_holds_nobody_up(change: dict[str, Any]) -> None:
    empty()
    made = told_by_span(bytes(16), made=True)
    good = {**made, **streams.mark("note", streams.uid(2), 1, uuid=streams.uid(1))}
    lines = [Line(streams.line(event), 0) for event in ({**good, **change}, {**good, "uuid": streams.uid(3)})]
    broken = Line(streams.line(good)[:-1], 0)
    RunRecorder(Tables(connection)).record([*lines, broken])
    assert lines[1].error is None and Event.objects.filter(uuid=UUID(streams.uid(3))).exists()
    assert broken.error and "not JSON" in broken.error
