"""What people see of a call that failed while its retry may still come."""

from __future__ import annotations

import httpx2

BODY = {"model": "gpt-5.2", "messages": [{"role": "user", "content": "Is anybody there?"}]}


def test_a_failed_call_says_until_when_its_retry_may_come(web):
    headers = {"x-relay-token": web.key, "x-relay-session-id": "retry-window"}
    answer = httpx2.post(f"{web.url}/gw/down/chat/completions", json=BODY, headers=headers, timeout=30)
    assert answer.status_code >= 500
    turn = web.turn_of("retry-window", lambda turn: turn["awaiting_retry"] is not None)
    (attempt,) = turn["tree"]["children"][0]["children"]
    waits = turn["awaiting_retry"]
    assert (turn["status"], attempt["status"]) == ("running", "failed")
    assert waits["since"] == attempt["ended_at"] and waits["until_us"] == attempt["end_us"] + 70_000_000
    assert turn["tree"]["children"][0]["awaiting_retry"] == waits
