"""`record_to` sends everything, the last events of the process included."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from adapters import record_to

PROGRAM = """
import sys
from adapters import record_to, relay_llm, turn
late = sys.argv[2] == "late"
if not late:
    assert record_to(sys.argv[1], "rw_ingest_x")
with turn(session="s1"):
    if late:
        assert record_to(sys.argv[1], "rw_ingest_x")
    relay_llm.execute_current({"model": "m"}, lambda r: {"ok": 1}, name="p", metadata={"api_request_id": "a"})
"""


@pytest.fixture
def door() -> Iterator[Any]:
    received: list[dict[str, Any]] = []
    tokens: list[tuple[str, str | None]] = []

    def take(socket: ServerConnection) -> None:
        assert socket.request is not None
        tokens.append((socket.request.path, socket.request.headers.get("authorization")))
        for message in socket:
            received.append(json.loads(message))

    with serve(take, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1], received, tokens
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("when", ["first", "late"])
def test_all_events_arrive_up_to_the_end_of_the_session(door: Any, when: str) -> None:
    port, received, tokens = door
    program = [sys.executable, "-c", PROGRAM, f"http://127.0.0.1:{port}/", when]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not (received and received[-1]["name"] == "relay.session"):
        time.sleep(0.02)
    names = [(e["name"], e["scope_category"]) for e in received if e["kind"] == "scope"]
    assert names[-2:] == [("relay.turn", "end"), ("relay.session", "end")]
    assert ("p", "end") in names
    assert tokens == [("/ingest/atof/ws", "Bearer rw_ingest_x")]


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://"])
def test_an_address_that_cannot_be_used_is_an_error(url: str) -> None:
    with pytest.raises(ValueError, match="http or https address"):
        record_to(url)


def test_a_refused_token_is_said() -> None:
    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.end_headers()
            self.wfile.write(b'{"error": "a token of scope ingest is needed"}')

        do_GET = do_POST

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever).start()
        program = [sys.executable, "-c", PROGRAM, f"http://127.0.0.1:{server.server_port}", "first"]
        try:
            done = subprocess.run(program, capture_output=True, text=True, timeout=60)
        finally:
            server.shutdown()
    assert done.returncode == 0
    assert "does not take the token, nothing is recorded there: a token of scope ingest is needed" in done.stderr
