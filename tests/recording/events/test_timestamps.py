"""Times of events, in the units that streams write."""

import pytest

from relayweb.recording.events.atof import BadEvent, parse_timestamp


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


@pytest.mark.parametrize(
    "value",
    [
        *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000000+00:00", "9999-12-31T23:59:59.999999999Z"),
        *("9999-12-31T23:59:59.999999999+00:00", "1677-01-01T00:00:00Z", 2**63, -(10**40)),
    ],
)
def test_times_that_the_record_cannot_hold_are_refused_with_the_reason_and_the_mend(value):
    with pytest.raises(BadEvent, match=r"^timestamp: .* outside the years 1678 to 2261 .* Send the time"):
        parse_timestamp(value)


@pytest.mark.parametrize("value", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
def test_a_time_that_was_never_set_is_told_apart(value):
    with pytest.raises(BadEvent, match="never set"):
        parse_timestamp(value)


@pytest.mark.parametrize("value", ["2026-01-01T00:00:00", "2026-01-01 00:00:00.123"])
def test_a_time_without_an_offset_is_refused_with_the_mend(value):
    with pytest.raises(BadEvent, match="add its offset"):
        parse_timestamp(value)


@pytest.mark.parametrize("zone", ["+24:00", "-24:00", "+99:99", "+23:60", "+2400"])
def test_an_offset_beyond_a_day_is_refused_by_name(zone):
    with pytest.raises(BadEvent, match="RFC 3339 ends at 23:59"):
        parse_timestamp(f"2026-11-30T08:00:00{zone}")


def test_the_largest_offsets_are_taken():
    day = 86_400 * 10**9
    east, west = (parse_timestamp(f"2026-11-30T12:00:00{zone}")[0] for zone in ("+23:59", "-23:59"))
    assert west - east == 2 * (day - 60 * 10**9)
