"""The doors events come in by: `POST /ingest/atof`, the websocket `/ingest/atof/ws`, and OTLP's `POST /v1/traces`,
`/v1/logs` and `/v1/metrics`.

Plain ASGI. A door checks the token before it takes the first byte of a body.
"""

from __future__ import annotations

import time

from relayweb.access import tokens
from relayweb.access.answers import Message, Receive, Scope, Send, deny
from relayweb.ingest import posts, signals, sockets
from relayweb.ingest.reading import BodyError

RECHECK_SECONDS = 2.0
"""How often the token of something that goes on coming is looked at again."""

NO_TOKEN = (
    "a token of scope ingest is needed, as `authorization: Bearer …`, `x-relay-token` or `?token=`; "
    "`relayweb token create --scope ingest` makes one"
)
DOORS = {
    ("http", "/ingest/atof"): posts.atof,
    ("websocket", "/ingest/atof/ws"): sockets.atof,
    ("http", "/v1/traces"): signals.traces,
    ("http", "/v1/logs"): signals.logs,
    ("http", "/v1/metrics"): signals.metrics,
}


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: everything under /ingest/, and OTLP's places."""
    door = DOORS.get((scope["type"], scope["path"].rstrip("/")))
    if door is None:
        places = ", ".join(f"{'POST' if kind == 'http' else kind} {path}" for kind, path in DOORS)
        await deny(scope, receive, send, 404, f"there is no door here; there are {places}")
    elif scope["type"] == "http" and scope["method"] != "POST":
        await deny(scope, receive, send, 405, f"use POST at {scope['path']}", [(b"allow", b"POST")])
    else:
        try:
            raw, peer = tokens.from_scope(scope), tokens.peer_of(scope)
            token = await tokens.aauthenticate(raw, "ingest", peer)
        except tokens.NotNow as error:
            retry = str(error.retry_after).encode()
            await deny(scope, receive, send, error.status, str(error), [(b"retry-after", retry)])
        else:
            if token is None:
                await deny(scope, receive, send, 401, NO_TOKEN, [(b"www-authenticate", b"Bearer")])
            else:
                await door(scope, _while_good(receive, raw, peer), send)


def _while_good(receive: Receive, raw: str | None, peer: str) -> Receive:
    """What is received, until the token is revoked: uploads and sockets may last as long as their agent."""
    asked = time.monotonic()

    async def received() -> Message:
        nonlocal asked
        message = await receive()
        if (now := time.monotonic()) - asked > RECHECK_SECONDS and not message["type"].endswith(".disconnect"):
            asked = now
            if not await tokens.still_good(raw, "ingest", peer):
                if message["type"] == "http.request":
                    raise BodyError(401, "the token was revoked; lines after those counted here were not taken")
                return {"type": "websocket.disconnect", "code": 1008}
        return message

    return received
