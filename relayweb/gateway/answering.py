"""The client's side of one request: what is sent to it, and whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from relayweb.gateway.errors import GatewayError
from relayweb.gateway.headers import Headers

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Allowed = Callable[[], Awaitable[bool]]

RECHECK_SECONDS = 2.0
"""How often it is asked whether a client may go on."""


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


class Room:
    """Bytes of request bodies under way, of all calls together."""

    def __init__(self, most: int) -> None:
        self._most, self.taken = most, 0

    @contextmanager
    def entered(self) -> Iterator[Callable[[int], None]]:
        """Gives what takes so many bytes until the call is over; it raises GatewayError 503 when there is no room."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            mine += size
            self.taken += size
            if self.taken > self._most:
                text = f"the bodies under way have more than {self._most} bytes together; try again in a moment"
                raise GatewayError(503, "busy", text, retry_after=2)

        try:
            yield take
        finally:
            self.taken -= mine


async def read_body(receive: Receive, limit: int, take: Callable[[int], None]) -> bytes | None:
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
        take(len(part))
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def unless_gone(
    receive: Receive, client: Answering, work: Coroutine[Any, Any, None], allowed: Allowed | None = None
) -> None:
    """Does `work`, and cancels it the moment the client hangs up; returns when it has wound up.

    A client that has its whole answer may go: what is still to be done is the record's. One that is not `allowed` to
    go on, which is asked every RECHECK_SECONDS, gets 401 (a GatewayError), or is cut off where its answer has begun.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    revoked = asyncio.ensure_future(_revoked(allowed)) if allowed else None
    try:
        await asyncio.wait({task, gone, revoked} if revoked else {task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if client.ended:
            await asyncio.wait({task})
        if task.done():
            task.result()
            return
    finally:
        gone.cancel()
        if revoked:
            revoked.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=15)
    if revoked and revoked.done() and not revoked.cancelled() and not client.ended:
        if client.started:
            raise Cut("the token was revoked")
        raise GatewayError(401, "wrong_token", "the token was revoked while the call was under way", retry=False)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _revoked(allowed: Allowed) -> None:
    while True:
        await asyncio.sleep(RECHECK_SECONDS)
        if not await allowed():
            return
