"""What the gateway adds to a stream, recording included, against a bare httpx2 proxy on the same server.

Latency is that of a chunk from the provider's write to the client's read, in streams of 50 chunks a second; CPU is the
server process's own, in a burst.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench import Row

ROUNDS = 2
STREAMS, CHUNKS, INTERVAL = 4, 100, 0.02
BURST_STREAMS, BURST_CHUNKS = 4, 500
PROJECT = Path(__file__).resolve().parent.parent


def run() -> list[Row]:
    """Latency and CPU a chunk of the bare proxy and of the gateway, in turns so that both see the same load."""
    with tempfile.TemporaryDirectory() as home, started(part("provider")) as (_, port):
        upstream = f"http://127.0.0.1:{port}"
        env = {**os.environ, "RELAYWEB_HOME": home}
        relayweb(env, "upstream", "set", "bench", "--base-url", upstream, "--api-mode", "chat_completions")
        token = relayweb(env, "token", "create", "--scope", "gateway").split()[-1]
        serve = [sys.executable, "-m", "relayweb", "serve", "--port", "0"]
        with started(part("proxy", upstream)) as (proxy, proxy_port), started(serve, env) as (gateway, own_port):
            bare = Measured(f"http://127.0.0.1:{proxy_port}/v1/chat/completions", proxy.pid, {})
            url = f"http://127.0.0.1:{own_port}/gw/bench/v1/chat/completions"
            ours = Measured(url, gateway.pid, {"x-relay-token": token})
            for _ in range(ROUNDS):
                bare.round()
                ours.round()
    return [
        ("bare proxy, latency a chunk, p50", bare.latency(0.5), "ms", ""),
        ("bare proxy, latency a chunk, p95", bare.latency(0.95), "ms", ""),
        ("bare proxy, CPU a chunk in a burst", bare.cpu(), "µs", ""),
        ("gateway, latency a chunk, p50", ours.latency(0.5), "ms", ""),
        ("gateway, latency a chunk, p95", ours.latency(0.95), "ms", ""),
        ("gateway, CPU a chunk in a burst, recording included", ours.cpu(), "µs", ""),
        ("gateway, added latency a chunk, p50", ours.latency(0.5) - bare.latency(0.5), "ms", "≤ 1"),
        ("gateway, added latency a chunk, p95", ours.latency(0.95) - bare.latency(0.95), "ms", "≤ 5"),
    ]


class Measured:
    """What was measured of one server, round by round."""

    def __init__(self, url: str, pid: int, headers: dict[str, str]) -> None:
        self.url, self.pid, self.headers = url, pid, headers
        self.latencies: list[float] = []
        self.cpus: list[float] = []
        asyncio.run(streams(url, headers, 1, 50, 0.001))  # warm up

    def round(self) -> None:
        self.latencies += asyncio.run(streams(self.url, self.headers, STREAMS, CHUNKS, INTERVAL))
        before = cpu_seconds(self.pid)
        asyncio.run(streams(self.url, self.headers, BURST_STREAMS, BURST_CHUNKS, 0))
        time.sleep(0.5)  # what is recorded after the last chunk counts too
        self.cpus.append((cpu_seconds(self.pid) - before) / (BURST_STREAMS * BURST_CHUNKS) * 1e6)

    def latency(self, share: float) -> float:
        """In ms; `share` of the chunks were no slower."""
        return sorted(self.latencies)[int(len(self.latencies) * share)]

    def cpu(self) -> float:
        """In µs a chunk."""
        return statistics.median(self.cpus)


async def streams(url: str, headers: dict[str, str], count: int, chunks: int, interval: float) -> list[float]:
    """Reads `count` streams at once; the latency of each chunk in ms."""
    latencies: list[float] = []

    async def one(client: httpx2.AsyncClient, number: int) -> None:
        body = {
            "model": "bench",
            "stream": True,
            "messages": [{"role": "user", "content": f"{number} {time.monotonic_ns()}"}],
            "metadata": {"n": chunks, "interval": interval},
        }
        async with client.stream("POST", url, json=body, headers=headers) as response:
            async for part in response.aiter_raw():
                now = time.monotonic_ns()
                latencies.extend((now - int(at)) / 1e6 for at in re.findall(rb'"system_fingerprint":(\d+)', part))

    async with httpx2.AsyncClient(timeout=60) as client:
        await asyncio.gather(*[one(client, i) for i in range(count)])
    if len(latencies) < count * chunks * 0.99:
        raise RuntimeError(f"{len(latencies)} of {count * chunks} chunks arrived from {url}")
    return latencies


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def part(*args: str) -> list[str]:
    return [sys.executable, "-m", "bench._gateway_parts", *args]


def relayweb(env: dict[str, str], *args: str) -> str:
    command = [sys.executable, "-m", "relayweb", *args]
    return subprocess.run(command, env=env, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def started(command: list[str], env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that says the port it listens at, as a bare number or in a URL."""
    process = subprocess.Popen(
        command, env=env, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout
        for line in process.stdout:
            if found := re.search(r"^(\d+)$|http://[^/\s:]+:(\d+)", line):
                yield process, int(found[1] or found[2])
                return
        raise RuntimeError(f"{' '.join(command)} did not start")
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout:
            process.stdout.close()


if __name__ == "__main__":
    from bench import table

    print(table(run()))
