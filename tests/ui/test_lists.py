from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from relayweb.recording.models import Price
from relayweb.ui import peek, statistics
from tests.recording.recorded import Talk, answer

HOSTILE = "a/b\n<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}‮\u0000é"


def rows(page: str) -> list[str]:
    return re.findall(r'<tr data-row data-uuid="([^"]+)"', page)


def test_an_empty_record_shows_how_to_send_the_first_turn(viewer):
    page = viewer.get("/").content.decode()
    assert "Send the first turn" in page and "/gw/t/$TOKEN/openai/v1" in page


def test_turns_are_listed_newest_first(viewer, record):
    old, new = record("First thing", minute=1), record("Second thing", minute=2)
    page = viewer.get("/").content.decode()
    assert rows(page) == [new, old]
    assert "First thing" in page and "gpt-5.2" in page and "2.00 s" in page


def test_the_search_narrows_the_list_and_stands_as_chips(viewer, record):
    record("Hello", model="gpt-5.2")
    other = record("Hello", model="claude-x", minute=1)
    page = viewer.get("/?q=model:claude-*").content.decode()
    assert rows(page) == [other]
    assert 'data-term="model:claude-*"' in page and 'aria-label="Remove model:claude-*"' in page


def test_a_word_typed_in_the_field_joins_the_query_in_the_address(viewer, record):
    record()
    answer = viewer.get("/", {"q": "status:ok", "add": "model:gpt-*"})
    assert answer.status_code == 302 and answer.url == "/?q=status%3Aok+model%3Agpt-%2A"


def test_an_unknown_field_is_underlined_and_answered_and_nothing_is_listed(viewer, record):
    record()
    page = viewer.get("/?q=status:ok+modle:gpt-*").content.decode()
    assert rows(page) == []
    assert "There is no field modle." in page and "Did you mean <a" in page
    assert 'href="?q=status%3Aok+model%3Agpt-%2A">model:gpt-*</a>' in page
    assert page.count("qchip bad") == 1


def test_when_nothing_fits_the_page_says_which_term_to_drop(viewer, record):
    record("Hello", model="gpt-5.2")
    page = viewer.get("/?q=status:failed+model:gpt-*").content.decode()
    assert "No turn fits" in page and "1 fits without it." in page and "Drop status:failed" in page


def test_pages_follow_each_other_without_gap_or_repeat(viewer, record):
    made = [record(f"Turn {n}", minute=n) for n in range(53)]
    first = viewer.get("/").content.decode()
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = viewer.get("/" + following[1].replace("&amp;", "&")).content.decode()
    assert rows(first) + rows(second) == made[::-1]


def test_a_cursor_that_is_not_ours_leads_back_to_the_first_page(viewer, record):
    record()
    assert viewer.get("/?cursor=nonsense").status_code == 302


def test_facets_count_and_link_to_the_narrowed_list(viewer, record):
    record(model="gpt-5.2")
    record(model="claude-x", minute=1, failed=True)
    page = viewer.get("/").content.decode()
    assert 'href="?q=status%3Afailed"' in page and 'href="?q=model%3Aclaude-x"' in page
    narrowed = viewer.get("/?q=status:failed").content.decode()
    assert re.search(r'aria-checked="true" href="\?"', narrowed)
    assert 'href="?q=status%3Afailed%2Cok"' in narrowed


def test_rows_are_drawn_anew_for_the_live_list_if_they_fit_the_search(viewer, record):
    gpt, claude = record(model="gpt-5.2"), record(model="claude-x", minute=1)
    page = viewer.get("/turns/rows/", {"uuid": [gpt, claude, "no uuid"], "q": "model:gpt-*"}).content.decode()
    assert rows(page) == [gpt]
    assert "<html" not in page


def test_the_peek_says_what_failed(viewer, record):
    turn = record("Break it", failed=True)
    page = viewer.get(f"/turns/{turn}/peek/").content.decode()
    assert "Break it" in page and "1 attempt failed." in page
    assert viewer.get("/turns/00000000-0000-0000-0000-000000000000/peek/").status_code == 404


def test_the_peek_of_a_very_large_turn_looks_at_a_bounded_part_and_still_says_what_failed(viewer, record, monkeypatch):
    turn = record("Break it", failed=True)
    monkeypatch.setattr(peek, "WHOLE", 0)
    page = viewer.get(f"/turns/{turn}/peek/").content.decode()
    assert "1 attempt failed." in page and 'class="lanes"' in page


def test_hostile_words_show_as_text_everywhere(viewer, record):
    turn = record(HOSTILE, model=HOSTILE, session=HOSTILE)
    for path in (
        "/",
        f"/turns/{turn}/peek/",
        "/sessions/",
        "/statistics/?span=30d",
        "/?q=%22" + HOSTILE.replace('"', ""),
    ):
        page = viewer.get(path.replace("\0", "")).content.decode()
        assert "<script>alert" not in page and "<img src=x" not in page, path


def test_a_session_page_lists_its_turns_oldest_first(viewer, record):
    first, second = record("One", session="a/b c", minute=1), record("Two", session="a/b c", minute=2)
    record("Elsewhere", session="other")
    assert "a/b c" in viewer.get("/sessions/").content.decode()
    assert rows(viewer.get("/sessions/a%2Fb%20c/").content.decode()) == [first, second]
    assert viewer.get("/sessions/nobody/").status_code == 404


def test_jumping_goes_to_what_an_id_names_else_searches(viewer, record):
    turn = record(session="s9")
    assert viewer.get("/jump/", {"to": turn}).url == f"/turns/{turn}/"
    assert viewer.get("/jump/", {"to": "s9"}).url == "/sessions/s9/"
    assert viewer.get("/jump/", {"to": "status:failed"}).url == "/?q=status%3Afailed"
    assert viewer.get("/jump/", {"to": "00000000-0000-0000-0000-000000000000"}).status_code == 404


def test_statistics_add_up_the_attempts(viewer, record):
    record(model="gpt-5.2")
    record(model="claude-x", minute=1, failed=True)
    page = viewer.get("/statistics/?q=since:2026-11-30&group=model").content.decode()
    assert "50.0 %" in page and "claude-x" in page
    told = re.search(r'<script id="charts" type="application/json">(.*?)</script>', page)
    assert told
    series = json.loads(told[1])["series"]
    assert sum(series["attempts"]) == 2 and sum(series["failed"]) == 1
    assert "There is no field modle" in viewer.get("/statistics/?q=modle:x").content.decode()


@pytest.mark.parametrize("path", ["/", "/sessions/", "/statistics/", "/start/"])
def test_pages_need_a_person_and_carry_no_inline_script_or_style(client, viewer, record, path):
    record()
    assert client.get(path).status_code == 302
    answer = viewer.get(path)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert " style=" not in page and "<style" not in page and "<script>" not in page
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_the_peek_of_a_long_turn_names_its_slowest_attempt_also_where_that_is_not_drawn(viewer):
    talk = Talk("long")
    calls = [(talk.call(at, at + 90), at) for at in range(0, 2_000, 100)]
    attempts = [talk.attempt(call, at, at + (80 if at == 200 else 20)) for call, at in calls]
    turn = talk.record()
    page = viewer.get(f"/turns/{turn}/peek/").content.decode()
    assert "The slowest attempt of all" in page and f"?s={attempts[2]}" in page and "80 ms" in page


def test_the_list_says_where_a_search_looked_at_less_than_all(viewer, record, monkeypatch):
    monkeypatch.setattr("relayweb.recording.reading.search.MAX_UNINDEXED", 1)
    monkeypatch.setattr(
        "relayweb.recording.store.search_index.reached", lambda: 0
    )  # however far another test's thread got
    record("the lazy dogs")
    page = viewer.get("/?q=dogs").content.decode()
    assert "The full-text index is being made" in page and "Ask again in a while." in page
    assert "full-text index" not in viewer.get("/?q=status:ok").content.decode()


def test_the_peek_says_where_the_words_of_a_search_were_said(viewer):
    talk = Talk()
    call = talk.call()
    attempts = [talk.attempt(call, 20 + n, 21 + n, asks="the glockenspiel rattles") for n in range(7)]
    attempts.append(talk.attempt(call, 40, 50, out=answer("a Zimbelstern")))
    talk.record()

    def said(q):
        page = viewer.get(f"/turns/{talk.turn}/peek/", {"q": q}).content.decode()
        return [f"?s={uuid}" in page.partition("was said")[2].partition("</ul>")[0] for uuid in attempts]

    assert said('status:ok "glockenspiel rattles"') == [True] * 5 + [False] * 3
    assert said("zimbelstern") == [False] * 7 + [True]
    for q in ("", "status:ok", "-glockenspiel", "nothing-such", "modle:x", '"'):
        assert said(q) == [False] * 8
    assert "later steps" in viewer.get(f"/turns/{talk.turn}/peek/", {"q": "glockenspiel"}).content.decode()


@pytest.mark.parametrize(("model", "least"), [("unheard-of", True), ("gpt-4o", False)])
def test_a_sum_without_the_price_of_an_attempt_says_so_on_every_page_that_shows_it(viewer, model, least):
    statistics._figures.cache_clear()
    Price.objects.all().delete()  # a new database has a table
    Price.objects.create(model="gpt-4o", input=Decimal("2.5"), output=Decimal(10))
    talk = Talk("s-1")
    talk.attempt(talk.call(), 20, 100, out=answer("priced", 1_000_000, 0))
    talk.attempt(talk.call(), 200, 300, model=model, out=answer("unpriced", 0, 0))
    turn = talk.record()
    for address in ("/", f"/turns/{turn}/peek/", "/sessions/", "/sessions/s-1/", "/statistics/?span=30d&q=since:3000d"):
        page = viewer.get(address).content.decode()
        assert "$2.50" in page, address
        assert ("≥ $2.50" in page) is least, address
        assert ("set one in the admin" in page) is least, address
