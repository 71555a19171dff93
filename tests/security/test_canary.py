"""Secrets are planted in every place a client can put one, and looked for in every place something comes out."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import websockets.sync.client as websocket

from tests.gateway.provider import Provider, Script
from tests.recording import streams
from tests.served import Served

KEY = "sk-CANARYprovider0123456789"
NAMED = [("authorization", "CANARY01"), ("X-API-Key", "CANARY02"), ("set-cookie", "CANARY03"), ("password", "CANARY04")]
BINARY = base64.b64encode(b"a secret of bytes")
LOOKS = ["Bearer CANARY10abcdef", "sk-CANARY11abcdef", "AKIACANARY12ABCDEF", "eyJCANARY13.eyJCANARY14.CANARY15"]


def planted(extra: str) -> dict[str, Any]:
    """An object full of secrets, also long enough to be stored apart from its event."""
    return {**dict(NAMED), "OPENAI_API_KEY": "CANARY05", "deep": [{"a": {"cookie": ["CANARY06", 7]}}], "text": extra}


def events(session: str) -> list[dict[str, Any]]:
    """One turn with a call, secrets in all its members but the messages."""
    turn, call = streams.uid(), streams.uid()
    loose = " and ".join(LOOKS)
    sinks = [{"headers": {"x-any": "CANARY20"}, "bearer_token": "CANARY21", "headers_json": {"x": "CANARY22"}}]
    config = {"components": [{"config": {"atof": {"sinks": sinks, "headers": {"x-other": "CANARY23"}}}}]}
    data = {
        "content": {"model": "m", "messages": [{"role": "user", "content": "y" * 3000}], "extra": planted("x")},
        "headers": {**dict(NAMED), "x-custom": loose},
    }
    role = {"nemo_relay_scope_role": "turn", "session_id": session, "plugin_config": config, "note": f"{loose} " * 40}
    failed = {**streams.FAILED, "otel.status_description": f"given {loose}", "exception.message": loose}
    error = {"status": 401, "error_type": "auth", "message": loose, "body": {"error": {"message": loose}}}
    rewrite = {
        "key": "k",
        "revision": 1,
        "result": "hit",
        "patch": [{"op": "add", "path": "/x", "value": planted("x")}],
        "headers": {"authorization": "CANARY30"},
    }
    return [
        streams.scope("start", turn, None, 1, name="agent.turn", category="agent", metadata=role),
        streams.scope("start", call, turn, 2, category="llm", data=data, profile=planted("p"), metadata=planted(loose)),
        streams.mark("relay.rewrite", call, 3, rewrite),
        streams.chunk(call, 0, 4, value=planted("c"), error={"message": loose}),
        streams.mark("relay.chunks", call, 5, {"first": 0, "chunks": [planted("c")]}),
        streams.mark("relay.attempt_failed", call, 6, error),
        streams.mark("exception", call, 6, {"exception.message": loose, "error": {"message": loose}}),
        streams.scope("end", call, turn, 7, category="llm", data={"error": {"message": loose}}, metadata=failed),
        streams.scope("end", turn, None, 8, name="agent.turn", category="agent", metadata=failed),
    ]


def trace(token: str) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "http.request.header.authorization": "Bearer CANARY40abcdef",
        "http.request.header.x-api-key": "CANARY41",
        "url.full": f"http://relay/gw/t/{token}/openai",
        "error.message": " and ".join(LOOKS),
    }
    listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    texts = [{"stringValue": text} for text in LOOKS]
    listed += [
        {"key": "http.request.header.cookie", "value": {"arrayValue": {"values": [{"stringValue": "a=CANARY43"}]}}},
        {"key": "error.details", "value": {"arrayValue": {"values": texts}}},
        {"key": "metadata", "value": {"kvlistValue": {"values": [{"key": "api_key", "value": texts[0]}]}}},
        {"key": "app.password", "value": {"bytesValue": BINARY.decode()}},
    ]
    exception = [{"key": "exception.message", "value": {"stringValue": " and ".join(LOOKS)}}]
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "chat m",
        "startTimeUnixNano": "1767225600000000000",
        "endTimeUnixNano": "1767225601000000000",
        "attributes": listed,
        "links": [{"traceId": "1af7651916cd43dd8448eb211c80319c", "spanId": "c7ad6b7169203331", "attributes": listed}],
        "events": [{"name": "exception", "timeUnixNano": "1767225600500000000", "attributes": exception}],
        "status": {"code": 2, "message": " and ".join(LOOKS)},
    }
    resource = {"attributes": [{"key": "api_key", "value": {"stringValue": "CANARY42"}}]}
    return {
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": {"name": "s", "attributes": listed}, "spans": [span]}]}
        ]
    }


def log(token: str) -> dict[str, Any]:
    """The same in the log of a program."""
    listed = trace(token)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    record = {"timeUnixNano": "1767225600000000000", "body": {"stringValue": " and ".join(LOOKS)}, "attributes": listed}
    named = {**record, "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "eventName": "app"}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, named]}]}]}


class Scene:
    """A served installation, what came out of it, and the tokens that must not."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.tokens = {scope: served.token(scope) for scope in ("ingest", "gateway", "read")}
        self.out: dict[str, bytes] = {}

    def keep(self, place: str, data: bytes | str) -> None:
        self.out[place] = self.out.get(place, b"") + (data.encode() if isinstance(data, str) else data)

    def get(self, path: str) -> Any:
        answer = self.served.get(path, authorization=f"Bearer {self.tokens['read']}")
        self.keep(path, answer.content)
        return answer.json() if "json" in answer.headers["content-type"] else None


def send(scene: Scene) -> None:
    """Everything in, by every door."""
    url, ingest = scene.served.url, scene.tokens["ingest"]
    lines = [json.dumps(event).encode() + b"\n" for event in events("posted")]
    post = {"content": gzip.compress(b"".join(lines)), "headers": {"content-encoding": "gzip"}}
    scene.keep("post", httpx2.post(f"{url}/ingest/atof?token={ingest}", **post).content)
    with websocket.connect(f"{url.replace('http', 'ws')}/ingest/atof/ws?token={ingest}") as socket:
        for event in events("socket"):
            socket.send(json.dumps(event))
    bearer = {"authorization": f"Bearer {ingest}"}
    scene.keep("otlp", httpx2.post(f"{url}/v1/traces", json=trace(scene.tokens["gateway"]), headers=bearer).content)
    scene.keep("logs", httpx2.post(f"{url}/v1/logs", json=log(scene.tokens["gateway"]), headers=bearer).content)
    imported = b"".join(json.dumps(event).encode() + b"\n" for event in events("imported"))
    done = scene.served.run("import", "-", stdin=imported)
    scene.keep("import", done.stdout + done.stderr)


def call(scene: Scene, provider: Provider) -> None:
    """Calls through the gateway, buffered, streamed and passed through; the provider repeats the key in its error."""
    wrong = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}", "type": "auth"}}).encode()
    provider.scripts["wrong"] = Script(401, {"content-type": "application/json", "x-echo": KEY}, wrong)
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-api-key": "CANARY50",
        "cookie": "a=CANARY51",
        "x-relay-session-id": "gw",
    }
    base = f"{scene.served.url}/gw/t/{scene.tokens['gateway']}/mock/v1"
    down = f"{scene.served.url}/gw/t/{scene.tokens['gateway']}/down/v1"
    for model in ("m", "wrong"):
        for stream in (False, True):
            body = {
                "model": model,
                "stream": stream,
                "messages": [{"role": "user", "content": "hi"}],
                "api_key": "CANARY52",
            }
            httpx2.post(f"{base}/chat/completions?key=CANARY53", json=body, headers=headers)
            httpx2.post(f"{down}/chat/completions?key=CANARY54", json=body, headers=headers)
    httpx2.get(f"{base}/models?key=CANARY55", headers=headers)
    scene.keep("down", httpx2.get(f"{down}/models?key=CANARY56", headers=headers).content)
    httpx2.get(f"{scene.served.url}/gw/down/v1/models", headers={**headers, "x-relay-token": scene.tokens["gateway"]})


def look(scene: Scene, browser: httpx2.Client) -> None:
    """Everything out: API, pages, exports, health, metrics."""
    for path in ("/healthz", "/metrics", "/api/v1/health", "/api/v1/ruleset", "/api/v1/sessions"):
        scene.get(path)
    turns = scene.get("/api/v1/turns?limit=500")["turns"]
    assert len(turns) >= 5
    for turn in turns:
        tree = scene.get(f"/api/v1/turns/{turn['uuid']}")["tree"]
        for uuid in re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", json.dumps(tree)):
            for part in ("", "/request", "/response", "/chunks", "/rewrites", "/events"):
                scene.get(f"/api/v1/scopes/{uuid}{part}")
            for tab in ("overview", "request", "response", "rewrites", "chunks", "raw"):
                scene.keep("page", browser.get(f"/turns/{turn['uuid']}/scopes/{uuid}/?tab={tab}").content)
        for part in ("", "frame/", "chunks/", "peek/", "transcript/"):
            scene.keep("page", browser.get(f"/turns/{turn['uuid']}/{part}").content)
        with websocket.connect(
            f"{scene.served.url.replace('http', 'ws')}/live/turns/{turn['uuid']}/?token={scene.tokens['read']}"
        ) as live:
            live.send('{"cursor": 0}')
            scene.keep("frames", str(live.recv(timeout=10)))
    for path in ("/", "/sessions/", "/events/", "/statistics/", "/?q=masked"):
        page = browser.get(path)
        assert page.status_code == 200, path
        scene.keep("page", page.content)
    for form in ("atof", "otlp", "atif"):
        done = scene.served.run("export", "--format", form)
        assert done.returncode == 0, done.stderr
        scene.keep(f"export {form}", done.stdout + done.stderr)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    provider = Provider()
    served = Served(tmp_path_factory.mktemp("home"))
    for name, base in (("mock", provider.url), ("down", "http://127.0.0.1:9")):
        served.run("upstream", "set", name, "--base-url", base, "--api-mode", "chat_completions")
    scene = Scene(served)
    served.start()
    link = served.run("login").stdout.decode().split()[-1]
    scene.tokens["login link"] = link.rstrip("/").rpartition("/")[2]
    with httpx2.Client(base_url=served.url, follow_redirects=True, timeout=60) as browser:
        browser.get(link)
        with websocket.connect(f"{served.url.replace('http', 'ws')}/live/turns/?token={scene.tokens['read']}") as live:
            live.send('{"cursor": 0}')
            send(scene)
            call(scene, provider)
            for _ in range(20):
                frame = str(live.recv(timeout=10))
                scene.keep("list frames", frame)
                live.send(json.dumps({"ack": json.loads(frame)["cursor"]}))
                if "gw" in frame:
                    break
        time.sleep(1)
        form = browser.get("/start/").text
        csrf = re.search(r'csrfmiddlewaretoken" value="([^"]+)', form)[1]
        made = browser.post(
            "/start/token/",
            data={"scope": "ingest", "csrfmiddlewaretoken": csrf},
            headers={"referer": served.url + "/"},
        )
        scene.tokens["start page"] = re.search(r"rw_ingest_[\w-]{43}", made.text)[0]
        look(scene, browser)
    assert served.stop() == 0
    provider.close()
    connection = sqlite3.connect(served.home / "relayweb.sqlite3")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    yield scene


def files(scene: Scene) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in scene.served.home.rglob("*") if path.is_file()}


def canaries(data: bytes) -> set[bytes]:
    written = (BINARY, base64.b64decode(BINARY), base64.b64decode(BINARY).hex().encode())
    return set(re.findall(rb"(?i)CANARY\w{2,8}", data)) | {form for form in written if form in data}


def test_what_was_sent_is_on_record(scene: Scene) -> None:
    exported = scene.out["export atof"]
    assert exported.count(b"[masked]") > 100
    assert b"y" * 3000 in exported and b'"hi"' in exported
    assert {"relayweb.sqlite3", "serve.log"} <= files(scene).keys()


def test_no_answer_frame_page_or_export_holds_a_secret(scene: Scene) -> None:
    assert not {place: found for place, data in scene.out.items() if (found := canaries(data))}


def test_no_file_holds_a_secret(scene: Scene) -> None:
    assert not {name: found for name, data in files(scene).items() if (found := canaries(data))}


def test_no_table_holds_a_secret(scene: Scene) -> None:
    """Every value of every table, which the file's bytes may hold in pieces."""
    connection = sqlite3.connect(scene.served.home / "relayweb.sqlite3")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = set()
    for table in tables:
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            found |= {(table, one) for value in row for one in canaries(bytes(str(value), "utf-8", "replace"))}
            found |= {(table, one) for value in row if isinstance(value, bytes) for one in canaries(value)}
    connection.close()
    assert tables and not found


def test_no_token_and_no_link_is_kept_or_given_out(scene: Scene) -> None:
    """The first start prints two tokens of its own, and a link; these here were made by commands and a page."""
    kept = files(scene)
    found = [
        (name, place)
        for name, text in scene.tokens.items()
        for place, data in (*kept.items(), *scene.out.items())
        if text.encode() in data
    ]
    assert not found
