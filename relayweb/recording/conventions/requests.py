"""What a request asks for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from relayweb.recording.conventions.details import read_tier
from relayweb.recording.conventions.shapes import (
    PROVIDER_NAMES,
    Json,
    as_list,
    as_map,
    clean,
    content_text,
    first_of,
    guess_api_mode,
    messages_of,
    text_or_none,
)

_ASKED = 200  # characters of what the user asked that a list shows


class RequestFacts(msgspec.Struct, frozen=True, gc=False):
    model: str | None = None
    provider: str | None = None
    api_mode: str | None = None
    streaming: bool | None = None
    asked: str | None = None
    message_count: int | None = None
    tool_count: int | None = None
    service_tier: str | None = None


def _user_text(message: Json) -> str:
    if isinstance(message, str):  # a prompt of several
        return message
    message = as_map(message)
    by = message.get("role") or message.get("type") or ("user" if "parts" in message else None)  # Gemini's default
    for wrapper in ("kwargs", "data"):  # LangChain's serialisations
        if isinstance(message.get(wrapper), Mapping):
            message = message[wrapper]
            by = message.get("type") or by
    if by not in ("user", "human"):
        return ""
    return content_text(message.get("content", message.get("parts")))


def asked_text(body: Json) -> str | None:
    """The first words of the last thing a user said in a request body."""
    messages = messages_of(as_map(body))
    if isinstance(messages, (list, tuple)) and len(messages) == 1 and isinstance(messages[0], (list, tuple)):
        messages = messages[0]  # LangChain's batch of one
    text = (
        messages if isinstance(messages, str) else next(filter(None, map(_user_text, reversed(as_list(messages)))), "")
    )
    words = " ".join(text[: 4 * _ASKED].split())
    return text_or_none(words if len(words) <= _ASKED else words[: _ASKED - 1] + "…")


def provider_of(name: Json, metadata: Json) -> str | None:
    stated = first_of(
        as_map(metadata), "relay.provider", "hermes.provider", "provider", "gen_ai.provider.name", "gen_ai.system"
    )
    if isinstance(stated, str):
        return clean(stated[:100])
    if not isinstance(name, str) or not name or " " in name:  # the name of a span, such as "chat gpt-5"
        return None
    return clean((name.split(".", 1)[0] if name in PROVIDER_NAMES else name)[:100])


def read_request(
    api_mode: Json,
    content: Json,
    *,
    name: Json = None,
    metadata: Json = None,
    profile: Json = None,
    attributes: Json = (),
) -> RequestFacts:
    """What a request is: the start event's `data.content`, beside the event's own name, metadata and profile."""
    body, profile = as_map(content), as_map(profile)
    annotated = as_map(profile.get("annotated_request"))
    models = (body.get("model"), body.get("modelId"), profile.get("model_name"), annotated.get("model"))
    stream = body.get("stream")
    if not isinstance(stream, bool):
        stream = True if "streaming" in as_list(attributes) else None
    messages = messages_of(body)
    return RequestFacts(
        model=next(filter(None, map(text_or_none, models)), None),
        provider=provider_of(name, metadata),
        api_mode=guess_api_mode(api_mode, name=name, content=body, metadata=metadata, profile=profile),
        streaming=stream,
        asked=asked_text(body) or asked_text(annotated),
        message_count=_message_count(messages),
        tool_count=_tool_count(body),
        service_tier=read_tier(
            body.get("service_tier") or body.get("serviceTier"), body.get("speed"), body.get("inference_geo")
        ),
    )


def _message_count(messages: Json) -> int | None:
    if isinstance(messages, (list, tuple)):
        return None if messages and isinstance(messages[0], int) else len(messages)  # a prompt in tokens
    return None if messages is None else 1


def _tool_count(body: Mapping[str, Json]) -> int | None:
    tools = body.get("tools")
    if tools is None and "toolConfig" in body:
        tools = as_map(body["toolConfig"]).get("tools")
    if not isinstance(tools, (list, tuple)):
        return None
    names = ("functionDeclarations", "function_declarations")  # Gemini lists several functions in one tool
    return sum(max(1, *(len(as_list(as_map(tool).get(name))) for name in names)) for tool in tools)
