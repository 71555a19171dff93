"""What the pages ask of the record: lists, filters, sessions, facets and statistics over many turns.

`python -m bench.queries [TURNS] [sqlite|postgresql]`. The newest thousand turns are recorded by the writer, others are
copies of their rows under other ids, earlier in time. A turn has four attempts and fourteen scopes (`bench._turns`).
The figures are CPU time, so that other work on the machine does not count: of this process, in which SQLite works too,
and with PostgreSQL also of the one that serves it, without helpers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import Row, table

TURNS = 10_000
RECORDED = 1_000
LIST_MS = 50
FILTERS = (
    ("", "status:failed", "model:claude-*", "role:auxiliary:*", "tool:tool_3", "error:RateLimitError", "finish:stop")
    + ("intercept:rule-1", "stalls:>0", "stalls:>5", "retries:>0", "dur:>5s", "tokens:>5k", "-profile:profile-1*")
    + ("since:7d", "session:session-00100", "status:blocked", "is:subagent", "is:running")
)


def record(turns: int) -> None:
    """Record `RECORDED` turns in this process's database and multiply their rows up to `turns`."""
    from bench._turns import Turns
    from relayweb.database import ensure_migrated
    from relayweb.recording.reading import rhythm
    from relayweb.recording.writing.writer import writer

    ensure_migrated()
    one = writer()
    for body in Turns(RECORDED).lines():
        one.submit_sync(body, source="file")
    one.close()
    while rhythm.catch_up():
        pass
    for number in range(1, turns // RECORDED):
        _copy(number)
    _analyse()


def _copy(number: int) -> None:
    """The rows once more: uuids begin with another byte, sessions are called otherwise, all is a month earlier."""
    from django.db import connection

    from bench._turns import SPAN
    from relayweb.recording.models import Rewrite, Scope, Stream

    first = number + 1  # the byte of what was recorded is 1
    postgres = connection.vendor == "postgresql"
    other = f"overlay({{}}::text placing '{first:02x}' from 1 for 2)::uuid"
    if not postgres:
        other = f"CAST(CASE WHEN {{0}} IS NULL THEN NULL ELSE X'{first:02x}' || substr({{0}}, 2) END AS BLOB)"
    shift = number * SPAN * 1_000_000
    newest = "(SELECT MAX(seq) FROM {})"
    with connection.cursor() as cursor:
        for model in (Scope, Rewrite, Stream):
            name, columns = model._meta.db_table, [str(field.column) for field in model._meta.fields]
            own = "uuid" if model is Scope else "attempt_uuid"
            taken = [_copied(column, other, shift, f"session-{number}-") for column in columns]
            if model is Rewrite:
                taken[columns.index("seq")] = f"seq + {newest.format(name)}"
            where = f"substr({own}::text, 1, 2) = '01'" if postgres else f"substr({own}, 1, 1) = X'01'"
            cursor.execute(
                f"INSERT INTO {name} ({', '.join(columns)}) SELECT {', '.join(taken)} FROM {name} WHERE {where}"
            )


def _copied(column: str, other: str, shift: int, session: str) -> str:
    if column.endswith("uuid"):
        return other.format(column)
    if column in ("start_us", "end_us", "last_us"):
        return f"{column} - {shift}"
    return f"'{session}' || substr(session_id, 9)" if column == "session_id" else column


def _analyse() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE" if connection.vendor == "postgresql" else "PRAGMA optimize")


def asked() -> Iterator[tuple[str, Callable[[], Any], int]]:
    """What is measured: its name, the call, and how many ms it may take."""
    from relayweb.recording.reading import overview, queries
    from relayweb.recording.reading.statistics import statistics

    for q in FILTERS:
        yield f"turns {q}".strip(), partial(queries.turns, q), LIST_MS
    deep = queries.turns(limit=500)["next"]
    yield "turns, a page further down", lambda: queries.turns(cursor=deep), LIST_MS
    yield "sessions", queries.sessions, LIST_MS
    following = queries.sessions()["next"]
    yield "sessions, second page", lambda: queries.sessions(cursor=following), LIST_MS
    yield "sessions status:failed", lambda: queries.sessions("status:failed"), LIST_MS
    yield "a session", lambda: queries.session("session-00100"), LIST_MS
    yield "facets", overview.facets, 0
    yield "histogram", lambda: overview.histogram(buckets=72), 0
    for by in ("model", "role"):
        yield f"statistics by {by}", partial(statistics, by=by), 0


def _clock() -> Callable[[], float]:
    """The CPU time spent so far on what is asked here, in seconds."""
    from django.db import connection

    if connection.vendor == "sqlite":
        return time.process_time
    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")
        cursor.execute("SELECT pg_backend_pid()")
        spent = Path(f"/proc/{cursor.fetchone()[0]}/schedstat")
    return lambda: time.process_time() + int(spent.read_text().split()[0]) / 1e9


def measure(turns: int) -> list[Row]:
    from django.db import connection

    clock = _clock()
    rows: list[Row] = []
    for name, call, limit in asked():
        call()
        spent = []
        for _ in range(5 if name.startswith("statistics") else 20):
            began = clock()
            call()
            spent.append((clock() - began) * 1000)
        p95 = sorted(spent)[int(0.95 * len(spent))]
        rows.append((f"{connection.vendor}, {turns:,} turns: {name}", p95, "ms", f"≤ {limit}" if limit else ""))
    return rows


def page(home: str) -> Row:
    """The list in Chromium: from the press to the first row painted and the page loaded, median of nine."""
    import statistics

    from playwright.sync_api import sync_playwright

    from bench.live import serving
    from bench.ui import FLAGS, login_path, program

    with serving(home) as (url, env, _), sync_playwright() as p:
        browser = p.chromium.launch(executable_path=program(), args=FLAGS)
        opened = browser.new_page(viewport={"width": 1440, "height": 900})
        opened.goto(url + login_path(env))
        if "/login" in opened.url:
            opened.locator("form button[type=submit]").first.click()
            opened.wait_for_url(lambda at: "/login" not in at)
        times = []
        for _ in range(10):
            opened.goto(f"{url}/")
            opened.wait_for_selector("tr[data-row]")
            times.append(opened.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd"))
        browser.close()
    return "the list of turns in Chromium, median", statistics.median(times[1:]), "ms", "≤ 500"


def _run(turns: int) -> list[Row]:
    """In a process of its own, whose environment names the database."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "relayweb.settings"
    import django

    django.setup()
    record(turns)
    return measure(turns)


def run(turns: int = TURNS, database: str = "sqlite") -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="relayweb-bench-") as home:
        if database == "sqlite":
            rows = _in_a_process(turns, {"RELAYWEB_HOME": home, "DATABASE_URL": ""})
            name, value, unit, note = page(home)
            return [*rows, (f"sqlite, {turns:,} turns: {name}", value, unit, note)]
        from tests.scale.engines import Postgres

        engine = Postgres()
        try:
            engine.start()
            return _in_a_process(turns, {"RELAYWEB_HOME": home, "DATABASE_URL": engine.create()})
        finally:
            engine.close()


def _in_a_process(turns: int, env: dict[str, str]) -> list[Row]:
    import json

    code = "import json, sys; from bench.queries import _run; print(json.dumps(_run(int(sys.argv[1]))))"
    command = [sys.executable, "-c", code, str(turns)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True, cwd=root)
    return [(name, value, unit, note) for name, value, unit, note in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    turns, *database = sys.argv[1:] or [str(TURNS)]
    print(table(run(int(turns), *database)))
