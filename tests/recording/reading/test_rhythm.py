from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording.models import Stream
from relayweb.recording.reading import queries, rhythm
from relayweb.recording.upkeep import retention
from tests.recording.recorded import Talk, chunk, record

STEADY = [100 + 20 * n for n in range(8)]


def streamed(*moments: float, start: float = 0) -> tuple[str, str]:
    """A turn with one stream whose chunks came at these moments (ms); gives turn and attempt."""
    talk = Talk(f"s-{start}", start=start)
    attempt = talk.attempt(talk.call(end=8_500), end=8_400)
    talk.add(*[chunk(attempt, n, start + at) for n, at in enumerate(moments)])
    return talk.record(), attempt


def test_a_gap_stands_out_over_five_times_the_median_and_a_quarter_of_a_second():
    assert rhythm.stall_us([20_000] * 3) is None
    assert rhythm.stall_us([20_000] * 4) == 250_000
    assert rhythm.stall_us([20_000, 100_000, 100_000, 900_000]) == 500_000


@given(st.lists(st.integers(0, 800_000_000), min_size=1, max_size=400), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1]))
def test_a_percentile_of_packed_gaps_is_the_nearest_rank_within_the_error_told(gaps, share):
    half = len(gaps) // 2
    packed = rhythm.pack(gaps[:half]) + rhythm.pack(gaps[half:])
    exact = sorted(gaps)[max(0, -(-int(share * 100) * len(gaps) // 100) - 1)]
    told = rhythm.percentile(rhythm.counts(packed), share, max(gaps))
    assert told is not None and abs(told - exact) <= max(100, (rhythm.ERROR + 1e-6) * exact)


def test_nothing_has_no_percentile():
    assert rhythm.percentile(rhythm.counts(b""), 0.5, 0) is None


@pytest.mark.django_db(transaction=True)
def test_the_figures_of_a_stream_are_those_of_its_chunks():
    _, attempt = streamed(*STEADY, 1_240, 1_260)
    while rhythm.catch_up():
        pass
    found = Stream.objects.get(attempt_uuid=attempt)
    assert (found.count, found.stalls, found.stalled_us, found.longest_us) == (9, 1, 1_000_000, 1_000_000)
    assert not rhythm.catch_up()


@pytest.mark.django_db(transaction=True)
def test_chunks_that_come_later_or_twice_or_in_another_order_give_the_same_figures():
    moments = [*STEADY, 1_240, 1_260]
    _, whole = streamed(*moments)
    talk = Talk("late", start=60_000)
    late = talk.attempt(talk.call(end=8_500), end=8_400)
    marks = [chunk(late, n, 60_000 + at) for n, at in enumerate(moments)]
    talk.record()
    for some in (marks[5:], marks[2:6], marks[:3]):
        record(*some)
        rhythm.catch_up()
    one, other = Stream.objects.get(attempt_uuid=whole), Stream.objects.get(attempt_uuid=late)
    told = [(s.count, s.stalls, s.stalled_us, s.longest_us, bytes(s.gaps)) for s in (one, other)]
    assert told[0] == told[1]


@pytest.mark.django_db(transaction=True)
def test_figures_of_another_record_are_made_anew():
    _, attempt = streamed(*STEADY)
    rhythm.catch_up()
    Stream.objects.update(seq=10**9, stalls=7)
    while rhythm.catch_up():
        pass
    assert Stream.objects.get(attempt_uuid=attempt).stalls == 0


@pytest.mark.django_db(transaction=True)
def test_the_figures_go_with_the_turn():
    turn, attempt = streamed(*STEADY)
    rhythm.catch_up()
    retention.matching([queries.turn_row(turn).uuid])
    assert not Stream.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("stalls:>0", {"two", "one"}),
        ("is:stalled", {"two", "one"}),
        ("-is:stalled", {"none"}),
        ("stalls:>1", {"two"}),
        ("stalls:2", {"two"}),
        ("stalls:1..2", {"two", "one"}),
        ("stalls:<2", {"one", "none"}),
        ("stalls:0", {"none"}),
        ("-stalls:>1", {"one", "none"}),
    ],
)
@pytest.mark.parametrize("few", [0, 1_000])
def test_turns_are_found_by_their_stalls(monkeypatch, few, q, found):
    for bound in ("FEW", "MANY"):
        monkeypatch.setattr(f"relayweb.recording.reading.turn_filter.{bound}", few)
    names = {
        streamed(*STEADY, 1_240, 1_260, 2_260)[0]: "two",
        streamed(*STEADY, 1_240, 1_260, start=20_000)[0]: "one",
        streamed(*STEADY, start=40_000)[0]: "none",
    }
    while rhythm.catch_up():
        pass
    assert {names[turn["uuid"]] for turn in queries.turns(q)["turns"]} == found


@pytest.mark.django_db(transaction=True)
def test_the_facet_counts_turns_with_stalls():
    streamed(*STEADY, 1_240, 1_260, 2_260)
    streamed(*STEADY, start=20_000)
    while rhythm.catch_up():
        pass
    counted = queries.facets()["facets"]["stalled"]
    assert sorted((row["value"], row["count"]) for row in counted) == [("no", 1), ("yes", 1)]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_locked_while_there_is_nothing_to_do():
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        assert not rhythm.catch_up()
    assert not any(q["sql"].startswith("BEGIN") for q in captured)


@pytest.mark.django_db(transaction=True)
def test_events_are_recorded_and_turns_forgotten_while_streams_are_measured(monkeypatch):
    streamed(*STEADY)
    forgotten, _ = streamed(*STEADY, start=20_000)
    real, more = rhythm.measured, iter([40_000])

    def slowly(attempts):
        found = real(attempts)
        for start in more:
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(meanwhile, forgotten, start).result(10)
        return found

    monkeypatch.setattr(rhythm, "measured", slowly)
    while rhythm.catch_up():
        pass
    assert not rhythm.catch_up() and Stream.objects.count() == 2  # the forgotten one is not there again


def meanwhile(turn: str, start: float) -> None:
    try:
        streamed(*STEADY, start=start)
        retention.matching([queries.turn_row(turn).uuid])
    finally:
        connection.close()
