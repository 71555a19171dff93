"""Spans as ATOF 0.1 events: a start and an end each, and a mark for each span event.

A span's id is the last half of a scope's UUID, in Relay's exporters as here. Where the whole UUID is not told, the
first half comes from the trace, so that every copy of a span gets the same one (see `recording.writing.copies`).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from relayweb.ingest.otlp import claude_code, dialects, genai, openinference, relay
from relayweb.ingest.otlp.lines import line, mark_line, timestamp
from relayweb.ingest.otlp.reading import Reading
from relayweb.ingest.otlp.spans import Span, SpanEvent
from relayweb.recording.writing.copies import made_uuid, told_by_span

_VOCABULARIES = (
    *(relay.read, openinference.read, dialects.session, dialects.vercel, dialects.langfuse, dialects.logfire),
    *(claude_code.read, genai.read, dialects.openllmetry),
)


def events(span: Span) -> list[bytes]:
    """The events of a span as lines, the start first and the end last; `copies` brings them together with others."""
    reading = _read(span)
    uuid, parent = _identity(span), _parent(span)
    # Of Relay's own spans the trace is the root scope; others name a root only where they are one.
    told = "nemo_relay.uuid" in span.attributes
    root = (
        str(UUID(bytes=span.trace_id)) if told and len(span.trace_id) == 16 else str(uuid) if parent is None else None
    )
    copy = told_by_span(span.trace_id, made=not told)
    same = {
        **copy,
        "kind": "scope",
        "atof_version": "0.1",
        "uuid": str(uuid),
        "parent_uuid": str(parent) if parent else None,
        "propagation_root_uuid": root,
        "name": reading.name or span.name,
        "category": reading.category or "function",
        "attributes": ["streaming"] if reading.streaming else [],
        "data_schema": None,
    }
    start = line(
        **same,
        scope_category="start",
        timestamp=timestamp(span.start_ns),
        category_profile=reading.start_profile or None,
        data=reading.start_data,
        metadata={**_others(span, reading), **reading.start_metadata} or None,
    )
    end = line(
        **same,
        scope_category="end",
        timestamp=timestamp(span.end_ns or span.start_ns),  # as told, also if a clock was set back in between
        category_profile=reading.end_profile or None,
        data=reading.end_data,
        metadata={**_outcome(span), **reading.end_metadata},
    )
    # Relay tells of an exception in the end event, and its exporter once more in a span event.
    marks = [_mark(copy, uuid, root, n, e) for n, e in enumerate(span.events) if not (told and e.name == "exception")]
    return [start, *marks, end]


def _identity(span: Span) -> UUID:
    return _told(span.attributes.get("nemo_relay.uuid")) or made_uuid(span.trace_id, span.span_id)


def _parent(span: Span) -> UUID | None:
    if told := _told(span.attributes.get("nemo_relay.parent_uuid")):
        return told
    return made_uuid(span.trace_id, span.parent_id) if span.parent_id.strip(b"\0") else None


def _told(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _read(span: Span) -> Reading:
    found = Reading()
    for read in _VOCABULARIES:
        if (reading := read(span)) is not None:
            found = found.over(reading)
    return found


def _outcome(span: Span) -> dict[str, Any]:
    if not span.failed:
        return {"otel.status_code": "OK"}
    told = {"otel.status_code": "ERROR", "otel.status_description": span.message}
    if "error.type" in span.attributes:
        told["error.type"] = span.attributes["error.type"]
    for event in span.events:
        if event.name == "exception":
            told |= {k: v for k, v in event.attributes.items() if k in ("exception.type", "exception.message")}
    return told


# Relay's exporter repeats here what the scope's own metadata says.
_REPEATED = ("session.id", "error.type")


def _others(span: Span, reading: Reading) -> dict[str, Any]:
    """Attributes that no vocabulary read, and the service. Of a copy of an ATOF scope only what ATOF does not tell."""
    others = {key: value for key, value in span.attributes.items() if key not in reading.used}
    if "nemo_relay.uuid" in span.attributes:
        return {key: value for key, value in others.items() if key not in _REPEATED}
    return {"service.name": span.service, **others} if span.service else others


def _mark(copy: dict[str, Any], scope: UUID, root: str | None, number: int, event: SpanEvent) -> bytes:
    mark = relay.read_mark(event) or {
        # No id of its own, so it is made of the scope's and its place: the same in every copy.
        "uuid": str(UUID(int=scope.int ^ ((number + 1) << 64))),
        "parent_uuid": str(scope),
        "name": event.name,
        "data": event.attributes or None,
        "metadata": None,
    }
    return mark_line(event.at_ns, copy, **mark, propagation_root_uuid=root)
