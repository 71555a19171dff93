"""Spans as instrumentations of single products write them, and what the record makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.spans import Span, SpanEvent
from tests.ingest.test_otlp import read, span

J = json.dumps
WEATHER = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


def told(attributes: dict[str, Any], *spoken: tuple[str, dict[str, Any]], **members: Any) -> tuple[Any, Any]:
    """Start and end of a span with these attributes and span events."""
    found: Span = span(
        attributes, events=[SpanEvent(name, 1767225600_500000000, said) for name, said in spoken], **members
    )
    lines = [json.loads(line) for line in events(found)]
    return lines[0], lines[-1]


def body(start: Any) -> Any:
    return start["data"]["content"]


def message(end: Any) -> Any:
    (choice,) = end["data"]["choices"]
    return choice["message"]


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "x", "gen_ai.request.model": "m"}


def test_parts_of_messages_keep_their_order_pictures_thoughts_and_every_tool_answer() -> None:
    parts = [
        {"type": "text", "content": "what is this"},
        {"type": "blob", "mime_type": "image/jpeg", "modality": "image", "content": "QUJD"},
        {"type": "uri", "uri": "https://h/p.png", "modality": "image"},
        {"type": "file", "file_id": "f1", "modality": "document"},
    ]
    thinking = [{"type": "reasoning", "content": "one"}, {"type": "reasoning", "content": "two"}]
    call = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Rome"}}
    answers = [{"type": "tool_call_response", "id": f"c{n}", "response": {"n": n}} for n in (1, 2)]
    messages = [
        {"role": "user", "parts": parts},
        {"role": "assistant", "parts": [*thinking, call]},
        {"role": "tool", "parts": answers},
    ]
    for given in (J(messages), messages):
        start, _ = told({**CHAT, "gen_ai.input.messages": given})
        user, assistant, *tools = body(start)["messages"]
        assert user["content"] == [
            {"type": "text", "text": "what is this"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}},
            {"type": "image_url", "image_url": {"url": "https://h/p.png"}},
            parts[3],
        ]
        assert assistant == {
            **{"role": "assistant", "content": None, "reasoning_content": "one\ntwo"},
            "tool_calls": [WEATHER],
        }
        assert tools == [{"role": "tool", "tool_call_id": f"c{n}", "content": J({"n": n})} for n in (1, 2)]


@pytest.mark.parametrize(
    ("attributes", "spoken"),
    [
        (
            {},
            [
                ("gen_ai.system.message", {"content": "be kind"}),
                ("gen_ai.user.message", {"content": "hi"}),
                ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": J({"content": "yo"})}),
            ],
        ),
        (
            {},
            [
                ("gen_ai.system.message", {"content": J([{"text": "be kind"}])}),
                ("gen_ai.user.message", {"content": J([{"text": "hi"}])}),
                ("gen_ai.choice", {"finish_reason": "stop", "message": J([{"text": "yo"}])}),
            ],
        ),
        (
            {"gen_ai.response.finish_reasons": ["stop"]},
            [
                (
                    "gen_ai.content.prompt",
                    {"gen_ai.prompt": J([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}])},
                ),
                ("gen_ai.content.completion", {"gen_ai.completion": J([{"role": "assistant", "content": "yo"}])}),
            ],
        ),
        (
            {
                "gen_ai.response.finish_reasons": ["stop"],
                "events": J(
                    [
                        {"event.name": "gen_ai.system.message", "content": "be kind", "role": "system"},
                        {"event.name": "gen_ai.user.message", "content": "hi", "role": "user"},
                        {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "yo"}},
                    ]
                ),
            },
            [],
        ),
    ],
    ids=["conventions 1.28", "strands", "prompt and completion", "logfire"],
)
def test_messages_in_events_are_those_of_the_call(attributes: dict[str, Any], spoken: list[Any]) -> None:
    start, end = told({**CHAT, **attributes}, *spoken)
    said = [(m["role"], m["content"]) for m in body(start)["messages"]]
    assert said == [("system", "be kind"), ("user", "hi")]
    assert message(end)["content"] == "yo" and end["data"]["choices"][0]["finish_reason"] == "stop"


def test_tool_calls_and_results_in_events() -> None:
    block = J([{"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Rome"}}}])
    calls = J([WEATHER])
    asked = [
        ("gen_ai.assistant.message", {"tool_calls": calls}),
        ("gen_ai.tool.message", {"id": "c1", "content": "21"}),
    ]
    start, end = told(CHAT, *asked, ("gen_ai.choice", {"message": block, "finish_reason": "tool_use"}))
    assert body(start)["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [WEATHER]},
        {"role": "tool", "content": "21", "tool_call_id": "c1"},
    ]
    assert message(end)["tool_calls"] == [WEATHER]
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1"}
    given = ("gen_ai.tool.message", {"role": "tool", "content": J({"city": "Rome"}), "id": "c1"})
    start, end = told(tool, given, ("gen_ai.choice", {"message": J([{"text": "21C"}]), "id": "c1"}))
    assert (start["category"], start["name"], start["data"], end["data"]) == (
        *("tool", "weather", {"city": "Rome"}),
        [{"text": "21C"}],
    )


def test_vercels_ai_sdk() -> None:
    around, _ = told({"ai.operationId": "ai.streamText", "ai.prompt": J({"prompt": "hi"})})
    assert (around["category"], around["data"]) == ("agent", {"prompt": "hi"})
    weather, output = {"toolCallId": "c1", "toolName": "weather"}, {"type": "json", "value": [21]}
    start, end = told(
        {
            "ai.operationId": "ai.streamText.doStream",
            "ai.model.id": "gpt-4o-mini",
            "ai.model.provider": "openai.responses",
            "ai.prompt.messages": J(
                [
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                    {"role": "assistant", "content": [{"type": "tool-call", **weather, "input": {"city": "Rome"}}]},
                    {"role": "tool", "content": [{"type": "tool-result", **weather, "output": output}]},
                ]
            ),
            "ai.prompt.tools": [J({"type": "function", "name": "weather", "inputSchema": {"type": "object"}})],
            "ai.response.toolCalls": J([{"toolCallId": "c1", "toolName": "weather", "args": {"city": "Rome"}}]),
            "ai.response.finishReason": "tool-calls",
            "ai.response.msToFirstChunk": 312.5,
            "ai.usage.inputTokens": 30,
            "ai.usage.outputTokens": 9,
            "ai.usage.cachedInputTokens": 8,
            "ai.telemetry.metadata.sessionId": "s-1",
            "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.response.finish_reasons": ["tool-calls"],
            "gen_ai.usage.input_tokens": 30,
        }
    )  # fmt: skip
    assert start["category"] == "llm" and start["attributes"] == ["streaming"]
    assert start["metadata"]["session_id"] == "s-1" and start["metadata"]["provider"] == "openai"
    assert body(start)["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [WEATHER]},
        {"role": "tool", "tool_call_id": "c1", "content": "[21]"},
    ]
    assert body(start)["tools"][0]["function"] == {"name": "weather", "parameters": {"type": "object"}}
    assert message(end)["tool_calls"] == [WEATHER] and end["data"]["choices"][0]["finish_reason"] == "tool_calls"
    assert end["data"]["usage"] == {
        **{"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39},
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    assert end["category_profile"]["time_to_first_chunk"] == 0.3125
    tool, done = told(
        {
            "ai.operationId": "ai.toolCall",
            "ai.toolCall.name": "weather",
            "ai.toolCall.id": "c1",
            "ai.toolCall.result": "21",
        }
    )
    assert (tool["category"], tool["name"], done["data"]) == ("tool", "weather", "21")


@pytest.mark.parametrize(
    ("details", "usage"),
    [
        ({"input": 12, "output": 5, "total": 17, "input_cached_tokens": 2}, (12, 5, 17, 2)),
        ({"input": 10, "output": 5, "total": 17, "input_cached_tokens": 2}, (12, 5, 17, 2)),
        ({"input": 10, "output": 5, "cache_read_input_tokens": 2}, (12, 5, 17, 2)),
        ({"input": 12, "output": 5}, (12, 5, 17, None)),
        ({"cost": 1}, None),
    ],
)
def test_langfuse(details: dict[str, int], usage: tuple[int, ...] | None) -> None:
    start, end = told(
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.model.name": "gpt-4o",
            "langfuse.observation.model.parameters": J({"temperature": 0.2}),
            "langfuse.observation.input": J([{"role": "user", "content": "why?"}]),
            "langfuse.observation.output": J({"role": "assistant", "content": "because"}),
            "langfuse.observation.usage_details": J(details),
            "langfuse.observation.completion_start_time": J("2026-01-01T00:00:00.373456Z"),
            "langfuse.session.id": "s-2",
        }
    )
    assert body(start) == {"model": "gpt-4o", "temperature": 0.2, "messages": [{"role": "user", "content": "why?"}]}
    assert start["metadata"]["session_id"] == "s-2" and message(end)["content"] == "because"
    assert end["category_profile"]["time_to_first_chunk"] == pytest.approx(0.25, abs=1e-3)
    found = end["data"].get("usage")
    if usage is None:
        assert found is None
    else:
        cached = found.get("prompt_tokens_details", {}).get("cached_tokens")
        assert (found["prompt_tokens"], found["completion_tokens"], found["total_tokens"], cached) == usage


def test_a_failed_observation_of_langfuse_and_its_other_kinds() -> None:
    failed = {"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "rate limited"}
    start, end = told({"langfuse.observation.type": "tool", "langfuse.observation.input": "[1]", **failed})
    assert (start["category"], start["data"]) == ("tool", [1])
    assert end["metadata"] == {"otel.status_code": "ERROR", "otel.status_description": "rate limited"}
    assert told({"langfuse.observation.type": "chain"})[0]["category"] == "function"


def test_logfires_bodies() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    data = {"request_data": J(request), "gen_ai.request.model": "m", "gen_ai.system": "openai"}
    answer = {"message": {"role": "assistant", "content": "yo"}, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    start, end = told({**data, "response_data": J(answer)})
    assert body(start) == request and message(end)["content"] == "yo" and end["data"]["usage"] == answer["usage"]
    assert start["attributes"] == ["streaming"]
    _, end = told({**data, "response_data": J({"combined_chunk_content": "yo", "chunk_count": 2})})
    assert message(end)["content"] == "yo"
    agent, _ = told({"gen_ai.agent.name": "helper", "gen_ai.usage.input_tokens": 5})
    assert (agent["category"], agent["name"]) == ("agent", "helper")


def test_openllmetry() -> None:
    attributes = {"traceloop.entity.name": "joke", "traceloop.association.properties.session_id": "s-3"}
    kinds = {"workflow": "agent", "agent": "agent", "tool": "tool", "task": "function"}
    for kind, category in kinds.items():
        start, end = told({**attributes, "traceloop.span.kind": kind, "traceloop.entity.output": "[2]"})
        assert (start["category"], start["name"], end["data"]) == (category, "joke", [2])
        assert start["metadata"]["session_id"] == "s-3"
    functions = {"llm.request.functions.0.name": "f", "llm.request.functions.0.parameters": J({"type": "object"})}
    start, _ = told({"llm.request.type": "chat", "gen_ai.request.model": "m", "llm.is_streaming": True, **functions})
    assert start["attributes"] == ["streaming"]
    assert body(start)["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def test_a_span_of_relay_has_the_session_that_its_scope_tells() -> None:
    uuid = "019b76da-0000-7000-8000-000000000001"
    start = read(span({"nemo_relay.uuid": uuid, "session.id": "x", "nemo_relay.scope_type": "function"}))[0]
    assert "session_id" not in (start["metadata"] or {})


def test_a_turn_of_claude_code_has_its_calls_and_tools() -> None:
    session = {"session.id": "s-1"}
    start, end = told({**session, "span.type": "interaction", "user_prompt": "Fix it"}, name="claude_code.interaction")
    assert (start["category"], start["data"]) == ("agent", {"prompt": "Fix it"})
    assert start["metadata"]["nemo_relay_scope_role"] == "turn" and start["metadata"]["session_id"] == "s-1"
    asked = {
        **{"model": "claude-opus-5", "gen_ai.system": "anthropic", "gen_ai.request.model": "claude-opus-5"},
        **{"input_tokens": 2, "output_tokens": 1200, "cache_read_tokens": 84562, "cache_creation_tokens": 7096},
        **{"success": True, "stop_reason": "tool_use", "ttft_ms": 900},
    }
    start, end = told({**session, **asked}, name="claude_code.llm_request")
    assert (start["category"], body(start)["model"], start["metadata"]["provider"]) == (
        "llm",
        "claude-opus-5",
        "anthropic",
    )
    assert end["data"]["usage"] == {
        "prompt_tokens": 91660,
        "completion_tokens": 1200,
        "total_tokens": 92860,
        "prompt_tokens_details": {"cached_tokens": 84562, "cache_write_tokens": 7096},
    }
    assert end["data"]["choices"][0]["finish_reason"] == "tool_calls"
    assert end["category_profile"]["time_to_first_chunk"] == 0.9
    tool = {"tool_name": "Bash", "tool_use_id": "t1", "gen_ai.tool.call.id": "t1", "tool_input": '{"command": "ls"}'}
    start, end = told({**session, **tool}, ("tool.output", {"output": "a.txt"}), name="claude_code.tool")
    assert (start["category"], start["name"], start["data"]) == ("tool", "Bash", {"command": "ls"})
    assert (start["category_profile"], end["data"]) == ({"tool_call_id": "t1"}, {"output": "a.txt"})
    _, end = told(
        {**session, "success": False, "error": "overloaded", "status_code": 529}, name="claude_code.llm_request"
    )
    assert end["metadata"]["otel.status_code"] == "ERROR" and end["metadata"]["status_code"] == 529
