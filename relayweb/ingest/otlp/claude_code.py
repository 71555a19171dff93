"""Claude Code, and the agent SDK around it: a turn, its calls and its tools, from spans or from log records.

It sends spans only where its beta of tracing is on. Otherwise a turn is what the log records of one `prompt.id` tell
(see `pieces`).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from relayweb.ingest.otlp.pieces import OK, Piece, Turn, failed, is_false, number
from relayweb.ingest.otlp.reading import Reading
from relayweb.ingest.otlp.spans import Span
from relayweb.recording.conventions.attributes import parsed, string, without_none
from relayweb.recording.conventions.chat import Call, tell_usage
from relayweb.recording.projection.joining import CLAUDE_CODE

_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_USED = frozenset(("user_prompt", "tool_input", "input_tokens", "output_tokens", "stop_reason", "ttft_ms"))


# Spans --------------------------------------------------------------------------------------------------------------


def read(span: Span) -> Reading | None:
    """What these spans say; None of others."""
    if not span.name.startswith("claude_code."):
        return None
    attributes = span.attributes
    reading = Reading(used=_USED)
    kind = span.name.removeprefix("claude_code.")
    if kind == "interaction":
        reading.category = "agent"
        reading.start_metadata = reading.end_metadata = {"nemo_relay_scope_role": "turn"}
        reading.start_data = without_none({"prompt": attributes.get("user_prompt")}) or None
    elif kind == "llm_request":
        _read_call(reading, attributes)
    elif kind == "tool":
        reading.category, reading.name = "tool", string(attributes.get("tool_name"))
        call = attributes.get("tool_use_id") or attributes.get("gen_ai.tool.call.id")
        reading.start_profile = reading.end_profile = without_none({"tool_call_id": call})
        reading.start_data = parsed(attributes.get("tool_input"))
        outputs = [event.attributes for event in span.events if event.name == "tool.output"]
        reading.end_data = outputs[0] if outputs else None
    if attributes.get("success") in (False, "false") and not span.failed:
        told = {"otel.status_description": attributes.get("error"), "status_code": attributes.get("status_code")}
        reading.end_metadata = {**reading.end_metadata, "otel.status_code": "ERROR", **without_none(told)}
    return reading


def _read_call(reading: Reading, attributes: dict[str, Any]) -> None:
    finish = string(attributes.get("stop_reason"))
    first = number(attributes.get("ttft_ms"))
    reading.tell(
        Call(
            model=attributes.get("model"),
            answers=[({"role": "assistant", "content": None}, _FINISH.get(finish, finish))] if finish else [],
            answered=without_none({"id": attributes.get("gen_ai.response.id"), "model": attributes.get("model")}),
            usage=_usage(attributes),
        ),
        first_chunk=None if first is None else first / 1000,
    )
    reading.start_metadata["provider"] = "anthropic"


def _usage(attributes: dict[str, Any]) -> dict[str, Any] | None:
    read, written = number(attributes.get("cache_read_tokens")), number(attributes.get("cache_creation_tokens"))
    asked = number(attributes.get("input_tokens"))
    if asked is not None:  # Anthropic counts what its cache holds beside it
        asked += (read or 0) + (written or 0)
    usage = tell_usage(asked, number(attributes.get("output_tokens")), cached=read, written=written)
    if usage is not None and (speed := string(attributes.get("speed"))):
        usage["speed"] = speed
    return usage


# Log records --------------------------------------------------------------------------------------------------------


def piece(name: str, attributes: dict[str, Any], identity: UUID, at_ns: int) -> Piece | None:
    """What a log record tells of a turn; None of other records. `identity`: of the record."""
    kind = name.removeprefix("claude_code.")
    session, prompt = string(attributes.get("session.id")), string(attributes.get("prompt.id"))
    if kind == name or session is None or at_ns == 0:
        return None
    turn = Turn("claude_code", CLAUDE_CODE, session, prompt)
    home = turn.named("prompt", prompt) if prompt else None
    if kind == "user_prompt" and home is not None:
        return turn.begun(home, at_ns, attributes.get("prompt"))
    request = string(attributes.get("request_id"))
    call = turn.named("request", request) if request else UUID(int=identity.int ^ (2 << 64))
    if kind == "assistant_response" and request:
        return Piece(call)
    if kind not in ("api_request", "api_error", "tool_result"):
        return None if home is None else Piece(home)
    reading = _tool(attributes) if kind == "tool_result" else _call(attributes)
    reading.name = reading.name or name
    outcome = _outcome(kind, attributes)
    ends_turn = outcome if kind == "api_error" else OK
    return turn.held(call, at_ns, attributes.get("duration_ms"), reading, outcome, ends_turn)


def _call(attributes: dict[str, Any]) -> Reading:
    reading = Reading()
    usage, cost = _usage(attributes), number(attributes.get("cost_usd"))
    if usage is not None and cost is not None:
        usage["cost"] = {"total": cost, "currency": "USD"}
    reading.tell(Call(model=attributes.get("model"), answered={"model": attributes.get("model")}, usage=usage))
    reading.start_metadata["provider"] = "anthropic"
    return reading


def _tool(attributes: dict[str, Any]) -> Reading:
    profile = without_none({"tool_call_id": attributes.get("tool_use_id")})
    given = parsed(attributes.get("tool_input", attributes.get("tool_parameters")))
    return Reading("tool", string(attributes.get("tool_name")), given, start_profile=profile, end_profile=profile)


def _outcome(kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    if kind != "api_error" and not is_false(attributes.get("success")):
        return OK
    return failed(attributes.get("error"), attributes.get("error_type"), attributes.get("status_code"))
