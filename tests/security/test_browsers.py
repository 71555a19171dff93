"""What browsers are told, and what a page of another site cannot do with a visitor's cookies."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
import websockets.sync.client as websocket
from django.test import Client
from websockets.exceptions import InvalidStatus

from tests.security import routes
from tests.served import Served

POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:", "font-src 'self'",
    "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
}  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_every_page_comes_with_the_strict_policy() -> None:
    browsers, _, things = routes.people_and_things()
    pages = 0
    for route in routes.django_routes(things):
        if route.text in ("/admin/logout/", "/static/…"):
            continue
        for who in ("admin", "anonymous"):
            answer = browsers[who].get(route.path)
            answer.close()
            assert {part.strip() for part in answer["Content-Security-Policy"].split(";")} == POLICY, route.text
            assert answer["X-Content-Type-Options"] == "nosniff", route.text
            assert answer["X-Frame-Options"] == "DENY" and answer["Referrer-Policy"] == "same-origin", route.text
            pages += "html" in answer.get("Content-Type", "") and answer.status_code == 200
    assert pages > 20


@pytest.mark.django_db(transaction=True)
def test_no_form_is_taken_without_the_token_that_our_pages_have() -> None:
    browsers, _, things = routes.people_and_things()
    taken = []
    for route in routes.django_routes(things):
        strict = Client(enforce_csrf_checks=True)
        strict.cookies.update(browsers["admin"].cookies)
        answer = strict.post(route.path, {"scope": "gateway"}, headers={"origin": "http://evil.example"})
        answer.close()
        if answer.status_code not in (403, 404, 405):
            taken.append(route.text)
    assert not taken


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.mark.parametrize("path", ["/", "/api/v1/turns", "/healthz", "/ingest/atof", "/gw/demo/v1/models", "/metrics"])
def test_a_name_that_another_site_points_here_is_not_answered(served: Served, path: str) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
        assert served.get(path, host=host).status_code == 400


def test_a_page_of_another_site_opens_no_socket_with_a_visitor_s_cookies(served: Served) -> None:
    link = served.run("login").stdout.decode().split()[-1]
    cookies = httpx2.get(link).cookies
    headers = {"cookie": f"sessionid={cookies['sessionid']}"}
    url = served.url.replace("http", "ws") + "/live/turns/"
    for origin in ("http://evil.example", "null", served.url.replace("127.0.0.1", "localhost")):
        with pytest.raises(InvalidStatus) as refused, websocket.connect(url, origin=origin, additional_headers=headers):
            pass
        assert refused.value.response.status_code == 403
    with websocket.connect(url, origin=served.url, additional_headers=headers) as socket:
        socket.send('{"cursor": 0}')
        assert "cursor" in str(socket.recv(timeout=10))


def test_session_cookies_are_for_the_server_only(served: Served) -> None:
    answer = httpx2.get(served.run("login").stdout.decode().split()[-1])
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie
    # Nothing is given to pages of other origins.
    answer = served.get("/api/v1/turns", origin="http://evil.example")
    assert not [name for name in answer.headers if name.startswith("access-control-")]
