"""OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`), and the older indexed form of OpenLLMetry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relayweb.ingest.otlp.reading import Reading
from relayweb.ingest.otlp.relay import RECORDED_USAGE
from relayweb.ingest.otlp.spans import Span
from relayweb.recording.conventions import genai
from relayweb.recording.conventions.attributes import items, parsed, string, without_none

_CATEGORIES = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "embeddings": "embedder",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "invoke_workflow": "agent",
    "retrieval": "retriever",
}


def read(span: Span) -> Reading | None:
    """What `gen_ai.*` attributes say; None where there are none."""
    attributes = span.attributes
    for event in span.events:
        if event.name == genai.DETAILS:
            attributes = {**event.attributes, **attributes}
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if operation is None and not any(key.startswith("gen_ai.") for key in attributes):
        return None
    category = _CATEGORIES.get(str(operation)) or _by_names(attributes, operation)
    reading = Reading(
        category=category,
        used=frozenset(
            key for key in attributes if key in genai.BULKY or key.startswith(("gen_ai.prompt.", "gen_ai.completion."))
        ),
    )
    if category == "llm":
        _read_call(reading, span, attributes)
    elif category == "tool":
        given, answered = genai.of_tool(_events(span))
        given = attributes.get("gen_ai.tool.call.arguments", attributes.get("tool_arguments", given))
        answered = attributes.get("gen_ai.tool.call.result", attributes.get("tool_response", answered))
        reading.name = string(attributes.get("gen_ai.tool.name"))
        reading.start_data, reading.end_data = parsed(given), parsed(answered)
        reading.start_profile = without_none({"tool_call_id": attributes.get("gen_ai.tool.call.id")})
        reading.end_profile = reading.start_profile
    elif category == "agent":
        reading.name = string(attributes.get("gen_ai.agent.name"))
        reading.end_data = parsed(attributes.get("final_result"))
    return reading


def _by_names(attributes: dict[str, Any], operation: Any) -> str | None:
    """The category of a span that names no operation, or one that nobody knows."""
    if "gen_ai.request.model" in attributes:
        return "llm"
    if operation is not None:
        return None
    if "gen_ai.tool.name" in attributes:
        return "tool"
    return "agent" if "gen_ai.agent.name" in attributes else None


def _read_call(reading: Reading, span: Span, attributes: dict[str, Any]) -> None:
    call = genai.read_call(attributes, _events(span))
    reading.tell(call, first_chunk=attributes.get("gen_ai.response.time_to_first_chunk"))
    if "nemo_relay.uuid" in attributes:  # whose bodies are the provider's own, in whatever format
        del reading.start_metadata["api_mode"], reading.end_metadata["api_mode"]
    if RECORDED_USAGE in attributes:  # what the answer was is told in full, if there was one
        reading.end_data = None
    model = attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")
    for profile in (reading.start_profile, reading.end_profile):
        profile |= without_none({"model_name": model})
    reading.streaming = True in (attributes.get("gen_ai.request.stream"), attributes.get("llm.is_streaming")) or (
        "gen_ai.response.time_to_first_chunk" in attributes
    )


def _events(span: Span) -> Iterator[genai.Event]:
    for event in span.events:
        if "nemo_relay.mark.uuid" not in event.attributes:  # which are marks of any kind, with data of their own
            yield event.name, genai.said_in(event.attributes)
    for item in items(span.attributes.get("events")):
        if isinstance(item, dict) and isinstance(item.get("event.name"), str):
            yield item["event.name"], genai.said_in(item)
