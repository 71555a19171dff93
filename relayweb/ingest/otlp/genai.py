"""OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`), and the older indexed form of OpenLLMetry.

Requests and answers come out in the shape of OpenAI Chat Completions, which the record reads like any other call.
"""

from __future__ import annotations

from typing import Any

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
_FINISH = {"tool_call": "tool_calls"}


def read(span: Span) -> Reading | None:
    """What `gen_ai.*` attributes say; None where there are none."""
    attributes = span.attributes
    for event in span.events:
        if event.name == _DETAILS:
            attributes = {**event.attributes, **attributes}
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if operation is None and not any(key.startswith("gen_ai.") for key in attributes):
        return None
    category = _CATEGORIES.get(str(operation), "llm" if "gen_ai.request.model" in attributes else "function")
    session = attributes.get("gen_ai.conversation.id")
    reading = Reading(
        category=category,
        start_metadata={"session_id": session} if session else {},
        used=frozenset(
            key for key in attributes if key in _BULKY or key.startswith(("gen_ai.prompt.", "gen_ai.completion."))
        ),
    )
    if category == "llm":
        _read_call(reading, attributes)
    elif category == "tool":
        reading.name = string(attributes.get("gen_ai.tool.name"))
        reading.start_data = parsed(attributes.get("gen_ai.tool.call.arguments"))
        reading.end_data = parsed(attributes.get("gen_ai.tool.call.result"))
        reading.start_profile = without_none({"tool_call_id": attributes.get("gen_ai.tool.call.id")})
        reading.end_profile = reading.start_profile
    elif category == "agent":
        reading.name = string(attributes.get("gen_ai.agent.name"))
    return reading


def _read_call(reading: Reading, attributes: dict[str, Any]) -> None:
    body = {name: attributes[key] for key, name in _PARAMETERS.items() if key in attributes}
    messages = [_message(message) for message in items(attributes.get("gen_ai.input.messages"))]
    if instructions := items(attributes.get("gen_ai.system_instructions")):
        messages.insert(0, {"role": "system", "content": _joined(instructions)})
    messages += [_indexed(item) for item in numbered(attributes, "gen_ai.prompt")]
    if messages:
        body["messages"] = messages
    if tools := items(attributes.get("gen_ai.tool.definitions")):
        body["tools"] = [_tool(tool) for tool in tools]
    reading.start_data = {"content": body, "headers": {}}
    reading.streaming = (
        attributes.get("gen_ai.request.stream") is True or "gen_ai.response.time_to_first_chunk" in attributes
    )
    if "nemo_relay.uuid" not in attributes:  # whose bodies are the provider's own, in whatever format
        reading.start_metadata["api_mode"] = reading.end_metadata["api_mode"] = "chat_completions"
    reading.end_data = _answer(attributes)
    model = attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")
    reading.start_profile = without_none({"model_name": model})
    first = attributes.get("gen_ai.response.time_to_first_chunk")
    reading.end_profile = without_none({"model_name": model, "time_to_first_chunk": first})


def _answer(attributes: dict[str, Any]) -> dict[str, Any] | None:
    choices = []
    for message in items(attributes.get("gen_ai.output.messages")):
        finish = message.get("finish_reason") if isinstance(message, dict) else None
        choices.append((_message(message), finish))
    for item in numbered(attributes, "gen_ai.completion"):
        choices.append((_indexed(item), item.get("finish_reason")))
    reasons = attributes.get("gen_ai.response.finish_reasons")
    reasons = reasons if isinstance(reasons, list) else []
    if not choices and reasons:
        choices = [({"role": "assistant", "content": None}, None)]
    usage = _usage(attributes)
    if not choices and not usage:
        return None
    return without_none(
        {
            "id": attributes.get("gen_ai.response.id"),
            "model": attributes.get("gen_ai.response.model"),
            "choices": [
                {"index": index, "message": message, "finish_reason": _finish(finish, reasons[index : index + 1])}
                for index, (message, finish) in enumerate(choices)
            ],
            "usage": usage,
        }
    )


def _finish(own: Any, listed: list[Any]) -> Any:
    reason = own or (listed[0] if listed else None)
    return _FINISH.get(reason, reason) if isinstance(reason, str) else None


def _usage(attributes: dict[str, Any]) -> dict[str, Any] | None:
    def count(*names: str) -> int | None:
        return next((attributes[name] for name in names if isinstance(attributes.get(name), int)), None)

    prompt = count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    completion = count("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    if prompt is None and completion is None:
        return None
    cached = count("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
    written = count("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens")
    reasoning = count("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens")
    total = count("llm.usage.total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    details = without_none({"cached_tokens": cached, "cache_write_tokens": written})
    return without_none(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": total,
            "prompt_tokens_details": details or None,
            "completion_tokens_details": None if reasoning is None else {"reasoning_tokens": reasoning},
        }
    )


def _message(message: Any) -> dict[str, Any]:
    """A message of parts, as the conventions have it, in the shape of Chat Completions."""
    if not isinstance(message, dict):
        return {"role": "user", "content": text(message)}
    parts = message.get("parts")
    if not isinstance(parts, list):
        return {"role": message.get("role", "user"), "content": message.get("content")}
    out: dict[str, Any] = {"role": message.get("role", "user")}
    said = [part for part in parts if isinstance(part, dict) and part.get("type") in ("text", None)]
    out["content"] = _joined(said) if said else None
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "tool_call":
            call = {"name": part.get("name"), "arguments": text(part.get("arguments", {}))}
            out.setdefault("tool_calls", []).append({"id": part.get("id"), "type": "function", "function": call})
        elif part.get("type") == "tool_call_response":
            out |= {"role": "tool", "tool_call_id": part.get("id")}
            out["content"] = text(part.get("response", part.get("result", "")))
        elif part.get("type") in ("reasoning", "thinking"):
            out["reasoning_content"] = part.get("content")
        elif part not in said:
            out.setdefault("parts", []).append(part)
    return out


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
        {
            "id": call.get("id"),
            "type": "function",
            "function": {"name": call.get("name"), "arguments": text(call.get("arguments", "{}"))},
        }
        for call in numbered(item, "tool_calls")
    ]
    return {**out, "tool_calls": calls} if calls else out
