"""Measurements of the budgets; every module offers `run() -> list[Row]` and prints its own table when run."""

from __future__ import annotations

from collections.abc import Iterable

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
