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

from relayweb import conf


def host_allowed(asgi_scope: Mapping[str, Any]) -> bool:
    """Whether the request's Host, the only one it has, is one this server answers to."""
    hosts = _headers(asgi_scope, b"host")
    domain, _ = split_domain_port(hosts[0] if len(hosts) == 1 else "")
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def origin_allowed(asgi_scope: Mapping[str, Any]) -> bool:
    """Whether a websocket may come from its Origin: the same host and port, or none at all (programs send none).

    Where the public URL is https, a page that came without TLS, which anybody on the way may have written, is foreign.
    """
    origins, hosts = _headers(asgi_scope, b"origin"), _headers(asgi_scope, b"host")
    if not origins:
        return True
    scheme, _, origin = origins[0].partition("://")
    public = urlsplit(conf.PUBLIC_URL.lower())
    schemes = [public.scheme] if hosts == [public.netloc] else ["http", "https"]
    return len(origins) == 1 and scheme in schemes and hosts == [origin]


def _headers(asgi_scope: Mapping[str, Any], wanted: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for name, value in asgi_scope["headers"] if name == wanted]
