"""`wrap` with the real openai and anthropic packages, and `turn`."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from adapters import intercepts, relay_runtime, turn, wrap
from tests.adapters.conftest import Events

CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
RESPONSE = {
    "id": "resp1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def event(value: Any, name: str | None = None) -> bytes:
    return ((f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n").encode()


def chat_chunk(text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


CHAT_SSE = [b": a comment\n\n", *(event(chat_chunk(t)) for t in ("hel", "lo")), b"data: [DONE]\n\n"]
MESSAGE_SSE = [
    event({"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}, "message_start"),
    event(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        "content_block_start",
    ),
    event({"type": "ping"}, "ping"),
    event(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
        "content_block_delta",
    ),
    event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
    event(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}, "message_delta"
    ),
    event({"type": "message_stop"}, "message_stop"),
]


class Provider:
    """Plays a script of responses (or exceptions) and keeps the requests."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.requests: list[httpx2.Request] = []
        self.closed = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, httpx2.Response):
            return step
        if isinstance(step, list):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=self.pieces(step))
        return httpx2.Response(200, json=step, headers={"x-request-id": "req_9"})

    def pieces(self, parts: list[bytes]) -> Any:
        provider = self

        class Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
            def __iter__(self) -> Any:
                yield from parts

            async def __aiter__(self) -> Any:
                for part in parts:
                    await asyncio.sleep(0)
                    yield part

            def close(self) -> None:
                provider.closed += 1

            async def aclose(self) -> None:
                provider.closed += 1

        return Pieces()


def failed(status: int = 500, **headers: str) -> httpx2.Response:
    error = {"error": {"type": "server_error", "message": "overloaded"}}
    return httpx2.Response(status, json=error, headers={"retry-after-ms": "1", "x-request-id": "req_1", **headers})


@pytest.fixture
def clients() -> Any:
    """Makes wrapped clients over a Provider and closes them."""
    made: list[Any] = []

    def make(kind: type[Any], provider: Provider, **options: Any) -> Any:
        asynchronous = kind.__name__.startswith("Async")
        http = httpx2.AsyncClient if asynchronous else httpx2.Client
        client = kind(api_key="k", http_client=http(transport=httpx2.MockTransport(provider)), **options)
        made.append((client, asynchronous))
        return wrap(client)

    yield make
    for client, asynchronous in made:
        if asynchronous:
            asyncio.run(client.close())
        else:
            client.close()


ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SYNC: list[tuple[str, type[Any], Any, Callable[[Any], Any]]] = [
    ("openai.chat_completions", openai.OpenAI, CHAT, lambda c: c.chat.completions.create(**ASK)),
    ("openai.responses", openai.OpenAI, RESPONSE, lambda c: c.responses.create(model="m", input="hi")),
    ("anthropic.messages", anthropic.Anthropic, MESSAGE, lambda c: c.messages.create(max_tokens=9, **ASK)),
]
ASYNC: list[tuple[str, type[Any], Any, Callable[[Any], Any]]] = [
    ("openai.chat_completions", openai.AsyncOpenAI, CHAT, SYNC[0][3]),
    ("openai.responses", openai.AsyncOpenAI, RESPONSE, SYNC[1][3]),
    ("anthropic.messages", anthropic.AsyncAnthropic, MESSAGE, SYNC[2][3]),
]


@pytest.mark.parametrize("name, kind, body, ask", SYNC, ids=[s[0] for s in SYNC])
def test_without_relay_a_client_does_what_it_did_unless_a_rule_fails_closed(
    name: str, kind: type[Any], body: Any, ask: Any, clients: Any, rules: Any
) -> None:
    relay_runtime.install_runtime(relay_runtime.NoopRelayRuntime(profile_key=relay_runtime.current_profile_key()))
    provider = Provider(body, body)
    client = clients(kind, provider)
    guard = {"key": "guard", "action": {"type": "set_parameters", "parameters": {"temperature": 0}}}
    with turn(session="s1"):
        ask(client)
        rules(guard)
        ask(client)
        rules({**guard, "on_error": "closed"})
        with pytest.raises((openai.APIError, anthropic.APIError)) as caught:
            ask(client)
    assert type(caught.value).__name__ == "PermissionDeniedError" and len(provider.requests) == 2
    assert provider.requests[0].content == provider.requests[1].content


@pytest.mark.parametrize("name, kind, body, ask", SYNC, ids=[s[0] for s in SYNC])
def test_a_call_of_a_sync_client_is_recorded(
    name: str, kind: type[Any], body: Any, ask: Any, clients: Any, events: Events
) -> None:
    provider = Provider(body, body)
    client = clients(kind, provider)
    outside = ask(client)
    with turn(session="s1"):
        inside = ask(client)
    assert inside == outside
    assert provider.requests[0].content == provider.requests[1].content
    assert [e["name"] for e in events.attempts()] == [name]
    assert events.attempts("end")[0]["data"] == body
    assert events.outcomes() == ["success"]


@pytest.mark.parametrize("name, kind, body, ask", ASYNC, ids=[s[0] for s in ASYNC])
async def test_a_call_of_an_async_client_is_recorded(
    name: str, kind: type[Any], body: Any, ask: Any, events: Events
) -> None:
    provider = Provider(failed(), body)
    async with (
        kind(api_key="k", http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(provider))) as plain,
        turn(session="s1"),
    ):
        answer = await ask(wrap(plain))
    assert answer.id == body["id"]
    assert [e["name"] for e in events.attempts()] == [name] * 2
    assert events.outcomes() == ["success"]


def test_the_sdks_own_retries_are_attempts_of_one_logical_call(clients: Any, events: Events) -> None:
    provider = Provider(failed(), httpx2.ConnectError("refused"), CHAT)
    client = clients(openai.OpenAI, provider, max_retries=3)
    with turn(session="s1"):
        assert client.chat.completions.create(**ASK).choices[0].message.content == "hello"
    assert len(events.starts("relay.logical_llm_call")) == 1
    assert [e["metadata"]["retry_count"] for e in events.attempts()] == [0, 1, 2]
    assert [e["metadata"]["otel.status_code"] for e in events.attempts("end")] == ["ERROR", "ERROR", "OK"]
    first, second = (m["data"] for m in events.marks("relay.attempt_failed"))
    assert (first["status"], first["error_type"], first["request_id"]) == (500, "server_error", "req_1")
    assert "overloaded" in first["body"] and first["retry_after"] == "1"
    assert (second["status"], second["error_type"]) == (None, "ConnectError")
    assert events.outcomes() == ["success"]


def test_an_error_stays_the_sdks_own_and_ends_the_call_failed(clients: Any, events: Events) -> None:
    client = clients(openai.OpenAI, Provider(failed(400)))
    with turn(session="s1"), pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**ASK)
    assert caught.value.response.json()["error"]["message"] == "overloaded"
    assert events.outcomes() == ["failed"]
    assert [e["data"] for e in events.ends("relay.turn")] == [{"outcome": "success"}]


def test_a_chat_stream_is_recorded_chunk_by_chunk(clients: Any, events: Events) -> None:
    provider = Provider(failed(429), CHAT_SSE)
    client = clients(openai.OpenAI, provider)
    with turn(session="s1"):
        parts = [c.choices[0].delta.content for c in client.chat.completions.create(stream=True, **ASK)]
    assert parts == ["hel", "lo"]
    assert provider.closed == 1
    assert len(events.attempts()) == 2
    recorded = [c for m in events.marks("relay.chunks") for c in m["data"]["chunks"]]
    assert recorded == [chat_chunk("hel"), chat_chunk("lo")]
    assert events.attempts("end")[1]["data"]["choices"][0]["message"]["content"] == "hello"
    assert events.outcomes() == ["success"]


def test_the_bytes_of_a_stream_reach_the_sdk_unchanged(clients: Any) -> None:
    client = clients(openai.OpenAI, Provider(CHAT_SSE))
    with (
        turn(session="s1"),
        client.chat.completions.with_streaming_response.create(stream=True, **ASK) as response,
    ):
        assert b"".join(response.iter_bytes()) == b"".join(CHAT_SSE)


def served(parts: list[bytes], provider: Provider, **headers: str) -> httpx2.Response:
    return httpx2.Response(200, headers=headers, stream=provider.pieces(parts))


MISNAMED: dict[str, Any] = {
    "called JSON": (CHAT_SSE, {"content-type": "application/json"}),
    "called nothing": (CHAT_SSE, {}),
    "in small pieces": ([bytes([b]) for b in b"\xef\xbb\xbf\n" + b"".join(CHAT_SSE)], {}),
    "compressed": ([gzip.compress(b"".join(CHAT_SSE))], {"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("name", MISNAMED)
def test_a_stream_is_one_by_how_it_begins(clients: Any, events: Events, name: str) -> None:
    parts, headers = MISNAMED[name]
    provider = Provider()
    provider.script = [served(parts, provider, **headers)]
    client = clients(openai.OpenAI, provider)
    with turn(session="s1"):
        got = [c.choices[0].delta.content for c in client.chat.completions.create(stream=True, **ASK)]
    assert got == ["hel", "lo"] and provider.closed == 1
    recorded = [c for m in events.marks("relay.chunks") for c in m["data"]["chunks"]]
    assert recorded == [chat_chunk("hel"), chat_chunk("lo")]


@pytest.mark.parametrize("name", MISNAMED)
async def test_so_it_is_for_an_asynchronous_client(events: Events, name: str) -> None:
    parts, headers = MISNAMED[name]
    provider = Provider()
    provider.script = [served(parts, provider, **headers)]
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(provider))
    async with openai.AsyncOpenAI(api_key="k", http_client=http) as client, turn(session="s1"):
        wrap(client)
        got = [c.choices[0].delta.content async for c in await client.chat.completions.create(stream=True, **ASK)]
    assert got == ["hel", "lo"] and provider.closed == 1
    recorded = [c for m in events.marks("relay.chunks") for c in m["data"]["chunks"]]
    assert recorded == [chat_chunk("hel"), chat_chunk("lo")]


@pytest.mark.parametrize("content", [json.dumps(CHAT).encode(), b"dat", b"", b"<html>"])
def test_what_begins_otherwise_is_no_stream(clients: Any, events: Events, content: bytes) -> None:
    provider = Provider()
    provider.script = [served([content[:3], content[3:]], provider, **{"content-type": "application/json"})]
    client = clients(openai.OpenAI, provider)
    with (
        turn(session="s1"),
        client.chat.completions.with_streaming_response.create(stream=True, **ASK) as response,
    ):
        assert response.read() == content
    assert not events.marks("relay.chunks") and events.attempts("end")[0]["metadata"]["otel.status_code"] == "OK"


def test_a_compressed_stream_is_decoded_once(clients: Any) -> None:
    packed = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream", "content-encoding": "gzip"},
        stream=Provider().pieces([gzip.compress(b"".join(CHAT_SSE))]),
    )
    client = clients(openai.OpenAI, Provider(packed))
    with turn(session="s1"):
        parts = [c.choices[0].delta.content for c in client.chat.completions.create(stream=True, **ASK)]
    assert parts == ["hel", "lo"]


def test_an_anthropic_stream_with_its_helper(clients: Any, events: Events) -> None:
    client = clients(anthropic.Anthropic, Provider(MESSAGE_SSE))
    with turn(session="s1"), client.messages.stream(max_tokens=9, **ASK) as stream:
        assert "".join(stream.text_stream) == "hello"
        final = stream.get_final_message()
    assert final.content[0].text == "hello"
    end = events.attempts("end")[0]["data"]
    assert (end["content"][0]["text"], end["stop_reason"], end["usage"]["output_tokens"]) == ("hello", "end_turn", 2)
    assert events.outcomes() == ["success"]


async def test_an_async_stream_closed_early_closes_the_provider(events: Events) -> None:
    provider = Provider(CHAT_SSE[:2] + [event(chat_chunk(str(i))) for i in range(500)])
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(provider))
    async with openai.AsyncOpenAI(api_key="k", http_client=http) as client, turn(session="s1"):
        stream = await wrap(client).chat.completions.create(stream=True, **ASK)
        async for _ in stream:
            break
        await stream.close()
        assert provider.closed == 1
    assert events.outcomes() == ["cancelled"]


async def test_an_async_anthropic_stream(events: Events) -> None:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(Provider(MESSAGE_SSE)))
    async with (
        anthropic.AsyncAnthropic(api_key="k", http_client=http) as client,
        turn(session="s1"),
        wrap(client).messages.stream(max_tokens=9, **ASK) as stream,
    ):
        assert (await stream.get_final_message()).content[0].text == "hello"
    assert events.outcomes() == ["success"]


def test_a_stream_that_breaks_is_the_sdks_error(clients: Any, events: Events) -> None:
    class Breaks(httpx2.SyncByteStream):
        def __iter__(self) -> Any:
            yield CHAT_SSE[1]
            raise httpx2.ReadError("cut")

    broken = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Breaks())
    client = clients(openai.OpenAI, Provider(broken))
    with turn(session="s1"):
        stream = client.chat.completions.create(stream=True, **ASK)
        assert next(stream).choices[0].delta.content == "hel"
        with pytest.raises(openai.APIConnectionError) as caught:
            next(stream)
    assert isinstance(caught.value.__cause__, httpx2.ReadError)
    assert events.outcomes() == ["failed"]


def test_a_complete_answer_where_a_stream_was_asked_for(clients: Any, events: Events) -> None:
    client = clients(openai.OpenAI, Provider(CHAT))
    with turn(session="s1"):
        raw = client.chat.completions.with_raw_response.create(stream=True, **ASK)
        assert raw.http_response.json() == CHAT
    assert events.attempts("end")[0]["data"] == CHAT


@pytest.fixture
def rules() -> Any:
    def put(*configs: dict[str, Any]) -> None:
        intercepts.swap(intercepts.RuleSet.parse(list(configs)))

    yield put
    intercepts.swap(intercepts.RuleSet())


def test_a_rule_rewrites_what_the_sdk_sends(clients: Any, rules: Any, events: Events) -> None:
    rules({"key": "cool", "action": {"type": "set_parameters", "parameters": {"temperature": 0}}})
    provider = Provider(CHAT)
    client = clients(openai.OpenAI, provider)
    with turn(session="s1"):
        client.chat.completions.create(extra_headers={"OpenAI-Beta": "x"}, extra_body={"unknown": [1]}, **ASK)
    [sent] = provider.requests
    assert json.loads(sent.content) == {**ASK, "unknown": [1], "temperature": 0}
    assert sent.headers["content-length"] == str(len(sent.content))
    assert sent.headers["openai-beta"] == "x"
    assert sent.headers["authorization"] == "Bearer k"
    assert not any(name.startswith("x-dynamo") for name in sent.headers)
    assert "Bearer" not in json.dumps(events.all())


def test_a_rule_may_take_a_header_of_the_sdk_away_and_send_what_utf8_cannot_hold(clients: Any, rules: Any) -> None:
    rules(
        {"key": "h", "action": {"type": "headers", "remove": ["User-Agent"]}},
        {"key": "t", "action": {"type": "set_parameters", "parameters": {"user": "\ud83d", "n": 2**70}}},
    )
    provider = Provider(CHAT)
    client = clients(openai.OpenAI, provider)
    with turn(session="s1"):
        client.chat.completions.create(**ASK)
    [sent] = provider.requests
    assert json.loads(sent.content) == {**ASK, "user": "\ud83d", "n": 2**70}
    assert not sent.headers.get("user-agent", "").startswith("OpenAI")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_rule_that_blocks_is_a_clear_error_of_the_sdk(
    clients: Any, rules: Any, events: Events, streaming: bool
) -> None:
    rules({"key": "budget", "action": {"type": "block", "message": "budget used up"}})
    provider = Provider()
    client = clients(openai.OpenAI, provider)
    with pytest.raises(openai.PermissionDeniedError, match="budget used up"), turn(session="s1"):
        client.chat.completions.create(stream=streaming, **ASK)
    assert provider.requests == []
    assert len(events.attempts()) == 1
    assert events.outcomes() == ["blocked"]
    (end,) = events.ends("relay.turn")
    assert end["data"]["outcome"] == "blocked"


def test_a_blocked_call_of_anthropics_client_is_blocked_too(clients: Any, rules: Any, events: Events) -> None:
    rules({"key": "budget", "action": {"type": "block", "message": "budget used up"}})
    client = clients(anthropic.Anthropic, Provider())
    with turn(session="s1"), pytest.raises(anthropic.PermissionDeniedError, match="budget used up"):
        client.messages.create(max_tokens=9, **ASK)
    assert events.outcomes() == ["blocked"]


def test_an_error_of_a_custom_transport_is_not_taken_for_a_refusal(clients: Any, events: Events) -> None:
    client = clients(openai.OpenAI, Provider(RuntimeError("proxy is broken")), max_retries=0)
    with turn(session="s1"), pytest.raises(RuntimeError, match="proxy is broken"):
        client.chat.completions.create(**ASK)


def test_copies_are_wrapped_and_wrapping_twice_changes_nothing(clients: Any, events: Events) -> None:
    client = wrap(clients(openai.OpenAI, Provider(failed(), CHAT)))
    with turn(session="s1"):
        wrap(client.with_options(max_retries=1)).chat.completions.create(**ASK)
    assert len(events.attempts()) == 2
    assert len(events.starts("relay.logical_llm_call")) == 1


def test_other_requests_and_calls_outside_a_turn_pass_by(clients: Any, events: Events) -> None:
    models = {"object": "list", "data": []}
    client = clients(openai.OpenAI, Provider(models, CHAT))
    with turn(session="s1"):
        client.models.list()
    client.chat.completions.create(**ASK)
    assert events.attempts() == []


async def test_a_sync_client_on_an_event_loop_goes_through_unrecorded(clients: Any, events: Events) -> None:
    client = clients(openai.OpenAI, Provider(CHAT, CHAT_SSE))
    async with turn(session="s1"):
        assert client.chat.completions.create(**ASK).id == "c1"
        assert len(list(client.chat.completions.create(stream=True, **ASK))) == 2
    assert events.attempts() == []


def test_something_else_cannot_be_wrapped() -> None:
    with pytest.raises(TypeError, match="openai or anthropic package, not dict"):
        wrap({})


def test_a_turn_ends_as_its_body_did(events: Events) -> None:
    with turn(session="s1") as first:
        assert relay_runtime.active_turn() is first
    with pytest.raises(ValueError, match="no"), turn(session="s1"):
        raise ValueError("no")
    with pytest.raises(KeyboardInterrupt), turn(session="s1"):
        raise KeyboardInterrupt
    with turn(session="s1") as last:
        last.outcome = "partial"
    assert [e["data"]["outcome"] for e in events.ends("relay.turn")] == ["success", "failed", "cancelled", "partial"]
    assert len(events.starts("relay.session")) == 1
    assert events.ends("relay.session") == []
    assert not relay_runtime.get_runtime().managed_execution_enabled()


def test_a_turn_without_a_session_has_one_of_its_own(events: Events) -> None:
    with turn():
        pass
    with turn():
        pass
    assert len(events.ends("relay.session")) == 2


async def test_turns_of_tasks_overlap(events: Events) -> None:
    async def agent(number: int) -> None:
        async with turn(session="shared", turn_id=f"t{number}") as mine:
            await asyncio.sleep(0.01 * (3 - number))
            assert relay_runtime.active_turn() is mine

    await asyncio.gather(*(agent(n) for n in range(3)))
    assert len(events.ends("relay.turn")) == 3
    assert len(events.starts("relay.session")) == 1


def test_a_sub_agent_is_recorded_under_the_turn_that_spawned_it(events: Events) -> None:
    with turn(session="parent") as spawning, turn(session="child", parent="parent"):
        pass
    child = events.starts("relay.session")[1]
    assert child["parent_uuid"] == spawning.scope.uuid
    assert child["metadata"]["nemo_relay_scope_role"] == "subagent"


def test_b19_an_error_event_of_plain_text_fails_its_attempt(clients: Any, events: Events) -> None:
    client = clients(
        openai.OpenAI, Provider([CHAT_SSE[0], b"event: error\ndata: boom plain text\n\n", b"data: null\n\n"])
    )
    with (
        turn(session="s1"),
        client.chat.completions.with_streaming_response.create(stream=True, **ASK) as response,
    ):
        assert b"boom plain text" in b"".join(response.iter_bytes())
    (failed,) = events.marks("relay.attempt_failed")
    assert failed["data"]["message"] == "boom plain text"
    assert [mark["data"] for mark in events.marks("relay.flags")] == [{"flags": ["unreadable_chunk"]}]
