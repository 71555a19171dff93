"""What a rewritten request keeps of the client's text."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import intercepts
from relayweb.gateway.app import Gateway
from relayweb.gateway.splice import splice
from relayweb.gateway.upstreams import Target
from tests.gateway.inprocess import ask
from tests.gateway.provider import Provider

ODD = (
    b'{ "model":"m", "messages":[ {"role":"system","content":"a"}, {"role":"user","content":"caf\\u00e9 \\/ x",'
    b'"x":1.10} ],\n"top_p": 0.1000000000000000055511151231257827, "n":1E0, "meta":{"a":1,"a":2, "b":-0.0},'
    b' "temperature": 1.10 }'
)


def read(text: bytes) -> Any:
    return msgspec.json.decode(text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda b: {**b, "temperature": 0}, [b'"temperature":0}', b"0.1000000000000000055511151231257827", b'"n":1E0']),
        (lambda b: {k: v for k, v in b.items() if k != "n"}, [b'"temperature":1.10', b'{"a":1,"a":2, "b":-0.0}']),
        (lambda b: {**b, "messages": b["messages"][1:]}, [b'[{"role":"user","content":"caf\\u00e9 \\/ x","x":1.10}]']),
        (
            lambda b: {**b, "messages": [{**b["messages"][0], "content": "b"}, b["messages"][1]]},
            [b'{"role":"system","content":"b"},{"role":"user","content":"caf\\u00e9 \\/ x","x":1.10}'],
        ),
        (lambda b: {**b, "meta": {**b["meta"], "b": 1}}, [b'"meta":{"a":2,"b":1}', b'"top_p":0.10000000000000000555']),
        (lambda b: {"z": "\ud800", **b}, [b'{"z":"\\ud800","model":"m"', b'"n":1E0']),
    ],
)
def test_what_nobody_changed_keeps_its_characters(change: Any, text: list[bytes]) -> None:
    before = read(ODD)
    after = change(before)
    out = splice(ODD, before, after)
    assert json.loads(out) == after
    assert [part for part in text if part not in out] == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=5), st.data())
def test_any_change_of_any_body_says_what_it_should(body: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(body).encode("utf-8")
    before = read(text)
    after = {k: data.draw(st.just(v) | JSON | st.just(copy.deepcopy(v))) for k, v in before.items()}
    for name, value in after.items():
        if isinstance(value, list) and value:
            after[name] = data.draw(st.permutations(value).map(lambda order: order[1:]) | st.just(value))
    assert json.loads(splice(text, before, after)) == after


def test_text_that_is_no_utf_8_is_written_anew() -> None:
    assert splice('{"a":1.10,"b":1}'.encode("utf-16"), {"a": 1.1, "b": 1}, {"a": 1.1}) == b'{"a":1.1}'


async def test_a_rule_changes_its_part_of_the_bytes_alone(provider: Provider) -> None:
    action = {"type": "set_parameters", "parameters": {"temperature": 0.5}}
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "cool", "action": action}]))
    gateway = Gateway()
    try:
        await ask(gateway, Target("mock", provider.url, "chat_completions"), "chat/completions", ODD)
    finally:
        intercepts.swap(before)
        await gateway.close()
    sent = provider.requests[-1].body
    assert b'"temperature":0.5' in sent
    for kept in (
        b"0.1000000000000000055511151231257827",
        b'"n":1E0',
        b'{"a":1,"a":2, "b":-0.0}',
        b'"x":1.10',
        b"\\u00e9 \\/",
    ):
        assert kept in sent


@pytest.mark.parametrize("stream", [False, True])
async def test_a_clients_trace_reaches_the_provider_as_it_came(provider: Provider, stream: bool) -> None:
    theirs = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}
    gateway = Gateway()
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    target = Target("mock", provider.url, "chat_completions")
    await ask(gateway, target, "chat/completions", body, theirs)
    sent = provider.requests[-1]
    await ask(gateway, target, "chat/completions", body)
    await gateway.close()
    assert {name: sent.header(name) for name in theirs} == theirs
    assert str(provider.requests[-1].header("traceparent")).startswith("00-")
    assert provider.requests[-1].header("tracestate") is None
