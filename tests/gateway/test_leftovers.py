"""Providers that send more than the answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from relayweb.gateway.app import Gateway
from relayweb.gateway.upstreams import Target
from tests.gateway.inprocess import ask
from tests.gateway.provider import chat_body, chat_stream


def whole(body: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (status, length, body)


def chunked(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


STREAM = b"".join(chat_stream("mine"))
OTHERS = whole(chat_body("of somebody else"))
CASES = {
    "another answer": (whole(chat_body("mine")) + OTHERS, chat_body("mine"), 4),
    "half of one": (whole(chat_body("mine")) + OTHERS[:20], chat_body("mine"), 4),
    "a length too short": (whole(chat_body("mine"), length=20), chat_body("mine")[:20], 4),
    "a body with 204": (whole(b"{}", b"204 No Content"), b"", 4),
    "a stream and more": (chunked(STREAM) + OTHERS, STREAM, 4),
    "nothing": (whole(chat_body("mine")), chat_body("mine"), 1),
}


class Raw:
    """Answers each request on a connection with the same bytes, and leaves it open."""

    def __init__(self) -> None:
        self.answer, self.connections = b"", 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            while incoming.readline():
                length = 0
                while (line := incoming.readline().strip().lower()) != b"":
                    name, _, value = line.partition(b":")
                    length = int(value) if name == b"content-length" else length
                incoming.read(length)
                connection.sendall(self.answer)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def raw() -> Iterator[Raw]:
    raw = Raw()
    yield raw
    raw.close()


@pytest.mark.parametrize("by_proxy", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_what_comes_after_an_answer_is_no_answer_to_the_next_call(
    gateway: Gateway, raw: Raw, name: str, by_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_proxy:
        monkeypatch.setattr("relayweb.gateway.transport.proxy_for", lambda scheme, host: raw.url)
    raw.answer, expected, connections = CASES[name]
    target = Target("mock", raw.url, "chat_completions")
    for path in ("chat/completions", "models"):  # one that is recorded, and one that passes
        for stream in (False, True):
            body = {"model": "m", "stream": stream, "messages": []}
            answer = await ask(gateway, target, path, body)
            assert answer.body == expected and answer.ended and answer.error is None
    assert raw.connections == connections
