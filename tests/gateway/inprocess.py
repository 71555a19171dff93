"""A client of the gateway in this process, without server, token and database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from relayweb.gateway import routes
from relayweb.gateway.answering import Answering, unless_gone
from relayweb.gateway.app import Gateway
from relayweb.gateway.exchange import Incoming
from relayweb.gateway.upstreams import Target


class Answer:
    """What the client got so far."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.ended = False
        self.error: BaseException | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def receive(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert not self.status
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            assert not self.ended, "a piece after the end"
            self.pieces.append(message["body"])
            self.ended = not message.get("more_body", False)


async def ask(
    gateway: Gateway,
    target: Target,
    path: str,
    body: bytes | dict[str, Any],
    headers: dict[str, str] | None = None,
    hang_up: asyncio.Event | None = None,
    on_piece: Callable[[Answer], None] | None = None,
) -> Answer:
    """Makes a call; a cut is in `answer.error`. Setting `hang_up` is the client's disconnect."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    raw = [(k.encode(), v.encode()) for k, v in {"content-type": "application/json", **(headers or {})}.items()]
    incoming = Incoming(target, "POST", target.url(path), routes.api_mode("POST", path), raw, content)
    answer = Answer()
    gone = hang_up or asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await answer.receive(message)
        if on_piece:
            on_piece(answer)

    try:
        client = Answering(send)
        await unless_gone(receive, client, gateway.call(incoming, "tests", client))
    except Exception as error:
        answer.error = error
    return answer
