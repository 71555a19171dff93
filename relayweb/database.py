"""The database brought up to date by whichever command touches it first."""

from __future__ import annotations

import fcntl
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from relayweb import conf

_ADVISORY_LOCK = 0x72656C61  # "rela"


class TooOld(Exception):
    """The database is of a time whose migrations are no longer there one by one."""


def prepare(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Set up a new connection to SQLite; and the file, as long as it is empty.

    The file's own settings are for its first connection only: to set them again takes the lock of writers, for which
    every page would wait.
    """
    if connection.vendor != "sqlite":
        return
    execute = connection.connection.execute
    if execute("PRAGMA page_count").fetchone()[0] == 0:
        # Rows of 2 KB waste half of a 4 KB page; of 16 KB pages each commit writes more than has changed.
        execute("PRAGMA page_size=8192")
        # Without it only a copy of the whole file gives room back to the disk, and recording would wait.
        execute("PRAGMA auto_vacuum=INCREMENTAL")
    execute("PRAGMA journal_mode=WAL")
    execute(f"PRAGMA synchronous={conf.SYNCHRONOUS}")


def ensure_migrated() -> None:
    """Create or upgrade the database if any migration is missing.

    Compares file names with one query, because Django's own plan imports every migration first. Safe when several
    commands start at once on a fresh home.

    Raises:
        TooOld: nothing leads from this database to the present one; it stays as it is.
    """
    if not _missing():
        return
    with _alone():
        if _missing():
            refuse_too_old(_applied())
            call_command("migrate", interactive=False, verbosity=0)


def _missing() -> set[tuple[str, str]]:
    return on_disk() - _applied()


def refuse_too_old(applied: set[tuple[str, str]]) -> None:
    """Raise TooOld where only some are applied of those that one stands for; Django would pass over that one."""
    for migration in sorted(on_disk() - applied):
        lacking = sorted(replaced_by(migration) - applied)
        if lacking and not replaced_by(migration).isdisjoint(applied):
            raise TooOld(
                f"this database was made by a version before the first release, and lacks {'.'.join(lacking[0])}. "
                "Take its events along: `relayweb export` with the version that made it, `relayweb import` of that "
                "with this one and another RELAYWEB_HOME or DATABASE_URL."
            )


def replaced_by(migration: tuple[str, str]) -> set[tuple[str, str]]:
    """The earlier migrations that this one stands for."""
    app, name = migration
    module = importlib.import_module(f"{apps.get_app_config(app).name}.migrations.{name}")
    return {*module.Migration.replaces}


def _applied() -> set[tuple[str, str]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            return {(app, name) for app, name in cursor.fetchall()}
    except DatabaseError:
        return set()


def on_disk() -> set[tuple[str, str]]:
    return {
        (app.label, file.stem)
        for app in apps.get_app_configs()
        for file in Path(app.path, "migrations").glob("[0-9]*.py")
    }


@contextmanager
def _alone() -> Iterator[None]:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [_ADVISORY_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])
    else:
        with open(conf.HOME / "migrate.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
