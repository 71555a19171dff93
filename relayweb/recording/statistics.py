"""Figures over time: latency, time to first chunk, tokens, cost and waste, errors and retries; what intercepts did.

All of it over the attempts of the newest turns that match a query, within a bounded window that the answer names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from django.db.models import Count, Q, Sum

from relayweb.recording import chunks, queries
from relayweb.recording.models import ChunkBlock, Rewrite, Role, Scope
from relayweb.recording.query_language import parse
from relayweb.recording.rows import rfc3339, usd
from relayweb.recording.turn_filter import turns_matching

TURNS = 5_000
GAP_ATTEMPTS = 300
"""Streams, the newest, whose chunks are opened for the gaps between them."""

By = Literal["model", "provider", "role", "profile"]

_COLUMNS = (
    "uuid", "turn_uuid", "model", "provider", "call_role", "logical_uuid", "status", "attempt", "start_us", "end_us",
    "ttft_us", "streaming", "input_tokens", "output_tokens", "total_tokens", "cost_pusd", "wasted_pusd", "flags",
)  # fmt: skip


class _Attempt(msgspec.Struct, gc=False):
    uuid: UUID
    turn_uuid: UUID
    model: str | None
    provider: str | None
    call_role: str | None
    logical_uuid: UUID | None
    status: str
    attempt: int | None
    start_us: int
    end_us: int | None
    ttft_us: int | None
    streaming: bool | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cost_pusd: int | None
    wasted_pusd: int | None
    flags: int

    @property
    def latency_us(self) -> int | None:
        """None while it runs, and where the clocks of start and end disagree."""
        if self.end_us is None or self.flags & Scope.Flag.CLOCK_SKEW:
            return None
        return self.end_us - self.start_us


def statistics(q: str = "", *, by: By = "model", buckets: int = 60, now: datetime | None = None) -> dict[str, Any]:
    """Figures of the attempts in the newest matching turns.

    Args:
        q: a query of `query_language`; `since:` and `until:` choose the time.
        by: what the attempts are grouped by.
        buckets: 1 to 500 columns of equal width.

    Returns:
        `window`: {"turns", "limit", "complete"}; `from_us`, `to_us`, `width_us` (None without attempts); `at_us`: the
        start of each bucket; `total` and `groups` (the busiest first, each with its `key`), each with
        `figures`: {attempts, failed, cancelled, blocked, retries, error_rate, retry_rate, latency_us, ttft_us, gap_us
        ({p50, p95, p99, max} or None), output_tokens_per_second, input_tokens, output_tokens, cost_usd, wasted_usd} and
        `series`: {attempts, failed, retries, latency_p50_us, latency_p95_us, ttft_p50_us, tokens, cost_usd,
        wasted_usd}, a value a bucket, None where there is none; `intercepts`: see `intercept_effects`.

    Raises:
        QueryError: the query cannot be read.
    """
    buckets = max(1, min(buckets, 500))
    newest = turns_matching(parse(q, now=now)).filter(start_us__isnull=False).order_by("-start_us", "-uuid")
    turns = list(newest.values_list("uuid", "profile")[: TURNS + 1])
    complete, turns = len(turns) <= TURNS, turns[:TURNS]
    attempts = _attempts([uuid for uuid, _ in turns])
    profiles = dict(turns)
    first = min((a.start_us for a in attempts), default=None)
    last = max((a.start_us for a in attempts), default=0)
    width = None if first is None else max(1, -(-(last - first + 1) // buckets))
    groups: dict[str, list[_Attempt]] = defaultdict(list)
    for attempt in attempts:
        groups[_key(attempt, by, profiles) or "unknown"].append(attempt)
    gaps = _gaps(attempts)

    def told(some: list[_Attempt]) -> dict[str, Any]:
        return {"figures": _figures(some, gaps), "series": _series(some, first or 0, width or 1, buckets)}

    return {
        "window": {"turns": len(turns), "limit": TURNS, "complete": complete, "streams_opened": len(gaps)},
        "from_us": first,
        "to_us": None if first is None or width is None else first + width * buckets,
        "from": rfc3339(first),
        "width_us": width,
        "at_us": [] if first is None or width is None else [first + width * i for i in range(buckets)],
        "by": by,
        "total": told(attempts),
        "groups": [
            {"key": key, **told(some)} for key, some in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
        ],
        "intercepts": intercept_effects([a.uuid for a in attempts] + _blocked([uuid for uuid, _ in turns])),
    }


def _attempts(turns: Sequence[UUID]) -> list[_Attempt]:
    found: list[_Attempt] = []
    for some in queries.slices(turns):
        rows = Scope.objects.filter(
            turn_uuid__in=some, role=Role.ATTEMPT, joined_uuid__isnull=True, start_us__isnull=False
        )
        found += [_Attempt(*row) for row in rows.values_list(*_COLUMNS)]
    calls = {a.logical_uuid for a in found if a.call_role is None and a.logical_uuid not in (None, a.uuid)}
    roles: dict[UUID, str | None] = {}
    for some in queries.slices(list(calls)):
        roles.update(Scope.objects.filter(uuid__in=some).values_list("uuid", "call_role"))
    for attempt in found:
        if attempt.call_role is None and attempt.logical_uuid is not None:
            attempt.call_role = roles.get(attempt.logical_uuid)
    return found


def _blocked(turns: Sequence[UUID]) -> list[UUID]:
    """Logical calls: intercepts of a call that never began are recorded under it."""
    found: list[UUID] = []
    for some in queries.slices(turns):
        calls = Scope.objects.filter(turn_uuid__in=some, role=Role.LOGICAL_CALL, rewrites__gt=0)
        found += calls.values_list("uuid", flat=True)
    return found


def _key(attempt: _Attempt, by: By, profiles: dict[UUID, str | None]) -> str | None:
    if by == "profile":
        return profiles.get(attempt.turn_uuid)
    return attempt.call_role if by == "role" else attempt.provider if by == "provider" else attempt.model


def percentiles(values: Iterable[int]) -> dict[str, int] | None:
    """p50, p95, p99 (nearest rank) and the largest; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    named = {f"p{p}": ordered[max(0, -(-p * len(ordered) // 100) - 1)] for p in (50, 95, 99)}
    return {**named, "max": ordered[-1]}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _figures(attempts: list[_Attempt], gaps: dict[UUID, list[int]]) -> dict[str, Any]:
    failed = sum(a.status in ("failed", "interrupted") for a in attempts)
    retries = sum((a.attempt or 1) > 1 for a in attempts)
    streamed = [a for a in attempts if a.output_tokens and a.ttft_us is not None and (a.latency_us or 0) > a.ttft_us]
    writing_us = sum((a.latency_us or 0) - (a.ttft_us or 0) for a in streamed)
    return {
        "attempts": len(attempts),
        "failed": failed,
        "cancelled": sum(a.status == "cancelled" for a in attempts),
        "blocked": sum(a.status == "blocked" for a in attempts),
        "retries": retries,
        "error_rate": _share(failed, len(attempts)),
        "retry_rate": _share(retries, len(attempts)),
        "latency_us": percentiles(a.latency_us for a in attempts if a.latency_us is not None),
        "ttft_us": percentiles(a.ttft_us for a in attempts if a.ttft_us is not None),
        "gap_us": percentiles(gap for a in attempts for gap in gaps.get(a.uuid, ())),
        "output_tokens_per_second": sum(a.output_tokens or 0 for a in streamed) / writing_us * 1e6
        if writing_us
        else None,
        "input_tokens": _sum(a.input_tokens for a in attempts),
        "output_tokens": _sum(a.output_tokens for a in attempts),
        "cost_usd": usd(_sum(a.cost_pusd for a in attempts)),
        "wasted_usd": usd(_sum(a.wasted_pusd for a in attempts)),
    }


def _series(attempts: list[_Attempt], first: int, width: int, buckets: int) -> dict[str, list[Any]]:
    columns: list[list[_Attempt]] = [[] for _ in range(buckets)]
    for attempt in attempts:
        columns[(attempt.start_us - first) // width].append(attempt)
    latency = [percentiles(a.latency_us for a in column if a.latency_us is not None) for column in columns]
    ttft = [percentiles(a.ttft_us for a in column if a.ttft_us is not None) for column in columns]
    return {
        "attempts": [len(column) for column in columns],
        "failed": [sum(a.status in ("failed", "interrupted") for a in column) for column in columns],
        "retries": [sum((a.attempt or 1) > 1 for a in column) for column in columns],
        "latency_p50_us": [found and found["p50"] for found in latency],
        "latency_p95_us": [found and found["p95"] for found in latency],
        "ttft_p50_us": [found and found["p50"] for found in ttft],
        "tokens": [_sum(a.total_tokens for a in column) for column in columns],
        "cost_usd": [usd(_sum(a.cost_pusd for a in column)) for column in columns],
        "wasted_usd": [usd(_sum(a.wasted_pusd for a in column)) for column in columns],
    }


def _gaps(attempts: list[_Attempt]) -> dict[UUID, list[int]]:
    """Microseconds between consecutive chunks, of the newest streams."""
    streams = sorted((a for a in attempts if a.streaming), key=lambda a: a.start_us, reverse=True)[:GAP_ATTEMPTS]
    moments: dict[UUID, list[int]] = defaultdict(list)
    for some in queries.slices([a.uuid for a in streams]):
        for block in ChunkBlock.objects.filter(attempt_uuid__in=some, kind=ChunkBlock.Kind.MARKS):
            moments[block.attempt_uuid] += chunks.moments(block)
    found: dict[UUID, list[int]] = {}
    for uuid, times in moments.items():
        times.sort()
        found[uuid] = [b - a for a, b in zip(times, times[1:], strict=False)]
    return found


def intercept_effects(scopes: Sequence[UUID]) -> list[dict[str, Any]]:
    """What each intercept did to these attempts and calls, the most frequent first.

    Returns:
        [{"key", "mode", "runs", "hits", "misses", "blocks", "responds", "faults", "errors", "changed",
        "mean_duration_us", "bytes_changed"}], shadow runs apart from enforced ones.
    """
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for some in queries.slices(scopes):
        grouped = Rewrite.objects.filter(attempt_uuid__in=some).values("key", "mode").order_by()
        row: dict[str, Any]
        for row in grouped.annotate(  # type: ignore[assignment]
            runs=Count("seq"),
            hits=Count("seq", filter=Q(result="hit")),
            misses=Count("seq", filter=Q(result="miss")),
            blocks=Count("seq", filter=Q(result="block")),
            responds=Count("seq", filter=Q(result="respond")),
            faults=Count("seq", filter=Q(result="fault")),
            errors=Count("seq", filter=Q(result="error")),
            changed=Count("seq", filter=Q(changed=True)),
            duration=Sum("duration_us"),
            timed=Count("duration_us"),
            before=Sum("bytes_before"),
            after=Sum("bytes_after"),
        ):
            into = sums.setdefault((row["key"], row["mode"]), defaultdict(int))
            for name, value in row.items():
                if name not in ("key", "mode"):
                    into[name] += value or 0
    return [
        {
            "key": key,
            "mode": mode,
            **{n: found[n] for n in ("runs", "hits", "misses", "blocks", "responds", "faults", "errors", "changed")},
            "mean_duration_us": found["duration"] / found["timed"] if found["timed"] else None,
            "bytes_changed": found["after"] - found["before"],
        }
        for (key, mode), found in sorted(sums.items(), key=lambda item: (-item[1]["runs"], item[0]))
    ]
