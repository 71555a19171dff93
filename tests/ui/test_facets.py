from __future__ import annotations

import pytest

from relayweb.ui import facets

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("from_ago", "to_ago", "labels"),
    [
        (72 * MINUTE, 0, ["−72 m", "−54 m", "−36 m", "−18 m", "now"]),
        (125 * MINUTE, 53 * MINUTE, ["−125 m", "−107 m", "−89 m", "−71 m", "−53 m"]),
        (MINUTE, 0, ["−60 s", "−45 s", "−30 s", "−15 s", "now"]),
        (8 * 1440 * MINUTE, 0, ["−8 d", "−6 d", "−4 d", "−2 d", "now"]),
        (3688e6, 3616e6, ["−61 m 28 s", "−61 m 10 s", "−60 m 52 s", "−60 m 34 s", "−60 m 16 s"]),
        (301 * 1440 * MINUTE, 297 * 1440 * MINUTE, ["−301 d", "−300 d", "−299 d", "−298 d", "−297 d"]),
    ],
)
def test_the_axis_has_labels_that_differ(from_ago, to_ago, labels):
    now = 1_800_000_000_000_000
    assert facets.axis(now - from_ago, now - to_ago, now) == labels


def test_a_single_failure_among_many_turns_stays_visible(viewer, record):
    for minute in range(3):
        record(minute=minute)
    record(minute=3, failed=True)
    drawn = facets.histogram("")
    assert drawn is not None
    [bad] = [bar for bar in drawn["bars"] if bar["look"] == "h-bad"]
    assert bad["height"] >= 2


def test_a_few_turns_of_one_moment_are_drawn_on_a_scale_of_a_minute(viewer, record):
    record()
    drawn = facets.histogram("")
    assert drawn is not None and drawn["step_us"] == 1_000_000 and drawn["buckets"] == facets.COLUMNS
    assert [bar["x"] for bar in drawn["bars"]] == [10 * (facets.COLUMNS - 1)]
