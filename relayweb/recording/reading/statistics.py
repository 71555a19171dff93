"""Figures over time: latency, chunks, tokens, cost and waste, errors and retries; what intercepts did.

All of it over the attempts of the newest turns that match a query, within a bounded window that the answer names. The
time of every figure is that of its turn's start, so the turns behind a point are those that began in its bucket.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Count, Max, Min, QuerySet

from relayweb.recording.models import Scope
from relayweb.recording.reading import rhythm
from relayweb.recording.reading.query_language import parse
from relayweb.recording.reading.rows import rfc3339, usd
from relayweb.recording.reading.turn_filter import turns_matching

TURNS = 20_000

By = Literal["model", "provider", "role", "profile"]

_KEYS = {
    "model": "a.model",
    "provider": "a.provider",
    "role": "COALESCE(a.call_role, l.call_role)",
    "profile": "t.profile",
}
# None while it runs, and where the clocks of start and end disagree.
_LATENCY = f"CASE WHEN a.flags & {int(Scope.Flag.CLOCK_SKEW)} = 0 THEN a.end_us - a.start_us END"
_WRITING = f"a.output_tokens > 0 AND {_LATENCY} > a.ttft_us"
# Dollars in two parts: their sum in one would leave 64 bits at nine million.
_SUMS = {
    "attempts": "COUNT(*)",
    "failed": "SUM(CASE WHEN a.status IN ('failed', 'interrupted') THEN 1 ELSE 0 END)",
    "cancelled": "SUM(CASE WHEN a.status = 'cancelled' THEN 1 ELSE 0 END)",
    "blocked": "SUM(CASE WHEN a.status = 'blocked' THEN 1 ELSE 0 END)",
    "retries": "SUM(CASE WHEN a.attempt > 1 THEN 1 ELSE 0 END)",
    "input_tokens": "SUM(a.input_tokens)",
    "output_tokens": "SUM(a.output_tokens)",
    "total_tokens": "SUM(a.total_tokens)",
    "cost_musd": "SUM(a.cost_pusd / 1000000)",
    "cost_rest": "SUM(a.cost_pusd - a.cost_pusd / 1000000 * 1000000)",
    "unpriced": "SUM(CASE WHEN a.cost_pusd IS NULL AND a.total_tokens IS NOT NULL AND a.status <> 'running' "
    "THEN 1 ELSE 0 END)",
    "wasted_musd": "SUM(a.wasted_pusd / 1000000)",
    "wasted_rest": "SUM(a.wasted_pusd - a.wasted_pusd / 1000000 * 1000000)",
    "written_tokens": f"SUM(CASE WHEN {_WRITING} THEN a.output_tokens END)",
    "writing_us": f"SUM(CASE WHEN {_WRITING} THEN {_LATENCY} - a.ttft_us END)",
    "streams": "COUNT(s.attempt_uuid)",
    "stalls": "SUM(s.stalls)",
    "stalled_us": "SUM(s.stalled_us)",
}


class _Cell(msgspec.Struct):
    """The attempts of one group in one bucket, or of several of them."""

    sums: dict[str, int | None] = msgspec.field(default_factory=dict)
    latencies: Any = msgspec.field(default_factory=lambda: array("q"))
    ttfts: Any = msgspec.field(default_factory=lambda: array("q"))
    gaps: bytearray = msgspec.field(default_factory=bytearray)
    """Of all streams, as `rhythm.pack` writes them."""
    longest_us: int = 0

    def __iadd__(self, other: _Cell) -> _Cell:
        for name, value in other.sums.items():
            if value is not None:
                self.sums[name] = (self.sums.get(name) or 0) + value
        self.latencies.extend(other.latencies)
        self.ttfts.extend(other.ttfts)
        self.gaps += other.gaps
        self.longest_us = max(self.longest_us, other.longest_us)
        return self

    def count(self, name: str) -> int:
        return self.sums.get(name) or 0

    def dollars(self, name: str) -> float | None:
        whole, rest = self.sums.get(f"{name}_musd"), self.sums.get(f"{name}_rest")
        return None if whole is None else usd(whole * 1_000_000 + (rest or 0))

    def gap_us(self, *shares: float) -> list[int | None]:
        """Percentiles of the gaps between chunks."""
        counts = rhythm.counts(self.gaps)
        return [rhythm.percentile(counts, share, self.longest_us) for share in shares]


def statistics(q: str = "", *, by: By = "model", buckets: int = 60, now: datetime | None = None) -> dict[str, Any]:
    """Figures of the attempts in the newest matching turns.

    Args:
        q: a query of `query_language`; `since:` and `until:` choose the time.
        by: what the attempts are grouped by.
        buckets: 1 to 500 columns of equal width.

    Returns:
        `window`: {"turns", "limit", "complete", "streams": how many have their gaps counted}; `from_us`, `to_us`,
        `width_us` (None without attempts); `at_us`: the start of each bucket; `total`, and `groups`, the busiest first,
        each with its `key`, None for attempts that tell none.
        `figures` of both: {attempts, failed, cancelled, blocked, retries, error_rate, retry_rate, latency_us, ttft_us,
        gap_us ({p50, p95, p99, max} or None), stalls, stalled_us, output_tokens_per_second, input_tokens,
        output_tokens, cost_usd, cost_complete (False: an attempt has no price), wasted_usd}.
        `series` of the total: {attempts, failed, retries, stalls, latency_p50_us, latency_p95_us, ttft_p50_us,
        ttft_p95_us, gap_p50_us, gap_p95_us, tokens, cost_usd, wasted_usd}, a value a bucket, None where there is none.
        `intercepts`: see `_intercepts`.
        Percentiles are nearest ranks of all values; those of gaps are off by at most `rhythm.ERROR`.

    Raises:
        QueryError: the query cannot be read.
    """
    buckets = max(1, min(buckets, 500))
    turns, complete = _newest(turns_matching(parse(q, now=now)).filter(start_us__isnull=False))
    bounds = turns.aggregate(count=Count("uuid"), first=Min("start_us"), last=Max("start_us"))
    first = bounds["first"] or 0
    width = max(1, -(-((bounds["last"] or 0) - first + 1) // buckets))
    cells = _cells(turns, by, first, width)
    total = _Cell()
    groups: dict[str | None, _Cell] = defaultdict(_Cell)
    columns = [_Cell() for _ in range(buckets)]
    for (key, bucket), cell in cells.items():
        total += cell
        groups[key] += cell
        columns[bucket] += cell
    busiest = sorted(groups.items(), key=lambda group: (-group[1].count("attempts"), group[0] or ""))
    return {
        "window": {
            "turns": bounds["count"],
            "limit": TURNS,
            "complete": complete,
            "streams": total.count("streams"),
        },
        "from_us": first if cells else None,
        "to_us": first + width * buckets if cells else None,
        "from": rfc3339(first) if cells else None,
        "width_us": width if cells else None,
        "at_us": [first + width * i for i in range(buckets)] if cells else [],
        "by": by,
        "total": {"figures": _figures(total), "series": _series(columns)},
        "groups": [{"key": key, "figures": _figures(cell)} for key, cell in busiest],
        "intercepts": _intercepts(turns),
    }


def _newest(turns: QuerySet[Scope]) -> tuple[QuerySet[Scope], bool]:
    """The newest `TURNS` of some turns, and whether that is all of them."""
    next_older = turns.order_by("-start_us", "-uuid").values_list("start_us", flat=True)[TURNS : TURNS + 1]
    for start_us in next_older:
        return turns.filter(start_us__gt=start_us), False
    return turns, True


def _joined(turns: QuerySet[Scope], select: str, rest: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a SELECT over `t`, the turns, and `a`, what each of them counts."""
    try:
        found, values = turns.order_by().values_list("uuid", "start_us", "profile").query.sql_with_params()
    except EmptyResultSet:  # a bound that no column can hold
        return
    sql = (  # CROSS, so that SQLite begins with the turns
        f"WITH t (uuid, start_us, profile) AS ({found}) SELECT {select} "  # noqa: S608
        f"FROM t CROSS JOIN recording_scope a {rest}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        yield from cursor


_OWN = "WHERE a.turn_uuid = t.uuid AND a.role = 'attempt' AND a.joined_uuid IS NULL AND a.start_us IS NOT NULL"
_CALL = "LEFT JOIN recording_scope l ON l.uuid = a.logical_uuid"
_RHYTHM = "LEFT JOIN recording_stream s ON s.attempt_uuid = a.uuid"


def _cells(turns: QuerySet[Scope], by: By, first: int, width: int) -> dict[tuple[str | None, int], _Cell]:
    """The attempts of these turns by group and by bucket of their turn's start."""
    cells: dict[tuple[str | None, int], _Cell] = defaultdict(_Cell)
    more = f"{_RHYTHM} {_CALL if by == 'role' else ''} {_OWN}"
    place = f"{_KEYS[by]}, (t.start_us - {first}) / {width}"
    for key, bucket, *sums in _joined(turns, f"{place}, {', '.join(_SUMS.values())}", f"{more} GROUP BY 1, 2"):
        cells[key, bucket].sums = {n: None if v is None else int(v) for n, v in zip(_SUMS, sums, strict=True)}
    single = f"{place}, {_LATENCY}, a.ttft_us, s.longest_us, s.gaps"
    for key, bucket, latency, ttft, longest, gaps in _joined(turns, single, more):
        cell = cells[key, bucket]
        if latency is not None:
            cell.latencies.append(latency)
        if ttft is not None:
            cell.ttfts.append(ttft)
        if longest is not None:
            cell.longest_us = max(cell.longest_us, longest)
            cell.gaps += gaps
    return cells


def percentiles(values: Iterable[int]) -> dict[str, int] | None:
    """p50, p95, p99 (nearest rank) and the largest; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    named = {f"p{p}": ordered[max(0, -(-p * len(ordered) // 100) - 1)] for p in (50, 95, 99)}
    return {**named, "max": ordered[-1]}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _figures(cell: _Cell) -> dict[str, Any]:
    counts = {name: cell.count(name) for name in ("attempts", "failed", "cancelled", "blocked", "retries")}
    writing_us, gaps = cell.count("writing_us"), cell.gap_us(0.5, 0.95, 0.99)
    return {
        **counts,
        "error_rate": _share(counts["failed"], counts["attempts"]),
        "retry_rate": _share(counts["retries"], counts["attempts"]),
        "latency_us": percentiles(cell.latencies),
        "ttft_us": percentiles(cell.ttfts),
        "gap_us": dict(zip(("p50", "p95", "p99", "max"), [*gaps, cell.longest_us], strict=True)) if cell.gaps else None,
        "stalls": cell.sums.get("stalls"),
        "stalled_us": cell.sums.get("stalled_us"),
        "output_tokens_per_second": cell.count("written_tokens") / writing_us * 1e6 if writing_us else None,
        "input_tokens": cell.sums.get("input_tokens"),
        "output_tokens": cell.sums.get("output_tokens"),
        "cost_usd": cell.dollars("cost"),
        "cost_complete": not cell.count("unpriced"),
        "wasted_usd": cell.dollars("wasted"),
    }


def _series(cells: list[_Cell]) -> dict[str, list[Any]]:
    latency, ttft = [percentiles(c.latencies) for c in cells], [percentiles(c.ttfts) for c in cells]
    gaps = [c.gap_us(0.5, 0.95) for c in cells]
    return {
        "attempts": [c.count("attempts") for c in cells],
        "failed": [c.count("failed") for c in cells],
        "retries": [c.count("retries") for c in cells],
        "stalls": [c.sums.get("stalls") for c in cells],
        "latency_p50_us": [found and found["p50"] for found in latency],
        "latency_p95_us": [found and found["p95"] for found in latency],
        "ttft_p50_us": [found and found["p50"] for found in ttft],
        "ttft_p95_us": [found and found["p95"] for found in ttft],
        "gap_p50_us": [median for median, _ in gaps],
        "gap_p95_us": [p95 for _, p95 in gaps],
        "tokens": [c.sums.get("total_tokens") for c in cells],
        "cost_usd": [c.dollars("cost") for c in cells],
        "wasted_usd": [c.dollars("wasted") for c in cells],
    }


_RESULTS = {
    "hits": "hit",
    "misses": "miss",
    "blocks": "block",
    "responds": "respond",
    "faults": "fault",
    "errors": "error",
}
_EFFECTS = {
    "runs": "COUNT(*)",
    **{name: f"SUM(CASE WHEN r.result = '{result}' THEN 1 ELSE 0 END)" for name, result in _RESULTS.items()},
    "changed": "SUM(CASE WHEN r.changed THEN 1 ELSE 0 END)",
    "duration_us": "SUM(r.duration_us)",
    "timed": "COUNT(r.duration_us)",
    "before": "SUM(r.bytes_before)",
    "after": "SUM(r.bytes_after)",
}


def _intercepts(turns: QuerySet[Scope]) -> list[dict[str, Any]]:
    """What each intercept did to the attempts of these turns, and to calls that never began; the most frequent first.

    Returns:
        [{"key", "mode", "runs", "hits", "misses", "blocks", "responds", "faults", "errors", "changed",
        "mean_duration_us", "bytes_changed" (None where unknown)}], shadow runs apart from enforced ones.
    """
    rest = (
        "CROSS JOIN recording_rewrite r WHERE a.turn_uuid = t.uuid AND r.attempt_uuid = a.uuid "
        "AND a.role IN ('attempt', 'logical_call') AND a.joined_uuid IS NULL GROUP BY 1, 2"
    )
    found = []
    for key, mode, *sums in _joined(turns, f"r.key, r.mode, {', '.join(_EFFECTS.values())}", rest):
        told = dict(zip(_EFFECTS, sums, strict=True))
        duration, timed = told.pop("duration_us"), told.pop("timed")
        before, after = told.pop("before"), told.pop("after")
        counts = {name: int(value) for name, value in told.items()}
        mean = float(duration) / timed if timed else None
        bytes_changed = None if before is None or after is None else int(after - before)
        found.append({"key": key, "mode": mode, **counts, "mean_duration_us": mean, "bytes_changed": bytes_changed})
    return sorted(found, key=lambda effect: (-effect["runs"], effect["key"], effect["mode"]))
