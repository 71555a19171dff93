"""A demo turn watched from the press of the button to its end."""

# ruff: noqa: E501 (recorded events and scripts read best on a line of their own)

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from tests.browser.conftest import ARTIFACTS, until
from tests.browser.test_turn_list import events, token  # noqa: F401 (a fixture)
from tests.served import PROJECT


def run_demo(page: Any) -> str:
    """Press "Run a demo turn" and open the turn that appears without a reload; returns its address."""
    page.goto("/")
    known = set(page.eval_on_selector_all("a[href^='/turns/']", "(links) => links.map((a) => a.pathname)"))
    page.get_by_role("button", name="Run a demo turn").first.click()
    path = until(
        page,
        """(known) => { document.querySelector(".newpill:not([hidden])")?.click();
             return [...document.querySelectorAll("a[href^='/turns/']")].map((a) => a.pathname)
               .find((path) => /^.turns.[0-9a-f-]{36}.$/.test(path) && !known.includes(path)); }""",
        list(known),
    )
    page.goto(path)
    page.wait_for_selector(".turnpage.ready")
    return str(path)


def attempts(page: Any) -> list[list[Any]]:
    """Of each attempt: its call, its number, its status and how many chunks the page has of it."""
    found: list[list[Any]] = page.evaluate(
        """() => { const { model: m } = relayTurn; return [...m.order].filter((i) => m.kind[i] === 1).map((i) =>
             [m.col.uuid[m.parent[i]], m.col.attempt[i], ["running", "ok", "failed"][m.status[i]], m.chunks.get(i)?.count ?? 0]); }"""
    )
    return found


def test_a_demo_turn_grows_while_it_runs_and_shows_what_happened(page: Any, shot: Callable[..., None]) -> None:
    run_demo(page)
    assert page.evaluate("() => relayTurn.model.running")
    retried = until(
        page,
        """() => { const { model: m } = relayTurn; const i = [...m.order].find((i) => m.kind[i] === 1 && m.col.attempt[i] === 2);
             return i !== undefined && m.chunks.get(i)?.count >= 12 && m.col.uuid[m.parent[i]]; }""",
    )
    of_call = [a for a in attempts(page) if a[0] == retried]
    assert [(number, status) for _, number, status, _ in of_call] == [(1, "failed"), (2, "running")]
    earlier = of_call[1][3]
    until(
        page,
        "([call, n]) => { const { model: m } = relayTurn; return [...m.chunks].some(([i, c]) => m.col.uuid[m.parent[i]] === call && c.count > n); }",
        [retried, earlier],
    )
    assert page.locator("[data-live] .word").inner_text() == "Live"
    until(page, "() => document.querySelector('.livetext')?.textContent.length > 40")
    shot(page, "turn-live-early-light")
    last = """() => { const { model: m } = relayTurn; const i = [...m.order].find((i) => m.kind[i] === 1 && m.status[i] === 0
                && m.ordinal[m.parent[i]] === 3); return i !== undefined && m.chunks.get(i)?.count >= 45; }"""
    until(page, last, seconds=60)
    until(page, "() => /TTFT.+gap p50.+p95.+max/.test(document.querySelector('.strip .cap').textContent)")
    shot(page, "turn-live-light")
    if os.environ.get("RELAYWEB_DOCS"):
        (PROJECT / "docs/images").mkdir(parents=True, exist_ok=True)
        shutil.copy(ARTIFACTS / "turn-live-light.png", PROJECT / "docs/images/turn.png")
    until(page, "() => relayTurn.model.turn.status === 'ok'", seconds=60)
    assert page.locator("[data-fact=status]").inner_text().strip() == "ok"
    shot(page, "turn-done-light")

    page.evaluate(
        "(call) => { const { model: m, select } = relayTurn; select([...m.children(m.find(call))].at(-1)); }", retried
    )
    page.locator('[data-tab="rewrites"]').click()
    page.wait_for_selector(".stage.hit")
    assert "Always end a conclusion" in page.locator(".code .add").first.inner_text()
    assert page.locator(".blamed .who a").count() == 1


def test_every_chunk_that_was_streamed_is_on_the_page_without_a_reload(page: Any) -> None:
    path = run_demo(page)
    until(page, "() => relayTurn.model.turn.status === 'ok'", seconds=60)
    page.wait_for_timeout(800)
    counts = """() => { const { model: m } = relayTurn; return Object.fromEntries([...m.order].filter((i) => m.kind[i] === 1
                  && m.col.chunk_count[i]).map((i) => [m.col.uuid[i], [m.chunks.get(i)?.count ?? 0, m.col.chunk_count[i]]])); }"""
    live = page.evaluate(counts)
    assert live and all(seen == there for seen, there in live.values()), live
    page.goto(path)
    page.wait_for_selector(".turnpage.ready")
    assert page.evaluate("() => relayTurn.model.count") == page.evaluate("() => relayTurn.tree.model.count")


def test_pausing_keeps_what_comes_and_going_on_shows_it(page: Any) -> None:
    run_demo(page)
    page.keyboard.press("p")
    until(page, "() => document.querySelector('[data-live] .word').textContent === 'Paused'")
    frozen = page.evaluate("() => [relayTurn.model.count, relayTurn.live.cursor]")
    until(page, "() => relayTurn.live.held.length >= 3")
    assert page.evaluate("() => [relayTurn.model.count, relayTurn.live.cursor]") == frozen
    page.keyboard.press("p")
    until(page, "(cursor) => relayTurn.live.cursor > cursor && relayTurn.live.held.length === 0", frozen[1])
    until(page, "() => relayTurn.model.turn.status === 'ok'", seconds=60)


def test_a_broken_connection_comes_back_without_loss(page: Any) -> None:
    run_demo(page)
    until(page, "() => relayTurn.live.state === 'live'")
    page.evaluate("() => relayTurn.live.socket.close()")
    until(page, "() => relayTurn.live.state === 'reconnecting'")
    until(page, "() => relayTurn.live.state === 'live'")
    until(page, "() => relayTurn.model.turn.status === 'ok'", seconds=60)
    until(
        page,
        """() => { const { model: m } = relayTurn; return [...m.order].every((i) => m.kind[i] !== 1 || !m.col.chunk_count[i]
             || m.chunks.get(i)?.count === m.col.chunk_count[i]); }""",
    )


def test_the_open_answer_catches_up_after_a_lost_connection_without_gaps_or_doubles(
    site: Any,
    token: str,  # noqa: F811
    page: Any,
) -> None:
    begun = events("Tell me", f"lost-{uuid.uuid4().hex[:6]}", ended=False)
    turn, call = begun[0]["uuid"], begun[1]["uuid"]
    number: Iterator[int] = iter(range(1000))

    def say(*words: str, of: str = "") -> None:
        told: list[dict[str, Any]] = []
        for word in words:
            k, at = next(number), datetime.now(UTC).isoformat().replace("+00:00", "Z")
            content = {"first": k, "chunks": [{"choices": [{"index": 0, "delta": {"content": word}}]}]}
            mark = {"kind": "mark", "atof_version": "0.1", "parent_uuid": call, "timestamp": at, "metadata": {}}
            told.append({**mark, "uuid": str(uuid.uuid4()), "name": "llm.chunk", "data": {"chunk_index": k}})
            told.append({**mark, "uuid": str(uuid.uuid4()), "name": "relay.chunks", "data": content})
        site.send([event for event in told if of in ("", event["name"])], token)

    begun[1]["category_profile"] |= {"streaming": True, "api_mode": "chat_completions"}
    site.send(begun, token)
    say("one ", "two ")
    page.goto(f"/turns/{turn}/?s={call}&tab=response")
    shown = "(wanted) => document.querySelector('.livetext')?.textContent === wanted"
    until(page, shown, "one two ")
    say("three ")
    until(page, shown, "one two three ")
    page.evaluate(
        """() => { const { live } = relayTurn; const { onFrame } = live; globalThis.Real = WebSocket;
             live.onFrame = (frame) => { globalThis.resynced ||= frame.resync; onFrame(frame); };
             globalThis.WebSocket = class { constructor() { setTimeout(() => this.onclose?.({ code: 1006 })); } send() {} close() {} };
             live.socket.close(); }"""
    )
    page.wait_for_timeout(700)
    say("four ", "five ")
    assert page.evaluate(shown, "one two three ")
    page.evaluate("() => { globalThis.WebSocket = globalThis.Real; }")
    until(page, "() => globalThis.resynced")
    until(page, shown, "one two three four five ")
    say("six ")
    until(page, shown, "one two three four five six ")
    # What a chunk says comes some 40 ms after word of it: often in another frame.
    say("seven ", "eight", of="llm.chunk")
    until(page, "() => [...relayTurn.model.chunks.values()][0].count === 8")
    number = iter((6, 7))
    say("seven ", "eight", of="relay.chunks")
    until(page, shown, "one two three four five six seven eight")
