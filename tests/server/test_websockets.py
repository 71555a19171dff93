"""Websockets that send what is dear to read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest
import websockets.sync.client as websocket
from websockets.exceptions import ConnectionClosedError

from tests.test_server import UPGRADE, Server, Small, read_until

FRAGMENT, LAST, PING, TEXT = 0x00, 0x80, 0x89, 0x81


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    served = Small(tmp_path_factory.mktemp("home")).start()
    yield Server(served)
    served.stop()


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0x80 | len(data)]) + bytes(4) + data  # masked with zeros


def answered_beside(server: Server, data: bytes) -> int:
    """How many small requests are answered, one after the other, in two seconds while a socket sends this."""
    answered = 0
    client = httpx2.Client()
    with client, server.raw(f"GET /ingest/atof/ws HTTP/1.1\n{UPGRADE}") as connection:
        read_until(connection, b"\r\n\r\n")
        connection.settimeout(3)
        sender = threading.Thread(target=_send, args=(connection, data))
        sender.start()
        until = time.monotonic() + 2
        while time.monotonic() < until:
            client.get(server.url + "/state")
            answered += 1
    sender.join()
    return answered


def _send(connection, data):
    with contextlib.suppress(OSError):  # not read on, or closed
        connection.sendall(data)


@pytest.mark.parametrize("kind", ["fragments", "messages"])
def test_half_a_million_frames_of_one_byte_hold_nobody_up(server: Server, kind: str) -> None:
    small = frame(TEXT if kind == "messages" else FRAGMENT, b" ")
    data = frame(0x01, b"{") + small * 500_000 if kind == "fragments" else small * 500_000
    assert max(answered_beside(server, data) for _ in range(3)) > 10  # 3 at most without turns


def test_a_message_in_too_many_fragments_is_refused_with_the_reason(server: Server) -> None:
    with websocket.connect(server.url.replace("http", "ws") + "/ingest/atof/ws") as connection:
        connection.send(["x"] * 9_999)  # and an empty one for the end
        assert connection.recv() == "9999"
        with pytest.raises(ConnectionClosedError) as closed:
            connection.send(["x"] * 10_000)
            connection.recv()
        assert closed.value.rcvd.code == 1009 and "more than 10000 fragments" in closed.value.rcvd.reason


def test_pongs_that_nobody_takes_do_not_fill_the_memory(server: Server) -> None:
    before = server.state()["memory"]
    with server.raw(f"GET /ingest/atof/ws HTTP/1.1\n{UPGRADE}") as connection:
        _send(connection, frame(PING, b"x" * 100) * 300_000)
        assert server.state()["memory"] - before < 15


def test_small_messages_all_come_in_their_order(server: Server) -> None:
    with websocket.connect(server.url.replace("http", "ws") + "/ingest/atof/ws") as connection:
        sizes = [n % 7 for n in range(20_000)]
        connection.socket.settimeout(20)
        data = b"".join(frame(TEXT, b"x" * n) for n in sizes)
        threading.Thread(target=lambda: connection.socket.sendall(data)).start()
        assert [connection.recv() for _ in sizes] == [str(n) for n in sizes]
