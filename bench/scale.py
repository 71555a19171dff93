"""Ingest into PostgreSQL by one and by two processes, and into SQLite by one: the workload of `bench.ingest`.

`python -m bench.scale [SPANS]`. The sessions are divided among the processes. PostgreSQL is the installed one, started
for this run with Debian's settings except that it does not wait for the disk (see docs/scaling.md); its own CPU is not
in the figures of the processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import Row, table
from bench.workload import stream

SPANS = 4_000
_LINES = 200  # a body


def _record(lines_file: Path) -> dict[str, float]:
    """Record a file, from the moment that a line comes on standard input."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "relayweb.settings"
    import django

    django.setup()
    from relayweb.database import ensure_migrated
    from relayweb.recording.writing.writer import writer

    ensure_migrated()
    one = writer()
    lines = lines_file.read_bytes().split(b"\n")
    bodies = [b"\n".join(lines[at : at + _LINES]) for at in range(0, len(lines), _LINES)]
    one.submit_sync(b"", source="post")
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    answers = [one._enqueue(body, "post", None).done for body in bodies]
    accepted = sum(answer.result().accepted for answer in answers)
    cpu = time.process_time() - cpu
    one.close()
    return {"accepted": accepted, "cpu": cpu}


def _together(parts: list[Path], env: dict[str, str], folder: Path) -> tuple[float, list[dict[str, Any]]]:
    """Record each file in a process of its own, all at once; returns the seconds and what each tells."""
    code = "import json, sys; from pathlib import Path; from bench.scale import _record; "
    code += "print(json.dumps(_record(Path(sys.argv[1]))))"
    running = []
    for number, part in enumerate(parts):
        home = {"RELAYWEB_HOME": str(folder / f"home-{env.get('DATABASE_URL', '')[-6:]}-{number}")}
        command = [sys.executable, "-c", code, str(part)]
        running.append(
            subprocess.Popen(
                command, env={**os.environ, **env, **home}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
    for one in running:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [json.loads(one.stdout.readline()) for one in running if one.stdout is not None]
    seconds = time.perf_counter() - began
    for one in running:
        one.communicate()
    return seconds, told


def _divide(lines: list[bytes], count: int, folder: Path) -> list[Path]:
    """The lines in `count` files, each session in one of them."""
    parts: list[list[bytes]] = [[] for _ in range(count)]
    of: dict[str, int] = {}
    for line in lines:
        root = json.loads(line)["propagation_root_uuid"]
        parts[of.setdefault(root, len(of) % count)].append(line)
    files = [folder / f"{count}-{number}.jsonl" for number in range(count)]
    for file, part in zip(files, parts, strict=True):
        file.write_bytes(b"\n".join(part))
    return files


def run(spans: int = SPANS) -> list[Row]:
    from tests.scale.engines import Missing, Postgres

    lines, count = stream(spans)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="relayweb-bench-") as name:
        folder = Path(name)
        one, two = _divide(lines, 1, folder), _divide(lines, 2, folder)

        def measured(what: str, parts: list[Path], env: dict[str, str]) -> None:
            seconds, told = _together(parts, env, folder)
            assert sum(each["accepted"] for each in told) == len(lines)
            rows.append((f"{what}, spans", count / seconds, "a second", ""))
            rows.append((f"{what}, CPU of the processes", sum(t["cpu"] for t in told) / count * 1000, "ms a span", ""))

        measured("SQLite, 1 process", one, {"DATABASE_URL": ""})
        try:
            engine = Postgres()
        except Missing as missing:
            print(missing, file=sys.stderr)
            return rows
        try:
            engine.start()
            measured("PostgreSQL, 1 process", one, {"DATABASE_URL": engine.create()})
            measured("PostgreSQL, 2 processes", two, {"DATABASE_URL": engine.create()})
        finally:
            engine.close()
    return rows


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))
