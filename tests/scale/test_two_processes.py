"""Two stateless web processes on PostgreSQL and Redis show, guard and record as one."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import httpx2
import websockets.sync.client as websocket

from bench._agent import Agent
from tests.scale.conftest import Pair, Pairs, together
from tests.scale.sending import post, turn, until
from tests.served import Served

RULE = {"key": "refuse", "match": {"session": "guarded"}, "action": {"type": "block", "message": "Not today."}}
BODY = {"model": "demo-mini", "messages": [{"role": "user", "content": "Hi"}]}


def put_rule(served: Served, **more: Any) -> None:
    done = served.run("intercepts", "import", "-", stdin=json.dumps({"intercepts": [{**RULE, **more}]}).encode())
    assert done.returncode == 0, done.stderr.decode()


def refused(pair: Pair, served: Served) -> bool:
    return "Not today." in call(pair, served, "guarded").text


def call(pair: Pair, served: Served, session: str, **more: Any) -> httpx2.Response:
    headers = {"x-relay-token": pair.gateway, "x-relay-session-id": session, "x-demo-pace": "0"}
    return httpx2.post(served.url + "/gw/demo/v1/chat/completions", json={**BODY, **more}, headers=headers, timeout=30)


@contextmanager
def viewer(pair: Pair, served: Served, path: str = "") -> Any:
    headers = {"authorization": f"Bearer {pair.read}"}
    url = served.url.replace("http", "ws") + f"/live/turns/{path}"
    with websocket.connect(url, additional_headers=headers) as socket:
        socket.send(json.dumps({"cursor": 0}))
        yield socket


def frame_with(socket: Any, holds: Callable[[dict], bool], seconds: float = 10) -> dict:
    """The next frame that `holds`; every frame is acknowledged."""
    end = time.monotonic() + seconds
    while True:
        frame: dict = json.loads(socket.recv(timeout=max(0.01, end - time.monotonic())))
        socket.send(json.dumps({"ack": frame["cursor"]}))
        if holds(frame):
            return frame


def delays_of_new_turns(pair: Pair, count: int) -> list[float]:
    """Seconds from the acknowledgement of a turn by one process until a viewer of the other sees it."""
    found = []
    with viewer(pair, pair.other) as socket:
        frame_with(socket, lambda frame: True)
        for number in range(count):
            time.sleep(0.37)  # out of step with the poll of a second
            events = turn(f"live-{number}")
            post(pair.one, pair.ingest, events)
            sent, wanted = time.monotonic(), events[1]["uuid"]
            frame_with(socket, lambda frame, wanted=wanted: wanted in frame.get("turns", {}).get("uuid", ()))
            found.append(time.monotonic() - sent)
    return found


def test_events_posted_to_one_appear_at_once_at_a_viewer_of_the_other(pair: Pair) -> None:
    # By polling alone the middle one would take half a second.
    assert statistics.median(delays_of_new_turns(pair, 9)) < 0.3


def test_without_redis_viewers_of_the_other_wait_for_the_poll(make_pair: Pairs) -> None:
    assert max(delays_of_new_turns(make_pair(REDIS_URL=""), 3)) < 3


def test_a_stream_through_one_gateway_grows_on_a_page_of_the_other(pair: Pair) -> None:
    headers = {"x-relay-token": pair.gateway, "x-relay-session-id": "streamed", "x-demo-pace": "8"}
    url = pair.one.url + "/gw/demo/v1/chat/completions"
    with httpx2.stream("POST", url, json={**BODY, "stream": True}, headers=headers, timeout=60) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        until(lambda: bool(pair.turns(pair.other, "streamed")))
        (found,) = pair.turns(pair.other, "streamed")
        with viewer(pair, pair.other, f"{found['uuid']}/") as socket:
            frame_with(socket, lambda frame: bool(frame.get("chunks")))
            for _ in pieces:
                pass
    assert answer.status_code == 200
    until(lambda: pair.api(pair.other, f"turns/{found['uuid']}")["status"] == "ok")
    assert pair.turns(pair.one, "streamed") == pair.turns(pair.other, "streamed")


def test_calls_of_one_session_and_turn_through_both_gateways_are_one_turn(pair: Pair) -> None:
    headers = {"x-relay-token": pair.gateway, "x-relay-session-id": "shared", "x-relay-turn-id": "t-1"}
    for served in pair.both:
        url = served.url + "/gw/demo/v1/chat/completions"
        assert httpx2.post(url, json=BODY, headers={**headers, "x-demo-pace": "0"}, timeout=30).status_code == 200

    def calls() -> list[int]:
        return [found["logical_calls"] for found in pair.turns(pair.one, "shared")]

    until(lambda: calls() == [2])


def test_a_rule_saved_at_one_is_in_force_at_the_other_within_a_second(pair: Pair) -> None:
    assert [call(pair, served, "guarded").status_code for served in pair.both] == [200, 200]
    for enabled in (True, False, True, False):
        put_rule(pair.one, enabled=enabled)
        saved = time.monotonic()
        wanted = [enabled, enabled]
        until(lambda wanted=wanted: [refused(pair, served) for served in pair.both] == wanted, 5)
        assert time.monotonic() - saved < 1.5  # a second, and some for the calls that ask


def test_who_logs_in_at_one_is_logged_in_at_the_other(pair: Pair) -> None:
    link = pair.one.run("login", "--url", pair.one.url).stdout.decode().split()[-1]
    with httpx2.Client() as browser:
        assert browser.get(link).headers["location"] == "/"
        cookies = dict(browser.cookies)
    assert httpx2.get(pair.other.url + "/", cookies=cookies).status_code == 200
    assert httpx2.get(link.replace(pair.one.url, pair.other.url)).headers.get("location") != "/"  # used up


def test_tokens_and_upstreams_made_by_one_are_good_at_the_other_at_once(pair: Pair) -> None:
    raw = pair.one.run("token", "create", "--scope", "ingest", "--name", "short").stdout.decode().split()[-1]
    assert post(pair.other, raw, turn("new-token"))["accepted"]
    done = pair.one.run(
        "upstream", "set", "again", "--base-url", "demo://relayweb/v1", "--api-mode", "chat_completions"
    )
    assert done.returncode == 0, done.stderr
    headers = {"x-relay-token": pair.gateway, "x-relay-session-id": "again", "x-demo-pace": "0"}
    url = pair.other.url + "/gw/again/v1/chat/completions"
    assert httpx2.post(url, json=BODY, headers=headers, timeout=30).status_code == 200
    assert pair.one.run("token", "revoke", "short").returncode == 0
    time.sleep(2.1)
    headers = {"authorization": f"Bearer {raw}"}
    assert httpx2.post(pair.other.url + "/ingest/atof", content=b"", headers=headers).status_code == 401


def test_the_same_events_sent_to_both_at_once_are_recorded_once(pair: Pair) -> None:
    batches = [turn(f"same-{number}", chunks=20) for number in range(30)]
    receipts: list[dict] = []

    def send(served: Served) -> None:
        for events in batches:
            receipts.append(post(served, pair.ingest, events))

    together(*[lambda served=served: send(served) for served in pair.both])
    total = sum(map(len, batches))
    assert sum(receipt["accepted"] for receipt in receipts) == total
    assert sum(receipt["duplicates"] for receipt in receipts) == total
    turns = pair.turns(pair.one, "same-*")
    assert len(turns) == 30 and {found["chunks"] for found in turns} == {20}
    assert pair.one.run("check").returncode == 0


def test_children_and_parents_sent_to_different_processes_add_up(pair: Pair) -> None:
    events = [event for number in range(20) for event in turn(f"mixed-{number}", chunks=10)]
    halves = events[::2], events[1::2]
    together(
        *[
            lambda served=served, half=half: [post(served, pair.ingest, half[at : at + 7]) for at in range(0, 999, 7)]
            for served, half in zip(pair.both, halves, strict=True)
        ]
    )
    turns = pair.turns(pair.other, "mixed-*")
    assert len(turns) == 20
    for found in turns:
        counts = (found["logical_calls"], found["attempts"], found["chunks"], found["status"])
        assert counts == (1, 1, 10, "ok"), found


def test_silent_scopes_are_interrupted_by_exactly_one_process(make_pair: Pairs) -> None:
    pair = make_pair(RELAYWEB_INTERRUPT_AFTER="2")
    for number in range(10):
        agent = Agent(f"silent-{number}")
        post(pair.both[number % 2], pair.ingest, agent.begin())

    def interrupted() -> list[int]:
        return [served.get("/healthz").json()["writer"]["interrupted"] for served in pair.both]

    until(lambda: sum(interrupted()) >= 20)
    time.sleep(1.5)
    assert sum(interrupted()) == 20
    assert {found["status"] for found in pair.api(pair.one, "turns")["turns"]} == {"interrupted"}


def test_what_one_recorded_is_found_by_words_at_the_other_and_gone_after_prune(pair: Pair) -> None:
    post(pair.one, pair.ingest, turn("words-1"))
    post(pair.other, pair.ingest, turn("words-2"))

    def found(text: str) -> list[str]:
        return [t["session_id"] for t in pair.api(pair.other, f'turns?q="{text}"')["turns"]]

    assert found("What of words-1?") == ["words-1"]
    time.sleep(3)  # the index follows
    assert found("What of words-1?") == ["words-1"]
    together(*[lambda served=served: served.run("prune", "--query", "session:words-1") for served in pair.both])
    assert found("What of words-1?") == [] and found("What of words-2?") == ["words-2"]
    # What both remember of the pruned turn is void: sent again it is recorded again.
    again = turn("words-1")
    assert post(pair.one, pair.ingest, again)["accepted"] == len(again)
    assert found("What of words-1?") == ["words-1"]
    assert pair.one.run("check").returncode == 0
