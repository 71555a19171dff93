"""Ingest: the workload of an agent until it can be queried, its disk share, its memory, and a bare SQLite beside it.

`python -m bench.ingest [SPANS] [--peers VENV]`. It runs in a process of its own on a fresh home. CPU is that of the
whole process that records: queueing, parsing, masking, projection, compression and SQL. Queryable are the rows: lists,
trees, payloads and chunks. The full-text index follows in its own time and is not part of these figures. Disk is what
the file grew by; an empty database of all parts of the product takes about 1 MB.

With `--peers` arize-phoenix and mlflow, those that are installed in that virtual environment, are measured on the same
spans in the same run, side by side (see `bench._peers`).
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import Row, table

SHORT, FULL = 5_000, 20_000  # spans
_LINES = 200  # a body


def _measure(home: Path, lines_file: Path, spans: int) -> dict[str, float]:
    """Record the lines of a file in this process. Run in a process of its own."""
    os.environ |= {"RELAYWEB_HOME": str(home), "DJANGO_SETTINGS_MODULE": "relayweb.settings"}
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.db import connection

    from relayweb.recording.reading import queries
    from relayweb.recording.writing.writer import writer

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    empty = (home / "relayweb.sqlite3").stat().st_size
    one = writer()
    rest = _rss()
    lines = lines_file.read_bytes().split(b"\n")
    bodies = [b"\n".join(lines[at : at + _LINES]) for at in range(0, len(lines), _LINES)]
    size = sum(map(len, bodies))
    del lines
    held = _rss() - rest  # the workload itself
    began, cpu = time.perf_counter(), time.process_time()
    answers = [one._enqueue(body, "post", None).done for body in bodies]
    accepted = sum(answer.result().accepted for answer in answers)
    newest = queries.turns(limit=1)["turns"]
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert newest and accepted == one.counters()["events"]
    load = _rss() - held
    one.close()
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.execute(
            "SELECT SUM(b.count), SUM(LENGTH(b.body)), COUNT(*) FROM recording_chunkblock b WHERE b.kind = 0"
        )
        marks, blobs, blocks = cursor.fetchone()
        cursor.execute(
            "SELECT SUM(pgsize) FROM dbstat WHERE name IN ('recording_chunkblock', 'block_attempt', 'block_seq')"
        )
        chunk_pages = cursor.fetchone()[0]
    disk = (home / "relayweb.sqlite3").stat().st_size - empty
    return {
        "spans/s": spans / seconds,
        "events/s": accepted / seconds,
        "cpu": cpu / spans * 1_000,
        "disk": disk / size,
        "mark": chunk_pages / marks,
        "rest": rest,
        "load": load,
        "seconds": seconds,
        "bytes/span": size / spans,
        "events/span": accepted / spans,
    }


def _rss() -> float:
    """MB in memory now."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _bare(folder: Path, lines: list[bytes]) -> float:
    """Seconds that SQLite itself needs for the same bytes in the same batches."""
    connection = sqlite3.connect(folder / "bare.sqlite3", isolation_level=None)
    for pragma in ("page_size=8192", "journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, body BLOB)")
    began = time.perf_counter()
    for at in range(0, len(lines), 500):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO event (body) VALUES (?)", [(line,) for line in lines[at : at + 500]])
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def _spans(home: Path) -> list[bytes]:
    """What was recorded, as OTLP JSON."""
    command = [sys.executable, str(Path(__file__).parent.parent / "manage.py"), "export", "--format", "otlp"]
    environment = {**os.environ, "RELAYWEB_HOME": str(home), "DJANGO_SETTINGS_MODULE": "relayweb.settings"}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout.splitlines()


def run(spans: int = SHORT, peers: Path | None = None) -> list[Row]:
    """The figures of the recorder, and with `peers` of those installed in that virtual environment."""
    from bench import _peers
    from bench.workload import stream

    if peers is not None:
        _peers.installed(peers)  # says at once if there are none
    with tempfile.TemporaryDirectory() as folder:
        lines, count = stream(spans)
        source = Path(folder) / "workload.jsonl"
        source.write_bytes(b"\n".join(lines))
        home = Path(folder) / "home"
        home.mkdir()
        command = [sys.executable, "-m", "bench.ingest", "--measure", str(home), str(source), str(count)]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        found = json.loads(done.stdout.strip().split("\n")[-1])
        bare = _bare(Path(folder), lines)
        beside = [] if peers is None else _peers.measure(peers, _spans(home), count)
    return [
        ("ingest until queryable", found["spans/s"], "spans/s", "≥ 4000"),
        ("ingest until queryable", found["events/s"], "events/s", ""),
        ("CPU of it", found["cpu"], "ms/span", "≤ 0.25"),
        ("time of it, as a multiple of bare sqlite3", found["seconds"] / bare, "×", ""),
        ("disk, as a share of the bytes received", found["disk"], "", "≤ 0.15"),
        ("disk of a chunk mark, indexes included", found["mark"], "bytes", "≤ 32"),
        ("memory of the recorder at rest", found["rest"], "MB", "≤ 150"),
        ("memory of the recorder under load", found["load"], "MB", "≤ 300"),
        ("the workload: bytes of a span", found["bytes/span"], "bytes", ""),
        ("the workload: events of a span", found["events/span"], "events", ""),
        *beside,
    ]


def _main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.ingest", description="Measure the ingest of a workload.")
    options.add_argument("spans", type=int, nargs="?", default=FULL, help="scopes of the workload")
    options.add_argument(
        "--peers", type=Path, metavar="VENV", help="a virtual environment with arize-phoenix or mlflow"
    )
    told = options.parse_args()
    try:
        print(table(run(told.spans, told.peers)))
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(_measure(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))))
    else:
        _main()
