"""From a chunk to the screens of those who watch: 50 viewers of one turn, 500 and 1 000 chunks a second in all.

The agent is a process of its own and sends its events over the websocket door; the viewers are sockets of this
process. Latency is from the chunk's own timestamp to its arrival here, of marks and of what the chunk says apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from websockets.asyncio.client import connect

from bench import Row
from bench._agent import Agent, lines

VIEWERS = 50
STREAMS = 10
SECONDS = 8.0
FLUSH = 0.04
"""Seconds of content in a `relay.chunks` mark, as the core flushes it."""


def cpu_seconds(pid: int) -> float:
    """What a process has used so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def served() -> Iterator[tuple[str, dict[str, str], int]]:
    """A server on a fresh home: its address, the environment of its commands, and its process id."""
    with tempfile.TemporaryDirectory() as home, serving(home) as server:
        yield server


@contextlib.contextmanager
def serving(home: str) -> Iterator[tuple[str, dict[str, str], int]]:
    """The same on a home that may hold a record."""
    env = {**os.environ, "RELAYWEB_HOME": home}
    log = Path(home) / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "relayweb", "serve", "--port", "0"]
        server = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 30
        while not (found := re.search(rb"relayweb is at (http://\S+)", log.read_bytes())):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text()[-500:]}")
            time.sleep(0.05)
        yield found[1].decode(), env, server.pid
    finally:
        server.terminate()
        server.wait(20)


def token(env: dict[str, str], scope: str) -> str:
    command = [sys.executable, "-m", "relayweb", "token", "create", "--scope", scope]
    return subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout.split()[-1]


def play(url: str, secret: str, told: Any, per_second: int) -> None:
    """The agent's process: begins a turn, waits for the word, streams for `SECONDS`."""
    asyncio.run(_play(url, secret, told, per_second))


async def _play(url: str, secret: str, told: Any, per_second: int) -> None:
    agent = Agent("bench-live")
    headers = {"authorization": f"Bearer {secret}"}
    async with connect(url.replace("http", "ws") + "/ingest/atof/ws", additional_headers=headers) as door:
        await door.send(lines(agent.begin()).decode())
        attempts = []
        for _ in range(STREAMS):
            attempt, events = agent.attempt()
            attempts.append(attempt)
            await door.send(lines(events).decode())
        told.send(agent.turn)
        await asyncio.to_thread(told.recv)
        pace = STREAMS / per_second
        await asyncio.gather(*(_stream(agent, door, a, pace, k * pace / STREAMS) for k, a in enumerate(attempts)))
        told.send("done")


async def _stream(agent: Agent, door: Any, attempt: str, pace: float, offset: float) -> None:
    begin = time.perf_counter() + offset
    flushed, flush_at = 0, begin + FLUSH
    for index in range(int(SECONDS / pace)):
        await asyncio.sleep(max(0.0, begin + index * pace - time.perf_counter()))
        await door.send(json.dumps(agent.chunk(attempt, index)))
        if time.perf_counter() >= flush_at:
            texts = [f" word{n}" for n in range(flushed, index + 1)]
            await door.send(json.dumps(agent.contents(attempt, flushed, texts)))
            flushed, flush_at = index + 1, time.perf_counter() + FLUSH


class _Chunks(msgspec.Struct):
    attempt: list[str]
    index: list[int]
    at_us: list[int]
    text: list[str | None]


class _Frame(msgspec.Struct):
    cursor: int
    resync: bool
    chunks: _Chunks | None = None


_decode = msgspec.json.Decoder(_Frame).decode


class Viewer:
    """Counts how old each chunk is when it is first seen, and when its content is."""

    def __init__(self) -> None:
        self.ages: list[int] = []
        self.text_ages: list[int] = []
        self.frames = self.resyncs = self.octets = 0
        self._seen: dict[str, int] = {}
        self._read: dict[str, int] = {}

    async def watch(self, url: str, secret: str, turn: str, ready: asyncio.Event) -> None:
        headers = {"authorization": f"Bearer {secret}"}
        at = f"{url.replace('http', 'ws')}/live/turns/{turn}/"
        async with connect(at, additional_headers=headers, compression=None) as socket:
            await socket.send('{"cursor":0}')
            async for text in socket:
                now = time.time_ns() // 1000
                frame = _decode(text)
                await socket.send(f'{{"ack":{frame.cursor}}}')
                self.frames += 1
                self.resyncs += frame.resync
                self.octets += len(text)
                ready.set()
                if frame.chunks is not None:
                    self._take(frame.chunks, now)

    def _take(self, chunks: _Chunks, now: int) -> None:
        for attempt, index, at, said in zip(chunks.attempt, chunks.index, chunks.at_us, chunks.text, strict=True):
            if index >= self._seen.get(attempt, 0):
                self._seen[attempt] = index + 1
                self.ages.append(now - at)
            if said is not None and index >= self._read.get(attempt, 0):
                self._read[attempt] = index + 1
                self.text_ages.append(now - at)


def percentile(values: list[int], share: float) -> float:
    """In milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000 if ordered else float("nan")


async def measure(url: str, secrets: dict[str, str], per_second: int, pid: int) -> tuple[list[Viewer], float]:
    """One run: the viewers that watched it, and the CPU seconds that the server used meanwhile."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    agent = spawn.Process(target=play, args=(url, secrets["ingest"], there, per_second))
    agent.start()
    turn = await asyncio.to_thread(here.recv)
    await asyncio.sleep(0.5)
    viewers = [Viewer() for _ in range(VIEWERS)]
    ready = [asyncio.Event() for _ in viewers]
    tasks = [
        asyncio.create_task(viewer.watch(url, secrets["read"], turn, event))
        for viewer, event in zip(viewers, ready, strict=True)
    ]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in ready)), 20)
    before = cpu_seconds(pid)
    here.send("go")
    await asyncio.to_thread(here.recv)
    used = cpu_seconds(pid) - before
    await asyncio.sleep(0.7)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    agent.join(10)
    return viewers, used


def run() -> list[Row]:
    rows: list[Row] = []
    with served() as (url, env, pid):
        secrets = {scope: token(env, scope) for scope in ("ingest", "read")}
        for per_second, limit in ((500, "≤ 120"), (1000, "≤ 250")):
            viewers, used = asyncio.run(measure(url, secrets, per_second, pid))
            ages = [age for viewer in viewers for age in viewer.ages]
            texts = [age for viewer in viewers for age in viewer.text_ages]
            whole = int(per_second * SECONDS) * VIEWERS
            name = f"chunk to {VIEWERS} viewers at {per_second}/s"
            rows += [
                (f"{name}, p50", percentile(ages, 0.5), "ms", ""),
                (f"{name}, p95", percentile(ages, 0.95), "ms", limit),
                (f"{name}, content, p95", percentile(texts, 0.95), "ms", ""),
                (f"{name}, chunks seen", 100 * len(ages) / whole, "%", "≥ 99"),
                (f"{name}, server CPU", 100 * used / SECONDS, "% core", ""),
                (f"{name}, frames a viewer", sum(v.frames for v in viewers) / VIEWERS / SECONDS, "1/s", ""),
            ]
    return rows


if __name__ == "__main__":
    from bench import table

    print(table(run()))
