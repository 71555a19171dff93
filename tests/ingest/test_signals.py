"""The places of OTLP on a real server, with the exporters of OpenTelemetry's own SDK."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import zstandard
from opentelemetry import trace
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.ingest.test_log_requests import IN_JSON, IN_PROTOBUF
from tests.served import Served

KEY = "sk-" + "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("home"), RELAYWEB_MAX_BODY=str(1_000_000)).start()
    running.ingest, running.read = running.token("ingest"), running.token("read")
    yield running
    running.stop()


def post(served: Served, body: bytes, path: str = "/v1/logs", **headers: str) -> httpx2.Response:
    named = {"authorization": f"Bearer {served.ingest}", "content-type": "application/json"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(served.url + path, content=body, headers=named)


def api(served: Served, path: str) -> Any:
    return served.get(f"/api/v1/{path}", authorization=f"Bearer {served.read}").json()


def request(*records: dict[str, Any]) -> bytes:
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()


def exported(served: Served) -> list[dict[str, Any]]:
    return [json.loads(line) for line in served.run("export").stdout.splitlines()]


@pytest.mark.parametrize("compression", list(Compression))
def test_what_the_sdk_tells_in_log_records_stands_in_the_call(served: Served, compression: Compression) -> None:
    headers = {"authorization": f"Bearer {served.ingest}"}
    tracing, logs = TracerProvider(), LoggerProvider()
    spans = OTLPSpanExporter(f"{served.url}/v1/traces", headers=headers, compression=compression)
    tracing.add_span_processor(BatchSpanProcessor(spans))
    exporter = OTLPLogExporter(f"{served.url}/v1/logs", headers=headers, compression=compression)
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))  # so they come before their span
    logger, session = logs.get_logger("shop"), uuid4().hex
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": session}
    with tracing.get_tracer("shop").start_as_current_span("chat m", attributes=attributes) as span:
        logger.emit(LogRecord(event_name="gen_ai.user.message", body={"content": f"Where is {session}?"}))
        message = {"role": "assistant", "content": "Here."}
        logger.emit(LogRecord(event_name="gen_ai.choice", body={"finish_reason": "stop", "message": message}))
        logger.emit(LogRecord(severity_text="INFO", body="just a line"))
    tracing.shutdown()
    logs.shutdown()
    call = f"{trace.format_span_id(span.get_span_context().span_id)}"
    (turn,) = api(served, f"sessions/{session}")["turns"]
    assert turn["uuid"].replace("-", "").endswith(call)
    assert turn["asked"] == f"Where is {session}?"
    asked = api(served, f"scopes/{turn['uuid']}/request")["request"]
    assert asked == {"model": "m", "messages": [{"role": "user", "content": f"Where is {session}?"}]}
    answer = api(served, f"scopes/{turn['uuid']}/response")["response"]
    assert answer["choices"] == [{"index": 0, "message": message, "finish_reason": "stop"}]
    marks = [e["name"] for e in api(served, f"scopes/{turn['uuid']}/events")["events"] if e["kind"] == "mark"]
    assert marks == ["gen_ai.user.message", "gen_ai.choice", "log"]
    deadline = time.monotonic() + 20
    while not (found := api(served, f"turns?q={session}")["turns"]):
        assert time.monotonic() < deadline, "no word of it was found"
        time.sleep(0.1)
    assert [t["uuid"] for t in found] == [turn["uuid"]]


def test_the_sdk_sends_metrics_without_a_word_in_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    exporter = OTLPMetricExporter(f"{served.url}/v1/metrics", headers={"authorization": f"Bearer {served.ingest}"})
    before = served.get("/healthz").json()["writer"]["seq"]
    with caplog.at_level(logging.DEBUG, "opentelemetry"):
        metrics = MeterProvider([PeriodicExportingMetricReader(exporter)])
        metrics.get_meter("shop").create_counter("sold").add(1)
        assert metrics.force_flush()
        metrics.shutdown()
    assert not [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert served.get("/healthz").json()["writer"]["seq"] == before
    assert post(served, b"{}", "/v1/metrics").json() == {}
    assert post(served, b"{}", "/v1/metrics", authorization="none").status_code == 401


def test_a_request_in_json_and_in_protobuf_is_the_same_record(served: Served) -> None:
    told = IN_PROTOBUF.SerializeToString()
    assert post(served, json.dumps(IN_JSON).encode()).json() == {}
    answer = post(served, zstandard.compress(told), content_type="application/x-protobuf", content_encoding="zstd")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/x-protobuf"
    (found,) = [e for e in exported(served) if (e["metadata"] or {}).get("scope.name") == "till"]
    assert found["data"] == {"body": {"index": 0, "tags": [True]}, "attributes": {"gen_ai.system": "openai"}}


def test_a_record_that_cannot_be_taken_is_told_and_the_others_are_taken(served: Served) -> None:
    good, bad = {"timeUnixNano": "5", "eventName": uuid4().hex}, {"timeUnixNano": str(2**64 - 1)}
    partial = post(served, request(good, bad)).json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == "1" and partial["errorMessage"].startswith("record 2: ")
    message = ExportLogsServiceRequest()
    logs = message.resource_logs.add().scope_logs.add().log_records
    logs.add(time_unix_nano=2**64 - 1)
    logs.add(time_unix_nano=6)
    answer = post(served, message.SerializeToString(), content_type="application/x-protobuf")
    told = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert told.rejected_log_records == 1 and told.error_message.startswith("record 1: ")
    assert good["eventName"] in [event["name"] for event in exported(served)]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {}, 400),
        (b"\xff\xff", {"content_type": "application/x-protobuf"}, 400),
        (b"", {"content_type": "text/plain"}, 415),
        (b"", {"content_encoding": "br"}, 415),
        (b"x" * 1_000_001, {}, 413),
        (gzip.compress(bytes(50_000_000), mtime=0), {"content_encoding": "gzip"}, 413),
        (b"{}", {"authorization": "none"}, 401),
    ],
)
def test_a_request_that_cannot_be_taken_is_told_why(served: Served, body: bytes, headers: dict, status: int) -> None:
    answer = post(served, body, **headers)
    assert answer.status_code == status
    in_protobuf = answer.headers["content-type"] == "application/x-protobuf"
    assert in_protobuf == ("protobuf" in str(headers))
    assert b"OTLP" in answer.content if in_protobuf else answer.json()["error"]


def test_credentials_in_the_log_of_a_program_are_masked_and_messages_are_left(served: Served) -> None:
    name, text = uuid4().hex, {"stringValue": f"with Bearer {KEY}"}
    header = {"key": "authorization", "value": {"stringValue": KEY}}
    record = {"timeUnixNano": "7", "eventName": name, "body": text, "attributes": [header]}
    message = {"kvlistValue": {"values": [{"key": "content", "value": text}, header]}}
    said = {"timeUnixNano": "8", "eventName": "gen_ai.user.message", "spanId": "ab" * 8, "traceId": name}
    assert post(served, request(record, {**said, "body": message, "attributes": [header]})).json() == {}
    found = exported(served)
    (logged,) = [e for e in found if e["name"] == name]
    assert logged["metadata"] == {"body": "with Bearer [masked]", "attributes": {"authorization": "[masked]"}}
    (told,) = [e for e in found if (e.get("otlp") or {}).get("trace_id") == name]
    assert told["data"]["body"] == {"content": f"with Bearer {KEY}", "authorization": "[masked]"}
    assert told["data"]["attributes"] == {"authorization": "[masked]"}


def test_an_export_and_a_file_of_log_records_give_the_same_record_again(served: Served, tmp_path: Path) -> None:
    assert post(served, json.dumps(IN_JSON).encode()).json() == {}
    again = Served(tmp_path / "again")
    (tmp_path / "logs.json").write_text(json.dumps(IN_JSON, indent=2))
    done = again.run("import", str(tmp_path / "logs.json"))
    assert done.stdout.decode().split(": ", 1)[1] == "accepted 1, duplicates 0, rejected 0\n"
    everything = served.run("export").stdout
    told = again.run("import", "-", stdin=everything).stdout.decode()
    assert told == f"-: accepted {len(everything.splitlines()) - 1}, duplicates 1, rejected 0\n"
    assert sorted(again.run("export").stdout.splitlines()) == sorted(everything.splitlines())
