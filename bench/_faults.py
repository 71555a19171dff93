"""Faults to serve under, and what must hold after them: for bench/soak.py, bench/faults.py, bench/harm.py and tests."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import Row
from tests.served import PROJECT, Served


class Server(Served):
    """relayweb on a home of its own; may be killed, and comes back at the port it had."""

    def start(self, *args: str, wait: float = 120) -> Server:
        super().start("--port", self.url.rpartition(":")[2] or "0", *args, wait=wait)
        return self

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def health(self) -> dict[str, Any]:
        told: dict[str, Any] = self.get("/healthz").json()
        return told


def until(so: Callable[[], bool], limit: float = 60.0) -> float:
    """Seconds until something is so; `limit` when it never was."""
    began = time.monotonic()
    while not so() and time.monotonic() - began < limit:
        time.sleep(0.1)
    return time.monotonic() - began


def identity(event: dict[str, Any]) -> str:
    """What tells an event from all others."""
    return f"{event['uuid']} {event['kind']} {event.get('scope_category')}"


def record_rows(server: Served, acknowledged: set[str]) -> list[Row]:
    """What came of the record of a server that has stopped. `acknowledged` are identities of events."""
    lost, seen, twice = set(acknowledged), set[int](), 0
    command = [sys.executable, "-m", "relayweb"]
    with subprocess.Popen([*command, "export"], env=server.env, cwd=PROJECT, stdout=subprocess.PIPE) as export:
        assert export.stdout
        for line in export.stdout:
            name = identity(json.loads(line))
            lost.discard(name)
            twice += hash(name) in seen
            seen.add(hash(name))
    check = subprocess.run([*command, "check"], env=server.env, cwd=PROJECT, capture_output=True, text=True)
    told = re.search(r"has (\d+) problems", check.stderr)
    if check.returncode:
        print(check.stderr, file=sys.stderr)
    return [
        ("events acknowledged", float(len(acknowledged)), "", ""),
        ("acknowledged events that are not on record", float(len(lost)), "", "≤ 0"),
        ("events that are on record twice", float(twice), "", "≤ 0"),
        ("`relayweb check`", float(told[1] if told else check.returncode), "problems", "≤ 0"),
    ]


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
