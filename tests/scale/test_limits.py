"""What may happen only so often may happen so often in all processes together."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Callable

import httpx2
import pytest

from relayweb.access.tokens import WRONG_TOKENS
from relayweb.access.views import WRONG_PASSWORDS
from tests.scale import engines
from tests.scale.conftest import Pair, Pairs
from tests.served import Served

# Each process may let pass what it did not know of yet.
MORE = 3


def allowed(pair: Pair, ask: Callable[[Served], httpx2.Response], times: int) -> int:
    """How many of so many requests, to each process in turn, were not turned away as too many."""
    answers = []
    for _, served in zip(range(times), itertools.cycle(pair.both)):
        answers.append(ask(served).status_code)
        time.sleep(0.01)
    return sum(status != 429 for status in answers)


def limited(pair: Pair, most: int) -> Callable[[Served], httpx2.Response]:
    made = pair.one.run("token", "create", "--scope", "ingest", "--per-minute", str(most))
    headers = {"authorization": f"Bearer {made.stdout.decode().split()[-1]}"}
    return lambda served: httpx2.post(served.url + "/ingest/atof", content=b"", headers=headers, timeout=30)


def test_the_requests_of_a_token_count_in_both(pair: Pair) -> None:
    began = time.monotonic()
    found = allowed(pair, limited(pair, 20), 80)
    assert 20 <= found <= 20 + MORE + (time.monotonic() - began) / 3


def test_wrong_tokens_from_one_address_count_in_both(make_pair: Pairs) -> None:
    pair = make_pair()
    began = time.monotonic()

    def guess(served: Served) -> httpx2.Response:
        headers = {"authorization": f"Bearer rw_ingest_{secrets.token_urlsafe(32)}"}
        return httpx2.post(served.url + "/ingest/atof", content=b"", headers=headers, timeout=30)

    found = allowed(pair, guess, 2 * WRONG_TOKENS)
    assert WRONG_TOKENS <= found <= WRONG_TOKENS + MORE + (time.monotonic() - began) / 60 * WRONG_TOKENS


def test_wrong_passwords_for_one_name_count_in_both(pair: Pair) -> None:
    def guess(served: Served) -> httpx2.Response:
        with httpx2.Client(base_url=served.url, timeout=30) as browser:
            (token,) = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', browser.get("/login/").text)
            form = {"csrfmiddlewaretoken": token, "username": "somebody", "password": "a guess"}
            return browser.post("/login/", data=form)

    found = allowed(pair, guess, 2 * WRONG_PASSWORDS["name"] + 4)
    assert WRONG_PASSWORDS["name"] <= found <= WRONG_PASSWORDS["name"] + MORE


@pytest.mark.parametrize("paused", [False, True])
def test_without_redis_each_process_counts_for_itself(make_pair: Pairs, redis: engines.Redis, paused: bool) -> None:
    pair = make_pair(**({} if paused else {"REDIS_URL": ""}))
    ask = limited(pair, 10)
    if not paused:
        assert 20 <= allowed(pair, ask, 40) <= 30
        return
    with redis.paused():
        slowest = 0.0
        for served in pair.both * 10:
            began = time.monotonic()
            assert ask(served).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1
        assert {ask(served).status_code for served in pair.both} == {429}
