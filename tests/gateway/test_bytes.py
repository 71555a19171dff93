"""What passes, passes byte for byte; what breaks off, breaks off; who hangs up, is hung up on."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from typing import Any
from unittest.mock import patch

import httpx2
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters import intercepts
from relayweb.gateway.app import Gateway
from relayweb.gateway.transport import Transports
from relayweb.gateway.upstreams import Target
from tests.gateway.conftest import Gateway as Web
from tests.gateway.events import recorded, status
from tests.gateway.inprocess import ask
from tests.gateway.provider import CUT, HANG, Provider, Script, chat_body, chat_stream

ODD_BODY = (
    b'{ "stream" : false,\r\n"z":1.0, "a":{"y":123456789012345678901234567890,"b":[1e2,"\\ud83d","\xc3\xa9"]},'
    b'"messages":[{"content":"hi","role":"user"}],"tools":null , "model":"MODEL"}\n'
)

NASTY = (
    b": hello\r\n\r\n"
    b'data: {"z":1,"a":{"id":"c","y":"\xc3\xa9\xc2\x85x"},"choices":[]}\n\n'
    b'data:{"choices":\r\ndata:[{"index":0,"delta":{"content":"A"}}]}\r\n\r\n'
    b'event: odd\rdata: {"n":123456789012345678901234567890}\r\r'
    b"data:\n\n"
    b"data: not json\n\n"
    b": keep-alive\n\n"
    b'id: 7\nretry: 10\ndata: {"s":"\\ud83d","f":1e400,"choices":[]}\n\n'
    b'data: {"bad":"\xff\xfe"}\n\n'
    b"data: [1,2]\n\n"
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
    b": trailing, without an end"
)


def cuts(data: bytes, seed: int) -> list[Any]:
    """`data` in pieces: whole, single bytes, or at random."""
    if seed == 0:
        return [data]
    if seed == 1:
        return [data[i : i + 1] for i in range(len(data))]
    rng = random.Random(seed)
    at = sorted(rng.sample(range(1, len(data)), 12))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


def post(web: Web, body: bytes, path: str = "mock/chat/completions", **more: Any) -> Any:
    headers = {"x-relay-token": web.key, "content-type": "application/json"}
    return httpx2.stream("POST", f"{web.url}/gw/{path}", content=body, headers=headers, timeout=20, **more)


def streaming(model: str) -> bytes:
    return json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": model}]}).encode()


def test_a_buffered_call_passes_byte_for_byte_both_ways(web: Web, provider: Provider) -> None:
    answer = (
        b'{ "b" : 1,\n "a":12345678901234567890123, "e":"\xc3\xa9", "choices":[{"message":{"content":"\\ud83d"}}] }\n'
    )
    provider.scripts["odd"] = Script(headers={"content-type": "application/json", "x-custom": "1"}, body=answer)
    body = ODD_BODY.replace(b"MODEL", b"odd")
    with post(web, body, "mock/chat/completions?a=%20b&c") as response:
        assert response.read() == answer
        assert response.headers["x-custom"] == "1" and response.headers["content-length"] == str(len(answer))
    (got,) = provider.of("odd")
    assert got.body == body and got.path == "/v1/chat/completions?a=%20b&c"


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_stream_passes_byte_for_byte_however_it_is_cut(web: Web, provider: Provider, seed: int) -> None:
    model = f"nasty-{seed}"
    provider.scripts[model] = Script(headers={"content-type": "text/event-stream"}, pieces=cuts(NASTY, seed))
    with post(web, streaming(model)) as response:
        assert response.read() == NASTY


def test_pieces_arrive_as_they_come(web: Web, provider: Provider) -> None:
    pieces = chat_stream("A", "B")
    spaced = [x for piece in pieces for x in (piece, 0.15)]
    provider.scripts["slow"] = Script(headers={"content-type": "text/event-stream"}, pieces=spaced)
    with post(web, streaming("slow")) as response:
        at = [time.monotonic() for _ in response.iter_raw()]
    assert len(at) == len(pieces)
    assert min(b - a for a, b in zip(at, at[1:], strict=False)) > 0.1


@pytest.mark.parametrize("after", [0, 2])
def test_a_cut_upstream_is_a_cut_connection(web: Web, provider: Provider, after: int) -> None:
    model = f"cut-{after}"
    pieces = chat_stream("A", "B", "C")[:after]
    provider.scripts[model] = Script(headers={"content-type": "text/event-stream"}, pieces=[*pieces, 0.05, CUT])
    got = b""
    with pytest.raises(httpx2.RemoteProtocolError), post(web, streaming(model)) as response:
        for piece in response.iter_raw():
            got += piece
    assert got == b"".join(pieces)


def test_the_sdk_raises_through_the_gateway_where_it_raises_without(web: Web, provider: Provider) -> None:
    provider.scripts["cut-sdk"] = Script(
        headers={"content-type": "text/event-stream"}, pieces=[*chat_stream("A")[:1], CUT]
    )
    errors = []
    for base_url in (provider.url + "/v1", f"{web.url}/gw/mock"):
        client = openai.OpenAI(
            base_url=base_url, api_key="k", default_headers={"x-relay-token": web.key}, max_retries=0
        )
        with client, pytest.raises(Exception) as raised:  # noqa: B017
            list(
                client.chat.completions.create(
                    model="cut-sdk", messages=[{"role": "user", "content": "x"}], stream=True
                )
            )
        errors.append(type(raised.value))
    assert errors[0] is errors[1]


def test_a_cut_pass_through_is_cut_as_well(web: Web, provider: Provider) -> None:
    provider.scripts["cut-other"] = Script(pieces=[b"half", 0.05, CUT])
    with pytest.raises(httpx2.RemoteProtocolError), post(web, streaming("cut-other"), "mock/embeddings") as response:
        response.read()


@pytest.mark.parametrize("path", ["mock/chat/completions", "mock/embeddings"])
@pytest.mark.parametrize("before_the_head", [True, False])
def test_hanging_up_hangs_up_on_the_provider(web: Web, provider: Provider, path: str, before_the_head: bool) -> None:
    model = f"hang-{path[5:8]}-{before_the_head}"
    pieces = [HANG] if before_the_head else [*chat_stream("A")[:1], HANG]
    provider.scripts[model] = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    if before_the_head:
        with pytest.raises(httpx2.ReadTimeout):
            headers = {"x-relay-token": web.key}
            httpx2.post(f"{web.url}/gw/{path}", content=streaming(model), headers=headers, timeout=0.3)
    else:
        with post(web, streaming(model)) as response:
            next(response.iter_raw())
    began = time.monotonic()
    assert provider.waits_for_hang_up(model) - began < 0.5


def test_a_body_that_is_too_large_is_refused_with_the_limit(web: Web) -> None:
    with post(web, b"x" * 2_000_001) as response:
        assert response.status_code == 413
        assert "2000000 bytes" in json.loads(response.read())["error"]["message"]


def test_redirects_are_not_followed(web: Web, provider: Provider) -> None:
    before = len(provider.requests)
    provider.scripts["moved"] = Script(307, {"location": provider.url + "/v1/elsewhere"}, b"")
    with post(web, streaming("moved")) as response:
        assert (response.status_code, response.headers["location"]) == (307, provider.url + "/v1/elsewhere")
    assert len(provider.requests) == before + 1


async def test_fifty_streams_at_once_keep_their_bytes_and_their_records(web: Web, provider: Provider) -> None:
    streams = {f"many-{i}": chat_stream(*[f"{i}-{j} " for j in range(20)]) for i in range(50)}
    for model, pieces in streams.items():
        spaced = [x for piece in pieces for x in (piece, 0.01)]
        provider.scripts[model] = Script(headers={"content-type": "text/event-stream"}, pieces=spaced)
    limits = httpx2.Limits(max_connections=60)
    headers = {"x-relay-token": web.key, "content-type": "application/json"}
    async with httpx2.AsyncClient(timeout=60, limits=limits) as client:

        async def one(model: str) -> bytes:
            more = {**headers, "x-relay-session-id": model}
            url = f"{web.url}/gw/mock/chat/completions"
            return (await client.post(url, content=streaming(model), headers=more)).content

        got = await asyncio.gather(*[one(model) for model in streams])
    for (model, pieces), content in zip(streams.items(), got, strict=True):
        assert content == b"".join(pieces), model
    for model in streams:
        turn = await asyncio.to_thread(web.turn_of, model, lambda t: t["status"] == "ok" and t["chunks"] == 22)
        assert (turn["attempts"], turn["usage"]["total_tokens"], turn["asked"]) == (1, 13, model)


@pytest.fixture
def foreign_stream_intercept() -> Any:
    """An intercept of the host that may change chunks; `change` says how."""
    import nemo_relay

    change: dict[str, Any] = {"chunk": lambda chunk: chunk}

    async def intercept(name: str, request: Any, context: Any, proceed: Any) -> Any:
        async def changed() -> Any:
            stream = await proceed(request)  # held: Relay 0.10.4 crashes over a stream that nobody holds
            async for chunk in stream:
                if (out := change["chunk"](chunk)) is not None:
                    yield out

        return changed()

    nemo_relay.intercepts.register_llm_stream_execution("tests.foreign", 5, intercept)
    yield change
    nemo_relay.intercepts.deregister_llm_stream_execution("tests.foreign")


@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_chunks_that_a_foreign_intercept_leaves_alone_keep_their_bytes(
    provider: Provider, foreign_stream_intercept: Any, seed: int
) -> None:
    provider.scripts["left"] = Script(headers={"content-type": "text/event-stream"}, pieces=cuts(NASTY, seed))
    gateway = Gateway()
    answer = await ask(gateway, Target("mock", provider.url, "chat_completions"), "chat/completions", streaming("left"))
    await gateway.close()
    assert answer.body == NASTY and answer.ended


async def test_a_cut_upstream_is_a_cut_beside_a_foreign_intercept_too(
    provider: Provider, foreign_stream_intercept: Any
) -> None:
    pieces = chat_stream("A", "B")[:2]
    headers = {"content-type": "text/event-stream"}
    provider.scripts["cut-beside"] = Script(headers=headers, pieces=[*pieces, 0.05, CUT])
    gateway = Gateway()
    target = Target("mock", provider.url, "chat_completions")
    answer = await ask(gateway, target, "chat/completions", streaming("cut-beside"))
    await gateway.close()
    assert type(answer.error).__name__ == "Cut" and not answer.ended
    assert answer.body == b"".join(pieces)


async def test_only_the_chunks_that_a_foreign_intercept_changes_are_written_anew(
    provider: Provider, foreign_stream_intercept: Any
) -> None:
    def change(chunk: Any) -> Any:
        text = json.dumps(chunk)
        return None if '"B"' in text else json.loads(text.replace('"A"', '"a"'))

    foreign_stream_intercept["chunk"] = change
    pieces = [b": one\n\n", *chat_stream("A", "B", "C")]
    pieces.insert(3, b": two\n\n")
    provider.scripts["changed"] = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    gateway = Gateway()
    target = Target("mock", provider.url, "chat_completions")
    answer = await ask(gateway, target, "chat/completions", streaming("changed"))
    await gateway.close()
    assert answer.ended
    events = answer.body.split(b"\n\n")
    assert json.loads(events[1].removeprefix(b"data: "))["choices"][0]["delta"] == {"content": "a"}
    kept = [e for e in events if b'"a"' not in e]
    assert b"\n\n".join(kept) == b"".join(pieces).replace(pieces[1], b"").replace(pieces[2], b"")


async def test_a_foreign_intercept_may_try_a_broken_stream_again(provider: Provider) -> None:
    import nemo_relay

    async def intercept(name: str, request: Any, context: Any, proceed: Any) -> Any:
        async def chunks() -> Any:
            first = await proceed(request)
            try:
                async for _ in first:
                    pass  # nothing is passed on of the one that breaks
            except Exception:
                second = await proceed(request)
                async for chunk in second:
                    yield chunk

        return chunks()

    headers = {"content-type": "text/event-stream"}
    provider.scripts["again"] = Script(headers=headers, pieces=[*chat_stream("A")[:1], 0.05, CUT])

    def mended(answer: Any) -> None:
        provider.scripts["again"] = Script(headers=headers, pieces=[b": two\n\n", *chat_stream("B")])

    nemo_relay.intercepts.register_llm_stream_execution("tests.again", 5, intercept)
    gateway = Gateway()
    try:
        target = Target("mock", provider.url, "chat_completions")
        answer = await ask(gateway, target, "chat/completions", streaming("again"), on_piece=mended)
    finally:
        nemo_relay.intercepts.deregister_llm_stream_execution("tests.again")
        await gateway.close()
    assert answer.error is None and answer.ended
    assert answer.body == b": two\n\n" + b"".join(chat_stream("B"))


@pytest.fixture
def rules() -> Any:
    """Puts rules in force for one test."""
    before = intercepts.current()

    def put(*actions: dict[str, Any]) -> None:
        configs = [{"key": f"rule-{i}", "revision": 3, "action": action} for i, action in enumerate(actions)]
        intercepts.swap(intercepts.RuleSet.parse(configs))

    yield put
    intercepts.swap(before)


async def call(provider: Provider, body: bytes, path: str = "chat/completions", **headers: str) -> Any:
    gateway = Gateway()
    answer = await ask(gateway, Target("mock", provider.url, "chat_completions"), path, body, headers)
    await gateway.close()
    return answer


@pytest.mark.parametrize("stream", [b"true", b"false"])
async def test_a_rewritten_request_is_what_the_rules_say_and_nothing_else(
    provider: Provider, rules: Any, stream: bytes
) -> None:
    rules(
        {"type": "set_parameters", "parameters": {"temperature": 0.5}},
        {"type": "headers", "set": {"x-team": "a"}, "remove": ["user-agent"]},
    )
    body = ODD_BODY.replace(b"MODEL", b"ruled-" + stream).replace(b": false", b": " + stream)
    await call(provider, body, **{"user-agent": "secret", "x-other": "1"})
    got = provider.of(f"ruled-{stream.decode()}")[0]
    expected = json.dumps({**json.loads(body), "temperature": 0.5}, separators=(",", ":"))
    assert got.body.decode() == expected
    assert got.header("x-team") == "a" and got.header("x-other") == "1" and got.header("user-agent") is None


@pytest.mark.parametrize("more", [{"match": {"model": ["other-*"]}}, {"mode": "shadow"}, {"enabled": False}])
async def test_rules_that_do_not_apply_leave_the_bytes_alone(provider: Provider, more: dict[str, Any]) -> None:
    action = {"type": "set_parameters", "parameters": {"temperature": 0.5}}
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "idle", "action": action, **more}]))
    try:
        body = ODD_BODY.replace(b"MODEL", b"unruled")
        await call(provider, body)
    finally:
        intercepts.swap(before)
    assert provider.of("unruled")[-1].body == body


class Scripted(httpx2.AsyncBaseTransport):
    """Answers with these pieces, without a network."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        pieces = self.pieces

        class Stream(httpx2.AsyncByteStream):
            async def __aiter__(self) -> Any:
                for piece in pieces:
                    yield piece
                    await asyncio.sleep(0)

        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream())


fragments = st.lists(
    st.sampled_from(
        [
            b'data: {"choices":[{"index":0,"delta":{"content":"A"}}]}\n\n',
            b'data: {"choices":[{"index":0,"delta":{"content":"A"}}]}\r\n\r\n',
            b'data:{"z":18446744073709551616,\ndata:"a":[1e2,null]}\n\n',
            b": comment\n\n",
            b"data: [DONE]\n\n",
            b"data: nonsense\r\r",
            b"event: error\ndata: {}\n\n",
            b"\xff\xfe\n",
            b"\n",
            b"\r",
            b"data",
        ]
    ),
    max_size=12,
)


@pytest.mark.parametrize("tee", [True, False])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fragments=fragments, size=st.integers(1, 80))
def test_any_stream_passes_byte_for_byte(tee: bool, fragments: list[bytes], size: int) -> None:
    data = b"".join(fragments)
    pieces = [data[i : i + size] for i in range(0, len(data), size)]

    async def play() -> Any:
        gateway = Gateway()
        gateway.transports = Transports(Scripted(pieces))
        target = Target("demo", "demo://relayweb/v1", "chat_completions")
        answer = await ask(gateway, target, "chat/completions", streaming("m"))
        await gateway.close()
        return answer

    with patch("relayweb.gateway.streaming.foreign_stream_intercepts", lambda: not tee):
        answer = asyncio.run(play())
    assert answer.body == data and answer.ended and answer.error is None


@pytest.mark.parametrize("stream", [True, False])
async def test_a_blocked_call_says_which_rule_in_the_clients_format(
    provider: Provider, rules: Any, stream: bool
) -> None:
    rules({"type": "block", "message": "not today"})
    before = len(provider.requests)
    body = json.dumps({"model": "m", "stream": stream, "messages": []}).encode()
    openai_answer = await call(provider, body)
    assert openai_answer.status == 403 and openai_answer.headers["x-should-retry"] == "false"
    assert openai_answer.json["error"]["message"] == "blocked by intercept rule-0 (revision 3): not today"
    anthropic_answer = await call(provider, body, "v1/messages")
    assert anthropic_answer.json["error"]["type"] == "permission_error"
    assert len(provider.requests) == before


@pytest.mark.parametrize("path", ["chat/completions", "v1/messages", "responses"])
async def test_a_canned_answer_is_a_whole_stream_or_body(provider: Provider, rules: Any, path: str) -> None:
    rules({"type": "respond", "text": "Hello from the rule"})
    before = len(provider.requests)
    for stream in (True, False):
        question = {"input": "x"} if path == "responses" else {"messages": [{"role": "user", "content": "x"}]}
        answer = await call(provider, json.dumps({"model": "m", "stream": stream, **question}).encode(), path)
        assert answer.status == 200 and answer.ended
        said = answer.body.decode()
        assert ("text/event-stream" in answer.headers["content-type"]) is stream
        if stream:
            pieces = re.findall(r'"(?:content|text|delta)":"([^"]*)"', said)
            assert "Hello" in "".join(pieces)
            assert ("data: [DONE]" in said) is (path == "chat/completions")
            assert ("event: " in said) is (path != "chat/completions")
        else:
            assert "Hello from the rule" in said
    assert len(provider.requests) == before


async def test_a_fault_of_a_rule_looks_like_the_providers(provider: Provider, rules: Any) -> None:
    rules({"type": "fault", "status": 429, "message": "slow", "retry_after": 2})
    answer = await call(provider, json.dumps({"model": "m", "messages": []}).encode())
    assert answer.status == 429 and answer.json["error"]["message"] == "slow"
    assert answer.headers["retry-after"] == "2"


async def test_a_rule_cuts_a_stream_after_its_chunks(provider: Provider, rules: Any) -> None:
    rules({"type": "fault", "cut_after": 2})
    async with recorded() as events:
        answer = await call(provider, streaming("m"))
        await events.flushed()
    assert type(answer.error).__name__ == "Cut" and not answer.ended
    assert answer.body == b"".join(chat_stream("A", "B", "C", "D")[:2])
    assert status(events.attempts[0]) == "ERROR"


async def test_a_response_that_a_foreign_intercept_changes_is_written_anew(provider: Provider) -> None:
    import nemo_relay

    async def intercept(name: str, request: Any, context: Any, proceed: Any) -> Any:
        response = await proceed(request)
        response["choices"][0]["message"]["content"] = "changed"
        return response

    nemo_relay.intercepts.register_llm_execution("tests.foreign", 5, intercept)
    try:
        answer = await call(provider, json.dumps({"model": "m", "messages": []}).encode())
    finally:
        nemo_relay.intercepts.deregister_llm_execution("tests.foreign")
    assert answer.json == json.loads(chat_body("changed"))
    assert list(answer.json) == list(json.loads(chat_body()))
    assert answer.headers["content-length"] == str(len(answer.body))


async def test_a_guardrail_of_the_host_refuses_in_the_clients_format(provider: Provider) -> None:
    import nemo_relay

    before = len(provider.requests)
    nemo_relay.guardrails.register_llm_conditional_execution("tests.foreign", 5, lambda request: "no secrets")
    try:
        for stream in (True, False):
            answer = await call(provider, json.dumps({"model": "m", "stream": stream, "messages": []}).encode())
            assert answer.status == 403 and "guardrail rejected: no secrets" in answer.json["error"]["message"]
    finally:
        nemo_relay.guardrails.deregister_llm_conditional_execution("tests.foreign")
    assert len(provider.requests) == before
