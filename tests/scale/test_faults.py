"""One of the two processes, PostgreSQL or Redis dies or stands still under load: nothing acknowledged is lost, the rest
goes on, and all is well again without a restart.
"""

from __future__ import annotations

import statistics
import time

import httpx2

from bench._agent import Event
from tests.scale import engines
from tests.scale.conftest import Pair, Pairs
from tests.scale.sending import Sender, check, post, sending, turn, until
from tests.scale.test_two_processes import call, delays_of_new_turns, put_rule, refused
from tests.served import Served


def healthy(served: Served) -> bool:
    answer = served.get("/healthz")
    return answer.status_code == 200 and answer.json()["status"] == "ok"


def taken(served: Served, token: str, events: list[Event]) -> bool:
    """Whether the events were acknowledged; a sender that is turned away tries again."""
    try:
        post(served, token, events)
    except httpx2.HTTPStatusError as error:
        assert error.response.status_code in (429, 503)
        return False
    return True


def more(senders: list[Sender], count: int = 20) -> None:
    """Wait until each sender has had so many more events acknowledged."""
    wanted = [len(sender.acknowledged) + count for sender in senders]
    until(lambda: all(len(s.acknowledged) >= n for s, n in zip(senders, wanted, strict=True)), 60)


def test_killing_either_process_loses_nothing_acknowledged(pair: Pair) -> None:
    with sending(pair.ingest, pair.both) as senders:
        for victim in (pair.one, pair.other, pair.one):
            more(senders)
            assert victim.process is not None
            victim.process.kill()
            victim.process.wait()
            more(senders)  # the other goes on alone, also where the killed one held the lock
            port = victim.url.rpartition(":")[2]
            victim.start("--port", port, wait=120)
        more(senders)
    turns = check(pair.one, senders)
    assert turns >= 4 and sum(sender.failures for sender in senders) > 0
    for served in pair.both:
        assert {found["status"] for found in pair.turns(served, "sender-*")} == {"ok"}


def test_a_process_that_stands_still_inside_a_transaction_holds_the_other_up_for_seconds_only(pair: Pair) -> None:
    """It may hold the lock of all writers; the database then ends its transaction."""
    import signal

    assert pair.one.process is not None
    with sending(pair.ingest, [pair.other]) as senders, sending(pair.ingest, [pair.one]) as paused:
        for _ in range(3):
            more(senders)
            pair.one.process.send_signal(signal.SIGSTOP)
            try:
                more(senders)
            finally:
                pair.one.process.send_signal(signal.SIGCONT)
            more(paused)
    check(pair.other, senders + paused)


def test_postgresql_killed_and_started_again_under_load(pair: Pair, postgres: engines.Postgres) -> None:
    for served in pair.both:
        assert call(pair, served, "before").status_code == 200  # tokens seen before stay good meanwhile
    with sending(pair.ingest, pair.both) as senders:
        more(senders)
        postgres.kill()
        try:
            time.sleep(2)
            for served in pair.both:
                assert call(pair, served, "while-it-is-gone").status_code == 200  # the agent's calls go on
                until(lambda served=served: served.get("/healthz").json()["status"] == "degraded")
                assert served.get("/healthz").json()["writer"]["reason"]
        finally:
            postgres.start()
        more(senders)
        for served in pair.both:
            until(lambda served=served: healthy(served))
    check(pair.one, senders)
    for served in pair.both:
        assert pair.turns(served, "sender-*")
        until(lambda served=served: len(pair.turns(served, "while-it-is-gone")) > 0)
        assert served.process is not None and served.process.poll() is None
        assert call(pair, served, "afterwards").status_code == 200
    put_rule(pair.one)
    until(lambda: all(refused(pair, served) for served in pair.both), 5)
    put_rule(pair.one, enabled=False)


def test_postgresql_started_again_while_nothing_happens(pair: Pair, postgres: engines.Postgres) -> None:
    """Each connection is found broken at its next use, which is what an idle server's first event is."""
    for served in pair.both:
        assert post(served, pair.ingest, turn("idle-before"))["accepted"]
    time.sleep(6)  # what is looked up every five seconds is looked up again
    postgres.kill()
    postgres.start()
    for served in pair.both:
        events = turn("idle-after")
        until(lambda served=served, events=events: taken(served, pair.ingest, events))
        assert served.get("/api/v1/turns", authorization=f"Bearer {pair.read}").status_code == 200
        assert healthy(served)


def test_redis_paused_or_killed_delays_wake_ups_and_nothing_else(make_pair: Pairs, redis: engines.Redis) -> None:
    pair = make_pair()
    with redis.paused():
        assert max(delays_of_new_turns(pair, 3)) < 4
        put_rule(pair.one)
        saved = time.monotonic()
        until(lambda: all(refused(pair, served) for served in pair.both), 5)
        assert time.monotonic() - saved < 2
    redis.kill()
    try:
        assert max(delays_of_new_turns(pair, 3)) < 4
        assert post(pair.other, pair.ingest, turn("without-redis"))["accepted"]
        until(lambda: not any(healthy(served) for served in pair.both))  # which they say
    finally:
        redis.start()
    until(lambda: all(healthy(served) for served in pair.both))
    until(lambda: statistics.median(delays_of_new_turns(pair, 5)) < 0.3, 60)
