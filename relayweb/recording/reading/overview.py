"""Facets and histogram of the turn list. Both look at a bounded window of the newest matching turns, and say which."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, OuterRef

from relayweb.recording.models import Role, Scope, Stream
from relayweb.recording.reading.query_language import parse
from relayweb.recording.reading.rows import rfc3339
from relayweb.recording.reading.turn_filter import turns_matching

FACET_WINDOW = 1_000
HISTOGRAM_WINDOW = 10_000
MOST = 20  # values of one facet


def facets(q: str = "", *, now: datetime | None = None) -> dict[str, Any]:
    """How the newest matching turns divide.

    Returns:
        `window`: {"turns": how many were looked at, "limit", "complete": False when there are more};
        `facets`: field → [{"value", "count"}], the most frequent first; a turn counts once for each of its values.

    Raises:
        QueryError: the query cannot be read.
    """
    newest = turns_matching(parse(q, now=now)).filter(start_us__isnull=False).order_by("-start_us", "-uuid")
    found = list(
        newest.values_list("uuid", "status", "profile", "rewrites", "retries", "model_names", "provider_names")[
            : FACET_WINDOW + 1
        ]
    )
    complete, found = len(found) <= FACET_WINDOW, found[:FACET_WINDOW]
    counts: dict[str, Counter[str]] = {
        name: Counter()
        for name in ("status", "model", "provider", "role", "profile", "rewritten", "retried", "stalled")
    }
    for _, status, profile, rewrites, retries, models, providers in found:
        counts["status"][status] += 1
        counts["rewritten"]["yes" if rewrites else "no"] += 1
        counts["retried"]["yes" if retries else "no"] += 1
        if profile:
            counts["profile"][profile] += 1
        counts["model"].update(_keys(models))
        counts["provider"].update(_keys(providers))
    uuids = [uuid for uuid, *_ in found]
    counts["role"] = _roles(uuids)
    stalled = _stalled(uuids)
    counts["stalled"] = Counter({"yes": stalled, "no": len(found) - stalled})
    return {
        "window": {"turns": len(found), "limit": FACET_WINDOW, "complete": complete},
        "facets": {
            field: [
                {"value": value, "count": count}
                for value, count in sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:MOST]
            ]
            for field, counter in counts.items()
        },
    }


def _keys(counts: str | None) -> list[str]:
    try:
        found = json.loads(counts) if counts else {}
    except ValueError:
        return []
    return list(found) if isinstance(found, dict) else []


def _roles(uuids: list[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for at in range(0, len(uuids), 500):
        calls = Scope.objects.filter(
            turn_uuid__in=uuids[at : at + 500], role__in=(Role.LOGICAL_CALL, Role.ATTEMPT), call_role__isnull=False
        )
        for role, turns in calls.values_list("call_role").annotate(Count("turn_uuid", distinct=True)).order_by():
            found[role] += turns
    return found


def _stalled(uuids: list[Any]) -> int:
    """How many of these turns have a stream with stalls."""
    stalls = Stream.objects.filter(stalls__gt=0, attempt_uuid=OuterRef("uuid"))
    found = 0
    for at in range(0, len(uuids), 500):
        attempts = Scope.objects.filter(
            Exists(stalls), turn_uuid__in=uuids[at : at + 500], role=Role.ATTEMPT, joined_uuid__isnull=True
        )
        found += attempts.values("turn_uuid").distinct().count()
    return found


def histogram(q: str = "", buckets: int = 60, *, now: datetime | None = None) -> dict[str, Any]:
    """Matching turns over time, by status.

    Args:
        buckets: 1 to 500 columns of equal width, between the oldest and the newest turn looked at.

    Returns:
        `from_us`, `to_us`, `width_us` and their RFC 3339 forms `from`, `to`; `counts`: status → a number a bucket;
        `window` as in `facets`. All None and empty where nothing matches.

    Raises:
        QueryError: the query cannot be read.
    """
    buckets = max(1, min(buckets, 500))
    newest = turns_matching(parse(q, now=now)).filter(start_us__isnull=False).order_by("-start_us", "-uuid")
    found = list(newest.values_list("start_us", "status")[: HISTOGRAM_WINDOW + 1])
    complete, found = len(found) <= HISTOGRAM_WINDOW, found[:HISTOGRAM_WINDOW]
    window = {"turns": len(found), "limit": HISTOGRAM_WINDOW, "complete": complete}
    if not found:
        return {
            **dict.fromkeys(("from_us", "to_us", "width_us", "from", "to")),
            "buckets": buckets,
            "counts": {},
            "window": window,
        }
    first, last = found[-1][0] or 0, found[0][0] or 0
    width = max(1, -(-(last - first + 1) // buckets))
    counts: dict[str, list[int]] = {}
    for start, status in found:
        counts.setdefault(status, [0] * buckets)[((start or 0) - first) // width] += 1
    return {
        "from_us": first,
        "to_us": first + width * buckets,
        "width_us": width,
        "from": rfc3339(first),
        "to": rfc3339(first + width * buckets),
        "buckets": buckets,
        "counts": counts,
        "window": window,
    }
