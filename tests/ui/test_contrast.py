"""Inks on the papers they stand on, in both themes: AA for text (4.5), 3 for graphics (WCAG 2.2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSS = Path(__file__).parents[2] / "relayweb/ui/static/relayweb/tokens.css"
TOKENS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS.read_text())
}
Colour = tuple[float, ...]

KINDS = [f"k-{kind}" for kind in ("llm", "call", "tool", "agent", "guardrail", "mark", "intercept")]
STATUSES = [f"st-{status}" for status in ("running", "ok", "failed", "cancelled", "blocked", "interrupted")]
INKS = ["text", "text-2", "text-3", "accent", *KINDS, *STATUSES]
JSON = ["j-key", "j-str", "j-num", "j-lit", "j-punct"]
PAIRS = [
    *((ink, paper, 4.5) for paper in ("bg", "surface", "surface-2", "overlay", "select") for ink in INKS),
    *((ink, paper, 4.5) for paper in ("surface", "surface-2", "add-bg", "del-bg") for ink in JSON),
    *(
        (ink, paper, 3)
        for paper in ("surface", "surface-2")
        for ink in ("line-control", "c-text", "c-reasoning", "c-args", "c-other", "stall")
    ),
    ("text", "raised", 4.5),
    ("text", "surface-3", 4.5),
    ("text-2", "surface-3", 4.5),
    ("on-ink", "ink", 4.5),
    ("accent", "accent-soft", 4.5),
    ("add", "add-bg", 4.5),
    ("del", "del-bg", 4.5),
    ("text", "add-strong", 4.5),
    ("text", "del-strong", 4.5),
]


def colour(name: str, theme: str) -> Colour:
    text = TOKENS[name][theme]
    return tuple(int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))


def luminance(of: Colour) -> float:
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in of]
    return sum(part * weight for part, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))


def ratio(one: Colour, other: Colour) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    return tuple(a * share + b * (1 - share) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_ink_reads_on_its_paper(theme):
    found = [(ink, paper, ratio(colour(ink, theme), colour(paper, theme)), least) for ink, paper, least in PAIRS]
    assert [row for row in found if row[2] < row[3]] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_badges_read_on_their_own_tint_and_text_on_bars(theme):
    surface, text = colour("surface", theme), colour("text", theme)
    low = []
    for ink in (*KINDS, *STATUSES):
        solid = colour(ink, theme)
        if ratio(solid, mixed(solid, surface, 0.08)) < 4.5:
            low.append(f"{ink} on its tint")
        if ratio(text, mixed(solid, surface, 0.26)) < 4.5:
            low.append(f"text on a bar of {ink}")
    assert low == []
