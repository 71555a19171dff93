"""Export as OTLP JSON: a span for each scope, in Relay's "full" projection with OpenTelemetry's GenAI names beside it.

Span id = last eight bytes of the scope's uuid, trace id = uuid of the top of its tree, as Relay's own exporters do, so
that spans join with theirs. Marks are events of their span; where everything is exported, those under no scope are log
records. Chunk marks are left out, as Relay leaves them out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db.models import Q

from relayweb.ingest.export import Part
from relayweb.ingest.otlp.relay import RECORDED_COST, RECORDED_USAGE
from relayweb.recording.conventions import details, pricing
from relayweb.recording.conventions.errors import RECORDED_STATUS
from relayweb.recording.conventions.usage import FIELDS, Usage
from relayweb.recording.events.json_text import ascii_json
from relayweb.recording.models import Event, Role, Scope
from relayweb.recording.reading import queries
from relayweb.recording.store import stored
from relayweb.recording.store.stored import Reader

_SPANS = 200  # of one request
_OPERATIONS = {"llm": "chat", "tool": "execute_tool", "agent": "invoke_agent", "embedder": "embeddings"}
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}


def otlp(part: Part) -> Iterator[bytes]:
    """Trace requests and log requests, one a line. A scope that has not ended ends with the last event seen in it."""
    reader, roots = Reader(), _Roots()
    for rows in _rows(part):
        spans = _spans(rows, reader, roots)
        if spans:
            yield ascii_json(_request("resourceSpans", "scopeSpans", {"spans": spans})) + b"\n"
    if part.scopes is None:
        for records in _records(reader):
            yield ascii_json(_request("resourceLogs", "scopeLogs", {"logRecords": records})) + b"\n"


def _records(reader: Reader) -> Iterator[list[dict[str, Any]]]:
    """Marks under no scope, as log records."""
    after = -1
    alone = Event.objects.filter(kind=Event.Kind.MARK, mark_of=None).order_by("seq")
    while events := list(alone.filter(seq__gt=after)[:_SPANS]):
        texts = zip(events, reader.texts(events), strict=True)
        marks = [_mark(event.at_ns, text) for event, text in texts]
        yield [{("eventName" if name == "name" else name): v for name, v in mark.items()} for mark in marks]
        after = events[-1].seq


def _rows(part: Part) -> Iterator[list[Scope]]:
    columns = Scope.objects.defer("state")
    if part.scopes is None:
        after: UUID | None = None
        while True:
            found = columns.filter(uuid__gt=after) if after else columns.all()
            rows = list(found.order_by("uuid")[:_SPANS])
            if not rows:
                return
            yield rows
            after = rows[-1].uuid
    wanted = (*part.above, *part.scopes)
    for at in range(0, len(wanted), _SPANS):
        yield list(columns.filter(uuid__in=wanted[at : at + _SPANS]).order_by("uuid"))


class _Roots:
    """The top of each scope's tree, found by climbing; what was climbed once is remembered."""

    def __init__(self) -> None:
        self._tops: dict[UUID, UUID] = {}

    def find(self, rows: list[Scope]) -> dict[UUID, UUID]:
        parents: dict[UUID, UUID | None] = {row.uuid: row.parent_uuid for row in rows}
        missing = {p for p in parents.values() if p is not None} - parents.keys() - self._tops.keys()
        while missing:
            found: dict[UUID, UUID | None] = {}
            for some in queries.slices(list(missing)):
                found.update(Scope.objects.filter(uuid__in=some).values_list("uuid", "parent_uuid"))
            parents.update(found)
            missing = {p for p in found.values() if p is not None} - parents.keys() - self._tops.keys()
        return {row.uuid: self._climb(row.uuid, parents) for row in rows}

    def _climb(self, uuid: UUID, parents: dict[UUID, UUID | None]) -> UUID:
        path = [uuid]
        while path[-1] not in self._tops:
            parent = parents.get(path[-1])
            if parent is None or parent in path or (parent not in parents and parent not in self._tops):
                break
            path.append(parent)
        top = self._tops.get(path[-1], path[-1])
        self._tops.update(dict.fromkeys(path, top))
        return top


def _spans(rows: list[Scope], reader: Reader, roots: _Roots) -> list[dict[str, Any]]:
    tops = roots.find(rows)
    texts = _texts(rows, reader)
    marks = _marks(rows, reader)
    return [_span(row, tops[row.uuid], texts, marks.get(row.uuid, [])) for row in rows if row.start_us is not None]


def _texts(rows: list[Scope], reader: Reader) -> dict[int, bytes]:
    numbers = [n for row in rows for n in (row.start_seq, row.end_seq) if n is not None]
    events = [e for some in queries.slices(numbers) for e in Event.objects.filter(seq__in=some)]
    return dict(zip((e.seq for e in events), reader.texts(events), strict=True))


def _marks(rows: list[Scope], reader: Reader) -> dict[UUID, list[tuple[int, bytes]]]:
    under = Event.objects.filter(Q(mark_of__in=[row.uuid for row in rows])).order_by("seq")
    events = list(under)
    found: dict[UUID, list[tuple[int, bytes]]] = {}
    for event, text in zip(events, reader.texts(events), strict=True):
        if event.mark_of is not None:
            found.setdefault(event.mark_of, []).append((event.at_ns, text))
    return found


def _span(row: Scope, top: UUID, texts: dict[int, bytes], marks: list[tuple[int, bytes]]) -> dict[str, Any]:
    start = texts.get(row.start_seq, b"{}") if row.start_seq is not None else b"{}"
    end = texts.get(row.end_seq, b"{}") if row.end_seq is not None else b"{}"
    end_us = row.end_us if row.end_us is not None else row.last_us
    span: dict[str, Any] = {
        "traceId": top.hex,
        "spanId": row.uuid.bytes[8:].hex(),
        "name": row.name,
        "kind": 3 if row.category == "llm" else 1,
        "startTimeUnixNano": str((row.start_us or 0) * 1000),
        "endTimeUnixNano": str(max(end_us or 0, row.start_us or 0) * 1000),
        "attributes": _attributes(row, start, end),
        "events": [_mark(at_ns, text) for at_ns, text in marks],
        "status": _status(row),
    }
    if row.parent_uuid is not None and top != row.uuid:
        span["parentSpanId"] = row.parent_uuid.bytes[8:].hex()
    return span


def _status(row: Scope) -> dict[str, Any]:
    if row.status in ("failed", "cancelled", "blocked", "interrupted"):
        return {"code": 2, "message": row.error_message or row.error_type or row.status}
    return {"code": 1} if row.end_seq is not None else {}


def _attributes(row: Scope, start: bytes, end: bytes) -> list[dict[str, Any]]:
    found: dict[str, Any] = {
        "nemo_relay.uuid": str(row.uuid),
        "nemo_relay.parent_uuid": str(row.parent_uuid) if row.parent_uuid else None,
        "nemo_relay.scope_type": row.category,
        "nemo_relay.model_name": row.model,
        "nemo_relay.tool_call_id": row.tool_call_id,
        "nemo_relay.handle_attributes": _json(stored.member(start, "attributes")),
        "nemo_relay.start.data": _json(stored.member(start, "data")),
        "nemo_relay.end.data": _json(stored.member(end, "data")),
        "nemo_relay.start.metadata": _json(stored.member(start, "metadata")),
        "nemo_relay.end.metadata": _json(stored.member(end, "metadata")),
        "gen_ai.operation.name": _OPERATIONS.get(row.category or ""),
        "gen_ai.conversation.id": row.session_id,
        "gen_ai.provider.name": row.provider,
        "gen_ai.request.model": row.model,
        "gen_ai.response.finish_reasons": [row.finish_reason] if row.finish_reason else None,
        "gen_ai.tool.name": row.name if row.category == "tool" else None,
        "gen_ai.tool.call.id": row.tool_call_id,
        "error.type": row.error_type,
    }
    if row.category == "llm":
        found |= {name: getattr(row, column) for column, name in _USAGE.items()}
    if row.status != "ok":
        found[RECORDED_STATUS] = row.status
    if row.role == Role.ATTEMPT:
        found |= _as_recorded(row)
    return [{"key": key, "value": _value(value)} for key, value in found.items() if value is not None]


def _as_recorded(row: Scope) -> dict[str, Any]:
    """What an attempt came to by its chunks, which no span tells, and its cost where no table gives it."""
    usage = Usage(
        **{name: getattr(row, name) for name in FIELDS},
        complete=bool(row.usage_complete),
        cache_write_1h_tokens=row.cache_write_1h_tokens,
        details=details.stored(row.usage_details),
        tier=row.service_tier,
    )
    cost = row.cost_usd if row.price_version == pricing.RELAY else None
    first = None if row.ttft_us is None else row.ttft_us / 1e6
    told = {"gen_ai.response.time_to_first_chunk": first, RECORDED_COST: cost}
    return {**told, RECORDED_USAGE: json.dumps(usage.as_told())}


def _json(text: bytes | None) -> str | int | float | None:
    """A member as Relay's exporter writes it: texts, numbers and truth as they are, anything else as JSON text."""
    if text is None or text[:1] in b"{[":
        return None if text is None else ascii_json(text).decode()
    value = stored.load(text)
    exact = isinstance(value, str | bool) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    return value if exact or (isinstance(value, float) and math.isfinite(value)) else text.decode()


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(v) for v in value]}}
    return {"stringValue": str(value)}


def _mark(at_ns: int, text: bytes) -> dict[str, Any]:
    found = {
        "nemo_relay.mark.uuid": stored.load(stored.member(text, "uuid")),
        "nemo_relay.mark.parent_uuid": stored.load(stored.member(text, "parent_uuid")),
        "nemo_relay.mark.data": _json(stored.member(text, "data")),
        "nemo_relay.mark.metadata": _json(stored.member(text, "metadata")),
    }
    return {
        "name": stored.load(stored.member(text, "name")) or "mark",
        "timeUnixNano": str(at_ns),
        "attributes": [{"key": k, "value": _value(v)} for k, v in found.items() if v is not None],
    }


def _request(signal: str, by_scope: str, told: dict[str, Any]) -> bytes:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "relayweb"}}]}
    scope = {"name": "relayweb"}
    request = {signal: [{"resource": resource, by_scope: [{"scope": scope, **told}]}]}
    return json.dumps(request, separators=(",", ":")).encode()
