"""The doors events come in by: `POST /ingest/atof`, the websocket `/ingest/atof/ws`, and `POST /v1/traces`.

Plain ASGI. A door checks the token before it takes the first byte of a body.
"""

from __future__ import annotations

from relayweb.access import tokens
from relayweb.access.answers import Receive, Scope, Send, deny
from relayweb.ingest import posts, sockets, traces

NO_TOKEN = (
    "a token of scope ingest is needed, as `authorization: Bearer …`, `x-relay-token` or `?token=`; "
    "`relayweb token create --scope ingest` makes one"
)
DOORS = {
    ("http", "/ingest/atof"): posts.atof,
    ("websocket", "/ingest/atof/ws"): sockets.atof,
    ("http", "/v1/traces"): traces.otlp,
}


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: everything under /ingest/, and /v1/traces."""
    door = DOORS.get((scope["type"], scope["path"].rstrip("/")))
    if door is None:
        places = ", ".join(f"{'POST' if kind == 'http' else kind} {path}" for kind, path in DOORS)
        await deny(scope, receive, send, 404, f"there is no door here; there are {places}")
    elif scope["type"] == "http" and scope["method"] != "POST":
        await deny(scope, receive, send, 405, f"use POST at {scope['path']}", [(b"allow", b"POST")])
    else:
        try:
            token = await tokens.aauthenticate(tokens.from_scope(scope), "ingest", tokens.peer_of(scope))
        except tokens.NotNow as error:
            retry = str(error.retry_after).encode()
            await deny(scope, receive, send, error.status, str(error), [(b"retry-after", retry)])
        else:
            if token is None:
                await deny(scope, receive, send, 401, NO_TOKEN, [(b"www-authenticate", b"Bearer")])
            else:
                await door(scope, receive, send)
