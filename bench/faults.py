"""What two web processes on PostgreSQL and Redis lose when something dies under load: `python -m bench.faults`.

Senders post turns, each half to another process, and callers use both gateways, all the time; who is refused goes to
the other process, as behind any proxy. Meanwhile, `--rounds` times, each fault comes and goes. In the end everything
acknowledged must be on record, once, and the record whole.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from bench import Row, report
from bench._faults import Server, record_rows, stopped, until
from tests.scale import engines
from tests.scale.conftest import Pair
from tests.scale.sending import sending
from tests.served import Served

SENDERS, CALLERS = 8, 4
LASTS = 3.0
"""Seconds that something stays dead or still."""


class Caller(threading.Thread):
    """Calls through the gateways, one after the other; a call that fails is made again at the other process."""

    def __init__(self, pair: Pair, urls: list[str], number: int) -> None:
        super().__init__(daemon=True)
        self.made = self.again = self.lost = 0
        self.slowest = 0.0
        self._headers = {"x-relay-token": pair.gateway, "x-relay-session-id": f"caller-{number}", "x-demo-pace": "0"}
        self._urls, self.ended = itertools.cycle(urls), threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            began = time.monotonic()
            self.made += 1
            for attempt in range(20):
                if self._call(next(self._urls)):
                    break
                self.again += 1
                time.sleep(0.1 * attempt)
            else:
                self.lost += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.02)

    def _call(self, url: str) -> bool:
        body = {"model": "demo-mini", "messages": [{"role": "user", "content": f"{self.name} {self.made}"}]}
        with contextlib.suppress(httpx2.TransportError):
            answer = httpx2.post(f"{url}/gw/demo/v1/chat/completions", json=body, headers=self._headers, timeout=30)
            return answer.status_code == 200
        return False


class Cable(threading.Thread):
    """A way to a server whose connections can all be cut at once, as by a proxy that dies."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self._served = served
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._open: list[socket.socket] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._door.accept()[0]
                with contextlib.suppress(OSError):
                    far = socket.create_connection(("127.0.0.1", int(self._served.url.rpartition(":")[2])))
                    self._open += near, far
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=self._carry, args=pair, daemon=True).start()
                    continue
                near.close()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):  # after a reset, too: else the other side waits for ever
            other.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        open_, self._open = self._open, []
        for end in open_:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no end
                end.shutdown(socket.SHUT_RDWR)
                end.close()


class Scene:
    """Two processes, what they stand on, and the ways to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.postgres, self.redis = engines.Postgres(), engines.Redis()
        for engine in (self.postgres, self.redis):
            stack.callback(engine.close)
            engine.start()
        self.database = self.postgres.create()
        env = {"DATABASE_URL": self.database, "REDIS_URL": self.redis.url, "RELAYWEB_SECRET_KEY": "bench"}
        homes = [folder / name for name in ("one", "other")]
        for home in homes:
            home.mkdir(mode=0o700)
        self.served = [Server(home, **env) for home in homes]
        for one in self.served:
            stack.callback(one.stop)
        self.pair = Pair(self.served)
        self.cables = [Cable(one) for one in self.served]
        for cable in self.cables:
            cable.start()

    def well(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return all(one.get("/healthz").json()["status"] == "ok" for one in self.served)
        return False

    @contextmanager
    def server_killed(self) -> Iterator[None]:
        one = random.choice(self.served)
        one.kill()
        yield
        one.start()

    def server_stopped(self) -> contextlib.AbstractContextManager[None]:
        return stopped(random.choice(self.served).pid)

    @contextmanager
    def killed(self, engine: engines.Engine) -> Iterator[None]:
        engine.kill()
        yield
        engine.start()

    @contextmanager
    def connections_cut(self) -> Iterator[None]:
        import psycopg

        for cable in self.cables:
            cable.cut()
        with psycopg.connect(self.postgres.url("postgres"), autocommit=True) as connection:
            told = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
            )
            connection.execute(told, [self.database.rpartition("/")[2]])
        with socket.create_connection(("127.0.0.1", self.redis.port), 2) as redis:
            redis.sendall(b"CLIENT KILL TYPE normal SKIPME yes\r\nCLIENT KILL TYPE pubsub\r\n")
            redis.recv(100)
        yield

    def faults(self) -> dict[str, Callable[[], contextlib.AbstractContextManager[None]]]:
        return {
            "kill -9 of a server": self.server_killed,
            "a server stands still": self.server_stopped,
            "kill -9 of PostgreSQL": partial(self.killed, self.postgres),
            "PostgreSQL stands still": self.postgres.paused,
            "kill -9 of Redis": partial(self.killed, self.redis),
            "Redis stands still": self.redis.paused,
            "all connections cut": self.connections_cut,
        }


def run(rounds: int = 1) -> list[Row]:
    """Each fault so many times, under load."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scene = Scene(Path(folder), stack)
        ways = [_through(cable) for cable in scene.cables]
        callers = [Caller(scene.pair, [cable.url for cable in scene.cables], n) for n in range(CALLERS)]
        with sending(scene.pair.ingest, ways, SENDERS) as senders:
            for caller in callers:
                caller.start()
            time.sleep(3)
            slowest: dict[str, list[float]] = {}
            back: dict[str, list[float]] = {}
            for _, (name, fault) in itertools.product(range(rounds), scene.faults().items()):
                print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
                for caller in callers:
                    caller.slowest = 0.0
                with fault():
                    time.sleep(LASTS)
                back.setdefault(name, []).append(until(scene.well))
                time.sleep(1)
                slowest.setdefault(name, []).append(max(caller.slowest for caller in callers))
            for caller in callers:
                caller.ended.set()
            for caller in callers:
                caller.join(60)
        for name, found in back.items():
            rows.append((f"{name}: well again after", max(found), "s", "≤ 20"))
            rows.append((f"{name}: slowest call, failing over", max(slowest[name]), "s", ""))
        rows += _sums(scene, senders, callers, rounds)
    return rows


def _through(cable: Cable) -> Any:
    """A server as senders see it, by way of a cable."""
    way = Served(Path())
    way.url = cable.url
    return way


def _sums(scene: Scene, senders: list[Any], callers: list[Caller], rounds: int) -> list[Row]:
    acknowledged = set[str]().union(*(sender.acknowledged for sender in senders))
    statuses = [one.stop() for one in scene.served]  # nothing is on its way any more
    return [
        ("faults", float(rounds * len(scene.faults())), "", ""),
        ("batches sent again", float(sum(sender.failures for sender in senders)), "", ""),
        ("calls through the gateways", float(sum(caller.made for caller in callers)), "", ""),
        ("calls made again at the other process", float(sum(caller.again for caller in callers)), "", ""),
        ("calls that failed at both, again and again", float(sum(caller.lost for caller in callers)), "", "≤ 0"),
        ("servers that did not stop well", float(sum(map(bool, statuses))), "", "≤ 0"),
        *record_rows(scene.served[0], acknowledged),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each fault comes (3)")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="puts the table into a page, between its marks")
    wanted = parser.parse_args()
    return report("faults", run(wanted.rounds), wanted.write)


if __name__ == "__main__":
    sys.exit(main())
