"""Relay's real exporters, in a process of their own, against our real server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.served import PROJECT, Served

EVENTS_OF_A_TURN = 3 * 2 + 2 * 2 + 3  # session, turn, logical call; two attempts; three marks


class Agent:
    """tests/ingest/exporting.py with one exporter."""

    def __init__(self, served: Served, kind: str, marks: int = 3) -> None:
        command = [sys.executable, "-m", "tests.ingest.exporting", kind, served.url, served.token("ingest"), str(marks)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=PROJECT, env=served.env, stdin=pipe, stdout=pipe, text=True)

    def turn(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().startswith("turn")

    def end(self) -> None:
        """Shut the exporter down and the process; may be called again."""
        if self.process.poll() is None:
            self.process.communicate(timeout=120)


@contextmanager
def agent(served: Served, kind: str, marks: int = 3) -> Iterator[Agent]:
    running = Agent(served, kind, marks)
    try:
        yield running
    finally:
        running.end()


def recorded(served: Served) -> list[dict]:
    done = served.run("export", "--format", "atof")
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def count(served: Served) -> int:
    """Events on record so far."""
    return served.get("/healthz").json()["writer"]["seq"]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["http_post", "ndjson", "websocket"])
def test_an_agent_is_recorded_while_it_runs(serve: Callable[..., Served], kind: str) -> None:
    served = serve()
    with agent(served, kind) as running:
        running.turn()
        until(lambda: count(served) == EVENTS_OF_A_TURN)
        running.turn()
        running.end()
    until(lambda: count(served) == 2 * EVENTS_OF_A_TURN)
    events = recorded(served)
    assert len(events) == 2 * EVENTS_OF_A_TURN
    assert len({(e["uuid"], e["kind"], e.get("scope_category")) for e in events}) == len(events)


def test_from_the_post_sink_nothing_is_lost(serve: Callable[..., Served]) -> None:
    served = serve()
    with agent(served, "http_post", marks=500) as running:
        running.turn()
        until(lambda: count(served) == 10 + 500, 300)  # at its end the sink waits for a few seconds only
    notes = [e["data"]["index"] for e in recorded(served) if e["name"] == "note"]
    assert sorted(notes) == list(range(500))


def test_the_websocket_sink_outlives_a_restart_of_the_server(serve: Callable[..., Served]) -> None:
    served = serve()
    port = served.url.rsplit(":", 1)[1]
    with agent(served, "websocket", marks=20) as running:
        running.turn()
        until(lambda: count(served) == 10 + 20)
        assert served.stop() == 0
        running.turn()  # nobody listens; the sink keeps it
        served.start("--port", port)
        running.turn()
        until(lambda: count(served) >= 3 * (10 + 20) - 1)
        running.end()
    notes = [(e["data"]["turn"], e["data"]["index"]) for e in recorded(served) if e["name"] == "note"]
    # The sink learns of the closed connection by a write that fails; what was in that write is gone.
    assert len(set(notes)) >= 59


def test_an_idle_websocket_sink_is_kept(serve: Callable[..., Served]) -> None:
    served = serve()
    with agent(served, "websocket") as running:
        running.turn()
        time.sleep(2)  # test_server.py proves that it is not pinged meanwhile
        running.turn()
        until(lambda: count(served) == 2 * EVENTS_OF_A_TURN)


def scopes(events: list[dict]) -> set[tuple]:
    return {(e["uuid"], e["scope_category"], e["timestamp"]) for e in events if e["kind"] == "scope"}


@pytest.mark.parametrize("kind", ["full", "openinference"])
def test_spans_of_relay_become_the_scopes_they_copy(serve: Callable[..., Served], kind: str) -> None:
    served = serve()
    with agent(served, kind) as running:
        running.turn()
        running.end()
    events = recorded(served)
    calls = [e for e in events if e["category"] == "llm" and e["scope_category"] == "start"]
    assert len(calls) == 2
    assert calls[0]["data"]["content"]["messages"] == [{"role": "user", "content": "hello"}]
    ends = [e for e in events if e["category"] == "llm" and e["scope_category"] == "end"]
    assert {e["metadata"]["otel.status_code"] for e in ends} == {"OK", "ERROR"}
    names = {e["name"] for e in events}
    assert {"relay.session", "relay.turn", "relay.logical_llm_call", "note"} <= names
    assert len([e for e in events if e["name"] == "note"]) == 3


@pytest.mark.parametrize("kind", ["full", "gen_ai", "openinference"])
def test_an_atof_and_an_otlp_copy_of_one_run_are_one_run(serve: Callable[..., Served], kind: str) -> None:
    served = serve()
    with agent(served, f"http_post+{kind}") as running:
        running.turn()
        running.end()
    events = recorded(served)
    assert len(events) == EVENTS_OF_A_TURN
    # What stays is what ATOF told, which is more.
    assert all(
        "nemo_relay.uuid" not in (e["metadata"] or {}) and "service.name" not in (e["metadata"] or {}) for e in events
    )
