"""One ASGI application: plain apps for the doors, the gateway and the live sockets, Django for the rest.

The doors and the gateway stand beside Django because an empty async view costs six times the CPU of a bare ASGI app,
and because Django spools request bodies.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayweb.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from relayweb import health, lifecycle
from relayweb.access import hosts
from relayweb.access.answers import Receive, Scope, Send, deny
from relayweb.access.log import Logged
from relayweb.gateway.app import application as gateway
from relayweb.ingest.doors import application as doors
from relayweb.live.consumers import application as live


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one connection, and write one line about it."""
    if scope["type"] == "lifespan":
        return await lifecycle.lifespan(receive, send)
    logged = Logged(scope, send)
    try:
        await _route(scope, receive, logged)
    except BaseException:
        logged.write(cut=True)
        raise
    logged.write()


async def _route(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope["path"]
    if not hosts.host_allowed(scope):
        await deny(scope, receive, send, 400, "this Host is not served here; add it to RELAYWEB_HOSTS")
    elif scope["type"] == "websocket" and not hosts.origin_allowed(scope):
        await deny(scope, receive, send, 403, "websockets are open to pages of this server and to programs only")
    elif path.startswith(("/ingest/", "/v1/")):
        await doors(scope, receive, send)
    elif path.startswith("/gw/"):
        await gateway(scope, receive, send)
    elif scope["type"] == "websocket":
        await live(scope, receive, send)
    elif path == "/healthz":
        await health.application(scope, receive, send)
    else:
        await django_application(scope, receive, send)  # type: ignore[arg-type]
