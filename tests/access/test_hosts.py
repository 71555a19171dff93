from __future__ import annotations

from typing import Any

import pytest

from relayweb import conf
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
        "http://[",
        "http://127.0.0.1:8000/@evil.example",
        "http://127.0.0.1:8000, http://evil.example",
    ],
)
def test_a_websocket_may_not_come_from_elsewhere(origin: str) -> None:
    assert not hosts.origin_allowed(scope(host="127.0.0.1:8000", origin=origin))


@pytest.mark.parametrize("second", ["127.0.0.1:8000", "evil.example"])
def test_of_two_hosts_or_two_origins_none_is_believed(second: str) -> None:
    twice = {"headers": [(b"host", b"127.0.0.1:8000"), (b"host", second.encode())]}
    assert not hosts.host_allowed(twice)
    origins = [(b"origin", b"http://127.0.0.1:8000"), (b"origin", b"http://" + second.encode())]
    assert not hosts.origin_allowed({"headers": [(b"host", b"127.0.0.1:8000"), *origins]})


def test_where_people_come_by_tls_a_page_without_it_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "PUBLIC_URL", "https://Relay.example")
    assert hosts.origin_allowed(scope(host="relay.example", origin="https://relay.example"))
    assert not hosts.origin_allowed(scope(host="relay.example", origin="http://relay.example"))
    assert hosts.origin_allowed(scope(host="127.0.0.1:8000", origin="http://127.0.0.1:8000"))
