from __future__ import annotations

import json
import re
from html import unescape
from urllib.parse import parse_qs

import pytest

from relayweb.recording.models import Scope
from relayweb.recording.reading import queries, rhythm
from relayweb.ui import statistics
from tests.recording.recorded import FAILED, Talk, answer, chunk
from tests.recording.streams import mark

pytestmark = pytest.mark.django_db(transaction=True)
MODELS = ("gpt-4o", 'odd, "model"', "modèle")


@pytest.fixture
def recorded():
    statistics._figures.cache_clear()  # of another test's record with as many events
    for i, model in enumerate(MODELS):
        talk = Talk(f"s-{i}", start=i * 60_000, profile=f"p {i % 2}")
        call = talk.call()
        if i == 0:
            talk.attempt(call, 10, 110, status=FAILED, out=answer("x", 1, 0, None), model=model)
        attempt = talk.attempt(call, 120, 8_000, out=answer("x", 10, 10), model=model)
        for n, at in enumerate((140, 150, 160, 170, 180, 1_700 if i else 190)):
            talk.add(chunk(attempt, n, talk.start + at))
        mode = "shadow" if i == 1 else "enforce"
        data = {"position": 0, "key": "a rule", "mode": mode, "result": "hit", "patch": [],
                "bytes_before": 10, "bytes_after": 12}  # fmt: skip
        talk.add(mark("relay.rewrite", attempt, talk.start + 119, data))
        talk.record()
    while rhythm.catch_up():
        pass


def page(viewer, group="model"):
    return viewer.get("/statistics/", {"q": "since:2026-01-01", "group": group}).content.decode()


def linked(link: str) -> list[dict[str, object]]:
    """The turns of a link to the list."""
    (q,) = parse_qs(unescape(link))["q"]
    return queries.turns(q)["turns"]


@pytest.mark.parametrize("group", ["model", "provider", "role", "profile"])
def test_the_link_of_a_group_gives_the_turns_with_its_attempts(viewer, recorded, group):
    rows = re.findall(
        r'<a class="ask cut" href="/\?([^"]+)">.*?</a></td><td class="num m-calls">(\d+)', page(viewer, group)
    )
    assert rows
    for link, attempts in rows:
        assert sum(turn["attempts"] for turn in linked(link)) == int(attempts), link


def test_the_link_of_a_rule_gives_the_turns_it_changed_and_in_shadow_mode_would_have(viewer, recorded):
    rows = re.findall(r'<td class="num m-calls"><a href="/\?([^"]+)">(\d+)</a>', page(viewer))
    assert sorted(int(hits) for _, hits in rows) == [1, 2]
    for link, hits in rows:
        assert len(linked(link)) == int(hits)


def test_attempts_that_tell_no_model_have_no_link(viewer, recorded):
    Scope.objects.filter(role="attempt", model="gpt-4o").update(model=None)
    assert re.search(r'<span class="ask cut dim">unknown</span>', page(viewer))


def test_the_charts_hold_gaps_and_stalls(viewer, recorded):
    told = json.loads(re.search(r'<script id="charts" type="application/json">(.*?)</script>', page(viewer))[1])
    assert sum(value or 0 for value in told["series"]["stalls"]) == 2
    assert max(value or 0 for value in told["series"]["gap_p95_us"]) == 1_520_000
    assert 'data-kind="gaps"' in page(viewer) and 'data-kind="stalls"' in page(viewer)


def test_points_search_without_the_span_of_the_page(viewer, recorded):
    found = viewer.get("/statistics/", {"q": 'since:2026-01-01 model:gpt-* -"since: x"'}).content.decode()
    assert unescape(re.search(r'data-q="([^"]*)"', found)[1]) == 'model:gpt-* -"since: x"'


def test_an_idle_record_is_summed_up_once_for_many_readers(viewer, recorded, django_assert_max_num_queries):
    page(viewer)
    with django_assert_max_num_queries(10):
        page(viewer)
