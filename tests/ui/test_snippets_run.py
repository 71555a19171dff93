"""The lines of the start page, run as they are shown, against a real server and with the real packages."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import httpx2
import pytest

from relayweb.ui.snippets import Way, ways

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.served import Served

    served = Served(tmp_path_factory.mktemp("snippets")).start()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def shown(site: Any) -> dict[str, Way]:
    tokens = {scope: site.token(scope) for scope in ("gateway", "ingest")}
    return {way.id: way for way in ways(site.url, tokens)}


def text(way: Way, label: str) -> str:
    return next(snippet.text for snippet in way.snippets if snippet.label == label)


def turns(site: Any, q: str = "") -> list[dict[str, Any]]:
    token = site.token("read")
    answer = site.get(f"/api/v1/turns?q={q}", authorization=f"Bearer {token}")
    return answer.json()["turns"]


def recorded(site: Any, before: int, seconds: float = 60) -> dict[str, Any]:
    """The newest turn, once there are more than before and it has a call."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = turns(site)
        if len(found) > before and found[0]["attempts"]:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"no new turn within {seconds} s")


def run(code: str, env: dict[str, str] | None = None) -> str:
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_openai_client_of_the_page_sends_a_turn(site, shown):
    pytest.importorskip("openai")
    before = len(turns(site))
    # The scripted provider stands in for OpenAI's.
    code = text(shown["base"], "python, openai").replace("/openai/v1", "/demo/v1")
    code += (
        '\nmessages = [{"role": "user", "content": "Say hello."}]'
        '\nprint(client.chat.completions.create(model="demo-mini", messages=messages).choices[0].message.content)'
    )
    assert run(code, {"OPENAI_API_KEY": "k"}).strip()
    assert recorded(site, before)["models"] == ["demo-mini"]


def test_the_anthropic_client_of_the_page_sends_a_turn(site, shown):
    pytest.importorskip("anthropic")
    before = len(turns(site))
    code = text(shown["base"], "python, anthropic").replace('/anthropic"', '/demo"')
    code += (
        '\nmessages = [{"role": "user", "content": "Say hello again."}]'
        '\nprint(client.messages.create(model="demo-mini", max_tokens=99, messages=messages).content[0].text)'
    )
    assert run(code, {"ANTHROPIC_API_KEY": "k"}).strip()
    assert recorded(site, before)["models"] == ["demo-mini"]


def test_the_variables_of_the_page_point_both_packages_at_the_gateway(site, shown):
    pytest.importorskip("openai")
    lines = text(shown["base"], "shell").splitlines()
    env = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    code = "import openai, anthropic; print(openai.OpenAI().base_url, anthropic.Anthropic().base_url)"
    said = run(code, {**env, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}).split()
    assert [base.rstrip("/") for base in said] == [env["OPENAI_BASE_URL"], env["ANTHROPIC_BASE_URL"]]


def test_the_curl_line_without_a_key_streams_an_answer(site, shown):
    before = len(turns(site))
    done = subprocess.run(["sh", "-c", text(shown["base"], "shell, no key at hand")], capture_output=True, timeout=60)
    assert b"data: [DONE]" in done.stdout, done.stderr
    assert recorded(site, before)["chunks"] > 0


def test_the_exporter_of_the_page_sends_a_turn_from_another_process(site, shown):
    before = len(turns(site))
    code = text(shown["sink"], "python") + (
        "\nimport asyncio, nemo_relay as nr"
        "\nasync def call(request): return {'choices': []}"
        "\nasync def main():"
        "\n    with nr.scope.scope('agent', nr.ScopeType.Agent):"
        "\n        body = {'model': 'm1', 'messages': [{'role': 'user', 'content': 'Over the wire'}]}"
        "\n        await nr.llm.execute('chat', nr.LLMRequest({}, body), call)"
        "\nasyncio.run(main())"
        "\nexporter.force_flush(); exporter.shutdown()"
    )
    run(code)
    assert recorded(site, before)["asked"] == "Over the wire"


def test_the_wrapped_client_of_the_page_records_a_turn_of_its_session(site, shown):
    pytest.importorskip("openai")
    # The scripted provider stands in for OpenAI's.
    base = text(shown["base"], "shell").splitlines()[0].split("=", 1)[1].replace("/openai/", "/demo/")
    code = text(shown["wrap"], "python").replace("gpt-5.2", "demo-mini")
    run(code, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": base})
    deadline = time.monotonic() + 15
    while not (found := turns(site, "session:s1")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (found[0]["asked"], found[0]["attempts"]) == ("Say hello.", 1)


def test_the_otlp_variables_of_the_page_reach_the_door(site, shown):
    env = dict(line.removeprefix("export ").split("=", 1) for line in text(shown["otlp"], "shell").splitlines())
    name, token = env["OTEL_EXPORTER_OTLP_HEADERS"].strip('"').split("=", 1)
    endpoint = env["OTEL_EXPORTER_OTLP_ENDPOINT"]
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "chat m1",
        "startTimeUnixNano": "1795939200000000000",
        "endTimeUnixNano": "1795939201000000000",
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": "m1-by-otlp"}},
        ],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    told = {"traceId": span["traceId"], "spanId": span["spanId"], "timeUnixNano": "1795939200500000000"}
    said = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "Say hello by OTLP."}}]}}
    log = {
        "resourceLogs": [{"scopeLogs": [{"logRecords": [{**told, "eventName": "gen_ai.user.message", "body": said}]}]}]
    }
    for path, request in (("traces", body), ("logs", log)):
        answer = httpx2.post(f"{endpoint}/v1/{path}", json=request, headers={name: token})
        assert answer.status_code == 200, answer.text
    assert turns(site, "model:m1-by-otlp")[0]["asked"] == "Say hello by OTLP."
    assert turns(site, "model:m1-by-otlp")[0]["status"] == "ok"


def test_the_toml_of_the_page_is_a_sink_for_this_server(shown):
    import tomllib

    config = tomllib.loads(text(shown["sink"], "plugins.toml"))
    [sink] = config["components"][0]["config"]["atof"]["sinks"]
    assert sink["transport"] == "websocket" and sink["url"].endswith(
        text(shown["sink"], "plugins.toml").split("?")[1][:-1]
    )


def test_events_are_posted_and_imported_with_the_lines_of_the_page(site, shown, tmp_path):
    event = {
        "kind": "mark",
        "atof_version": "0.1",
        "uuid": "0199c4e2-0000-7000-8000-000000000001",
        "parent_uuid": None,
        "name": "note",
        "timestamp": "2026-11-30T08:00:00Z",
        "data": 1,
    }
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")
    done = subprocess.run(
        ["sh", "-c", text(shown["post"], "shell")], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert json.loads(done.stdout) == {"accepted": 1, "duplicates": 0, "rejected": []}
    line = text(shown["import"], "shell").splitlines()[1]
    assert line == "cat events.jsonl | relayweb import -"
    assert b"duplicates 1" in site.run("import", "-", stdin=(tmp_path / "events.jsonl").read_bytes()).stdout
