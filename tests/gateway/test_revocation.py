"""What a token began does not outlive it."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from relayweb.access import tokens
from relayweb.access.models import Token
from relayweb.gateway.answering import Answering, Cut, unless_gone
from relayweb.gateway.errors import GatewayError
from tests.gateway.provider import HANG, Provider, Script, chat_stream
from tests.gateway.test_on_uvicorn import OnUvicorn
from tests.served import Served

STREAM = {"content-type": "text/event-stream"}


@pytest.mark.parametrize("kind", [Served, OnUvicorn])
def test_calls_end_within_seconds_of_the_revocation_of_their_token(
    tmp_path: Path, provider: Provider, kind: type[Served]
) -> None:
    served = kind(tmp_path)
    served.run("upstream", "set", "mock", "--base-url", provider.url, "--api-mode", "chat_completions")
    made = served.run("token", "create", "--scope", "gateway", "--name", "gone")
    gone, stays = made.stdout.decode().split()[-1], served.token("gateway")
    served.start()
    provider.scripts["r-stream"] = Script(headers=STREAM, pieces=[*chat_stream("A")[:1], HANG])
    provider.scripts["r-late"] = Script(headers=STREAM, pieces=[HANG])
    provider.scripts["r-stays"] = Script(headers=STREAM, pieces=[*chat_stream("A")[:1], 7.0, *chat_stream("A")[1:]])

    def call(model: str, token: str) -> tuple[int, bytes, float]:
        body = {"model": model, "stream": model != "r-late", "messages": [{"role": "user", "content": model}]}
        parts = []
        try:
            url = f"{served.url}/gw/mock/chat/completions"
            with httpx2.stream("POST", url, json=body, headers={"x-relay-token": token}, timeout=30) as response:
                for part in response.iter_raw():
                    parts.append(part)
            return response.status_code, b"".join(parts), time.monotonic()
        except httpx2.RemoteProtocolError:
            return -1, b"".join(parts), time.monotonic()

    try:
        with ThreadPoolExecutor() as threads:
            streamed, late = threads.submit(call, "r-stream", gone), threads.submit(call, "r-late", gone)
            other = threads.submit(call, "r-stays", stays)
            time.sleep(1)
            assert not streamed.done() and not late.done()
            assert b"revoked" in served.run("token", "revoke", "gone").stdout
            revoked = time.monotonic()
            status, data, at = streamed.result(15)
            assert status == -1 and data == chat_stream("A")[0] and at - revoked < 5
            status, data, at = late.result(15)
            assert status == 401 and json.loads(data)["error"]["code"] == "wrong_token" and at - revoked < 5
            assert provider.waits_for_hang_up("r-stream") - revoked < 5
            assert provider.waits_for_hang_up("r-late") - revoked < 5
            assert other.result(15)[:2] == (200, b"".join(chat_stream("A")))
    finally:
        served.stop()


class Client(Answering):
    def __init__(self) -> None:
        self.sent: list[Any] = []

        async def send(message: Any) -> None:
            self.sent.append(message)

        super().__init__(send)


async def never() -> Any:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_call_that_may_not_go_on_is_refused_or_cut(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    monkeypatch.setattr("relayweb.gateway.answering.RECHECK_SECONDS", 0.01)
    client, wound_up, left = Client(), [], 3

    async def work() -> None:
        try:
            if begun:
                await client.start(200, [])
            await never()
        finally:
            wound_up.append(True)

    async def allowed() -> bool:
        nonlocal left
        left -= 1
        return left > 0

    with pytest.raises(Cut if begun else GatewayError):
        await unless_gone(never, client, work(), allowed)
    assert wound_up and left == 0


@pytest.mark.django_db(transaction=True)
async def test_many_calls_of_a_revoked_token_count_as_one_wrong_token() -> None:
    raw = await asyncio.to_thread(tokens.create, "many", "gateway")
    assert await tokens.aauthenticate(raw, "gateway", "1.2.3.4")
    await asyncio.to_thread(lambda: tokens.revoke(Token.objects.get()))
    for _ in range(tokens.WRONG_TOKENS + 5):
        assert not await tokens.still_good(raw, "gateway", "1.2.3.4")
    assert await tokens.aauthenticate("rw_gateway_" + "x" * 43, "gateway", "1.2.3.4") is None  # no TooMany
