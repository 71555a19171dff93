"""Pages about calls that hold what UTF-8 cannot."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording.recorded import Talk, answer
from tests.recording.streams import mark

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("tab", ["request", "response", "rewrites", "chunks", "events", "messages", "raw"])
def test_half_a_character_is_shown_as_its_escape_on_every_tab(viewer, tab):
    text = "half \ud800 a character"
    talk = Talk()
    call = talk.call()
    attempt = talk.attempt(call, asks=text, out=answer(text))
    talk.add(
        mark("relay.chunks", attempt, 31, {"first": 0, "chunks": [{"choices": [{"delta": {"content": text}}]}]}),
        mark("relay.rewrite", attempt, 21, {"key": text, "patch": [{"op": "add", "path": "/a", "value": text}]}),
    )
    Recorder(Tables(connection)).record([Line(json.dumps(event).encode(), 0) for event in talk.all()])
    page = viewer.get(f"/turns/{talk.turn}/scopes/{attempt}/", {"tab": tab})
    assert page.status_code == 200
    page.content.decode()
    assert tab not in ("request", "response") or "half \\ud800 a character" in page.content.decode()
