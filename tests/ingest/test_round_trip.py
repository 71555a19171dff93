"""A record exported as OTLP and imported into an empty one: what attempts used, cost and came to stays the same."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from relayweb.ingest import export
from relayweb.ingest.export_otlp import otlp
from relayweb.ingest.otlp import spans
from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.spans import Span
from relayweb.recording.conventions.usage import FIELDS
from relayweb.recording.models import Price, Scope
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.recorder import Line
from tests.recording import streams
from tests.recording.recorded import FAILED, Talk, answer
from tests.recording.streams import chunk
from tests.recording.test_any_order import empty

pytestmark = pytest.mark.django_db(transaction=True)

CAPTURES = Path(__file__).parent.parent / "captures"
KEPT = (
    *("status", "cost_pusd", "wasted_pusd", "service_tier", "usage_details", "cache_write_1h_tokens", "usage_complete"),
    *("finish_reason", "ttft_us", *FIELDS),
)


def recorded(lines: list[bytes]) -> None:
    empty()
    recorder = RunRecorder(Tables(connection))
    taken = [Line(text, 0) for text in lines]
    for at in range(0, len(taken), 50):
        recorder.record(taken[at : at + 50])
    assert not [line.error for line in taken if line.error]
    recorder.sweep(10**16, 1, 0)


def rows() -> dict[str, dict[str, Any]]:
    found = Scope.objects.filter(joined_uuid=None).values("uuid", "role", *KEPT)
    return {str(row.pop("uuid")): row for row in found}


def again() -> tuple[list[bytes], list[bytes]]:
    """Export and import; gives the export and what was recorded of it."""
    requests = list(otlp(export.everything()))
    lines = [line for text in requests for span in spans.from_json(text) for line in events(span)]
    recorded(lines)
    return requests, lines


@pytest.fixture(autouse=True)
def _prices() -> None:
    Price.objects.all().delete()
    Price.objects.create(model="*", input=1, output=2, cached="0.5")
    Price.objects.create(model="*", input=3, output=4, tier="flex")


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    missing = dict.fromkeys(("role", *KEPT))
    found = ((uuid, after.get(uuid, missing)) for uuid in before)
    return [(uuid, k, before[uuid][k], row[k]) for uuid, row in found for k in row if before[uuid][k] != row[k]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_usage_costs_and_statuses_come_back(seed: int) -> None:
    grown = streams.Growing(random.Random(seed)).grow()
    begun = {event["uuid"] for event in grown if event.get("scope_category") == "start"}
    # What began unseen is no span, and hangs nowhere.
    seen = [e for e in grown if e["uuid"] in begun or e["kind"] == "mark"]
    known = [e for e in seen if e["parent_uuid"] in begun or e["kind"] != "mark"]
    recorded([streams.line(event) for event in known])
    assume(not Scope.objects.filter(start_us=None).exists())
    before = rows()
    again()
    assert not differences(before, rows())


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.jsonl.gz")), ids=lambda p: p.name.split(".")[0])
def test_those_of_real_streams_do_and_the_next_export_is_the_same(path: Path) -> None:
    recorded([line for line in gzip.decompress(path.read_bytes()).split(b"\n") if line.strip()])
    before = rows()
    again()
    assert not differences(before, rows())
    assert again()[0] == again()[0]


TOLD = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def streamed(**more: Any) -> tuple[Talk, str]:
    """A call whose chunk marks alone tell what it used."""
    talk = Talk()
    attempt = talk.attempt(talk.call(), **more)
    usage = {**TOLD, "cache_read_tokens": 400}
    talk.add(chunk(attempt, 0, 30), chunk(attempt, 1, 40, usage=usage, finish_reasons=["length"]))
    return talk, attempt


def attributes_of(attempt: str) -> dict[str, Any]:
    exported = [json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"] for line in otlp(export.everything())]
    (span,) = [s for found in exported for s in found if s["spanId"] == attempt.replace("-", "")[16:]]
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


@pytest.mark.parametrize(
    ("more", "status", "complete", "cost"),
    [
        ({"out": None}, "ok", True, 600 + 200 + 200),
        ({"out": None, "status": FAILED}, "failed", True, 600 + 200 + 200),
        ({"out": answer("x", 10, 1, None), "status": {"otel.status_code": "ERROR", "exception.type": "CancelledError"}},
         "cancelled", True, 600 + 200 + 200),
        ({"end": None}, "interrupted", False, 600 + 200 + 200),
    ],
)  # fmt: skip
def test_what_only_chunk_marks_told_is_on_the_span(more: Any, status: str, complete: bool, cost: int) -> None:
    talk, attempt = streamed(**more)
    recorded([streams.line(event) for event in talk.all()])
    before = rows()
    row = before[attempt]
    assert (row["status"], row["finish_reason"]) == (status, "length")
    assert (row["input_tokens"], row["cached_tokens"]) == (1000, 400)
    assert (row["usage_complete"], row["cost_pusd"]) == (complete, cost * 1_000_000)
    told = attributes_of(attempt)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.cache_read.input_tokens"]) == ("1000", "400")
    assert json.loads(told["relayweb.usage"])["complete"] is complete
    assert told.get("relayweb.status") == (None if status == "ok" else status)
    again()
    assert not differences(before, rows())


def test_a_tier_audio_and_what_relay_estimated_come_back() -> None:
    talk = Talk()
    call = talk.call()
    told = {"usage": {"cost": {"total": 0.123456789, "currency": "USD"}}}
    by_relay = talk.attempt(call, 20, 30, end_profile={"annotated_response": told})
    spoken = answer("x", 1000, 100)
    spoken["usage"]["prompt_tokens_details"] = {"audio_tokens": 7}
    spoken["service_tier"] = "flex"
    other = talk.attempt(call, 40, 50, out=spoken)
    recorded([streams.line(event) for event in talk.all()])
    before = rows()
    assert before[by_relay]["cost_pusd"] == 123_456_789_000
    assert (before[other]["service_tier"], before[other]["usage_details"]) == ("flex", '{"audio_input":7}')
    again()
    assert not differences(before, rows())


@pytest.mark.parametrize("usage", ["7", "[]", "{}", '{"complete":1}', '{"complete":true,"details":[]}'])
def test_an_attribute_that_is_no_usage_of_ours_does_no_harm(usage: str) -> None:
    talk, attempt = streamed(out=answer("x", 5, 6))
    recorded([streams.line(event) for event in talk.all()])
    requests = [json.loads(line) for line in otlp(export.everything())]
    for span in (s for r in requests for s in r["resourceSpans"][0]["scopeSpans"][0]["spans"]):
        for attribute in span["attributes"]:
            if attribute["key"] == "relayweb.usage":
                attribute["value"] = {"stringValue": usage}
    found = [span for r in requests for span in spans.from_json(json.dumps(r).encode())]
    recorded([line for span in found for line in events(span)])
    assert rows()[attempt]["output_tokens"] in (6, None)


# What other instrumentations tell -----------------------------------------------------------------------------------


def imported(attributes: dict[str, Any], name: str = "chat") -> dict[str, Any]:
    ids, times = (bytes(15) + b"1", bytes(7) + b"2", b""), (18 * 10**17, 18 * 10**17 + 10**9)
    span = Span(*ids, name, *times, attributes, [], False, "", None)
    recorded(events(span))
    (row,) = Scope.objects.filter(role="attempt").values(*KEPT)
    return row


CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 100,
}
SPOKEN = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-4o",
    "llm.token_count.prompt": 1000,
    "llm.token_count.completion": 100,
}


@pytest.mark.parametrize(
    ("attributes", "tier"),
    [
        (CALL, None),
        ({**CALL, "openai.request.service_tier": "flex"}, "flex"),
        ({**CALL, "openai.request.service_tier": "auto", "openai.response.service_tier": "default"}, "standard"),
        ({**CALL, "openai.request.service_tier": "flex", "openai.response.service_tier": "priority"}, "priority"),
        ({**CALL, "gen_ai.openai.response.service_tier": "flex"}, "flex"),
        ({**SPOKEN, "output.value": '{"service_tier":"flex","choices":[]}'}, "flex"),
        ({**SPOKEN, "llm.invocation_parameters": '{"service_tier":"flex"}', "llm.input_messages.0.message.role": "user",
          "llm.input_messages.0.message.content": "hi"}, "flex"),
    ],
)  # fmt: skip
def test_a_span_tells_the_service_tier(attributes: dict[str, Any], tier: str | None) -> None:
    row = imported(attributes)
    cost = {None: 1200, "standard": 1200, "flex": 3400, "priority": None}[tier]
    assert (row["service_tier"], row["cost_pusd"]) == (tier, cost and cost * 1_000_000)


@pytest.mark.parametrize(
    ("attributes", "details"),
    [
        ({**SPOKEN, "llm.token_count.prompt_details.audio": 300, "llm.token_count.completion_details.audio": 50},
         {"audio_input": 300, "audio_output": 50}),
        ({**CALL, "gen_ai.usage.details.input_audio_tokens": 300, "gen_ai.usage.details.output_audio_tokens": 50},
         {"audio_input": 300, "audio_output": 50}),
        ({**CALL, "gen_ai.usage.cache_read.input_tokens": 9, "gen_ai.usage.details.input_audio_tokens": 300,
          "gen_ai.usage.details.cache_audio_read_tokens": 9}, {"audio_input": 300, "audio_cached": 9}),
        ({**CALL, "gen_ai.usage.details.input_audio_tokens": 0}, None),
    ],
)  # fmt: skip
def test_a_span_tells_audio(attributes: dict[str, Any], details: dict[str, int] | None) -> None:
    row = imported(attributes)
    assert row["usage_details"] == (None if details is None else json.dumps(details, separators=(",", ":")))
    assert (row["cost_pusd"] is None) == (details is not None)


def test_claude_code_tells_its_speed() -> None:
    told = {"model": "claude-x", "input_tokens": 5, "output_tokens": 6, "speed": "fast", "stop_reason": "end_turn"}
    row = imported(told, "claude_code.llm_request")
    assert row["service_tier"] == "fast"
