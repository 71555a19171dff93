from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError

from relayweb.access import tokens
from relayweb.access.models import Token
from relayweb.access.throttle import Throttle

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_known", {})
    monkeypatch.setattr(tokens, "_unknown", {})
    monkeypatch.setattr(tokens, "_asking", {})
    monkeypatch.setattr(tokens, "_throttle", Throttle())


def scope(query: str = "", **headers: str) -> dict[str, Any]:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"headers": named, "query_string": query.encode()}


def test_a_new_token_is_good_at_once_for_its_scope_only() -> None:
    raw = tokens.create("laptop", "ingest")
    assert raw.startswith("rw_ingest_")
    found = tokens.authenticate(raw, "ingest")
    assert found is not None and found.name == "laptop"
    assert tokens.authenticate(raw, "gateway") is None
    assert tokens.authenticate(raw.replace("ingest", "gateway"), "gateway") is None


def test_a_token_is_stored_as_a_digest() -> None:
    raw = tokens.create("laptop", "read")
    stored = " ".join(str(value) for value in Token.objects.values_list()[0])
    assert raw not in stored and raw[10:20] not in stored


def test_a_revoked_token_stops_at_once_here() -> None:
    raw = tokens.create("laptop", "read")
    token = tokens.authenticate(raw, "read")
    assert token is not None
    tokens.revoke(token)
    assert tokens.authenticate(raw, "read") is None


def test_a_token_revoked_by_another_process_stops_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tokens.create("laptop", "read")
    assert tokens.authenticate(raw, "read")
    Token.objects.update(revoked_at="2026-01-01T00:00:00Z")
    monkeypatch.setattr(tokens, "_FRESH_SECONDS", 0.0)
    assert tokens.authenticate(raw, "read") is None


def test_with_the_database_gone_tokens_seen_before_stay_good(monkeypatch: pytest.MonkeyPatch) -> None:
    known, unknown = tokens.create("a", "gateway"), tokens.create("b", "gateway")
    assert tokens.authenticate(known, "gateway")
    monkeypatch.setattr(tokens, "_FRESH_SECONDS", 0.0)

    def gone(**_: Any) -> Any:
        raise DatabaseError("disk I/O error")

    monkeypatch.setattr(Token.objects, "filter", gone)
    assert tokens.authenticate(known, "gateway")
    with pytest.raises(tokens.CannotTell, match="cannot be checked; try again in 2 s") as refused:
        tokens.authenticate(unknown, "gateway")
    assert refused.value.status == 503


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A database that answers once the event is set, and not earlier."""
    answers = threading.Event()

    def hang(*_: Any) -> Any:
        assert answers.wait(10)
        raise DatabaseError("the connection was lost")

    monkeypatch.setattr(tokens, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "_look_up_in_thread", hang)
    yield answers
    answers.set()


@pytest.mark.django_db(transaction=True)
async def test_a_database_that_hangs_holds_up_one_call_with_a_known_token_and_no_more(
    request: pytest.FixtureRequest,
) -> None:
    known, unknown = await asyncio.to_thread(tokens.create, "a", "gateway"), made_up(1).replace("read", "gateway")
    assert await tokens.aauthenticate(known, "gateway")
    answers = request.getfixturevalue("hanging")
    began = time.monotonic()
    for _ in range(20):
        assert await tokens.aauthenticate(known, "gateway")
    assert time.monotonic() - began < 2 * tokens._PATIENCE_SECONDS
    asking = [asyncio.create_task(tokens.aauthenticate(unknown, "gateway")) for _ in range(3)]
    await asyncio.sleep(0)
    answers.set()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in told] == [tokens.CannotTell] * 3
    assert await tokens.aauthenticate(known, "gateway")


async def test_many_unknown_tokens_do_not_queue_up_before_a_database_that_hangs(hanging: threading.Event) -> None:
    asking = [asyncio.create_task(tokens.aauthenticate(made_up(n), "read")) for n in range(300)]
    done, waiting = await asyncio.wait(asking, timeout=0.2)
    assert len(waiting) == tokens._MOST_ASKING and all(isinstance(one.exception(), tokens.CannotTell) for one in done)
    hanging.set()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("raw", [None, "", "rw_ingest_short", "x" * 5000, "rw_ingest_" + "é" * 43])
def test_what_does_not_look_like_a_token_asks_the_database_nothing(
    raw: str | None, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        assert tokens.authenticate(raw, "ingest") is None


def test_a_scope_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="'root' is none of ingest, gateway, read"):
        tokens.create("x", "root")


@pytest.mark.parametrize(
    ("request_scope", "found"),
    [
        (scope(), None),
        (scope(authorization="Bearer rw_a"), "rw_a"),
        (scope(authorization="bearer rw_a"), "rw_a"),
        (scope(authorization="Basic rw_a"), None),
        (scope(x_relay_token="rw_b"), "rw_b"),
        (scope("token=rw_c"), "rw_c"),
        # Behind the gateway, authorization is the provider's key.
        (scope(authorization="Bearer sk-provider", x_relay_token="rw_b"), "rw_b"),
        (scope("token=rw_c", authorization="Bearer sk-provider"), "rw_c"),
        (scope("token=rw_c", authorization="Bearer rw_a", x_relay_token="rw_b"), "rw_a"),
    ],
)
def test_a_token_is_found_where_clients_put_it(request_scope: dict[str, Any], found: str | None) -> None:
    assert tokens.from_scope(request_scope) == found


@pytest.mark.django_db(transaction=True)
async def test_the_event_loop_asks_without_blocking() -> None:
    raw = await asyncio.to_thread(tokens.create, "laptop", "ingest")
    assert await tokens.aauthenticate(raw, "ingest")
    assert await tokens.aauthenticate(raw, "ingest")
    assert await tokens.aauthenticate(raw, "read") is None


def made_up(n: int) -> str:
    return f"rw_read_{n:043}"


def test_one_wrong_token_again_and_again_asks_the_database_once(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert [tokens.authenticate(made_up(1), "read", "192.0.2.1") for _ in range(50)] == [None] * 50


def test_an_address_with_many_wrong_tokens_is_held_back_and_good_ones_are_not() -> None:
    raw = tokens.create("agent", "read")
    assert tokens.authenticate(raw, "read", "192.0.2.1")
    for n in range(tokens.WRONG_TOKENS):
        assert tokens.authenticate(made_up(n), "read", "192.0.2.1") is None
    with pytest.raises(tokens.TooMany, match="wrong tokens from this address; try again in 1 s"):
        tokens.authenticate(made_up(-1), "read", "192.0.2.1")
    assert tokens.authenticate(made_up(-1), "read", "192.0.2.2") is None
    assert tokens.authenticate(raw, "read", "192.0.2.1")


def test_a_token_may_have_a_limit_of_its_own() -> None:
    raw, free = tokens.create("script", "read", per_minute=2), tokens.create("other", "read")
    assert tokens.authenticate(raw, "read") and tokens.authenticate(raw, "read")
    with pytest.raises(tokens.TooMany, match="good for 2 requests a minute; try again in 30 s"):
        tokens.authenticate(raw, "read")
    assert all(tokens.authenticate(free, "read") for _ in range(100))
