"""What calls through the gateway leave on record, on the real Relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from relayweb.gateway.app import Gateway
from relayweb.gateway.state import Patience
from relayweb.gateway.turns import Registry
from relayweb.gateway.upstreams import Target
from tests.gateway.events import Events, outcome, recorded, status
from tests.gateway.inprocess import ask
from tests.gateway.provider import CUT, HANG, Provider, Script, chat_body, chat_chunk, chat_stream, sse

CHAT, MESSAGES, RESPONSES = "chat/completions", "v1/messages", "responses"
STREAM = {"content-type": "text/event-stream"}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = Gateway()
    gateway.registry = Registry(Patience(retry=0.3, hangup=0.1, idle=0.4, failed=0.05, named=0.05, session=0.2))
    yield gateway
    await gateway.close()


@pytest.fixture
async def events() -> AsyncIterator[Events]:
    async with recorded() as events:
        yield events


@pytest.fixture
def target(provider: Provider) -> Target:
    return Target("mock", provider.url, "chat_completions")


def chat(model: str = "m", *messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages) or [{"role": "user", "content": "hi"}], **more}


async def eventually(events: Events, what: Any, seconds: float = 3) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        if what(events):  # not flushed: Relay's flush waits for calls under way
            return
        await asyncio.sleep(0.02)
    raise AssertionError([json.loads(line) for line in events.lines])


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
async def test_one_call_is_session_turn_logical_call_and_attempt(gateway, events, target, path, stream) -> None:
    body = {"model": "m", "stream": stream, "max_tokens": 5}
    body |= {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}]}
    answer = await ask(gateway, target, path, body, {"x-relay-session-id": "s1", "x-relay-call-role": "fallback"})
    assert answer.status == 200 and answer.ended
    await eventually(events, lambda e: e.turns and e.turns[0]["end"])
    (session,), (turn,), (call,), (attempt,) = events.sessions, events.turns, events.calls, events.attempts
    assert session["metadata"]["session_id"] == "s1"
    assert turn["parent_uuid"] == session["uuid"] and outcome(turn) == "success"
    assert call["parent_uuid"] == turn["uuid"] and outcome(call) == "success"
    assert call["metadata"]["relay.call_role"] == "fallback"
    assert attempt["parent_uuid"] == call["uuid"] and status(attempt) == "OK"
    assert attempt["data"]["content"] == body
    assert attempt["metadata"]["relay.provider"] == "mock"
    said = json.dumps(attempt["end"]["data"])
    assert "ABCD" in said if stream else "ok" in said
    if stream:
        assert events.marks("relay.chunks", attempt["uuid"])


async def test_retries_of_an_sdk_are_attempts_of_one_logical_call(gateway, events, target, provider) -> None:
    provider.fail["flaky"] = 1
    first = await ask(gateway, target, CHAT, chat("flaky"), {"x-stainless-retry-count": "0"})
    assert first.status == 503
    second = await ask(gateway, target, CHAT, chat("flaky"), {"x-stainless-retry-count": "1"})
    assert second.status == 200
    await eventually(events, lambda e: e.turns and e.turns[0]["end"])
    (call,), attempts = events.calls, events.attempts
    assert outcome(call) == "success"
    assert [a["parent_uuid"] for a in attempts] == [call["uuid"]] * 2
    assert [status(a) for a in attempts] == ["ERROR", "OK"]
    assert [a["metadata"]["retry_count"] for a in attempts] == [0, 1]
    (failed,) = events.marks("relay.attempt_failed", attempts[0]["uuid"])
    assert failed["data"]["status"] == 503 and failed["data"]["retry_after"] == "0"
    assert failed["data"]["body"] == '{"error": {"message": "try again", "type": "server_error"}}'
    assert failed["data"]["error_type"] == "server_error"


async def test_a_client_that_names_its_call_makes_attempts_of_it_too(gateway, events, target, provider) -> None:
    provider.fail["named"] = 1
    for body in (chat("named"), chat("named", {"role": "user", "content": "hi"}, temperature=0)):
        await ask(gateway, target, CHAT, body, {"x-relay-request-id": "r1"})
    await eventually(events, lambda e: e.calls and e.calls[0]["end"])
    assert len(events.calls) == 1 and [status(a) for a in events.attempts] == ["ERROR", "OK"]
    assert events.attempts[0]["metadata"]["api_request_id"] == "r1"


async def test_a_failed_call_that_is_not_retried_closes_failed_with_its_turn(gateway, events, target, provider) -> None:
    provider.fail["dead"] = 1
    await ask(gateway, target, CHAT, chat("dead"), {"x-stainless-retry-count": "0"})
    await events.flushed()
    assert events.calls[0]["end"] is None, "held open for the retry"
    await eventually(events, lambda e: e.turns[0]["end"])
    assert (outcome(events.calls[0]), outcome(events.turns[0])) == ("failed", "failed")


async def test_an_error_that_no_sdk_retries_closes_its_call_at_once(gateway, events, target, provider) -> None:
    provider.scripts["bad"] = Script(400, {"content-type": "application/json"}, b'{"error": {"message": "no"}}')
    answer = await ask(gateway, target, CHAT, chat("bad"), {"x-stainless-retry-count": "0"})
    assert (answer.status, answer.body) == (400, b'{"error": {"message": "no"}}')
    await events.flushed()
    assert outcome(events.calls[0]) == "failed"


TOOL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at": 123456789012345678901234567890}'},
}


async def test_a_tool_loop_is_one_turn_with_the_tool_between_its_calls(gateway, events, target, provider) -> None:
    provider.scripts["tooling"] = Script(body=chat_body("", tool_calls=[TOOL]))
    user = {"role": "user", "content": "what is there?"}
    await ask(gateway, target, CHAT, chat("tooling", user))
    provider.scripts["tooling"] = Script(body=chat_body("a cat"))
    asked = {"role": "assistant", "content": "", "tool_calls": [TOOL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "cat"}
    await ask(gateway, target, CHAT, chat("tooling", user, asked, result))
    await eventually(events, lambda e: e.turns and e.turns[0]["end"])
    (turn,), (tool,) = events.turns, events.tools
    assert len(events.calls) == 2
    assert tool["parent_uuid"] == turn["uuid"] and tool["name"] == "look"
    assert tool["category_profile"]["tool_call_id"] == "c1" and tool["end"]["data"] == "cat"
    assert tool["data"] == {"at": {"$int": "123456789012345678901234567890"}}
    assert events.calls[0]["end"]["timestamp"] < tool["timestamp"] < tool["end"]["timestamp"]
    assert tool["end"]["timestamp"] < events.calls[1]["timestamp"]


async def test_a_streamed_tool_call_keeps_the_turn_open_as_well(gateway, events, target, provider) -> None:
    delta = {"tool_calls": [{"index": 0, **TOOL}]}
    pieces = sse(chat_chunk(delta), chat_chunk({}, "tool_calls"), done=True)
    provider.scripts["streamed-tool"] = Script(headers=STREAM, pieces=pieces)
    await ask(gateway, target, CHAT, chat("streamed-tool", stream=True))
    await eventually(events, lambda e: e.tools)
    assert events.turns[0]["end"] is None
    await eventually(events, lambda e: e.turns[0]["end"])  # no call within the idle time
    assert outcome(events.turns[0]) == "success"
    (tool,) = events.tools
    assert tool["end"]["metadata"]["outcome"] == "interrupted" and tool["end"]["timestamp"] == tool["timestamp"]
    assert events.turns[0]["end"]["timestamp"] == tool["timestamp"], "its last answer ended it"


async def test_the_next_question_of_a_conversation_is_the_next_turn_of_its_session(gateway, events, target) -> None:
    first = {"role": "user", "content": "one"}
    await ask(gateway, target, CHAT, chat("m", first))
    more = [first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "two"}]
    await ask(gateway, target, CHAT, chat("m", *more))
    await ask(gateway, target, CHAT, chat("m", {"role": "user", "content": "something else"}))
    await eventually(events, lambda e: len([t for t in e.turns if t["end"]]) == 3)
    sessions = [t["parent_uuid"] for t in events.turns]
    assert sessions[0] == sessions[1] != sessions[2]


async def test_responses_are_followed_by_their_ids(gateway, events, target) -> None:
    await ask(gateway, target, RESPONSES, {"model": "m", "input": "one"})
    await ask(gateway, target, RESPONSES, {"model": "m", "input": "two", "previous_response_id": "resp_1"})
    await eventually(events, lambda e: len([t for t in e.turns if t["end"]]) == 2)
    assert events.turns[0]["parent_uuid"] == events.turns[1]["parent_uuid"]


async def test_two_questions_in_one_session_at_once_are_two_turns(gateway, events, target, provider) -> None:
    provider.scripts["slow"] = Script(headers=STREAM, pieces=[chat_stream("A")[0], 0.2, *chat_stream("B")])
    one = chat("slow", {"role": "user", "content": "one"}, stream=True)
    two = chat("m", {"role": "user", "content": "two"})
    headers = {"x-relay-session-id": "s"}
    await asyncio.gather(ask(gateway, target, CHAT, one, headers), ask(gateway, target, CHAT, two, headers))
    await eventually(events, lambda e: len([t for t in e.turns if t["end"]]) == 2)
    assert len(events.sessions) == 1
    assert {t["parent_uuid"] for t in events.turns} == {events.sessions[0]["uuid"]}


async def test_a_named_turn_takes_all_calls_of_its_name(gateway, events, target) -> None:
    headers = {"x-relay-session-id": "s", "x-relay-turn-id": "t"}
    for text in ("plan", "write"):
        await ask(gateway, target, CHAT, chat("m", {"role": "user", "content": text}), headers)
    await eventually(events, lambda e: e.turns and e.turns[0]["end"])
    assert len(events.turns) == 1 and len(events.calls) == 2
    assert events.turns[0]["metadata"]["turn_id"] == "t"


async def test_a_session_closes_when_nothing_happens_and_opens_again(gateway, events, target) -> None:
    await ask(gateway, target, CHAT, chat(), {"x-relay-session-id": "again"})
    await eventually(events, lambda e: e.sessions[0]["end"])
    await ask(gateway, target, CHAT, chat(), {"x-relay-session-id": "again"})
    await events.flushed()
    assert [s["metadata"]["session_id"] for s in events.sessions] == ["again", "again"]


async def test_closing_the_gateway_ends_what_is_open(events, target, provider) -> None:
    gateway = Gateway()
    provider.scripts["tooling"] = Script(body=chat_body("", tool_calls=[TOOL]))
    await ask(gateway, target, CHAT, chat("tooling"))
    assert gateway.registry.counts() == {"sessions": 1, "turns": 1, "calls": 0}
    await gateway.close()
    await events.flushed()
    assert outcome(events.turns[0]) == "success" and events.sessions[0]["end"]
    assert gateway.registry.counts() == {"sessions": 0, "turns": 0, "calls": 0}


@pytest.mark.parametrize("cut_at_once", [False, True])
async def test_a_cut_upstream_is_a_failed_attempt_with_its_partial_text(
    gateway, events, target, provider, cut_at_once
) -> None:
    pieces: list[Any] = [*chat_stream("Hel", "lo", "!")[:2], 0.05, CUT]
    provider.scripts["cut"] = Script(headers=STREAM, pieces=pieces[3:] if cut_at_once else pieces)
    answer = await ask(gateway, target, CHAT, chat("cut", stream=True))
    assert answer.status == 200 and not answer.ended and type(answer.error).__name__ == "Cut"
    assert answer.body == b"".join([] if cut_at_once else pieces[:2])
    await eventually(events, lambda e: e.attempts[0]["end"] and e.calls[0]["end"])
    (attempt,) = events.attempts
    assert status(attempt) == "ERROR"
    assert outcome(events.calls[0]) == "failed"
    assert events.marks("relay.attempt_failed", attempt["uuid"])
    if not cut_at_once:
        assert "Hello" in json.dumps(attempt["end"]["data"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_before_the_head_cancels_the_provider_call(
    gateway, events, target, provider, stream
) -> None:
    provider.scripts[f"silent-{stream}"] = Script(headers=STREAM, pieces=[HANG])
    hang_up = asyncio.Event()
    call = asyncio.ensure_future(ask(gateway, target, CHAT, chat(f"silent-{stream}", stream=stream), None, hang_up))
    await eventually(events, lambda e: provider.of(f"silent-{stream}"))
    began = asyncio.get_running_loop().time()
    hang_up.set()
    await asyncio.to_thread(provider.waits_for_hang_up, f"silent-{stream}")
    assert asyncio.get_running_loop().time() - began < 0.5
    answer = await call
    assert answer.status == 0, answer.body
    await eventually(events, lambda e: e.attempts[0]["end"] and e.turns[0]["end"])
    assert status(events.attempts[0]) == "ERROR" and outcome(events.calls[0]) == "cancelled"
    assert outcome(events.turns[0]) == "cancelled"


async def test_a_client_that_hangs_up_in_a_stream_cancels_it_and_keeps_what_came(
    gateway, events, target, provider
) -> None:
    provider.scripts["long"] = Script(headers=STREAM, pieces=[*chat_stream("Hel", "lo")[:2], HANG])
    hang_up = asyncio.Event()

    def on_piece(answer: Any) -> None:
        if b"lo" in answer.body:
            asyncio.get_running_loop().call_later(0.05, hang_up.set)

    await ask(gateway, target, CHAT, chat("long", stream=True), None, hang_up, on_piece)
    await asyncio.to_thread(provider.waits_for_hang_up, "long")
    await eventually(events, lambda e: e.attempts[0]["end"] and e.calls[0]["end"])
    assert outcome(events.calls[0]) == "cancelled"
    assert "Hello" in json.dumps(events.attempts[0]["end"]["data"])


@pytest.mark.parametrize("ends", [False, True])
async def test_a_client_that_hangs_up_after_the_last_event_has_had_its_answer(
    gateway, events, target, provider, ends
) -> None:
    pieces = [b"".join(chat_stream(*"ABCDEFGH")), *([] if ends else [HANG])]
    provider.scripts["read"] = Script(headers=STREAM, pieces=pieces)
    hang_up = asyncio.Event()

    def on_piece(answer: Any) -> None:
        if b'"H"' in answer.body:
            hang_up.set()

    await ask(gateway, target, CHAT, chat("read", stream=True), None, hang_up, on_piece)
    if not ends:
        await asyncio.to_thread(provider.waits_for_hang_up, "read")
    await eventually(events, lambda e: e.turns[0]["end"] and e.attempts[0]["end"])
    assert (status(events.attempts[0]), outcome(events.calls[0]), outcome(events.turns[0])) == (
        "OK",
        "success",
        "success",
    )
    assert "ABCDEFGH" in json.dumps(events.attempts[0]["end"]["data"])


async def test_a_client_that_has_its_answer_may_go_before_relay_has_the_record(
    gateway, events, target, provider, monkeypatch
) -> None:
    monkeypatch.setattr("relayweb.gateway.streaming.HANG_UP_SECONDS", 0.0)
    pieces = chat_stream(*[f"w{i} " for i in range(200)])
    provider.scripts["quick"] = Script(headers=STREAM, pieces=[b"".join(pieces)])
    hang_up = asyncio.Event()

    def on_piece(answer: Any) -> None:
        if answer.ended:
            hang_up.set()

    await ask(gateway, target, CHAT, chat("quick", stream=True), None, hang_up, on_piece)
    await eventually(events, lambda e: e.turns[0]["end"] and e.attempts[0]["end"])
    (attempt,) = events.attempts
    assert status(attempt) == "OK" and len(events.marks("llm.chunk", attempt["uuid"])) == 202


async def test_an_sdk_that_ran_out_of_time_retries_the_same_call(gateway, events, target, provider) -> None:
    provider.scripts["late"] = Script(headers=STREAM, pieces=[HANG])
    hang_up = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, hang_up.set)
    await ask(gateway, target, CHAT, chat("late"), {"x-stainless-retry-count": "0"}, hang_up)
    del provider.scripts["late"]
    await ask(gateway, target, CHAT, chat("late"), {"x-stainless-retry-count": "1"})
    await eventually(events, lambda e: e.calls[0]["end"])
    assert len(events.calls) == 1 and outcome(events.calls[0]) == "success" and len(events.attempts) == 2


async def test_an_error_event_in_a_stream_fails_the_call(gateway, events, target, provider) -> None:
    pieces = [*chat_stream("A")[:1], *sse({"error": {"message": "overloaded", "type": "server_error"}})]
    provider.scripts["sick"] = Script(headers=STREAM, pieces=pieces)
    answer = await ask(gateway, target, CHAT, chat("sick", stream=True))
    assert answer.ended and answer.body == b"".join(pieces)
    await eventually(events, lambda e: e.calls[0]["end"])
    assert outcome(events.calls[0]) == "failed"


@pytest.mark.parametrize(
    ("path", "event", "kind", "message"),
    [
        (
            MESSAGES,
            b'event: error\ndata: {"type": "error",\ndata: "error": {"type": "overloaded_error", "message": "later"}}',
            "overloaded_error",
            "later",
        ),
        (CHAT, b'event: error\ndata: {"message": "quota", "code": "used_up"}', "used_up", "quota"),
        (RESPONSES, b'event: error\r\ndata: {"code": "rate_limit", "message": "slow"}', "rate_limit", "slow"),
        (
            RESPONSES,
            b'data: {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}',
            "server_error",
            "no",
        ),
    ],
)
async def test_b19_an_error_event_of_any_provider_fails_its_attempt(
    gateway, events, target, provider, path, event, kind, message
) -> None:
    provider.scripts["ill"] = Script(headers=STREAM, pieces=[event + b"\n\n"])
    body = {"model": "ill", "stream": True, "max_tokens": 5}
    body |= {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}]}
    answer = await ask(gateway, target, path, body)
    assert answer.body == event + b"\n\n"
    await eventually(events, lambda e: e.calls and e.calls[0]["end"])
    assert outcome(events.calls[0]) == "failed"
    [failed] = events.marks("relay.attempt_failed", events.attempts[0]["uuid"])
    assert (failed["data"]["error_type"], failed["data"]["message"]) == (kind, message)


async def test_a_client_that_hangs_up_at_an_error_event_was_failed(gateway, events, target, provider) -> None:
    pieces = [*chat_stream("A")[:1], *sse({"error": {"message": "overloaded", "type": "server_error"}}), HANG]
    provider.scripts["sick"] = Script(headers=STREAM, pieces=pieces)
    hang_up = asyncio.Event()

    def on_piece(answer: Any) -> None:
        if b"overloaded" in answer.body:
            hang_up.set()

    await ask(gateway, target, CHAT, chat("sick", stream=True), None, hang_up, on_piece)
    await eventually(events, lambda e: e.calls[0]["end"])
    assert outcome(events.calls[0]) == "failed"


async def test_a_provider_that_ignores_stream_gives_its_whole_answer(gateway, events, target, provider) -> None:
    provider.scripts["whole"] = Script(headers={"content-type": "application/json"}, body=chat_body("all"))
    answer = await ask(gateway, target, CHAT, chat("whole", stream=True))
    assert answer.body == chat_body("all") and answer.headers["content-length"] == str(len(chat_body("all")))
    await eventually(events, lambda e: e.calls[0]["end"])
    assert outcome(events.calls[0]) == "success"
    assert "all" in json.dumps(events.attempts[0]["end"]["data"])


async def test_a_provider_that_is_down_is_a_failed_attempt_and_a_502(gateway, events) -> None:
    down = Target("down", "http://127.0.0.1:9/v1", "chat_completions")
    answer = await ask(gateway, down, CHAT, chat(), {"x-stainless-retry-count": "0"})
    assert (
        answer.status == 502
        and "cannot reach upstream down at http://127.0.0.1:9/v1" in answer.json["error"]["message"]
    )
    anthropic = await ask(gateway, down, MESSAGES, chat())
    assert anthropic.json["type"] == "error" and anthropic.json["error"]["type"] == "api_error"
    await eventually(events, lambda e: len(e.attempts) == 2 and all(a["end"] for a in e.attempts))
    assert [status(a) for a in events.attempts] == ["ERROR", "ERROR"]
    assert events.marks("relay.attempt_failed")[0]["data"]["error_type"] == "ConnectError"


async def test_a_body_that_is_no_json_is_for_the_provider_to_judge(gateway, events, target, provider) -> None:
    answer = await ask(gateway, target, CHAT, b'{"model": "m", broken \xff')
    assert answer.status == 200
    assert provider.requests[-1].body == b'{"model": "m", broken \xff'
    await eventually(events, lambda e: e.attempts[0]["end"])
    assert "broken" in events.attempts[0]["data"]["content"]["unreadable_body"]


async def test_keys_and_tokens_are_not_on_record(gateway, events, target) -> None:
    headers = {
        "authorization": "Bearer sk-secret-key",
        "x-api-key": "sk-secret-key",
        "x-relay-token": "rw_gateway_secret",
    }
    await ask(gateway, target, CHAT, chat(stream=True), headers)
    await eventually(events, lambda e: e.turns[0]["end"])
    assert "secret" not in "".join(events.lines)


async def test_a_broken_registry_lets_calls_through(gateway, events, target, provider, monkeypatch) -> None:
    monkeypatch.setattr(gateway.registry, "begin", lambda *a: 1 / 0)
    assert (await ask(gateway, target, CHAT, chat())).body == chat_body()
    answer = await ask(gateway, target, CHAT, chat(stream=True))
    assert answer.body == b"".join(chat_stream("A", "B", "C", "D")) and answer.ended
    provider.fail["broken"] = 1
    assert (await ask(gateway, target, CHAT, chat("broken", stream=True))).status == 503
