"""What intercepts did lately, read from the recorded rewrites."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Coalesce

from relayweb.recording.models import Rewrite, Scope

DAY = 24 * 3600
HIT = ("hit", "block", "respond", "fault")


@dataclass(frozen=True)
class Effect:
    """Sums over one intercept's runs of the last day."""

    looked: int = 0
    """Calls it looked at."""
    hits: int = 0
    errors: int = 0
    bytes_changed: int = 0
    p95_us: float | None = None
    last_seq: int | None = None


def of_last_day(key: str | None = None) -> dict[str, Effect]:
    """Key → what that intercept did to calls recorded since this time yesterday; all of them, or only `key`.

    The bound is the first turn that started since then, so an imported older file may count along.
    """
    since_us = int((time.time() - DAY) * 1e6)
    first = Scope.objects.filter(is_turn=True, start_us__gte=since_us).order_by("start_us", "uuid").first()
    if first is None:
        return {}
    recent = Rewrite.objects.filter(seq__gte=first.start_seq or first.seq)
    if key is not None:
        recent = recent.filter(key=key)
    grown = Coalesce(Sum("bytes_after", filter=Q(mode="enforce")), 0) - Coalesce(
        Sum("bytes_before", filter=Q(mode="enforce")), 0
    )
    rows = recent.values("key").annotate(
        looked=Count("seq"),
        hits=Count("seq", filter=Q(result__in=HIT)),
        errors=Count("seq", filter=Q(result="error")),
        grown=grown,
        last=Max("seq", filter=Q(result__in=HIT)),
    )
    return {
        row["key"]: Effect(row["looked"], row["hits"], row["errors"], row["grown"], _p95(row["key"]), row["last"])
        for row in rows
    }


def _p95(key: str, sample: int = 500) -> float | None:
    """95 % of its latest runs took less, in microseconds."""
    newest = Rewrite.objects.filter(key=key, duration_us__isnull=False).order_by("-seq")
    times = sorted(us for us in newest.values_list("duration_us", flat=True)[:sample] if us is not None)
    return times[int(len(times) * 0.95)] if times else None
