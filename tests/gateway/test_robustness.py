"""Calls go through whatever is broken on our side, and nothing leads where it must not."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import socket
import sqlite3
import threading
import time
import zlib
from typing import Any

import httpx2
import pytest
import zstandard
from django.db import OperationalError

from adapters import intercepts, relay_llm
from relayweb.gateway import transport, upstreams
from relayweb.gateway.app import Gateway, application
from relayweb.gateway.exchange import Unpacking
from relayweb.gateway.models import Upstream
from relayweb.gateway.upstreams import Directory, Target
from tests.gateway.conftest import Gateway as Web
from tests.gateway.events import outcome, recorded
from tests.gateway.inprocess import ask
from tests.gateway.provider import CUT, HANG, Provider, Script, chat_stream

BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
STREAM = {"content-type": "text/event-stream"}


class Broken:
    """Stands for the core's stream: breaks, or stands still, after some chunks."""

    final_response = None

    def __init__(self, feed: Any, after: int, hang: bool) -> None:
        self.feed, self.after, self.hang = feed.__aiter__(), after, hang

    def __aiter__(self) -> Broken:
        return self

    async def __anext__(self) -> Any:
        if self.after == 0:
            if self.hang:
                await asyncio.sleep(3600)
            raise RuntimeError("Relay is ill")
        self.after -= 1
        return await self.feed.__anext__()

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("hang", [False, True])
async def test_a_stream_outlives_a_relay_that_breaks_or_stands_still(
    gateway: Gateway, target: Target, provider: Provider, monkeypatch: pytest.MonkeyPatch, hang: bool
) -> None:
    async def stream_async(request: Any, factory: Any, **options: Any) -> Any:
        return Broken(await factory(request), 2, hang)

    monkeypatch.setattr(relay_llm, "stream_async", stream_async)
    monkeypatch.setattr("relayweb.gateway.streaming.WIND_UP_SECONDS", 0.2)
    pieces = chat_stream(*"ABCDEFGH")
    provider.scripts["ill"] = Script(headers=STREAM, pieces=[x for piece in pieces for x in (piece, 0.01)])
    answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "ill"})
    assert answer.body == b"".join(pieces) and answer.ended and answer.error is None
    assert gateway.registry.losses["streams"] == 1


async def test_a_stream_is_wholly_recorded_by_a_relay_that_is_far_behind(
    gateway: Gateway, target: Target, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Broken):
        async def __anext__(self) -> Any:
            await asyncio.sleep(0.1)
            return await self.feed.__anext__()

    async def stream_async(request: Any, factory: Any, **options: Any) -> Any:
        return Slow(await factory(request), 0, False)

    monkeypatch.setattr(relay_llm, "stream_async", stream_async)
    monkeypatch.setattr("relayweb.gateway.streaming.WIND_UP_SECONDS", 0.3)
    pieces = chat_stream(*"ABCDEFGH")
    provider.scripts["behind"] = Script(headers=STREAM, pieces=pieces)
    answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "behind"})
    assert answer.body == b"".join(pieces) and answer.ended
    assert gateway.registry.losses["streams"] == 0


async def test_a_relay_that_does_not_keep_up_loses_chunks_of_the_record_only(
    gateway: Gateway, target: Target, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relayweb.gateway.streaming.MOST_BEHIND", 3)
    pieces = chat_stream(*"ABCDEFGHIJ")
    provider.scripts["flood"] = Script(headers=STREAM, pieces=[b"".join(pieces)])
    answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "flood"})
    assert answer.body == b"".join(pieces) and answer.ended
    assert gateway.registry.losses["chunks"] > 0


async def test_without_relay_calls_go_through_and_are_counted(
    gateway: Gateway, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    import adapters.coordinator

    monkeypatch.setattr(adapters.coordinator.importlib, "import_module", lambda name: 1 / 0)
    monkeypatch.setattr(adapters.coordinator, "_runtimes", {})
    answer = await ask(gateway, target, "chat/completions", BODY)
    assert answer.body == b"".join(chat_stream("A", "B", "C", "D"))
    assert (await ask(gateway, target, "chat/completions", {**BODY, "stream": False})).status == 200
    assert gateway.registry.losses["calls"] == 2


async def test_a_name_that_leads_to_a_link_local_address_is_not_connected(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream:
        closed = False

        def get_extra_info(self, info: str) -> Any:
            return ("169.254.169.254", 80) if info == "server_addr" else None

        async def aclose(self) -> None:
            self.closed = True

    stream = Stream()

    class Network:
        async def connect_tcp(self, *args: Any) -> Any:
            return stream

    made = transport._network()
    pool: Any = made._pool
    pool._network_backend._inner = Network()
    gateway.transports._by_proxy[None] = made
    answer = await ask(gateway, Target("evil", "http://metadata.test", "chat_completions"), "chat/completions", BODY)
    assert (
        answer.status == 502
        and "169.254.169.254, an address which is never contacted" in answer.json["error"]["message"]
    )
    assert stream.closed


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "2852039166", "[64:ff9b::a9fe:a9fe]"])
async def test_a_proxy_is_not_asked_for_an_address_that_is_never_contacted(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    answer = await ask(gateway, Target("evil", f"http://{host}", "chat_completions"), "chat/completions", BODY)
    assert answer.status == 502 and "never contacted" in answer.json["error"]["message"]


def test_proxies_of_the_environment_are_used_but_never_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", "internal.test")
    assert transport.proxy_for("https", "api.openai.com") == "http://proxy.test:3128"
    assert transport.proxy_for("http", "api.openai.com") is None
    for host in ("internal.test", "localhost", "127.0.0.1", "::1"):
        assert transport.proxy_for("https", host) is None


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a_compressed_request_is_read_for_the_record_and_passed_as_it_is(
    gateway: Gateway, target: Target, provider: Provider, coding: str
) -> None:
    plain = json.dumps({**BODY, "model": f"packed-{coding}"}).encode()
    packed = gzip.compress(plain) if coding == "gzip" else zstandard.compress(plain)
    async with recorded() as events:
        await ask(gateway, target, "chat/completions", packed, {"content-encoding": coding})
        await events.flushed()
    assert provider.requests[-1].body == packed and provider.requests[-1].header("content-encoding") == coding
    assert events.attempts[0]["data"]["content"] == json.loads(plain)


async def test_a_compressed_request_that_a_rule_changes_goes_out_plain(
    gateway: Gateway, target: Target, provider: Provider
) -> None:
    action = {"type": "set_parameters", "parameters": {"temperature": 0.5}}
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "cool", "action": action}]))
    try:
        packed = gzip.compress(json.dumps({**BODY, "model": "packed"}).encode())
        await ask(gateway, target, "chat/completions", packed, {"content-encoding": "gzip"})
    finally:
        intercepts.swap(before)
    assert json.loads(provider.requests[-1].body) == {**BODY, "model": "packed", "temperature": 0.5}
    assert provider.requests[-1].header("content-encoding") is None


async def test_a_compressed_answer_passes_as_it_is_and_is_recorded_readably(
    gateway: Gateway, target: Target, provider: Provider
) -> None:
    packed = gzip.compress(b'{"choices":[{"message":{"content":"unpacked"}}]}')
    provider.scripts["zip"] = Script(
        headers={"content-encoding": "gzip", "content-type": "application/json"}, body=packed
    )
    async with recorded() as events:
        answer = await ask(gateway, target, "chat/completions", {"model": "zip", "messages": []})
        await events.flushed()
    assert answer.body == packed and answer.headers["content-encoding"] == "gzip"
    assert "unpacked" in json.dumps(events.attempts[0]["end"]["data"])


@pytest.mark.parametrize("broken", [False, True])
async def test_a_compressed_stream_passes_as_it_is_and_is_recorded_readably(
    gateway: Gateway, target: Target, provider: Provider, broken: bool
) -> None:
    packed = gzip.compress(b"".join(chat_stream("un", "packed")))
    packed = b"no gzip" + packed if broken else packed
    pieces = [packed[i : i + 40] for i in range(0, len(packed), 40)]
    provider.scripts["zipped"] = Script(headers={**STREAM, "content-encoding": "gzip"}, pieces=pieces)
    async with recorded() as events:
        answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "zipped"})
        await events.flushed()
    assert answer.body == packed and answer.headers["content-encoding"] == "gzip" and answer.ended
    assert broken or "unpacked" in json.dumps(events.attempts[0]["end"]["data"])


def test_an_upstream_made_while_the_server_runs_is_good_at_once(web: Web, provider: Provider) -> None:
    def status() -> int:
        return httpx2.get(f"{web.url}/gw/late/models", headers={"x-relay-token": web.key}).status_code

    assert status() == 404
    for base_url, expected in (("http://127.0.0.1:9", 502), (provider.url, 200)):
        web.run("upstream", "set", "late", "--base-url", base_url, "--api-mode", "chat_completions")
        assert status() == expected


def test_calls_go_through_while_the_database_cannot_be_written_and_are_recorded_after(web: Web) -> None:
    def call(model: str) -> httpx2.Response:
        headers = {"x-relay-token": web.key, "x-relay-session-id": model}
        return httpx2.post(f"{web.url}/gw/mock/chat/completions", json={**BODY, "model": model}, headers=headers)

    call("before-lock")
    lock = sqlite3.connect(web.home / "relayweb.sqlite3", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    try:
        began = time.monotonic()
        for i in range(5):
            assert call(f"locked-{i}").content == b"".join(chat_stream("A", "B", "C", "D"))
        assert time.monotonic() - began < 5
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    for i in range(5):
        assert web.turn_of(f"locked-{i}", lambda t: t["status"] == "ok", seconds=30)["chunks"] == 6


@pytest.mark.django_db(transaction=True)
async def test_upstreams_seen_before_are_used_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory()
    await Upstream.objects.aupdate_or_create(
        name="kept", defaults={"base_url": "http://host/v1", "api_mode": "chat_completions"}
    )
    assert await directory.find("kept") == Target("kept", "http://host/v1", "chat_completions")

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("disk I/O error")

    monkeypatch.setattr(upstreams.Upstream.objects, "filter", gone)
    directory.forget()
    assert (await directory.find("kept")) is not None
    assert await directory.find("never") is None
    directory._thread.submit(_close_connections).result()
    directory._thread.shutdown()


@pytest.mark.django_db(transaction=True)
async def test_a_database_that_hangs_holds_up_one_call_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory()
    await Upstream.objects.aupdate_or_create(
        name="kept", defaults={"base_url": "http://host/v1", "api_mode": "chat_completions"}
    )
    assert await directory.find("kept")
    answers = threading.Event()
    monkeypatch.setattr(upstreams, "FRESH_SECONDS", 0)
    monkeypatch.setattr(directory, "_read", lambda: answers.wait(10))
    began = time.monotonic()
    for _ in range(10):
        assert await directory.find("kept")
    assert time.monotonic() - began < 2 * upstreams.PATIENCE_SECONDS
    answers.set()
    directory._thread.submit(_close_connections).result()
    directory._thread.shutdown()


def _close_connections() -> None:
    from django.db import connections

    connections.close_all()


def test_a_client_that_stands_still_holds_the_provider_back_and_fills_no_memory(web: Web, provider: Provider) -> None:
    piece = chat_stream("x" * 60_000)[0]
    provider.scripts["flood"] = Script(headers=STREAM, pieces=[piece] * 4000)
    body = json.dumps({**BODY, "model": "flood"}).encode()
    head = f"POST /gw/mock/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-relay-token: {web.key}\r\n"
    url = httpx2.URL(web.url)
    before = web.memory_mb
    with socket.create_connection((url.host, url.port)) as client:
        client.sendall(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(2)
        grown = web.memory_mb - before
        assert provider.of("flood")
    assert grown < 100  # of 240 MB
    provider.waits_for_hang_up("flood")


def test_health_tells_what_went_through_unrecorded(web: Web) -> None:
    told = web.get("/healthz").json()["gateway"]
    assert told["lost_calls"] == told["lost_streams"] == told["lost_chunks"] == 0


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/gw/", 404, "no upstream ''; known are: anthropic, claude, demo"),
        ("/gw/mock", 200, ""),
        ("/gw/t/wrong/mock/v1/models", 401, "unknown, revoked or not for the gateway"),
    ],
)
def test_odd_paths_have_clear_answers(web: Web, path: str, status: int, text: str) -> None:
    answer = httpx2.get(web.url + path, headers={"x-relay-token": web.key})
    assert answer.status_code == status and text in answer.text


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "trace"])
def test_no_tunnel_and_no_echo_of_keys_is_asked_for(web: Web, provider: Provider, method: str) -> None:
    before = len(provider.requests)
    answer = httpx2.request(method, f"{web.url}/gw/mock/v1/models", headers={"x-relay-token": web.key})
    assert answer.status_code == 405 and len(provider.requests) == before


def test_a_path_above_the_base_url_and_our_token_in_a_query_go_nowhere(web: Web, provider: Provider) -> None:
    before = len(provider.requests)
    climbing = httpx2.get(f"{web.url}/gw/mock/..%2f..%2fadmin", headers={"x-relay-token": web.key})
    assert climbing.status_code == 400 and "leads above" in climbing.text and len(provider.requests) == before
    httpx2.get(f"{web.url}/gw/mock/v1/models?after=x&token={web.key}", headers={"x-relay-token": web.key})
    assert provider.requests[-1].path.endswith("/models?after=x")


def test_without_a_token_the_answer_says_how_to_get_one(web: Web) -> None:
    answer = httpx2.post(f"{web.url}/gw/mock/v1/messages", content=b"{}")
    assert answer.status_code == 401 and answer.json()["type"] == "error"
    assert "relayweb token create --scope gateway" in answer.json()["error"]["message"]
    reader = httpx2.get(f"{web.url}/gw/mock/models", headers={"x-relay-token": web.read_key})
    assert reader.status_code == 401


async def test_a_websocket_is_refused() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "websocket", "path": "/gw/openai/v1/realtime", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_many_calls_leave_nothing_behind(gateway: Gateway, target: Target, provider: Provider) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def some(number: int) -> None:
        for i in range(10):
            hang_up = asyncio.Event()
            model = ("m", "cut-off", "gone")[i % 3]
            headers = {"x-relay-session-id": f"{number}-{i}"}
            body = {**BODY, "model": model, "stream": i % 2 == 0}
            if model == "gone":
                asyncio.get_running_loop().call_later(0.03, hang_up.set)
            await ask(gateway, target, "chat/completions", body, headers, hang_up)

    provider.scripts["cut-off"] = Script(headers=STREAM, pieces=[*chat_stream("A")[:1], CUT])
    provider.scripts["gone"] = Script(headers=STREAM, pieces=[*chat_stream("A")[:1], HANG])
    await some(0)
    tasks, files = len(asyncio.all_tasks()), open_files()
    await asyncio.gather(*[some(number) for number in range(1, 9)])
    for _ in range(1_000):  # until what winds up has done so
        if len(asyncio.all_tasks()) <= tasks:
            break
        await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) <= tasks
    assert open_files() <= files + 16  # idle connections to the provider
    assert gateway.registry.counts()["calls"] == 0


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_in_a_stream_is_not_unpacked_to_its_end(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayweb.conf.MAX_BODY", 1_000_000)
    packer = zlib.compressobj(wbits=31) if coding == "gzip" else zstandard.ZstdCompressor().compressobj()
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(500)) + packer.flush()
    unpack = Unpacking(coding)
    assert sum(len(unpack(bomb[at : at + 65_536])) for at in range(0, len(bomb), 65_536)) < 20_000_000
    assert unpack(bomb[:100]) == b""


async def test_an_event_without_end_passes_and_fills_no_memory(
    gateway: Gateway, target: Target, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relayweb.conf.MAX_BODY", 10_000)
    pieces = [chat_stream("A")[0], *[b"data: " + b"x" * 5_000] * 5, b"\n\n", *chat_stream("B")]
    provider.scripts["endless"] = Script(headers=STREAM, pieces=pieces)
    answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "endless"})
    assert answer.body == b"".join(pieces) and answer.ended
    assert gateway.registry.losses["chunks"] == 1


async def test_an_answer_too_long_to_be_held_is_an_error_that_says_so(
    gateway: Gateway, target: Target, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relayweb.gateway.transport.LARGEST", 10_000)
    provider.scripts["huge"] = Script(headers={"content-type": "application/json"}, pieces=[b"x" * 5_000] * 5)
    answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "huge", "stream": False})
    assert answer.status == 502 and "longer than 10000 bytes" in answer.json["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_a_provider_sends_is_a_page_of_ours(
    gateway: Gateway, target: Target, provider: Provider, stream: bool
) -> None:
    headers = {
        "content-type": "text/html",
        "set-cookie": "sessionid=planted",
        "content-security-policy": "script-src *",
        "clear-site-data": "*",
    }
    provider.scripts["page"] = Script(headers=headers, pieces=[b"<script>steal()</script>"])
    answer = await ask(gateway, target, "chat/completions", {**BODY, "model": "page", "stream": stream})
    assert answer.body == b"<script>steal()</script>"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not {"set-cookie", "clear-site-data"} & set(answer.headers)


@pytest.mark.parametrize("path", ["v1/chat/%63ompletions", "V1/Responses/", "v1//messages;a=b"])
async def test_a_rule_blocks_an_endpoint_however_it_is_written(
    gateway: Gateway, target: Target, provider: Provider, path: str
) -> None:
    asked = len(provider.requests)
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "no", "action": {"type": "block", "message": "No."}}]))
    try:
        async with recorded() as events:
            answer = await ask(gateway, target, path, BODY)
            await events.flushed()
    finally:
        intercepts.swap(before)
    assert answer.status == 403 and "blocked by intercept no" in answer.body.decode()
    assert len(provider.requests) == asked
    assert events.attempts[-1]["end"]["metadata"]["exception.type"] == "CallBlocked"
    assert outcome(events.calls[0]) == "blocked"


def test_a_base_url_that_is_the_endpoint_itself_is_recorded(web: Web, provider: Provider) -> None:
    web.run(
        "upstream",
        "set",
        "whole",
        "--base-url",
        f"{provider.url}/v1/chat/completions",
        "--api-mode",
        "chat_completions",
    )
    answer = httpx2.post(
        f"{web.url}/gw/whole", json=BODY, headers={"x-relay-token": web.key, "x-relay-session-id": "whole"}
    )
    assert answer.status_code == 200 and provider.requests[-1].path == "/v1/chat/completions"
    assert web.turn_of("whole", lambda turn: turn["status"] != "running")


@pytest.mark.parametrize(
    ("fault", "stream", "raised", "sent"),
    [
        ({"status": 503}, False, "CallFault", 0),
        ({"cut_after": 1}, False, "CallCut", 0),
        ({"cut_after": 0}, True, "CallCut", 0),
        ({"cut_after": 1}, True, "CallCut", 1),
    ],
)
async def test_the_record_says_of_a_fault_what_kept_the_request_back(
    gateway: Gateway, target: Target, provider: Provider, fault: dict[str, int], stream: bool, raised: str, sent: int
) -> None:
    asked = len(provider.requests)
    before = intercepts.swap(intercepts.RuleSet.parse([{"key": "f", "action": {"type": "fault", **fault}}]))
    try:
        async with recorded() as events:
            await ask(gateway, target, "chat/completions", {**BODY, "stream": stream})
            await events.flushed()
    finally:
        intercepts.swap(before)
    end = events.attempts[0]["end"]
    assert end["metadata"]["exception.type"] == raised
    assert len(events.marks("llm.chunk", events.attempts[0]["uuid"])) == sent == len(provider.requests) - asked


@pytest.mark.parametrize("path", ["v1/chat/%63ompletions", "v1//Chat/Completions/;x=1"])
def test_a_call_to_an_oddly_written_endpoint_is_recorded_and_goes_out_as_it_came(
    web: Web, provider: Provider, path: str
) -> None:
    session = f"odd-{len(path)}"
    client = http.client.HTTPConnection(web.url.removeprefix("http://"), timeout=20)  # it does not mend paths
    body = b"\xef\xbb\xbf" + json.dumps({**BODY, "stream": False}).encode()
    client.request("POST", f"/gw/t/{web.key}/mock/{path}", body, {"x-relay-session-id": session})
    assert client.getresponse().status == 200
    client.close()
    assert provider.requests[-1].path == f"/{path}" and provider.requests[-1].body == body
    assert web.turn_of(session, lambda turn: turn["status"] == "ok")
