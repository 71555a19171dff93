"""Copies of the SQLite record: taken while it is written, put back while nothing runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

from django.conf import settings

from relayweb import conf
from relayweb.database import TooOld, on_disk, refuse_too_old, replaced_by

_held: IO[str] | None = None


class BackupError(Exception):
    """A copy cannot be taken or put back; the message says why and what to do."""


def database() -> Path:
    """The file of the record. Raises BackupError where the record is in PostgreSQL."""
    if conf.DATABASE_URL:
        raise BackupError("the record is in PostgreSQL; use pg_dump and pg_restore")
    return Path(str(settings.DATABASES["default"]["NAME"]))


def mark_in_use() -> None:
    """Hold off `restore` for as long as this process lives. Several processes may use one home."""
    global _held
    if _held is None and not conf.DATABASE_URL:
        _held = (conf.HOME / "in_use.lock").open("w")
        fcntl.flock(_held, fcntl.LOCK_SH)


def back_up(target: Path) -> int:
    """Copy the record as it is at this moment, whole and checked, to a new file; returns its bytes.

    Writing goes on meanwhile: the copy is one read transaction.
    """
    source = database()
    if target.exists():
        raise BackupError(f"{target} exists already; name a new file")
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise BackupError(f"cannot write to {target.parent}: {error.strerror}") from None
    os.close(handle)
    try:
        with contextlib.ExitStack() as opened:
            here = opened.enter_context(contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)))
            there = opened.enter_context(contextlib.closing(sqlite3.connect(draft)))
            here.backup(there)
            # One file to carry away, with no log beside it.
            there.execute("PRAGMA journal_mode=DELETE")
        _check(Path(draft))
        os.link(draft, target)
    except sqlite3.Error as error:
        raise BackupError(f"the copy failed: {error}") from None
    finally:
        os.unlink(draft)
    return target.stat().st_size


def restore(source: Path) -> Path | None:
    """Put a copy in the place of the record; returns where the record that was is kept, None if there was none."""
    here = database()
    if not source.is_file():
        raise BackupError(f"there is no file {source}")
    _check(source)
    with _nobody_else():
        kept = None
        if here.exists():
            with contextlib.closing(sqlite3.connect(here)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            kept = here.with_name(f"{here.name}.before-{datetime.now():%Y%m%d-%H%M%S}")
            here.rename(kept)
        for beside in ("-wal", "-shm"):
            here.with_name(here.name + beside).unlink(missing_ok=True)
        handle, draft = tempfile.mkstemp(dir=here.parent, prefix=".restore.")
        with open(handle, "wb") as copy, source.open("rb") as original:
            while piece := original.read(1 << 20):
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        os.rename(draft, here)
    return kept


def _check(path: Path) -> None:
    """Raise BackupError unless the file is a sound record that this version can read."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            applied = set(connection.execute("SELECT app, name FROM django_migrations"))
    except sqlite3.Error as error:
        raise BackupError(f"{path} is no record of relayweb: {error}") from None
    if found != "ok":
        raise BackupError(f"{path} is damaged: {found}")
    ours = {app for app, _ in on_disk()}
    known = on_disk().union(*map(replaced_by, on_disk()))
    if newer := sorted(f"{app}.{name}" for app, name in applied - known if app in ours):
        raise BackupError(f"{path} was made by another version of relayweb, which knows {newer[0]}; use that one")
    try:
        refuse_too_old(applied)
    except TooOld as error:
        raise BackupError(str(error)) from None


@contextlib.contextmanager
def _nobody_else() -> Iterator[None]:
    with (conf.HOME / "in_use.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"{conf.HOME} is in use; stop the server and other commands first") from None
        yield
