"""First start: how to send a turn, the tokens for it, and a demo turn for whoever has no key at hand."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from relayweb.access import tokens
from relayweb.access.permissions import may_edit_intercepts
from relayweb.ui.snippets import ways

log = logging.getLogger(__name__)

SCOPES = ("gateway", "ingest")
_COOKIE = "fresh_tokens"
_COOKIE_SECONDS = 300
_running: set[asyncio.Task[Any]] = set()


def context(request: HttpRequest) -> dict[str, Any]:
    """What the start page and the empty list show. Tokens just made are shown this once."""
    fresh = _fresh(request)
    origin = f"{request.scheme}://{request.get_host()}"
    return {
        "ways": ways(origin, fresh),
        "fresh": fresh,
        "host": request.get_host(),
        "may_make_tokens": may_edit_intercepts(request.user),
    }


@never_cache
def start(request: HttpRequest) -> HttpResponse:
    answer = render(request, "turns/start.html", context(request))
    answer.delete_cookie(_COOKIE, path=reverse("ui:start"), samesite="Strict")
    return answer


@require_POST
def make_token(request: HttpRequest) -> HttpResponse:
    """Make a token for the snippets. It goes on to the next page in a cookie: the server keeps no token's text."""
    scope = request.POST.get("scope", "")
    if scope not in SCOPES or not may_edit_intercepts(request.user):
        raise PermissionDenied
    made = tokens.create(f"start page, {request.user.get_username()}", scope)
    answer = redirect("ui:start")
    answer.set_signed_cookie(
        _COOKIE,
        json.dumps({**_fresh(request), scope: made}),
        max_age=_COOKIE_SECONDS,
        path=reverse("ui:start"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )
    return answer


def _fresh(request: HttpRequest) -> dict[str, str]:
    text = request.get_signed_cookie(_COOKIE, "{}", max_age=_COOKIE_SECONDS)
    found: dict[str, str] = json.loads(text or "{}")
    return found


@require_POST
async def demo(request: HttpRequest) -> HttpResponse:
    """Start a demo turn through the gateway's scripted upstream and return at once; the list shows it live."""
    from relayweb.gateway.demo import run_turn

    user = await request.auser()
    if not await asyncio.to_thread(may_edit_intercepts, user):
        raise PermissionDenied
    task = asyncio.create_task(run_turn())
    # The loop keeps only a weak reference to a task.
    _running.add(task)
    task.add_done_callback(_finished)
    if request.headers.get("x-requested-with") == "fetch":
        return HttpResponse(status=202)
    return redirect("ui:turns")


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the demo turn failed", exc_info=error)
