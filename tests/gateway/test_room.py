"""Bodies of many calls at a time."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, suppress

import httpx2

from relayweb.gateway.app import BODIES
from tests.gateway.conftest import Gateway
from tests.gateway.provider import Provider

MAX_BODY = 2_000_000  # of the served gateway


def begun(web: Gateway, size: int) -> socket.socket:
    """A call whose body is all but there."""
    connection = socket.create_connection(("127.0.0.1", web.port), timeout=20)
    head = "POST /gw/mock/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    connection.sendall(f"{head}x-relay-token: {web.key}\r\nContent-Length: {size}\r\n\r\n".encode())
    connection.sendall(b'{"model":"room","x":"' + b"x" * (size - 22))
    return connection


def test_more_bodies_than_there_is_room_for_are_told_to_come_again(web: Gateway, provider: Provider) -> None:
    body = {"model": "room", "messages": [{"role": "user", "content": "x" * 1_000_000}]}

    def call() -> httpx2.Response:
        headers = {"x-relay-token": web.key}
        return httpx2.post(f"{web.url}/gw/mock/chat/completions", json=body, headers=headers, timeout=20)

    with ExitStack() as stack:
        for _ in range(BODIES):
            stack.enter_context(begun(web, MAX_BODY))
        deadline = time.monotonic() + 60
        answer = call()
        while (
            answer.status_code == 200 and time.monotonic() < deadline
        ):  # some are on their way, or were refused for this
            with suppress(ConnectionError):
                stack.enter_context(begun(web, MAX_BODY))
            answer = call()
        assert answer.status_code == 503 and answer.headers["retry-after"] == "2"
        assert json.loads(answer.content)["error"]["code"] == "busy"
    deadline = time.monotonic() + 60
    while answer.status_code != 200 and time.monotonic() < deadline:
        answer = call()
    assert answer.status_code == 200
