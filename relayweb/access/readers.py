"""Who may read the record, asked by the ASGI applications that stand beside Django."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.cookies import CookieError, SimpleCookie
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest
from django.utils.module_loading import import_string

from relayweb.access import tokens
from relayweb.access.permissions import may_view

_sign_ins = ThreadPoolExecutor(1, thread_name_prefix="relayweb-readers")


async def may_read(scope: Mapping[str, Any]) -> bool:
    """Whether a connection shows a read token, or the session of somebody who may view.

    Raises:
        tokens.TooMany: too many wrong tokens. tokens.CannotTell, DatabaseError: the database does not answer.
    """
    if await tokens.aauthenticate(tokens.from_scope(scope), "read", tokens.peer_of(scope)):
        return True
    cookies = dict(scope["headers"]).get(b"cookie", b"")
    return bool(cookies) and await asyncio.get_running_loop().run_in_executor(_sign_ins, _signed_in, cookies)


def _signed_in(cookies: bytes) -> bool:
    try:
        jar = SimpleCookie(cookies.decode("latin-1"))
    except CookieError:
        return False
    morsel = jar.get(settings.SESSION_COOKIE_NAME)
    if morsel is None:
        return False
    close_old_connections()
    try:
        request = HttpRequest()
        engine = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
        request.session = engine(morsel.value)
        return may_view(get_user(request))
    finally:
        close_old_connections()
