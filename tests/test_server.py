"""Our server, as a process of its own, under clients that behave and clients that do not."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
import websockets.sync.client as websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.served import PROJECT, Served


class Server:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.url = served.url
        self.port = int(served.url.rsplit(":", 1)[1])

    def state(self) -> dict:
        return httpx2.get(self.url + "/state").json()

    def raw(self, head: str, *, port: int | None = None) -> socket.socket:
        """A connection with the head of a request sent over it."""
        connection = socket.create_connection(("127.0.0.1", port or self.port), timeout=10)
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        return connection


class Small(Served):
    """tests/server_app.py behind our server."""

    command = [sys.executable, "-m", "tests.server_app"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    served = Small(tmp_path_factory.mktemp("home"), RELAYWEB_MAX_BODY=str(30_000_000)).start()
    yield Server(served)
    served.stop()


@pytest.fixture
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    started: list[Small] = []

    def start(grace: float = 2, patience: float = 60, **env: str) -> Server:
        started.append(Small(tmp_path_factory.mktemp("home"), GRACE=str(grace), PATIENCE=str(patience), **env))
        return Server(started[-1].start())

    yield start
    for served in started:
        served.stop()


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


CHUNKED = "Host: x\nTransfer-Encoding: chunked"


def test_an_upload_is_read_while_it_is_sent(server: Server) -> None:
    with server.raw(f"POST /ingest/atof HTTP/1.1\n{CHUNKED}") as upload:
        for word in (b"one", b"two"):
            upload.sendall(chunk(word))
            assert word in read_until(upload, word)
        upload.sendall(b"0\r\n\r\n")
        assert read_until(upload, b"0\r\n\r\n").endswith(b"0\r\n\r\n")


def test_a_body_comes_whole_and_in_order(server: Server) -> None:
    body = b"".join(b"%08d" % n for n in range(1_000_000))
    assert httpx2.post(server.url + "/gw/collect", content=body).content == body


def test_two_requests_use_one_connection(server: Server) -> None:
    with server.raw("POST /gw/collect HTTP/1.1\nHost: x\nContent-Length: 2") as connection:
        connection.sendall(b"ab")
        assert b"ab" in read_until(connection, b"\r\n0\r\n\r\n")
        connection.sendall(b"POST /gw/collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\ncd")
        assert b"cd" in read_until(connection, b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("path", ["/gw/echo", "/page/echo", "/ingest/echo"])
def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(server: Server, path: str) -> None:
    with server.raw(f"POST {path} HTTP/1.1\nHost: x\nContent-Length: 30000001") as connection:
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    text = body["error"]["message"] if path.startswith("/gw") else body["error"]
    assert ("30000000" in text and "RELAYWEB_MAX_BODY" in text) or (path == "/page/echo" and "2097152" in text)


@pytest.mark.parametrize(
    ("path", "anthropic"), [("/gw/anthropic/v1/messages", True), ("/gw/openai/v1/chat/completions", False)]
)
def test_the_gateway_refuses_a_large_body_in_its_providers_words(server: Server, path: str, anthropic: bool) -> None:
    with server.raw(f"POST {path} HTTP/1.1\nHost: x\nContent-Length: 30000001") as connection:
        body = json.loads(read_all(connection).partition(b"\r\n\r\n")[2])
    assert (body.get("type") == "error") is anthropic
    kind = "request_too_large" if anthropic else "invalid_request_error"
    assert body["error"]["type"] == kind and "RELAYWEB_MAX_BODY" in body["error"]["message"]


def test_a_body_that_grows_too_large_is_cut_off(server: Server) -> None:
    def grow() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(1_000_000)

    with pytest.raises(httpx2.TransportError):
        # Its answer has begun, so it can only break off.
        httpx2.post(server.url + "/gw/echo", content=grow())


def test_a_refusal_reaches_a_client_that_is_still_sending(server: Server) -> None:
    answer = httpx2.post(server.url + "/gw/refuse", content=bytes(25_000_000))
    assert (answer.status_code, answer.text) == (401, "refused")


def test_a_client_that_goes_on_sending_after_a_refusal_is_cut_off(server: Server) -> None:
    with server.raw(f"POST /gw/refuse HTTP/1.1\n{CHUNKED}") as connection, pytest.raises(OSError):
        began = time.monotonic()
        while time.monotonic() - began < 10:
            connection.sendall(chunk(bytes(1000)))
            time.sleep(0.01)
    assert 2 < time.monotonic() - began < 6


def test_a_client_is_asked_to_continue_only_when_its_body_is_wanted(server: Server) -> None:
    head = "POST /gw/{} HTTP/1.1\nHost: x\nContent-Length: 2\nExpect: 100-continue"
    with server.raw(head.format("refuse")) as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 401 ")
    with server.raw(head.format("ignore")) as connection:
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")


def test_more_headers_than_anyone_needs_are_refused(server: Server) -> None:
    with server.raw("GET /state HTTP/1.1\nHost: x\nX-Long: " + "x" * 70_000) as connection:
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"bytes of headers" in answer


def test_large_headers_are_fine(server: Server) -> None:
    assert httpx2.get(server.url + "/state", headers={"x-long": "x" * 30_000}).status_code == 200


def test_an_exception_is_an_answer_at_once(server: Server) -> None:
    began = time.monotonic()
    answer = httpx2.get(server.url + "/raise")
    assert answer.status_code == 500 and "log" in answer.json()["error"]
    assert time.monotonic() - began < 0.5


def test_an_application_that_does_not_answer_is_an_error_at_once(server: Server) -> None:
    assert httpx2.get(server.url + "/silent", timeout=2).status_code == 500


def test_an_answer_that_breaks_off_is_a_cut_connection(server: Server) -> None:
    with server.raw("GET /cut HTTP/1.1\nHost: x") as connection:
        answer = read_all(connection)
    assert answer.endswith(b"4\r\nhalf\r\n")
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(server.url + "/cut")


def test_the_application_hears_at_once_that_its_client_left(server: Server) -> None:
    with server.raw("GET /until_gone HTTP/1.1\nHost: x") as connection:
        read_until(connection, b"here")
        before = server.state()["left"].count("gone")
    until(lambda: server.state()["left"].count("gone") == before + 1, 0.5)


def test_a_slow_reader_does_not_fill_the_memory(server: Server) -> None:
    before = server.state()["memory"]
    with server.raw("GET /flood HTTP/1.1\nHost: x") as connection:
        read_until(connection, b"200 OK")
        time.sleep(1)
        state = server.state()
        assert state["sent"] < 20_000_000
        assert state["memory"] - before < 20
        for _ in range(1000):
            connection.recv(100_000)
        until(lambda: server.state()["sent"] > state["sent"])


def test_a_slow_application_does_not_fill_the_memory(server: Server) -> None:
    before = server.state()["memory"]
    with server.raw("POST /gw/ignore HTTP/1.1\nHost: x\nContent-Length: 30000000") as connection:
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall(bytes(30_000_000))
        assert server.state()["memory"] - before < 10


def test_a_slow_websocket_reader_does_not_fill_the_memory(server: Server) -> None:
    before = server.state()["memory"]
    with websocket.connect(server.url.replace("http", "ws") + "/live/x", max_size=None, max_queue=1) as connection:
        connection.send("flood")
        time.sleep(1)
        state = server.state()
        assert state["sent"] < 20_000_000
        assert state["memory"] - before < 20
        connection.socket.close()


def test_a_websocket_that_is_not_read_does_not_fill_the_memory(server: Server) -> None:
    before = server.state()["memory"]
    with websocket.connect(server.url.replace("http", "ws") + "/ingest/atof/ws") as connection:
        connection.send("ignore")
        connection.socket.settimeout(1)
        with pytest.raises((TimeoutError, ConnectionClosed)):
            for _ in range(100):
                connection.send("x" * 1_000_000)
        assert server.state()["memory"] - before < 20
        connection.socket.close()


def test_websocket_messages_may_be_as_large_as_a_body(server: Server) -> None:
    with websocket.connect(server.url.replace("http", "ws") + "/ingest/atof/ws") as connection:
        connection.send("x" * 20_000_000)
        assert connection.recv() == "20000000"


def test_a_websocket_is_refused_with_a_status_and_a_reason(server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused:
        websocket.connect(server.url.replace("http", "ws") + "/live/refuse")
    assert refused.value.response.status_code == 401
    assert refused.value.response.reason_phrase == "no token"


def test_what_comes_too_late_for_a_client_that_closed_its_websocket_is_no_fault(
    stoppable: Callable[..., Server],
) -> None:
    server = stoppable()
    for _ in range(5):
        with websocket.connect(server.url.replace("http", "ws") + "/live/x") as connection:
            connection.send("chatter")
            connection.recv()
    until(lambda: server.state()["connections"] == 1)
    assert "ERROR" not in server.served.log.read_text()


@pytest.mark.parametrize(("deed", "code"), [("return", 1000), ("raise", 1011)])
def test_a_websocket_whose_application_ends_is_closed(server: Server, deed: str, code: int) -> None:
    with websocket.connect(server.url.replace("http", "ws") + "/live/x") as connection:
        connection.send(deed)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=3)
        assert connection.close_code == code


UPGRADE = """Host: x
Upgrade: websocket
Connection: Upgrade
Sec-WebSocket-Version: 13
Sec-WebSocket-Key: dGVzdGluZ3Rlc3RpbmcxMg=="""


def test_connections_that_are_gone_leave_nothing_behind(server: Server) -> None:
    time.sleep(1.5)  # what other tests closed is forgotten within a second
    before = server.state()
    for number in range(60):
        with server.raw(f"POST /{['cut', 'raise', 'until_gone', 'gw/refuse'][number % 4]} HTTP/1.1\n{CHUNKED}") as one:
            one.sendall(chunk(b"x"))
            one.recv(1)
    for number in range(30):
        with websocket.connect(server.url.replace("http", "ws") + "/live/x") as one:
            one.send(["return", "raise", "x"][number % 3])
    until(lambda: server.state()["connections"] <= before["connections"], 15)
    after = server.state()
    assert after["files"] <= before["files"] + 1
    assert after["sockets"] == before["sockets"] and after["channels"] <= before["channels"] + 1


def test_only_sockets_that_can_answer_are_pinged(server: Server) -> None:
    def pinged(path: str, patience: float) -> bytes:
        with server.raw(f"GET {path} HTTP/1.1\n{UPGRADE}") as connection:
            head, _, came_with_it = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")
            assert b" 101 " in head
            connection.settimeout(patience)
            try:
                return came_with_it[:1] or connection.recv(1)
            except TimeoutError:
                return b""

    assert pinged("/live/x", 30) == b"\x89"
    assert pinged("/ingest/atof/ws", 4) == b""
    assert "could not be checked" not in server.served.log.read_text()


def test_a_port_in_use_is_said_plainly(server: Server) -> None:
    command = [*server.served.command, str(server.port)]
    done = subprocess.run(command, cwd=PROJECT, env=server.served.env, capture_output=True, timeout=20)
    assert done.returncode == 1
    assert f"cannot listen at 127.0.0.1:{server.port}" in done.stderr.decode()


def test_a_head_has_to_come_in_time_and_a_body_may_be_slow(stoppable: Callable[..., Server]) -> None:
    server = stoppable(patience=2)
    head = b"POST /gw/collect HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow, pytest.raises(OSError):
        for byte in head:
            slow.sendall(bytes([byte]))
            time.sleep(0.2)
    assert 1.5 < time.monotonic() - began < 6
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow:
        slow.sendall(head)
        for _ in range(4):
            time.sleep(1)
            slow.sendall(b"x")
        assert b"xxxx" in read_until(slow, b"0\r\n\r\n")


def test_a_body_that_anybody_may_send_has_to_come_in_time(stoppable: Callable[..., Server]) -> None:
    server = stoppable(PAGE_SECONDS="1")
    with server.raw("POST /page/collect HTTP/1.1\nHost: x\nContent-Length: 100") as slow:
        began = time.monotonic()
        answer = read_all(slow)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"did not come within" in answer
    assert time.monotonic() - began < 8


def test_one_connection_too_many_is_told_to_come_again_and_the_others_go_on(stoppable: Callable[..., Server]) -> None:
    server = stoppable(FILES="296")  # less what is kept, halved: 20
    idle = [server.raw("GET /until_gone HTTP/1.1\nHost: x") for _ in range(10)]
    idle += [server.raw(f"GET /live/x HTTP/1.1\n{UPGRADE}") for _ in range(10)]
    for one in idle:
        assert read_until(one, b"\r\n\r\n")
    with server.raw("GET /state HTTP/1.1\nHost: x") as one:
        answer = read_all(one)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"too many connections" in answer
    idle.pop().close()
    until(lambda: b" 200 " in status_of(server))
    for one in idle:
        one.close()
    until(lambda: server.state()["sockets"] == 0)


def status_of(server: Server) -> bytes:
    with server.raw("GET /state HTTP/1.1\nHost: x\nConnection: close") as one:
        return read_all(one)[:40]


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_client_that_takes_nothing_is_cut_off(stoppable: Callable[..., Server], kind: str) -> None:
    server = stoppable(patience=1)
    if kind == "http":
        connection = server.raw("GET /flood HTTP/1.1\nHost: x")
    else:
        connection = server.raw(f"GET /live/x HTTP/1.1\n{UPGRADE}")
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"\x81\x85\0\0\0\0flood")
    with connection:
        until(lambda: server.state()["sent"] > 0)
        time.sleep(4)
        with pytest.raises(OSError):
            while connection.recv(1_000_000):
                pass
            raise ConnectionError("the rest never came")


def test_what_the_server_refuses_is_in_the_access_log_without_tokens(server: Server) -> None:
    with server.raw("POST /gw/t/secret/openai HTTP/1.1\nHost: x\nContent-Length: 30000001") as connection:
        read_all(connection)
    assert "POST /gw/t/***/openai 413 by the server" in server.served.log.read_text()


def run_small(served: Small, *, stop_at: str | None = None) -> tuple[int, str]:
    """Run the server until it ends, or tell it to stop when it prints something; returns exit status and output."""
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(served.command, cwd=PROJECT, env=served.env, **output) as process:
        text = ""
        while stop_at and stop_at not in text:
            text += process.stdout.readline()
        if stop_at:
            process.send_signal(signal.SIGTERM)
        text += process.communicate(timeout=20)[0]
        return process.returncode, text


def test_a_part_that_cannot_start_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    status, text = run_small(Small(tmp_path, FAIL_START="1"))
    assert status == 1
    assert text.splitlines()[-2:] == ["left []", "relayweb could not start: no disk"]


def test_a_server_told_to_stop_while_it_starts_stops_in_order(tmp_path: Path) -> None:
    status, text = run_small(Small(tmp_path, SLOW_START="1"), stop_at="starting")
    assert status == 0
    assert "relayweb is at" not in text and text.splitlines()[-1] == "left []"


def test_a_part_that_never_stops_does_not_keep_the_process(tmp_path: Path) -> None:
    served = Small(tmp_path, HANG_STOP="1", STOP="2", GRACE="1").start()
    process = served.process
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(10) == 1
    assert 1.5 < time.monotonic() - began < 5


def test_stopping_lets_answers_finish_and_takes_no_new_work(stoppable: Callable[..., Server]) -> None:
    server = stoppable(grace=5)
    idle = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    with idle, server.raw("GET /ticks?10 HTTP/1.1\nHost: x") as stream:
        read_until(stream, b"tick")
        server.served.process.send_signal(signal.SIGTERM)
        assert idle.recv(1) == b""
        until(lambda: refused(server.port))
        rest = read_all(stream)
    assert rest.count(b"tick") >= 8 and rest.endswith(b"0\r\n\r\n")
    began = time.monotonic()
    assert server.served.process.wait(5) == 0
    assert time.monotonic() - began < 2  # of a grace of 5


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


def test_stopping_cuts_what_does_not_finish(stoppable: Callable[..., Server]) -> None:
    server = stoppable(grace=1)
    with server.raw("GET /ticks?1000 HTTP/1.1\nHost: x") as stream:
        read_until(stream, b"tick")
        server.served.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert not read_all(stream).endswith(b"0\r\n\r\n")
    assert server.served.process.wait(5) == 0
    assert 0.9 < time.monotonic() - began < 3
    assert '"cancelled"' in server.served.log.read_text()


def test_stopping_tells_an_endless_upload_to_end(stoppable: Callable[..., Server]) -> None:
    server = stoppable(grace=5)
    with server.raw(f"POST /ingest/atof HTTP/1.1\n{CHUNKED}") as upload:
        upload.sendall(chunk(b"one"))
        read_until(upload, b"one")
        began = time.monotonic()
        server.served.process.send_signal(signal.SIGTERM)
        assert b"[stopped]" in read_all(upload)
    assert server.served.process.wait(5) == 0
    assert time.monotonic() - began < 2


def test_stopping_closes_websockets(stoppable: Callable[..., Server]) -> None:
    server = stoppable(grace=5)
    base = server.url.replace("http", "ws")
    with websocket.connect(base + "/live/x") as viewer, websocket.connect(base + "/ingest/atof/ws") as agent:
        server.served.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            viewer.recv(timeout=3)
        assert viewer.close_code == 1001
        with pytest.raises(ConnectionClosed):
            agent.recv(timeout=3)
    assert server.served.process.wait(5) == 0
    left = json.loads(re.findall(r"left (.*)", server.served.log.read_text())[0])
    assert left.count("socket 1001") == 2
