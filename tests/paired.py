"""Two web processes as one installation: on PostgreSQL and Redis, behind a proxy that gives requests to each in turn.

`Site` is what tests of whole journeys are served by: one process, or with RELAYWEB_TESTS_PAIR two. `make test-pair`
sets that, and starts the engines.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.balancer import Balancer
from tests.served import OnUvicorn, Served

PAIR = bool(os.environ.get("RELAYWEB_TESTS_PAIR"))
_redis_numbers = itertools.count(1)


def redis_of_its_own(server: str) -> str:
    """A numbered database of a Redis for one installation."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{next(_redis_numbers)}"))


def together(*deeds: Callable[[], object]) -> None:
    """Do things at the same time, and wait for all of them."""
    failed: list[BaseException] = []

    def run(deed: Callable[[], object]) -> None:
        try:
            deed()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(deed,)) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Paired(Served):
    """Daphne's process and uvicorn's share nothing but the database, Redis and a secret key.

    Commands run on the home of the one and of the other in turn.
    """

    def __init__(self, home: Path, **env: str) -> None:
        if "REDIS_URL" not in env:
            env["REDIS_URL"] = redis_of_its_own(os.environ["RELAYWEB_TESTS_REDIS"])
        env.setdefault("RELAYWEB_SECRET_KEY", secrets.token_hex())
        super().__init__(home, **env)
        env["DATABASE_URL"] = self.env["DATABASE_URL"]
        self.both: list[Served] = []
        for name, kind in {"one": Served, "other": OnUvicorn}.items():
            (home / name).mkdir()
            self.both.append(kind(home / name, **env))
        self.one, self.other = self.both
        self.log = self.one.log
        self.balancer: Balancer | None = None
        self._homes = itertools.cycle(self.both)

    def run(self, *args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return next(self._homes).run(*args, stdin=stdin)

    def start(self, *args: str, wait: float = 60) -> Served:
        """A port that is named is the proxy's."""
        port, rest = 0, list(args)
        if "--port" in rest:
            at = rest.index("--port")
            port = int(rest[at + 1])
            del rest[at : at + 2]
        together(*[partial(served.start, *rest, wait=wait) for served in self.both])
        if self.balancer is None:
            self.balancer = Balancer([served.port for served in self.both], port)
        self.url = self.balancer.url
        return self

    def stop(self, sig: int = signal.SIGTERM, wait: float = 20) -> int | None:
        if self.balancer is not None:
            self.balancer.close()
            self.balancer = None
        ended: list[int | None] = []
        together(*[lambda served=served: ended.append(served.stop(sig, wait)) for served in self.both])
        return next((status for status in ended if status not in (0, -signal.SIGTERM)), 0)

    @property
    def memory_mb(self) -> int:
        return sum(served.memory_mb for served in self.both)

    def kill(self) -> Served:
        return next(self._homes).kill()


Site: type[Served] = Paired if PAIR else Served
