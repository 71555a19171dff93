"""OTLP log requests as plain records, and records as ATOF 0.1 marks.

Follows opentelemetry-proto 1.x, `ExportLogsServiceRequest`. A record that names a span is a mark under that span's
scope, whether the span has come or not. Records have no id: equal ones are one, so that sending twice does no harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from relayweb.ingest.otlp import claude_code, codex, gemini_cli, relay
from relayweb.ingest.otlp.dialects import session_of
from relayweb.ingest.otlp.lines import mark_line
from relayweb.ingest.otlp.pieces import Piece, told_ns
from relayweb.ingest.otlp.spans import SpanEvent
from relayweb.ingest.otlp.values import (
    KeyValue,
    Refused,
    Resource,
    each,
    from_json_text,
    from_protobuf_bytes,
    id_in_json,
    json_attributes,
    json_value,
    protobuf_attributes,
    protobuf_value,
    taken,
    time_in_json,
)
from relayweb.recording.conventions import genai
from relayweb.recording.writing.copies import made_uuid, told_by_span


class LogRecord(msgspec.Struct, frozen=True):
    """One record. Ids are bytes, empty where none is told; times are ns since 1970, 0 where none is told."""

    name: str
    at_ns: int
    observed_ns: int
    severity: int
    severity_text: str
    body: Any
    attributes: dict[str, Any]
    trace_id: bytes = b""
    span_id: bytes = b""
    dropped: int = 0
    """How many attributes the sender has left out."""
    scope: str = ""
    """Name of the instrumentation."""
    resource: dict[str, Any] = {}


def from_protobuf(data: bytes) -> list[LogRecord]:
    """Read a request in protobuf. Raises BadRequest."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = from_protobuf_bytes(ExportLogsServiceRequest.FromString, data, "log")
    found: list[LogRecord] = []
    for resource_logs in request.resource_logs:
        resource = protobuf_attributes(resource_logs.resource.attributes)
        found += [
            LogRecord(
                log.event_name,
                log.time_unix_nano,
                log.observed_time_unix_nano,
                log.severity_number,
                log.severity_text,
                protobuf_value(log.body),
                protobuf_attributes(log.attributes),
                log.trace_id,
                log.span_id,
                log.dropped_attributes_count,
                scope_logs.scope.name,
                resource,
            )
            for scope_logs in resource_logs.scope_logs
            for log in scope_logs.log_records
        ]
    return found


_Time = int | str | float | None


class _LogRecord(msgspec.Struct, rename="camel"):
    event_name: str | None = None
    time_unix_nano: _Time = 0
    observed_time_unix_nano: _Time = 0
    severity_number: int | str | None = 0
    severity_text: str | None = None
    body: Any = None
    attributes: list[KeyValue] | None = None
    trace_id: str | None = None
    span_id: str | None = None
    dropped_attributes_count: int | None = 0


class _Scope(msgspec.Struct):
    name: str | None = None


class _ScopeLogs(msgspec.Struct, rename="camel"):
    scope: _Scope | None = None
    log_records: list[msgspec.Raw] | None = None


class _ResourceLogs(msgspec.Struct, rename="camel"):
    resource: Resource | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _Request(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] | None


_decode = msgspec.json.Decoder(_Request).decode
_decode_record = msgspec.json.Decoder(_LogRecord).decode


def from_json(data: bytes, refused: list[Refused] | None = None) -> list[LogRecord]:
    """Read a request in OTLP JSON. Raises BadRequest naming the place; records that cannot be taken go to `refused`."""
    return from_json_text(lambda text: taken(_json_records(_decode(text)), refused), data, "log")


def _json_records(request: _Request) -> Iterator[LogRecord | Refused]:
    count = 0
    for resource_logs in request.resource_logs or ():
        resource = json_attributes(resource_logs.resource.attributes if resource_logs.resource else None)
        for scope_logs in resource_logs.scope_logs or ():
            scope = (scope_logs.scope.name if scope_logs.scope else None) or ""
            records = scope_logs.log_records or []
            yield from each(records, "record", lambda raw: _json_record(raw, scope, resource), count)  # noqa: B023
            count += len(records)


def _json_record(raw: msgspec.Raw, scope: str, resource: dict[str, Any]) -> LogRecord:
    log = _decode_record(raw)
    return LogRecord(
        log.event_name or "",
        time_in_json(log.time_unix_nano),
        time_in_json(log.observed_time_unix_nano),
        _severity(log.severity_number or 0),
        log.severity_text or "",
        json_value(log.body or {}),
        json_attributes(log.attributes),
        id_in_json(log.trace_id, 16),
        id_in_json(log.span_id, 8),
        log.dropped_attributes_count or 0,
        scope,
        resource,
    )


_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def _severity(number: int | str) -> int:
    """A severity by its number, or by its name in the enumeration, such as `SEVERITY_NUMBER_WARN2`."""
    if isinstance(number, str) and number.startswith("SEVERITY_NUMBER_"):
        name = number.removeprefix("SEVERITY_NUMBER_").rstrip("234")
        step = number[len("SEVERITY_NUMBER_") + len(name) :] or "1"
        return 4 * _SEVERITIES.index(name) + int(step) if name in _SEVERITIES else 0
    return int(number)


# As ATOF ------------------------------------------------------------------------------------------------------------


def events(log: LogRecord) -> list[bytes]:
    """A record as events: a mark, and of products that send no spans the scopes it tells of."""
    if told := relay.read_mark(SpanEvent(log.name, log.at_ns, log.attributes)):  # of our own export
        return [mark_line(log.at_ns, {}, **told, propagation_root_uuid=None)]
    name, identity = _name(log), _identity(log)
    piece = None if _in_span(log) else _piece(log, name, identity)
    if piece is None:
        return [_mark(log, name, identity)]
    return [*piece.lines, _mark(log, name, identity, piece.under)]


def _piece(log: LogRecord, name: str, identity: UUID) -> Piece | None:
    for read in (claude_code.piece, codex.piece, gemini_cli.piece):
        if (piece := read(name, log.attributes, identity, _told_at(log))) is not None:
            return piece
    return None


def _told_at(log: LogRecord) -> int:
    """When it was, as far as it says so itself: what is sent again must be the same."""
    return log.at_ns or told_ns(log.attributes) or log.observed_ns


def _in_span(log: LogRecord) -> bool:
    return len(log.trace_id) == 16 and len(log.span_id) == 8 and log.span_id != bytes(8)


def _mark(log: LogRecord, name: str, identity: UUID, under: UUID | None = None) -> bytes:
    """What a conversation says as data, the log of a program as metadata."""
    said = {"body": log.body, "attributes": log.attributes}
    said = {member: value for member, value in said.items() if value not in (None, {})}
    told = _told_of(log)
    in_span = _in_span(log)
    if in_span:
        under = made_uuid(log.trace_id, log.span_id)
    else:
        told |= {k: v.hex() for k, v in (("trace_id", log.trace_id), ("span_id", log.span_id)) if v.strip(b"\0")}
    is_told = genai.is_told(name)
    return mark_line(
        _told_at(log) or time.time_ns(),
        # What search is to find is known by this member: it reads no other marks.
        told_by_span(log.trace_id.rjust(16, b"\0"), made=True, log=True) if under else {},
        uuid=str(identity),
        parent_uuid=str(under) if under else None,
        propagation_root_uuid=None,
        name=name,
        data=(said or None) if is_told else None,
        # Of metadata any credential is masked; messages are left as they were said.
        metadata=(told if is_told else {**told, **said}) or None,
    )


def _name(log: LogRecord) -> str:
    """SDKs before the field `event_name` tell the name in an attribute, Claude Code all of it in the body.

    Those of Rust's `tracing` have the place in the source in that field.
    """
    named = log.attributes.get("event.name")
    if not isinstance(named, str) or not named:
        return log.name or "log"
    if log.name and not (log.name.startswith("event ") and ".rs:" in log.name):
        return log.name
    return log.body if isinstance(log.body, str) and log.body.endswith("." + named) else named


def _told_of(log: LogRecord) -> dict[str, Any]:
    told = {
        "service.name": log.resource.get("service.name"),
        "scope.name": log.scope,
        "session_id": session_of(log.attributes),
        "severity": log.severity_text or (_SEVERITIES[(log.severity - 1) // 4] if 0 < log.severity < 25 else None),
        "severity_number": log.severity,
        "observed_ns": log.observed_ns,
        "dropped_attributes": log.dropped,
    }
    return {name: value for name, value in told.items() if value}


def _identity(log: LogRecord) -> UUID:
    members = {name: getattr(log, name) for name in log.__struct_fields__ if name not in ("trace_id", "span_id")}
    said = log.trace_id + log.span_id + json.dumps(members, sort_keys=True).encode()
    return UUID(bytes=sha256(said).digest()[:16], version=5)
