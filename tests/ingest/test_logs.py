"""Log records as instrumentations write them: what they tell of a call fills its request and answer, in any order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from relayweb.ingest.export import everything
from relayweb.ingest.export_otlp import otlp
from relayweb.ingest.otlp import logs
from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.logs import LogRecord, from_json, from_protobuf
from relayweb.ingest.otlp.spans import from_json as spans_from_json
from relayweb.ingest.otlp.spans import from_protobuf as spans_from_protobuf
from relayweb.recording.models import Event, Scope
from relayweb.recording.reading import bodies, search
from relayweb.recording.store import search_index
from relayweb.recording.store.stored import Reader
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import integrity
from relayweb.recording.writing.copies import RunRecorder, made_uuid
from relayweb.recording.writing.rebuilding import Rebuilt
from relayweb.recording.writing.recorder import Line
from tests.ingest.test_otlp import SPAN, TRACE, span
from tests.recording.streams import line, scope
from tests.recording.test_any_order import any_stream, cut, differences, empty, snapshot

CALL = made_uuid(TRACE, SPAN)
AT = 1767225600_200000000


def log(name: str, at: int = 0, **members: Any) -> LogRecord:
    known = {"observed_ns": AT + at + 5, "severity": 9, "severity_text": "", "body": None, "attributes": {}}
    return LogRecord(**{"name": name, "at_ns": AT + at, "trace_id": TRACE, "span_id": SPAN, **known, **members})


def event(record: LogRecord) -> bytes:
    """The mark of a record."""
    return logs.events(record)[-1]


def chat(**more: Any) -> list[bytes]:
    """The span of a call as an instrumentation writes it that keeps contents out of spans."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    return events(span({**attributes, **more}, parent_id=b"parent-1"))


QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of Peru?"}]
ANSWER = {"role": "assistant", "content": "Lima"}

PARTS = [{"role": "user", "parts": [{"type": "text", "content": "What is the capital of Peru?"}]}]
SPOKEN = [{"role": "assistant", "parts": [{"type": "text", "content": "Lima"}], "finish_reason": "stop"}]
DETAILS = {
    "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    "gen_ai.input.messages": PARTS,
    "gen_ai.output.messages": SPOKEN,
}
DIALECTS = {
    "a message each": [
        log("gen_ai.system.message", 1, body={"content": "Be brief."}),
        log("gen_ai.user.message", 2, body={"content": "What is the capital of Peru?"}),
        log("gen_ai.choice", 9, body={"index": 0, "finish_reason": "stop", "message": {"content": "Lima"}}),
    ],
    "named by an attribute": [
        log("", 1, body={"content": "Be brief."}, attributes={"event.name": "gen_ai.system.message"}),
        log("", 2, body={"content": QUESTION[1]["content"]}, attributes={"event.name": "gen_ai.user.message"}),
        log("", 9, body={"message": ANSWER, "index": 0}, attributes={"event.name": "gen_ai.choice"}),
    ],
    "all in one": [log("gen_ai.client.inference.operation.details", 9, attributes=DETAILS)],
    "all in one, as text": [
        log(
            "gen_ai.client.inference.operation.details",
            9,
            attributes={name: json.dumps(value) for name, value in DETAILS.items()},
        )
    ],
    "all in one, as the body": [log("gen_ai.client.inference.operation.details", 9, body=DETAILS)],
    "as Azure writes it": [
        log("gen_ai.system.message", 1, attributes={"gen_ai.event.content": '{"role":"system","content":"Be brief."}'}),
        log("gen_ai.user.message", 2, attributes={"gen_ai.event.content": json.dumps(QUESTION[1])}),
        log("gen_ai.choice", 9, attributes={"gen_ai.event.content": '{"message":{"content":"Lima"},"index":0}'}),
    ],
}


def record(*batches: list[bytes], restart: bool = False) -> None:
    empty()
    search_index.clear()
    recorder = RunRecorder(Tables(connection))
    for batch in batches:
        if restart:
            recorder = RunRecorder(Tables(connection))
        lines = [Line(text, 0) for text in batch]
        recorder.record(lines)
        assert not [line.error for line in lines if line.error]
    recorder.sweep(10**16, 1, 0)


def asked(uuid: UUID = CALL) -> Any:
    found = bodies.request(uuid)
    assert found is not None
    return json.loads(found["request"] or b"null")


def answered(uuid: UUID = CALL) -> Any:
    found = bodies.response(uuid)
    assert found is not None
    return json.loads(found["response"] or b"null")


def call() -> Scope:
    return Scope.objects.get(uuid=CALL)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("late", [True, False])
def test_what_log_records_tell_of_a_call_is_its_request_and_answer(dialect: str, late: bool) -> None:
    told = [event(record) for record in DIALECTS[dialect]]
    record(*((chat(), told) if late else (told, chat())))
    assert asked() == {"model": "gpt-5", "messages": QUESTION}
    found = answered()
    assert found["choices"] == [{"index": 0, "message": ANSWER, "finish_reason": "stop"}]
    assert found["usage"]["total_tokens"] == 23
    assert (call().asked, call().total_tokens, call().status) == (QUESTION[1]["content"], 23, "ok")
    assert not list(integrity.problems())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["messages", "details"])
@pytest.mark.parametrize("first", ["logs", "traces"])
def test_what_a_real_instrumentation_sends_comes_together(kind: str, first: str) -> None:
    """What opentelemetry-instrumentation-openai-v2 2.4b0 sent of two calls of the demo upstream, the second streamed,
    in a span "a turn": as one event for each message, or with `gen_ai_latest_experimental` as one for each call."""
    captures = Path(__file__).parent / "captures"
    told = [event(r) for r in from_protobuf((captures / f"openai-v2-{kind}.logs.pb").read_bytes())]
    spans = spans_from_protobuf((captures / f"openai-v2-{kind}.traces.pb").read_bytes())
    lines = [line for found in spans for line in events(found)]
    record(*((told, lines) if first == "logs" else (lines, told)))
    one, two = Scope.objects.filter(role="attempt").order_by("start_us")
    assert [m["content"] for m in asked(one.uuid)["messages"]] == ["Be brief.", "What is the capital of Peru?"]
    assert [m["role"] for m in asked(two.uuid)["messages"]] == ["system", "user", "assistant", "user"]
    for attempt, question in ((one, "What is the capital of Peru?"), (two, "And of Chile?")):
        (choice,) = answered(attempt.uuid)["choices"]
        assert choice["message"]["content"].startswith("**Cause.** Since `payments`")
        assert choice["finish_reason"] == attempt.finish_reason == "stop"
        assert (attempt.asked, attempt.status, attempt.flags & Scope.Flag.UNFINISHED_STREAM) == (question, "ok", 0)
    turn = Scope.objects.get(is_turn=True)
    assert (turn.name, turn.asked, turn.attempts) == ("a turn", one.asked, 2)
    assert not list(integrity.problems())


@pytest.mark.django_db(transaction=True)
def test_tool_calls_and_their_results_are_told_too() -> None:
    wanted = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "map"}'}}
    told = [
        log("gen_ai.user.message", 1, body={"content": "Where?"}),
        log("gen_ai.assistant.message", 2, body={"tool_calls": [wanted]}),
        log("gen_ai.tool.message", 3, body={"id": "c1", "content": "here"}),
        log("gen_ai.choice", 4, body={"finish_reason": "tool_calls", "message": {"tool_calls": [wanted]}}),
    ]
    record(chat(), [event(record) for record in told])
    assert asked()["messages"] == [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": [wanted]},
        {"role": "tool", "content": "here", "tool_call_id": "c1"},
    ]
    assert answered()["choices"][0]["message"]["tool_calls"] == [wanted]


@pytest.mark.django_db(transaction=True)
def test_why_an_answer_ended_is_told_too() -> None:
    told = [
        log("gen_ai.choice", 8, body={"index": 0, "finish_reason": "length", "message": {"content": "Li"}}),
        log("gen_ai.choice", 9, body={"index": 1, "finish_reason": "stop", "message": {"content": "Lima"}}),
    ]
    record(chat(**{"gen_ai.response.finish_reasons": None, "gen_ai.request.stream": True}), [event(r) for r in told])
    assert [choice["finish_reason"] for choice in answered()["choices"]] == ["length", "stop"]
    assert (call().finish_reason, call().flags & Scope.Flag.UNFINISHED_STREAM) == ("stop", 0)


@pytest.mark.django_db(transaction=True)
def test_what_the_span_tells_goes_before_what_log_records_tell() -> None:
    own = chat(**{"gen_ai.input.messages": json.dumps([{"role": "user", "content": "from the span"}])})
    record([event(r) for r in DIALECTS["all in one"]], own)
    assert [m["content"] for m in asked()["messages"]] == ["from the span"]
    assert call().asked == "from the span"
    assert answered()["choices"][0]["message"] == ANSWER


@pytest.mark.django_db(transaction=True)
@any_stream
@given(st.sampled_from(sorted(DIALECTS)), st.randoms(use_true_random=False), st.booleans())
def test_order_repetition_and_batches_make_no_difference(dialect: str, order: random.Random, restart: bool) -> None:
    told = [*DIALECTS[dialect], log("gen_ai.evaluation.result", 20, attributes={"gen_ai.evaluation.name": "good"})]
    told += [log("app", 3, body="a line"), log("app", 3, body="a line", span_id=b"parent-1"), log("x", span_id=b"")]
    around = events(span({}, span_id=b"parent-1", name="around"))
    lines = [event(r) for r in told] + around + chat()
    record(lines)
    want, wanted = snapshot(), (asked(), answered())
    again = lines + [line for line in lines if order.random() < 0.4]
    order.shuffle(again)
    record(*cut(again, order), restart=restart)
    assert not differences(want, snapshot())
    assert (asked(), answered()) == wanted
    assert not list(Rebuilt().differences(lambda _: None))
    turn = Scope.objects.get(is_turn=True)
    assert (turn.name, turn.asked, turn.attempts) == ("around", QUESTION[1]["content"], 1)
    assert Event.objects.count() == len(lines)


@pytest.mark.django_db(transaction=True)
def test_a_message_is_found_once_a_call_and_where_it_was_said() -> None:
    other = {"span_id": b"other-id"}
    later = [event(log(r.name, 100 + r.at_ns - AT, body=r.body, **other)) for r in DIALECTS["a message each"]]
    later.append(event(log("gen_ai.user.message", 103, body={"content": "And of Chile?"}, **other)))
    record([event(r) for r in DIALECTS["a message each"]], later)
    while search_index.catch_up():
        pass
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM recording_mention WHERE scope_uuid = %s", [search_index.as_parameter(CALL)]
        )
        assert cursor.fetchone() == (3,)
        other_call = search_index.as_parameter(made_uuid(TRACE, b"other-id"))
        cursor.execute("SELECT count(*) FROM recording_mention WHERE scope_uuid = %s", [other_call])
        assert cursor.fetchone() == (2,)  # its own question, and its answer


def test_a_record_is_a_mark_under_its_span_and_the_same_one_when_sent_again() -> None:
    first, again = (json.loads(event(log("gen_ai.choice", body={"index": 0}))) for _ in range(2))
    assert first == again
    assert (first["kind"], first["parent_uuid"]) == ("mark", str(CALL))
    assert first["timestamp"] == "2026-01-01T00:00:00.200000000+00:00"
    others = [log("gen_ai.choice", body={"index": 1}), log("gen_ai.choice", 1, body={"index": 0})]
    others.append(log("gen_ai.choice", body={"index": 0}, resource={"service.instance.id": "2"}))
    assert len({first["uuid"], *(json.loads(event(other))["uuid"] for other in others)}) == 4


def test_nothing_of_a_record_is_lost() -> None:
    found = json.loads(
        event(
            log(
                "shop.sold",
                severity=13,
                body={"what": ["tea", 1.5, None]},
                attributes={"session.id": "s-1", "n": 2**62},
                scope="shop.till",
                dropped=2,
                resource={"service.name": "shop", "host.name": "a"},
            )
        )
    )
    assert found["metadata"] == {
        "service.name": "shop",
        "scope.name": "shop.till",
        "session_id": "s-1",
        "severity": "WARN",
        "severity_number": 13,
        "observed_ns": AT + 5,
        "dropped_attributes": 2,
        "body": {"what": ["tea", 1.5, None]},
        "attributes": {"session.id": "s-1", "n": 2**62},
    }


def test_records_without_a_span_or_without_a_time_are_marks_too() -> None:
    alone = json.loads(event(log("", span_id=b"", at_ns=0, body="hello")))
    assert (alone["name"], alone["parent_uuid"], alone["metadata"]["trace_id"]) == ("log", None, TRACE.hex())
    assert alone["timestamp"] == "2026-01-01T00:00:00.200000005+00:00"
    nothing = json.loads(event(LogRecord("", 0, 0, 0, "", None, {})))
    assert nothing["metadata"] is None and nothing["timestamp"] > "2026-01-01"


@pytest.mark.django_db(transaction=True)
def test_the_log_of_a_program_is_not_read_for_the_bodies_of_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    record([event(log("app", n, body=f"line {n}")) for n in range(50)], events(span({}, name="a program")))
    read: list[int] = []
    texts = Reader.texts

    def counted(reader: Reader, found: Any) -> Any:
        read.append(len(found))
        return texts(reader, found)

    monkeypatch.setattr(Reader, "texts", counted)
    assert (asked(), answered()) == (None, None)
    assert sum(read) == 2  # its start and its end
    found = bodies.events(CALL, limit=100)
    assert found is not None and len(found["events"]) == 52


@pytest.mark.django_db(transaction=True)
def test_an_export_in_otlp_holds_log_records_with_and_without_a_span() -> None:
    told = [event(r) for r in DIALECTS["a message each"]] + [event(log("app", 3, body="alone", span_id=b""))]
    record(told, chat())
    wanted, marks = (asked(), answered()), sorted(Event.objects.filter(kind=Event.Kind.MARK).values_list("uuid"))
    lines = list(otlp(everything()))
    spans = [line for text in lines[:-1] for found in spans_from_json(text) for line in events(found)]
    records = [line for found in from_json(lines[-1]) for line in logs.events(found)]
    record(spans, records)
    assert (asked(), answered()) == wanted
    assert sorted(Event.objects.filter(kind=Event.Kind.MARK).values_list("uuid")) == marks
    assert json.loads(records[0])["metadata"]["body"] == "alone"
    while search_index.catch_up():
        pass
    assert Scope.objects.filter(search.turns_saying("Peru", []), uuid=CALL).exists()


@pytest.mark.django_db(transaction=True)
def test_spans_that_come_after_their_log_records_need_no_telling_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(RunRecorder, "_tell_anew", lambda *doubts: told.append(doubts))
    record([event(r) for r in DIALECTS["a message each"]], events(span({"gen_ai.operation.name": "chat"})))
    assert not told and asked()["messages"] == QUESTION


@pytest.mark.django_db(transaction=True)
@any_stream
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_what_atof_tells_of_the_same_run_is_kept_and_log_records_are_too(
    order: random.Random, restart: bool, with_spans: bool
) -> None:
    root, whole = UUID(bytes=TRACE), UUID(bytes=b"\1" * 8 + SPAN)

    def atof(kind: str, uuid: UUID, parent: UUID | None, ms: float, **members: Any) -> bytes:
        told = scope(kind, str(uuid), str(parent) if parent else None, ms, **members)
        return line({**told, "propagation_root_uuid": str(root)})

    asks = {"content": {"model": "m", "messages": [{"role": "user", "content": "as ATOF has it"}]}, "headers": {}}
    run = [
        atof("start", root, None, 0, name="agent", category="agent"),
        atof("start", whole, root, 1, name="call", category="llm", data=asks),
        atof("end", whole, root, 9, name="call", category="llm", data=None),
        atof("end", root, None, 10, name="agent", category="agent"),
    ]
    told = [event(r) for r in DIALECTS["a message each"]]
    told.append(event(log("app", 4, body="a line")))
    spans = events(span({"gen_ai.operation.name": "chat"}, parent_id=TRACE[8:])) if with_spans else []
    record(run + told)
    want, wanted = snapshot(), (asked(whole), answered(whole))
    again = [*run, *told, *spans, *(line for line in told if order.random() < 0.5)]
    order.shuffle(again)
    record(*cut(again, order), restart=restart)
    assert not differences(want, snapshot())
    assert (asked(whole), answered(whole)) == wanted
    assert wanted[0] == asks["content"] and wanted[1]["choices"][0]["message"] == ANSWER
    assert Event.objects.filter(mark_of=whole).count() == len(told)
    assert not list(integrity.problems()) and not list(Rebuilt().differences(lambda _: None))
