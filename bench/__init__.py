"""Measurements of the budgets; every module offers `run() -> list[Row]` and prints its own table when run."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable
from pathlib import Path

Row = tuple[str, float, str, str]
"""What was measured, the value, its unit, and the budget as text such as `≤ 1.6` or `≥ 4000` (empty: no budget)."""


def within(value: float, budget: str) -> bool | None:
    """Whether `value` keeps `budget`; None when there is none.

    Raises ValueError when the budget is neither empty nor a sign (≤ or ≥) and a number.
    """
    if not budget:
        return None
    sign, _, limit = budget.partition(" ")
    if sign not in {"≤", "≥"}:
        raise ValueError(f"budget {budget!r} must start with ≤ or ≥ and a space")
    return value <= float(limit) if sign == "≤" else value >= float(limit)


def table(rows: Iterable[Row]) -> str:
    """The rows as an aligned text table, missed budgets marked."""
    words = {None: "", True: "kept", False: "MISSED"}
    cells = [
        (name, f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}", unit, budget, words[within(value, budget)])
        for name, value, unit, budget in rows
    ]
    heads = ("what", "measured", "unit", "budget", "")
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}".rstrip()
        for row in [heads, *cells]
    )


def put_into(page: Path, name: str, rows: Iterable[Row]) -> None:
    """Replace what a page has between `<!-- name -->` and `<!-- end of name -->` by these rows, with date and machine.

    Raises ValueError where the page has no such marks.
    """
    text = page.read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{page} has no {begin.strip()} … {end}")
    told = f"{begin}{machine()}\n\n```\n{table(rows)}\n```\n{end}"
    page.write_text(pattern.sub(lambda _: told, text))


def report(name: str, rows: list[Row], page: Path | None) -> int:
    """Print the rows, and put them into a page if one is given; an exit status that is 1 when a budget was missed."""
    print(table(rows))
    if page is not None:
        put_into(page, name, rows)
    return int(any(within(value, budget) is False for _, value, _, budget in rows))


def machine() -> str:
    """The day, and what was measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{time.strftime('%Y-%m-%d')}, {platform.system()} {platform.machine()} with {os.cpu_count()} cores and "
        f"{memory:.0f} GiB, Python {platform.python_version()}; load average at the end {load}."
    )
