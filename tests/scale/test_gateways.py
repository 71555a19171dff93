"""Conversations of clients that name nothing, whose calls go through the gateway of the one process or of the other."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2
import pytest

from tests.gateway.provider import Provider, Script, chat_body
from tests.paired import together
from tests.scale import engines
from tests.scale.conftest import Pair, Pairs
from tests.scale.sending import until
from tests.served import Served

TOOL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
ASKS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [TOOL]}


@pytest.fixture(scope="module")
def provider(pair: Pair) -> Iterator[Provider]:
    provider = Provider()
    base = ["--base-url", provider.url + "/v1", "--api-mode", "chat_completions"]
    assert pair.one.run("upstream", "set", "mock", *base).returncode == 0
    yield provider
    provider.close()


def ask(pair: Pair, served: Served, model: str, messages: list[dict], **headers: str) -> httpx2.Response:
    headers = {"x-relay-token": pair.gateway, **{k.replace("_", "-"): v for k, v in headers.items()}}
    body = {"model": model, "messages": messages}
    return httpx2.post(served.url + "/gw/mock/chat/completions", json=body, headers=headers, timeout=30)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def turns_of(pair: Pair, model: str) -> list[dict]:
    """The turns that asked this model, each as the other process than the last one tells it."""
    found: list[dict] = pair.api(pair.other, f"turns?limit=200&q=model:{model}")["turns"]
    return found


def asking_for_a_tool(provider: Provider, model: str) -> None:
    provider.scripts[model] = Script(body=chat_body(tool_calls=[TOOL]))


def tools_of(turn: dict) -> list[dict]:
    def walk(node: dict) -> Iterator[dict]:
        yield node
        for child in node["children"]:
            yield from walk(child)

    return [node for node in walk(turn["tree"]) if node["role"] == "tool"]


def test_a_turn_with_a_tool_goes_on_in_the_other_process_and_is_over_where_it_began(
    pair: Pair, provider: Provider
) -> None:
    question = [user("The weather in Rome?")]
    asking_for_a_tool(provider, "tooled")
    assert ask(pair, pair.one, "tooled", question).status_code == 200
    told = [*question, ASKS, {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    del provider.scripts["tooled"]
    assert ask(pair, pair.other, "tooled", told).status_code == 200
    until(lambda: [turn["status"] for turn in turns_of(pair, "tooled")] == ["ok"], 10)
    (turn,) = turns_of(pair, "tooled")
    assert (turn["logical_calls"], turn["attempts"], turn["tools"]) == (2, 2, 1)
    (tool,) = tools_of(pair.api(pair.one, f"turns/{turn['uuid']}"))
    assert (tool["status"], tool["name"]) == ("ok", "weather")
    assert "sunny" in str(pair.api(pair.one, f"scopes/{tool['uuid']}/events"))


def test_the_turns_of_a_conversation_are_of_one_session_whichever_process_takes_them(
    pair: Pair, provider: Provider
) -> None:
    messages: list[dict] = []
    for number, served in zip(range(6), itertools.cycle(pair.both)):
        messages.append(user(f"Question {number} of a long conversation"))
        assert ask(pair, served, "long", messages).status_code == 200
        messages.append({"role": "assistant", "content": "Hm."})
    until(lambda: [turn["status"] for turn in turns_of(pair, "long")] == ["ok"] * 6, 10)
    assert len({turn["session_id"] for turn in turns_of(pair, "long")}) == 1


def test_a_retry_in_the_other_process_is_an_attempt_of_the_same_call(pair: Pair, provider: Provider) -> None:
    provider.fail["retried"] = 1
    assert ask(pair, pair.one, "retried", [user("Again?")], x_stainless_retry_count="0").status_code == 503
    assert ask(pair, pair.other, "retried", [user("Again?")], x_stainless_retry_count="1").status_code == 200
    until(lambda: [turn["status"] for turn in turns_of(pair, "retried")] == ["ok"], 10)
    (turn,) = turns_of(pair, "retried")
    assert (turn["logical_calls"], turn["attempts"], turn["retries"]) == (1, 2, 1)
    assert turn["awaiting_retry"] is None


def test_a_turn_goes_on_in_the_other_process_after_the_first_was_killed(pair: Pair, provider: Provider) -> None:
    question = [user("The weather in Oslo?")]
    asking_for_a_tool(provider, "orphan")
    assert ask(pair, pair.one, "orphan", question).status_code == 200
    until(lambda: [turn["tools"] for turn in turns_of(pair, "orphan")] == [1])
    pair.one.kill()
    try:
        del provider.scripts["orphan"]
        told = [*question, ASKS, {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
        assert ask(pair, pair.other, "orphan", told).status_code == 200  # and is over where it went on
        until(lambda: [turn["status"] for turn in turns_of(pair, "orphan")] == ["ok"])
        assert [turn["logical_calls"] for turn in turns_of(pair, "orphan")] == [2]
    finally:
        pair.one.restart(120)
    assert pair.one.run("check").returncode == 0


def test_a_turn_that_waits_for_tools_stays_one_while_each_process_and_then_both_are_restarted(
    pair: Pair, provider: Provider
) -> None:
    told = [user("The weather in Bonn?")]
    for number, restarted in enumerate(((pair.one,), (pair.other,), pair.both)):
        tool = {**TOOL, "id": f"call_before_{number}"}
        provider.scripts["rolled"] = Script(body=chat_body(tool_calls=[tool]))
        assert ask(pair, restarted[0], "rolled", told).status_code == 200
        told += [{**ASKS, "tool_calls": [tool]}, {"role": "tool", "tool_call_id": tool["id"], "content": "fog"}]
        assert all(served.stop() in (0, -signal.SIGTERM) for served in restarted)
        together(*[partial(served.restart, 120) for served in restarted])
    del provider.scripts["rolled"]
    assert ask(pair, pair.other, "rolled", told).status_code == 200
    until(lambda: [turn["status"] for turn in turns_of(pair, "rolled")] == ["ok"], 10)
    (turn,) = turns_of(pair, "rolled")
    assert (turn["logical_calls"], turn["attempts"], turn["tools"]) == (4, 4, 3)
    tools = tools_of(pair.api(pair.one, f"turns/{turn['uuid']}"))
    assert [tool["status"] for tool in tools] == ["ok"] * 3
    assert all("fog" in str(pair.api(pair.one, f"scopes/{tool['uuid']}/events")) for tool in tools)


def test_a_failed_call_is_retried_in_the_other_process_after_its_own_was_restarted(
    pair: Pair, provider: Provider
) -> None:
    provider.fail["restarted"] = 1
    assert ask(pair, pair.one, "restarted", [user("Again?")], x_stainless_retry_count="0").status_code == 503
    assert pair.one.stop() in (0, -signal.SIGTERM)
    pair.one.restart(120)
    assert ask(pair, pair.other, "restarted", [user("Again?")], x_stainless_retry_count="1").status_code == 200
    until(lambda: [turn["status"] for turn in turns_of(pair, "restarted")] == ["ok"], 10)
    (turn,) = turns_of(pair, "restarted")
    assert (turn["logical_calls"], turn["attempts"], turn["retries"]) == (1, 2, 1)
    assert turn["awaiting_retry"] is None


def test_without_redis_calls_go_on_and_health_says_that_processes_go_by_themselves(
    make_pair: Pairs, redis: engines.Redis
) -> None:
    pair = make_pair()
    headers = {"x-relay-token": pair.gateway, "x-demo-pace": "0"}

    def call(served: Served) -> httpx2.Response:
        body = {"model": "demo-mini", "messages": [user("Anybody?")]}
        return httpx2.post(served.url + "/gw/demo/v1/chat/completions", json=body, headers=headers, timeout=30)

    def states() -> list[str]:
        return [served.get("/healthz").json()["status"] for served in pair.both]

    assert states() == ["ok", "ok"]
    with redis.paused():
        assert [call(served).status_code for served in pair.both] == [200, 200]
        until(lambda: states() == ["degraded", "degraded"])
        health = pair.one.get("/healthz", authorization=f"Bearer {pair.read}").json()
        assert "Redis" in health["reason"]
        assert "Redis" in pair.one.get("/healthz").json()["reason"]
        assert [call(served).status_code for served in pair.both] == [200, 200]
    until(lambda: states() == ["ok", "ok"])
