"""Texts made so that looking for secrets in them takes long: the time grows with their length, and no more."""

from __future__ import annotations

import json
import time

import pytest

from relayweb.recording.events.commands import mask_words
from relayweb.recording.events.masking import mask_text
from relayweb.recording.store.content import Store
from tests.recording import streams

UNITS = [
    *('"token":', '"token":"', "'pass',", "password='", "token: ", "--password ", "token", "<token>", "key=", "pass "),
    *('name="password"', "%22token%22%3A", '\\"token\\":\\"', "\\u0070", "pass\\u0070", "пароль:", "cookie: "),
    *("-u a:b -U c%d ", "curl -u ", "mysql -p", "docker login ", "identified by '", "eyJ.", "YWFhYTpi", "a:b@", "://"),
    *("-----BEGIN PRIVATE KEY-----", "Bearer ", "authorization: a "),
]


@pytest.mark.parametrize("unit", UNITS)
def test_what_looks_like_the_beginning_of_a_secret_a_thousand_times_takes_time_in_proportion(unit: str) -> None:
    text = (unit * 100_000)[:250_000]
    event = streams.scope(
        "start", streams.uid(), None, 1, category="tool", data={"command": text}, metadata={"x": text}
    )
    line, store = json.dumps(event, separators=(",", ":")).encode(), Store()
    began = time.process_time()
    mask_text(text)
    store.pack(store.parse(line))
    # Three looks at 250 000 characters: 2 s here at most (CPU).
    assert time.process_time() - began < 10


def test_a_long_command_is_not_looked_through_again_for_each_of_its_words() -> None:
    words = ["/bin/" + "x" * 100_000, *["-" + "y" * 10_000, "-a"] * 1_000, "--password", "hunter2Xq9"]
    began = time.process_time()
    masked = mask_words(words)
    assert time.process_time() - began < 5 and masked == [*words[:-1], "[masked]"]
