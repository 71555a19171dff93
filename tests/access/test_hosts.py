from __future__ import annotations

from typing import Any

import pytest

from relayweb.access import hosts


def scope(**headers: str) -> dict[str, Any]:
    return {"headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"])
def test_the_machine_s_own_names_are_served(host: str) -> None:
    assert hosts.host_allowed(scope(host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "a b", "é"]
)
def test_other_names_are_not(host: str) -> None:
    assert not hosts.host_allowed(scope(host=host))


def test_a_request_without_a_host_is_not_served() -> None:
    assert not hosts.host_allowed(scope())


def test_names_that_were_configured_are_served(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["relay.example"]
    assert hosts.host_allowed(scope(host="relay.example:443"))


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:8000", "https://127.0.0.1:8000", "http://127.0.0.1:8000"])
def test_a_websocket_may_come_from_our_own_pages_and_from_programs(origin: str | None) -> None:
    headers = {"host": "127.0.0.1:8000"} | ({"origin": origin} if origin else {})
    assert hosts.origin_allowed(scope(**headers))


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1:9",
        "http://127.0.0.1:8000@evil.example",
        "file://127.0.0.1:8000",
    ],
)
def test_a_websocket_may_not_come_from_elsewhere(origin: str) -> None:
    assert not hosts.origin_allowed(scope(host="127.0.0.1:8000", origin=origin))
