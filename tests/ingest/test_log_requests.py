"""OTLP log requests, in protobuf and in JSON, as records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from relayweb.ingest.otlp import logs
from relayweb.ingest.otlp.logs import LogRecord, from_json, from_protobuf
from relayweb.ingest.otlp.values import BadRequest
from tests.ingest.test_logs import AT
from tests.ingest.test_otlp import SPAN, TRACE
from tests.recording.test_any_order import any_stream

IN_PROTOBUF = ExportLogsServiceRequest()
_of = IN_PROTOBUF.resource_logs.add()
_of.resource.attributes.add(key="service.name", value=AnyValue(string_value="shop"))
_of = _of.scope_logs.add()
_of.scope.name = "till"
_of.log_records.add(
    event_name="gen_ai.choice",
    time_unix_nano=AT,
    observed_time_unix_nano=AT + 1,
    severity_number=17,
    severity_text="ERR",
    trace_id=TRACE,
    span_id=SPAN,
    dropped_attributes_count=1,
    body=AnyValue(
        kvlist_value=KeyValueList(
            values=[
                KeyValue(key="index", value=AnyValue(int_value=0)),
                KeyValue(key="tags", value=AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)]))),
            ]
        )
    ),
    attributes=[KeyValue(key="gen_ai.system", value=AnyValue(string_value="openai"))],
)
IN_JSON = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeLogs": [
                {
                    "scope": {"name": "till"},
                    "logRecords": [
                        {
                            "eventName": "gen_ai.choice",
                            "timeUnixNano": str(AT),
                            "observedTimeUnixNano": str(AT + 1),
                            "severityNumber": "SEVERITY_NUMBER_ERROR",
                            "severityText": "ERR",
                            "traceId": TRACE.hex(),
                            "spanId": SPAN.hex(),
                            "droppedAttributesCount": 1,
                            "body": {
                                "kvlistValue": {
                                    "values": [
                                        {"key": "index", "value": {"intValue": "0"}},
                                        {"key": "tags", "value": {"arrayValue": {"values": [{"boolValue": True}]}}},
                                    ]
                                }
                            },
                            "attributes": [{"key": "gen_ai.system", "value": {"stringValue": "openai"}}],
                        }
                    ],
                }
            ],
        }
    ]
}


def test_protobuf_and_json_read_the_same() -> None:
    (found,) = from_protobuf(IN_PROTOBUF.SerializeToString())
    assert found == LogRecord(
        "gen_ai.choice",
        AT,
        AT + 1,
        17,
        "ERR",
        {"index": 0, "tags": [True]},
        {"gen_ai.system": "openai"},
        TRACE,
        SPAN,
        1,
        "till",
        {"service.name": "shop"},
    )
    assert from_json(json.dumps(IN_JSON).encode()) == [found]


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "UNSPECIFIED"), (1, "TRACE"), (4, "TRACE4"), (9, "INFO"), (14, "WARN2"), (24, "FATAL4")],
)
def test_severities_may_be_told_by_name(number: int, name: str) -> None:
    assert logs._severity(f"SEVERITY_NUMBER_{name}") == number == logs._severity(number)


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"\xff", b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"zz"}]}]}]}']
)
def test_what_is_no_log_request_is_told(body: bytes) -> None:
    with pytest.raises(BadRequest, match="OTLP log request in JSON"):
        from_json(body)


@any_stream
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (from_json, from_protobuf):
        try:
            found = read(data)
        except BadRequest:
            continue
        for record in found:
            assert all(json.loads(line) for line in logs.events(record))
