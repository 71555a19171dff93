"""The doors of a real server, from outside."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from uuid import uuid4

import httpx2
import pytest
import websockets.sync.client as websocket
import zstandard
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("home"), RELAYWEB_MAX_BODY=str(1_000_000)).start()
    running.ingest = running.token("ingest")
    yield running
    running.stop()


def mark(**members: object) -> dict:
    event = {"kind": "mark", "atof_version": "0.1", "uuid": str(uuid4()), "parent_uuid": None, "name": "note"}
    return event | {"timestamp": "2026-01-01T00:00:00Z", "data": None, "metadata": None} | members


def lines(*events: dict) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def post(served: Served, body: bytes, path: str = "/ingest/atof", **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named.setdefault("authorization", f"Bearer {served.ingest}")
    return httpx2.post(served.url + path, content=body, headers=named)


def chunk(*events: dict) -> bytes:
    data = lines(*events)
    return b"%x\r\n%s\r\n" % (len(data), data)


def count(served: Served) -> int:
    return served.get("/healthz").json()["writer"]["seq"]


def until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def test_events_are_accepted_once(served: Served) -> None:
    body = lines(mark(), mark())
    assert post(served, body).json() == {"accepted": 2, "duplicates": 0, "rejected": []}
    assert post(served, body).json() == {"accepted": 0, "duplicates": 2, "rejected": []}


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_packed_bodies_are_unpacked(served: Served, encoding: str, pack) -> None:
    assert post(served, pack(lines(mark())), content_encoding=encoding).json()["accepted"] == 1


def test_one_event_may_be_sent_as_people_write_it(served: Served) -> None:
    body = json.dumps(mark(data={"a": [1, {"b": 2}]}), indent=2).encode()
    answer = post(served, body, content_type="application/json")
    assert answer.json() == {"accepted": 1, "duplicates": 0, "rejected": []}


def test_bad_lines_are_rejected_alone_by_their_physical_number(served: Served) -> None:
    body = b"\n".join([lines(mark()), b"not json", b"\r", lines(mark(name="a\u2028b"))[:-1], b'{"kind": "odd"}', b"[]"])
    answer = post(served, body).json()
    assert answer["accepted"] == 2
    assert [rejection["line"] for rejection in answer["rejected"]] == [3, 6, 7]
    assert all(rejection["error"] for rejection in answer["rejected"])


def test_a_line_that_is_too_long_is_rejected_alone(served: Served) -> None:
    def upload() -> Iterator[bytes]:
        yield lines(mark())
        yield from [b"x" * 100_000] * 12
        yield b"\n" + lines(mark())

    answer = httpx2.post(
        served.url + "/ingest/atof", content=upload(), headers={"authorization": f"Bearer {served.ingest}"}
    ).json()
    assert answer["accepted"] == 2
    assert answer["rejected"] == [{"line": 2, "error": "the line is longer than 1000000 bytes"}]


def test_an_upload_is_committed_as_it_comes(served: Served) -> None:
    before = count(served)
    port = int(served.url.rsplit(":", 1)[1])
    head = f"POST /ingest/atof?token={served.ingest} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as upload:
        upload.sendall(head.encode())
        for number in range(1, 4):
            line = lines(mark())
            upload.sendall(b"%x\r\n%s\r\n" % (len(line), line))
            until(lambda n=number: count(served) == before + n, 3)
        half = lines(mark())[:-20]
        upload.sendall(b"%x\r\n%s\r\n" % (len(half), half))
        time.sleep(0.2)
    time.sleep(0.3)
    # The client left in the middle of a line, which is no event.
    assert count(served) == before + 3


def test_a_token_may_come_in_a_header_or_the_url(served: Served) -> None:
    body = lines(mark())
    assert post(served, body, authorization="none", x_relay_token=served.ingest).status_code == 200
    assert post(served, body, f"/ingest/atof?token={served.ingest}", authorization="none").status_code == 200


@pytest.mark.parametrize("path", ["/ingest/atof", "/v1/traces"])
def test_nothing_is_taken_without_the_right_token(served: Served, path: str) -> None:
    before = count(served)
    body = lines(mark())
    wrong = served.token("gateway")
    for answer in (
        post(served, body, path, authorization="x"),
        post(served, body, path, authorization=f"Bearer {wrong}"),
    ):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "relayweb token create --scope ingest" in answer.json()["error"]
    assert count(served) == before


def test_a_stranger_is_refused_before_its_body_is_read(served: Served) -> None:
    port = int(served.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"POST /ingest/atof HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_a_revoked_token_is_refused_within_two_seconds(served: Served) -> None:
    raw = served.token("ingest")
    assert post(served, lines(mark()), authorization=f"Bearer {raw}").status_code == 200
    number = served.run("token", "list").stdout.decode().splitlines()[-1].split()[0]
    served.run("token", "revoke", number)
    until(lambda: post(served, b"", authorization=f"Bearer {raw}").status_code == 401, 3)


@pytest.mark.parametrize(
    ("body", "headers", "status", "told"),
    [
        (b"x" * 1_000_001, {}, 413, "1000000 bytes"),
        (b"not packed", {"content_encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(b"{}", mtime=0)[:-4], {"content_encoding": "gzip"}, 400, "breaks off"),
        (b"", {"content_encoding": "br"}, 415, "gzip, zstd"),
        (b"", {"content_type": "multipart/form-data; boundary=x"}, 415, "application/x-ndjson"),
        (b"", {"content_type": "application/x-protobuf"}, 415, "/v1/traces"),
        (gzip.compress(bytes(50_000_000), mtime=0), {"content_encoding": "gzip"}, 413, "unpacks"),
    ],
)
def test_a_body_that_cannot_be_taken_is_told_why(
    served: Served, body: bytes, headers: dict, status: int, told: str
) -> None:
    answer = post(served, body, **headers)
    assert answer.status_code == status
    assert told in answer.json()["error"]


def test_what_was_committed_before_an_error_is_counted(served: Served) -> None:
    def upload() -> Iterator[bytes]:
        packed = gzip.compress(lines(mark()))
        yield packed
        time.sleep(0.3)
        yield b"damaged"

    headers = {"authorization": f"Bearer {served.ingest}", "content-encoding": "gzip"}
    answer = httpx2.post(served.url + "/ingest/atof", content=upload(), headers=headers)
    assert (answer.status_code, answer.json()["accepted"]) == (400, 1)


def test_other_methods_and_places_are_told_where_the_doors_are(served: Served) -> None:
    got = httpx2.get(served.url + "/ingest/atof")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    nowhere = post(served, b"", "/ingest/otlp")
    assert nowhere.status_code == 404 and "/v1/traces" in nowhere.json()["error"]


def test_a_foreign_host_is_refused(served: Served) -> None:
    answer = post(served, lines(mark()), host="evil.example")
    assert answer.status_code == 400 and "RELAYWEB_HOSTS" in answer.json()["error"]


def socket_url(served: Served, token: str | None = None) -> str:
    return served.url.replace("http", "ws", 1) + "/ingest/atof/ws" + (f"?token={token}" if token else "")


def test_a_websocket_takes_events_and_lines_as_text_and_bytes(served: Served) -> None:
    before = count(served)
    with websocket.connect(socket_url(served, served.ingest)) as sink:
        sink.send(json.dumps(mark()))
        until(lambda: count(served) == before + 1)
        sink.send(lines(mark(), mark()).decode())
        sink.send(lines(mark()))
        sink.send("not json")
        sink.send(json.dumps(mark()))
        until(lambda: count(served) == before + 5)
    until(lambda: "websocket: line 5 rejected: not JSON" in served.log.read_text())


def test_what_a_websocket_sent_before_it_closed_is_recorded(served: Served) -> None:
    before = count(served)
    with websocket.connect(socket_url(served, served.ingest)) as sink:
        for _ in range(500):
            sink.send(json.dumps(mark()))
    until(lambda: count(served) == before + 500)


def test_a_websocket_without_a_token_is_refused(served: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        websocket.connect(socket_url(served))
    assert refused.value.response.status_code == 401


def test_a_websocket_from_a_foreign_page_is_refused(served: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        websocket.connect(socket_url(served, served.ingest), origin="https://evil.example")
    assert refused.value.response.status_code == 403


def test_a_trace_request_is_answered_as_otlp_has_it(served: Served) -> None:
    span = {
        "traceId": uuid4().hex,
        "spanId": uuid4().hex[:16],
        "name": "a",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
    }
    lost = {**span, "spanId": uuid4().hex[:16], "startTimeUnixNano": str(2**64 - 1)}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span, lost]}]}]}).encode()
    answer = post(served, body, "/v1/traces", content_type="application/json")
    assert answer.status_code == 200
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedSpans"] == "1" and lost["spanId"] in partial["errorMessage"]
    again = post(served, json.dumps({"resourceSpans": []}).encode(), "/v1/traces", content_type="application/json")
    assert again.json() == {}


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [(b"{}", "application/json", 400), (b"\xff\xff", "application/x-protobuf", 400), (b"", "text/plain", 415)],
)
def test_a_trace_request_that_cannot_be_read_is_told_why(
    served: Served, body: bytes, content_type: str, status: int
) -> None:
    answer = post(served, body, "/v1/traces", content_type=content_type)
    assert answer.status_code == status
    if content_type == "application/x-protobuf":  # as OTLP has it: a google.rpc.Status
        assert answer.headers["content-type"] == content_type
        told = answer.content
        assert told[:3] == b"\x08\x03\x12" and b"OTLP" in told
    else:
        assert "OTLP" in answer.json()["message"] and answer.json()["code"] == 3


def test_the_log_holds_no_token(served: Served) -> None:
    post(served, b"", f"/ingest/nowhere?token={served.ingest}")
    post(served, b"", f"/gw/t/{served.ingest}/nowhere/v1/models")
    log = served.log.read_text()
    assert "POST /ingest/nowhere 404" in log and "/gw/t/***/nowhere/v1/models" in log
    assert served.ingest not in log


def test_a_revoked_token_ends_uploads_and_websockets_that_it_opened(served: Served) -> None:
    raw = served.run("token", "create", "--scope", "ingest", "--name", "gone").stdout.decode().split()[-1]
    head = f"POST /ingest/atof?token={raw} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    port = int(served.url.rsplit(":", 1)[1])
    before = count(served)

    url = f"ws://127.0.0.1:{port}/ingest/atof/ws?token={raw}"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as upload, websocket.connect(url) as sink:
        upload.sendall(head.encode() + chunk(mark()))
        sink.send(json.dumps(mark()))
        until(lambda: count(served) == before + 2)
        assert b"revoked" in served.run("token", "revoke", "gone").stdout
        time.sleep(4.5)  # a good token is remembered for two seconds, and asked after each two
        upload.sendall(chunk(mark()))
        answer = upload.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 401") and b"revoked" in answer
        with pytest.raises(ConnectionClosed):
            for _ in range(20):
                sink.send(json.dumps(mark()))
                time.sleep(0.5)


def test_lines_keep_their_numbers_however_many_there_are(served: Served) -> None:
    body = lines(*[mark() for _ in range(3)]).split(b"\n")
    many = [b""] * 4_500 + [body[0], b"bad"] + [b"{}"] * 300 + [b" "] * 4_000 + [body[1], b"worse", body[2], b"last"]
    answer = post(served, b"\n".join(many)).json()
    assert answer["accepted"] == 3
    wrong = [n for n, line in enumerate(many, 1) if line.strip() and b"kind" not in line]
    assert [rejection["line"] for rejection in answer["rejected"]] == wrong
