"""Every route there is, asked as everybody there is."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from relayweb.access import tokens
from relayweb.access.permissions import give_groups_their_permissions
from relayweb.asgi import application
from relayweb.gateway import app as gateway
from relayweb.gateway import upstreams
from relayweb.gateway.models import Upstream
from relayweb.intercepts.models import InterceptConfig
from relayweb.live.hub import hub
from relayweb.recording.prices import Price
from relayweb.ui.models import SavedView

PEOPLE = ("viewer", "operator", "admin")
TOKENS = ("read", "ingest", "gateway")
EVERYBODY = ("anonymous", *PEOPLE, *TOKENS)
UUID = "0b5ad8ac-5f5c-4f0e-9a51-0d3a1b2c3d4e"
METHODS = ("GET", "POST")
OTHER_METHODS = ("HEAD", "PUT")


@dataclass(frozen=True)
class Route:
    """A route as the URL configuration spells it, and an address it leads from."""

    text: str
    path: str


def django_routes(samples: dict[str, Any]) -> Iterator[Route]:
    """All routes of Django's resolver, the API's and the admin's included."""

    def walk(patterns: list[Any], before: str) -> Iterator[str]:
        for pattern in patterns:
            text = before + _plain(str(pattern.pattern))
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, text)
            elif isinstance(pattern, URLPattern):
                yield text

    yield Route("/static/…", "/static/relayweb/app.css")  # WhiteNoise answers before the resolver is asked
    for text in dict.fromkeys(walk(get_resolver().url_patterns, "/")):
        yield Route(text, re.sub(r"<(?:\w+:)?(\w+)>", lambda m, text=text: _sample(text, m[1], samples), text))


def _plain(pattern: str) -> str:
    """A pattern of `re_path` as one of `path`."""
    pattern = pattern.removeprefix("^").removesuffix("$")
    return re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", pattern)


def _sample(route: str, name: str, samples: dict[str, Any]) -> str:
    kept = {
        "secret": "made-up", "form": "toml", "key": "k", "number": "1", "app_label": "gateway", "session_id": "s",
        "turn": UUID, "uuid": UUID, "scope": UUID, "url": "nowhere", "content_type_id": "1",
    }  # fmt: skip
    if name in kept:
        return kept[name]
    return str(next(pk for where, pk in samples.items() if route.startswith(where)))


def people_and_things() -> tuple[dict[str, Client], dict[str, str], dict[str, Any]]:
    """Browsers by role, token texts by scope, and for routes of one thing (by their beginning) its key."""
    give_groups_their_permissions()
    browsers = {"anonymous": Client()}
    for role in PEOPLE:
        person = User.objects.create_user(role, is_staff=role != "viewer", is_superuser=False)
        person.groups.add(Group.objects.get(name=role))
        browsers[role] = Client()
        browsers[role].force_login(person)
    raw = {scope: tokens.create(scope, scope) for scope in TOKENS}
    action = {"type": "set_parameters", "parameters": {"temperature": 0}}
    config = InterceptConfig.publish({"key": "k", "title": "t", "action": action}, "admin")
    view = SavedView.objects.create(owner=User.objects.get(username="viewer"), name="v", q="status:failed")
    price = Price.objects.first() or Price.objects.create(model="m", input=1, output=1, since="2026-01-01")
    demo = {"base_url": "demo://demo", "api_mode": Upstream.ApiMode.CHAT_COMPLETIONS}
    upstream, _ = Upstream.objects.get_or_create(name="demo", defaults=demo)
    upstreams.directory.forget()
    things = {
        "/views/": view.pk,
        "/admin/intercepts/": config.pk,
        "/admin/auth/user/": User.objects.get(username="viewer").pk,
        "/admin/access/token/": tokens.authenticate(raw["read"], "read").pk,
        "/admin/gateway/upstream/": upstream.pk,
        "/admin/recording/price/": price.pk,
        "/admin/r/": 1,
    }
    return browsers, raw, things


def ask_django(browser: Client, method: str, path: str, token: str | None = None) -> str:
    """What becomes of a request, and undo whatever it did: "login", "401", "403", "405" or "yes"."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    browser.raise_request_exception, kept = False, copy.deepcopy(browser.cookies)
    with mock.patch("relayweb.gateway.demo.run_turn", _no_turn), transaction.atomic():
        body = {"scope": "gateway", "name": "n", "q": "status:ok"} if method == "POST" else {}
        if method in METHODS:
            answer = getattr(browser, method.lower())(path, body, headers=headers)
        else:
            answer = browser.generic(method, path, headers=headers)
        answer.close()
        transaction.set_rollback(True)
    browser.cookies = kept  # logging out lost them
    if answer.status_code == 302 and answer.url.startswith(("/login/", "/admin/login/")):
        return "login"
    return str(answer.status_code) if answer.status_code in (401, 403, 404, 405) or answer.status_code >= 500 else "yes"


async def _no_turn() -> None: ...


def ask_asgi(kind: str, method: str, path: str, headers: dict[str, str]) -> str:
    """The same of a request that does not reach Django; a websocket is "yes" when it stays open."""
    said: list[dict[str, Any]] = []
    first = {"type": "websocket.connect"} if kind == "websocket" else {"type": "http.request", "body": b"{}"}
    messages = iter([first])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect" if kind == "http" else "websocket.disconnect", "code": 1000})

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": kind, "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "client": ("127.0.0.1", 1), "scheme": "http", "extensions": {"websocket.http.response": {}},
        "headers": [(k.encode(), v.encode()) for k, v in {"host": "127.0.0.1", **headers}.items()],
    }  # fmt: skip

    async def asked() -> None:
        try:
            await asyncio.wait_for(application(scope, receive, send), 20)
        finally:
            await hub().close()
            await gateway.shutdown()

    asyncio.run(asked())
    closed = next((m["code"] for m in said if m["type"] == "websocket.close"), 0)
    if closed in (4401, 4403):
        return str(closed - 4000)
    status = next((m["status"] for m in said if m["type"].endswith("response.start")), 0)
    return str(status) if status in (401, 403, 404, 405) else "yes"
