"""The statistics page: figures over time of the turns a search names, and what intercepts did to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from relayweb.recording import statistics as figures
from relayweb.recording.query_language import QueryError
from relayweb.ui import search
from relayweb.ui.lists import broken

SPANS = ("1h", "6h", "24h", "7d", "30d")
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
        own = any(chip.field in ("since:", "until:") for chip in search.chips(self.q))
        return self.q if own else search.with_term(self.q, f"since:{self.span}")

    def narrowed(self, key: str) -> str:
        """A link to the turns of one group."""
        return search.href(
            search.with_term(self.timed, f'{self.group}:"{key}"' if " " in key else f"{self.group}:{key}")
        )

    def figures(self) -> dict[str, Any]:
        return figures.statistics(self.timed, by=cast(figures.By, self.group))


@require_GET
def statistics(request: HttpRequest) -> HttpResponse:
    asked = Asked.of(request)
    context: dict[str, Any] = {"asked": asked, "spans": SPANS, "groups": GROUPS, "q": asked.q}
    try:
        found = asked.figures()
    except QueryError as error:
        return render(request, "statistics.html", context | broken(asked.q, error))
    context |= {
        # In the page, because working it out again for a second request costs as much as the page.
        "charts": {"at_us": found["at_us"], "width_us": found["width_us"], "series": found["total"]["series"]},
        "window": found["window"],
        "total": found["total"]["figures"],
        "rows": [(group["key"], group["figures"], asked.narrowed(group["key"])) for group in found["groups"]],
        "rules": found["intercepts"],
        "chips": search.chips(asked.q),
        "group_title": GROUPS[asked.group],
    }
    return render(request, "statistics.html", context)
