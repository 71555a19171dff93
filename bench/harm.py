"""What calls cost while the recorder is in trouble, against the same calls a moment before: `python -m bench.harm`.

An agent records to the server (`record_to`), a client calls through its gateway; both call a provider of 4 ms all the
time. Healthy and faulty windows of two seconds take turns, so that both see the same machine. Told are percentiles of
all faulty windows as multiples of those of all healthy ones, with their 90 % interval (bootstrap over pairs of
windows): on a noisy machine it is wide, and only what lies above the budget for certain misses it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx2

from bench import Row, report
from bench._faults import NotHere, Server, full, locked, no_growth, small_disk, stopped, until
from bench.gateway import PROJECT, part, started

ROUNDS, WINDOW = 15, 2.0
SAMPLES = 1000
Call = tuple[float, float]
"""When it began, in seconds of the monotonic clock, and how long it took, in ms."""


class Agent:
    """A process that makes calls and records them to a server."""

    def __init__(self, url: str, token: str) -> None:
        self.calls: list[Call] = []
        command = [sys.executable, "-m", "bench._calling", url, token]
        self._process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            began, took = map(int, line.split())
            self.calls.append((began / 1e6, took / 1e3))

    def stop(self) -> int:
        """End it as an agent ends; gives its exit status."""
        assert self._process.stdin
        self._process.stdin.close()
        status = self._process.wait(60)
        self._reader.join(10)
        assert self._process.stdout
        self._process.stdout.close()
        return status


class Client(threading.Thread):
    """Calls through the gateway, one after the other."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self.calls: list[Call] = []
        self.failed: list[str] = []
        self._url, self._headers = f"{url}/gw/bench/v1/chat/completions", {"x-relay-token": token}
        self._ended = threading.Event()

    def run(self) -> None:
        with httpx2.Client(timeout=30) as client:
            number = 0
            while not self._ended.is_set():
                number += 1
                messages = [{"role": "user", "content": f"call {number}"}]
                metadata = {"n": 1, "interval": 0.004}
                body = {"model": "bench", "stream": True, "messages": messages, "metadata": metadata}
                headers = {**self._headers, "x-relay-session-id": f"client-{number // 100}"}
                began = time.monotonic()
                try:
                    answer = client.post(self._url, json=body, headers=headers)
                    if answer.status_code != 200 or not answer.content.endswith(b"[DONE]\n\n"):
                        self.failed.append(f"{answer.status_code} {answer.text[:200]}")
                except httpx2.HTTPError as error:
                    self.failed.append(repr(error))
                self.calls.append((began, (time.monotonic() - began) * 1e3))
                time.sleep(0.006)

    def stop(self) -> None:
        self._ended.set()
        self.join(40)


class Scene:
    """A server with an agent that records to it and a client of its gateway."""

    def __init__(self, server: Server, tokens: dict[str, str]) -> None:
        self.server = server
        self.agent = Agent(server.url, tokens["ingest"])
        self.client = Client(server.url, tokens["gateway"])
        self.client.start()

    def end(self) -> int:
        self.client.stop()
        return self.agent.stop()


@contextmanager
def scene(home: Path) -> Iterator[Scene]:
    """A served home under calls; everything is stopped in the end."""
    with started(part("provider")) as (_, port):
        server = Server(home)
        home.mkdir(mode=0o700, exist_ok=True)
        upstream = f"http://127.0.0.1:{port}"
        server.run("upstream", "set", "bench", "--base-url", upstream, "--api-mode", "chat_completions")
        tokens = {scope: server.token(scope) for scope in ("gateway", "ingest")}
        server.start()
        made = Scene(server, tokens)
        try:
            yield made
        finally:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                made.end()
            server.stop(wait=30)


def took(calls: list[Call], begin: float, end: float) -> list[float]:
    """The latencies of the calls that began in a window, slowest last."""
    return sorted(ms for at, ms in calls if begin <= at < end)


def share(values: list[float], part: float) -> float:
    return values[int(len(values) * part)] if values else float("nan")


Fault = Callable[[Scene, Path], AbstractContextManager[None]]


@contextmanager
def _dead(made: Scene, home: Path) -> Iterator[None]:
    made.server.kill()
    yield
    made.server.start()


FAULTS: dict[str, tuple[Fault, bool]] = {
    "no fault": (lambda made, home: contextlib.nullcontext(), True),  # how much windows differ by themselves
    "database locked": (lambda made, home: locked(home), True),
    "disk full": (lambda made, home: full(home.parent), True),
    "no file may grow": (lambda made, home: no_growth(made.server.pid), True),
    "server stopped": (lambda made, home: stopped(made.server.pid), False),
    "server killed": (_dead, False),
}
"""Each fault, and whether the gateway (which is part of the server) outlives it."""


Windows = list[tuple[list[float], list[float]]]
"""Latencies of a healthy and of the faulty window after it, round by round."""


def compare(name: str, made: Scene, home: Path, rounds: int) -> list[Row]:
    """Latencies under one fault as multiples of those just before it."""
    fault, gateway = FAULTS[name]
    calls = {"agent": made.agent.calls, **({"gateway": made.client.calls} if gateway else {})}
    windows: dict[str, Windows] = {who: [] for who in calls}
    for _ in range(rounds):
        begin = time.monotonic()
        time.sleep(WINDOW)
        middle = time.monotonic()
        with fault(made, home):
            entered = time.monotonic()
            time.sleep(WINDOW)
            end = time.monotonic()
        for who, of in calls.items():
            windows[who].append((took(of, begin, middle), took(of, entered, end)))
        until(lambda: made.server.health()["writer"]["queued_bytes"] == 0)  # what had to wait is recorded
        time.sleep(0.5)
    rows: list[Row] = []
    for who, found in windows.items():
        rows.append((f"{who}, {name}: calls", float(sum(len(b) + len(d) for b, d in found)), "", ""))
        rows.append((f"{who}, {name}: healthy p99", share(_pooled(found, 0), 0.99), "ms", ""))
        for part_ in (0.5, 0.99):
            value, low, high = ratio(found, part_)
            rows.append((f"{who}, {name}: p{part_ * 100:.0f}", value, f"× healthy ({low:.2f} to {high:.2f})", ""))
            if name != "no fault":
                rows.append((f"{who}, {name}: p{part_ * 100:.0f}, at least", low, "× healthy", "≤ 1.1"))
    return rows


def _pooled(windows: Windows, which: int) -> list[float]:
    return sorted(ms for window in windows for ms in window[which])


def ratio(windows: Windows, part: float) -> tuple[float, float, float]:
    """A percentile of the faulty windows over that of the healthy ones, and the bounds of its 90 % interval."""
    rng = random.Random(0)
    drawn = [windows, *(rng.choices(windows, k=len(windows)) for _ in range(SAMPLES))]
    value, *others = [share(_pooled(some, 1), part) / share(_pooled(some, 0), part) for some in drawn]
    others.sort()
    return value, share(others, 0.05), share(others, 0.95)


def run(wanted: Iterable[str] = FAULTS, rounds: int = ROUNDS) -> list[Row]:
    """The faults, one after the other, each in so many windows beside as many healthy ones."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        for name in wanted:
            try:
                with contextlib.ExitStack() as stack:
                    disk = stack.enter_context(small_disk(at / "disk", "256m")) if name == "disk full" else at
                    made = stack.enter_context(scene(disk / name.replace(" ", "-")))
                    time.sleep(2)
                    rows += compare(name, made, made.server.home, rounds)
                    if FAULTS[name][1]:
                        rows.append((f"gateway, {name}: failed calls", float(len(made.client.failed)), "", "≤ 0"))
            except NotHere as reason:
                print(f"{name}: {reason}", file=sys.stderr)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.harm", description=__doc__)
    told = f"of {', '.join(FAULTS)} (all)"
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS], metavar="FAULT", help=told)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"windows of each kind ({ROUNDS})")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="puts the table into a page, between its marks")
    wanted = parser.parse_args()
    return report("harm", run(wanted.faults or FAULTS, wanted.rounds), wanted.write)


if __name__ == "__main__":
    sys.exit(main())
