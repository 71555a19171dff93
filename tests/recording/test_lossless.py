"""What was accepted is what can be read back, whatever JSON can hold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.secret_names import is_secret_name
from relayweb.recording.events.atof import MAX_DEPTH
from relayweb.recording.models import ChunkBlock, Content, Event, Scope
from relayweb.recording.store import blocks, encoding
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.stored import Reader
from relayweb.recording.writing.recorder import Line
from tests.recording import streams

Record = Callable[..., list[Line]]


def texts() -> list[bytes]:
    """The JSON text of everything on record, in the order of acceptance."""
    events = list(Event.objects.order_by("seq"))
    found = {event.seq: text for event, text in zip(events, Reader().texts(events), strict=True)}
    for block in ChunkBlock.objects.all():
        marks, root = blocks.decode(block.kind, bytes(block.body))
        for mark in marks:
            if mark.template:
                body = Content.objects.get(id=mark.template).body
                mark.text = encoding.decode(bytes(body), CONTENT.expand).text
            found[mark.seq] = blocks.fill(mark, str(block.attempt_uuid), root)
    return [found[seq] for seq in sorted(found)]


def values() -> list[Any]:
    return [json.loads(text) for text in texts()]


def test_messages_come_back_byte_for_byte(record: Record) -> None:
    history = [{"role": "user", "content": f"message {i} " * 40} for i in range(5)]
    data = {
        "content": {"messages": history, "tools": [{"name": "t" * 700}], "system": "s" * 900},
        "headers": {"a": "b"},
    }
    lines = [
        streams.line(streams.scope("start", streams.uid(), streams.uid(), i, category="llm", data=data))
        for i in range(3)
    ]
    record(*lines)
    assert texts() == lines


def test_what_python_writes_with_spaces_and_escapes_comes_back_each_time(record: Record) -> None:
    said = {"messages": [{"role": "user", "content": f"café {i} " * 80} for i in range(3)], "note": "é" * 600}
    starts = [
        streams.scope("start", streams.uid(), None, i, category="llm", data=said, metadata={"who": who})
        for i, who in enumerate(("José", "Ann", "José", "Bob"))
    ]
    for some in (starts[:1], starts[1:2], starts[2:]):  # what one batch brings, the next one refers to
        record(*[json.dumps(start).encode() for start in some])
    assert values() == starts


@pytest.mark.parametrize(
    "text",
    [
        '{"n":123456789012345678901234567890,"m":-18446744073709551617}',
        '{"float":[1.0,1e400,0.1000000000000000055511151231257827,-0.0,1E5]}',
        '"nul \\u0000 and \\u2028 \u2028 \\u001b"',
        '{"lone":"\\ud800","pair":"\\ud83d\\ude00","low":"\\udc00x","escaped":"\\\\ud800"}',
        '{"unknown":{"deep":[[[[{"a":null}]]]]},"":{"":""}}',
        '{"spaced" : [ 1 , 2 ] }',
        '"' + "✅\u0085" * 300 + '"',
        '{"messages":[1,"two",null,{"role":"user","content":null},[]]}',
        '{"messages":null,"input":"text","contents":{}}',
    ],
)
@pytest.mark.parametrize("size", [0, 3_000])
def test_any_value_comes_back_equal(record: Record, text: str, size: int) -> None:
    event = streams.scope("start", streams.uid(), None, 1, category="llm", metadata={"pad": "x" * size})
    line = streams.line(event).replace(b'"data":null', b'"data":' + text.encode(), 1)
    assert record(line)[0].error is None
    (got,) = texts()
    assert json.loads(got) == json.loads(line)
    if " : " not in text:
        assert got == line


def test_not_a_number_is_kept_as_a_marked_value(record: Record) -> None:
    event = streams.mark("note", None, 1, {"a": float("nan"), "b": [float("inf"), "NaN"]})
    record(json.dumps(event).encode())
    assert values()[0]["data"] == {"a": {"$float": "NaN"}, "b": [{"$float": "Infinity"}, "NaN"]}


def test_invalid_utf8_is_replaced_and_flagged_and_only_there(record: Record) -> None:
    good, bad = streams.uid(), streams.uid()
    broken = streams.line(streams.scope("start", bad, None, 1, data="AB")).replace(b'"AB"', b'"\xff\xfe"')
    record(broken, streams.scope("start", good, None, 1, data="AB"))
    assert [v["data"] for v in values()] == ["��", "AB"]
    assert Scope.objects.get(uuid=bad).flag_names == ["replaced_text"]
    assert Scope.objects.get(uuid=good).flag_names == []


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, 990, 20_000])
def test_of_a_line_that_is_too_deep_only_the_depth_is_left_out(record: Record, depth: int) -> None:
    uuid = streams.uid()
    start = json.dumps(streams.scope("start", uuid, None, 1, metadata={"half": "\ud800", 'a"[': "]"})).encode()
    deep = b'{"[\\"":' * (depth - 1) + b"[7]" + b"}" * (depth - 1)
    line, neighbour = record(start.replace(b'"data": null', b'"data":' + deep), streams.mark("note", None, 1))
    assert (line.error, neighbour.error) == (None, None)
    (event,) = (json.loads(text) for text in texts() if uuid.encode() in text)
    assert event["metadata"] == {"half": "\ud800", 'a"[': "]"}
    value, levels = event["data"], 0
    while isinstance(value, dict):
        value, levels = value['["'], levels + 1
    taken = depth < MAX_DEPTH
    assert Scope.objects.get(uuid=uuid).flag_names == ([] if taken else ["replaced_text"])
    assert levels == min(depth, MAX_DEPTH) - 1
    if not taken:
        left_out = len(deep) - (MAX_DEPTH - 1) * len(b'{"[\\"":}')
        assert value == f"[{left_out} bytes, nested deeper than {MAX_DEPTH} levels, were left out]"


def test_a_line_of_nothing_but_depth_is_rejected_at_once(record: Record) -> None:
    start = streams.line(streams.scope("start", streams.uid(), None, 1))
    deep = start.replace(b'"data":null', b'"data":' + b"[" * 1_000_000 + b"]" * 1_000_000)
    began = time.process_time()
    line, neighbour = record(deep, streams.mark("note", None, 1))
    assert "500 levels" in str(line.error) and neighbour.error is None
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "span"}, 'neither "scope" nor "mark"'),
        ({"uuid": "not-a-uuid"}, "uuid: 'not-a-uuid' is not a UUID"),
        ({"uuid": None}, "$.uuid"),
        ({"scope_category": "middle"}, "scope_category"),
        ({"timestamp": "yesterday"}, "timestamp: 'yesterday'"),
        ({"timestamp": 10**18}, "timestamp"),
        ({"parent_uuid": "x"}, "parent_uuid"),
    ],
)
def test_what_is_no_event_is_refused_with_the_member_that_is_wrong(
    record: Record, change: dict[str, Any], told: str
) -> None:
    (line,) = record({**streams.scope("start", streams.uid(), None, 1), **change})
    assert told in str(line.error)


@pytest.mark.parametrize(
    "timestamp",
    [
        "2026-01-01T00:00:00.123456789+00:00",
        "2026-01-01T01:00:00+01:00",
        "2026-01-01T00:00:00Z",
        "2026-01-01t00:00:00.5z",
        "2026-06-30T23:59:60Z",
        1_767_225_600_123_456,
    ],
)
def test_each_form_of_timestamp_comes_back_as_it_was(record: Record, timestamp: str | int) -> None:
    event = {**streams.scope("start", streams.uid(), None, 1), "timestamp": timestamp}
    record(event, {**streams.chunk(event["uuid"], 0, 1), "timestamp": timestamp})
    assert [v["timestamp"] for v in values()] == [timestamp, timestamp]


def test_timestamps_in_both_forms_mean_the_same_time(record: Record) -> None:
    forms = (1_767_225_600_000_000, "2026-01-01T00:00:00.000000000+00:00", "2026-01-01T01:00:00+01:00")
    for form in forms:
        record({**streams.scope("start", streams.uid(), None, 1), "timestamp": form})
    assert set(Scope.objects.values_list("start_us", flat=True)) == {1_767_225_600_000_000}


# Hypothesis also tries the texts that stand in our modules, names of secrets among them, whose values are masked.
def _names(longest: int) -> st.SearchStrategy[str]:
    return st.text(max_size=longest).filter(lambda name: not is_secret_name(name))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names(9), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=_json,
    metadata=_json,
    extra=st.dictionaries(_names(5), _json, max_size=2),
    index=st.integers(0, 10**12),
)
def test_any_event_comes_back_equal(record: Record, data: Any, metadata: Any, extra: Any, index: int) -> None:
    event = {**extra, **streams.scope("start", streams.uid(), None, 1, data=data, metadata=metadata)}
    chunk = {**extra, **streams.chunk(event["uuid"], index, 1, value=data)}
    lines = [json.dumps(e, ensure_ascii=index % 2 == 0).encode("utf-8", "surrogatepass") for e in (event, chunk)]
    for line in record(*lines):
        assert line.error is None
    assert values()[-2:] == [json.loads(line) for line in lines]


_TOLD = (
    "outcome", "relay.outcome", "api_mode", "api_request_id", "call_role", "session_id", "turn_id", "profile", "model",
    "provider", "name", "key", "mode", "result", "error", "kind", "status", "finish_reason", "tool_call_id",
)  # fmt: skip


@pytest.mark.parametrize("category", ["llm", "function", "tool", "agent", "guardrail", "c" * 10_000])
def test_what_is_told_in_words_may_be_a_book_with_any_characters(record: Record, category: str) -> None:
    """Columns are short; PostgreSQL refuses what is longer than its column, and some characters everywhere."""
    book = dict.fromkeys(_TOLD, "\x00\ud800 word" * 2_000)
    told = {"category": category, "name": book["name"], "data": book, "metadata": book, "profile": book}
    one = streams.uid()
    events = [streams.scope(end, one, streams.uid(), at, **told) for at, end in enumerate(("start", "end"))]
    events += [streams.mark(name, one, 3, book) for name in ("relay.rewrite", "llm.chunk", "other")]
    lines = record(*[json.dumps(event).encode() for event in events])
    assert [line.error for line in lines] == [None] * 5


def test_equal_events_are_duplicates_however_they_are_written(record: Record) -> None:
    event = streams.scope("start", streams.uid(), None, 1, data={"b": 1, "a": [1.5, 10**30]})
    spaced = json.dumps(dict(reversed(event.items())), indent=1).replace("\n", " ").encode()
    chunk = streams.chunk(event["uuid"], 3, 2)
    record(event, chunk)
    assert [line.duplicate for line in record(event, spaced, chunk)] == [True, True, True]
    assert len(texts()) == 2


def test_a_second_different_end_is_kept_and_flagged_and_the_earlier_one_shown(record: Record) -> None:
    uuid = streams.uid()
    start = streams.scope("start", uuid, None, 1, category="llm", data=streams.request())
    first = streams.scope("end", uuid, None, 5, category="llm", data=streams.answer(prompt=7), metadata=streams.OK)
    second = streams.scope("end", uuid, None, 9, category="llm", data=None, metadata=streams.FAILED)
    record(start, second)
    record(first)
    row = Scope.objects.get(uuid=uuid)
    assert (row.status, row.input_tokens) == ("ok", 7) and "conflict" in row.flag_names
    assert len(texts()) == 3
    assert list(Event.objects.filter(flags=Event.Flag.CONFLICT).values_list("at_ns", flat=True)) == [
        Event.objects.get(seq=2).at_ns
    ]


def test_a_long_conversation_costs_what_is_new_in_it(record: Record) -> None:
    import random

    rng, history, new = random.Random(3), [{"role": "system", "content": "be brief"}], 0
    for step in range(200):
        text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz     ", k=700))
        history.append({"role": "user" if step % 2 else "assistant", "content": text})
        new += len(text)
        data = {"content": {"messages": history, "model": "m"}, "headers": {}}
        record(streams.scope("start", streams.uid(), None, step, category="llm", data=data))
    stored = sum(len(b) for b in Content.objects.values_list("body", flat=True))
    stored += sum(len(b) for b in Event.objects.values_list("body", flat=True))
    assert stored <= 1.5 * new
