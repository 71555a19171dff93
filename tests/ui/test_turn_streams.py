"""The rhythm of a stream, and which of its chunks the table shows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relayweb.ui.inspect import streams


def chunks(*at_ms: int, kind: str = "text") -> list[dict[str, Any]]:
    return [{"index": k, "at_us": at * 1000, "kind": kind, "size": 1, "text": "x"} for k, at in enumerate(at_ms)]


def test_gaps_are_by_nearest_rank_and_stalls_stand_out() -> None:
    found = streams.rhythm(chunks(840, 855, 870, 885, 900, 2740, 2755), 0)
    assert (found.first_us, found.p50_us, found.max_us) == (840_000, 15_000, 1_840_000)
    assert [(s.after, s.gap_us) for s in found.stalls] == [(4, 1_840_000)]
    assert found.stalled_us == 1_840_000


def test_few_or_no_chunks_have_no_stalls() -> None:
    assert streams.rhythm([], 0).p50_us is None
    assert streams.rhythm(chunks(0, 9000), 0).stalls == []


def test_a_long_stream_is_shown_by_its_ends_and_its_stalls() -> None:
    times = [k * 15 for k in range(100)] + [1485 + 2000 + k * 15 for k in range(100)]
    found = chunks(*times)
    rows = streams.table(found, 0, streams.rhythm(found, 0))
    assert len(rows) < 30
    assert sum(row.get("more", 1) for row in rows) == 200
    assert [row["index"] for row in rows if row.get("stall")] == [100]
    assert len(streams.table(found, 0, streams.rhythm(found, 0), whole=True)) == 200


@given(st.lists(st.integers(0, 10**15), max_size=80), st.none() | st.integers(0, 10**15))
def test_any_times_are_taken(times: list[int], start: int | None) -> None:
    found = [{"index": k, "at_us": t, "kind": None} for k, t in enumerate(times)]
    rows = streams.table(found, start, streams.rhythm(found, start))
    assert sum(row.get("more", 1) for row in rows) == len(times)
