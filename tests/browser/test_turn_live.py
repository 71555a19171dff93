"""A demo turn watched from the press of the button to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.browser.conftest import until


def run_demo(page: Any) -> str:
    """Press "Run a demo turn" and open the turn that appears without a reload; returns its address."""
    page.goto("/")
    known = set(page.eval_on_selector_all("a[href^='/turns/']", "(links) => links.map((a) => a.pathname)"))
    page.get_by_role("button", name="Run a demo turn").first.click()
    path = until(
        page,
        """(known) => [...document.querySelectorAll("a[href^='/turns/']")].map((a) => a.pathname)
             .find((path) => /^.turns.[0-9a-f-]{36}.$/.test(path) && !known.includes(path))""",
        list(known),
    )
    page.goto(path)
    page.wait_for_selector(".turnpage.ready")
    return str(path)


def test_a_demo_turn_grows_while_it_runs_and_shows_what_happened(page: Any, shot: Callable[..., None]) -> None:
    run_demo(page)
    assert page.evaluate("() => relayTurn.model.running")
    before = page.evaluate("() => relayTurn.model.count")
    until(page, "() => [...relayTurn.model.chunks.values()].some((c) => c.count > 20)")
    until(page, "(n) => relayTurn.model.count > n", before)
    page.wait_for_timeout(700)
    shot(page, "turn-live-light")
    until(page, "() => relayTurn.model.turn.status === 'ok'", seconds=60)
    assert page.locator("[data-fact=status]").inner_text().strip() == "ok"
    shot(page, "turn-done-light")
