"""OpenInference's semantic conventions, as Phoenix and its instrumentations write them."""

from __future__ import annotations

from typing import Any

from relayweb.ingest.otlp.reading import Reading
from relayweb.ingest.otlp.spans import Span
from relayweb.recording.conventions.attributes import mapping, numbered, parsed, string, text, without_none
from relayweb.recording.conventions.chat import Audio, tell_usage

_CATEGORIES = {
    "LLM": "llm",
    "TOOL": "tool",
    "AGENT": "agent",
    "CHAIN": "function",
    "RETRIEVER": "retriever",
    "EMBEDDING": "embedder",
    "RERANKER": "reranker",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator",
}
_BULKY = ("llm.input_messages.", "llm.output_messages.", "llm.tools.", "openinference.metadata.")
_USED = ("input.value", "output.value", "metadata", "llm.invocation_parameters", "tool.parameters")


def read(span: Span) -> Reading | None:
    """What OpenInference attributes say; None where there are none."""
    attributes = span.attributes
    kind = attributes.get("openinference.span.kind")
    if not isinstance(kind, str):
        return None
    reading = Reading(
        category=_CATEGORIES.get(kind.upper(), "function"),
        start_data=parsed(attributes.get("input.value")),
        end_data=parsed(attributes.get("output.value")),
        used=frozenset(key for key in attributes if key in _USED or key.startswith(_BULKY)),
    )
    for key, value in mapping(attributes.get("metadata")).items():
        # Relay's exporter writes one object for start and end; how it went belongs to the end.
        ends = key.startswith(("otel.", "error.", "exception."))
        (reading.end_metadata if ends else reading.start_metadata)[key] = value
    if session := attributes.get("session.id"):
        reading.start_metadata["session_id"] = session
    if reading.category == "llm":
        _read_call(reading, attributes)
    elif reading.category == "tool":
        reading.name = string(attributes.get("tool.name"))
        call = attributes.get("tool_call.id") or attributes.get("tool.id")
        reading.start_profile = reading.end_profile = without_none({"tool_call_id": call})
    return reading


def _read_call(reading: Reading, attributes: dict[str, Any]) -> None:
    model = attributes.get("llm.model_name")
    body: dict[str, Any] = {"model": model, **mapping(attributes.get("llm.invocation_parameters"))}
    messages = [_message(item) for item in numbered(attributes, "llm.input_messages")]
    messages += [{"role": "user", "content": item.get("prompt.text")} for item in numbered(attributes, "llm.prompts")]
    if not messages and isinstance(reading.start_data, str) and "nemo_relay.uuid" not in attributes:
        messages = [{"role": "user", "content": reading.start_data}]
    if messages:
        body["messages"] = messages
        reading.start_data = {"content": without_none(body), "headers": {}}
    tools = [parsed(item.get("tool.json_schema")) for item in numbered(attributes, "llm.tools")]
    if tools and messages:
        reading.start_data["content"]["tools"] = tools
    said = list(numbered(attributes, "llm.output_messages"))
    answers = [_message(item) for item in said]
    if told := [item.get("completion.text") for item in numbered(attributes, "llm.choices")]:
        answers += [{"role": "assistant", "content": words} for words in told]
    elif not answers and isinstance(reading.end_data, str) and "nemo_relay.uuid" not in attributes:
        answers = [{"role": "assistant", "content": reading.end_data}]
    usage, tier = _usage(attributes), mapping(reading.end_data).get("service_tier")
    if answers or usage:
        finish = attributes.get("llm.finish_reason") or (said[0].get("message.finish_reason") if said else None)
        finish = {"tool_use": "tool_calls", "complete": "stop"}.get(finish, finish) if isinstance(finish, str) else None
        choices = [{"index": n, "message": m, "finish_reason": finish} for n, m in enumerate(answers)]
        reading.end_data = without_none({"model": model, "choices": choices, "usage": usage, "service_tier": tier})
    provider = attributes.get("llm.provider") or attributes.get("llm.system")
    reading.start_metadata |= without_none({"provider": provider})
    if "nemo_relay.uuid" not in attributes:  # whose answer is the provider's own, in whatever format
        reading.start_metadata["api_mode"] = reading.end_metadata["api_mode"] = "chat_completions"
    reading.start_profile = reading.end_profile = without_none({"model_name": model})


def _usage(attributes: dict[str, Any]) -> dict[str, Any] | None:
    def count(name: str) -> int | None:
        found = attributes.get("llm.token_count." + name)
        return found if isinstance(found, int) else None

    return tell_usage(
        count("prompt"),
        count("completion"),
        total=count("total"),
        cached=count("prompt_details.cache_read"),
        written=count("prompt_details.cache_write"),
        reasoning=count("completion_details.reasoning"),
        audio=Audio(read=count("prompt_details.audio"), written=count("completion_details.audio")),
    )


def _message(item: dict[str, Any]) -> dict[str, Any]:
    out = without_none(
        {
            "role": item.get("message.role", "user"),
            "tool_call_id": item.get("message.tool_call_id"),
            "name": item.get("message.name"),
        }
    )
    contents = [_content(part) for part in numbered(item, "message.contents")]
    out["content"] = contents or item.get("message.content")
    calls = [
        {
            "id": call.get("tool_call.id"),
            "type": "function",
            "function": {
                "name": call.get("tool_call.function.name"),
                "arguments": text(call.get("tool_call.function.arguments", "{}")),
            },
        }
        for call in numbered(item, "message.tool_calls")
    ]
    return {**out, "tool_calls": calls} if calls else out


def _content(part: dict[str, Any]) -> dict[str, Any]:
    if url := part.get("message_content.image.image.url"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": part.get("message_content.type", "text"), "text": part.get("message_content.text")}
