"""Following the rules of a server from another process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from adapters import intercepts
from adapters.intercepts import RuleSet, follow


class Server:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.document = 200, {"etag": "1", "rules": []}
        self.asked: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append({"path": self.path, **dict(self.headers.items())})
                content = outer.document if isinstance(outer.document, bytes) else json.dumps(outer.document).encode()
                status = outer.status
                if status == 200 and self.headers.get("If-None-Match") == f'"{outer.etag}"':
                    status, content = 304, b""
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def etag(self) -> Any:
        return self.document.get("etag") if isinstance(self.document, dict) else None

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = intercepts.swap(RuleSet())
    yield
    intercepts.swap(before)


def soon(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def rule(key: str) -> dict[str, Any]:
    return {"key": key, "revision": 1, "action": {"type": "block", "message": "no"}}


def in_force() -> list[str]:
    return [r.key for r in intercepts.current().rules]


def test_the_rules_are_in_force_at_once_and_follow_each_change(server: Server) -> None:
    server.document = {"etag": "1", "rules": [rule("a")]}
    follower = follow(server.url + "/", "rw_read_x", interval=0.02)
    try:
        assert in_force() == ["a"] and intercepts.current().etag == "1"
        assert server.asked[0]["path"] == "/api/v1/ruleset"
        assert server.asked[0]["Authorization"] == "Bearer rw_read_x"
        first = intercepts.current()
        soon(lambda: len(server.asked) > 3)
        assert intercepts.current() is first and follower.error is None
        server.document = {"etag": "2", "rules": [rule("b"), rule("a")]}
        soon(lambda: in_force() == ["a", "b"])
    finally:
        follower.close()


@pytest.mark.parametrize(
    "status, document, says",
    [
        (401, {}, "HTTP Error 401"),
        (500, {}, "HTTP Error 500"),
        (200, b"<html>", "JSONDecodeError"),
        (200, [], "is this the address of a relayweb server?"),
        (200, {"etag": "2", "rules": None}, "is this the address of a relayweb server?"),
    ],
)
def test_the_last_good_set_stays_when_the_server_answers_nonsense(
    server: Server, status: int, document: Any, says: str
) -> None:
    server.document = {"etag": "1", "rules": [rule("a")]}
    follower = follow(server.url, "t", interval=0.02)
    try:
        server.status, server.document = status, document
        soon(lambda: follower.error is not None)
        assert says in (follower.error or "") and in_force() == ["a"]
        server.status, server.document = 200, {"etag": "3", "rules": []}
        soon(lambda: follower.error is None)
        assert in_force() == []
    finally:
        follower.close()


def test_a_server_that_is_away_harms_nobody_and_is_found_later(server: Server) -> None:
    gone = Server()
    gone.close()
    follower = follow(gone.url, "t", interval=0.02)
    try:
        assert follower.error and in_force() == []
        server.document = {"etag": "1", "rules": [rule("a")]}
        follower.url = server.url + "/api/v1/ruleset"
        soon(lambda: in_force() == ["a"])
    finally:
        follower.close()


def test_a_rule_this_version_cannot_parse_is_left_out_and_named(server: Server) -> None:
    server.document = {"etag": "1", "rules": [{"key": "new", "action": {"type": "teleport"}}, rule("a"), 5]}
    follower = follow(server.url, "t", interval=60)
    follower.close()
    follower.close()
    assert in_force() == ["a"]
    assert follower.unusable["new"].startswith("action.type: must be one of") and "?" in follower.unusable


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="must start with http"):
        follow("127.0.0.1:8000", "t")
