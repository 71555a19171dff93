from __future__ import annotations

import pytest

from relayweb.access.log import route


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/gw/t/rw_gateway_secret/openai/v1/models", "/gw/t/***/openai/v1/models"),
        ("/gw/t/rw_gateway_secret", "/gw/t/***"),
        ("/gw/openai/v1/models", "/gw/openai/v1/models"),
        ("/login/secret/", "/login/***/"),
        ("/login/", "/login/"),
        ("/a\nforged line", "/a?forged?line"),
    ],
)
def test_routes_are_shown_without_secrets_on_one_line(path: str, shown: str) -> None:
    assert route(path) == shown
