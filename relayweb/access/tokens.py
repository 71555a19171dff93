"""Tokens at the doors, the gateway and the API: made, recognised, revoked.

A token is 256 random bits, so a plain SHA-256 at rest is enough: there is nothing to guess.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from relayweb.access.models import Token
from relayweb.access.throttle import Throttle

log = logging.getLogger(__name__)

_FORM = re.compile(r"rw_(ingest|gateway|read)_[A-Za-z0-9_-]{43}")

# A token that was good a moment ago is good now; a revoked one stops working within this many seconds in every process.
_FRESH_SECONDS = 2.0
# With the database gone, tokens seen before stay good: the recorder's faults must not stop the agent.
_known: dict[bytes, tuple[Token, float]] = {}
# Wrong tokens just seen: a client that goes on trying one asks the database nothing.
_unknown: dict[bytes, float] = {}
_MOST_UNKNOWN = 1000
_throttle = Throttle("tokens")
WRONG_TOKENS = 100
"""Different wrong tokens a minute from one address. Tokens that were good before are not held back by them."""
# A thread of its own: Django's shared thread may be busy with a slow page while a door waits.
_lookups = ThreadPoolExecutor(1, thread_name_prefix="relayweb-access")
_asking: dict[tuple[bytes, str], Future[Token | None]] = {}
_MOST_ASKING = 100
# A database that hangs holds one call up for this long, then tokens seen before are taken without waiting for it.
_PATIENCE_SECONDS = 0.5
_UNKNOWN_PATIENCE_SECONDS = 5.0


class NotNow(Exception):
    """Whether a token is good is not said now. `status` is for an HTTP answer, `retry_after` is in whole seconds."""

    status = 503

    def __init__(self, reason: str, wait: float) -> None:
        self.retry_after = math.ceil(wait)
        super().__init__(f"{reason}; try again in {self.retry_after} s")


class TooMany(NotNow):
    """A token, or an address with wrong tokens, has come too often."""

    status = 429


class CannotTell(NotNow):
    """The database is away and has not been asked about this token before."""

    def __init__(self) -> None:
        super().__init__("the database does not answer, so this token cannot be checked", 2)


def create(name: str, scope: str, per_minute: int | None = None) -> str:
    """Make a token and return its text, which is shown this once and never stored.

    Args:
        name: what it is for, as people will see it in lists.
        scope: "ingest", "gateway" or "read".
        per_minute: requests it is good for in a minute; None for any number.

    Raises:
        ValueError: the scope is none of these.
    """
    if scope not in Token.Scope.values:
        raise ValueError(f"scope {scope!r} is none of {', '.join(Token.Scope.values)}")
    raw = f"rw_{scope}_{secrets.token_urlsafe(32)}"
    Token.objects.create(name=name, scope=scope, digest=_digest(raw), hint=raw[-4:], per_minute=per_minute)
    return raw


def revoke(token: Token) -> None:
    """Stop a token from working: here at once, in other processes within two seconds."""
    token.revoked_at = timezone.now()
    token.save(update_fields=["revoked_at"])
    _known.pop(bytes(token.digest), None)


def authenticate(raw: str | None, scope: str, peer: str = "") -> Token | None:
    """The token behind `raw` if it may be used for `scope`, else None.

    Args:
        raw: the token's text.
        scope: what it is to be used for.
        peer: the address it came from, by which wrong tokens are counted.

    Raises:
        TooMany: its own limit, or that on wrong tokens from this address, is reached.
        CannotTell: the database does not answer, and the token was not seen before.
    """
    if not _may_be_a_token(raw, scope):
        return None
    digest = _digest(raw)
    found = _remembered(digest)
    if found is None and not _known_wrong(digest, peer):
        try:
            found = _look_up(digest, scope, peer)
        except DatabaseError:
            found = _seen_before(digest)
    return _within_its_limit(found)


async def aauthenticate(raw: str | None, scope: str, peer: str = "") -> Token | None:
    """As `authenticate`, without blocking the event loop."""
    if not _may_be_a_token(raw, scope):
        return None
    digest = _digest(raw)
    found = _remembered(digest)
    if found is None and not _known_wrong(digest, peer):
        found = await _asked(digest, scope, peer)
    return _within_its_limit(found)


async def still_good(raw: str | None, scope: str, peer: str = "") -> bool:
    """Whether a token that was let in has not been revoked since; one that cannot be looked up now stays good."""
    digest = _digest(raw)
    if _just_wrong(digest):  # of many calls under one token, one asks; it counts as one wrong token
        return False
    try:
        return _remembered(digest) is not None or await _asked(digest, scope, peer) is not None
    except NotNow:
        return True


def peer_of(asgi_scope: Mapping[str, Any]) -> str:
    """The address of the other side of a connection."""
    return str((asgi_scope.get("client") or [""])[0])


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


def _just_wrong(digest: bytes) -> bool:
    return digest not in _known and time.monotonic() - _unknown.get(digest, float("-inf")) < _FRESH_SECONDS


def _known_wrong(digest: bytes, peer: str) -> bool:
    """Whether a token was wrong a moment ago. Raises TooMany for an address that brings new ones all the time."""
    if digest in _known:
        return False
    if _just_wrong(digest):
        return True
    if wait := _throttle.wait(peer, WRONG_TOKENS, 60):
        raise TooMany("too many wrong tokens from this address", wait)
    return False


def _within_its_limit(token: Token | None) -> Token | None:
    if token and token.per_minute and (wait := _throttle.take(token.pk, token.per_minute, 60)):
        raise TooMany(f"this token is good for {token.per_minute} requests a minute", wait)
    return token


def _seen_before(digest: bytes) -> Token:
    token = _known.get(digest, (None, 0.0))[0]
    if token is None:
        raise CannotTell
    return token


async def _asked(digest: bytes, scope: str, peer: str) -> Token | None:
    """What the database says, asked once for all who want to know at this moment."""
    known = digest in _known
    asking = _asking.get((digest, scope))
    if asking is None:
        if len(_asking) >= _MOST_ASKING:
            return _seen_before(digest)
        asking = _asking[digest, scope] = _lookups.submit(_look_up_in_thread, digest, scope, peer)
        asking.add_done_callback(lambda _: _asking.pop((digest, scope), None))
    elif known:
        return _seen_before(digest)  # another call is waiting for the database already
    patience = _PATIENCE_SECONDS if known else _UNKNOWN_PATIENCE_SECONDS
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(asking)), patience)
    except TimeoutError:
        log.warning("the database does not answer; tokens seen before stay good")
    except DatabaseError as error:
        log.warning("cannot look tokens up (%s); those seen before stay good", error)
    return _seen_before(digest)


def _look_up(digest: bytes, scope: str, peer: str) -> Token | None:
    token = Token.objects.filter(digest=digest, scope=scope, revoked_at=None).first()
    if token is None:
        _known.pop(digest, None)
        if len(_unknown) >= _MOST_UNKNOWN:
            _unknown.clear()
        _unknown[digest] = time.monotonic()
        _throttle.count(peer, WRONG_TOKENS, 60)
    else:
        _known[digest] = (token, time.monotonic())
    return token


def _look_up_in_thread(digest: bytes, scope: str, peer: str) -> Token | None:
    close_old_connections()
    try:
        return _look_up(digest, scope, peer)
    finally:
        close_old_connections()
