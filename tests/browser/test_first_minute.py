"""What a new user wants to know of a turn that failed, and how many presses each answer takes (docs/pages.md)."""

from __future__ import annotations

import time
from typing import Any

import httpx2

from bench._agent import Agent, timestamp, uuid7

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
    page.wait_for_url("**/?q=*")  # else a row of the page before is pressed
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


def test_of_several_attempts_of_the_last_failed_turn_the_slowest_has_the_longest_bar(site, open_page):
    secret = site.token("ingest")
    for name, seconds in (("Earlier failure", (0.3, 0.2)), ("Latest failure", (0.2, 1.9, 0.4))):
        site.send(failed_turn(name, seconds), secret)
    page = open_page("/?q=session:slowest-*")
    told = Presses(page)
    told.press(page.locator(".fopt", has_text="failed").first)
    page.wait_for_url("**status%3Afailed**")
    told.press(page.locator("tr[data-row]").first.locator("td").first)
    peek = page.locator(".peek")
    peek.locator(".asked", has_text="Latest failure").wait_for()
    bars = peek.locator(".lanes rect.bar").evaluate_all("(all) => all.map((bar) => Number(bar.getAttribute('width')))")
    lengths = peek.locator(".lanes li", has=page.locator("rect.bar")).locator(".len").all_inner_texts()
    assert len(bars) == 3 and "1.90 s" in lengths[bars.index(max(bars))]
    assert "429 RateLimitError" in peek.locator(".notice.st-failed").inner_text() and told.count == 2


def failed_turn(asked: str, seconds: tuple[float, ...]) -> list[Any]:
    """A turn with one call that failed for good, with attempts of these lengths."""
    agent = Agent(f"slowest-{asked.split()[0].lower()}")
    call, at = uuid7(), time.time_ns()
    body = {"model": "gpt-5.2", "messages": [{"role": "user", "content": asked}]}
    error = {"otel.status_code": "ERROR", "error.type": "rate_limit", "exception.type": "RateLimitError"}
    error["otel.status_description"] = "Error code: 429 - slow down"
    events = [
        *agent.begin(asked),
        agent.scope("start", call, "relay.logical_llm_call", "function", agent.turn, data={}),
    ]
    for length in seconds:
        attempt = uuid7()
        start = agent.scope("start", attempt, "openai.chat_completions", "llm", call, data={"content": body})
        end = agent.scope("end", attempt, "openai.chat_completions", "llm", call, data=None, metadata=error)
        start["timestamp"], end["timestamp"] = timestamp(at), timestamp(at + int(length * 1e9))
        events += [start, end]
        at += int(length * 1e9) + 100_000_000
    failed = {"outcome": "failure"}
    events.append(agent.end(call, "relay.logical_llm_call", "function", agent.turn, failed))
    events.append(agent.end(agent.turn, "relay.turn", "function", agent.session, failed))
    for event in events[-2:]:
        event["timestamp"] = timestamp(at)
    return events
