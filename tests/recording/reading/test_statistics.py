from __future__ import annotations

from decimal import Decimal

import pytest

from adapters import marks
from relayweb.recording.models import Price, Rewrite, Scope
from relayweb.recording.reading import queries, rhythm
from relayweb.recording.reading.query_language import QueryError
from relayweb.recording.reading.rows import rfc3339
from relayweb.recording.reading.statistics import TURNS, percentiles, statistics
from tests.recording.recorded import FAILED, Talk, answer, chunk
from tests.recording.streams import mark

pytestmark = pytest.mark.django_db(transaction=True)


def test_percentiles_are_nearest_ranks():
    assert percentiles([]) is None
    assert percentiles([5]) == {"p50": 5, "p95": 5, "p99": 5, "max": 5}
    assert percentiles(range(1, 101)) == {"p50": 50, "p95": 95, "p99": 99, "max": 100}


@pytest.fixture
def recorded():
    Price.objects.all().delete()
    Price.objects.create(model="gpt-4o", input=Decimal(1), output=Decimal(2))
    for i in range(3):
        talk = Talk(f"s-{i}", start=i * 60_000, profile=f"p{i % 2}")
        call = talk.call()
        if i == 0:
            talk.attempt(call, 10, 110, status=FAILED, out=answer("x", 1_000_000, 0, None))
        attempt = talk.attempt(call, 120, 320, out=answer("x", 1_000_000, 100))
        talk.add(*[chunk(attempt, n, talk.start + 140 + n * 10) for n in range(5)])
        data = {"position": 0, "key": "k", "mode": "enforce", "result": "hit" if i else "miss", "patch": [],
                "duration_us": 4.0, "bytes_before": 10, "bytes_after": 12 if i else 10}  # fmt: skip
        talk.add(mark(marks.REWRITE, attempt, talk.start + 119, data))
        other = talk.call(400, 600, role="auxiliary:title")
        talk.attempt(other, 410, 510, model="mock", out=answer("y", 10, 1))
        talk.record()
    while rhythm.catch_up():
        pass


def test_figures_sum_up_attempts_by_model(recorded):
    found = statistics(buckets=3)
    assert found["window"] == {"turns": 3, "limit": TURNS, "complete": True, "streams": 3}
    by = {group["key"]: group["figures"] for group in found["groups"]}
    gpt = by["gpt-4o"]
    assert (gpt["attempts"], gpt["failed"], gpt["retries"]) == (4, 1, 1)
    assert (gpt["error_rate"], gpt["retry_rate"]) == (0.25, 0.25)
    assert gpt["latency_us"] == {"p50": 200_000, "p95": 200_000, "p99": 200_000, "max": 200_000}
    assert gpt["ttft_us"]["p50"] == 20_000 and gpt["gap_us"]["max"] == 10_000
    assert gpt["output_tokens_per_second"] == pytest.approx(100 / 0.18)
    assert gpt["cost_usd"] == pytest.approx(4 + 3 * 100 * 2 / 1e6) and gpt["wasted_usd"] == 1
    assert gpt["cost_complete"] and not by["mock"]["cost_complete"]
    assert not found["total"]["figures"]["cost_complete"]
    assert by["mock"]["cost_usd"] is None and by["mock"]["gap_us"] is None
    assert found["total"]["figures"]["attempts"] == 7


def test_series_have_a_value_for_each_bucket(recorded):
    found = statistics(buckets=3)
    series = found["total"]["series"]
    assert series["attempts"] == [3, 2, 2] and series["failed"] == [1, 0, 0]
    assert all(len(values) == 3 for values in series.values())
    assert len(found["at_us"]) == 3 and found["to_us"] - found["from_us"] == 3 * found["width_us"]
    assert series["wasted_usd"] == [1.0, None, None]


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("provider", ["openai"]),
        ("role", ["primary", "auxiliary:title"]),
        ("profile", ["p0", "p1"]),
        ("model", ["gpt-4o", "mock"]),
    ],
)
def test_attempts_are_grouped(recorded, by, keys):
    assert [group["key"] for group in statistics(by=by)["groups"]] == keys


def test_what_intercepts_did_is_counted(recorded):
    (effect,) = statistics()["intercepts"]
    assert (effect["key"], effect["runs"], effect["hits"], effect["misses"]) == ("k", 3, 2, 1)
    assert (effect["changed"], effect["mean_duration_us"], effect["bytes_changed"]) == (2, 4.0, 4)


def test_every_attempt_of_a_point_is_in_the_turns_that_began_in_its_bucket(recorded):
    found = statistics(buckets=7)
    for at_us, attempts, stalls in zip(
        found["at_us"], found["total"]["series"]["attempts"], found["total"]["series"]["stalls"], strict=True
    ):
        since, until = rfc3339(at_us).rstrip("Z"), rfc3339(at_us + found["width_us"]).rstrip("Z")
        turns = queries.turns(f"since:{since} until:{until}")["turns"]
        assert sum(turn["attempts"] for turn in turns) == attempts
        assert stalls == (0 if attempts else None)


def test_only_the_newest_turns_count_and_the_answer_says_so(recorded, monkeypatch):
    monkeypatch.setattr("relayweb.recording.reading.statistics.TURNS", 2)
    found = statistics()
    assert (found["window"]["turns"], found["window"]["complete"]) == (2, False)
    assert found["total"]["figures"]["attempts"] == 4


@pytest.mark.parametrize("few", [0, 1_000])
def test_the_effects_of_an_intercept_are_found_as_turns(recorded, monkeypatch, few):
    monkeypatch.setattr("relayweb.recording.reading.turn_filter.FEW", few)
    assert len(queries.turns("intercept:K")["turns"]) == len(queries.turns("intercept:?")["turns"]) == 2
    assert len(queries.turns("intercept:k")["turns"]) == statistics()["intercepts"][0]["changed"] == 2
    Rewrite.objects.update(mode="shadow", changed=False)
    (effect,) = statistics()["intercepts"]
    assert (effect["mode"], effect["changed"]) == ("shadow", 0)
    assert len(queries.turns("shadow:k")["turns"]) == effect["hits"] == 2 and not queries.turns("intercept:k")["turns"]


def test_attempts_that_tell_no_model_are_a_group_without_a_name():
    talk = Talk()
    talk.around("openai.chat_completions", "llm", talk.call(), 20, 40, data={}, out={})
    talk.record()
    assert [group["key"] for group in statistics()["groups"]] == [None]


def test_sums_beyond_nine_million_dollars_stay_exact(recorded):
    Scope.objects.filter(role="attempt").update(cost_pusd=5 * 10**18 + 1)
    assert statistics()["total"]["figures"]["cost_usd"] == (7 * (5 * 10**18 + 1)) / 1e12


def test_a_query_narrows_the_figures_and_nothing_is_nothing(recorded):
    assert statistics("session:s-0")["total"]["figures"]["attempts"] == 3
    none = statistics("session:nobody")
    assert none["from_us"] is None and none["groups"] == [] and none["total"]["figures"]["latency_us"] is None
    with pytest.raises(QueryError):
        statistics("modle:x")
