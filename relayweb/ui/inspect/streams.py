"""The rhythm of one stream: first token, gaps, stalls, pace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relayweb.recording.reading.rhythm import stall_us


@dataclass(frozen=True)
class Stall:
    """A long gap; `after` is the index of the chunk before it."""

    after: int
    gap_us: int
    kind: str


@dataclass
class Rhythm:
    """Figures of one stream, in microseconds; None where there are too few chunks to say."""

    count: int = 0
    first_us: int | None = None
    p50_us: int | None = None
    p95_us: int | None = None
    max_us: int | None = None
    stalls: list[Stall] = field(default_factory=list)
    stalled_us: int = 0


def rank(values: Sequence[int], share: float) -> int | None:
    """The share-quantile by nearest rank of values that ascend."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


def rhythm(chunks: Sequence[Mapping[str, Any]], start_us: int | None) -> Rhythm:
    """The rhythm of chunks as `queries.chunks` gives them."""
    times = [c["at_us"] for c in chunks if isinstance(c.get("at_us"), int)]
    made = Rhythm(count=len(chunks))
    if times and start_us is not None:
        made.first_us = max(0, times[0] - start_us)
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    ordered = sorted(gaps)
    made.p50_us, made.p95_us, made.max_us = rank(ordered, 0.5), rank(ordered, 0.95), rank(ordered, 1)
    least = stall_us(gaps)
    if least is not None:
        made.stalls = [
            Stall(k, gap, str(chunks[k].get("kind") or "other")) for k, gap in enumerate(gaps) if gap > least
        ]
        made.stalled_us = sum(stall.gap_us for stall in made.stalls)
    return made


def table(
    chunks: Sequence[Mapping[str, Any]], start_us: int | None, made: Rhythm, whole: bool = False
) -> list[dict[str, Any]]:
    """Rows of the chunk table: all of a short stream, else the ends and what surrounds a stall or a change of kind.

    A run that is left out is a row `{"more": n}`.
    """
    keep = set(range(len(chunks)))
    if not whole and len(chunks) > 60:
        near = {0, 1, 2, *range(len(chunks) - 4, len(chunks))}
        for stall in made.stalls[:40]:
            near |= set(range(stall.after - 1, stall.after + 4))
        changes = [k for k in range(1, len(chunks)) if chunks[k].get("kind") != chunks[k - 1].get("kind")]
        for k in changes[:40]:
            near |= {k - 1, k, k + 1}
        keep = near
    stalled = {stall.after + 1 for stall in made.stalls}
    rows: list[dict[str, Any]] = []
    left_out = 0
    for k, chunk in enumerate(chunks):
        if k not in keep:
            left_out += 1
            continue
        if left_out:
            rows.append({"more": left_out})
        left_out = 0
        rows.append(_row(chunks, k, chunk, start_us, k in stalled))
    if left_out:
        rows.append({"more": left_out})
    return rows


def _row(
    chunks: Sequence[Mapping[str, Any]], k: int, chunk: Mapping[str, Any], start_us: int | None, stalled: bool
) -> dict[str, Any]:
    at = chunk.get("at_us")
    before = chunks[k - 1].get("at_us") if k else start_us
    return {
        "index": chunk.get("index", k),
        "at": None if at is None or start_us is None else (at - start_us) / 1e6,
        "gap": None if at is None or before is None else (at - before) / 1e6,
        "kind": chunk.get("kind") or "other",
        "size": chunk.get("size"),
        "text": chunk.get("text"),
        "finish_reason": chunk.get("finish_reason"),
        "stall": stalled,
    }
