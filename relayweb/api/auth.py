"""Who may read the API: a `read` token in a header, or a logged-in person who may view."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from relayweb.access import tokens
from relayweb.access.permissions import may_view

MEND = (
    "This needs a read token in the header `Authorization: Bearer rw_read_…` or `x-relay-token` "
    "(make one: relayweb token create --scope read), or a login."
)


def reader(request: HttpRequest) -> Any:
    """The token or the person behind a request if they may read, else None. Raises tokens.NotNow."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    raw = bearer.strip() if scheme.lower() == "bearer" else request.headers.get("x-relay-token", "").strip()
    if token := tokens.authenticate(raw or None, "read", request.META.get("REMOTE_ADDR", "")):
        return token
    return request.user if may_view(request.user) else None
