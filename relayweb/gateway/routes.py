"""What a path of the gateway asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from relayweb.gateway.conversation import CHAT, MESSAGES, RESPONSES

_INVISIBLE = re.compile(r"[\x00-\x20\x7f]")
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
    """The wire format of a request that asks a model for an answer, None for any other request.

    Read as the most lenient provider would: what one could take for an endpoint must not pass by the rules.
    """
    if method.upper() != "POST":  # the client of the provider sends it in capitals
        return None
    path = _plain(path)
    if re.search(r"/threads/[^/]+/messages$", path):  # OpenAI's Assistants have messages of another kind
        return None
    return next((mode for suffix, mode in _ENDPOINTS if path.endswith(suffix)), None)


def climbs(path: str) -> bool:
    """Whether a path leads above where it is appended, read as the most lenient server would."""
    for _ in range(3):
        path = unquote(path)
    depth = 0
    for raw in re.split(r"[/\\]", path):
        segment = _INVISIBLE.sub("", re.split("[;?#]", raw, maxsplit=1)[0])
        depth += -1 if segment == ".." else segment not in ("", ".")
        if depth < 0:
            return True
    return False


def _plain(path: str) -> str:
    """A path decoded, in small letters, without parameters, empty and dot segments (RFC 3986, 3.3 and 5.2.4)."""
    for _ in range(3):  # a proxy on the way may decode once more
        path = unquote(path)
    path = re.split("[?#]", path, maxsplit=1)[0].replace("\\", "/")
    segments: list[str] = []
    for raw in path.split("/"):
        segment = _INVISIBLE.sub("", raw.partition(";")[0]).casefold()
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/" + "/".join(segments)
