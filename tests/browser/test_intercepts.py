"""The life of an intercept in the admin: made, corrected, back-tested, shadowed, enforced, watched, rolled back."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.browser.conftest import PHONE, until

LIST = "/admin/intercepts/interceptconfig/"


@pytest.fixture(scope="module")
def call(site: Any) -> Any:
    """Makes one call through the gateway's demo upstream, in the session that the rule is for."""
    token = site.token("gateway")

    def make() -> None:
        body = {"model": "demo-mini", "messages": [{"role": "user", "content": "Which shoes do you sell?"}]}
        headers = {"x-relay-token": token, "x-relay-session-id": "rule-life", "x-demo-pace": "0"}
        answer = httpx2.post(site.url + "/gw/demo/v1/chat/completions", json=body, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text

    return make


def test_the_life_of_an_intercept(call, open_page, shot):
    call()
    page = open_page(LIST + "add/")
    # Made, with a mistake that is answered at its field.
    page.get_by_label("Title").fill("Kühle Antworten")
    assert page.get_by_role("textbox", name="Key").input_value() == "kuhle-antworten"
    page.get_by_label("Session").fill("rule-life")
    page.get_by_label("Parameters").fill("temperature 0.2")
    page.get_by_role("button", name="Publish r1").click()
    page.get_by_text("Line 1: write name: value").wait_for()
    assert page.get_by_label("Parameters").evaluate("(box) => box === document.activeElement")
    shot(page, "intercept-mistake")
    # Back-tested on what was recorded.
    page.get_by_label("Parameters").fill("temperature: 0.2")
    page.get_by_role("button", name="Back-test").click()
    page.locator("#would-match", has_text="1 of the last").wait_for()
    page.locator(".samples summary").first.click()
    page.locator(".op", has_text="add /temperature").wait_for()
    shot(page, "intercept-backtest")
    # In shadow it decides and changes nothing.
    page.get_by_role("button", name="Publish r1").click()
    page.locator(".badge", has_text="shadow, r1").wait_for()
    call()
    page.goto("/?q=session:rule-life")
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 2")
    page.keyboard.press("j")
    page.locator(".peek .badge", has_text="shadow").wait_for()
    assert page.locator("tr[data-row]").first.locator(".badge.k-intercept").count() == 0
    # Enforced, the list shows what it changed.
    page.goto(LIST)
    page.get_by_role("link", name="Kühle Antworten").click()
    page.get_by_text("Enforce", exact=True).click()
    page.get_by_label("Note").fill("looks good in shadow")
    page.get_by_role("button", name="Publish r2").click()
    page.locator(".badge", has_text="enforced, r2").wait_for()
    call()
    page.goto("/?q=session:rule-life+intercept:kuhle-antworten")
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 1")
    page.keyboard.press("j")
    rule = page.locator(".peek .list a", has_text="kuhle-antworten r2")
    rule.wait_for()
    # The rewrite leads to the revision that made it; one press rolls back.
    rule.click()
    page.locator("#r2.asked", has_text="looks good in shadow").wait_for()
    assert page.locator("#r2 ins").inner_text() == "enforce"
    shot(page, "intercept-admin-light")
    page.locator("#r1").get_by_role("button", name="Roll back").click()
    page.locator(".badge", has_text="shadow, r3").wait_for()
    assert "rolled back to r1" in page.locator("#r3").inner_text()
    # The switch takes it out of force.
    page.get_by_role("switch").click()
    page.locator(".badge", has_text="disabled, r4").wait_for()
    call()
    page.goto("/?q=session:rule-life")
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 4")
    page.keyboard.press("j")
    page.locator(".peek .asked").wait_for()
    assert page.locator(".peek", has_text="kuhle-antworten").count() == 0


def test_a_draft_is_kept_tried_and_published_later(call, open_page, shot):
    call()
    page = open_page(LIST + "add/")
    page.get_by_label("Title").fill("Later")
    page.get_by_label("Parameters").fill("temperature: 0.1")
    page.get_by_role("button", name="Save draft").click()
    page.get_by_text("The draft of later is kept; nothing is in force yet.").wait_for()
    page.goto(LIST)
    page.get_by_role("row", name="later").get_by_text("draft", exact=True).wait_for()
    page.get_by_role("link", name="Later").click()
    assert page.get_by_label("Parameters").input_value() == "temperature: 0.1"
    page.get_by_role("button", name="Back-test").click()
    page.locator("#would-match", has_text="of the last").wait_for()
    shot(page, "intercept-draft")
    page.get_by_role("button", name="Publish r1").click()
    page.locator(".badge", has_text="shadow, r1").wait_for()
    page.get_by_label("Parameters").fill("temperature: 0.9")
    page.get_by_role("button", name="Save draft").click()
    page.get_by_text("1 difference from r1").click()
    assert page.locator(".notice ins").inner_text() == "0.9"
    page.get_by_role("button", name="Discard draft").click()
    page.get_by_text("The draft of later is gone.").wait_for()
    assert page.get_by_label("Parameters").input_value() == "temperature: 0.1"


def test_a_back_test_shows_how_far_it_is_and_can_be_cancelled(open_page, shot):
    page = open_page(LIST + "add/")
    # A server that takes its time: one line, then nothing until the browser goes away.
    page.evaluate(
        """() => {
          const at = {tried: 120, total: 500, matched: 60, changed: 40, stopped: 0, failed: 1};
          const line = JSON.stringify(at) + "\\n";
          window.fetch = (url, options) => {
            const body = new ReadableStream({start(to) {
              to.enqueue(new TextEncoder().encode(line));
              options.signal.addEventListener("abort", () => to.error(options.signal.reason));
            }});
            return Promise.resolve(new Response(body, {headers: {"content-type": "application/x-ndjson"}}));
          };
        }"""
    )
    page.get_by_role("button", name="Back-test").click()
    progress = page.locator("#backtest-progress")
    progress.get_by_text("120 of 500: 60 matched, 40 changed, 1 would fail").wait_for()
    assert progress.locator("progress").evaluate("(bar) => bar.value / bar.max") == 0.24
    shot(page, "intercept-backtest-running")
    progress.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled after 120 of 500: 60 matched, 40 changed, 1 would fail.").wait_for()
    assert progress.is_hidden() and page.get_by_role("button", name="Back-test").is_enabled()


def test_another_action_swaps_its_fields_and_keeps_the_rest(open_page):
    page = open_page(LIST + "add/")
    page.get_by_label("Title").fill("Stays")
    page.get_by_label("What it does").select_option("system_text")
    page.get_by_label("Text", exact=True).wait_for()
    assert page.get_by_label("Parameters").count() == 0
    assert page.get_by_label("Title").input_value() == "Stays"


def test_dragging_a_row_changes_the_order(site, open_page):
    files = "".join(
        f'[[intercepts]]\nkey = "order-{name}"\nenabled = false\npriority = {number}\n'
        'action = { type = "block", message = "No." }\n'
        for number, name in enumerate("abc", 10)
    )
    done = site.run("intercepts", "import", "-", stdin=files.encode())
    assert done.returncode == 0, done.stderr.decode()
    page = open_page(LIST)
    row = lambda name: page.locator(f'tr[data-key="order-{name}"]')  # noqa: E731
    with page.expect_navigation():
        row("c").locator(".grip").drag_to(row("a"), target_position={"x": 200, "y": 4})
    keys = page.locator("tr[data-key^=order-]").evaluate_all("(rows) => rows.map((row) => row.dataset.key.slice(-1))")
    assert keys == ["c", "a", "b"]


def test_arrow_keys_on_the_handle_change_the_order_too(site, open_page):
    files = "".join(
        f'[[intercepts]]\nkey = "arrow-{name}"\nenabled = false\npriority = {number}\n'
        'action = { type = "block", message = "No." }\n'
        for number, name in enumerate("ab", 200)
    )
    assert site.run("intercepts", "import", "-", stdin=files.encode()).returncode == 0
    page = open_page(LIST)
    with page.expect_navigation():
        page.locator('tr[data-key="arrow-b"] .grip').press("ArrowUp")
    keys = page.locator("tr[data-key^=arrow-]").evaluate_all("(rows) => rows.map((row) => row.dataset.key.slice(-1))")
    assert keys == ["b", "a"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_form_reads_on_a_phone(open_page, shot, theme):
    page = open_page(LIST + "add/", theme=theme, viewport=PHONE, has_touch=True)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    shot(page, f"intercept-390-{theme}", full_page=True)
