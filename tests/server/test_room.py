"""Bodies of many clients at a time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import httpx2

from tests.test_server import Server, Small, read_until, until


def test_bodies_that_anybody_may_send_do_not_fill_the_memory_together(tmp_path: Path) -> None:
    served = Small(tmp_path, PAGES_BYTES="5000000").start()
    server = Server(served)
    head = "POST /collect HTTP/1.1\nHost: x\nContent-Length: 2000000"
    try:
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(server.raw(head)).sendall(bytes(1_900_000))
            small = httpx2.post(server.url + "/collect", content=bytes(1000))
            third = stack.enter_context(server.raw(head))
            third.sendall(bytes(1_900_000))
            answer = read_until(third, b"}")
            assert small.status_code == 200
            assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 2" in answer
            large = stack.enter_context(server.raw("POST /gw/collect HTTP/1.1\nHost: x\nContent-Length: 3000000"))
            large.sendall(bytes(3_000_000))  # the gateway counts for itself
            assert read_until(large, b"\r\n").startswith(b"HTTP/1.1 200")
        until(lambda: httpx2.post(server.url + "/collect", content=bytes(1_900_000)).status_code == 200)
        for _ in range(4):  # what was counted is given back
            assert httpx2.post(server.url + "/collect", content=bytes(1_900_000)).status_code == 200
    finally:
        served.stop()
