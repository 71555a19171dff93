"""One ASGI application: plain apps for the doors, the gateway and the live sockets, Django for the rest.

The doors and the gateway stand beside Django because an empty async view costs six times the CPU of a bare ASGI app,
and because Django spools request bodies.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayweb.settings")

from django.core.asgi import get_asgi_application

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

django_application = get_asgi_application()

from relayweb.gateway.app import application as gateway
from relayweb.ingest.doors import application as doors
from relayweb.live.consumers import application as live


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope.get("path", "")
    if path.startswith(("/ingest/", "/v1/traces")):
        await doors(scope, receive, send)
    elif path.startswith("/gw/"):
        await gateway(scope, receive, send)
    elif scope["type"] == "websocket":
        await live(scope, receive, send)
    else:
        await django_application(scope, receive, send)
