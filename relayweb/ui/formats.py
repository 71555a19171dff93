"""How numbers read on every page: short, with their unit, and "–" for what is not known (unknown is never 0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "–"
UNPRICED = "Without attempts whose models have no price: set one in the admin under Prices, then run relayweb reprice"


def duration(us: float | None) -> str:
    """A length of time, given in microseconds, as format.js says it: `212 µs`, `840 ms`, `6.16 s`, `2 m 30 s`."""
    if us is None:
        return UNKNOWN
    if us < 0:
        return "−" + duration(-us)
    if us == 0:
        return "0 ms"
    for below, unit, digits, name in (
        (999.5, 1, 0, "µs"),
        (9_950, 1e3, 1, "ms"),
        (999_500, 1e3, 0, "ms"),
        (9_995_000, 1e6, 2, "s"),
        (59_950_000, 1e6, 1, "s"),
    ):
        if us < below:
            return f"{us / unit:.{digits}f} {name}"
    seconds = round(us / 1e6)
    if seconds < 3_600:
        return f"{seconds // 60} m {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} m"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def age(us: float | None) -> str:
    """How long ago, given in microseconds, in one unit: `now`, `12 s`, `4 m`, `3 h`, `2 d`."""
    if us is None:
        return UNKNOWN
    seconds = us / 1e6
    if seconds < 2:
        return "now"
    for length, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= length:
            return f"{seconds // length:.0f} {name}"
    return f"{seconds:.0f} s"


def count(number: float | None) -> str:
    """A count in few characters: `871`, `18.2k`, `1.8M`."""
    if number is None:
        return UNKNOWN
    if abs(number) < 1_000:
        return f"{number:.0f}"
    by, letter = (1e3, "k") if abs(number) < 999_950 else (1e6, "M") if abs(number) < 999_950_000 else (1e9, "G")
    return f"{number / by:.1f}".removesuffix(".0") + letter


def cost(dollars: float | None) -> str:
    """US dollars: `$0.412`, `$12.30`, `<$0.001`."""
    if dollars is None:
        return UNKNOWN
    if dollars == 0:
        return "$0"
    if dollars < 0.001:
        return "<$0.001"
    return f"${dollars:.3f}" if dollars < 1 else f"${dollars:,.2f}"


def least(node: Mapping[str, Any]) -> str:
    """What stands before the tokens and the cost of a scope or turn: "≥ " where they are a lower bound."""
    complete = (node.get("usage") or {}).get("complete")
    return "≥ " if complete is False and node.get("status") != "running" else ""


def at_least(said: str, least: str) -> str:
    """A figure in words with `least` before it; unknown stays unknown."""
    if said == UNKNOWN or not least:
        return said
    return said if said.startswith("<") else least + said


def size(octets: float | None) -> str:
    """Bytes: `412 B`, `18.2 KB`, `24.1 MB`."""
    if octets is None:
        return UNKNOWN
    if abs(octets) < 1_000:
        return f"{octets:.0f} B"
    return f"{octets / 1e3:.1f} KB" if abs(octets) < 999_950 else f"{octets / 1e6:.1f} MB"


def percent(part: float | None, whole: float | None) -> str:
    """A share: `4.0 %`; unknown when there is nothing to take a share of."""
    if part is None or not whole:
        return UNKNOWN
    return f"{100 * part / whole:.1f} %"


def short_id(uuid: str) -> str:
    """The first and last figures of a uuid, enough to tell two apart: `0199c4e2…7d10`."""
    plain = str(uuid).replace("-", "")
    return f"{plain[:8]}…{plain[-4:]}" if len(plain) > 13 else plain
