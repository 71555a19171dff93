"""The log records of Claude Code: turns with their calls and tools, in any order."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.ingest.otlp import logs
from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.logs import LogRecord
from relayweb.recording.models import Event, Scope
from relayweb.recording.reading import search
from relayweb.recording.store import search_index
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing.rebuilding import Rebuilt
from tests.ingest.test_logs import CALL, answered, log, record
from tests.ingest.test_otlp import span
from tests.recording.test_any_order import any_stream, cut, differences, snapshot


def test_the_name_of_an_event_of_claude_code_is_its_body() -> None:
    found = log("", body="claude_code.api_request", attributes={"event.name": "api_request", "session.id": "s-1"})
    told = json.loads(logs.events(found)[-1])
    assert (told["name"], told["metadata"]["session_id"]) == ("claude_code.api_request", "s-1")


def code(name: str, at: int, **attributes: Any) -> list[bytes]:
    """A record of Claude Code `at` ms, in its turn."""
    known = {"event.name": name, "session.id": "s-1", "prompt.id": "p-1"}
    attributes = {**known, **{key.replace("__", "."): value for key, value in attributes.items()}}
    return logs.events(
        log("", at * 10**6, body=f"claude_code.{name}", attributes=attributes, trace_id=b"", span_id=b"")
    )


USED = {"input_tokens": 2, "output_tokens": "100", "cache_read_tokens": 800, "cache_creation_tokens": "98"}


@pytest.mark.django_db(transaction=True)
@any_stream
@given(st.randoms(use_true_random=False), st.booleans())
def test_the_log_records_of_claude_code_are_a_turn_in_any_order(order: random.Random, restart: bool) -> None:
    told = [
        code("user_prompt", 0, prompt="Fix the test", prompt_length=12),
        code("api_error", 400, model="opus", error="Overloaded", status_code="529", duration_ms=399, request_id="r-0"),
        code("api_request", 2_000, model="opus", cost_usd="0.25", duration_ms="1500", request_id="r-1", **USED),
        code("tool_decision", 2_100, tool_name="Bash", decision="accept"),
        code("tool_result", 3_000, tool_name="Bash", success="true", duration_ms=900, tool_use_id="t-1"),
        code("api_request", 5_000, model="opus", cost_usd=0.5, duration_ms=1_900, request_id="r-2", **USED),
        code("assistant_response", 5_001, request_id="r-2", response="Done.", response_length=5),
    ]
    lines = [line for lines in told for line in lines]
    record(lines)
    want = snapshot()
    again = lines + [line for line in lines if order.random() < 0.3]
    order.shuffle(again)
    record(*cut(again, order), restart=restart)
    assert not differences(want, snapshot())
    turn = Scope.objects.get(is_turn=True, joined_uuid=None)
    assert (turn.name, turn.session_id, turn.profile) == ("Fix the test", "s-1", "claude-code")
    assert (turn.status, turn.end_us - turn.start_us) == ("ok", 5_000_000)
    assert (turn.attempts, turn.tools, turn.total_tokens, turn.cost_pusd) == (3, 1, 2000, 750_000_000_000)
    first, second, third = Scope.objects.filter(role="attempt").order_by("start_us")
    assert (first.status, first.error_status, first.error_message) == ("failed", 529, "Overloaded")
    assert (second.model, second.cached_tokens, second.end_us - second.start_us) == ("opus", 800, 1_500_000)
    assert answered(third.uuid)["choices"][0]["message"] == {"role": "assistant", "content": "Done."}
    tool = Scope.objects.get(role="tool")
    assert (tool.name, tool.tool_call_id, tool.status) == ("Bash", "t-1", "ok")
    assert Event.objects.filter(kind=Event.Kind.MARK, mark_of=None).count() == 0
    assert not list(integrity.problems()) and not list(Rebuilt().differences(lambda _: None))
    while search_index.catch_up():
        pass
    for word, found in (("fix", True), ("done", True), ("claude_code", False), ("opus", False)):
        assert Scope.objects.filter(search.turns_saying(word, []), uuid=turn.uuid).exists() is found


CODE = ["user_prompt", "api_request", "api_error", "tool_result", "assistant_response", "anything"]
KEYS = [
    "session.id",
    "prompt.id",
    "request_id",
    "duration_ms",
    "input_tokens",
    "cache_read_tokens",
    "cost_usd",
    "model",
]
KEYS += [
    "success",
    "error",
    "status_code",
    "tool_name",
    "tool_input",
    "tool_use_id",
    "prompt",
    "response",
    "event.name",
]
SAID = st.sampled_from(["s-1", "nan", "inf", "1e999", "-5", "{", "[1]", "", None, 1.5, 10**400, [1], {"a": None}, True])


@any_stream
@given(st.sampled_from(CODE), st.dictionaries(st.sampled_from(KEYS), SAID), st.integers(0, 2**64 - 1), SAID)
def test_records_of_claude_code_of_any_shape_are_events(name: str, said: dict[str, Any], at: int, body: Any) -> None:
    known = {"session.id": "s-1", "prompt.id": "p-1", **said}
    found = LogRecord(f"claude_code.{name}", at, 0, 0, "", body, known)
    assert all(json.loads(line) for line in logs.events(found))
    for kind in ("interaction", "llm_request", "tool", "hook"):
        told = {**known, "stop_reason": body, "ttft_ms": body, "user_prompt": body}
        assert all(json.loads(line) for line in events(span(told, name=f"claude_code.{kind}")))


def test_records_of_claude_code_in_a_span_are_marks_under_it() -> None:
    attributes = {"event.name": "api_request", "session.id": "s-1", "prompt.id": "p-1"}
    (found,) = logs.events(log("", body="claude_code.api_request", attributes=attributes))
    assert json.loads(found)["parent_uuid"] == str(CALL)
