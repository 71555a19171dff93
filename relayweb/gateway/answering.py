"""The client's side of one request: what is sent to it, and whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from relayweb.gateway.errors import GatewayError
from relayweb.gateway.headers import Headers

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


# A browser must not take what a provider or a model sent for a page of ours, with our cookies at hand.
_NO_PAGE = [(b"content-security-policy", b"default-src 'none'; sandbox"), (b"x-content-type-options", b"nosniff")]


class Cut(ConnectionError):
    """The answer broke off after it had begun. The server takes a ConnectionError as the order to cut."""


class Answering:
    """Sends one HTTP response, whole or piece by piece; says whether it has begun and whether it has ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.ended = False

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *_NO_PAGE]})

    async def piece(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        self.ended = True
        await self._send({"type": "http.response.body", "body": b""})

    async def whole(self, status: int, headers: Headers, content: bytes) -> None:
        self.started = self.ended = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *_NO_PAGE]})
        await self._send({"type": "http.response.body", "body": content})


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """The request's body, None when the client hung up first. GatewayError 413 when it is larger than `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            text = f"the body is larger than {limit} bytes; send less at once, or raise RELAYWEB_MAX_BODY"
            raise GatewayError(413, "request_too_large", text, retry=False)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def unless_gone(receive: Receive, client: Answering, work: Coroutine[Any, Any, None]) -> None:
    """Does `work`, and cancels it the moment the client hangs up; returns when it has wound up.

    A client that has its whole answer may go: what is still to be done is the record's.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if client.ended:
            await asyncio.wait({task})
        if task.done():
            task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=15)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
