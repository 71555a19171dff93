"""Calls as OpenTelemetry's semantic conventions for generative AI tell them, in attributes and in events.

Events come in a span, in a list in one of its attributes (Logfire), or as log records: up to version 1.36 of the
conventions one for each message (`gen_ai.user.message` …, `gen_ai.choice`), since then one for all
(`gen_ai.client.inference.operation.details`), before both `gen_ai.content.prompt` and `gen_ai.content.completion`.
Requests and answers come out in the shape of OpenAI Chat Completions, which the record reads like any other call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from relayweb.recording.conventions.attributes import items, mapping, numbered, parsed, text, without_none
from relayweb.recording.conventions.chat import Audio, Call, messages_of, tell_usage, tool_call
from relayweb.recording.conventions.shapes import as_list, as_map

DETAILS = "gen_ai.client.inference.operation.details"
BULKY = (
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions"),
    *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
)
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
    "openai.request.service_tier": "service_tier",
    "gen_ai.openai.request.service_tier": "service_tier",
}
_SERVED = ("openai.response.service_tier", "gen_ai.openai.response.service_tier")
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_PROMPT, _COMPLETION, _CHOICE = "gen_ai.content.prompt", "gen_ai.content.completion", "gen_ai.choice"
_PROMPTED = frozenset(f"{agent}.user_prompt" for agent in ("claude_code", "codex", "gemini_cli", "qwen-code"))
_RESPONSE = "claude_code.assistant_response"
_TELLING = frozenset((*_ROLES, _CHOICE, DETAILS, _PROMPT, _COMPLETION, *_PROMPTED, _RESPONSE))
_LEFT_OUT = (None, "<REDACTED>", "[REDACTED]")

Event = tuple[str, Mapping[str, Any]]
"""The name of an event and what it says."""


def is_told(name: str | None) -> bool:
    """Whether an event of this name tells of a conversation: what was said, or what somebody thinks of it."""
    return name is not None and (name.startswith("gen_ai.") or name in _TELLING)


def tells_call(name: str | None) -> bool:
    """Whether an event of this name tells what a call asked or answered."""
    return name in _TELLING


def tells_message(name: str) -> bool:
    """Whether an event of this name is one message of a request."""
    return name in _ROLES


def said_in(data: Any) -> dict[str, Any]:
    """What an event says, from the data of its mark: a span event's attributes, or attributes and body of a record."""
    data = as_map(data)
    if data and data.keys() <= {"body", "attributes"}:
        data = {**as_map(data.get("attributes")), **as_map(data.get("body"))}
    inner = mapping(data.get("gen_ai.event.content"))  # Azure's
    return {**data, **inner}


def read_call(attributes: Mapping[str, Any], events: Iterable[Event] = ()) -> Call:
    """What attributes and events say of a call; attributes go before events, and events of all before single ones."""
    events = list(events)
    for name, said in events:
        if name == DETAILS:
            attributes = {**said, **attributes}
    asked, answered = _told(events)
    if "gen_ai.input.messages" in attributes:
        asked = messages_of(attributes["gen_ai.input.messages"])
    if instructions := items(attributes.get("gen_ai.system_instructions")):
        asked.insert(0, {"role": "system", "content": _joined(instructions)})
    asked += [_indexed(item) for item in numbered(attributes, "gen_ai.prompt")]
    tools = [_tool(tool) for tool in items(attributes.get("gen_ai.tool.definitions"))]
    tools += [_function(function) for function in numbered(attributes, "llm.request.functions")]
    parameters = {name: attributes[key] for key, name in _PARAMETERS.items() if key in attributes}
    served = next((attributes[name] for name in _SERVED if attributes.get(name)), None)
    model = attributes.get("gen_ai.response.model")
    return Call(
        model=parameters.pop("model", None),
        parameters=parameters,
        messages=asked,
        tools=tools,
        answers=_answers(attributes, answered),
        answered={"id": attributes.get("gen_ai.response.id"), "model": model, "service_tier": served},
        usage=_usage(attributes),
    )


def of_tool(events: Iterable[Event]) -> tuple[Any, Any]:
    """What a tool was given and what it gave, each None where nothing is told."""
    given = answered = None
    for name, said in events:
        if name == "gen_ai.tool.message":
            given = parsed(said.get("content"))
        elif name == _CHOICE:
            answered = parsed(said.get("message"))
    return given, answered


# Filling in what a call's own events do not say ---------------------------------------------------------------------


def lacks_messages(body: Any) -> bool:
    """Whether a request body holds no messages."""
    return body is None or (
        isinstance(body, dict) and not any(body.get(name) for name in ("messages", "input", "contents", "prompt"))
    )


def lacks_answer(answer: Any) -> bool:
    """Whether an answer in the chat format says nothing."""
    if answer is None or answer == {}:
        return True
    if not isinstance(answer, dict) or not answer.keys() <= {"id", "model", "service_tier", "choices", "usage"}:
        return False
    messages = [as_map(as_map(choice).get("message")) for choice in as_list(answer.get("choices"))]
    return not any(message.get(name) for message in messages for name in message if name != "role")


def filled_request(body: Any, call: Call) -> Any:
    """A request body that lacks messages, with those of `call` and what else it says."""
    body = as_map(body)
    return {**body, **{name: value for name, value in call.request().items() if not body.get(name)}}


def filled_answer(answer: Any, call: Call) -> Any:
    """An answer that says nothing, with what `call` answered; its finish reasons go before those of `call`."""
    known = [as_map(choice).get("finish_reason") for choice in as_list(as_map(answer).get("choices"))]
    told = call.answer()
    for choice, finish in zip(told["choices"], known, strict=False):
        choice["finish_reason"] = finish or choice["finish_reason"]
    return {**told, **as_map(answer), "choices": told["choices"]}


# Reading ------------------------------------------------------------------------------------------------------------


def _told(events: Iterable[Event]) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], Any]]]:
    """The messages of a request, and those of the answer with their finish reasons."""
    asked: list[dict[str, Any]] = []
    answered: list[tuple[dict[str, Any], Any]] = []
    for name, said in events:
        if name in _ROLES:
            asked += _message(said, _ROLES[name])
        elif name == _CHOICE:
            message = parsed(said.get("message", said.get("content")))
            extra = {"tool_calls": items(said["tool_calls"])} if said.get("tool_calls") else {}
            answered += [({**m, **extra}, said.get("finish_reason")) for m in messages_of(message, "assistant") or [{}]]
        elif name in _PROMPTED and said.get("prompt") not in _LEFT_OUT:
            asked += messages_of({"role": "user", "content": said["prompt"]})
        elif name == _RESPONSE and said.get("response") not in _LEFT_OUT:
            answered += [(message, None) for message in messages_of(said["response"], "assistant")]
        elif name == _PROMPT:
            asked += messages_of(said.get("gen_ai.prompt"))
        elif name == _COMPLETION:
            answered += [
                (m, m.pop("finish_reason", None)) for m in messages_of(said.get("gen_ai.completion"), "assistant")
            ]
    return asked, answered


def _message(said: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    message = {"role": said.get("role") or role, "content": parsed(said.get("content"))}
    if said.get("tool_calls"):
        message["tool_calls"] = items(said["tool_calls"])
    if role == "tool" and said.get("id"):
        message["tool_call_id"] = said["id"]
    return messages_of([message])


def _answers(
    attributes: Mapping[str, Any], answers: list[tuple[dict[str, Any], Any]]
) -> list[tuple[dict[str, Any], Any]]:
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


def _usage(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
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
        audio=Audio(
            read=count("details.input_audio_tokens", "input_audio_tokens"),
            written=count("details.output_audio_tokens", "output_audio_tokens", "details.audio_tokens"),
            cached=count("details.cache_audio_read_tokens", "cache_audio_read_tokens"),
        ),
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
