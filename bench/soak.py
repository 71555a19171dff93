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
from pathlib import Path
from typing import Any

from bench import Row, report
from bench._faults import Server, locked, record_rows, until
from bench.gateway import PROJECT, cpu_seconds, part, started

LOADS = ("streams", "senders", "viewers")
SAMPLE_SECONDS = 5.0
STEADY, LOCKED, UNLOCKED, KILLED, AFTER = "steady", "database locked", "unlocked", "killed", "after the kill"

LATENCIES = (
    ("streams", "chunk through the gateway"),
    ("senders", "POST until committed"),
    ("viewers", "chunk to a viewer"),
    ("viewers", "change to the list"),
)


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


def sample(pid: int) -> tuple[float, int, int]:
    """Resident MB, open files and threads of a process."""
    at = Path(f"/proc/{pid}")
    resident = int(re.findall(r"VmRSS:\s+(\d+)", (at / "status").read_text())[0]) / 1024
    return resident, len(os.listdir(at / "fd")), len(os.listdir(at / "task"))


def watch(server: Server, seconds: float) -> list[tuple[float, int, int]]:
    """Samples of the server, one every five seconds; one a minute is told."""
    samples = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(SAMPLE_SECONDS, max(0.1, end - time.monotonic())))
        samples.append(sample(server.pid))
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
    with tempfile.TemporaryDirectory() as folder, started(part("provider")) as (_, port):
        server = Server(Path(folder) / "home")
        server.home.mkdir(mode=0o700)
        upstream = f"http://127.0.0.1:{port}"
        server.run("upstream", "set", "bench", "--base-url", upstream, "--api-mode", "chat_completions")
        tokens = {scope: server.token(scope) for scope in ("gateway", "ingest", "read")}
        server.start()
        loads = Loads(server, tokens, folder, share)
        try:
            return _run(server, loads, minutes * 60, Path(folder), share)
        finally:
            loads.kill()
            server.stop()


def _run(server: Server, loads: Loads, seconds: float, folder: Path, share: float) -> list[Row]:
    loads.tell("warm-up")
    watch(server, seconds / 3)
    loads.tell(STEADY)
    used, began = cpu_seconds(server.pid), time.monotonic()
    samples = watch(server, seconds * 2 / 3)
    used, lasted = cpu_seconds(server.pid) - used, time.monotonic() - began
    healthy = server.health()
    broken = _locked(server, loads, seconds) + _killed(server, loads, seconds)
    told = loads.stop()
    settled = until(lambda: server.health()["writer"]["queued_bytes"] == 0)
    ended = server.health()
    status = server.stop()
    _explain(told)
    return [
        ("steady phase", lasted / 60, "min", ""),
        ("share of the load", share, "", ""),
        *_rates(told, lasted, used),
        *_latencies(told),
        *_growths(samples, lasted),
        ("errors in the steady phase", _errors(told, STEADY), "", "≤ 0"),
        ("writer's errors until its end", healthy["writer"]["errors"], "", "≤ 0"),
        ("lost by the gateway or the recorder until its end", _losses(healthy), "", "≤ 0"),
        ("database locked: streams with an error", _errors(told, LOCKED, "streams"), "", "≤ 0"),
        *broken,
        ("errors after the kill, once all had come back", _errors(told, AFTER), "", "≤ 0"),
        ("queue empty after the load", settled, "s", "≤ 10"),
        ("writer's errors after the kill", ended["writer"]["errors"], "", "≤ 0"),
        ("exit status of the server", float(-1 if status is None else status), "", "≤ 0"),
        *record_rows(server, set((folder / "kept").read_text().splitlines())),
    ]


def _locked(server: Server, loads: Loads, seconds: float) -> list[Row]:
    with locked(server.home):
        loads.tell(LOCKED)
        time.sleep(min(30.0, seconds * 0.05))
        degraded = server.health()["writer"]["status"] == "degraded"
    loads.tell(UNLOCKED)
    recovered = until(lambda: server.health()["writer"]["status"] == "ok")
    watch(server, min(30.0, seconds * 0.05))
    return [
        ("database locked: seen in /healthz", float(degraded), "", "≥ 1"),
        ("database locked: dropped, and counted", server.health()["writer"]["dropped"], "events", ""),
        ("unlocked: until it records again", recovered, "s", "≤ 10"),
    ]


def _killed(server: Server, loads: Loads, seconds: float) -> list[Row]:
    loads.tell(KILLED)
    server.kill()
    began = time.monotonic()
    server.start()
    lasted = time.monotonic() - began
    watch(server, min(15.0, seconds * 0.05))  # those who were cut off come back
    loads.tell(AFTER)
    watch(server, min(60.0, seconds * 0.1))
    return [("kill -9: until it answers again", lasted, "s", "")]


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, faults apart (30)")
    parser.add_argument("--share", type=float, default=1.0, help="of the load, for a machine that is busy (1)")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="puts the table into a page, between its marks")
    wanted = parser.parse_args()
    return report("soak", soak(wanted.minutes, wanted.share), wanted.write)


if __name__ == "__main__":
    sys.exit(main())
