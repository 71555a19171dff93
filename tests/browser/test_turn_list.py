"""The list of turns as people use it: live, searched, peeked into, on a desk and on a phone."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.browser.conftest import PHONE, until


def events(asked: str, session: str, *, model: str = "gpt-5.2", seconds: float = 2, ended: bool = True) -> list[dict]:
    """A turn with one call that began just now."""
    turn, call = str(uuid.uuid4()), str(uuid.uuid4())
    began = datetime.now(UTC)

    def moment(after: float) -> str:
        return (began + timedelta(seconds=after)).isoformat(timespec="microseconds").replace("+00:00", "Z")

    base: dict[str, Any] = {"kind": "scope", "atof_version": "0.1", "attributes": []}
    role = {"nemo_relay_scope_role": "turn", "session_id": session}
    outer = {**base, "category": "agent", "name": "agent.turn", "uuid": turn, "parent_uuid": None, "metadata": role}
    inner = {**base, "category": "llm", "name": "chat", "uuid": call, "parent_uuid": turn, "metadata": {}}
    content = {"headers": {}, "content": {"model": model, "messages": [{"role": "user", "content": asked}]}}
    made = [
        {**outer, "scope_category": "start", "timestamp": moment(0), "data": None},
        {
            **inner,
            "scope_category": "start",
            "timestamp": moment(0),
            "data": content,
            "category_profile": {"model_name": model},
        },
        {**inner, "scope_category": "end", "timestamp": moment(seconds), "data": None},
        {**outer, "scope_category": "end", "timestamp": moment(seconds), "data": None},
    ]
    return made if ended else made[:2]


@pytest.fixture(scope="module")
def token(site: Any) -> str:
    return site.token("ingest")


def asked(page: Any) -> list[str]:
    return page.evaluate("() => [...document.querySelectorAll('tr[data-row] .ask')].map((a) => a.textContent)")


def test_a_new_turn_waits_behind_the_pill_and_comes_in_when_it_is_pressed(site, token, open_page, shot):
    session = f"pill-{uuid.uuid4().hex[:6]}"
    site.send(events("The first of its session", session), token)
    page = open_page(f"/?q=session:{session}")
    site.send(events("The second of its session", session), token)
    page.locator("[data-newpill]:not([hidden])").wait_for()
    assert asked(page) == ["The first of its session"]
    shot(page, "turns-pill")
    page.locator("[data-newpill]").click()
    assert asked(page) == ["The second of its session", "The first of its session"]
    assert page.locator("[data-newpill]").is_hidden()


def test_a_turn_that_does_not_fit_the_search_does_not_come(site, token, open_page):
    session = f"fit-{uuid.uuid4().hex[:6]}"
    site.send(events("Shown", session), token)
    page = open_page(f"/?q=session:{session}+model:gpt-*")
    site.send(events("Not shown", session, model="claude-x"), token)
    site.send(events("Shown too", session), token)
    page.locator("[data-newpill]:not([hidden])").wait_for()
    assert page.locator("[data-newpill]").inner_text().strip() == "1 new"


def test_following_lets_turns_in_at_once_and_ends_when_the_reader_scrolls(site, token, open_page):
    session = f"follow-{uuid.uuid4().hex[:6]}"
    for n in range(40):
        site.send(events(f"Turn {n}", session), token)
    page = open_page(f"/?q=session:{session}")
    page.keyboard.press("l")
    assert page.locator("[data-follow]").get_attribute("aria-pressed") == "true"
    site.send(events("Fresh", session), token)
    until(page, "() => document.querySelector('tr[data-row] .ask')?.textContent === 'Fresh'")
    page.locator("[data-scroll]").evaluate("(box) => box.scrollTo({top: 400})")
    until(page, "() => document.querySelector('[data-follow]').getAttribute('aria-pressed') === 'false'")


def test_a_running_turn_changes_in_its_row_when_it_ends(site, token, open_page):
    session = f"run-{uuid.uuid4().hex[:6]}"
    all_of_it = events("Long work", session)
    site.send(all_of_it[:2], token)
    page = open_page(f"/?q=session:{session}")
    assert page.locator("tr[data-row]").get_attribute("data-status") == "running"
    site.send(all_of_it[2:], token)
    until(page, "() => document.querySelector('tr[data-row]').dataset.status === 'ok'")
    assert page.locator("tr[data-row] .dur").inner_text() == "2.00 s"


def test_keys_move_through_rows_open_the_peek_and_the_address_keeps_it(site, token, open_page, shot):
    session = f"keys-{uuid.uuid4().hex[:6]}"
    for n in range(3):
        site.send(events(f"Turn {n}", session), token)
    page = open_page(f"/?q=session:{session}")
    page.keyboard.press("j")
    page.locator(".peek .asked").get_by_text("Turn 2").wait_for()
    page.keyboard.press("j")
    page.locator(".peek .asked").get_by_text("Turn 1").wait_for()
    shot(page, "turns-peek")
    link = page.url
    assert "peek=" in link
    page.keyboard.press("Escape")
    assert page.locator(".peek").is_hidden() and "peek=" not in page.url
    page.goto(link)
    page.locator(".peek .asked").get_by_text("Turn 1").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/turns/*/")


def test_the_search_is_one_state_for_field_chips_and_facets(site, token, open_page, shot):
    session = f"search-{uuid.uuid4().hex[:6]}"
    site.send(events("By gpt", session), token)
    site.send(events("By claude", session, model="claude-x"), token)
    page = open_page("/")
    page.keyboard.press("/")
    page.keyboard.type(f"session:{session}")
    page.keyboard.press("Enter")
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 2")
    page.locator(".fopt", has_text="claude-x").click()
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 1")
    assert asked(page) == ["By claude"] and "model%3Aclaude-x" in page.url
    page.locator(".searchbar input[type=search]").press("Backspace")
    assert page.locator(".searchbar input[type=search]").input_value() == "model:claude-x"
    page.keyboard.press("Control+a")
    page.keyboard.type("modle:gpt-*")
    page.keyboard.press("Enter")
    page.locator("#query-error").wait_for()
    shot(page, "turns-mistake")
    page.locator("#query-error a").click()
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 1")
    assert asked(page) == ["By gpt"]
    page.go_back()
    page.locator("#query-error").wait_for()


def test_dragging_over_the_histogram_keeps_the_turns_of_that_time(site, token, open_page):
    session = f"brush-{uuid.uuid4().hex[:6]}"
    site.send(events("Some turn", session), token)
    page = open_page(f"/?q=session:{session}")
    box = page.locator("[data-brush]").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20, steps=5)
    page.mouse.up()
    page.locator('.qchip[data-term^="since:"]').wait_for()
    assert asked(page) == ["Some turn"]
    assert page.locator('.qchip[data-term^="until:"]').count() == 1


def test_hostile_words_stay_words(site, token, open_page):
    session = f"hostile-{uuid.uuid4().hex[:6]}"
    words = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>{{7*7}}"
    site.send(events(words, session, model="<b>m</b>"), token)
    page = open_page(f"/?q=session:{session}")
    page.keyboard.press("j")
    page.locator(".peek .asked").wait_for()
    assert asked(page) == [words]
    assert page.title() != "owned" and page.locator(".peek b >> text=m").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_reads_on_a_phone_without_sideways_scroll(site, token, open_page, shot, theme):
    session = f"phone-{uuid.uuid4().hex[:6]}"
    for n in range(4):
        site.send(events(f"A question that is long enough to be cut somewhere, number {n}", session), token)
    page = open_page(f"/?q=session:{session}", theme=theme, viewport=PHONE, has_touch=True)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    shot(page, f"turns-390-{theme}")
    page.locator("[data-filters]:visible").first.click()
    page.locator("#facets .fopt").first.wait_for()
    shot(page, f"turns-390-filters-{theme}")


@pytest.mark.parametrize("width", [360, 768, 1024, 1440, 3840])
def test_no_page_scrolls_sideways(site, token, open_page, width):
    site.send(events("Width " + "x" * 200, f"width-{width}"), token)
    page = open_page(viewport={"width": width, "height": 900})
    for path in (
        "/",
        "/sessions/",
        "/compare/",
        "/statistics/",
        "/start/",
        "/admin/",
        "/admin/intercepts/interceptconfig/add/",
    ):
        page.goto(path)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path


def test_the_theme_is_kept_and_set_before_the_page_is_drawn(open_page):
    page = open_page("/start/", theme="light")
    page.locator('[data-do="theme"]').click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    answer = page.goto("/start/")
    assert 'data-theme="dark"' in answer.text()


def test_the_key_sheet_and_the_jump_box_open_from_the_keyboard(site, token, open_page, shot):
    session = f"jump-{uuid.uuid4().hex[:6]}"
    site.send(events("Jump here", session), token)
    page = open_page("/start/")
    page.keyboard.press("?")
    page.locator("#keys[open]").wait_for()
    shot(page, "keys")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type(session)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/sessions/{session}/")
    assert page.locator("tr[data-row]").count() == 1


def test_statistics_draw_their_charts(site, token, open_page, shot):
    site.send(events("Counted", "stats"), token)
    for theme in ("light", "dark"):
        page = open_page("/statistics/", theme=theme)
        page.locator(".chart canvas").nth(5).wait_for()
        shot(page, f"statistics-{theme}", full_page=True)


def test_the_bar_of_the_newest_bucket_is_drawn_whole(site, token, open_page):
    session = f"newest-{uuid.uuid4().hex[:6]}"
    for asked_at in ("Before", "Just now"):
        site.send(events(asked_at, session), token)
    page = open_page(f"/statistics/?q=session:{session}&span=24h")
    page.locator('[data-kind="attempts"] .u-over').wait_for()
    assert page.evaluate("() => JSON.parse(document.getElementById('charts').textContent).series.attempts.at(-1)") == 1
    drawn = """() => { const canvas = document.querySelector('[data-kind="attempts"] canvas');
      const over = document.querySelector('[data-kind="attempts"] .u-over'), ratio = devicePixelRatio;
      const { width } = canvas, left = over.offsetLeft * ratio, right = left + over.offsetWidth * ratio;
      const y = Math.round((over.offsetTop + over.offsetHeight * 0.7) * ratio);
      const { data } = canvas.getContext("2d").getImageData(0, y, width, 1);
      const coloured = (x) => data[4 * x + 3] > 200 && Math.max(...data.slice(4 * x, 4 * x + 3)) -
        Math.min(...data.slice(4 * x, 4 * x + 3)) > 40;
      let filled = 0; for (let x = Math.ceil(right - 0.1 * (right - left)); x < right; x += 1) filled += coloured(x);
      return filled; }"""
    page.wait_for_timeout(300)
    assert page.evaluate(drawn) >= 3


def test_a_turn_pressed_in_the_statistics_leads_to_the_list(site, token, open_page):
    session = f"point-{uuid.uuid4().hex[:6]}"
    site.send(events("Pressed", session), token)
    page = open_page(f"/statistics/?q=session:{session}")
    plot = page.locator('[data-kind="attempts"] .u-over')
    plot.wait_for()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)
    page.wait_for_url(lambda url: "/statistics/" not in url)
    assert asked(page) == ["Pressed"]


def test_comparing_starts_at_the_peek(site, token, open_page, shot):
    session = f"compare-{uuid.uuid4().hex[:6]}"
    site.send(events("Say hello.", session), token)
    site.send(events("Say goodbye.", session), token)
    page = open_page(f"/?q=session:{session}")
    page.keyboard.press("j")
    page.get_by_label("Compare with another turn").click()
    page.locator(".offers a", has_text="Say hello.").first.click()
    page.locator(".code ins", has_text="hello").wait_for()
    shot(page, "compare")
