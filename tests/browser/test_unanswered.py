"""Requests that nobody answers, because a process died with them in its hands, are made again; nothing is lost."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import until
from tests.browser.test_pair import SHOWN, words
from tests.browser.test_turn_list import events, token  # noqa: F401 (a fixture)

FAULTS = ("connectionclosed", "connectionreset", "502")


def unanswered(page: Any, fault: str, times: int) -> Counter[str]:
    """Let what scripts ask for go unanswered, the first `times` of each path; returns what they asked for."""
    asked = Counter[str]()

    def answer(route: Any) -> None:
        path = urlsplit(route.request.url).path
        if route.request.resource_type == "fetch":
            asked[path] += 1
        if route.request.resource_type != "fetch" or asked[path] > times:
            route.continue_()
        elif fault.isdigit():
            route.fulfill(status=int(fault), body="")
        else:
            route.abort(fault)

    page.route("**/*", answer)
    return asked


def only_the_browser_complains(page: Any) -> None:
    """It logs each request that failed; the scripts themselves say nothing."""
    others = [said for said in page.complaints if not said.startswith("console error: Failed to load resource")]
    assert not others, others
    assert page.complaints
    page.complaints.clear()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_page_of_a_turn_asks_again_and_shows_it_all(site: Any, token: str, page: Any, fault: str) -> None:  # noqa: F811
    begun = events("Tell me", f"unanswered-{uuid.uuid4().hex[:6]}")
    begun[1]["category_profile"] |= {"streaming": True, "api_mode": "chat_completions"}
    turn, call = begun[0]["uuid"], begun[1]["uuid"]
    site.send([*begun[:2], *words(call, 0, ["one ", "two "])], token)
    asked = unanswered(page, fault, 2)
    page.goto(f"/turns/{turn}/?s={call}&tab=response")
    until(page, SHOWN, "one two ")
    site.send(words(call, 2, ["three "]), token)
    until(page, SHOWN, "one two three ")
    asked.clear()  # the panel is asked for anew when the call is over, and stays as it is until there is an answer
    site.send(begun[2:], token)
    until(page, "() => relayTurn.model.running === false")
    until(
        page,
        "() => !document.querySelector('#inspector').hasAttribute('aria-busy') && !document.querySelector('.livetext')",
    )
    assert "one two three" in page.locator("#inspector").inner_text()
    assert f"/turns/{turn}/scopes/{call}/" in asked
    assert all(count > 2 for path, count in asked.items() if "/scopes/" in path), asked
    only_the_browser_complains(page)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_row_of_the_list_is_asked_for_until_it_comes(site: Any, token: str, page: Any, fault: str) -> None:  # noqa: F811
    session = f"unanswered-{uuid.uuid4().hex[:6]}"
    made = events("Row", session)
    site.send(made[:2], token)
    page.goto(f"/?q=session:{session}")
    unanswered(page, fault, 2)
    assert page.locator("tr[data-row] .st-running").count()
    site.send(made[2:], token)
    page.locator("tr[data-row] .st-ok").wait_for()
    only_the_browser_complains(page)
