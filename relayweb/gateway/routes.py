"""What a path of the gateway asks for."""

from __future__ import annotations

from dataclasses import dataclass

from relayweb.gateway.conversation import CHAT, MESSAGES, RESPONSES

_ENDPOINTS = (("/chat/completions", CHAT), ("/responses", RESPONSES), ("/messages", MESSAGES))


@dataclass(frozen=True, slots=True)
class Route:
    """/gw/<upstream>/<rest> or /gw/t/<token>/<upstream>/<rest>; `rest` is still percent-encoded."""

    upstream: str
    rest: str
    token: str | None


def parse(path: str) -> Route:
    """Takes a path apart; missing parts are empty."""
    segments = path.removeprefix("/gw/")
    token = None
    if segments.startswith("t/"):
        token, _, segments = segments[2:].partition("/")
    upstream, _, rest = segments.partition("/")
    return Route(upstream, rest, token)


def api_mode(method: str, path: str) -> str | None:
    """The wire format of a request that asks a model for an answer, None for any other request."""
    if method != "POST":
        return None
    path = "/" + path.strip("/")
    if "/threads/" in path:  # OpenAI's Assistants have messages of another kind
        return None
    return next((mode for suffix, mode in _ENDPOINTS if path.endswith(suffix)), None)
