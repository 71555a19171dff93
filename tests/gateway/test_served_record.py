"""From an SDK through the gateway to the API: what was called is what is shown."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import openai
import pytest

from tests.gateway.conftest import Gateway
from tests.gateway.provider import CUT, HANG, Provider, Script, chat_body, chat_chunk, chat_stream, sse

HI: list[Any] = [{"role": "user", "content": "hi"}]


def nodes(turn: dict[str, Any], role: str) -> list[dict[str, Any]]:
    def walk(node: dict[str, Any]) -> Any:
        yield node
        for child in node["children"]:
            yield from walk(child)

    roots = turn["tree"] if isinstance(turn["tree"], list) else [turn["tree"]]
    return [n for root in roots for n in walk(root) if n["role"] == role]


def test_a_retried_stream_is_one_call_with_two_attempts(web: Gateway, provider: Provider) -> None:
    provider.fail["shown"] = 1
    headers = {"x-relay-token": web.key, "x-relay-session-id": "shown"}
    with openai.OpenAI(base_url=f"{web.url}/gw/mock", api_key="sk-canary-key", default_headers=headers) as client:
        stream = client.chat.completions.create(model="shown", messages=HI, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == "ABCD"
    turn = web.turn_of("shown", lambda t: t["status"] == "ok" and t["chunks"] == 6)
    assert (turn["logical_calls"], turn["attempts"], turn["retries"], turn["chunks"]) == (1, 2, 1, 6)
    assert turn["profile"] == "gateway" and turn["providers"] == ["mock"]
    (call,), attempts = nodes(turn, "logical_call"), nodes(turn, "attempt")
    assert (call["status"], call["retries"], call["call_role"]) == ("ok", 1, "primary")
    assert [(a["status"], a["attempt"]) for a in attempts] == [("failed", 1), ("ok", 2)]
    assert attempts[0]["error"]["status"] == 503 and attempts[0]["error"]["message"] == "try again"
    assert attempts[1]["streaming"] and attempts[1]["finish_reason"] == "stop" and attempts[1]["ttft_us"] > 0
    request = web.api(f"scopes/{attempts[1]['uuid']}/request")["request"]
    assert request == json.loads(provider.of("shown")[1].body)
    texts = [c["text"] for c in web.api(f"scopes/{attempts[1]['uuid']}/chunks")["chunks"]]
    assert "".join(t or "" for t in texts) == "ABCD"
    assert "sk-canary" not in json.dumps(web.api(f"scopes/{attempts[1]['uuid']}/events"))


def test_a_secret_in_the_arguments_of_a_tool_is_masked_however_the_stream_is_cut(
    web: Gateway, provider: Provider
) -> None:
    def piece(arguments: str, **more: Any) -> dict[str, Any]:
        return chat_chunk({"tool_calls": [{"index": 0, **more, "function": {"name": "login", "arguments": arguments}}]})

    pieces = ['{"us', 'er":"x","pass', "word", '":"CANA', "RY9876", '5","n":1}']
    chunks = [piece("", id="a", type="function"), *map(piece, pieces), chat_chunk({}, "tool_calls")]
    script = Script(headers={"content-type": "text/event-stream"}, pieces=sse(*chunks, done=True))
    provider.scripts["shown-secret"] = script
    with stream_of(web, "shown-secret") as response:
        assert response.read() == b"".join(script.pieces)
    turn = web.turn_of("shown-secret", lambda t: t["chunks"] == 8)
    (attempt,) = nodes(turn, "attempt")
    assert json.loads(text_of(web, attempt)) == {"user": "x", "password": "[masked]", "n": 1}
    events = json.dumps(web.api(f"scopes/{attempt['uuid']}/events"))
    assert "masked" in events and "CANA" not in events and "RY9876" not in events


def test_the_demo_turn_shows_its_rewrite(web: Gateway) -> None:
    headers = {"x-relay-token": web.key, "x-relay-session-id": "demo-shown", "x-demo-pace": "0"}
    with openai.OpenAI(base_url=f"{web.url}/gw/demo", api_key="-", default_headers=headers) as client:
        answer = client.chat.completions.create(model="demo", messages=HI)
        assert "2.18.0" in (answer.choices[0].message.content or "")
    turn = web.turn_of("demo-shown", lambda t: t["status"] == "ok")
    assert turn["usage"]["reasoning_tokens"] > 0


def stream_of(web: Gateway, model: str) -> Any:
    headers = {"x-relay-token": web.key, "x-relay-session-id": model}
    body = {"model": model, "stream": True, "messages": HI}
    return httpx2.stream("POST", f"{web.url}/gw/mock/chat/completions", json=body, headers=headers)


def text_of(web: Gateway, attempt: dict[str, Any]) -> str:
    return "".join(c["text"] or "" for c in web.api(f"scopes/{attempt['uuid']}/chunks")["chunks"])


def test_a_cut_stream_shows_as_failed_with_its_partial_text(web: Gateway, provider: Provider) -> None:
    pieces = [*chat_stream("Hel", "lo")[:2], 0.05, CUT]
    provider.scripts["shown-cut"] = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    with pytest.raises(httpx2.RemoteProtocolError), stream_of(web, "shown-cut") as response:
        response.read()
    turn = web.turn_of("shown-cut", lambda t: t["status"] == "failed", seconds=20)
    (attempt,) = nodes(turn, "attempt")
    assert attempt["status"] == "failed" and text_of(web, attempt) == "Hello"
    assert web.api(f"scopes/{attempt['uuid']}/response")["partial"]
    assert "broke" in attempt["error"]["message"] or "closed" in attempt["error"]["message"]


def test_a_hung_up_stream_shows_as_cancelled_with_its_partial_text(web: Gateway, provider: Provider) -> None:
    pieces = [*chat_stream("Hel", "lo")[:2], HANG]
    provider.scripts["shown-gone"] = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    with stream_of(web, "shown-gone") as response:
        got = b""
        for piece in response.iter_raw():
            got += piece
            if b"lo" in got:
                break
    turn = web.turn_of("shown-gone", lambda t: t["status"] == "cancelled")
    (attempt,) = nodes(turn, "attempt")
    assert attempt["status"] == "cancelled" and text_of(web, attempt) == "Hello"


def test_a_provider_that_is_down_shows_as_failed_with_the_reason(web: Gateway) -> None:
    headers = {"x-relay-token": web.key, "x-relay-session-id": "shown-down"}
    body = {"model": "m", "messages": HI}
    assert httpx2.post(f"{web.url}/gw/down/chat/completions", json=body, headers=headers).status_code == 502
    turn = web.turn_of("shown-down", lambda t: t["attempts"] == 1)
    (attempt,) = nodes(turn, "attempt")
    assert attempt["status"] == "failed" and "connect" in attempt["error"]["message"].lower()


@pytest.mark.parametrize("content_type", [None, "application/json", "text/event-stream"])
def test_a_stream_is_known_by_its_beginning(web: Gateway, provider: Provider, content_type: str | None) -> None:
    model = f"shown-type-{content_type}"
    headers = {"content-type": content_type} if content_type else {}
    pieces = [b": hi\n", b"\nda", *[p if i else p.removeprefix(b"da") for i, p in enumerate(chat_stream("Hel", "lo"))]]
    provider.scripts[model] = Script(headers=headers, pieces=pieces)
    with stream_of(web, model) as response:
        assert response.read() == b"".join(pieces)
        assert response.headers.get("content-type") == content_type
    turn = web.turn_of(model, lambda t: t["status"] == "ok" and t["chunks"] == 4)
    (attempt,) = nodes(turn, "attempt")
    assert text_of(web, attempt) == "Hello" and attempt["finish_reason"] == "stop" and attempt["ttft_us"] > 0
    assert attempt["usage"]["total_tokens"] == 13 and attempt["flags"] == []


@pytest.mark.parametrize("body", [b"", b"da", b" ", b'{"a": 1}'])
def test_an_answer_that_only_might_have_been_a_stream_comes_whole(
    web: Gateway, provider: Provider, body: bytes
) -> None:
    provider.scripts["shown-whole"] = Script(
        headers={"content-type": "application/json"}, pieces=[body] if body else []
    )
    with stream_of(web, "shown-whole") as response:
        assert response.read() == body


@pytest.mark.parametrize("text", ["{not json}", "null", "[]", '"str"', "NaN", "[" * 20_000])
def test_data_that_cannot_be_read_stays_among_the_chunks(web: Gateway, provider: Provider, text: str) -> None:
    model = f"shown-unread-{text[:10]}"
    pieces = [f"data: {text}\n\n".encode(), *chat_stream("Hello")]
    provider.scripts[model] = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    with stream_of(web, model) as response:
        assert response.read() == b"".join(pieces)
    turn = web.turn_of(model, lambda t: t["status"] == "ok" and t["chunks"] == 4)
    (attempt,) = nodes(turn, "attempt")
    assert text_of(web, attempt) == text + "Hello" and attempt["flags"] == ["unreadable_chunk"]
    answer = web.api(f"scopes/{attempt['uuid']}/response")
    assert answer["response"]["choices"][0]["message"]["content"] == "Hello" and not answer["partial"]


def test_b19_an_error_event_of_plain_text_fails_its_attempt(web: Gateway, provider: Provider) -> None:
    pieces = [chat_stream("Hel")[0], b"event: error\ndata: boom plain text\n\n"]
    provider.scripts["shown-boom"] = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    with stream_of(web, "shown-boom") as response:
        assert response.read() == b"".join(pieces)
    turn = web.turn_of("shown-boom", lambda t: t["status"] == "failed", seconds=20)
    (attempt,) = nodes(turn, "attempt")
    assert attempt["status"] == "failed" and attempt["error"]["message"] == "boom plain text"
    assert web.api(f"scopes/{attempt['uuid']}/response")["partial"]


def test_a_stream_that_stops_without_its_end_says_so(web: Gateway, provider: Provider) -> None:
    provider.scripts["shown-clean"] = Script(
        headers={"content-type": "text/event-stream"}, pieces=chat_stream("Hel")[:1]
    )
    with stream_of(web, "shown-clean") as response:
        response.read()
    turn = web.turn_of("shown-clean", lambda t: t["status"] == "ok")
    (attempt,) = nodes(turn, "attempt")
    assert attempt["flags"] == ["unfinished_stream"] and attempt["finish_reason"] is None
    assert web.api(f"scopes/{attempt['uuid']}/response")["partial"]


@pytest.mark.parametrize("where", ["request", "answer", "error", "chunk"])
def test_b41_bytes_that_are_no_text_are_replaced_and_flagged(web: Gateway, provider: Provider, where: str) -> None:
    model = f"shown-bytes-{where}"
    bad = b"caf\xff\xfe \xe2\x9c\x85"
    pieces = [chat_stream("Hello")[0].replace(b"Hello", bad if where == "chunk" else b"Hello"), *chat_stream("x")[1:]]
    script = Script(headers={"content-type": "text/event-stream"}, pieces=pieces)
    if where in ("answer", "error"):
        body = chat_body("Hello") if where == "answer" else b'{"error": {"message": "Hello"}}'
        kind = {"content-type": "application/json"}
        script = Script(200 if where == "answer" else 400, kind, body.replace(b"Hello", bad))
    provider.scripts[model] = script
    for stream in (b"true", b"false") if where in ("answer", "error") else (b"true",):
        said = bad if where == "request" else "hi ✅".encode()
        content = b'{"model":"%s","stream":%s,"messages":[{"role":"user","content":"%s"}]}'
        content %= (model.encode(), stream, said)
        headers = {"x-relay-token": web.key, "x-relay-session-id": f"{model}-{stream!r}"}
        got = httpx2.post(f"{web.url}/gw/mock/chat/completions", content=content, headers=headers)
        assert provider.of(model)[-1].body == content
        if where != "request":  # which the scripted provider cannot read
            assert got.content == (script.body or b"".join(pieces))
        turn = web.turn_of(headers["x-relay-session-id"], lambda t: t["status"] != "running", seconds=20)
        (attempt,) = nodes(turn, "attempt")
        assert attempt["flags"] == ["replaced_text"], stream


def test_a_turn_that_a_rule_blocked_is_found_as_blocked(web: Gateway) -> None:
    rule = {"key": "no-canary", "match": {"model": "shown-blocked"}, "action": {"type": "block", "message": "No."}}
    done = web.run("intercepts", "import", "-", stdin=json.dumps({"intercepts": [rule]}).encode())
    assert done.returncode == 0, done.stderr
    headers = {"x-relay-token": web.key, "x-relay-session-id": "shown-blocked"}
    body = {"model": "shown-blocked", "messages": HI}
    deadline = time.monotonic() + 5  # until the rule is in force
    while httpx2.post(f"{web.url}/gw/mock/chat/completions", json=body, headers=headers).status_code != 403:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    turn = web.turn_of("shown-blocked", lambda t: t["status"] == "blocked", seconds=20)
    assert {n["status"] for n in (*nodes(turn, "logical_call"), *nodes(turn, "attempt"))} >= {"blocked"}
    for query in ("status:blocked", "is:blocked"):
        assert turn["uuid"] in [t["uuid"] for t in web.api(f"turns?q={query}")["turns"]]


def test_a_turn_whose_fallback_answered_is_ok_with_one_call(web: Gateway, provider: Provider) -> None:
    provider.fail["shown-err"] = 1
    headers = {"x-relay-token": web.key, "x-relay-session-id": "shown-fallback", "x-relay-turn-id": "t"}
    url = f"{web.url}/gw/mock/chat/completions"
    assert httpx2.post(url, json={"model": "shown-err", "messages": HI}, headers=headers).status_code == 503
    headers["x-relay-call-role"] = "fallback"
    assert httpx2.post(url, json={"model": "shown-other", "messages": HI}, headers=headers).status_code == 200
    turn = web.turn_of("shown-fallback", lambda t: t["status"] != "running")
    assert (turn["status"], turn["logical_calls"], turn["attempts"]) == ("ok", 1, 2)
    assert [n["status"] for n in nodes(turn, "attempt")] == ["failed", "ok"]
