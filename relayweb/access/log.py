"""The access log: routes, never tokens."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

from relayweb.access.answers import Message, Send

logger = logging.getLogger("relayweb.access")

answers: Counter[tuple[str, str]] = Counter()
"""How many answers each part gave, by status: ("gateway", "2xx")."""

_PARTS = {"/gw/": "gateway", "/ingest/": "doors", "/v1/": "doors", "/live/": "live", "/api/": "api"}
_SECRETS = re.compile(r"^(/gw/t|/login)/[^/]+")
_FETCHED = re.compile(r"^/(ingest/|healthz|static/|turns/rows/|turns/[^/]+/.)")
_UNPRINTABLE = re.compile(r"[^!-~]")


_LONGEST = 300


def route(path: str) -> str:
    """A path on one line, without the secrets people and agents put into it; the query is not part of it."""
    shown = _SECRETS.sub(r"\1/***", _UNPRINTABLE.sub("?", path))
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"


class Repeats:
    """Which refusals have just been told: an agent with a wrong token asks twenty times a second, for ever."""

    EVERY = 60.0
    """Seconds between two lines about the same refusal of the same client."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[Any, ...], list[float]] = OrderedDict()

    def more(self, what: tuple[Any, ...], now: float) -> int | None:
        """How often it came untold since the last line; None when this one is to stay untold as well."""
        told = self._told.get(what)
        if told is not None and now - told[0] < self.EVERY:
            told[1] += 1
            return None
        self._told[what] = [now, 0]
        self._told.move_to_end(what)
        if len(self._told) > 1000:
            self._told.popitem(last=False)
        return int(told[1]) if told is not None else 0


_repeats = Repeats()


class Logged:
    """Stands in for `send` and writes one line when the answer is complete or broken off."""

    def __init__(self, asgi_scope: Mapping[str, Any], send: Send) -> None:
        self._scope, self._send = asgi_scope, send
        self._status = 0
        self._began = time.perf_counter()

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self._status = message["status"]
        elif message["type"] == "websocket.accept":
            self._status = 101
        elif message["type"] == "websocket.close" and not self._status:
            self._status = 403
        await self._send(message)

    def write(self, cut: bool = False) -> None:
        """Write the line. Passed doors and what open pages fetch are many and say nothing: they come at DEBUG."""
        path = self._scope["path"]
        part = next((name for beginning, name in _PARTS.items() if path.startswith(beginning)), "pages")
        answers[part, "cut" if cut else f"{self._status // 100}xx"] += 1
        quiet = self._status < 400 and _FETCHED.match(path) is not None
        more: int | None = 0
        fields = {
            "client": (self._scope.get("client") or ["-"])[0],
            "method": self._scope.get("method", "WS"),
            "route": route(path),
            "status": self._status or None,
            "ms": round((time.perf_counter() - self._began) * 1000),
            "cut": cut,
        }
        if self._status in (401, 403, 429):
            told = (fields["client"], fields["method"], fields["route"], self._status)
            more = _repeats.more(told, time.monotonic())
            fields["more"] = more or 0
        logger.log(
            logging.DEBUG if quiet or more is None else logging.INFO,
            "%(client)s %(method)s %(route)s %(status)s %(ms)s ms"
            + (" cut" if cut else "")
            + (", and %(more)s more since the last line" if more else ""),
            fields,
            extra={"fields": fields},
        )
