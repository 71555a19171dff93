"""The turn page in a real Chromium: what it shows, the keyboard, phones, hostile text."""

# ruff: noqa: E501 (recorded events and scripts read best on a line of their own)

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import PHONE, ready, until
from tests.browser.stories import Story
from tests.browser.test_accessibility import faults
from tests.served import Served

Open = Callable[..., Any]
Shot = Callable[..., None]


def select(page: Any, model: str, attempt: int) -> None:
    page.evaluate(
        """([model, attempt]) => { const { model: m, select } = relayTurn;
             select([...m.order].find((i) => m.kind[i] === 1 && m.col.model[i] === model && m.col.attempt[i] === attempt)); }""",
        [model, attempt],
    )
    ready(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_shows_tree_timeline_and_inspector(told: Story, open_page: Open, shot: Shot, theme: str) -> None:
    page = ready(open_page(f"/turns/{told.turn}/", theme=theme))
    select(page, "claude-sonnet-4-5", 2)
    tree = page.locator("relay-tree")
    assert tree.get_by_role("treeitem").count() >= 8
    assert "429" in tree.inner_text() and "late" in tree.inner_text()
    lanes = page.evaluate("() => relayTurn.timeline.rows.map((lane) => lane.name)")
    assert lanes[:4] == ["turn", "call 1", "#1", "#2"]
    assert "sub-agent" in lanes
    until(page, "() => [...relayTurn.model.chunks.values()].some((c) => c.count === 90)")
    panel = page.locator("#inspected-panel")
    assert "It rounds each line." in panel.inner_text()
    assert "4 matches in 2 files" in panel.inner_text()
    assert panel.locator("strong").first.inner_text() == "each line"
    page.wait_for_timeout(400)
    shot(page, f"turn-{theme}")
    for tab in ("chunks", "rewrites", "request", "overview", "raw"):
        page.locator(f'[data-tab="{tab}"]').click()
        until(page, f"() => document.querySelector('[data-tab={tab}][aria-selected=true]')")
        ready(page)
        page.wait_for_timeout(150)
        shot(page, f"turn-{tab}-{theme}")


def test_what_an_intercept_changed_is_shown_with_its_name(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/?tab=rewrites"))
    select(page, "claude-sonnet-4-5", 2)
    page.locator('[data-tab="rewrites"]').click()
    page.wait_for_selector(".pipeline")
    assert page.locator(".stage").all_inner_texts()[1].startswith("house-style")
    assert "medium" in page.locator(".code .add").all_inner_texts()[-1]
    link = page.locator(".blamed .who a").first
    assert link.inner_text() == "house-style r3"
    assert link.get_attribute("href").endswith("/rule/house-style/?r=3")
    page.locator("#pick-a").select_option("1")
    until(page, "() => document.querySelector('.compare .fold')?.textContent.includes('No difference')")
    assert "a=1" in page.url


def test_selection_tab_and_zoom_live_in_the_url(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    select(page, "gpt-5.2", 1)
    page.locator('[data-tab="request"]').click()
    page.keyboard.press("w")
    page.keyboard.press("w")
    # The address follows a zoom, in seven digits, once it has settled.
    until(
        page,
        "() => new URLSearchParams(location.search).get('from') === String(Number(relayTurn.timeline.view.from.toPrecision(7)))",
    )
    chosen, start, address = page.evaluate(
        "() => [relayTurn.state.s, relayTurn.timeline.view.from, location.pathname + location.search]"
    )
    again = ready(open_page(address))
    assert again.evaluate("() => relayTurn.state.s") == chosen
    assert abs(again.evaluate("() => relayTurn.timeline.view.from") - start) < 0.01
    assert again.locator('[data-tab="request"]').get_attribute("aria-selected") == "true"
    page.go_back()
    until(page, "(s) => relayTurn.state.s !== s", chosen)


def test_the_keyboard_reaches_everything(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    page.keyboard.press("1")
    assert page.evaluate("() => document.activeElement.getAttribute('role')") == "treeitem"
    page.keyboard.press("Home")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-level')") == "1"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-level')") == "2"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-expanded')") == "false"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("e")
    ready(page)
    first = page.locator(".inspected").inner_text()
    page.keyboard.press("e")
    until(page, "(t) => document.querySelector('.inspected')?.innerText !== t", first)
    page.keyboard.press("S")
    until(page, "() => document.querySelector('.inspected')?.innerText.includes('claude-sonnet-4-5')")
    page.keyboard.press("3")
    assert page.evaluate("() => document.activeElement.getAttribute('role')") == "tab"
    tab = page.evaluate("() => document.activeElement.dataset.tab")
    page.keyboard.press("ArrowRight")
    until(page, "(t) => document.activeElement?.dataset.tab && document.activeElement.dataset.tab !== t", tab)
    page.keyboard.press("T")
    page.wait_for_selector("#spans table")
    assert page.locator("#spans tbody tr").count() == page.evaluate("() => relayTurn.model.count")
    page.keyboard.press("T")
    page.keyboard.press("/")
    page.keyboard.type("claude")
    until(page, "() => document.querySelectorAll('.trow').length < 9")
    page.keyboard.press("Escape")


def test_a_stream_is_replayed_at_its_pace(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    select(page, "claude-sonnet-4-5", 2)
    page.keyboard.press("r")
    until(page, "() => document.querySelector('.replaytext')?.textContent.includes('think 3 ')")
    text = page.locator(".replaytext").inner_text()
    assert "word0" not in text
    page.keyboard.press("r")
    until(page, "() => !document.querySelector('.replay')")


def test_chunks_at_an_even_pace_are_left_out_until_asked_for(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/?tab=chunks"))
    select(page, "claude-sonnet-4-5", 2)
    rows = page.locator(".chunks tbody tr")
    assert rows.count() < 40
    assert page.locator(".chunks tr.stall").count() == 1
    page.get_by_role("button", name="Show all").first.click()
    until(page, "() => document.querySelectorAll('.chunks tbody tr').length === 90")
    assert page.locator(".chunks tr.stall").count() == 1


def test_a_press_on_the_axis_shows_what_was_open_then(told: Story, open_page: Open, shot: Shot) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    at = page.evaluate(
        """() => { const t = relayTurn.timeline, box = t.axis.getBoundingClientRect(); return [box.left + t.x(7), box.top + 11]; }"""
    )
    page.mouse.click(*at)
    page.wait_for_selector(".moment")
    until(page, "() => document.querySelector('.saidsofar')?.textContent.includes('think 39')")
    text = page.locator(".moment").inner_text()
    assert "attempt 2" in text and "word7" in text and "more0" not in text and "search_code" not in text
    shot(page, "turn-moment-light")
    before = page.locator(".saidsofar").inner_text()
    page.keyboard.press(".")
    until(page, "(t) => document.querySelector('.saidsofar')?.innerText !== t", before)
    page.keyboard.press("Escape")
    assert page.locator(".moment").count() == 0


def test_a_moment_waits_for_chunks_that_are_under_way(told: Story, open_page: Open) -> None:
    page = open_page()
    held: list[Any] = []

    def hold(route: Any) -> None:
        if "text=1" in route.request.url:
            route.continue_()
        else:
            held.append(route)

    page.route("**/chunks/?*", hold)
    page.goto(f"/turns/{told.turn}/")
    page.wait_for_selector(".turnpage.ready")
    until(page, "() => relayTurn.timeline")
    for _ in range(100):
        page.wait_for_timeout(30)
        if held:
            break
    assert held, "the timeline asked for no chunks"
    at = page.evaluate(
        """() => { const t = relayTurn.timeline, box = t.axis.getBoundingClientRect(); return [box.left + t.x(7), box.top + 11]; }"""
    )
    page.mouse.click(*at)
    page.wait_for_selector(".moment")
    page.wait_for_timeout(500)
    for route in held:
        route.continue_()
    until(page, "() => document.querySelector('.saidsofar')?.textContent.includes('think 39')")


def test_the_turn_reads_as_a_conversation(told: Story, open_page: Open, shot: Shot) -> None:
    page = ready(open_page(f"/turns/{told.turn}/"))
    page.keyboard.press("t")
    page.wait_for_selector(".transcript")
    text = page.locator(".transcript").inner_text()
    assert (
        text.index("Find out why and fix it.")
        < text.index("429 rate_limit_exceeded")
        < text.index("It rounds each line.")
    )
    assert "4 matches in 2 files" in text and "in test-runner" in text
    shot(page, "turn-transcript-light")
    page.locator(".transcript .badge.st-failed").first.click()
    until(page, "() => document.querySelector('.inspected')?.innerText.includes('failed')")
    assert "view=transcript" in page.url
    assert not faults(page)


def test_a_phone_shows_all_panes_without_scrolling_sideways(told: Story, open_page: Open, shot: Shot) -> None:
    for width in (PHONE["width"], 360):
        page = ready(open_page(f"/turns/{told.turn}/", viewport={"width": width, "height": 800}, has_touch=True))
        select(page, "claude-sonnet-4-5", 2)
        page.wait_for_timeout(300)
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} px on a phone of {width}"
        shot(page, f"turn-{width}-light", full_page=True)


def test_a_phone_can_download_the_turn(told: Story, open_page: Open, shot: Shot) -> None:
    page = ready(open_page(f"/turns/{told.turn}/", viewport=PHONE))
    page.get_by_label("Download this turn").click()
    box = page.locator(".download .menubox").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    shot(page, "turn-phone-download")
    with page.expect_download() as saved:
        page.locator(".download a", has_text="ATOF").click()
    assert saved.value.suggested_filename


def test_a_tool_is_told_in_the_answer_that_asked_for_it_when_it_begins_and_when_it_ends(
    site: Served, token: str, open_page: Open
) -> None:
    made = Story("renewed-tool")
    made.events = made.begin()
    call = made.call(0.1, 2)
    asks = [{"id": "c1", "type": "function", "function": {"name": "search_code", "arguments": "{}"}}]
    made.answer(call, 0.1, 1.9, [], message={"role": "assistant", "content": "I look.", "tool_calls": asks})
    site.send(made.events, token)
    page = ready(open_page(f"/turns/{made.turn}/"))
    assert page.locator("#inspector .call").count() == 1 and page.locator("#inspector .call .result").count() == 0
    said = "(words) => document.querySelector('#inspector .call .result')?.textContent.includes(words)"
    made.events.clear()
    more = {"category_profile": {"tool_call_id": "c1"}, "data": {"q": "x"}}
    tool = made.span(2, None, "search_code", "tool", made.turn, **more)
    site.send(made.events, token)
    until(page, said, "running")
    made.events.clear()
    end = made.scope("end", tool, "search_code", "tool", made.turn, **{**more, "data": "4 matches in 2 files"})
    made.put(3, end)
    site.send(made.events, token)
    until(page, said, "4 matches in 2 files")


def test_the_cost_is_a_lower_bound_as_soon_as_an_attempt_comes_that_has_no_price(
    site: Served, token: str, open_page: Open
) -> None:
    made = Story("unpriced")
    made.events = made.begin()
    call = made.call(0.1, 2)
    made.answer(call, 0.1, 1, [])
    site.send(made.events, token)
    page = ready(open_page(f"/turns/{made.turn}/"))
    cost = page.locator('[data-fact="cost"]')
    assert cost.inner_text().startswith("$") or cost.inner_text() == "<$0.001"
    assert not cost.get_attribute("title")
    made.events.clear()
    made.answer(call, 1, 2, [], body={"model": "house-model", "messages": [{"role": "user", "content": "Why?"}]})
    site.send(made.events, token)
    until(page, """() => document.querySelector('[data-fact="cost"]').innerText.startsWith("≥ $")""")
    assert cost.get_attribute("title") == "Without 1 of 2 attempts, which have no price: house-model"


@pytest.mark.parametrize("view", ["table", "transcript"])
def test_the_switch_of_the_form_is_whole_beside_a_table_or_a_conversation(
    told: Story, open_page: Open, shot: Shot, view: str
) -> None:
    page = ready(open_page(f"/turns/{told.turn}/?view={view}"))
    select(page, "claude-sonnet-4-5", 1)
    switch = page.locator("#form-raw")
    switch.wait_for()
    right = page.locator("#inspector").bounding_box()
    box = switch.bounding_box()
    assert box["x"] + box["width"] <= right["x"] + right["width"]
    shot(page, f"turn-{view}-form")
    switch.click(timeout=3000)
    page.wait_for_selector('#form-raw[aria-pressed="true"]')


def test_with_reduced_motion_nothing_turns(told: Story, open_page: Open) -> None:
    page = ready(open_page(f"/turns/{told.turn}/", reduced_motion="reduce"))
    assert page.evaluate("() => document.getAnimations().length") == 0


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}\"'`\u202e\u0000\ud83d\ude00"


def test_hostile_text_is_text_everywhere(site: Served, token: str, open_page: Open) -> None:
    made = Story("hostile")
    made.session_id = f"hostile {HOSTILE}"
    made.put(
        0,
        made.scope(
            "start",
            made.session,
            HOSTILE,
            "agent",
            None,
            metadata={"session_id": made.session_id, "nemo_relay_scope_role": "session"},
            data={HOSTILE: HOSTILE},
        ),
    )
    made.put(0, made.scope("start", made.turn, "relay.turn", "function", made.session, data={}))
    call = made.call(1, 9, f"auxiliary:{HOSTILE}")
    bad = {"role": HOSTILE, "content": [{"type": HOSTILE, "text": HOSTILE}, {"type": "text", "text": HOSTILE}]}
    attempt = made.answer(
        call, 1, 8, [(2 + k / 10, {"content": HOSTILE}) for k in range(8)],
        body={"model": HOSTILE, HOSTILE: HOSTILE, "messages": [{"role": "user", "content": HOSTILE}, bad], "tools": [{"function": {"name": HOSTILE}}]},
        message={"role": "assistant", "content": HOSTILE, "tool_calls": [{"id": HOSTILE, "function": {"name": HOSTILE, "arguments": HOSTILE}}]},
    )  # fmt: skip
    made.mark(
        2,
        attempt,
        "relay.rewrite",
        {
            "position": 0,
            "key": HOSTILE,
            "revision": 1,
            "action": HOSTILE,
            "priority": 1,
            "mode": "enforce",
            "result": "hit",
            "patch": [{"op": "add", "path": "/x", "value": HOSTILE}],
            "headers": [HOSTILE],
            "duration_us": 1.0,
            "bytes_before": 1,
            "bytes_after": 2,
        },
    )
    made.span(
        9,
        10,
        HOSTILE,
        "tool",
        made.turn,
        data={HOSTILE: HOSTILE},
        out={"data": HOSTILE, "metadata": {"otel.status_code": "ERROR", "otel.status_message": HOSTILE}},
    )
    made.put(11, made.end(made.turn, "relay.turn", "function", made.session, {"outcome": HOSTILE}))
    site.send(made.events, token)
    page = open_page(f"/turns/{made.turn}/")
    page.on("dialog", lambda dialog: page.complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
    ready(page)
    for i in range(page.evaluate("() => relayTurn.model.count")):
        page.evaluate("(i) => relayTurn.select(i)", i)
        ready(page)
        for tab in page.eval_on_selector_all("#inspector [data-tab]", "(tabs) => tabs.map((t) => t.dataset.tab)"):
            page.locator(f'[data-tab="{tab}"]').click()
            until(page, f"() => document.querySelector('[data-tab={tab}][aria-selected=true]')")
            for form in page.eval_on_selector_all("#inspector [data-form]", "(b) => b.map((x) => x.dataset.form)"):
                page.locator(f'[data-form="{form}"]').click()
                until(page, f"() => document.querySelector('[data-form={form}][aria-pressed=true]')")
    page.keyboard.press("T")
    page.wait_for_selector("#spans table")
    assert page.locator("#inspector script, #inspector img, relay-tree script, h1 script").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_tab_of_the_turn_page_has_a_serious_fault(told: Story, open_page: Open, theme: str) -> None:
    page = ready(open_page(f"/turns/{told.turn}/", theme=theme))
    found = {}
    for model, attempt, tabs in (
        ("gpt-5.2", 1, ("response",)),
        ("claude-sonnet-4-5", 2, ("overview", "request", "rewrites", "response", "chunks", "raw")),
    ):
        select(page, model, attempt)
        for tab in tabs:
            page.locator(f'[data-tab="{tab}"]').click()
            until(page, f"() => document.querySelector('[data-tab={tab}][aria-selected=true]')")
            ready(page)
            page.wait_for_timeout(300)
            if faulty := faults(page):
                found[f"{model} {tab}"] = faulty
    page.keyboard.press("T")
    page.wait_for_selector("#spans table")
    if faulty := faults(page):
        found["table"] = faulty
    assert not found, json.dumps(found, indent=1)
