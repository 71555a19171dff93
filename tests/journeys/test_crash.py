"""kill -9 at random moments under load: nothing acknowledged is lost, nothing is half there.

Five kills here; `make soak` sets RELAYWEB_CRASH_KILLS to fifty. Of two processes each is killed in turn.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.senders import KINDS, Key, Sender, Sockets, key
from tests.paired import PAIR
from tests.served import PROJECT, Served

KILLS = int(os.environ.get("RELAYWEB_CRASH_KILLS", "5"))

# What a scope's row says of its events; its status and flags depend on when they came, too.
FACTS = """uuid, parent_uuid, turn_uuid, logical_uuid, role, category, name, start_us, end_us, last_us, chunk_count,
    logical_calls, attempts, retries, tools, asked, model, session_id, turn_id, streaming, outcome, end_seq IS NULL"""


def crash_while_starting(served: Served, port: str, after: float) -> None:
    with served.log.open("ab") as log:
        command = [*served.command, "--port", port]
        process = subprocess.Popen(command, env=served.env, stdout=log, stderr=log, cwd=PROJECT)
    time.sleep(after)
    process.kill()
    process.wait()


def exported(served: Served) -> dict[Key, dict[str, Any]]:
    done = served.run("export")
    assert done.returncode == 0, done.stderr.decode()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    counts = Counter(key(event) for event in events)
    assert not [found for found, count in counts.items() if count > 1], "an event is on record twice"
    return {key(event): event for event in events}


def facts(home: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(home / "relayweb.sqlite3") as database:
        found = database.execute(f"SELECT {FACTS} FROM recording_scope ORDER BY uuid").fetchall()
    database.close()
    return found


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get("DATABASE_URL")) and not PAIR, reason="looks into the file of SQLite")
def test_a_server_killed_under_load_has_lost_nothing_that_it_acknowledged(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}")
    served = serve()
    ingest, read = served.token("ingest"), served.token("read")
    senders: list[Sender] = [kind(served, ingest, read, rng.getrandbits(32)) for kind in KINDS]
    for sender in senders:
        sender.start()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.05, 1.5))
        killed = served.kill()
        if rng.random() < 0.2:
            crash_while_starting(killed, str(killed.port), rng.uniform(0.1, 1.0))
        killed.restart()
    deadline = time.monotonic() + 60
    while any(len(sender.acknowledged) < 100 and sender.is_alive() for sender in senders):
        assert time.monotonic() < deadline, "the senders come to nothing"
        time.sleep(0.1)
    for sender in senders:
        sender.stopping.set()
    for sender in senders:
        sender.join(30)
        assert sender.error is None, f"{sender.name}: {sender.error!r}"
    assert served.get("/healthz").json()["status"] == "ok"
    assert served.stop() == 0

    for sender in senders:
        print(f"{sender.name}: {len(sender.acknowledged)} acknowledged, {sender.interrupted} times interrupted")
    sent = {found: event for sender in senders for found, event in sender.sent.items()}
    acknowledged = set[Key]().union(*(sender.acknowledged for sender in senders))
    record = exported(served)
    assert (any if PAIR else all)(sender.interrupted for sender in senders)
    assert not acknowledged - record.keys(), "acknowledged events are lost"
    assert all(sent[found] == event for found, event in record.items()), "an event is not what was sent"
    for sender in senders:
        for passed in sender.cut if isinstance(sender, Sockets) else ():
            there = [found in record for found in passed]
            assert there == sorted(there, reverse=True), "a websocket's events are on record with a gap"

    checked = served.run("check")
    assert checked.returncode == 0, checked.stdout.decode()
    if PAIR:  # `check` told the log again and found the same rows
        return
    # No half scope: what the rows say is what a fresh record makes of the same events.
    again = Served(tmp_path / "again")
    assert again.run("import", "-", stdin=served.run("export").stdout).returncode == 0
    assert facts(served.home) == facts(again.home)
