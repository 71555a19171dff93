"""Two web processes on PostgreSQL and Redis, each with a home of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pytest

from tests.paired import together
from tests.scale import engines
from tests.served import OnUvicorn, Served

E = TypeVar("E", bound=engines.Engine)


def started(kind: Callable[[], E]) -> E:
    """An engine that answers. Where it is not installed the tests are skipped, except in CI, where that is a fault."""
    try:
        engine = kind()
    except engines.Missing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    engine.start()
    return engine


@pytest.fixture(scope="session")
def postgres() -> Iterator[engines.Postgres]:
    engine = started(engines.Postgres)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def redis() -> Iterator[engines.Redis]:
    engine = started(engines.Redis)
    yield engine
    engine.close()


class Pair:
    """Two processes that serve one record. They share nothing but the database, Redis and a secret key."""

    def __init__(self, served: Sequence[Served]) -> None:
        self.one, self.other = served
        self.both = served
        together(*[partial(one.start, wait=120) for one in served])
        self.ingest, self.read, self.gateway = (self.one.token(scope) for scope in ("ingest", "read", "gateway"))

    def turns(self, served: Served, session: str) -> list[dict]:
        """The turns of sessions whose id matches, as this process tells them."""
        turns: list[dict] = self.api(served, f"turns?limit=200&q=session:{session}")["turns"]
        return turns

    def api(self, served: Served, path: str) -> dict:
        answer = served.get(f"/api/v1/{path}", authorization=f"Bearer {self.read}")
        assert answer.status_code == 200, answer.text
        return answer.json()


class Pairs:
    """Starts pairs of processes, both at once and on an empty database, and stops them in the end."""

    def __init__(self, postgres: engines.Postgres, redis: engines.Redis, homes: pytest.TempPathFactory) -> None:
        self.postgres, self.redis, self.homes = postgres, redis, homes
        self.begun: list[Served] = []

    def __call__(self, **env: str) -> Pair:
        secret = secrets.token_hex()
        shared = {"DATABASE_URL": self.postgres.create(), "REDIS_URL": self.redis.url, "RELAYWEB_SECRET_KEY": secret}
        kinds = {"one": Served, "other": OnUvicorn}  # by one record they are as good as two of a kind
        served = [kind(self.homes.mktemp(name), **{**shared, **env}) for name, kind in kinds.items()]
        self.begun += served
        return Pair(served)

    def close(self) -> None:
        for served in self.begun:
            served.stop()


@pytest.fixture
def make_pair(
    postgres: engines.Postgres, redis: engines.Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pairs]:
    """For a test that wants settings of its own: `make_pair(RELAYWEB_INTERRUPT_AFTER="2")`."""
    pairs = Pairs(postgres, redis, tmp_path_factory)
    yield pairs
    pairs.close()


@pytest.fixture(scope="module")
def pair(postgres: engines.Postgres, redis: engines.Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One pair for all tests of a file, since a start takes seconds: each test has sessions of its own."""
    pairs = Pairs(postgres, redis, tmp_path_factory)
    yield pairs()
    pairs.close()
