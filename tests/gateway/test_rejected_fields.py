"""A field that a rule adds and the provider refuses (case B56): what was asked before and after is on record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from uuid import UUID

import pytest

from adapters import intercepts
from relayweb.gateway.app import Gateway
from relayweb.gateway.upstreams import Target
from relayweb.recording.reading import queries
from tests.gateway.events import recorded
from tests.gateway.inprocess import ask
from tests.gateway.provider import Provider, Script
from tests.recording.recorded import record

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = {
    "error": {"message": "Unknown parameter: 'top_k'.", "type": "invalid_request_error", "param": "top_k", "code": "x"}
}


@pytest.fixture
def top_k() -> Iterator[None]:
    action = {"type": "set_parameters", "parameters": {"top_k": 40}}
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "k40", "revision": 3, "action": action}]))
    yield
    intercepts.swap(before)


def test_a_refused_field_is_shown_with_the_rule_that_added_it(provider: Provider, top_k: None) -> None:
    provider.scripts["strict"] = Script(400, {"content-type": "application/json"}, json.dumps(REFUSED).encode())
    body = {"model": "strict", "messages": [{"role": "user", "content": "hi"}]}

    async def call() -> list[bytes]:
        gateway = Gateway()
        async with recorded() as events:
            answer = await ask(gateway, Target("mock", provider.url, "chat_completions"), "chat/completions", body)
            assert (answer.status, json.loads(answer.body)) == (400, REFUSED)
            await gateway.close()
            return list(events.lines)

    record(*map(json.loads, asyncio.run(call())))
    assert json.loads(provider.requests[-1].body) == {**body, "top_k": 40}
    (turn,) = queries.turns("intercept:k40 error:400")["turns"]
    (attempt,) = [node for node in queries.turn_nodes(turn["uuid"]) if node["role"] == "attempt"]
    assert (attempt["status"], attempt["error"]["status"]) == ("failed", 400)
    assert "top_k" in attempt["error"]["message"]
    found = queries.rewrites(UUID(str(attempt["uuid"])))
    app, ruled, provided = (stage["body"] for stage in found["stages"])
    assert app == body
    assert ruled == provided == {**body, "top_k": 40}
    (rewrite,) = found["rewrites"]
    assert (rewrite["key"], rewrite["revision"], rewrite["result"]) == ("k40", 3, "hit")
