"""relayweb behind another ASGI server."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from uuid import uuid4

import httpx2
import pytest
import websockets.sync.client as websocket
from websockets.exceptions import InvalidStatus

from tests.served import OnUvicorn, Served


def mark() -> dict:
    event = {"kind": "mark", "atof_version": "0.1", "uuid": str(uuid4()), "parent_uuid": None, "name": "note"}
    return event | {"timestamp": "2026-01-01T00:00:00Z", "data": None, "metadata": None}


def count(served: Served) -> int:
    return served.get("/healthz").json()["writer"]["seq"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def test_doors_pages_and_stop_work_on_uvicorn(tmp_path) -> None:
    served = OnUvicorn(tmp_path)
    token = served.token("ingest")
    served.start()
    try:
        assert served.send([mark(), mark()], token) == {"accepted": 2, "duplicates": 0, "rejected": []}

        def upload():
            yield json.dumps(mark()).encode() + b"\n"
            until(lambda: count(served) == 3)  # committed while the upload is open
            yield json.dumps(mark()).encode() + b"\n"

        headers = {"authorization": f"Bearer {token}"}
        assert httpx2.post(served.url + "/ingest/atof", content=upload(), headers=headers).json()["accepted"] == 2

        socket = served.url.replace("http", "ws") + "/ingest/atof/ws"
        with websocket.connect(socket, additional_headers=headers) as sink:
            sink.send(json.dumps(mark()))
        until(lambda: count(served) == 5)
        with pytest.raises(InvalidStatus) as refused:
            websocket.connect(socket)
        assert refused.value.response.status_code == 401

        link = served.run("login", "--url", served.url).stdout.decode().strip()
        with httpx2.Client(timeout=30) as browser:
            assert browser.get(link).headers["location"] == "/"
        assert served.get("/").status_code == 302
        assert served.get("/healthz", host="evil.example").status_code == 400
    finally:
        # Having stopped in order it raises the signal it was sent once more.
        assert served.stop() == -signal.SIGTERM
    assert "Application shutdown complete" in served.log.read_text()
    exported = served.run("export", "--format", "atof").stdout
    assert exported.count(b"\n") == 5
    log = served.log.read_text()
    assert token not in log and re.search(r"relayweb.access: \S+ GET /login/\*\*\*/ 302", log)
