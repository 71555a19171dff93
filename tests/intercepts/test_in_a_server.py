"""A change made by another process, seen by calls through a running server."""

from __future__ import annotations

import time

import httpx2

RULE = """
[[intercepts]]
key = "refuse"
match = { session = "guarded" }
action = { type = "block", message = "Not today." }
"""


def test_a_rule_imported_by_a_command_guards_a_running_server_within_a_second(serve):
    served = serve()
    headers = {"x-relay-token": served.token("gateway"), "x-relay-session-id": "guarded", "x-demo-pace": "0"}
    body = {"model": "demo-mini", "messages": [{"role": "user", "content": "Hi"}]}

    def call() -> httpx2.Response:
        return httpx2.post(served.url + "/gw/demo/v1/chat/completions", json=body, headers=headers, timeout=30)

    assert call().status_code == 200
    done = served.run("intercepts", "import", "-", stdin=RULE.encode())
    assert done.returncode == 0, done.stderr.decode()
    began = time.monotonic()
    while (answer := call()).status_code == 200 and time.monotonic() - began < 5:
        time.sleep(0.05)
    # A second, and some more for a machine that is busy.
    assert time.monotonic() - began < 2.5
    assert "Not today." in answer.text
    # From then on every call is guarded.
    assert all("Not today." in call().text for _ in range(20))
    served.run("intercepts", "import", "-", stdin=RULE.replace("match", "enabled = false\nmatch").encode())
    time.sleep(2)
    assert call().status_code == 200
