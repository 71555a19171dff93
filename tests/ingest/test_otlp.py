"""Spans as other vocabularies write them, read into ATOF. Relay's own exporters are driven in test_exporters.py."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from relayweb.ingest.otlp.events import events
from relayweb.ingest.otlp.spans import Span, SpanEvent, from_json, from_protobuf
from relayweb.ingest.otlp.values import BadRequest, Refused

TRACE = bytes.fromhex("0af7651916cd43dd8448eb211c80319c")
SPAN = bytes.fromhex("b7ad6b7169203331")


def span(attributes: dict[str, Any], **members: Any) -> Span:
    known = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_id": b"",
        "name": "a span",
        "start_ns": 1767225600_123456789,
        "end_ns": 1767225601_000000001,
        "events": [],
        "failed": False,
        "message": "",
        "service": None,
    }
    return Span(**(known | members), attributes=attributes)


def read(found: Span) -> list[dict[str, Any]]:
    return [json.loads(line) for line in events(found)]


def test_a_span_is_a_start_and_an_end_with_its_exact_times() -> None:
    start, end = read(span({}, service="shop"))
    assert (start["scope_category"], end["scope_category"]) == ("start", "end")
    assert start["timestamp"] == "2026-01-01T00:00:00.123456789+00:00"
    assert end["timestamp"] == "2026-01-01T00:00:01.000000001+00:00"
    assert start["uuid"] == end["uuid"] == str(UUID(bytes=TRACE[:8] + SPAN))
    assert start["metadata"] == {"service.name": "shop"}
    assert start["category"] == "function"


def test_a_span_without_an_end_has_no_length() -> None:
    start, end = read(span({}, end_ns=0))
    assert start["timestamp"] == end["timestamp"]


def test_b43_a_span_that_ends_before_it_starts_keeps_both_times() -> None:
    start, end = read(span({}, end_ns=1767225590_123456789))
    assert (start["timestamp"][:19], end["timestamp"][:19]) == ("2026-01-01T00:00:00", "2025-12-31T23:59:50")


def test_a_child_names_the_same_parent_as_the_parent_names_itself() -> None:
    parent = read(span({}))[0]
    child = read(span({}, span_id=b"12345678", parent_id=SPAN))[0]
    assert child["parent_uuid"] == parent["uuid"]
    assert parent["parent_uuid"] is None and parent["propagation_root_uuid"] == parent["uuid"]


def test_a_failure_is_told_with_its_exception() -> None:
    exception = SpanEvent("exception", 5, {"exception.type": "Boom", "exception.message": "it broke"})
    _, mark, end = read(span({"error.type": "500"}, failed=True, message="no luck", events=[exception]))
    assert end["metadata"] == {
        "otel.status_code": "ERROR",
        "otel.status_description": "no luck",
        "error.type": "500",
        "exception.type": "Boom",
        "exception.message": "it broke",
    }
    assert (mark["name"], mark["parent_uuid"]) == ("exception", end["uuid"])


def test_two_events_of_a_span_are_two_marks_and_the_same_ones_when_sent_again() -> None:
    found = span({}, events=[SpanEvent("a", 1, {}), SpanEvent("a", 1, {})])
    first, second = (e["uuid"] for e in read(found) if e["kind"] == "mark")
    assert first != second
    assert read(found) == read(found)


def test_attributes_that_nobody_reads_are_kept() -> None:
    start, _ = read(span({"http.route": "/x", "retries": 3}))
    assert start["metadata"] == {"http.route": "/x", "retries": 3}


MESSAGES = [
    {"role": "system", "parts": [{"type": "text", "content": "be good"}]},
    {"role": "user", "parts": [{"type": "text", "content": "add"}, {"type": "text", "content": "these"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"sum": 2}}]},
]


def test_a_call_in_the_genai_conventions() -> None:
    start, end = read(
        span(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.request.temperature": 0.5,
                "gen_ai.conversation.id": "s1",
                "gen_ai.input.messages": json.dumps(MESSAGES),
                "gen_ai.output.messages": json.dumps(
                    [
                        {
                            "role": "assistant",
                            "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "2"}],
                        }
                    ]
                ),
                "gen_ai.response.finish_reasons": ["stop"],
                "gen_ai.response.model": "gpt-4o-2026",
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 2,
                "gen_ai.usage.cache_read.input_tokens": 4,
            }
        )
    )
    assert start["category"] == "llm"
    assert start["metadata"]["session_id"] == "s1"
    assert start["metadata"]["api_mode"] == "chat_completions"
    assert start["metadata"]["gen_ai.provider.name"] == "openai"
    assert "gen_ai.input.messages" not in start["metadata"]
    assert start["data"]["content"] == {
        "model": "gpt-4o",
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": "add\nthese"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": '{"sum": 2}'},
        ],
    }
    assert end["data"] == {
        "model": "gpt-4o-2026",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "2", "reasoning_content": "hm"},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 2,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


def test_messages_told_in_a_span_event_are_read_as_well() -> None:
    details = SpanEvent(
        "gen_ai.client.inference.operation.details", 1, {"gen_ai.input.messages": json.dumps(MESSAGES[:1])}
    )
    start = read(span({"gen_ai.operation.name": "chat"}, events=[details]))[0]
    assert start["data"]["content"]["messages"] == [{"role": "system", "content": "be good"}]


def test_a_call_in_the_older_indexed_form() -> None:
    start, end = read(
        span(
            {
                "llm.request.type": "chat",
                "gen_ai.system": "Anthropic",
                "gen_ai.request.model": "claude",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "hi",
                "gen_ai.prompt.10.role": "user",
                "gen_ai.prompt.10.content": "last",
                "gen_ai.prompt.2.role": "assistant",
                "gen_ai.prompt.2.content": "hello",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "bye",
                "gen_ai.completion.0.finish_reason": "end_turn",
                "gen_ai.completion.0.tool_calls.0.name": "add",
                "gen_ai.completion.0.tool_calls.0.arguments": "{}",
                "gen_ai.usage.prompt_tokens": 3,
                "gen_ai.usage.completion_tokens": 4,
            }
        )
    )
    assert [m["content"] for m in start["data"]["content"]["messages"]] == ["hi", "hello", "last"]
    (choice,) = end["data"]["choices"]
    assert choice["finish_reason"] == "end_turn"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert end["data"]["usage"]["total_tokens"] == 7


def test_unknown_usage_is_not_zero() -> None:
    _, end = read(span({"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3}))
    assert end["data"]["usage"] == {"prompt_tokens": 3}
    _, end = read(span({"gen_ai.operation.name": "chat"}))
    assert end["data"] is None


def test_a_tool_in_the_genai_conventions() -> None:
    start, end = read(
        span(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "add",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"a": 1}',
                "gen_ai.tool.call.result": "two",
            }
        )
    )
    assert (start["category"], start["name"], start["category_profile"]) == ("tool", "add", {"tool_call_id": "c1"})
    assert (start["data"], end["data"]) == ({"a": 1}, "two")


def test_a_call_in_openinference() -> None:
    start, end = read(
        span(
            {
                "openinference.span.kind": "LLM",
                "llm.model_name": "gpt-4o",
                "llm.provider": "openai",
                "llm.invocation_parameters": '{"temperature": 0.1}',
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.contents.0.message_content.type": "text",
                "llm.input_messages.0.message.contents.0.message_content.text": "look",
                "llm.input_messages.0.message.contents.1.message_content.type": "image",
                "llm.input_messages.0.message.contents.1.message_content.image.image.url": "https://x/y.png",
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": "a cat",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "feed",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
                "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "feed"}}',
                "llm.token_count.prompt": 5,
                "llm.token_count.completion": 6,
                "session.id": "s1",
                "metadata": '{"turn_id": "t1"}',
            }
        )
    )
    assert start["data"]["content"] == {
        "model": "gpt-4o",
        "temperature": 0.1,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                ],
            }
        ],
        "tools": [{"type": "function", "function": {"name": "feed"}}],
    }
    assert start["metadata"]["session_id"] == "s1" and start["metadata"]["turn_id"] == "t1"
    assert start["metadata"]["provider"] == "openai"
    message = end["data"]["choices"][0]["message"]
    assert message["content"] == "a cat" and message["tool_calls"][0]["function"]["name"] == "feed"
    assert end["data"]["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}


@pytest.mark.parametrize(
    ("kind", "category"), [("TOOL", "tool"), ("AGENT", "agent"), ("CHAIN", "function"), ("odd", "function")]
)
def test_other_spans_of_openinference_keep_what_went_in_and_out(kind: str, category: str) -> None:
    start, end = read(
        span({"openinference.span.kind": kind, "input.value": '{"a": 1}', "output.value": "text", "tool.name": "add"})
    )
    assert (start["category"], start["data"], end["data"]) == (category, {"a": 1}, "text")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def protobuf_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(protobuf_value, value)))
    if isinstance(value, dict):
        pairs = [KeyValue(key=k, value=protobuf_value(v)) for k, v in value.items()]
        return AnyValue(kvlist_value=KeyValueList(values=pairs))
    return AnyValue()


def json_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if abs(value) != float("inf") else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [json_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": k, "value": json_value(v)} for k, v in value.items()]}}
    return {}


@given(st.dictionaries(st.text(), values, max_size=4))
def test_protobuf_and_json_say_the_same(attributes: dict[str, Any]) -> None:
    request = ExportTraceServiceRequest()
    wire = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(trace_id=TRACE, span_id=SPAN, name="n", start_time_unix_nano=1, end_time_unix_nano=2**63)
    )
    wire.attributes.extend(KeyValue(key=k, value=protobuf_value(v)) for k, v in attributes.items())
    wire.status.code = 2
    document = {
        "traceId": TRACE.hex().upper(),
        "spanId": SPAN.hex(),
        "name": "n",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": str(2**63),
        "attributes": [{"key": k, "value": json_value(v)} for k, v in attributes.items()],
        "status": {"code": 2},
    }
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [document]}]}]}).encode()
    (one,), (two,) = from_protobuf(request.SerializeToString()), from_json(text)
    assert one == two
    assert one.attributes == attributes and one.failed


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz", "spanId": "00"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "00"}]}]}]}',
        b'{"resourceSpans": ' + b"[" * 100_000,
    ],
)
def test_json_that_is_no_request_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(BadRequest, match="not an OTLP trace request in JSON: ."):
        from_json(data)


def test_bytes_that_are_no_protobuf_are_an_error_that_says_so() -> None:
    with pytest.raises(BadRequest, match="protobuf"):
        from_protobuf(b"\xff\xff plain text")


def test_b41_of_texts_that_are_no_utf8_only_what_is_none_is_replaced() -> None:
    told = [("QQQQ", "before"), ("after", "QQQQ")]
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for name, text in told:
        found = spans.add(name=name, trace_id=b"\xff" * 16, span_id=b"\xfe" * 8)
        found.attributes.add(key="a").value.string_value = text
        found.attributes.add(key="b").value.bytes_value = b"\xff\xfe"
    document = {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                **{"traceId": "ff" * 16, "spanId": "fe" * 8, "name": name},
                                "attributes": [
                                    {"key": "a", "value": {"stringValue": text}},
                                    {"key": "b", "value": {"stringValue": "fffe"}},
                                ],
                            }
                            for name, text in told
                        ]
                    }
                ]
            }
        ]
    }
    bad = b"\xff\xfe\xed\xa0"
    for read_spans, body in ((from_protobuf, request.SerializeToString()), (from_json, json.dumps(document).encode())):
        first, second = read_spans(body.replace(b"QQQQ", bad))
        assert (first.name, first.attributes) == ("\ufffd" * 4, {"a": "before", "b": "fffe"})
        assert (second.name, second.attributes) == ("after", {"a": "\ufffd" * 4, "b": "fffe"})
        assert (first.trace_id, first.span_id) == (b"\xff" * 16, b"\xfe" * 8)


anything = st.dictionaries(
    st.sampled_from(
        [
            "gen_ai.operation.name",
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.system_instructions",
            "gen_ai.tool.definitions",
            "gen_ai.response.finish_reasons",
            "gen_ai.usage.input_tokens",
            "gen_ai.prompt.0.role",
            "gen_ai.completion.0.content",
            "openinference.span.kind",
            "metadata",
            "llm.input_messages.0.message.role",
            "llm.tools.0.tool.json_schema",
            "llm.invocation_parameters",
            "llm.finish_reason",
            "nemo_relay.uuid",
            "nemo_relay.parent_uuid",
            "nemo_relay.start.data",
            "nemo_relay.start.metadata",
            "nemo_relay.handle_attributes",
        ]
    ),
    values | st.sampled_from(["chat", "execute_tool", "LLM", "TOOL", "[1, null]", '{"parts": 1}', '[{"parts": [1]}]']),
)


@given(anything)
def test_whatever_attributes_hold_comes_out_as_events(attributes: dict[str, Any]) -> None:
    found = read(span(attributes))
    assert [e["kind"] for e in found] == ["scope", "scope"]
    assert all(UUID(e["uuid"]) for e in found)


@pytest.mark.parametrize("depth", [150, 400, 20_000])
@pytest.mark.parametrize("opening", [b'{"arrayValue":{"values":[', b'{"kvlistValue":{"values":[{"key":"k","value":'])
def test_of_an_attribute_that_is_too_deep_only_the_depth_is_left_out(depth: int, opening: bytes) -> None:
    closing = b"]}}" if b"array" in opening else b"}]}}"
    deep = opening * depth + b'{"stringValue":"x"}' + closing * depth
    data = (
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%b","spanId":"%b","attributes":['
        b'{"key":"deep","value":%b},{"key":"kept","value":{"intValue":"7"}}]},{"traceId":"%b","spanId":"%b"}]}]}]}'
    ) % (TRACE.hex().encode(), SPAN.hex().encode(), deep, TRACE.hex().encode(), b"01" * 8)
    first, second = from_json(data)
    assert first.attributes["kept"] == 7 and second.span_id == b"\1" * 8
    assert len(read(first)) == len(read(second)) == 2
    value = first.attributes["deep"]
    while not isinstance(value, str) and value is not None:
        value = value[0] if isinstance(value, list) else value["k"]
    kept = value == "x"
    assert kept if depth == 150 else "left out" in value or (kept and depth == 400)  # Python 3.12 reaches deeper


@pytest.mark.parametrize(
    "value", [{"arrayValue": 1}, {"kvlistValue": {"values": [1]}}, {"intValue": None}, {"intValue": []}]
)
def test_an_attribute_of_no_kind_is_an_error_that_says_so(value: Any) -> None:
    spans = [{"traceId": "ab" * 16, "spanId": "cd" * 8, "attributes": [{"key": "k", "value": value}]}]
    with pytest.raises(BadRequest, match="not an OTLP trace request in JSON"):
        from_json(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())


def in_json(*found: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [given]} for given in found]}]}).encode()


GOOD = {"traceId": TRACE.hex(), "spanId": SPAN.hex(), "name": "good"}


@pytest.mark.parametrize(
    "wrong",
    [
        {**GOOD, "spanId": "00" * 8},
        {**GOOD, "traceId": "00" * 16},
        {**GOOD, "spanId": ""},
        {"name": "nameless"},
        {**GOOD, "spanId": "abc"},
        {**GOOD, "traceId": "\ud800"},
        {**GOOD, "parentSpanId": "\udfff"},
        {**GOOD, "startTimeUnixNano": "noon"},
        {**GOOD, "startTimeUnixNano": []},
        {**GOOD, "attributes": [{"key": "a", "value": {"intValue": "x"}}]},
        {**GOOD, "attributes": [{"value": {}}]},
        {**GOOD, "name": 5},
        7,
    ],
)
def test_a_span_that_cannot_be_taken_is_refused_alone(wrong: Any) -> None:
    refused: list[Refused] = []
    assert [found.name for found in from_json(in_json(GOOD, wrong, GOOD), refused)] == ["good", "good"]
    assert [one.what for one in refused] == ["span 2"]
    with pytest.raises(BadRequest, match="span 2: ."):
        from_json(in_json(GOOD, wrong, GOOD))


def test_a_span_in_protobuf_without_an_id_is_refused_alone() -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for trace_id, span_id in ((TRACE, SPAN), (TRACE, b""), (bytes(16), SPAN), (TRACE, bytes(8))):
        spans.add(trace_id=trace_id, span_id=span_id, name="s")
    refused: list[Refused] = []
    assert len(from_protobuf(request.SerializeToString() + b"\xfa\x7f\x03abc", refused)) == 1
    assert [one.what for one in refused] == ["span 2", "span 3", "span 4"]


def test_ids_in_base64_and_numbers_as_numbers_are_read() -> None:
    told = {**GOOD, "startTimeUnixNano": 1767225600000000001, "endTimeUnixNano": "1767225600000000002"}
    there = {**told, "traceId": base64.b64encode(TRACE).decode(), "spanId": base64.b64encode(SPAN).decode()}
    here = {**told, "traceId": TRACE.hex().upper(), "startTimeUnixNano": "1767225600000000001"}
    one, two = from_json(in_json(here, there))
    assert one == two and (one.trace_id, one.start_ns) == (TRACE, 1767225600000000001)


def test_members_that_are_null_are_not_told() -> None:
    silent = dict.fromkeys(("name", "parentSpanId", "attributes", "events", "links", "status", "startTimeUnixNano"))
    (one, two) = from_json(in_json({**GOOD, **silent}, {"traceId": GOOD["traceId"], "spanId": GOOD["spanId"]}))
    assert one == two
    assert from_json(b'{"resourceSpans": null}') == from_json(b'{"resourceSpans": [{"scopeSpans": null}]}') == []
    (failed,) = from_json(in_json({**GOOD, "status": {"code": "2", "message": None}}))
    assert failed.failed and failed.message == ""


def test_bytes_are_hex_in_json_as_in_protobuf() -> None:
    value = {"bytesValue": base64.b64encode(b"\0\1\xff").decode()}
    (found,) = from_json(b"\xef\xbb\xbf" + in_json({**GOOD, "attributes": [{"key": "b", "value": value}]}))
    assert found.attributes == {"b": "0001ff"}


def test_openinference_of_a_call_without_messages() -> None:
    call = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    start, end = read(span({**call, "input.value": "tell me", "output.value": "told you"}))
    assert start["data"]["content"] == {"model": "m", "messages": [{"role": "user", "content": "tell me"}]}
    assert end["data"]["choices"][0]["message"] == {"role": "assistant", "content": "told you"}
    start, end = read(span({**call, "llm.prompts.0.prompt.text": "go", "llm.choices.0.completion.text": "gone"}))
    assert start["data"]["content"]["messages"] == [{"role": "user", "content": "go"}]
    assert end["data"]["choices"][0]["message"]["content"] == "gone"
    said = {"llm.output_messages.0.message.content": "x", "llm.output_messages.0.message.finish_reason": "length"}
    assert read(span({**call, **said}))[1]["data"]["choices"][0]["finish_reason"] == "length"
    answer = {"choices": [{"message": {"content": "yo"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    assert read(span({**call, "output.value": json.dumps(answer)}))[1]["data"] == answer


def test_integers_of_more_than_64_bits_are_none_of_otlp() -> None:
    def request(number: int) -> bytes:
        attribute = {"key": "ai.response.msToFirstChunk", "value": {"intValue": str(number)}}
        told = {"traceId": TRACE.hex(), "spanId": SPAN.hex(), "attributes": [attribute]}
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [told]}]}]}).encode()

    (found,) = from_json(request(2**63 - 1))
    assert found.attributes == {"ai.response.msToFirstChunk": 2**63 - 1}
    with pytest.raises(BadRequest, match="64"):
        from_json(request(10**400))


def test_half_a_character_in_a_name_costs_nothing_but_itself() -> None:
    (found,) = from_json(in_json({**GOOD, "name": "a\ud800b \U0001f600 \\u"}))
    assert found.name == "a\ufffdb \U0001f600 \\u"
