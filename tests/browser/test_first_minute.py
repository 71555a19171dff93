"""What a new user wants to know of a turn that failed, and how many presses each answer takes (docs/pages.md)."""

from __future__ import annotations

from typing import Any

import httpx2

RULE = """
[[intercepts]]
key = "first-minute"
match = { session = "first-minute" }
action = { type = "set_parameters", parameters = { temperature = 0.2 } }
"""


class Presses:
    """A page on which each press is counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.count = page, 0

    def press(self, target: Any) -> None:
        target.click()
        self.count += 1


def test_three_questions_about_the_last_failed_turn(site, open_page, shot):
    site.run("intercepts", "import", "-", stdin=RULE.encode())
    headers = {"x-relay-token": site.token("gateway"), "x-relay-session-id": "first-minute", "x-demo-pace": "0"}
    body = {"model": "demo-small-context", "messages": [{"role": "user", "content": "Summarise the long report."}]}
    answer = httpx2.post(site.url + "/gw/demo/v1/chat/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 400
    site.run("intercepts", "import", "-", stdin=RULE.replace("match", "enabled = false\nmatch").encode())

    page = open_page("/")
    told = Presses(page)
    told.press(page.locator(".fopt", has_text="failed").first)
    told.press(page.locator("tr[data-row]", has_text="Summarise the long report.").locator("td").first)
    peek = page.locator(".peek")
    peek.locator(".asked").wait_for()
    # The slowest attempt of the last failed turn: the longest bar among its steps.
    assert peek.locator(".lanes li").count() >= 1 and told.count == 2
    # What the provider answered, in a line.
    assert "400 invalid_request_error" in peek.locator(".notice.st-failed").inner_text() and told.count == 2
    # Which intercept changed the request.
    assert "first-minute r1" in peek.locator(".list").inner_text() and told.count == 2
    shot(page, "first-minute")
    # In full: the call's own page, and the difference the intercept made.
    told.press(peek.locator(".lanes a").last)
    page.wait_for_url("**/turns/**")
    page.get_by_text("maximum context length").first.wait_for()
    told.press(page.get_by_role("tab", name="Rewrites"))
    page.get_by_text("temperature").first.wait_for()
    assert told.count == 4
