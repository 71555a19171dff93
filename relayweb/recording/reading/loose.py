"""Events that belong to no scope: log records outside of spans, and other marks without a parent."""

from __future__ import annotations

import json
from typing import Any

from relayweb.recording.conventions.shapes import as_map
from relayweb.recording.models import Event, Scope
from relayweb.recording.reading.rows import rfc3339
from relayweb.recording.store import stored

_SAID = 300  # characters of what it says
_WHOLE = 20_000
_KNOWN = frozenset(("service.name", "scope.name", "session_id", "severity", "severity_number", "observed_ns", "body"))


def exist() -> bool:
    return Event.objects.filter(kind=Event.Kind.MARK, mark_of=None).exists()


def events(*, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The newest of them, or the newest before the number `before`: time, name, service, severity, session, words."""
    rows = Event.objects.filter(kind=Event.Kind.MARK, mark_of=None)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[:limit])
    told = [_told(row, json.loads(text)) for row, text in zip(found, stored.Reader().texts(found), strict=True)]
    named = {event["session_id"] for event in told} - {None}
    there = set(Scope.objects.filter(session_id__in=named, is_home=True).values_list("session_id", flat=True))
    return [event | {"has_session": event["session_id"] in there} for event in told]


def _told(row: Event, event: dict[str, Any]) -> dict[str, Any]:
    metadata, data = as_map(event.get("metadata")), as_map(event.get("data"))
    body = data.get("body", metadata.get("body"))
    others = {name: value for name, value in {**metadata, **data}.items() if name not in _KNOWN}
    said = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False) if body is not None else ""
    attributes = {**as_map(others.pop("attributes", None)), **others}
    if not said or said == event.get("name"):
        said = ", ".join(f"{name} {_short(value)}" for name, value in attributes.items() if name != "event.name")
    session = metadata.get("session_id")
    return {
        "seq": row.seq,
        "at_us": row.at_ns // 1000,
        "at": rfc3339(row.at_ns // 1000),
        "name": str(event.get("name") or "–"),
        "service": metadata.get("service.name") or metadata.get("scope.name"),
        "severity": metadata.get("severity"),
        "session_id": session if isinstance(session, str) and session else None,
        "said": said[:_SAID],
        "whole": json.dumps(event, indent=2, ensure_ascii=False)[:_WHOLE],
    }


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
