"""Readers of JSON that may have any shape, and which wire format a body speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Json = Any
Status = Literal["running", "ok", "failed", "cancelled", "blocked", "interrupted"]
ChunkKind = Literal["text", "reasoning", "tool", "other"]

CHAT, RESPONSES, ANTHROPIC, GEMINI = "chat_completions", "codex_responses", "anthropic_messages", "gemini"

_SHORT = 200


_NO_MAP = frozenset((type(None), str, int, float, bool, list))


def as_map(value: Json) -> Mapping[str, Json]:
    # An ABC's instance check is slow, and this runs dozens of times an event.
    kind = type(value)
    return value if kind is dict or (kind not in _NO_MAP and isinstance(value, Mapping)) else {}


def as_list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, (list, tuple)) else ()


def clean(text: str) -> str:
    """Text a database column can hold: lone surrogates become U+FFFD, U+0000 its visible sign."""
    return text.replace("\0", "␀").encode("utf-8", "replace").decode() if not text.isascii() or "\0" in text else text


def text_or_none(value: Json, limit: int = _SHORT) -> str | None:
    return clean(value[:limit]) if isinstance(value, str) and value else None


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def http_status(value: Json) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599 else None


def first_of(metadata: Mapping[str, Json], *names: str) -> Json:
    """The first of several metadata keys; with Relay's `replace_dots` policy dots arrive as underscores."""
    for name in names:
        for key in (name, name.replace(".", "_")):
            value = metadata.get(key)
            if value is not None and value != "":
                return value
    return None


PROVIDER_NAMES = {
    "openai.chat_completions": CHAT,
    "openai.chat": CHAT,
    "openai.responses": RESPONSES,
    "anthropic.messages": ANTHROPIC,
    "openai_chat_completions": CHAT,
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
    "gemini_generate_content": GEMINI,
    "chat_completions": CHAT,
    "codex_responses": RESPONSES,
    "responses": RESPONSES,
    "anthropic_messages": ANTHROPIC,
    "gemini": GEMINI,
}


def known_api_mode(name: Json) -> str | None:
    """The api_mode a name stands for (ours, Relay's or a scope's), None for a name that says nothing."""
    return PROVIDER_NAMES.get(name) if isinstance(name, str) else None


def guess_api_mode(
    api_mode: Json, *, name: Json = None, content: Json = None, metadata: Json = None, profile: Json = None
) -> str | None:
    """Which wire format a call speaks: as stated, else by annotation, by scope name, by the body's shape."""
    stated = (
        api_mode if isinstance(api_mode, str) and api_mode else first_of(as_map(metadata), "api_mode", "relay.api_mode")
    )
    if isinstance(stated, str):
        return known_api_mode(stated) or clean(stated[:64])
    for annotated in ("annotated_request", "annotated_response"):
        api = as_map(as_map(as_map(profile).get(annotated)).get("api_specific")).get("api")
        if known_api_mode(api):
            return known_api_mode(api)
    return known_api_mode(name) or _api_mode_by_shape(as_map(content), name)


_BEDROCK = frozenset(("modelId", "inferenceConfig", "toolConfig", "additionalModelRequestFields"))
_NO_ANSWER = re.compile(r"embed|moderat|rerank|speech|transcri|image", re.IGNORECASE)
"""Names of operations whose `input` is no conversation."""
_ANTHROPIC_BLOCKS = frozenset(
    ("tool_use", "tool_result", "document", "search_result", "thinking", "redacted_thinking", "server_tool_use")
)


def _api_mode_by_shape(body: Mapping[str, Json], name: Json = None) -> str | None:
    if "contents" in body or "candidates" in body:
        return GEMINI
    if "choices" in body:
        return CHAT
    if body.get("type") == "message" or ("stop_reason" in body and "content" in body):
        return ANTHROPIC
    if body.get("object") == "response":
        return RESPONSES
    if "input" in body and "messages" not in body:
        return None if isinstance(name, str) and _NO_ANSWER.search(name) else RESPONSES
    if "messages" in body and _BEDROCK.isdisjoint(body):
        blocks = [b for m in as_list(body["messages"])[:8] for b in as_list(as_map(m).get("content"))]
        anthropic = "system" in body or any(_is_anthropic(as_map(b)) for b in blocks)
        return ANTHROPIC if anthropic or "anthropic_version" in body else CHAT
    return None


def _is_anthropic(block: Mapping[str, Json]) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and (kind in _ANTHROPIC_BLOCKS or "cache_control" in block)


def messages_of(body: Mapping[str, Json]) -> Json:
    """The conversation in a request body, under whichever name its format gives it: text, or a list."""
    for name in ("messages", "input", "contents", "prompt"):
        said = body.get(name)
        if said is not None:
            if not isinstance(said, Mapping):
                return said
            return None if name == "prompt" else [said]  # one message; a stored prompt's id and variables
    for name in ("message", "inputs", "inputText"):  # Cohere until version 1, Hugging Face, Titan
        if isinstance(body.get(name), str):
            return body[name]
    return None


def content_text(content: Json) -> str:
    """The text in a message's content: a string, a part, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return _part_text(content)
    return " ".join(t for t in map(_part_text, as_list(content)) if t)


def _part_text(part: Json) -> str:
    if isinstance(part, str):
        return part
    part = as_map(part)
    if part.get("type") in (None, "text", "input_text", "output_text"):
        return as_text(part.get("text"))
    return ""


def _titan(body: Mapping[str, Json], results: Sequence[Json]) -> Json:
    """Amazon Titan's: the answers are counted one by one, at a stream's end together; embeddings write nothing."""
    told = [as_map(result).get("tokenCount") for result in results]
    counts = [count for count in told if type(count) is int]
    written = body.get("totalOutputTextTokenCount")
    if written is None and counts and len(counts) == len(told):
        written = sum(counts)
    return {"input_tokens": body["inputTextTokenCount"], "output_tokens": written}


def usage_object(body: Mapping[str, Json]) -> Json:
    """Where an answer or a chunk keeps its usage."""
    for name in ("usage", "usageMetadata", "usage_metadata"):
        if isinstance(body.get(name), Mapping):
            return body[name]
    if "eval_count" in body or "prompt_eval_count" in body:  # Ollama
        return body
    for name in ("x_groq", "metadata", "delta"):  # Groq; Bedrock and Cohere, at a stream's end
        inner = as_map(body.get(name)).get("usage")
        if isinstance(inner, Mapping):
            return inner
    if "generation_token_count" in body:  # Llama on Bedrock
        return {"input_tokens": body.get("prompt_token_count"), "output_tokens": body["generation_token_count"]}
    results = as_list(body.get("results"))  # watsonx
    if "inputTextTokenCount" in body:
        return _titan(body, results)
    return next((r for r in results if "generated_token_count" in as_map(r)), body.get("meta"))
