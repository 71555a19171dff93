"""Faults to serve under: what bench/harm.py measures and tests/journeys/test_never_harm.py tries."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path


class NotHere(Exception):
    """This machine does not let us make the fault."""


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold SQLite's write lock, as a stuck backup or a stray shell would."""
    lock = sqlite3.connect(home / "relayweb.sqlite3", isolation_level=None, timeout=30)
    lock.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        lock.execute("ROLLBACK")
        lock.close()


@contextlib.contextmanager
def small_disk(at: Path, size: str = "64m") -> Iterator[Path]:
    """A file system of its own. Raises NotHere where we may not mount one."""
    at.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotHere("no file system can be mounted") from error
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a disk to its last byte."""
    path = disk / "filling"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x")
    try:
        yield
    finally:
        path.unlink()


@contextlib.contextmanager
def no_growth(pid: int) -> Iterator[None]:
    """Let no file of a process grow, as under a quota that is used up."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process stand still, connections open, as on a machine that swaps to death."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
