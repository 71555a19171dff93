"""Tokens at the doors, the gateway and the API: made, recognised, revoked.

A token is 256 random bits, so a plain SHA-256 at rest is enough: there is nothing to guess.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from relayweb.access.models import Token

_FORM = re.compile(r"rw_(ingest|gateway|read)_[A-Za-z0-9_-]{43}")

# A token that was good a moment ago is good now; a revoked one stops working within this many seconds in every process.
_FRESH_SECONDS = 2.0
# With the database gone, tokens seen before stay good: the recorder's faults must not stop the agent.
_known: dict[bytes, tuple[Token, float]] = {}
# A thread of its own: Django's shared thread may be busy with a slow page while a door waits.
_lookups = ThreadPoolExecutor(1, thread_name_prefix="relayweb-access")


def create(name: str, scope: str) -> str:
    """Make a token and return its text, which is shown this once and never stored.

    Args:
        name: what it is for, as people will see it in lists.
        scope: "ingest", "gateway" or "read".

    Raises:
        ValueError: the scope is none of these.
    """
    if scope not in Token.Scope.values:
        raise ValueError(f"scope {scope!r} is none of {', '.join(Token.Scope.values)}")
    raw = f"rw_{scope}_{secrets.token_urlsafe(32)}"
    Token.objects.create(name=name, scope=scope, digest=_digest(raw), hint=raw[-4:])
    return raw


def revoke(token: Token) -> None:
    """Stop a token from working: here at once, in other processes within two seconds."""
    token.revoked_at = timezone.now()
    token.save(update_fields=["revoked_at"])
    _known.pop(bytes(token.digest), None)


def authenticate(raw: str | None, scope: str) -> Token | None:
    """The token behind `raw` if it may be used for `scope`, else None."""
    if not _may_be_a_token(raw, scope):
        return None
    digest = _digest(raw)
    return _remembered(digest) or _look_up(digest, scope)


async def aauthenticate(raw: str | None, scope: str) -> Token | None:
    """As `authenticate`, without blocking the event loop."""
    if not _may_be_a_token(raw, scope):
        return None
    digest = _digest(raw)
    if token := _remembered(digest):
        return token
    return await asyncio.get_running_loop().run_in_executor(_lookups, _look_up_in_thread, digest, scope)


def from_scope(asgi_scope: Mapping[str, Any]) -> str | None:
    """The token text of a request: `Authorization: Bearer`, `x-relay-token` or `?token=`, in this order."""
    bearer: bytes | None = None
    relay: bytes | None = None
    for name, value in asgi_scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            bearer = value[7:].strip()
        elif name == b"x-relay-token":
            relay = value.strip()
    for found in (bearer, relay):
        if found is not None and found.startswith(b"rw_"):
            return found.decode("latin-1")
    query: bytes = asgi_scope.get("query_string", b"")
    for key, text in parse_qsl(query.decode("latin-1")):
        if key == "token":
            return text
    found = relay or bearer
    return found.decode("latin-1") if found else None


def _may_be_a_token(raw: str | None, scope: str) -> bool:
    match = _FORM.fullmatch(raw) if raw else None
    return match is not None and match[1] == scope


def _digest(raw: str | None) -> bytes:
    return hashlib.sha256((raw or "").encode()).digest()


def _remembered(digest: bytes) -> Token | None:
    token, seen = _known.get(digest, (None, 0.0))
    return token if time.monotonic() - seen < _FRESH_SECONDS else None


def _look_up(digest: bytes, scope: str) -> Token | None:
    try:
        token = Token.objects.filter(digest=digest, scope=scope, revoked_at=None).first()
    except DatabaseError:
        return _known.get(digest, (None, 0.0))[0]
    if token is None:
        _known.pop(digest, None)
    else:
        _known[digest] = (token, time.monotonic())
    return token


def _look_up_in_thread(digest: bytes, scope: str) -> Token | None:
    close_old_connections()
    try:
        return _look_up(digest, scope)
    finally:
        close_old_connections()
