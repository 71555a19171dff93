from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard
from django.core.management import call_command

from tests.served import PROJECT, Served

RELEASES = sorted(path.name.removesuffix(".sqlite3.zst") for path in (PROJECT / "tests/data").glob("*.sqlite3.zst"))


@pytest.mark.django_db
def test_the_migrations_make_the_models_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=1)
    assert "No changes detected" in capsys.readouterr().out


def stored(name: str) -> bytes:
    return zstandard.ZstdDecompressor().decompress((PROJECT / "tests/data" / name).read_bytes())


def lines(export: bytes) -> list[str]:
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in export.splitlines())


def run(served: Served, *args: str, stdin: bytes | None = None) -> bytes:
    done = served.run(*args, stdin=stdin)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout


def shown(served: Served) -> list[Any]:
    """What the API tells of every turn but its cursor, and the table it was priced by, which stays the one of then."""
    headers = {"authorization": f"Bearer {served.token('read')}"}
    turns = served.get("/api/v1/turns?limit=500", **headers).json()["turns"]
    trees = [served.get(f"/api/v1/turns/{turn['uuid']}", **headers).json() for turn in turns]
    return [without(without(tree, "seq"), "price_version") for tree in trees]


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {k: without(v, name) for k, v in value.items() if k != name}
    return [without(v, name) for v in value] if isinstance(value, list) else value


on_sqlite = pytest.mark.skipif(bool(os.environ.get("DATABASE_URL")), reason="about files of SQLite")


@on_sqlite
@pytest.mark.parametrize("release", RELEASES)
def test_the_record_of_a_release_is_upgraded_and_says_what_it_said(
    release: str, serve: Callable[..., Served], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite3"
    copy.write_bytes(stored(f"{release}.sqlite3.zst"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    old = Served(home)
    run(old, "restore", str(copy))
    assert lines(run(old, "export")) == lines(stored(f"{release}.jsonl.zst"))
    run(old, "check")
    assert b"dashboard" in run(old, "token", "list")
    assert b"cool" in run(old, "intercepts", "export")

    fresh = serve()
    run(fresh, "import", "-", stdin=stored(f"{release}.jsonl.zst"))
    old.start()
    try:
        assert shown(old) == shown(fresh) != []
        with sqlite3.connect(home / "relayweb.sqlite3") as database:
            assert database.execute("SELECT count(*) FROM gateway_upstream WHERE name = 'local'").fetchone() == (1,)
    finally:
        old.stop()


def forget(home: Path, names: str) -> list[tuple[str]]:
    """Let the database not know of these migrations; returns those of the record that it knows."""
    with closing(sqlite3.connect(home / "relayweb.sqlite3")) as database:
        database.execute("DELETE FROM django_migrations WHERE app = 'recording' AND name IN " + names)
        database.commit()
        known = "SELECT name FROM django_migrations WHERE app = 'recording' ORDER BY name"
        return database.execute(known).fetchall()


@on_sqlite
def test_a_database_of_before_the_first_release_is_taken_over_or_refused(tmp_path: Path) -> None:
    served = Served(tmp_path)
    run(served, "token", "create", "--scope", "read")
    known = forget(tmp_path, "('0001_initial')")
    assert len(known) == 14  # those that it replaced, and the ones after it
    assert b"read" in run(served, "token", "list")
    assert forget(tmp_path, "('')") == sorted([*known, ("0001_initial",)])

    older = forget(tmp_path, "('0001_initial', '0010_hour_cache', '0011_unsettled')")
    refused = served.run("token", "list")
    assert refused.returncode == 1 and b"Traceback" not in refused.stderr
    assert b"lacks recording.0010_hour_cache" in refused.stderr and b"relayweb export" in refused.stderr
    assert forget(tmp_path, "('')") == older

    (tmp_path / "fresh").mkdir(mode=0o700)
    refused = Served(tmp_path / "fresh").run("restore", str(tmp_path / "relayweb.sqlite3"))
    assert refused.returncode == 1 and b"lacks recording.0010_hour_cache" in refused.stderr


def test_there_is_a_record_of_a_release() -> None:
    assert RELEASES
