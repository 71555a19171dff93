"""The demo upstream and the demo turn."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest
from django.apps import apps

from relayweb.gateway import app, demo, upstreams
from relayweb.gateway.conversation import CHAT, MESSAGES, RESPONSES
from relayweb.gateway.demo import script, upstream
from relayweb.gateway.upstreams import Target
from tests.gateway.conftest import Gateway
from tests.gateway.events import outcome, recorded, status

NOW = {"x-demo-pace": "0"}
QUESTION: list[Any] = [{"role": "user", "content": script.QUESTION}]


@pytest.fixture
def options(web: Gateway) -> dict[str, Any]:
    return {"base_url": f"{web.url}/gw/demo", "api_key": web.key, "default_headers": NOW, "max_retries": 0}


@pytest.mark.parametrize("streaming", [False, True])
def test_chat_completions_asks_for_tools_and_concludes(options: dict[str, Any], streaming: bool) -> None:
    tools: Any = script.tool_definitions(CHAT)
    with openai.OpenAI(**options) as client:
        if streaming:
            with client.chat.completions.stream(model="demo", messages=QUESTION, tools=tools) as stream:
                completion: Any = stream.get_final_completion()
        else:
            completion = client.chat.completions.create(model="demo", messages=QUESTION, tools=tools)
        message = completion.choices[0].message
        assert [c.function.name for c in message.tool_calls] == ["query_metrics", "list_deploys"]
        assert message.reasoning_content.startswith("The user says")
        concluded = client.chat.completions.create(model="demo", messages=QUESTION)
        assert "2.18.0" in concluded.choices[0].message.content


@pytest.mark.parametrize("streaming", [False, True])
def test_messages_asks_for_tools(options: dict[str, Any], streaming: bool) -> None:
    wanted: Any = {"model": "demo", "max_tokens": 500, "messages": QUESTION, "tools": script.tool_definitions(MESSAGES)}
    with anthropic.Anthropic(**options) as client:
        if streaming:
            with client.messages.stream(**wanted) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**wanted)
        assert [b.type for b in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.content[2].input["service"] == "checkout" and message.stop_reason == "tool_use"


@pytest.mark.parametrize("streaming", [False, True])
def test_responses_asks_for_tools(options: dict[str, Any], streaming: bool) -> None:
    wanted: Any = {"model": "demo", "input": script.QUESTION, "tools": script.tool_definitions(RESPONSES)}
    with openai.OpenAI(**options) as client:
        if streaming:
            with client.responses.stream(**wanted) as stream:
                response = stream.get_final_response()
        else:
            response = client.responses.create(**wanted)
        assert [i.type for i in response.output] == ["reasoning", "message", "function_call", "function_call"]


def test_one_model_fails_at_the_first_attempt_and_another_for_good(options: dict[str, Any]) -> None:
    with openai.OpenAI(**{**options, "max_retries": 1}) as client:
        assert client.chat.completions.create(model="demo-flaky", messages=QUESTION).choices
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            client.chat.completions.create(model="demo-small-context", messages=QUESTION)
        with pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(model="demo-cut", messages=QUESTION, stream=True))
        assert "demo-flaky" in [m.id for m in client.models.list()]


@pytest.fixture
async def fresh_gateway(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def find(name: str) -> Target:
        return Target("demo", "demo://relayweb/v1", "chat_completions")

    monkeypatch.setattr(upstreams.directory, "find", find)
    monkeypatch.setattr(demo.turn, "_in_thread", lambda: None)
    await app.shutdown()
    yield app.gateway()
    await app.shutdown()


async def test_a_demo_turn_shows_retries_streams_tools_and_errors(fresh_gateway: Any) -> None:
    async with recorded() as events:
        session_id = await demo.run_turn(pace=0)
        await app.shutdown()
        await events.flushed()
    (session,) = events.sessions
    assert session["metadata"]["session_id"] == session_id
    assert len(events.turns) == 1 and outcome(events.turns[0]) == "success"
    by_call: dict[str, list[dict[str, Any]]] = {}
    for attempt in events.attempts:
        by_call.setdefault(attempt["parent_uuid"], []).append(attempt)
    seen = [
        (c["metadata"]["relay.call_role"], [status(a) for a in by_call[c["uuid"]]], outcome(c)) for c in events.calls
    ]
    assert sorted(seen) == [
        ("auxiliary:compression", ["ERROR"], "failed"),
        ("auxiliary:title", ["OK"], "success"),
        ("primary", ["ERROR", "OK"], "success"),
        ("primary", ["OK"], "success"),
        ("primary", ["OK"], "success"),
    ]
    assert [t["name"] for t in events.tools] == ["query_metrics", "list_deploys", "search_logs"]
    assert all(t["end"] for t in events.tools)
    assert "reasoning_content" in json.dumps(events.marks("relay.chunks"))


@pytest.mark.django_db
def test_the_demo_intercept_is_made_once_and_stays_deleted() -> None:
    configs: Any = apps.get_model("intercepts", "InterceptConfig").objects
    demo.ensure_demo_intercept()
    (config,) = configs.all()
    assert config.enabled and config.match == {"provider": ["demo"], "call_role": ["primary"]}
    demo.ensure_demo_intercept()
    assert config.revision == 1
    config.withdraw("someone")
    demo.ensure_demo_intercept()
    assert not configs.exists()


@pytest.mark.parametrize(
    ("told", "pace"), [("nan", 0), ("-nan", 0), ("inf", 10), ("-1", 0), ("1e9", 10), ("0.5", 0.5), ("x", 1), (None, 1)]
)
def test_no_pace_that_a_client_tells_holds_a_call_or_the_timers_of_others(told: str | None, pace: float) -> None:
    assert upstream._pace(told) == pace
