"""Turns of many scopes and of large contents in a real Chromium: all there, with few elements and little transferred."""

# ruff: noqa: E501 (scripts read best on a line of their own)

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench._agent import lines
from tests.browser.conftest import ready, until
from tests.browser.stories import Story
from tests.served import Served

Open = Callable[..., Any]
Shot = Callable[..., None]


def test_a_turn_of_ten_thousand_scopes_is_all_there_with_few_elements(
    site: Served, token: str, open_page: Open, shot: Shot
) -> None:
    made = Story("large")
    made.put(0, made.scope("start", made.turn, "relay.turn", "function", None, data={}))
    for k in range(3_333):
        at = 0.3 * k
        call = made.call(at, at + 0.18)
        failed = {"metadata": {"otel.status_code": "ERROR"}} if k % 97 == 0 else {}
        made.span(at, at + 0.18, "openai", "llm", call, data={}, out={"data": {}, **failed})
        made.span(at + 0.19, at + 0.26, "read_file", "tool", made.turn, data={}, out={"data": {}})
    made.put(1_000, made.end(made.turn, "relay.turn", "function", None))
    for at in range(0, len(made.events), 5_000):
        site.send(made.events[at : at + 5_000], token)
    page = ready(open_page(f"/turns/{made.turn}/"))
    assert page.evaluate("() => relayTurn.model.count") == 10_000
    assert page.locator(".trow").count() < 200
    assert page.evaluate("() => document.querySelectorAll('*').length") < 3_000
    page.locator("relay-tree").evaluate("(tree) => { tree.scrollTop = 0; }")
    until(
        page,
        "() => [...document.querySelectorAll('.trow')].some((row) => row.innerText.includes('call 98') && row.innerText.includes('failed'))",
    )
    page.keyboard.press("1")
    for _ in range(3):
        page.keyboard.press("End")
        page.keyboard.press("Home")
    assert page.locator(".trow").count() < 200
    shot(page, "turn-large-light")


def test_of_24_mb_of_payload_less_than_300_kb_are_sent_before_one_is_opened(
    site: Served, token: str, open_page: Open
) -> None:
    made = Story("heavy")
    made.put(0, made.scope("start", made.turn, "relay.turn", "function", None, data={}))
    long = "words and more words, " * 250_000
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": long},
            *({"role": "assistant", "content": f"{k} {long[:21_000]}"} for k in range(120)),
        ],
    }
    for k in range(3):
        made.answer(made.call(10 * k + 1, 10 * k + 9), 10 * k + 1, 10 * k + 8, [], body=body)
    made.put(30, made.end(made.turn, "relay.turn", "function", None))
    payload = lines([event for event in made.events if event.get("category") == "llm"])
    assert len(payload) > 24_000_000
    site.send(made.events, token)
    page = open_page()
    with transferred(page) as sizes:
        page.goto(f"/turns/{made.turn}/")
        ready(page)
        page.wait_for_timeout(1_000)
    # With an empty cache: the page, its scripts and styles, the frames, what the socket said.
    assert 20_000 < sum(sizes) < 300_000, sizes
    page.locator('[data-tab="request"]').click()
    until(page, "() => document.querySelector('.earlier')")
    assert page.locator(".msg").count() == 30
    page.locator(".earlier button").click()
    until(page, "() => document.querySelectorAll('.msg').length === 121")
    page.locator(".msg .more").first.click()
    until(page, "() => document.querySelector('.msg .text').textContent.length > 5_000_000")


@contextmanager
def transferred(page: Any) -> Iterator[list[float]]:
    """The bytes that came over the network meanwhile, as Chromium counted them, headers and sockets included."""
    sizes: list[float] = []
    session = page.context.new_cdp_session(page)
    session.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
    session.on("Network.webSocketFrameReceived", lambda told: sizes.append(len(told["response"]["payloadData"])))
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    yield sizes
    session.detach()
