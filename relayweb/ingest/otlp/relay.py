"""Attributes that NeMo Relay's exporters write: the "full" projection, and what "openinference" carries of it."""

from __future__ import annotations

from typing import Any

from relayweb.ingest.otlp.reading import Reading
from relayweb.ingest.otlp.spans import Span, SpanEvent
from relayweb.recording.conventions.attributes import items, mapping, parsed, string
from relayweb.recording.conventions.errors import RECORDED_STATUS

RECORDED_USAGE, RECORDED_COST = "relayweb.usage", "relayweb.cost_usd"
"""Attributes of our own exports: what an attempt came to by chunks that are not told, as `Usage.as_told` writes it."""


def read(span: Span) -> Reading | None:
    """What Relay's own attributes say; None where there are none."""
    attributes = span.attributes
    if "nemo_relay.uuid" not in attributes:
        return None
    profile = {
        "model_name": attributes.get("nemo_relay.model_name"),
        "tool_call_id": attributes.get("nemo_relay.tool_call_id"),
    }
    profile = {name: value for name, value in profile.items() if value}
    recorded = mapping(attributes.get(RECORDED_USAGE))
    annotated = {"annotated_response": _recorded(recorded, attributes)} if recorded else {}
    status = {RECORDED_STATUS: attributes[RECORDED_STATUS]} if RECORDED_STATUS in attributes else {}
    return Reading(
        category=string(attributes.get("nemo_relay.scope_type")),
        name=span.name,
        start_data=_member(attributes, "nemo_relay.start.data"),
        end_data=_member(attributes, "nemo_relay.end.data"),
        start_metadata=mapping(_member(attributes, "nemo_relay.start.metadata")),
        end_metadata={**mapping(_member(attributes, "nemo_relay.end.metadata")), **status},
        start_profile=profile,
        end_profile={**profile, **annotated},
        streaming="streaming" in items(attributes.get("nemo_relay.handle_attributes")),
        used=frozenset(key for key in attributes if key.startswith(("nemo_relay.", "relayweb."))),
    )


def _recorded(usage: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """An answer as Relay annotates it."""
    if RECORDED_COST in attributes:
        usage = {**usage, "cost": {"total": attributes[RECORDED_COST], "currency": "USD"}}
    reason = next(iter(items(attributes.get("gen_ai.response.finish_reasons"))), None)
    return {"usage": usage, **({"finish_reason": reason} if reason else {})}


def read_mark(event: SpanEvent) -> dict[str, Any] | None:
    """The ATOF mark a span event was made from; None for other span events."""
    attributes = event.attributes
    if "nemo_relay.mark.uuid" not in attributes:
        return None
    return {
        "uuid": attributes["nemo_relay.mark.uuid"],
        "parent_uuid": attributes.get("nemo_relay.mark.parent_uuid"),
        "name": event.name,
        "data": _member(attributes, "nemo_relay.mark.data"),
        "metadata": _member(attributes, "nemo_relay.mark.metadata"),
    }


def _member(attributes: dict[str, Any], name: str) -> Any:
    """A member that Relay flattened by one level, which keeps names with dots whole; None when it is not there."""
    if name in attributes:
        return parsed(attributes[name])
    prefix = name + "."
    members = {key[len(prefix) :]: parsed(value) for key, value in attributes.items() if key.startswith(prefix)}
    return members or None
