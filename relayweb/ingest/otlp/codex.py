"""The log records of Codex CLI, as its crate `codex-otel` writes them in 2026.

A record names its conversation and nothing within, so a conversation is one turn, named by its first prompt. A call is
told twice: by its request once the head of the answer is there, and by the event of its stream that ends it, which has
the tokens. Of these the one that tells how the call ended is read; the others are marks.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from relayweb.ingest.otlp.pieces import OK, Piece, Turn, failed, is_false, number
from relayweb.ingest.otlp.reading import Reading
from relayweb.recording.conventions.attributes import parsed, string, without_none
from relayweb.recording.conventions.chat import Call, tell_usage
from relayweb.recording.projection.joining import CODEX

_BROKEN = (None, "response.failed", "response.completed")
"""Kinds of events of a stream with an error after which no more of it comes."""


def piece(name: str, attributes: dict[str, Any], identity: UUID, at_ns: int) -> Piece | None:
    """What a log record tells of a turn; None of other records. `identity`: of the record."""
    kind = name.removeprefix("codex.")
    conversation = string(attributes.get("conversation.id"))
    if kind == name or conversation is None or at_ns == 0:
        return None
    turn, uuid = Turn("codex", CODEX, conversation, conversation), UUID(int=identity.int ^ (2 << 64))
    if kind == "user_prompt":
        return turn.begun(uuid, at_ns, attributes.get("prompt"))
    if kind == "tool_result":
        outcome = failed(attributes.get("output")) if is_false(attributes.get("success")) else OK
        return turn.held(uuid, at_ns, attributes.get("duration_ms"), _tool(attributes), outcome, OK)
    if (ended := _ended(kind, attributes)) is not None:
        return turn.held(uuid, at_ns, attributes.get("duration_ms"), _call(attributes), ended, ended)
    return None


def _ended(kind: str, attributes: dict[str, Any]) -> dict[str, Any] | None:
    """What became of a call, if this record ends it."""
    event, error = attributes.get("event.kind"), attributes.get("error.message")
    status = number(attributes.get("http.response.status_code"))
    if kind == "sse_event":
        if error is not None and event in _BROKEN:
            return failed(error)
        return OK if event == "response.completed" and "input_token_count" in attributes else None
    if kind in ("api_request", "websocket_request") and (error is not None or (status or 0) >= 400):
        return failed(error, status=None if status is None else int(status))
    return None


def _call(attributes: dict[str, Any]) -> Reading:
    reading = Reading(name="codex.call")
    model = attributes.get("model")
    usage = tell_usage(
        number(attributes.get("input_token_count")),
        number(attributes.get("output_token_count")),
        cached=number(attributes.get("cached_token_count")),
        reasoning=number(attributes.get("reasoning_token_count")),
    )
    reading.tell(Call(model=model, answered=without_none({"model": model}), usage=usage))
    reading.start_metadata["provider"] = "openai"
    return reading


def _tool(attributes: dict[str, Any]) -> Reading:
    profile = without_none({"tool_call_id": string(attributes.get("call_id"))})
    given, output = parsed(attributes.get("arguments")), parsed(attributes.get("output"))
    name = string(attributes.get("tool_name"))
    return Reading("tool", name, given, output, start_profile=profile, end_profile=profile)
