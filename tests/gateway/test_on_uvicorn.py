"""The gateway behind uvicorn: the same streams, cuts and hang-ups."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.gateway.provider import CUT, HANG, Provider, Script, chat_stream
from tests.served import Served

STREAM = {"content-type": "text/event-stream"}


class OnUvicorn(Served):
    command = [sys.executable, "-m", "uvicorn", "relayweb.asgi:application", "--port", "0", "--lifespan", "on"]
    command += ["--no-access-log"]
    ready = rb"running on (http://\S+)"


def test_streams_cuts_and_hang_ups_are_the_same_on_uvicorn(tmp_path: Path, provider: Provider) -> None:
    served = OnUvicorn(tmp_path)
    served.run("upstream", "set", "mock", "--base-url", provider.url, "--api-mode", "chat_completions")
    headers = {"x-relay-token": served.token("gateway")}
    served.start()
    provider.scripts["u-cut"] = Script(headers=STREAM, pieces=[*chat_stream("A")[:1], 0.05, CUT])
    provider.scripts["u-hang"] = Script(headers=STREAM, pieces=[*chat_stream("A")[:1], HANG])

    def call(model: str):  # type: ignore[no-untyped-def]
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        return httpx2.stream("POST", f"{served.url}/gw/mock/chat/completions", json=body, headers=headers)

    try:
        with call("u-whole") as response:
            assert response.read() == b"".join(chat_stream("A", "B", "C", "D"))
        with pytest.raises(httpx2.RemoteProtocolError), call("u-cut") as response:
            response.read()
        with call("u-hang") as response:
            next(response.iter_raw())
        began = time.monotonic()
        assert provider.waits_for_hang_up("u-hang") - began < 0.5
    finally:
        served.stop()
