"""The statistics page: figures over time of the turns a search names, and what intercepts did to them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from relayweb.recording.reading import queries
from relayweb.recording.reading import statistics as figures
from relayweb.recording.reading.query_language import QueryError
from relayweb.ui import search
from relayweb.ui.lists import broken

FRESH = 5  # seconds
SPANS = ("1h", "6h", "24h", "7d", "30d")
TIMES = ("since:", "until:", "-since:", "-until:")
GROUPS = {"model": "Model", "provider": "Provider", "role": "Call role", "profile": "Profile"}


@dataclass(frozen=True)
class Asked:
    """What the address asks for; anything unknown reads as the default."""

    span: str
    group: str
    q: str

    @classmethod
    def of(cls, request: HttpRequest) -> Asked:
        span, group = request.GET.get("span", ""), request.GET.get("group", "")
        q = " ".join([request.GET.get("q", ""), request.GET.get("add", "")]).strip()
        return cls(span if span in SPANS else "24h", group if group in GROUPS else "model", q)

    @property
    def timed(self) -> str:
        """The search with its span; a span of its own wins."""
        own = any(chip.field in TIMES for chip in search.chips(self.q))
        return self.q if own else f"{self.q} since:{self.span}".strip()

    @property
    def untimed(self) -> str:
        """The search without a span, for the links of points, which name their own."""
        return " ".join(chip.text for chip in search.chips(self.q) if chip.field not in TIMES)

    def turns(self, field: str, value: str | None) -> str:
        """A link to those turns that have this; "" where there is no name to search for."""
        return "" if value is None else search.href(f"{self.timed} {search.term(field, value)}")

    def rule(self, effect: dict[str, Any]) -> dict[str, Any]:
        """What an intercept did, with a link to the turns where it did something or, in shadow mode, would have."""
        return effect | {"turns": self.turns("shadow" if effect["mode"] == "shadow" else "intercept", effect["key"])}


@lru_cache(maxsize=32)
def _figures(timed: str, by: figures.By, _seq: int, _moment: int) -> dict[str, Any]:
    """Worked out again when something was recorded, or after `FRESH` seconds, because `since:24h` moves on."""
    return figures.statistics(timed, by=by)


@require_GET
def statistics(request: HttpRequest) -> HttpResponse:
    asked = Asked.of(request)
    seq = queries.latest_seq()
    context: dict[str, Any] = {"asked": asked, "spans": SPANS, "groups": GROUPS, "q": asked.q, "seq": seq}
    try:
        found = _figures(asked.timed, cast(figures.By, asked.group), seq, int(time.time() // FRESH))
    except QueryError as error:
        return render(request, "statistics.html", context | broken(asked.q, error))
    context |= {
        # In the page, because working it out again for a second request costs as much as the page.
        "charts": {"at_us": found["at_us"], "width_us": found["width_us"], "series": found["total"]["series"]},
        "untimed": asked.untimed,
        "window": found["window"],
        "total": found["total"]["figures"],
        "rows": [
            (group["key"] or "unknown", group["figures"], asked.turns(asked.group, group["key"]))
            for group in found["groups"]
        ],
        "rules": [asked.rule(effect) for effect in found["intercepts"]],
        "chips": search.chips(asked.q),
        "group_title": GROUPS[asked.group],
    }
    return render(request, "statistics.html", context)
