"""What people see when one of two processes is killed while they look: nothing but a moment's wait."""

from __future__ import annotations

import re
import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from tests.browser.conftest import until
from tests.browser.test_turn_list import events, token  # noqa: F401 (a fixture)
from tests.paired import PAIR

pytestmark = pytest.mark.skipif(not PAIR, reason="about two processes; make test-pair")

LOST = re.compile(
    r"console (error|warning): (WebSocket |Failed to load resource: net::ERR_"
    r"(EMPTY_RESPONSE|CONNECTION_\w+|SOCKET_NOT_CONNECTED|INCOMPLETE_CHUNKED_ENCODING|CONTENT_LENGTH_MISMATCH))"
)
SHOWN = "(wanted) => document.querySelector('.livetext')?.textContent === wanted"


def words(call: str, first: int, said: list[str]) -> list[dict[str, Any]]:
    """Chunks of a stream, with what they say."""
    told = []
    for k, word in enumerate(said, first):
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        content = {"first": k, "chunks": [{"choices": [{"index": 0, "delta": {"content": word}}]}]}
        mark = {"kind": "mark", "atof_version": "0.1", "parent_uuid": call, "timestamp": at, "metadata": {}}
        told.append({**mark, "uuid": str(uuid.uuid4()), "name": "llm.chunk", "data": {"chunk_index": k}})
        told.append({**mark, "uuid": str(uuid.uuid4()), "name": "relay.chunks", "data": content})
    return told


def deliver(site: Any, told: list[dict[str, Any]], token: str) -> None:  # noqa: F811
    """Send events until they are acknowledged: a process may die with the request in its hands."""
    deadline = time.monotonic() + 60
    while True:
        try:
            site.send(told, token)
            return
        except (httpx2.TransportError, AssertionError):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_page_goes_on_at_the_other_process_when_its_own_is_killed(site: Any, token: str, page: Any) -> None:  # noqa: F811
    begun = events("Tell me", f"killed-{uuid.uuid4().hex[:6]}", ended=False)
    turn, call = begun[0]["uuid"], begun[1]["uuid"]
    begun[1]["category_profile"] |= {"streaming": True, "api_mode": "chat_completions"}
    deliver(site, begun, token)
    deliver(site, words(call, 0, ["w0 "]), token)
    page.goto(f"/turns/{turn}/?s={call}&tab=response")
    until(page, SHOWN, "w0 ")
    said, acknowledged = 1, [event["uuid"] for event in begun]
    for victim in (site.one, site.other, site.one):
        killing = threading.Timer(0.3, victim.kill)  # while words are on their way
        killing.start()
        end = time.monotonic() + 1.5
        while killing.is_alive() or time.monotonic() < end:
            told = words(call, said, [f"w{said} "])
            deliver(site, told, token)
            acknowledged += [event["uuid"] for event in told]
            said += 1
        until(page, SHOWN, "".join(f"w{k} " for k in range(said)), seconds=40)
        answer = site.get("/healthz")
        assert answer.status_code == 200 and answer.json()["live"]
        victim.restart(120)
    # Who is logged in stays so, and pages open at either.
    page.goto("/")
    assert page.locator("tr[data-row]", has_text="Tell me").count()
    exported = site.run("export", "--turn", turn).stdout.decode()
    assert all(uuid in exported for uuid in acknowledged)
    assert site.run("check").returncode == 0
    # What was under way at a process when it was killed is lost with it, which the browser tells; the page asks again.
    others = [said for said in page.complaints if not LOST.match(said)]
    assert not others, others
    page.complaints.clear()
