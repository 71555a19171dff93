"""Four kinds of senders that go on through crashes of the server, and remember what was acknowledged.

Each plays conversations, one after the other. What was not acknowledged it sends again, or gives up: both happen to
real agents. The websocket acknowledges nothing; what its sender has seen in the API counts as acknowledged.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from bench._agent import Agent, lines
from tests.served import Served

Event = dict[str, Any]
Key = tuple[str, str, str | None]


def key(event: Event) -> Key:
    """What identifies an event."""
    return event["uuid"], event["kind"], event.get("scope_category")


def conversation(rng: random.Random) -> list[Event]:
    """A session with one turn of a few streamed attempts, complete, in the order in which it happens."""
    agent = Agent(f"crash-{rng.getrandbits(40):x}")
    events = agent.begin("Survive, please.")
    for _ in range(rng.randint(1, 3)):
        attempt, begun = agent.attempt("x" * rng.randint(10, 2000))
        call = begun[0]["uuid"]
        chunks = rng.randint(2, 25)
        events += begun + [agent.chunk(attempt, i) for i in range(chunks)]
        events.append(agent.contents(attempt, 0, [f" word{i}" for i in range(chunks)]))
        events.append(agent.end(attempt, "openai.chat_completions", "llm", call, {"choices": []}))
        events.append(agent.end(call, "relay.logical_llm_call", "function", agent.turn, {"outcome": "success"}))
    events.append(agent.end(agent.turn, "relay.turn", "function", agent.session, {"outcome": "success"}))
    events.append(agent.end(agent.session, "relay.session", "agent", None))
    return events


class Refused(Exception):
    """The server answered, but did not take the events."""


_GONE = (httpx2.TransportError, WebSocketException, OSError, EOFError, Refused)


class Sender(threading.Thread):
    """Sends until told to stop. Subclasses say how by `deliver`, which returns once its events are acknowledged."""

    def __init__(self, served: Served, ingest: str, read: str, seed: int) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.served = served
        self.headers = {"authorization": f"Bearer {ingest}"}
        self.client = httpx2.Client(timeout=10, limits=httpx2.Limits(max_keepalive_connections=0))
        self.reader = {"authorization": f"Bearer {read}"}
        self.rng = random.Random(seed)
        self.sent: dict[Key, Event] = {}
        self.acknowledged: set[Key] = set()
        self.interrupted = 0
        self.error: Exception | None = None
        self.stopping = threading.Event()
        self.open = contextlib.ExitStack()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                for batch in self.batches(conversation(self.rng)):
                    self.send(batch)
        except Exception as error:
            self.error = error
        finally:
            self.client.close()
            self.open.close()

    def send(self, batch: list[Event]) -> None:
        """Deliver a batch, however often the server goes away; two of three interrupted ones are sent again."""
        self.sent |= {key(event): event for event in batch}
        while not self.stopping.is_set():
            try:
                self.deliver(batch)
            except _GONE:
                self.interrupted += 1
                time.sleep(0.05)
                if self.rng.random() < 1 / 3:
                    return
            else:
                self.acknowledged.update(key(event) for event in batch)
                time.sleep(0.005)
                return

    def batches(self, events: list[Event]) -> Iterator[list[Event]]:
        """A conversation in the pieces in which it is delivered."""
        yield events

    def deliver(self, batch: list[Event]) -> None:
        raise NotImplementedError

    def post(self, content: Any, count: int, **headers: str) -> None:
        answer = self.client.post(
            f"{self.served.url}/ingest/atof", content=content, headers={**self.headers, **headers}
        )
        if answer.status_code != 200:
            raise Refused(answer.text)
        told = answer.json()
        assert told["accepted"] + told["duplicates"] == count and not told["rejected"], told


class Batches(Sender):
    """POSTs of a few dozen lines."""

    def batches(self, events: list[Event]) -> Iterator[list[Event]]:
        while events:
            size = self.rng.randint(5, 40)
            yield events[:size]
            events = events[size:]

    def deliver(self, batch: list[Event]) -> None:
        self.post(lines(batch), len(batch))


class Singles(Sender):
    """POSTs of one event each, as Relay's POST sink makes them."""

    def batches(self, events: list[Event]) -> Iterator[list[Event]]:
        yield from ([event] for event in events)

    def deliver(self, batch: list[Event]) -> None:
        self.post(json.dumps(batch[0]).encode(), 1, **{"content-type": "application/json"})


class Uploads(Sender):
    """Long NDJSON uploads, read by the server as they arrive and acknowledged at their end."""

    def batches(self, events: list[Event]) -> Iterator[list[Event]]:
        yield events + conversation(self.rng)

    def deliver(self, batch: list[Event]) -> None:
        def pieces() -> Iterator[bytes]:
            data = lines(batch)
            for at in range(0, len(data), 3000):
                yield data[at : at + 3000]
                time.sleep(0.005)

        self.post(pieces(), len(batch), **{"content-type": "application/x-ndjson"})


class Sockets(Sender):
    """Events over a websocket; a conversation whose last end shows in the API has arrived whole.

    `cut` holds what was sent over each connection that broke: of those events a first part is on record, without a gap.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cut: list[list[Key]] = []
        self.socket: Any = None

    def deliver(self, batch: list[Event]) -> None:
        passed: list[Key] = []
        try:
            if self.socket is None:
                url = self.served.url.replace("http", "ws") + "/ingest/atof/ws"
                opening = connect(url, additional_headers=self.headers, open_timeout=5, close_timeout=1)
                self.socket = self.open.enter_context(opening)
            for event in batch:
                self.socket.send(json.dumps(event))
                passed.append(key(event))
            self.await_shown(batch[-1]["uuid"])
        except _GONE:
            self.open.close()
            self.socket = None
            self.cut.append(passed)
            raise

    def await_shown(self, uuid: str) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = self.client.get(f"{self.served.url}/api/v1/scopes/{uuid}", headers=self.reader)
            if answer.status_code == 200 and answer.json()["status"] == "ok":
                return
            with contextlib.suppress(TimeoutError):  # its end says that the process died, though another one answers
                self.socket.recv(timeout=0.02)
        raise AssertionError(f"scope {uuid}, sent over an open websocket, is not on record after 30 s")


KINDS: list[type[Sender]] = [Batches, Singles, Uploads, Sockets]
