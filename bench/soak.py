"""A long run under the load of a small team, with faults at its end: `python -m bench.soak --minutes 30`.

50 viewers, 8 senders over POST and websocket, 100 gateway streams of 5 chunks a second at once. For a third of the time
caches fill, then nothing is broken: there must be no error, and memory, files and threads may not grow. After that the
database is locked, and the server killed and started again, for three minutes more at most; nothing acknowledged may be
lost. `--write docs/reliability.md` puts the table there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from bench import Row, put_into, table, within
from bench._faults import locked
from bench.gateway import cpu_seconds, part, relayweb, started

PROJECT = Path(__file__).resolve().parent.parent
LOADS = ("streams", "senders", "viewers")
SAMPLE_SECONDS = 5.0
STEADY, LOCKED, UNLOCKED, KILLED, AFTER = "steady", "database locked", "unlocked", "killed", "after the kill"

LATENCIES = (
    ("streams", "chunk through the gateway"),
    ("senders", "POST until committed"),
    ("viewers", "chunk to a viewer"),
    ("viewers", "change to the list"),
)


class Server:
    """relayweb on a home and a port of its own; may be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "RELAYWEB_HOME": str(home)}
        self.port = "0"
        self.process: subprocess.Popen[bytes]
        self.url = ""

    def start(self) -> None:
        log = self.home / "serve.log"
        with log.open("ab") as out:
            began = out.tell()
            command = [sys.executable, "-m", "relayweb", "serve", "--port", self.port]
            self.process = subprocess.Popen(command, env=self.env, cwd=PROJECT, stdout=out, stderr=out)
        deadline = time.monotonic() + 60
        while not (found := re.search(rb"relayweb is at (http://\S+:(\d+))", log.read_bytes()[began:])):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text()[-1000:]}")
            time.sleep(0.05)
        self.url, self.port = found[1].decode(), found[2].decode()

    def health(self) -> dict[str, Any]:
        told: dict[str, Any] = httpx2.get(f"{self.url}/healthz", timeout=30).json()
        return told

    def sample(self) -> tuple[float, int, int]:
        """Resident MB, open files and threads."""
        at = Path(f"/proc/{self.process.pid}")
        resident = int(re.findall(r"VmRSS:\s+(\d+)", (at / "status").read_text())[0]) / 1024
        return resident, len(os.listdir(at / "fd")), len(os.listdir(at / "task"))


class Loads:
    """The three processes that make the load."""

    def __init__(self, server: Server, tokens: dict[str, str], folder: str, share: float = 1.0) -> None:
        config = json.dumps({"url": server.url, "tokens": tokens, "folder": folder, "share": share})
        self.processes = {
            kind: subprocess.Popen(
                [sys.executable, "-m", "bench._soak_load", kind, config],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in LOADS
        }

    def tell(self, phase: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {phase}", file=sys.stderr, flush=True)
        for process in self.processes.values():
            assert process.stdin
            process.stdin.write(phase + "\n")
            process.stdin.flush()

    def stop(self) -> dict[str, Any]:
        for process in self.processes.values():
            assert process.stdin
            process.stdin.write("stop\n")
            process.stdin.flush()
        return {kind: json.loads(process.communicate(timeout=120)[0]) for kind, process in self.processes.items()}

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def watch(server: Server, seconds: float) -> list[tuple[float, int, int]]:
    """Samples of the server, one every five seconds; one a minute is told."""
    samples = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(SAMPLE_SECONDS, max(0.1, end - time.monotonic())))
        samples.append(server.sample())
        if len(samples) % 12 == 0:
            resident, files, threads = samples[-1]
            print(f"{resident:.0f} MB, {files} files, {threads} threads", file=sys.stderr, flush=True)
    return samples


def growth(values: list[float]) -> tuple[float, float]:
    """How much the values grew over the whole time by their median slope (Theil-Sen), and how much they scatter."""
    pairs = [(b - a) / (j - i) for i, a in enumerate(values) for j, b in enumerate(values[i + 1 :], i + 1)]
    slope = statistics.median(pairs)
    middle = statistics.median(v - slope * i for i, v in enumerate(values))
    scatter = statistics.median(abs(v - slope * i - middle) for i, v in enumerate(values))
    return slope * (len(values) - 1), 1.4826 * scatter


def soak(minutes: float, share: float = 1.0) -> list[Row]:
    """One run of so many minutes, under that share of the load."""
    seconds = minutes * 60
    with tempfile.TemporaryDirectory() as folder, started(part("provider")) as (_, port):
        server = Server(Path(folder) / "home")
        server.home.mkdir(mode=0o700)
        upstream = f"http://127.0.0.1:{port}"
        relayweb(server.env, "upstream", "set", "bench", "--base-url", upstream, "--api-mode", "chat_completions")
        scopes = ("gateway", "ingest", "read")
        tokens = {s: relayweb(server.env, "token", "create", "--scope", s).split()[-1] for s in scopes}
        server.start()
        loads = Loads(server, tokens, folder, share)
        try:
            return _run(server, loads, seconds, Path(folder), share)
        finally:
            loads.kill()
            server.process.terminate()
            server.process.wait(20)


def _run(server: Server, loads: Loads, seconds: float, folder: Path, share: float) -> list[Row]:
    loads.tell("warm-up")
    watch(server, seconds / 3)
    loads.tell(STEADY)
    used, began = cpu_seconds(server.process.pid), time.monotonic()
    samples = watch(server, seconds * 2 / 3)
    used, lasted = cpu_seconds(server.process.pid) - used, time.monotonic() - began
    healthy = server.health()
    with locked(server.home):
        loads.tell(LOCKED)
        time.sleep(min(30.0, seconds * 0.05))
        degraded = server.health()
    loads.tell(UNLOCKED)
    recovered = until(lambda: server.health()["writer"]["status"] == "ok")
    watch(server, min(30.0, seconds * 0.05))
    writer = server.health()["writer"]
    loads.tell(KILLED)
    server.process.kill()
    server.process.wait()
    restarted = time.monotonic()
    server.start()
    restarted = time.monotonic() - restarted
    watch(server, min(15.0, seconds * 0.05))  # those who were cut off come back
    loads.tell(AFTER)
    watch(server, min(60.0, seconds * 0.1))
    told = loads.stop()
    settled = until(lambda: server.health()["writer"]["queued_bytes"] == 0)
    ended = server.health()
    server.process.terminate()
    stopped = server.process.wait(20)
    lost, check = (
        _lost(server, folder),
        subprocess.run(
            [sys.executable, "-m", "relayweb", "check"], env=server.env, cwd=PROJECT, stdout=subprocess.DEVNULL
        ),
    )
    _explain(told)
    rows: list[Row] = [("steady phase", lasted / 60, "min", ""), ("share of the load", share, "", "")]
    rows += _rates(told, lasted, used) + _latencies(told) + _growths(samples, lasted)
    rows += [
        ("errors in the steady phase", _errors(told, STEADY), "", "≤ 0"),
        ("lost by the gateway or the recorder, steady phase", _losses(healthy), "", "≤ 0"),
        ("database locked: seen in /healthz", float(degraded["writer"]["status"] == "degraded"), "", "≥ 1"),
        ("database locked: streams with an error", _errors(told, LOCKED, "streams"), "", "≤ 0"),
        ("database locked: dropped, and counted", writer["dropped"], "events", ""),
        ("unlocked: until it records again", recovered, "s", "≤ 10"),
        ("kill -9: until it answers again", restarted, "s", ""),
        ("errors after the kill, once all had come back", _errors(told, AFTER), "", "≤ 0"),
        ("acknowledged events that are not on record", float(lost), "", "≤ 0"),
        ("queue empty after the load", settled, "s", "≤ 10"),
        ("writer's errors after the kill", ended["writer"]["errors"], "", "≤ 0"),
        ("`relayweb check`", float(check.returncode), "problems", "≤ 0"),
        ("exit status of the server", float(stopped), "", "≤ 0"),
    ]
    return rows


def until(so: Callable[[], bool], limit: float = 60.0) -> float:
    """Seconds until something is so; `limit` when it never was."""
    began = time.monotonic()
    while not so() and time.monotonic() - began < limit:
        time.sleep(0.1)
    return time.monotonic() - began


def _rates(told: dict[str, Any], seconds: float, used: float) -> list[Row]:
    def count(kind: str, what: str) -> float:
        return float(_figures(told, kind, STEADY, what).get("count", 0))

    chunks = count("streams", "chunk through the gateway")
    return [
        ("chunks through the gateway", chunks / seconds, "1/s", ""),
        ("whole streams", count("streams", "stream"), "", ""),
        ("frames to viewers", count("viewers", "frames") / seconds, "1/s", ""),
        ("server CPU", 100 * used / seconds, "% core", ""),
    ]


def _latencies(told: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for kind, what in LATENCIES:
        for share in ("p50", "p99"):
            rows.append((f"{what}, {share}", _figures(told, kind, STEADY, what).get(share, float("nan")), "ms", ""))
    chunk = ("streams", "chunk through the gateway")
    for share in ("p50", "p99"):
        value = _figures(told, chunk[0], LOCKED, chunk[1]).get(share, float("nan"))
        rows.append((f"database locked: {chunk[1]}, {share}", value, "ms", ""))
    return rows


def _growths(samples: list[tuple[float, int, int]], seconds: float) -> list[Row]:
    rows: list[Row] = []
    for name, unit, values in zip(
        ("memory", "open files", "threads"), ("MB", "", ""), zip(*samples, strict=True), strict=True
    ):
        grown, scatter = growth([float(v) for v in values])
        middle = statistics.median(values)
        rows.append((f"{name}, median", middle, unit, ""))
        # A trend counts when it stands out from the scatter, and from what a few more clients at once need.
        noise = max(0.05 * middle, 3 * scatter)
        rows.append((f"{name}, growth in {seconds / 60:.0f} min", grown, unit, f"≤ {noise:.3g}"))
        last = [float(v) for v in values[-len(values) // 3 :]]
        rows.append((f"{name}, growth in the last third", growth(last)[0], unit, ""))
    return rows


def _figures(told: dict[str, Any], kind: str, phase: str, what: str) -> dict[str, float]:
    found: dict[str, float] = told[kind].get(phase, {}).get("values", {}).get(what, {})
    return found


def _errors(told: dict[str, Any], phase: str, *kinds: str) -> float:
    return float(sum(sum(told[kind].get(phase, {}).get("errors", {}).values()) for kind in kinds or LOADS))


def _losses(health: dict[str, Any]) -> float:
    gateway = health["gateway"]
    return float(health["writer"]["dropped"] + sum(gateway[f"lost_{n}"] for n in ("calls", "streams", "chunks")))


def _explain(told: dict[str, Any]) -> None:
    for kind, phases in told.items():
        for phase, found in phases.items():
            for text, count in found["errors"].items():
                print(f"{kind}, {phase}: {count} × {text}", file=sys.stderr)


def _lost(server: Server, folder: Path) -> int:
    """How many events that were acknowledged are not on record."""
    wanted = set((folder / "kept").read_text().splitlines())
    command = [sys.executable, "-m", "relayweb", "export"]
    with subprocess.Popen(command, env=server.env, cwd=PROJECT, stdout=subprocess.PIPE) as export:
        assert export.stdout
        for line in export.stdout:
            event = json.loads(line)
            wanted.discard(f"{event['uuid']} {event['kind']} {event.get('scope_category')}")
    return len(wanted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, faults apart (30)")
    parser.add_argument("--share", type=float, default=1.0, help="of the load, for a machine that is busy (1)")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="puts the table into a page, between its marks")
    wanted = parser.parse_args()
    rows = soak(wanted.minutes, wanted.share)
    print(table(rows))
    if wanted.write:
        put_into(wanted.write, "soak", rows)
    return int(any(within(value, budget) is False for _, value, _, budget in rows))


if __name__ == "__main__":
    sys.exit(main())
