"""Senders that go on while servers die under them, and remember what was acknowledged."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2

from bench._agent import Agent, Event, lines
from bench._faults import identity
from tests.served import Served


def until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def turn(session: str, chunks: int = 5) -> list[Event]:
    """A session with one turn of one streamed attempt, complete."""
    agent = Agent(session)
    events = agent.begin("Survive, please.")
    attempt, begun = agent.attempt(f"What of {session}?")
    events += begun + [agent.chunk(attempt, index) for index in range(chunks)]
    events.append(agent.contents(attempt, 0, [f" word{index}" for index in range(chunks)]))
    events.append(agent.end(attempt, "openai.chat_completions", "llm", begun[0]["uuid"], {"choices": []}))
    events.append(agent.end(begun[0]["uuid"], "relay.logical_llm_call", "function", agent.turn, {"outcome": "success"}))
    events.append(agent.end(agent.turn, "relay.turn", "function", agent.session, {"outcome": "success"}))
    events.append(agent.end(agent.session, "relay.session", "agent", None))
    return events


def post(served: Served, token: str, events: list[Event]) -> dict:
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx2.post(served.url + "/ingest/atof", content=lines(events), headers=headers, timeout=30)
    answer.raise_for_status()
    receipt: dict = answer.json()
    assert not receipt["rejected"], receipt
    return receipt


class Sender(threading.Thread):
    """Sends one turn after the other, each in two parts to different servers; gives no turn up until it is taken."""

    def __init__(self, name: str, token: str, servers: list[Served]) -> None:
        super().__init__(name=name)
        self.token, self.servers = token, itertools.cycle(servers)
        self.acknowledged: set[str] = set()
        """Identities of events."""
        self.failures = 0
        self.stopping = threading.Event()
        self.wrong: BaseException | None = None

    def run(self) -> None:
        try:
            for number in itertools.count():
                if self.stopping.is_set():
                    return
                events = turn(f"{self.name}-{number}")
                for part in (events[: len(events) // 2], events[len(events) // 2 :]):
                    self.deliver(part)
                    self.acknowledged |= {identity(event) for event in part}
        except BaseException as error:
            self.wrong = error

    def deliver(self, events: list[Event]) -> None:
        for server in self.servers:
            try:
                post(server, self.token, events)
                return
            except (httpx2.TransportError, httpx2.HTTPStatusError) as error:
                if isinstance(error, httpx2.HTTPStatusError):
                    assert error.response.status_code in (429, 503), error.response.text
                self.failures += 1
                time.sleep(0.1)


@contextmanager
def sending(token: str, servers: list[Served], count: int = 4) -> Iterator[list[Sender]]:
    """Senders that send while the block runs. Afterwards all that they sent has been acknowledged."""
    senders = [Sender(f"sender-{number}", token, servers) for number in range(count)]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        for sender in senders:
            sender.stopping.set()
        for sender in senders:
            sender.join(60)
    for sender in senders:
        assert not sender.is_alive() and sender.wrong is None, sender.wrong


def check(served: Served, senders: list[Sender]) -> int:
    """All that was acknowledged is on record, once, and every turn is whole; returns how many turns there are."""
    done = served.run("export")
    assert done.returncode == 0, done.stderr.decode()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    keys = [identity(event) for event in events]
    assert len(keys) == len(set(keys)), "an event is on record twice"
    acknowledged = set().union(*(sender.acknowledged for sender in senders))
    assert acknowledged and not acknowledged - set(keys)
    done = served.run("check")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return sum(event["name"] == "relay.turn" and event["scope_category"] == "end" for event in events)
