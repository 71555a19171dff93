from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.access import throttle
from relayweb.access.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    return clock


def test_as_many_as_allowed_may_come_at_once_and_then_one_after_the_other(clock: Clock) -> None:
    gate = Throttle()
    assert [gate.take("a", 3, 60) for _ in range(3)] == [0, 0, 0]
    assert gate.take("a", 3, 60) == pytest.approx(20)
    assert gate.take("b", 3, 60) == 0
    clock.now += 20.1
    assert gate.take("a", 3, 60) == 0
    assert gate.take("a", 3, 60) > 0
    clock.now += 60.1
    assert [gate.take("a", 3, 60) for _ in range(3)] == [0, 0, 0]


def test_a_flood_of_keys_fills_no_memory(clock: Clock) -> None:
    gate = Throttle()
    for key in range(30_000):
        gate.count(key, 3, 60)
    assert len(gate._full_until) <= 10_000
    assert gate.wait(29_999, 1, 60) > 0


@given(st.lists(st.floats(0, 30), max_size=200))
def test_no_more_than_twice_the_allowed_number_passes_in_any_window(pauses: list[float]) -> None:
    gate, clock = Throttle(), Clock()
    passed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(throttle, "time", clock)
        for pause in pauses:
            clock.now += pause
            if not gate.take("a", 5, 60):
                passed.append(clock.now)
    assert all(sum(start <= at < start + 60 for at in passed) <= 10 for start in passed)
