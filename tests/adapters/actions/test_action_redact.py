"""Redaction of the recorded copy: what the provider and the app get is not touched."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from adapters import relay_llm
from adapters.actions.redact import Redact
from adapters.intercepts import Rule, RuleError
from tests.adapters.relay_calls import MODES, body, intercept, passing, rules, run, text

each_mode = pytest.mark.parametrize("api_mode", MODES)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])

SECRET = "sesame-4711"


def redact(**config: Any) -> dict[str, Any]:
    return {"key": "r", "priority": 500, "action": {"type": "redact", **config}}


def with_secret(api_mode: str) -> dict[str, Any]:
    history = "input" if api_mode == "codex_responses" else "messages"
    request = body(api_mode, metadata={"user": f"I am {SECRET}"})
    request[history] = [*request[history], {"role": "user", "content": f"my word is {SECRET}."}]
    return request


APPEND = {"key": "a", "action": {"type": "system_text", "where": "append", "text": f"Know {SECRET}."}}


@each_way
@each_mode
async def test_the_provider_gets_everything_the_record_nothing(api_mode: str, stream: bool) -> None:
    request = with_secret(api_mode)
    with rules(APPEND, redact(patterns=["sesame-\\d+"])):
        done = await run(request, api_mode, stream=stream)
    assert SECRET in text(done.sent_body) and text(done.sent_body).count(SECRET) == 3
    recorded = json.dumps([done.events, done.late, done.call.rewrites])
    assert SECRET not in recorded and "[redacted]" in recorded
    assert [m["result"] for m in done.rewrites] == ["hit", "hit"]
    mark = done.request
    assert "provider" not in mark and mark["app"]["metadata"] == {"user": "I am [redacted]"}


@each_mode
async def test_only_a_redact_rule_leaves_the_body_byte_for_byte(api_mode: str) -> None:
    with rules(redact(patterns=["sesame-\\d+"])):
        done = await run(request := with_secret(api_mode), api_mode)
    assert text(done.sent_body) == text(request)
    assert all(done.sent[key] is request[key] for key in request)
    assert not done.call.changed


@pytest.mark.parametrize("priority", [-10, 10], ids=["before", "after"])
@each_mode
async def test_what_a_foreign_intercept_adds_is_laid_over_the_whole_body(api_mode: str, priority: int) -> None:
    def change(headers: Any, annotation: Any, content: Any) -> Any:
        annotation.messages = [*annotation.messages, {"role": "user", "content": "later"}]
        return headers, content

    request = with_secret(api_mode)
    history = "input" if api_mode == "codex_responses" else "messages"
    with rules(redact(patterns=["sesame-\\d+"])), intercept("host", priority, passing(change)):
        done = await run(request, api_mode)
    assert text(done.sent[history][:-1]) == text(request[history])
    assert SECRET not in json.dumps([done.events, done.late])


async def test_a_body_the_codec_cannot_hold_once_redacted_shows_no_old_annotation() -> None:
    with rules(redact(paths=["$.messages", "$.tools", "$.metadata"])):
        done = await run(request := with_secret("chat_completions"), "chat_completions")
    assert text(done.sent_body) == text(request)
    assert SECRET not in json.dumps(done.events)
    assert done.start["data"]["content"]["messages"] == "[redacted]"


async def test_a_host_that_breaks_the_chain_does_not_undo_a_redaction() -> None:
    with rules(redact(patterns=["sesame-\\d+"])), intercept("greedy", -10, passing(), break_chain=True):
        done = await run(request := with_secret("chat_completions"), "chat_completions")
    assert text(done.sent_body) == text(request)
    assert SECRET not in json.dumps([done.events, done.late])


async def test_a_redaction_that_fails_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redact, "redacted", lambda *_args: 1 / 0)
    with rules(APPEND, redact(patterns=["sesame-\\d+"])):
        done = await run(with_secret("chat_completions"), "chat_completions")
    assert text(done.sent_body).count(SECRET) == 3
    assert SECRET not in json.dumps([done.events, done.late])
    assert done.start["data"]["content"] == {}


async def test_a_call_that_never_started_is_held_back_redacted() -> None:
    from adapters.wire import ProviderCall

    with rules(redact(patterns=["sesame-\\d+"])):
        call = ProviderCall(with_secret("chat_completions"), api_mode="chat_completions", provider="p", model="m")
        assert SECRET not in json.dumps(call.held_request())


# -- through the core: answers, chunks and errors ----------------------------------------------------------------------

ANSWER = {
    "id": "r",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": SECRET}, "finish_reason": "stop"}],
}


def _call() -> dict[str, Any]:
    return {"name": "p", "model_name": "m", "metadata": {"api_mode": "chat_completions", "api_request_id": "q"}}


def test_the_app_gets_the_answer_the_record_a_redacted_one(talk: Any, events: Any) -> None:
    with rules(redact(patterns=["sesame-\\d+"])):
        got = relay_llm.execute_current(with_secret("chat_completions"), lambda _request: ANSWER, **_call())
    assert got is ANSWER
    assert SECRET not in json.dumps(events.all())
    (end,) = events.attempts("end")
    assert end["data"]["choices"][0]["message"]["content"] == "[redacted]"


def test_chunks_are_recorded_with_their_length_only(talk: Any, events: Any) -> None:
    pieces = [
        {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": t}}]}
        for t in ("my word is ses", "ame-4711", ".")
    ]
    with rules(redact(patterns=["sesame-\\d+"])):
        got = list(relay_llm.stream_current(with_secret("chat_completions"), lambda _r: iter(pieces), **_call()))
    assert got == pieces
    recorded = json.dumps(events.all())
    assert SECRET not in recorded and "ame-4711" not in recorded
    chunks = [c for mark in events.marks("relay.chunks") for c in mark["data"]["chunks"]]
    assert len(chunks) == 3 and all(set(c) == {"length"} for c in chunks)


def test_an_error_of_the_provider_is_redacted_too(talk: Any, events: Any) -> None:
    def provider(_request: Any) -> Any:
        raise ValueError(f"no such word: {SECRET}")

    with rules(redact(patterns=["sesame-\\d+"])), pytest.raises(ValueError, match=SECRET):
        relay_llm.execute_current(with_secret("chat_completions"), provider, **_call())
    (mark,) = events.marks("relay.attempt_failed")
    assert "no such word: [redacted]" in json.dumps(mark)
    assert SECRET not in json.dumps(events.all())


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, wanted",
    [
        ("$.a.b", {"a": {"b": "#", "c": [1, {"b": 2}]}, "b": 3}),
        ("a.c[0]", {"a": {"b": 1, "c": ["#", {"b": 2}]}, "b": 3}),
        ("$.a.c[*]", {"a": {"b": 1, "c": ["#", "#"]}, "b": 3}),
        ("$.a.c[*].b", {"a": {"b": 1, "c": [1, {"b": "#"}]}, "b": 3}),
        ("$..b", {"a": {"b": "#", "c": [1, {"b": "#"}]}, "b": "#"}),
        ("$.a.*", {"a": {"b": "#", "c": "#"}, "b": 3}),
        ("$['b']", {"a": {"b": 1, "c": [1, {"b": 2}]}, "b": "#"}),
        ("$.nowhere.x[3]", {"a": {"b": 1, "c": [1, {"b": 2}]}, "b": 3}),
    ],
)
def test_paths(path: str, wanted: Any) -> None:
    value = {"a": {"b": 1, "c": [1, {"b": 2}]}, "b": 3}
    action = Redact.parse({"type": "redact", "paths": [path], "replacement": "#"})
    assert action.redacted(value) == wanted
    assert value == {"a": {"b": 1, "c": [1, {"b": 2}]}, "b": 3}


@pytest.mark.parametrize(
    "kind, found, left",
    [
        ("email", ["a.b+c@example.org", "x@y-z.co.uk"], ["@home", "a@b", "user@"]),
        ("phone", ["+49 170 1234567", "(212) 555-0123", "212-555-0123"], ["2026-11-30", "1.25", "version 3.11.7"]),
        ("credit_card", ["4111 1111 1111 1111", "5500005555555559"], ["4111 1111 1111 1112", "1234567890123456"]),
        ("iban", ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819"], ["DE00 3704 0044 0532 0130 00"]),
        ("ip_address", ["192.168.10.254", "8.8.8.8"], ["1.2.3", "256.1.1.1", "1.2.3.4.5"]),
        ("us_ssn", ["078-05-1120"], ["000-12-3456", "666-12-3456", "123-00-4567"]),
        ("secret", ["sk-abcdefghijklmnop1234", "AKIAIOSFODNN7EXAMPLE"], ["sk-short", "skate-park"]),
    ],
)
def test_personal_data(kind: str, found: list[str], left: list[str]) -> None:
    action = Redact.parse({"type": "redact", "pii": [kind], "replacement": "#"})
    for sample in found:
        assert action.redacted({"t": [f"is {sample}, yes"]}) == {"t": ["is #, yes"]}
    for sample in left:
        assert action.redacted(f"is {sample}, yes") == f"is {sample}, yes"


def test_a_pattern_that_runs_away_is_stopped_and_hides_the_texts_it_did_not_finish() -> None:
    action = Redact.parse({"type": "redact", "patterns": [r"(a|aa|aaa)+$"]})
    started = time.monotonic()
    assert action.redacted({"fine": "b", "t": ["a" * 60 + f"!{i}" for i in range(50)]}) == {
        "fine": "b",
        "t": ["[redacted]"] * 50,
    }
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "config, field, says",
    [
        ({}, "action.paths", "give paths, patterns or kinds"),
        ({"paths": ["$.a["]}, "action.paths", "cannot read '['"),
        ({"patterns": ["ok", "("]}, "action.patterns", "pattern 2 is no regular expression"),
        ({"pii": ["shoe_size"]}, "action.pii", "entry 1 must be one of email"),
        ({"paths": 5}, "action.paths", "must be a list of texts"),
    ],
)
def test_wrong_values_name_their_field(config: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(RuleError) as error:
        Rule.parse(redact(**config))
    assert error.value.field == field and says in error.value.message
