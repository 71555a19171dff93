"""What single products write beside or instead of the conventions: Vercel's AI SDK, Langfuse, Logfire, OpenLLMetry."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from relayweb.ingest.otlp.reading import Reading
from relayweb.ingest.otlp.spans import Span
from relayweb.recording.conventions.attributes import items, mapping, parsed, string, without_none
from relayweb.recording.conventions.chat import Call, messages_of, tell_usage, tool_call

_SESSIONS = (
    *("gen_ai.conversation.id", "session.id", "langfuse.session.id", "ai.telemetry.metadata.sessionId"),
    *("traceloop.association.properties.session_id", "traceloop.association.properties.thread_id", "conversation.id"),
)


def session(span: Span) -> Reading | None:
    """The conversation a span belongs to, under any of the names in use."""
    if "nemo_relay.uuid" in span.attributes:
        return None
    found = session_of(span.attributes)
    return None if found is None else Reading(start_metadata={"session_id": found})


def session_of(attributes: dict[str, Any]) -> str | None:
    """The conversation that attributes name."""
    return next((str(attributes[name]) for name in _SESSIONS if attributes.get(name)), None)


# Vercel's AI SDK ----------------------------------------------------------------------------------------------------

_AI_PARAMETERS = {"maxOutputTokens": "max_tokens", "maxTokens": "max_tokens", "temperature": "temperature"}
_AI_TOOL = {"inputSchema": "parameters"}
_AI_USED = ("ai.prompt", "ai.response.text", "ai.response.object", "ai.response.toolCalls", "ai.response.reasoning")


def vercel(span: Span) -> Reading | None:
    """Spans of the `ai` package: `ai.generateText` around `ai.generateText.doGenerate` and `ai.toolCall`."""
    attributes = span.attributes
    operation = attributes.get("ai.operationId")
    if not isinstance(operation, str):
        return None
    reading = Reading(used=frozenset(key for key in attributes if key.startswith((*_AI_USED, "ai.toolCall."))))
    if operation == "ai.toolCall":
        reading.category, reading.name = "tool", string(attributes.get("ai.toolCall.name"))
        reading.start_data = parsed(attributes.get("ai.toolCall.args"))
        reading.end_data = parsed(attributes.get("ai.toolCall.result"))
        reading.start_profile = reading.end_profile = without_none({"tool_call_id": attributes.get("ai.toolCall.id")})
    elif operation.endswith((".doGenerate", ".doStream")):
        _vercel_call(reading, attributes)
        reading.streaming = operation.endswith(".doStream")
    elif operation.endswith(".doEmbed"):
        reading.category = "embedder"
    else:
        reading.category = "agent" if operation.startswith(("ai.generate", "ai.stream")) else "function"
        reading.start_data = parsed(attributes.get("ai.prompt"))
        answer = attributes.get("ai.response.text") or attributes.get("ai.response.object")
        reading.end_data = parsed(answer)
    return reading


def _vercel_call(reading: Reading, attributes: dict[str, Any]) -> None:
    def usage(*names: str) -> Any:
        return next((attributes[f"ai.usage.{name}"] for name in names if f"ai.usage.{name}" in attributes), None)

    message: dict[str, Any] = {"role": "assistant"}
    message["content"] = attributes.get("ai.response.text") or attributes.get("ai.response.object") or None
    if thought := attributes.get("ai.response.reasoning"):
        message["reasoning_content"] = thought
    calls = [call for call in items(attributes.get("ai.response.toolCalls")) if isinstance(call, dict)]
    if calls:
        message["tool_calls"] = [
            tool_call(call.get("toolCallId"), call.get("toolName"), call.get("input", call.get("args")))
            for call in calls
        ]
    finish = attributes.get("ai.response.finishReason", attributes.get("ai.finishReason"))
    first = attributes.get("ai.response.msToFirstChunk")
    settings = {name: attributes.get(f"ai.settings.{key}") for key, name in _AI_PARAMETERS.items()}
    tools = [mapping(tool) for tool in items(attributes.get("ai.prompt.tools"))]
    reading.tell(
        Call(
            model=attributes.get("ai.model.id"),
            parameters=without_none(settings),
            messages=messages_of(attributes.get("ai.prompt.messages")),
            tools=[
                {"type": "function", "function": {_AI_TOOL.get(k, k): v for k, v in tool.items() if k != "type"}}
                for tool in tools
            ],
            answers=[(message, finish)] if finish or calls or message["content"] else [],
            answered={"id": attributes.get("ai.response.id"), "model": attributes.get("ai.response.model")},
            usage=tell_usage(
                usage("inputTokens", "promptTokens"),
                usage("outputTokens", "completionTokens"),
                total=usage("totalTokens", "tokens"),
                cached=usage("cachedInputTokens", "inputTokenDetails.cacheReadTokens"),
                written=usage("inputTokenDetails.cacheWriteTokens"),
                reasoning=usage("reasoningTokens", "outputTokenDetails.reasoningTokens"),
            ),
        ),
        first_chunk=first / 1000 if isinstance(first, (int, float)) else None,
    )
    if provider := string(attributes.get("ai.model.provider")):
        reading.start_metadata["provider"] = provider.split(".")[0]


# Langfuse -----------------------------------------------------------------------------------------------------------

_OBSERVED = {"generation": "llm", "embedding": "embedder", "chain": "function", "span": "function", "event": "function"}
_LANGFUSE = "langfuse.observation."


def langfuse(span: Span) -> Reading | None:
    """Observations of Langfuse's SDKs."""
    told = {key[len(_LANGFUSE) :]: v for key, v in span.attributes.items() if key.startswith(_LANGFUSE)}
    kind = told.get("type")
    if not isinstance(kind, str):
        return None
    reading = Reading(
        category=_OBSERVED.get(kind, kind),
        start_data=parsed(told.get("input")),
        end_data=parsed(told.get("output")),
        used=frozenset((_LANGFUSE + "input", _LANGFUSE + "output")),
    )
    if kind == "generation":
        asked = reading.start_data
        asked = asked.get("messages", asked) if isinstance(asked, dict) else asked
        answer = messages_of(reading.end_data, "assistant")
        reading.end_data = None
        reading.tell(
            Call(
                model=told.get("model.name"),
                parameters=mapping(told.get("model.parameters")),
                messages=messages_of(asked),
                answers=[(message, message.pop("finish_reason", None)) for message in answer],
                usage=_langfuse_usage(mapping(told.get("usage_details"))),
            ),
            first_chunk=_after(span, told.get("completion_start_time")),
        )
    if told.get("level") == "ERROR":
        reading.end_metadata |= {"otel.status_code": "ERROR", "otel.status_description": told.get("status_message")}
    return reading


def _langfuse_usage(usage: dict[str, Any]) -> dict[str, Any] | None:
    """Its counts stand side by side, unless their sum says that some are inside others."""

    def count(*names: str) -> Any:
        return next((usage[name] for name in names if isinstance(usage.get(name), int)), None)

    prompt, completion = count("input", "prompt_tokens"), count("output", "completion_tokens")
    cached = count("input_cached_tokens", "cache_read_input_tokens", "input_cache_read")
    written = count("cache_creation_input_tokens", "input_cache_creation")
    reasoning, total = count("output_reasoning_tokens", "output_reasoning"), count("total", "total_tokens")
    if total is None or total != (prompt or 0) + (completion or 0):
        prompt = None if prompt is None else prompt + (cached or 0) + (written or 0)
        completion = None if completion is None else completion + (reasoning or 0)
        total = None
    return tell_usage(prompt, completion, total=total, cached=cached, written=written, reasoning=reasoning)


def _after(span: Span, moment: Any) -> float | None:
    try:
        at = datetime.fromisoformat(parsed(moment).strip('"')).timestamp()
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    return max(at - span.start_ns / 1e9, 0.0)


# Logfire ------------------------------------------------------------------------------------------------------------


def logfire(span: Span) -> Reading | None:
    """Logfire's `request_data` and `response_data`: bodies of the provider, shortened."""
    request = mapping(span.attributes.get("request_data"))
    if not any(name in request for name in ("messages", "input", "contents")):
        return None
    answer = mapping(span.attributes.get("response_data"))
    reading = Reading(
        category="llm",
        start_data={"content": request, "headers": {}},
        streaming=request.get("stream") is True,
        used=frozenset(("request_data", "response_data")),
    )
    if "message" in answer:
        (message,) = messages_of(answer["message"], "assistant")[:1] or [{}]
        answer["choices"] = [{"index": 0, "message": message, "finish_reason": None}]
        del answer["message"]
    elif "combined_chunk_content" in answer:
        message = {"role": "assistant", "content": answer.pop("combined_chunk_content")}
        answer["choices"] = [{"index": 0, "message": message, "finish_reason": None}]
    reading.end_data = answer or None
    return reading


# OpenLLMetry --------------------------------------------------------------------------------------------------------

_TRACELOOP = {"workflow": "agent", "agent": "agent", "tool": "tool", "task": "function"}


def openllmetry(span: Span) -> Reading | None:
    """Workflows, agents, tasks and tools; its calls are read with `gen_ai.*`."""
    kind = span.attributes.get("traceloop.span.kind")
    if not isinstance(kind, str):
        return None
    return Reading(
        category=_TRACELOOP.get(kind, "function"),
        name=string(span.attributes.get("traceloop.entity.name")),
        start_data=parsed(span.attributes.get("traceloop.entity.input")),
        end_data=parsed(span.attributes.get("traceloop.entity.output")),
        used=frozenset(("traceloop.entity.input", "traceloop.entity.output")),
    )
