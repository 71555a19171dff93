"""Times of events, in the units that streams write."""

import pytest

from relayweb.recording.atof import BadEvent, parse_timestamp


@pytest.mark.parametrize(
    ("value", "mend"),
    [
        (1_796_043_600, "seconds: multiply it by 1000000"),
        (1_796_043_600_123, "milliseconds: multiply it by 1000"),
        (946_684_800, "seconds"),
        (4_102_444_799_999, "milliseconds"),
    ],
)
def test_whole_seconds_and_milliseconds_are_refused_with_the_mend(value, mend):
    with pytest.raises(BadEvent, match=mend):
        parse_timestamp(value)


@pytest.mark.parametrize("value", [0, 1, -5, 1_000, 1_796_043_600_123_456, 946_684_799, 4_102_444_800_000])
def test_whole_microseconds_are_taken(value):
    assert parse_timestamp(value) == (value * 1000, "i")
