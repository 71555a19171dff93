from __future__ import annotations

import logging

import pytest

from relayweb.access import log
from relayweb.access.log import Logged, route


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/gw/t/rw_gateway_secret/openai/v1/models", "/gw/t/***/openai/v1/models"),
        ("/gw/t/rw_gateway_secret", "/gw/t/***"),
        ("/gw/openai/v1/models", "/gw/openai/v1/models"),
        ("/login/secret/", "/login/***/"),
        ("/login/", "/login/"),
        ("/a\nforged line", "/a?forged?line"),
        ("/" + "a" * 60_000, "/" + "a" * 299 + "…"),
    ],
)
def test_routes_are_shown_without_secrets_on_one_line(path: str, shown: str) -> None:
    assert route(path) == shown


@pytest.mark.parametrize(
    ("path", "status", "level"),
    [
        ("/turns/1/", 200, logging.INFO),
        ("/turns/rows/", 200, logging.DEBUG),
        ("/turns/1/frame/", 200, logging.DEBUG),
        ("/turns/1/frame/", 500, logging.INFO),
        ("/ingest/atof", 200, logging.DEBUG),
        ("/gw/openai/v1/models", 200, logging.INFO),
    ],
)
async def test_what_open_pages_fetch_does_not_bury_the_rest(
    path: str, status: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def send(message: object) -> None: ...

    logged = Logged({"type": "http", "method": "GET", "path": path}, send)
    await logged({"type": "http.response.start", "status": status})
    with caplog.at_level(logging.DEBUG, "relayweb.access"):
        logged.write()
    assert [record.levelno for record in caplog.records] == [level]


async def test_a_refusal_that_comes_again_and_again_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(log, "_repeats", log.Repeats())
    monkeypatch.setattr(log.time, "monotonic", lambda: now)

    async def send(message: object) -> None: ...

    async def refused(client: str) -> None:
        logged = Logged({"type": "websocket", "path": "/ingest/atof/ws", "client": (client, 1)}, send)
        await logged({"type": "websocket.http.response.start", "status": 401})
        logged.write()

    with caplog.at_level(logging.INFO, "relayweb.access"):
        for _ in range(50):
            await refused("10.0.0.1")
        await refused("10.0.0.2")
        now = 61.0
        await refused("10.0.0.1")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    assert lines[2].endswith(", and 49 more since the last line")
