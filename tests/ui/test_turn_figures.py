"""What the turn page says of numbers, of pictures and of many children."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from relayweb.ui import formats
from relayweb.ui.inspect import facts, jsonview, messages
from tests.recording.recorded import Talk, answer
from tests.recording.streams import scope, uid


def shown(value: Any) -> str:
    return str(jsonview.to_html(jsonview.lines_of(value)[0]))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ('{"n":1e400}', "1e400"),
        ('{"n":-1E400}', "-1E400"),
        ('{"n":0.10000000000000000001}', "0.10000000000000000001"),
        ('{"n":123456789012345678901234567890}', "123456789012345678901234567890"),
        ('{"n":{"$int":"123456789012345678901234567890"}}', "123456789012345678901234567890"),
        ('{"n":0.7}', "0.7"),
    ],
)
def test_numbers_are_shown_in_the_digits_that_were_sent(sent, said):
    value = jsonview.load(sent)
    assert f'<span class="j-n">{said}</span>' in shown(value)
    assert jsonview.dump(value) == f'{{"n": {said}}}'
    assert f'<span class="j-n">{said}</span>' in str(messages.Part("call", sent).lines)


@pytest.mark.parametrize("sent", ['{"$int":"12 or so"}', '{"$int":5}', '{"$int":"5","x":1}', '"1e400"'])
def test_what_only_looks_like_an_escaped_number_stays(sent):
    assert jsonview.dump(jsonview.load(sent)) == json.dumps(json.loads(sent))


@pytest.mark.parametrize("url", ["data:text/html;base64,PHA+", "data:image/svg+xml,<svg/>", "data:,x"])
def test_a_picture_of_a_type_that_is_not_shown_is_a_labelled_placeholder(url):
    part = messages.request(
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    )
    (found,) = part.messages[0].parts
    assert found.kind == "file" and found.title.startswith("Picture of type")


def test_the_cost_and_the_tokens_of_a_cut_stream_are_a_lower_bound():
    node = {"status": "failed", "usage": {"output_tokens": 1, "complete": False}, "cost_usd": 0.5, "wasted_usd": 0.5}
    assert dict(facts.usage(node)) == {"Read": "–", "Written": "≥ 1", "Cost": "≥ $0.500", "of it wasted": "≥ $0.500"}
    assert formats.at_least(formats.cost(0.0001), "≥ ") == "<$0.001"
    running = node | {"status": "running"}
    assert "≥" not in str(facts.usage(running))


@pytest.mark.django_db(transaction=True)
def test_sessions_say_that_their_tokens_are_a_lower_bound(viewer):
    talk = Talk()
    call = talk.call()
    talk.attempt(call, asks="hi", out=answer("cut", prompt=1000) | {"usage": {"prompt_tokens": 1000}})
    Recorder(Tables(connection)).record([Line(json.dumps(event).encode(), 0) for event in talk.all()])
    for path in ("/sessions/",):
        assert "≥ 1k" in viewer.get(path).content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_usage_says_by_which_tier_it_was_priced_and_what_has_no_price():
    usage = {"input_tokens": 1000, "output_tokens": 10, "complete": True}
    node = {"status": "ok", "usage": usage, "model": "gpt-5", "cost_usd": 0.5, "usage_details": None}
    node |= {"service_tier": "flex", "price_version": "2026-06-01.2"}
    told = dict(facts.usage(node))
    assert (told["Service tier"], told["priced by"]) == ("flex", "price table 2026-06-01.2, flex tier")
    assert "standard tier" in dict(facts.usage({**node, "service_tier": None}))["priced by"]
    assert "Relay" in dict(facts.usage({**node, "price_version": "relay"}))["priced by"]
    spoken = {"audio_input": 300, "web_searches": 2}
    told = facts.usage({**node, "price_version": None, "cost_usd": None, "usage_details": spoken})
    assert ("of it audio", "300") in told and ("Web searches", "2") in told and ("Cost", "–") in told
    assert dict(told)["priced by"] == "the price table has no price for gpt-5 in the flex tier with audio, web searches"
    assert "priced by" not in dict(facts.usage({**node, "usage": {}}))
    del node["price_version"]  # a turn, a call
    assert "priced by" not in dict(facts.usage(node))


def test_the_overview_says_how_many_are_inside_and_where_the_rest_stands(viewer):
    turn, lines = uid(), []
    lines.append(scope("start", turn, None, 0, category="agent", metadata={"nemo_relay_scope_role": "turn"}))
    for k in range(250):
        lines.append(scope("start", uid(), turn, k + 1, name=f"step{k}"))
    Recorder(Tables(connection)).record([Line(json.dumps(event).encode(), 0) for event in lines])
    page = viewer.get(f"/turns/{turn}/scopes/{turn}/", {"tab": "overview"}).content.decode()
    assert "Inside<span>250</span>" in page and "The first 100 of 250." in page and "step99" in page
