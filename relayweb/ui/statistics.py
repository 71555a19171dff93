"""Statistics over time: attempts, latency, tokens, cost, failures and retries, and what intercepts did.

Everything comes from the attempts of the newest turns in the span, a bounded number; the page says when that is a part.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from relayweb.intercepts import effects
from relayweb.recording.models import Role, Scope
from relayweb.recording.query_language import QueryError, parse
from relayweb.recording.turn_filter import turns_matching
from relayweb.ui import search
from relayweb.ui.facets import quantile
from relayweb.ui.lists import broken

TURNS = 5_000
POINTS = 60
SPANS = {"1h": 3_600, "6h": 6 * 3_600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
GROUPS = {"model": "Model", "provider": "Provider", "role": "Call role"}
KNOWN = {
    "input_tokens": ("input_tokens", 1),
    "cached_tokens": ("cached_tokens", 1),
    "output_tokens": ("output_tokens", 1),
    "cost": ("cost_pusd", 1e12),
    "wasted": ("wasted_pusd", 1e12),
}
BAD = ("failed", "interrupted", "blocked")


@dataclass
class Sums:
    """What is added up for one point of time or one group."""

    attempts: int = 0
    failed: int = 0
    retries: int = 0
    known: dict[str, float] = field(default_factory=dict)
    """Tokens and costs, of those attempts that say; what none of them says is unknown and not 0."""
    durations: list[int] = field(default_factory=list)
    ttfts: list[int] = field(default_factory=list)

    def add(self, row: dict[str, Any]) -> None:
        self.attempts += 1
        self.failed += row["status"] in BAD
        self.retries += (row["attempt"] or 1) > 1
        for name, (column, unit) in KNOWN.items():
            if row[column] is not None:
                self.known[name] = self.known.get(name, 0) + row[column] / unit
        # Raw times are kept when clocks disagree, but a negative length counts in no percentile.
        if row["end_us"] is not None and row["end_us"] >= row["start_us"]:
            self.durations.append(row["end_us"] - row["start_us"])
        if row["ttft_us"] is not None and row["ttft_us"] >= 0:
            self.ttfts.append(row["ttft_us"])

    def figures(self) -> dict[str, Any]:
        self.durations.sort()
        self.ttfts.sort()
        return {
            "attempts": self.attempts,
            "ok": self.attempts - self.failed,
            "failed": self.failed,
            "retries": self.retries,
            "failed_share": 100 * self.failed / self.attempts if self.attempts else None,
            "retried_share": 100 * self.retries / self.attempts if self.attempts else None,
            "p50": quantile(self.durations, 0.5),
            "p95": quantile(self.durations, 0.95),
            "ttft_p50": quantile(self.ttfts, 0.5),
            "ttft_p95": quantile(self.ttfts, 0.95),
            **{name: self.known.get(name) for name in KNOWN},
        }


@dataclass(frozen=True)
class Asked:
    """What the address asks for; anything unknown reads as the default."""

    span: str
    group: str
    q: str

    @classmethod
    def of(cls, request: HttpRequest) -> Asked:
        span, group = request.GET.get("span", ""), request.GET.get("group", "")
        q = request.GET.get("q", "").strip()
        if added := request.GET.get("add", "").strip():
            q = f"{q} {added}".strip()
        return cls(span if span in SPANS else "24h", group if group in GROUPS else "model", q)


@require_GET
def statistics(request: HttpRequest) -> HttpResponse:
    asked = Asked.of(request)
    context: dict[str, Any] = {"asked": asked, "spans": list(SPANS), "groups": GROUPS, "q": asked.q}
    try:
        found = collect(asked)
    except QueryError as error:
        return render(request, "statistics.html", context | broken(asked.q, error))
    rules = sorted(effects.of_last_day().items(), key=lambda item: -item[1].hits)
    context |= {"found": found, "rules": rules, "chips": search.chips(asked.q), "group_title": GROUPS[asked.group]}
    return render(request, "statistics.html", context)


@require_GET
def data(request: HttpRequest) -> JsonResponse:
    """The points of the charts, as columns."""
    asked = Asked.of(request)
    try:
        found = collect(asked)
    except QueryError as error:
        return JsonResponse(error.as_dict(), status=400)
    return JsonResponse({"times": found["times"], "step": found["step"], "points": found["columns"]})


def collect(asked: Asked, now_us: int | None = None) -> dict[str, Any]:
    """Points of time and groups over the asked span.

    Raises:
        QueryError: the query cannot be read.
    """
    now = now_us if now_us is not None else int(time.time() * 1e6)
    length = SPANS[asked.span] * 1_000_000
    begin = now - length
    step = length // POINTS
    newest = (
        turns_matching(parse(asked.q)).filter(start_us__gte=begin, start_us__lte=now).order_by("-start_us", "-uuid")
    )
    uuids = list(newest.values_list("uuid", flat=True)[: TURNS + 1])
    complete, uuids = len(uuids) <= TURNS, uuids[:TURNS]
    points = [Sums() for _ in range(POINTS)]
    groups: defaultdict[str, Sums] = defaultdict(Sums)
    total = Sums()
    for row in attempts(uuids):
        # A clock ahead of ours must not add a point.
        points[max(0, min(POINTS - 1, (row["start_us"] - begin) // step))].add(row)
        groups[_group(row, asked.group)].add(row)
        total.add(row)
    figures = [point.figures() for point in points]
    return {
        "turns": len(uuids),
        "complete": complete,
        "total": total.figures(),
        "groups": sorted(
            ((name, sums.figures(), _link(asked, name)) for name, sums in groups.items()),
            key=lambda item: -int(item[1]["attempts"]),
        ),
        "times": [(begin + i * step) / 1e6 for i in range(POINTS)],
        "step": step / 1e6,
        "columns": {
            name: [point[name] if point["attempts"] else _empty(name) for point in figures] for name in figures[0]
        },
    }


def attempts(uuids: list[Any]) -> Any:
    fields = ("start_us", "end_us", "ttft_us", "status", "attempt", "model", "provider", "call_role")
    sums = [column for column, _ in KNOWN.values()]
    for at in range(0, len(uuids), 500):
        found = Scope.objects.filter(turn_uuid__in=uuids[at : at + 500], role=Role.ATTEMPT, start_us__isnull=False)
        yield from found.filter(joined_uuid__isnull=True).values(*fields, *sums)


def _group(row: dict[str, Any], by: str) -> str:
    return str(row[{"role": "call_role"}.get(by, by)] or "unknown")


def _link(asked: Asked, name: str) -> str:
    terms = search.with_term(asked.q, f'{asked.group}:"{name}"' if " " in name else f"{asked.group}:{name}")
    return search.href(search.with_term(terms, f"since:{asked.span}"))


def _empty(name: str) -> int | None:
    """Nothing happened: a count of none, but no latency."""
    return 0 if name in ("attempts", "ok", "failed", "retries") else None
