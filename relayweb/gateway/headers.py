"""Which headers travel: what the client tells us, what the provider gets of it, and what comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Headers = list[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1: these belong to one connection. Length and host are written anew.
_HOP_BY_HOP = frozenset(
    b"connection proxy-connection keep-alive transfer-encoding te trailer upgrade proxy-authenticate "
    b"proxy-authorization".split()
)
# What makes some servers take a request for another one than it was under the rules as.
_DISGUISES = frozenset(b"x-http-method-override x-http-method x-method-override x-original-url x-rewrite-url".split())
_NEVER_UP = _HOP_BY_HOP | _DISGUISES | {b"host", b"content-length", b"accept-encoding", b"expect"}
_OURS = (b"x-relay-", b"x-nemo-relay-", b"x-dynamo-")
# Cookies of our own pages, which a browser on the same host would send along.
_OUR_COOKIES = frozenset({b"sessionid", b"csrftoken"})
# What would speak for our origin to a browser: answers get a policy of our own (answering.py). Some would have it tell
# others of our pages, or look for them elsewhere.
_NOT_DOWN = frozenset(
    b"content-security-policy x-content-type-options clear-site-data strict-transport-security service-worker-allowed "
    b"content-security-policy-report-only report-to reporting-endpoints nel alt-svc public-key-pins expect-ct refresh "
    b"accept-ch critical-ch".split()
)
_TRACE = (b"traceparent", b"tracestate")  # W3C Trace Context
_OUR_TOKEN = re.compile(rb"rw_[a-z]+_")
_WHOLE_TOKEN = re.compile(rb"rw_(?:ingest|gateway|read)_[A-Za-z0-9_-]{43}")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """What the headers say about the place of a call; None where they say nothing."""

    session_id: str | None = None
    turn_id: str | None = None
    request_id: str | None = None
    call_role: str = "primary"
    retry_count: int | None = None


def read_caller(headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """Our own headers first, then what real clients send of their own accord."""
    found = {name: value for name, raw in headers if (value := _text(raw))}
    retry = found.get(b"x-stainless-retry-count", "")
    return Caller(
        session_id=found.get(b"x-relay-session-id")
        or found.get(b"x-nemo-relay-session-id")
        or found.get(b"x-claude-code-session-id"),
        turn_id=found.get(b"x-relay-turn-id"),
        request_id=found.get(b"x-relay-request-id"),
        call_role=found.get(b"x-relay-call-role", "primary"),
        retry_count=int(retry) if retry.isdecimal() and len(retry) < 5 else None,
    )


def read_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Our token: `x-relay-token`, or in the place of the provider's key, where upstreams need none (demo)."""
    keys = None
    for name, value in headers:
        if name == b"x-relay-token":
            return _text(value)
        if name in (b"authorization", b"x-api-key") and _is_our_token(value):
            keys = _text(value.rpartition(b" ")[2])
    return keys


def to_upstream(headers: Iterable[tuple[bytes, bytes]], extra: Mapping[str, str] | None = None) -> Headers:
    """The client's headers as the provider gets them: in their order, without ours, the connection's and our token.

    `accept-encoding` becomes identity, so that the bytes that pass are the bytes that are recorded. `extra`, what
    intercepts set, wins over the client's header of the same name. Relay's trace context, which is among it, goes to
    the provider only of a client that sends none: half of it would not belong to the client's `tracestate`.
    """
    headers = list(headers)
    dropped = set(_NEVER_UP)
    for name, value in headers:
        if name == b"connection":
            dropped.update(part.strip().lower() for part in value.split(b","))
    set_by_rules = {name.lower().encode("latin-1", "replace"): value for name, value in (extra or {}).items()}
    if any(name.lower() in _TRACE for name, _ in headers):
        set_by_rules.pop(b"traceparent", None)
    out: Headers = []
    for name, value in headers:
        name = name.lower()
        if name in dropped or name in set_by_rules or name.startswith(_OURS):
            continue
        if name in (b"authorization", b"x-api-key") and _is_our_token(value):
            continue
        if _WHOLE_TOKEN.search(value):  # a Referer that holds our URL, a key in another place
            continue
        if name == b"cookie":
            value = _without_our_cookies(value)
            if not value:
                continue
        out.append((name, value))
    out.append((b"accept-encoding", b"identity"))
    for name, text in set_by_rules.items():
        if name not in _NEVER_UP and not name.startswith(_OURS):
            out.append((name, text.encode("latin-1", "replace")))
    return out


def url_to_upstream(url: str) -> str:
    """The URL without parameters that hold a token of ours; otherwise not a character changes."""
    bare, mark, query = url.partition("?")
    if not _WHOLE_TOKEN.search(query.encode()):
        return url
    kept = [part for part in query.split("&") if not _WHOLE_TOKEN.search(part.encode())]
    return bare + (mark + "&".join(kept) if kept else "")


def to_client(
    headers: Iterable[tuple[bytes, bytes]], *, length: int | None = None, keep_length: bool = False
) -> Headers:
    """The provider's response headers as the client gets them; `length` when the body's size changed or is known.

    What would set a policy or a cookie of our own pages stays behind.
    """
    out = [
        (name.lower(), value)
        for name, value in headers
        if name.lower() not in _HOP_BY_HOP | _NOT_DOWN
        and (keep_length or name.lower() != b"content-length")
        # One without a name is sent back as it stands, "=sessionid=…" as a session of ours.
        and not (name.lower() == b"set-cookie" and value.partition(b"=")[0].strip() in _OUR_COOKIES | {b""})
    ]
    if length is not None:
        out.append((b"content-length", str(length).encode()))
    return out


def _is_our_token(value: bytes) -> bool:
    return _OUR_TOKEN.match(value.rpartition(b" ")[2]) is not None


def _without_our_cookies(value: bytes) -> bytes:
    return b"; ".join(
        part for raw in value.split(b";") if (part := raw.strip()) and part.partition(b"=")[0] not in _OUR_COOKIES
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()[:_LONGEST]
