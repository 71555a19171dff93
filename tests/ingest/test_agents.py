"""The log records of Codex CLI and of Gemini CLI: turns with their calls and tools, in any order."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.ingest.otlp import logs
from relayweb.ingest.otlp.logs import LogRecord, from_json
from relayweb.recording.models import Event, Scope
from relayweb.recording.reading import search
from relayweb.recording.store import search_index
from relayweb.recording.upkeep import integrity
from tests.ingest.test_claude_code import SAID
from tests.ingest.test_logs import AT, answered, log, record
from tests.recording.test_any_order import any_stream, cut, differences, snapshot

NO_SPAN = {"trace_id": b"", "span_id": b""}


def codex(name: str, ms: int, **attributes: Any) -> list[bytes]:
    """A record as `opentelemetry-appender-tracing` writes it: no time but that of its arrival, no name but a place."""
    at = f"2026-01-01T00:00:{ms // 1000:02d}.{ms % 1000:03d}Z"
    known = {"event.name": f"codex.{name}", "event.timestamp": at, "conversation.id": "c-1", "model": "gpt-5-codex"}
    said = {key.replace("__", "."): value for key, value in attributes.items()}
    place = "event otel/src/events/session_telemetry.rs:812"
    found = log(place, attributes={**known, **said}, observed_ns=AT + ms * 10**6, **NO_SPAN)
    return logs.events(LogRecord(**{**{f: getattr(found, f) for f in found.__struct_fields__}, "at_ns": 0}))


CODEX = [
    codex("conversation_starts", 0, provider_name="OpenAI"),
    codex("user_prompt", 1_000, prompt="Fix the build", prompt_length="13"),
    codex("api_request", 1_400, http__response__status_code=429, error__message="slow down", duration_ms="300"),
    codex("api_request", 2_000, http__response__status_code=200, duration_ms="450"),
    codex("sse_event", 2_100, event__kind="response.output_text.delta", duration_ms="90"),
    codex("sse_event", 3_000, event__kind="response.completed", duration_ms="7"),
    codex("sse_event", 3_000, event__kind="response.completed", input_token_count="900", output_token_count="40",
          cached_token_count=800, reasoning_token_count=30, tool_token_count="940"),
    codex("tool_decision", 3_100, tool_name="shell", call_id="call-1", decision="approved"),
    codex("tool_result", 4_000, tool_name="shell", call_id="call-1", arguments='{"command":["make"]}', success="false",
          duration_ms="800", output="make: *** failed"),
    codex("user_prompt", 5_000, prompt="Try again", prompt_length="9"),
    codex("sse_event", 7_000, event__kind="response.completed", input_token_count="1000", output_token_count="10"),
]  # fmt: skip


def gemini(name: str, ms: int, agent: str = "gemini_cli", **attributes: Any) -> list[bytes]:
    known = {"event.name": f"{agent}.{name}", "session.id": "s-1", "prompt_id": "s-1########0"}
    body = "what Gemini CLI writes for people"
    return logs.events(log("", ms * 10**6, body=body, attributes={**known, **attributes}, **NO_SPAN))


ANSWER = [
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "I look "}]}}]},
    {"candidates": [{"content": {"role": "model", "parts": [
        {"text": "first."}, {"functionCall": {"name": "read_file", "args": {"path": "a"}}}]}}]},
]  # fmt: skip
USED = {"input_token_count": 500, "output_token_count": 20, "cached_content_token_count": 400}
USED |= {"thoughts_token_count": 30, "tool_token_count": 5, "total_token_count": 555}
GEMINI = [
    gemini("user_prompt", 0, prompt="Explain the parser", prompt_length=18),
    gemini("api_request", 100, model="gemini-2.5-pro", request_text="[]"),
    gemini("api_error", 500, model="gemini-2.5-pro", error="overloaded", error_type="ApiError", status_code="503",
           duration_ms=400),
    gemini("api_response", 2_000, model="gemini-2.5-pro", status_code=200, duration_ms=1_400, finish_reasons=["STOP"],
           response_text=json.dumps(ANSWER), **USED),
    gemini("tool_call", 2_500, function_name="read_file", function_args='{"path":"a"}', duration_ms=100, success=True),
    gemini("api_response", 4_000, model="gemini-2.5-pro", duration_ms=1_000, response_text="A parser reads.", **USED),
]  # fmt: skip


def shown_after(told: list[list[bytes]], order: random.Random, restart: bool) -> Scope:
    """The turn after these records came in any order, again and again."""
    lines = [line for lines in told for line in lines]
    record(lines)
    want = snapshot()
    again = lines + [line for line in lines if order.random() < 0.3]
    order.shuffle(again)
    record(*cut(again, order), restart=restart)
    assert not differences(want, snapshot())
    assert not list(integrity.problems())
    return Scope.objects.get(is_turn=True, joined_uuid=None)


@pytest.mark.django_db(transaction=True)
@any_stream
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_conversation_of_codex_is_a_turn_in_any_order(order: random.Random, restart: bool) -> None:
    turn = shown_after(CODEX, order, restart)
    assert (turn.name, turn.session_id, turn.profile) == ("Fix the build", "c-1", "codex")
    assert (turn.status, turn.end_us - turn.start_us) == ("ok", 6_000_000)
    assert (turn.attempts, turn.tools, turn.total_tokens, turn.cached_tokens) == (3, 1, 1950, 800)
    failed, first, second = Scope.objects.filter(role="attempt").order_by("start_us")
    assert (failed.status, failed.error_status, failed.error_message) == ("failed", 429, "slow down")
    assert (failed.end_us - failed.start_us, failed.provider) == (300_000, "openai")
    assert (first.model, first.input_tokens, first.reasoning_tokens) == ("gpt-5-codex", 900, 30)
    assert second.output_tokens == 10
    tool = Scope.objects.get(role="tool")
    assert (tool.name, tool.tool_call_id, tool.status, tool.error_message) == (
        *("shell", "call-1", "failed", "make: *** failed"),
    )
    while search_index.catch_up():
        pass
    assert Scope.objects.filter(search.turns_saying("again", []), uuid=turn.uuid).exists()


@pytest.mark.django_db(transaction=True)
@any_stream
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_prompt_of_gemini_cli_is_a_turn_in_any_order(order: random.Random, restart: bool) -> None:
    turn = shown_after(GEMINI, order, restart)
    assert (turn.name, turn.session_id, turn.profile) == ("Explain the parser", "s-1", "gemini-cli")
    assert (turn.status, turn.end_us - turn.start_us) == ("ok", 4_000_000)
    assert (turn.attempts, turn.tools, turn.total_tokens, turn.reasoning_tokens) == (3, 1, 1110, 60)
    failed, first, second = Scope.objects.filter(role="attempt").order_by("start_us")
    assert (failed.status, failed.error_status, failed.error_type) == ("failed", 503, "ApiError")
    assert (first.input_tokens, first.output_tokens, first.cached_tokens) == (505, 50, 400)
    assert (first.finish_reason, first.provider, first.end_us - first.start_us) == ("stop", "gemini", 1_400_000)
    message = answered(first.uuid)["choices"][0]["message"]
    assert (message["content"], message["tool_calls"][0]["function"]["name"]) == ("I look first.", "read_file")
    assert answered(second.uuid)["choices"][0]["message"]["content"] == "A parser reads."
    assert Event.objects.filter(kind=Event.Kind.MARK, mark_of=None).count() == 0
    while search_index.catch_up():
        pass
    for word in ("explain", "reads"):
        assert Scope.objects.filter(search.turns_saying(word, []), uuid=turn.uuid).exists()


@pytest.mark.django_db(transaction=True)
def test_what_was_made_from_gemini_cli_is_read_as_it() -> None:
    record(gemini("api_response", 10, agent="qwen-code", model="qwen3-coder", **USED))
    turn = Scope.objects.get(is_turn=True)
    assert (turn.profile, turn.attempts, turn.total_tokens) == ("qwen-code", 1, 555)
    assert Scope.objects.get(role="attempt").provider == "qwen-code"


@pytest.mark.parametrize("prompt", ["[REDACTED]", "<REDACTED>", "", None])
def test_a_prompt_that_is_not_told_names_no_turn(prompt: str | None) -> None:
    for lines, name in ((codex("user_prompt", 0, prompt=prompt), "codex.turn"),
                        (gemini("user_prompt", 0, prompt=prompt), "gemini_cli.turn")):  # fmt: skip
        assert json.loads(lines[0])["name"] == name


def test_the_name_of_a_record_is_never_the_place_in_the_source() -> None:
    attributes = [{"key": "event.name", "value": {"stringValue": "codex.sse_event"}}]
    told = {"eventName": "event otel/src/lib.rs:12", "observedTimeUnixNano": "5", "attributes": attributes}
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [told]}]}]}
    (found,) = from_json(json.dumps(body).encode())
    assert json.loads(logs.events(found)[0])["name"] == "codex.sse_event"


NAMES = ["codex.user_prompt", "codex.api_request", "codex.sse_event", "codex.tool_result", "gemini_cli.user_prompt"]
NAMES += ["gemini_cli.api_response", "gemini_cli.api_error", "gemini_cli.tool_call", "qwen-code.api_cancel"]
KEYS = ["conversation.id", "session.id", "prompt_id", "event.kind", "error.message", "http.response.status_code"]
KEYS += ["input_token_count", "thoughts_token_count", "duration_ms", "model", "success", "response_text", "prompt"]
KEYS += ["finish_reasons", "function_args", "arguments", "output", "tool_name", "status_code", "event.timestamp"]


@any_stream
@given(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(KEYS), SAID), st.integers(0, 2**64 - 1))
def test_records_of_agents_of_any_shape_are_events(name: str, said: dict[str, Any], at: int) -> None:
    known = {"conversation.id": "c", "session.id": "s", "prompt_id": "p", "event.name": name}
    found = LogRecord("", at, 0, 0, "", None, {**known, **said})
    assert all(json.loads(line) for line in logs.events(found))
