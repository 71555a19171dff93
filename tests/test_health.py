"""What /healthz tells to whom."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relayweb import health
from relayweb.access import tokens
from relayweb.recording.writing.writer import Writer, writer
from tests.people import signed_in

SAID = "could not connect to db.internal.example as admin"

pytestmark = pytest.mark.django_db(transaction=True)


def ask(**headers: str) -> tuple[str, dict[str, Any]]:
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/healthz", "query_string": b"", "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    asyncio.run(health.application(scope, receive, send))
    text = said[-1]["body"].decode()
    return text, json.loads(text)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "_sweep", lambda *args, **options: None)  # would find that the database is well
    monkeypatch.setattr(writer(), "_trouble", SAID)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer rw_read_" + "x" * 43}, {"cookie": "sessionid=x"}])
def test_strangers_learn_that_it_is_degraded_and_not_what_the_database_said(trouble, headers):
    text, told = ask(**headers)
    assert told["status"] == "degraded" and told["reason"] == told["writer"]["reason"] == health.DEGRADED
    assert SAID not in text


def test_readers_learn_what_the_database_said(trouble):
    assert ask(authorization="Bearer " + tokens.create("reports", "read"))[1]["reason"] == SAID
    session = signed_in("viewer").cookies["sessionid"].value
    assert ask(cookie=f"sessionid={session}")[1]["writer"]["reason"] == SAID


def test_other_tokens_do_not_read(trouble):
    assert SAID not in ask(authorization="Bearer " + tokens.create("agent", "ingest"))[0]


def test_losses_are_told_to_all_by_their_kind(monkeypatch):
    monkeypatch.setitem(writer()._counts, "dropped", 3)
    assert ask()[1]["reason"] == health.LOSSES
    assert "3 events" in ask(authorization="Bearer " + tokens.create("reports", "read"))[1]["reason"]


def test_a_database_that_does_not_answer_makes_nobody_a_reader(trouble, monkeypatch):
    async def away(*_: Any) -> bool:
        raise tokens.CannotTell

    monkeypatch.setattr("relayweb.access.readers.may_read", away)
    assert SAID not in ask(authorization="Bearer " + tokens.create("reports", "read"))[0]


def test_no_reason_asks_the_database_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert ask(cookie="sessionid=x")[1]["reason"] is None


def test_the_api_tells_its_health_while_the_record_cannot_be_read(client, monkeypatch):
    from django.db import OperationalError

    from relayweb.recording.reading import queries

    def gone() -> int:
        raise OperationalError("gone")

    monkeypatch.setattr(queries, "latest_seq", gone)
    answer = client.get("/api/v1/health", headers={"authorization": "Bearer " + tokens.create("reports", "read")})
    assert answer.status_code == 200 and answer.json()["seq"] is None
