"""Sessions, statistics, compare and admin: what they say of what comes; and that no page moves."""

from __future__ import annotations

import re
import uuid

import httpx2
import pytest

from tests.browser.conftest import PHONE, until
from tests.browser.test_turn_list import events, token  # noqa: F401 (a fixture)

SHIFTS = """() => { globalThis.moved = [];
  const names = (entry) => entry.sources.map(({ node }) => node?.className ?? node?.nodeName);
  new PerformanceObserver((seen) => {
    const own = seen.getEntries().filter((entry) => !entry.hadRecentInput);
    globalThis.moved.push(...own.map((entry) => [entry.value, names(entry)]));
  }).observe({ type: "layout-shift", buffered: true });
}"""


def session(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:6]}"


def test_sessions_say_that_there_is_more_and_show_it_on_a_press(site, token, open_page, shot):  # noqa: F811
    name = session("news")
    site.send(events("Why is the build red?", name), token)
    page = open_page("/sessions/")
    row = page.locator("tr[data-row]", has_text=name)
    assert "Why is the build red?" in row.inner_text()
    site.send(events("And now?", name), token)
    pill = page.locator("[data-newpill]:not([hidden])")
    pill.wait_for()
    assert "1 turn since" in pill.inner_text()
    assert "And now?" not in row.inner_text()
    shot(page, "sessions-light")
    pill.click()
    page.wait_for_load_state()
    assert "And now?" in row.inner_text() and row.locator(".m-calls").inner_text() == "2"


def test_a_session_grows_while_it_is_looked_at_and_keeps_what_was_chosen(site, token, open_page, shot):  # noqa: F811
    name = session("grow")
    site.send(events("First question", name), token)
    page = open_page(f"/sessions/{name}/")
    page.keyboard.press("j")
    told = events("Second question", name, ended=False)
    site.send(told, token)
    until(page, "() => document.querySelectorAll('tr[data-row]').length === 2")
    assert page.locator("tr[aria-selected=true]").inner_text().split()[:2] == ["ok", "First"]
    assert page.locator("[data-part=sums] dd").first.inner_text() == "2"
    assert "1 running" in page.locator("[data-part=title]").inner_text()
    site.send(events("Of another session", session("other")), token)
    page.wait_for_timeout(1500)
    assert page.locator("tr[data-row]").count() == 2
    shot(page, "session-light")


def test_statistics_say_that_there_is_more(site, token, open_page):  # noqa: F811
    site.send(events("Counted", session("stats")), token)
    page = open_page("/statistics/")
    turns = page.locator(".bignum b").first.inner_text()
    site.send(events("Not counted yet", session("stats")), token)
    pill = page.locator("[data-newpill]:not([hidden])")
    pill.wait_for()
    pill.click()
    until(page, "(before) => document.querySelector('.bignum b').innerText !== before", turns)


OVERLAPS = """() => {
  const box = document.querySelector("[data-newpill]").getBoundingClientRect();
  const bar = ".topbar a, .topbar button:not([data-newpill])";
  const others = document.querySelectorAll(`${bar}, .searchbar, .bignum, th, tr[data-row]`);
  return [...others].filter((other) => {
    const at = other.getBoundingClientRect();
    return at.width && at.left < box.right && at.right > box.left && at.top < box.bottom && at.bottom > box.top;
  }).map((other) => other.outerHTML.slice(0, 80));
}"""


@pytest.mark.parametrize("width", [880, 1000, 1100, 1440])
@pytest.mark.parametrize("path", ["/statistics/", "/sessions/"])
def test_the_pill_covers_nothing(site, token, open_page, path, width):  # noqa: F811
    site.send(events("Counted", session("pill")), token)
    page = open_page(path, viewport={"width": width, "height": 800})
    page.locator(".bignum, tr[data-row]").first.wait_for()
    site.send(events("Not counted yet", session("pill")), token)
    page.locator("[data-newpill]:not([hidden])").wait_for()
    assert page.evaluate(OVERLAPS) == []


def test_words_in_the_jump_box_search_turns_and_sessions(site, token, open_page):  # noqa: F811
    name = session("jump")
    site.send(events("Why does the glockenspiel rattle?", name), token)
    page = open_page("/statistics/")
    page.keyboard.press("Control+k")
    page.keyboard.type("glockenspiel")
    assert page.locator("#jump li:visible").all_inner_texts() == [
        "Turns that say glockenspiel",
        "Sessions called glockenspiel",
    ]
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=glockenspiel")
    assert "Why does the glockenspiel rattle?" in page.locator("tr[data-row]").first.inner_text()
    page.keyboard.press("Control+k")
    page.keyboard.type(name[2:])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/?q=*")
    assert page.locator("tr[data-row] .m-ask").all_inner_texts() == [name]


def test_on_a_phone_two_turns_compare_in_all_their_parts(site, token, open_page, shot):  # noqa: F811
    a, b = (events(asked, session("side")) for asked in ("Left", "Right"))
    for told in (a, b):
        site.send(told, token)
    page = open_page(f"/compare/?a={a[0]['uuid']}&b={b[0]['uuid']}", viewport=PHONE)
    shot(page, "compare-phone")
    page.get_by_role("link", name="Answer").click()
    page.wait_for_url("**part=response*")


def test_the_admin_says_what_each_part_is_for(open_page, shot):
    page = open_page("/admin/", viewport=PHONE)
    text = page.locator(".adminindex").inner_text()
    for words in ("Rules that change, block or answer", "Providers that the gateway calls", "relayweb prune"):
        assert words in text
    shot(page, "admin-phone")
    place = page.locator(".adminindex li", has_text="Upstreams").locator("p").bounding_box()
    page.mouse.click(place["x"] + 5, place["y"] + 5)  # the whole row leads there
    page.wait_for_url("**/gateway/upstream/")


@pytest.mark.parametrize("path", ["/", "/sessions/", "/statistics/", "/compare/", "/start/", "/admin/", "turn"])
def test_nothing_moves_while_a_page_opens_and_lives(site, token, open_page, path):  # noqa: F811
    told = events("Stand still", session("still"))
    site.send(told, token)
    page = open_page()
    page.add_init_script(f"({SHIFTS})()")
    page.goto(f"/turns/{told[0]['uuid']}/" if path == "turn" else path)
    page.wait_for_timeout(700)
    site.send(events("Comes meanwhile", session("still")), token)
    page.wait_for_timeout(900)
    moved = page.evaluate("() => globalThis.moved")
    assert sum(value for value, _ in moved) < 0.005, moved


@pytest.mark.parametrize("path", ["/", "turn"])
def test_on_paper_a_page_is_white_and_without_its_controls(site, token, open_page, shot, path):  # noqa: F811
    told = events("On paper", session("paper"))
    site.send(told, token)
    page = open_page(f"/turns/{told[0]['uuid']}/" if path == "turn" else path, theme="dark")
    page.wait_for_timeout(600)
    page.emulate_media(media="print")
    assert page.locator(".topbar").is_hidden()
    colours = """() => ["body", "h1, .ask"].map((at) => getComputedStyle(document.querySelector(at)))
      .map((style, k) => k ? style.color : style.backgroundColor)"""
    paper, ink = (sum(map(int, re.findall(r"\d+", colour))) for colour in page.evaluate(colours))
    assert paper == 3 * 255 and ink < 200
    shot(page, f"print-{'turn' if path == 'turn' else 'list'}")


def test_a_call_that_failed_says_until_when_a_retry_may_come(site, open_page, shot):
    headers = {"x-relay-token": site.token("gateway"), "x-relay-session-id": session("retry"), "x-demo-pace": "0"}
    headers["x-stainless-retry-count"] = "0"  # as SDKs say it
    body = {"model": "demo-flaky", "messages": [{"role": "user", "content": "Try me once."}]}
    asked = httpx2.post(f"{site.url}/gw/demo/v1/chat/completions", json=body, headers=headers, timeout=30)
    assert asked.status_code == 503
    page = open_page("/?q=is:running")
    row = page.locator("tr[data-row]", has_text="Try me once.")
    assert "may be retried" in row.inner_text()
    row.locator("a").first.click()
    page.wait_for_selector(".turnpage.ready")
    status = page.locator("[data-fact=status]")
    assert re.search(r"failed, waits for a retry until \d\d:\d\d:\d\d", status.inner_text()), status.inner_text()
    assert "waits for a retry" in page.locator("relay-tree").inner_text()
    shot(page, "turn-waits-light")
    headers["x-stainless-retry-count"] = "1"
    assert httpx2.post(f"{site.url}/gw/demo/v1/chat/completions", json=body, headers=headers, timeout=30).is_success
    until(page, "() => !document.querySelector('[data-fact=status]').innerText.includes('waits')")
    assert "waits for a retry" not in page.locator("relay-tree").inner_text()
