"""docs/agent_loop.py runs, with a scripted provider, and is recorded as it says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.adapters.conftest import Events

LOOP = Path(__file__).parents[2] / "docs" / "agent_loop.py"


def sse(*deltas: dict[str, Any], finish: str = "stop") -> httpx2.Response:
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": finish})
    frames = [
        json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
        for choice in chunks
    ]
    body = "".join(f"data: {frame}\n\n" for frame in [*frames, "[DONE]"])
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())


def tool_call(arguments: str) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}


@pytest.fixture
def provider() -> Any:
    requests: list[dict[str, Any]] = []
    script = [
        httpx2.Response(500, json={"error": {"message": "overloaded", "type": "server_error"}}),
        sse(tool_call('{"numbers": [19,'), {"tool_calls": [{"index": 0, "function": {"arguments": " 23]}"}}]}),
        sse({"role": "assistant", "content": "It is "}, {"content": "42."}),
    ]

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        return script.pop(0)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with openai.OpenAI(api_key="k", max_retries=0, http_client=http) as client:
        yield client, requests


def test_the_agent_loop_of_the_docs_runs_and_is_recorded(
    provider: Any, events: Events, capsys: pytest.CaptureFixture[str]
) -> None:
    client, requests = provider
    loop = runpy.run_path(str(LOOP))
    assert loop["agent"](client, "What is 19 + 23?", "sums") == "It is 42."
    assert "It is 42." in capsys.readouterr().out
    assert requests[2]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "42"}

    [session], [turn], [tool] = events.starts("relay.session"), events.starts("relay.turn"), events.starts("add")
    assert session["metadata"]["session_id"] == "sums"
    assert turn["parent_uuid"] == session["uuid"]
    assert tool["parent_uuid"] == turn["uuid"]
    assert tool["data"] == {"numbers": [19, 23]}
    first, second = events.starts("relay.logical_llm_call")
    assert events.outcomes() == ["success", "success"]
    assert [e["parent_uuid"] for e in events.attempts()] == [first["uuid"], first["uuid"], second["uuid"]]
    assert [e["metadata"]["retry_count"] for e in events.attempts()] == [0, 1, 0]
    assert events.marks("relay.attempt_failed")[0]["data"]["status"] == 500
    assert events.attempts("end")[2]["data"]["choices"][0]["message"]["content"] == "It is 42."
