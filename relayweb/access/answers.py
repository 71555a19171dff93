"""JSON answers of the plain ASGI apps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


async def answer(send: Send, status: int, content: Any, headers: Headers | None = None, prefix: str = "") -> None:
    """Send one JSON answer."""
    body = json.dumps(content).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": prefix + "http.response.start", "status": status, "headers": fixed + (headers or [])})
    await send({"type": prefix + "http.response.body", "body": body})


async def deny(
    scope: Scope, receive: Receive, send: Send, status: int, error: str, headers: Headers | None = None
) -> None:
    """Refuse a request, or a websocket before it is open, with `{"error": …}`."""
    prefix = ""
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        prefix = "websocket."
    await answer(send, status, {"error": error}, headers, prefix)
