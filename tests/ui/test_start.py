from __future__ import annotations

import re

from relayweb.access.models import Token
from relayweb.ui.snippets import Snippet, ways


def test_an_operator_makes_a_token_that_is_shown_once_in_the_lines(operator):
    assert operator.post("/start/token/", {"scope": "gateway"}).url == "/start/"
    page = operator.get("/start/").content.decode()
    [shown] = set(re.findall(r"rw_gateway_[\w-]+", page))
    assert f"/gw/t/{shown}/openai/v1" in page
    assert shown not in operator.get("/start/").content.decode()
    assert Token.objects.get().scope == "gateway"


def test_a_viewer_makes_no_token_and_starts_no_turn(viewer):
    assert viewer.post("/start/token/", {"scope": "gateway"}).status_code == 403
    assert viewer.post("/start/demo/").status_code == 403
    assert not Token.objects.exists()
    assert "Ask an operator for a token" in viewer.get("/start/").content.decode()


def test_a_token_of_another_scope_cannot_be_asked_for(operator):
    assert operator.post("/start/token/", {"scope": "read"}).status_code == 403


def test_the_lines_name_this_server():
    for way in ways("https://relay.example:8443", {"ingest": "rw_ingest_x"}):
        for snippet in way.snippets:
            assert "127.0.0.1" not in snippet.text
            for mark in snippet.marked:
                assert mark in snippet.text
    [sink] = [way for way in ways("https://relay.example", {"ingest": "T"}) if way.id == "sink"]
    assert "wss://relay.example/ingest/atof/ws" in sink.snippets[0].text and '"T"' in sink.snippets[0].text


def test_parts_of_a_snippet_join_to_its_text():
    snippet = Snippet("shell", "a X b X c", ("X",))
    assert snippet.parts() == [("a ", False), ("X", True), (" b ", False), ("X", True), (" c", False)]
