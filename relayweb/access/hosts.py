"""Host and Origin, checked for what Django's middleware never sees: doors, gateway and websockets.

A page of another site must not reach a server on loopback through a name it points there (DNS rebinding), nor open a
websocket with the visitor's cookies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host


def host_allowed(asgi_scope: Mapping[str, Any]) -> bool:
    """Whether the request's Host is one this server answers to."""
    return _known(_header(asgi_scope, b"host"))


def origin_allowed(asgi_scope: Mapping[str, Any]) -> bool:
    """Whether a websocket may come from its Origin: the same host and port, or none at all (programs send none)."""
    origin = _header(asgi_scope, b"origin")
    if origin is None:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == (_header(asgi_scope, b"host") or "").lower()


def _known(host: str | None) -> bool:
    domain, _ = split_domain_port(host or "")
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def _header(asgi_scope: Mapping[str, Any], wanted: bytes) -> str | None:
    for name, value in asgi_scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return None
