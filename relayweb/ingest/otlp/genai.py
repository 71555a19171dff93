"""OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`), and the older indexed form of OpenLLMetry.

Requests and answers come out in the shape of OpenAI Chat Completions, which the record reads like any other call.
"""

from __future__ import annotations

from typing import Any

from relayweb.ingest.otlp import span_events
from relayweb.ingest.otlp.chat import messages_of, tell_call, tell_usage, tool_call
from relayweb.ingest.otlp.reading import Reading, items, numbered, parsed, string, text, without_none
from relayweb.ingest.otlp.spans import Span

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
_PARAMETERS = {
    "gen_ai.request.model": "model",
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.choice.count": "n",
    "gen_ai.request.stream": "stream",
}
_BULKY = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
)
_DETAILS = "gen_ai.client.inference.operation.details"


def read(span: Span) -> Reading | None:
    """What `gen_ai.*` attributes say; None where there are none."""
    attributes = span.attributes
    for event in span.events:
        if event.name == _DETAILS:
            attributes = {**event.attributes, **attributes}
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if operation is None and not any(key.startswith("gen_ai.") for key in attributes):
        return None
    category = _CATEGORIES.get(str(operation)) or _by_names(attributes, operation)
    reading = Reading(
        category=category,
        used=frozenset(
            key for key in attributes if key in _BULKY or key.startswith(("gen_ai.prompt.", "gen_ai.completion."))
        ),
    )
    if category == "llm":
        _read_call(reading, span, attributes)
    elif category == "tool":
        given, answered = span_events.of_tool(span)
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
    asked, answered = span_events.told(span)
    if "gen_ai.input.messages" in attributes:
        asked = messages_of(attributes["gen_ai.input.messages"])
    if instructions := items(attributes.get("gen_ai.system_instructions")):
        asked.insert(0, {"role": "system", "content": _joined(instructions)})
    asked += [_indexed(item) for item in numbered(attributes, "gen_ai.prompt")]
    tools = [_tool(tool) for tool in items(attributes.get("gen_ai.tool.definitions"))]
    tools += [_function(function) for function in numbered(attributes, "llm.request.functions")]
    model = attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")
    parameters = {name: attributes[key] for key, name in _PARAMETERS.items() if key in attributes}
    tell_call(
        reading,
        model=parameters.pop("model", None),
        parameters=parameters,
        messages=asked,
        tools=tools,
        answers=_answers(attributes, answered),
        answered={"id": attributes.get("gen_ai.response.id"), "model": attributes.get("gen_ai.response.model")},
        usage=_usage(attributes),
        first_chunk=attributes.get("gen_ai.response.time_to_first_chunk"),
    )
    if "nemo_relay.uuid" in attributes:  # whose bodies are the provider's own, in whatever format
        del reading.start_metadata["api_mode"], reading.end_metadata["api_mode"]
    for profile in (reading.start_profile, reading.end_profile):
        profile |= without_none({"model_name": model})
    reading.streaming = True in (attributes.get("gen_ai.request.stream"), attributes.get("llm.is_streaming")) or (
        "gen_ai.response.time_to_first_chunk" in attributes
    )


def _answers(attributes: dict[str, Any], answers: list[tuple[dict[str, Any], Any]]) -> list[tuple[dict[str, Any], Any]]:
    if "gen_ai.output.messages" in attributes:
        answers = [
            (said, message.get("finish_reason") if isinstance(message, dict) else None)
            for message in items(attributes["gen_ai.output.messages"])
            for said in messages_of([message], "assistant")
        ]
    answers += [(_indexed(item), item.get("finish_reason")) for item in numbered(attributes, "gen_ai.completion")]
    reasons = attributes.get("gen_ai.response.finish_reasons")
    reasons = reasons if isinstance(reasons, list) else []
    if not answers and reasons:
        answers = [({"role": "assistant", "content": None}, None)]
    return [(said, own or (reasons[at] if at < len(reasons) else None)) for at, (said, own) in enumerate(answers)]


def _usage(attributes: dict[str, Any]) -> dict[str, Any] | None:
    def count(*names: str) -> int | None:
        found = (attributes.get(f"gen_ai.usage.{name}") for name in names)
        return next((value for value in found if isinstance(value, int)), None)

    return tell_usage(
        count("input_tokens", "prompt_tokens"),
        count("output_tokens", "completion_tokens"),
        total=attributes.get("llm.usage.total_tokens"),
        cached=count("cache_read.input_tokens", "cache_read_input_tokens", "details.cache_read_tokens"),
        written=count("cache_creation.input_tokens", "cache_creation_input_tokens", "details.cache_write_tokens"),
        reasoning=count("reasoning.output_tokens", "reasoning_tokens", "details.reasoning_tokens"),
    )


def _function(function: dict[str, Any]) -> dict[str, Any]:
    parameters = parsed(function.get("parameters"))
    return {"type": "function", "function": without_none({**function, "parameters": parameters})}


def _joined(parts: list[Any]) -> str:
    return "\n".join(text(part.get("content", "")) if isinstance(part, dict) else text(part) for part in parts)


def _tool(tool: Any) -> Any:
    if isinstance(tool, dict) and tool.get("type") == "function" and "function" not in tool:
        return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
    return tool


def _indexed(item: dict[str, Any]) -> dict[str, Any]:
    """A message from `gen_ai.prompt.N.…` or `gen_ai.completion.N.…`."""
    out = without_none({"role": item.get("role", "assistant"), "tool_call_id": item.get("tool_call_id")})
    out["content"] = parsed(item.get("content"))
    calls = [
        tool_call(call.get("id"), call.get("name"), call.get("arguments")) for call in numbered(item, "tool_calls")
    ]
    return {**out, "tool_calls": calls} if calls else out
