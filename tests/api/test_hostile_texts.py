"""Whatever stands in a text, every member of the API answers, in ASCII, with the same text."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test import Client

from relayweb.access import tokens
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording.recorded import Talk
from tests.recording.streams import chunk, mark

pytestmark = pytest.mark.django_db(transaction=True)

TEXTS = [
    "half \ud800 a character",
    "nul\x00",
    "</script><script>alert(1)</script>",
    "\u202eright to left",
    "x" * 50_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=["surrogate", "nul", "html", "rtl", "long"])
def test_every_body_of_a_call_full_of_odd_texts_is_served(text):
    talk = Talk(text, profile=text)
    call = talk.call(role=text)
    attempt = talk.attempt(call, asks=text, model=text)
    patch = [{"op": "replace", "path": "/model", "value": text}]
    rewrite = {"position": 0, "key": text, "mode": "enforce", "result": "hit", "patch": patch, "reason": text}
    talk.add(
        chunk(attempt, 0, 30),
        mark("relay.chunks", attempt, 31, {"first": 0, "chunks": [{"choices": [{"delta": {"content": text}}]}]}),
        mark("relay.rewrite", attempt, 21, rewrite),
        mark("relay.attempt_failed", attempt, 400, {"status": 500, "message": text, "error_type": text, "body": text}),
    )
    lines = [Line(json.dumps(event).encode(), 0) for event in talk.all()]
    Recorder(Tables(connection)).record(lines)
    assert not [line.error for line in lines if line.error]
    client = Client(headers={"authorization": "Bearer " + tokens.create("tests", "read")})
    paths = ["turns", f"turns/{talk.turn}", "sessions"]
    parts = ("", "/request", "/response", "/chunks", "/rewrites", "/events")
    for path in [*paths, *(f"scopes/{uuid}{part}" for uuid in (talk.turn, call, attempt) for part in parts)]:
        found = client.get("/api/v1/" + path)
        assert found.status_code == 200 and found.content.isascii(), (path, found.content[:300])
        json.loads(found.content)
    page = client.get(f"/api/v1/scopes/{attempt}/chunks").json()
    (told,) = page["chunks"]
    assert told["text"] == text
    (ran,) = client.get(f"/api/v1/scopes/{attempt}/rewrites").json()["rewrites"]
    assert ran["patch"] == patch
