"""Bodies that are no plain UTF-8 JSON: read where that can be, and never sent past a rule that fails closed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import adapters.coordinator
from adapters import intercepts
from relayweb.gateway.app import Gateway
from relayweb.gateway.upstreams import Target
from tests.gateway.events import recorded
from tests.gateway.inprocess import ask
from tests.gateway.provider import Provider

BODY = {"model": "m", "messages": [{"role": "user", "content": "my CANARY"}]}
HIDE = {"type": "regex_replace", "pattern": "CANARY", "replacement": "bird"}
DEEP = b'{"model":"m","messages":[{"role":"user","content":"CANARY"}],"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
UNREAD = {
    "deep": (DEEP, {}),
    "broken": (b'{"model": "m", "messages": [{"role": "user", "content": "CANARY', {}),
    "list": (json.dumps([BODY]).encode(), {}),
    "twice packed": (gzip.compress(gzip.compress(json.dumps(BODY).encode())), {"content-encoding": "gzip, gzip"}),
    "unknown coding": (b"\x0b CANARY", {"content-encoding": "br"}),
    "utf-16 broken": (json.dumps(BODY)[:-1].encode("utf-16-le"), {}),
}


@contextmanager
def in_force(**rule: Any) -> Iterator[None]:
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "guard", **rule}]))
    try:
        yield
    finally:
        intercepts.swap(before)


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
async def test_json_in_another_encoding_is_under_the_rules(
    gateway: Gateway, target: Target, provider: Provider, coding: str
) -> None:
    given = {"content-type": f"application/json; charset={coding}"}
    with in_force(action=HIDE, on_error="closed", match={"model": ["m"]}):
        answer = await ask(gateway, target, "chat/completions", json.dumps(BODY).encode(coding), given)
    assert answer.status == 200
    sent = provider.requests[-1]
    assert json.loads(sent.body.decode("utf-8"))["messages"][0]["content"] == "my bird"
    assert sent.header("content-type") == "application/json"


@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("match", [{}, {"model": ["gpt-*"], "stream": True, "session": ["s*"]}], ids=["all", "narrow"])
async def test_what_cannot_be_read_is_refused_under_a_rule_that_fails_closed(
    gateway: Gateway, target: Target, provider: Provider, name: str, match: dict[str, Any]
) -> None:
    content, headers = UNREAD[name]
    asked = len(provider.requests)
    with in_force(action=HIDE, on_error="closed", match=match, revision=3):
        for _ in range(6):  # more often than a rule may fail
            async with recorded() as events:
                answer = await ask(gateway, target, "chat/completions", content, headers)
                await events.flushed()
        plain = await ask(gateway, target, "chat/completions", BODY)
    assert answer.status == 403 and answer.headers["x-relay-error"] == "blocked"
    assert "intercept guard" in answer.body.decode() and "cannot be read" in answer.body.decode()
    told = events.marks("relay.rewrite")[-1]["data"]
    assert (told["key"], told["revision"], told["result"]) == ("guard", 3, "error")
    assert events.attempts[-1]["end"]["metadata"]["exception.type"] == "CallBlocked"
    assert plain.status == 200 and len(provider.requests) == asked + 1


@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize(
    "rule",
    [
        {"action": HIDE},
        {"action": HIDE, "on_error": "closed", "mode": "shadow"},
        {"action": HIDE, "on_error": "closed", "enabled": False},
        {"action": HIDE, "on_error": "closed", "match": {"provider": ["other"]}},
    ],
    ids=["open", "shadow", "disabled", "another provider"],
)
async def test_what_cannot_be_read_is_for_the_provider_to_judge_otherwise(
    gateway: Gateway, target: Target, provider: Provider, name: str, rule: dict[str, Any]
) -> None:
    content, headers = UNREAD[name]
    with in_force(**rule):
        answer = await ask(gateway, target, "chat/completions", content, headers)
    assert answer.status != 403 and provider.requests[-1].body == content


@pytest.mark.parametrize("name", UNREAD)
async def test_of_what_cannot_be_read_nothing_is_recorded_where_a_rule_redacts(
    gateway: Gateway, target: Target, name: str
) -> None:
    content, headers = UNREAD[name]
    with in_force(action={"type": "redact", "paths": ["$.messages"]}, match={"model": ["gpt-*"]}):
        async with recorded() as events:
            await ask(gateway, target, "chat/completions", content, headers)
            await events.flushed()
    told = "".join(events.lines)
    assert "CANARY" not in told.replace("\\u0000", "") and "[redacted]" in told


async def test_redacted_text_in_utf_16_is_not_on_record(gateway: Gateway, target: Target, provider: Provider) -> None:
    content = json.dumps(BODY).encode("utf-16")
    with in_force(action={"type": "redact", "patterns": ["CANARY"]}):
        async with recorded() as events:
            await ask(gateway, target, "chat/completions", content)
            await events.flushed()
    assert provider.requests[-1].body == content
    assert events.attempts[0]["data"]["content"]["messages"][0]["content"] == "my [redacted]"
    assert "CANARY" not in "".join(events.lines).replace("\\u0000", "")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["not placed", "no relay"])
async def test_a_call_that_a_fault_of_ours_keeps_from_the_rules_is_refused_only_where_one_fails_closed(
    gateway: Gateway, target: Target, provider: Provider, monkeypatch: pytest.MonkeyPatch, fault: str, stream: bool
) -> None:
    if fault == "not placed":
        monkeypatch.setattr(gateway.registry, "begin", lambda *a: 1 / 0)
    else:
        monkeypatch.setattr(adapters.coordinator.importlib, "import_module", lambda name: 1 / 0)
        monkeypatch.setattr(adapters.coordinator, "_runtimes", {})
    body, before = {**BODY, "stream": stream}, len(provider.requests)
    with in_force(action=HIDE, on_error="closed", match={"model": ["m"]}):
        answer = await ask(gateway, target, "chat/completions", body)
        assert answer.status == 403 and "blocked by intercept guard" in answer.body.decode()
        assert len(provider.requests) == before
        assert (await ask(gateway, target, "chat/completions", {**body, "model": "n"})).status == 200
    with in_force(action=HIDE):
        assert (await ask(gateway, target, "chat/completions", body)).status == 200
    assert "CANARY" in provider.requests[-1].body.decode()
