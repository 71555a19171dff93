"""What stands around the rows of the turn list: facets, the histogram, and the figures of the window.

All of it looks at a bounded number of the newest matching turns and says how many; nothing counts the whole record.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from relayweb.recording.reading import overview, queries
from relayweb.recording.reading.query_language import STATUSES, Query
from relayweb.recording.reading.turn_filter import turns_matching
from relayweb.ui import formats, search

FRESH = 5  # seconds
COLUMNS = 72
LEAST_US = 72_000_000
MOST = 8  # values shown of one facet
BAD = ("failed", "interrupted")
TITLES = {"model": "Model", "role": "Call role", "provider": "Provider", "profile": "Profile"}
SINCE = ("15m", "1h", "24h", "7d")
LONGER = (("1s", 1e6), ("5s", 5e6), ("30s", 30e6), ("2m", 120e6))
ORDER = ("running", "ok", "failed", "blocked", "interrupted", "cancelled")


@dataclass(frozen=True)
class Option:
    label: str
    count: int | None
    href: str
    on: bool = False
    icon: str = ""
    tint: str = ""


def context(q: str, query: Query) -> dict[str, Any]:
    """The template context of everything around the rows."""
    return _context(q, query, queries.latest_seq(), int(time.time() // FRESH))


@lru_cache(maxsize=64)
def _context(q: str, query: Query, _seq: int, _moment: int) -> dict[str, Any]:
    """Many viewers of an idle record ask for the same: it is worked out again when something was recorded, or after
    `FRESH` seconds, because `since:2h` moves on."""
    found = overview.facets(q)
    seen = _Window.of(query)
    window = found["window"]
    turns, fit = ("turn", " fits") if window["turns"] == 1 else ("turns", " fit")
    return {
        "facets": [group for group in _groups(q, found["facets"], seen) if group["options"] or group.get("bars")],
        "facet_note": "" if window["complete"] else f"Counted over the newest {window['turns']:,} turns that fit.",
        "window_note": f"{window['turns']:,}{'' if window['complete'] else '+'} {turns}" + (fit if q else ""),
        "histogram": histogram(q),
        "figures": seen.figures(),
    }


@dataclass(frozen=True)
class _Window:
    """The newest matching turns, as far as the facets look."""

    durations: list[int]
    ttfts: list[int]
    statuses: list[str]

    @classmethod
    def of(cls, query: Query) -> _Window:
        newest = turns_matching(query).filter(start_us__isnull=False).order_by("-start_us", "-uuid")
        rows = list(newest.values_list("start_us", "end_us", "last_us", "ttft_us", "status")[: overview.FACET_WINDOW])
        return cls(
            sorted(max(0, (end or last) - (start or 0)) for start, end, last, _, status in rows if status != "running"),
            sorted(ttft for _, _, _, ttft, _ in rows if ttft is not None),
            [status for *_, status in rows],
        )

    def figures(self) -> list[tuple[str, str]]:
        ended = [status for status in self.statuses if status != "running"]
        return [
            ("p50", formats.duration(quantile(self.durations, 0.5))),
            ("p95", formats.duration(quantile(self.durations, 0.95))),
            ("TTFT p50", formats.duration(quantile(self.ttfts, 0.5))),
            ("failed", formats.percent(sum(status in BAD for status in ended), len(ended))),
        ]

    def bars(self, columns: int = 20) -> list[dict[str, float]]:
        """Durations on a logarithmic scale, as columns of a 160 × 32 drawing."""
        if len(self.durations) < 2 or self.durations[-1] <= self.durations[0]:
            return []
        low, high = math.log(max(1, self.durations[0])), math.log(max(2, self.durations[-1]))
        counts = [0] * columns
        for us in self.durations:
            place = (math.log(max(1, us)) - low) / ((high - low) or 1)
            counts[min(columns - 1, int(place * columns))] += 1
        most = max(counts)
        return [
            {"x": i * 8, "y": round(32 - 30 * count / most, 1), "height": round(30 * count / most, 1)}
            for i, count in enumerate(counts)
            if count
        ]


def quantile(ordered: list[int], share: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def _groups(q: str, counted: dict[str, list[dict[str, Any]]], seen: _Window) -> list[dict[str, Any]]:
    groups = [{"title": "Status", "options": _statuses(q, counted)}]
    groups += [{"title": title, "options": _values(q, field, counted)} for field, title in TITLES.items()]
    groups.append({"title": "Had", "options": _had(q, counted)})
    spread = seen.durations
    groups.append(
        {
            "title": "Duration",
            "range": f"{formats.duration(spread[0])} – {formats.duration(spread[-1])}" if spread else "",
            "bars": seen.bars(),
            "options": [
                _exclusive(q, f"dur:>{said}", f"> {said[:-1]} {said[-1]}", _above(spread, us)) for said, us in LONGER
            ],
        }
    )
    since = [_exclusive(q, f"since:{back}", f"last {back[:-1]} {back[-1]}") for back in SINCE]
    groups.append({"title": "Started", "options": since})
    return groups


def _counts(q: str, field: str, counted: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """Of a field that the query narrows, the counts without that narrowing, so that the other values stay in view."""
    if search.chosen(q, field):
        rest = " ".join(chip.text for chip in search.chips(q) if chip.field != f"{field}:")
        counted = overview.facets(rest)["facets"]
    return {row["value"]: row["count"] for row in counted.get(field, ())}


def _statuses(q: str, counted: dict[str, list[dict[str, Any]]]) -> list[Option]:
    counts, on = _counts(q, "status", counted), search.chosen(q, "status")
    assert set(ORDER) == set(STATUSES)
    return [
        Option(
            name, counts.get(name, 0), search.href(search.toggled(q, "status", name)), name in on, name, f"st-{name}"
        )
        for name in ORDER
    ]


def _values(q: str, field: str, counted: dict[str, list[dict[str, Any]]]) -> list[Option]:
    counts, on = _counts(q, field, counted), search.chosen(q, field)
    shown = [*list(counts)[:MOST], *(value for value in sorted(on) if value not in list(counts)[:MOST])]
    if len(shown) < 2 and not on and field in ("provider", "profile"):
        return []
    return [
        Option(value, counts.get(value), search.href(search.toggled(q, field, value)), value in on) for value in shown
    ]


def _had(q: str, counted: dict[str, list[dict[str, Any]]]) -> list[Option]:
    def yes(field: str) -> int:
        return sum(row["count"] for row in counted.get(field, ()) if row["value"] == "yes")

    return [
        _exclusive(q, "retries:>0", "retries", yes("retried"), "retry", "st-interrupted"),
        _exclusive(q, "rewritten:yes", "rewrites", yes("rewritten"), "rewrite", "k-intercept"),
        _exclusive(q, "stalls:>0", "stalls", yes("stalled"), "pause", "st-interrupted"),
    ]


def _exclusive(q: str, term: str, label: str, count: int | None = None, icon: str = "", tint: str = "") -> Option:
    """An option that is one term of the query: there or not, in the place of others of its field."""
    terms = [chip.text for chip in search.chips(q)]
    on = term in terms
    target = " ".join(t for t in terms if t != term) if on else search.with_term(q, term)
    return Option(label, count, search.href(target), on, icon, tint)


def _above(ordered: list[int], us: float) -> int:
    return sum(length > us for length in ordered)


def histogram(q: str) -> dict[str, Any] | None:
    """The histogram as columns of a `COLUMNS × 10` by 40 drawing, with its axis in words."""
    found = overview.histogram(q, COLUMNS)
    if found["from_us"] is None:
        return None
    if found["to_us"] - found["from_us"] < LEAST_US:
        found = spread(found)
    counts: dict[str, list[int]] = found["counts"]
    totals = [sum(counts[status][i] for status in counts) for i in range(found["buckets"])]
    most = max(totals) or 1
    bars = []
    for i, total in enumerate(totals):
        if not total:
            continue
        below = 40.0
        stopped = counts.get("blocked", [0] * COLUMNS)[i]
        bad = sum(counts[status][i] for status in BAD if status in counts)
        running = counts.get("running", [0] * COLUMNS)[i]
        parts = (("h-bad", bad), ("h-stop", stopped), ("h-run", running), ("h-ok", total - bad - stopped - running))
        for look, count in parts:
            if count:
                # A single failure among hundreds must not vanish.
                height = max(38 * count / most, 2.0 if look != "h-ok" else 1.0)
                below -= height
                bars.append({"look": look, "x": i * 10, "y": round(max(0.0, below), 2), "height": round(height, 2)})
    return {
        "bars": bars,
        "width": COLUMNS * 10 - 2,
        "from_us": found["from_us"],
        "step_us": found["width_us"],
        "buckets": found["buckets"],
        "axis": axis(found["from_us"], found["to_us"]),
        "window": found["window"],
        "said": f"{found['window']['turns']} turns over time, {sum(sum(counts.get(s, [])) for s in BAD)} failed",
    }


def spread(found: dict[str, Any]) -> dict[str, Any]:
    """The same counts over the last minute before the newest turn: a few turns need no finer scale."""
    begin, step = found["to_us"] - LEAST_US, LEAST_US // COLUMNS
    counts = {status: [0] * COLUMNS for status in found["counts"]}
    for status, column in found["counts"].items():
        for i, count in enumerate(column):
            at = found["from_us"] + i * found["width_us"]
            counts[status][min(COLUMNS - 1, (at - begin) // step)] += count
    return {**found, "from_us": begin, "to_us": begin + step * COLUMNS, "width_us": step, "counts": counts}


def axis(from_us: int, to_us: int, now_us: int | None = None) -> list[str]:
    """Five labels, from the first moment to the last, as ages in the coarsest unit that tells them apart."""
    now = now_us if now_us is not None else int(time.time() * 1e6)
    ages = [max(0.0, now - (from_us + (to_us - from_us) * i // 4)) for i in range(5)]
    counts, unit = _told_apart(ages)
    return [_age(count, unit) for count in counts]


def _age(count: int, unit: int) -> str:
    """An age in a unit; of what would be hundreds of it the larger part in the next larger unit: `−61 m 28 s`."""
    if not count:
        return "now"
    (length, name), larger = UNITS[unit], UNITS[unit - 1] if unit else None
    if larger is None or count < MANY:
        return f"−{count:,} {name}".replace(",", "\u202f")
    whole, rest = divmod(count, round(larger[0] / length))
    return f"−{whole:,} {larger[1]} {rest} {name}".replace(",", "\u202f")


MANY = 200
UNITS = ((86_400e6, "d"), (3_600e6, "h"), (60e6, "m"), (1e6, "s"))


def _told_apart(ages: list[float]) -> tuple[list[int], int]:
    """The ages in a unit, and which of `UNITS` that is."""
    counted = [([round(us / length) for us in ages], unit) for unit, (length, _) in enumerate(UNITS)]
    return next((found for found in counted if len(set(found[0])) == len(ages)), counted[-1])
