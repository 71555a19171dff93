from __future__ import annotations

import pytest

from relayweb.ui import formats


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (None, "–"),
        (0, "0 ms"),
        (212, "212 µs"),
        (1_500, "1.5 ms"),
        (38_000, "38 ms"),
        (840_000, "840 ms"),
        (999_600, "1.00 s"),
        (6_160_000, "6.16 s"),
        (41_800_000, "41.8 s"),
        (59_960_000, "1 m 0 s"),
        (150_000_000, "2 m 30 s"),
        (4_320_000_000, "1 h 12 m"),
        (273_600_000_000, "3 d 4 h"),
        (-38_000, "−38 ms"),
    ],
)
def test_a_duration_reads_with_three_figures_and_its_unit(us, said):
    assert formats.duration(us) == said


@pytest.mark.parametrize(
    ("us", "said"), [(None, "–"), (0, "now"), (12e6, "12 s"), (300e6, "5 m"), (7.2e9, "2 h"), (2e11, "2 d")]
)
def test_an_age_reads_in_one_unit(us, said):
    assert formats.age(us) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [(None, "–"), (0, "0"), (871, "871"), (18_200, "18.2k"), (5_000, "5k"), (999_960, "1M"), (2e9, "2G")],
)
def test_a_count_is_short(number, said):
    assert formats.count(number) == said


@pytest.mark.parametrize(
    ("dollars", "said"), [(None, "–"), (0, "$0"), (0.0004, "<$0.001"), (0.412, "$0.412"), (12.3, "$12.30")]
)
def test_a_cost_is_in_dollars_and_never_zero_when_it_is_not(dollars, said):
    assert formats.cost(dollars) == said


def test_a_size_and_a_share_are_unknown_when_nothing_is_known():
    assert (formats.size(None), formats.percent(1, 0), formats.percent(None, 5)) == ("–", "–", "–")
    assert (formats.size(412), formats.size(18_200), formats.percent(4, 100)) == ("412 B", "18.2 KB", "4.0 %")
