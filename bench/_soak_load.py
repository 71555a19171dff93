"""The load of bench/soak.py, each kind in a process of its own: `streams`, `senders`, `viewers`.

Standard input says what phase it is, a line each, and ends with `stop`; standard output gets one JSON summary.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import sys
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import httpx2
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from bench._agent import Agent, Event, lines

STREAMS, INTERVAL = 100, 0.2
POSTERS = SOCKETS = 4
VIEWERS = 50
EVENTS_A_SECOND = 20
"""Of each sender."""
SILENCE = 15.0
"""Seconds without a frame after which a viewer calls its connection dead, as docs/live.md says."""
_TROUBLE = (httpx2.HTTPError, WebSocketException, OSError, EOFError)


class Load:
    """What the workers of one process measure, by phase."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.url: str = config["url"]
        self.tokens: dict[str, str] = config["tokens"]
        self.folder: str = config["folder"]
        self.share: float = config["share"]
        self.phase = "warm-up"
        self.stopping = asyncio.Event()
        self.values: dict[str, dict[str, array[float]]] = defaultdict(lambda: defaultdict(lambda: array("d")))
        self.errors: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, what: str, value: float) -> None:
        self.values[self.phase][what].append(value)

    def error(self, error: Exception | str) -> None:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.errors[self.phase][text[:200]] += 1

    def some(self, count: int) -> range:
        """As many of `count` workers as the run wants."""
        return range(max(1, round(count * self.share)))

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    def summary(self) -> dict[str, Any]:
        return {
            phase: {
                "values": {what: _figures(values) for what, values in self.values[phase].items()},
                "errors": dict(self.errors[phase]),
            }
            for phase in self.values.keys() | self.errors.keys()
        }

    async def obey(self) -> None:
        """Follow standard input until it says stop."""
        while (line := (await asyncio.to_thread(sys.stdin.readline)).strip()) not in ("", "stop"):
            self.phase = line
        self.stopping.set()


def _figures(values: array[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {"count": len(ordered), **{name: ordered[int(len(ordered) * share)] for name, share in shares.items()}}


# Streams through the gateway


async def streams(load: Load) -> None:
    """100 clients, each with one stream after the other; one of ten hangs up on its stream."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=60, limits=limits) as client:
        await asyncio.gather(*[_streamer(load, client, number) for number in load.some(STREAMS)])


async def _streamer(load: Load, client: httpx2.AsyncClient, number: int) -> None:
    rng = random.Random(number)
    await load.pause(rng.uniform(0, 10))
    talk = 0
    while not load.stopping.is_set():
        talk += 1
        chunks = rng.randint(25, 100)
        try:
            await _stream(load, client, f"soak-{number}-{talk // 5}", chunks, hang_up=rng.random() < 0.1)
        except _TROUBLE as error:
            load.error(error)
            await load.pause(0.5)


async def _stream(load: Load, client: httpx2.AsyncClient, session: str, chunks: int, *, hang_up: bool) -> None:
    asked = f"{time.monotonic_ns()} " + "Tell me more. " * 40
    body = {
        "model": "bench",
        "stream": True,
        "messages": [{"role": "user", "content": asked}],
        "metadata": {"n": chunks, "interval": INTERVAL},
    }
    headers = {"x-relay-token": load.tokens["gateway"], "x-relay-session-id": session}
    seen, last = 0, b""
    async with client.stream("POST", f"{load.url}/gw/bench/v1/chat/completions", json=body, headers=headers) as answer:
        if answer.status_code != 200:
            load.error(f"a stream was answered with {answer.status_code}")
            return
        async for part in answer.aiter_raw():
            now = time.monotonic_ns()
            for at in re.findall(rb'"system_fingerprint":(\d+)', part):
                load.add("chunk through the gateway", (now - int(at)) / 1e6)
                seen += 1
            last = part
            if hang_up and seen > chunks // 2 or load.stopping.is_set():
                return
    if seen != chunks or not last.endswith(b"[DONE]\n\n"):
        load.error(f"a stream ended after {seen} of {chunks} chunks")
    load.add("stream", 1)


# Senders at the doors


def conversations(number: int) -> Iterable[list[Event]]:
    """One conversation after the other, in pieces a quarter of a second long."""
    count = EVENTS_A_SECOND // 4
    for talk in range(1 << 30):
        agent = Agent(f"sender-{number}-{talk}")
        yield agent.begin("Soak, please.")
        for _ in range(3):
            attempt, begun = agent.attempt("Go on. " * 50)
            call = begun[0]["uuid"]
            yield begun
            for first in range(0, 60, count):
                chunks = [agent.chunk(attempt, first + i) for i in range(count)]
                yield [*chunks, agent.contents(attempt, first, [f" word{first + i}" for i in range(count)])]
            yield [
                agent.end(attempt, "openai.chat_completions", "llm", call, {"choices": []}),
                agent.end(call, "relay.logical_llm_call", "function", agent.turn, {"outcome": "success"}),
            ]
        yield [
            agent.end(agent.turn, "relay.turn", "function", agent.session, {"outcome": "success"}),
            agent.end(agent.session, "relay.session", "agent", None),
        ]


class Kept:
    """The events that must be on record in the end, in a file."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w")  # noqa: SIM115 - closed by `close`

    def add(self, events: list[Event]) -> None:
        self._file.writelines(f"{e['uuid']} {e['kind']} {e.get('scope_category')}\n" for e in events)

    def close(self) -> None:
        self._file.close()


async def senders(load: Load) -> None:
    """Four POST batches and wait for the answer, four send over a websocket as Relay's sink does."""
    kept = Kept(f"{load.folder}/kept")
    try:
        async with httpx2.AsyncClient(timeout=30) as client:
            posters = [_poster(load, client, kept, number) for number in load.some(POSTERS)]
            await asyncio.gather(*posters, *[_socket(load, kept, POSTERS + i) for i in load.some(SOCKETS)])
    finally:
        kept.close()


async def _paced(load: Load, number: int) -> AsyncIterator[list[Event]]:
    await load.pause(number / 10)
    for events in conversations(number):
        if load.stopping.is_set():
            return
        yield events
        await load.pause(0.25)


async def _poster(load: Load, client: httpx2.AsyncClient, kept: Kept, number: int) -> None:
    headers = {"authorization": f"Bearer {load.tokens['ingest']}"}
    async for events in _paced(load, number):
        while True:
            began = time.monotonic()
            try:
                answer = await client.post(f"{load.url}/ingest/atof", content=lines(events), headers=headers)
                if answer.status_code == 200:
                    told = answer.json()
                    if told["accepted"] + told["duplicates"] != len(events):
                        load.error(f"of {len(events)} events {told} were taken")
                    load.add("POST until committed", (time.monotonic() - began) * 1e3)
                    kept.add(events)
                    break
                load.error(f"a POST was answered with {answer.status_code}")
            except _TROUBLE as error:
                load.error(error)
            if load.stopping.is_set():
                return
            await load.pause(0.5)


async def _socket(load: Load, kept: Kept, number: int) -> None:
    url = load.url.replace("http", "ws") + "/ingest/atof/ws"
    headers = {"authorization": f"Bearer {load.tokens['ingest']}"}
    pieces = _paced(load, number)
    while not load.stopping.is_set():
        sent: list[Event] = []
        try:
            async with connect(url, additional_headers=headers, ping_interval=None, open_timeout=30) as door:
                async for events in pieces:
                    for event in events:
                        await door.send(json.dumps(event))
                    sent += events
                    load.add("events over websockets", len(events))
            kept.add(sent)  # it was open to the end
        except _TROUBLE as error:
            load.error(error)
            pieces = _paced(load, number + 100)  # what a broken socket held is not acknowledged
            await load.pause(0.5)


# Viewers


async def viewers(load: Load) -> None:
    """25 watch the list; 25 watch a turn, another one every twenty seconds or so."""
    async with httpx2.AsyncClient(timeout=30) as client:
        of_turn = [_turn_viewer(load, client, number) for number in load.some(VIEWERS // 2)]
        await asyncio.gather(*of_turn, *[_list_viewer(load) for _ in load.some(VIEWERS // 2)])


async def _list_viewer(load: Load) -> None:
    def take(frame: dict[str, Any], now_us: int) -> None:
        newest = frame.get("newest_us")
        if newest is not None:
            load.add("change to the list", (now_us - newest) / 1e3)

    while not load.stopping.is_set():
        await _watch(load, "/live/turns/", 60, take)


async def _turn_viewer(load: Load, client: httpx2.AsyncClient, number: int) -> None:
    rng = random.Random(number)
    headers = {"authorization": f"Bearer {load.tokens['read']}"}

    def take(frame: dict[str, Any], now_us: int) -> None:
        for at_us in frame.get("chunks", {}).get("at_us", ()):
            load.add("chunk to a viewer", (now_us - at_us) / 1e3)

    while not load.stopping.is_set():
        try:
            answer = await client.get(f"{load.url}/api/v1/turns?limit=100&q=status:running", headers=headers)
            if answer.status_code != 200:
                load.error(f"the API answered with {answer.status_code}: {answer.text[:100]}")
        except _TROUBLE as error:
            load.error(error)
            await load.pause(1)
            continue
        turns = answer.json()["turns"] if answer.status_code == 200 else []
        if turns:
            await _watch(load, f"/live/turns/{rng.choice(turns)['uuid']}/", rng.uniform(10, 30), take)
        else:
            await load.pause(1)


async def _watch(load: Load, path: str, seconds: float, take: Callable[[dict[str, Any], int], None]) -> None:
    """Read one live socket for a while; its first frame tells what was before and is not measured."""
    headers = {"authorization": f"Bearer {load.tokens['read']}"}
    seen = 0
    try:
        async with connect(load.url.replace("http", "ws") + path, additional_headers=headers, open_timeout=30) as live:
            await live.send('{"cursor":0}')
            ends = asyncio.get_running_loop().time() + seconds
            while not load.stopping.is_set() and asyncio.get_running_loop().time() < ends:
                frame = json.loads(await asyncio.wait_for(live.recv(), SILENCE))
                now_us = time.time_ns() // 1000
                await live.send(f'{{"ack":{frame["cursor"]}}}')
                if seen and not frame["resync"]:
                    take(frame, now_us)
                load.add("frames", 1)
                seen += 1
    except TimeoutError:
        load.error(f"a viewer got nothing for {SILENCE:g} s after {seen} frames")
    except _TROUBLE as error:
        load.error(error)
        await load.pause(0.5)


async def main(kind: str, config: str) -> None:
    load = Load(json.loads(config))
    work: Callable[[Load], Awaitable[None]] = {"streams": streams, "senders": senders, "viewers": viewers}[kind]
    obeying = asyncio.create_task(load.obey())
    await work(load)
    await obeying
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
