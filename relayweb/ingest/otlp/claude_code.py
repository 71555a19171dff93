"""Claude Code, and the agent SDK around it: a turn, its calls and its tools, from spans or from log records.

It sends spans only where its beta of tracing is on. Otherwise a turn is what the log records of one `prompt.id` tell:
each brings a piece, a turn of its own of the same session and turn id, so that they may come in any order (see
`relayweb.recording.projection.joining`). The first piece, of the prompt, tells no end: the last one's stands for it.
"""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from relayweb.ingest.otlp.lines import line, timestamp
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
    first = _number(attributes.get("ttft_ms"))
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
    read, written = _number(attributes.get("cache_read_tokens")), _number(attributes.get("cache_creation_tokens"))
    asked = _number(attributes.get("input_tokens"))
    if asked is not None:  # Anthropic counts what its cache holds beside it
        asked += (read or 0) + (written or 0)
    return tell_usage(asked, _number(attributes.get("output_tokens")), cached=read, written=written)


def _number(value: Any) -> float | None:
    """A number, which older versions write as text."""
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# Log records --------------------------------------------------------------------------------------------------------


class Piece(msgspec.Struct):
    """The scopes that a record tells of, as lines, and the one it hangs under."""

    under: UUID
    lines: list[bytes] = []


def piece(name: str, attributes: dict[str, Any], identity: UUID, at_ns: int) -> Piece | None:
    """What a log record tells of a turn; None of other records. `identity`: of the record."""
    kind = name.removeprefix("claude_code.")
    session, prompt = string(attributes.get("session.id")), string(attributes.get("prompt.id"))
    if kind == name or session is None or at_ns == 0:
        return None
    metadata = {"session_id": session, **({"turn_id": prompt} if prompt else {}), "profile": CLAUDE_CODE}
    as_turn = {**metadata, "nemo_relay_scope_role": "turn"}
    turn = _named(session, "prompt", prompt) if prompt else None
    if kind == "user_prompt" and turn is not None:
        said = attributes.get("prompt")
        called = said[:_TITLE] if isinstance(said, str) and said != "<REDACTED>" else "claude_code.turn"
        start = {"name": called, "category": "agent", "data": {"prompt": said} if said else None, "metadata": as_turn}
        return Piece(turn, [_event(turn, None, "start", at_ns, **start)])
    request = string(attributes.get("request_id"))
    call = _named(session, "request", request) if request else UUID(int=identity.int ^ (2 << 64))
    if kind == "assistant_response" and request:
        return Piece(call)
    if kind not in ("api_request", "api_error", "tool_result"):
        return None if turn is None else Piece(turn)
    around = UUID(int=call.int ^ (1 << 64))  # begins when it was told, so after the prompt, whatever clocks say
    began = at_ns - int((_number(attributes.get("duration_ms")) or 0) * 1e6)
    reading = _tool(attributes) if kind == "tool_result" else _call(attributes)
    outcome = _outcome(kind, attributes)
    ends_turn = outcome if kind == "api_error" else {"otel.status_code": "OK"}
    scope = {"name": reading.name or name, "category": reading.category}
    return Piece(
        call,
        [
            _event(around, None, "start", at_ns, name="claude_code.turn", category="agent", metadata=as_turn),
            _event(call, around, "start", began, **scope, category_profile=reading.start_profile or None,
                   data=reading.start_data, metadata={**metadata, **reading.start_metadata}),
            _event(call, around, "end", at_ns, **scope, category_profile=reading.end_profile or None,
                   data=reading.end_data, metadata={**outcome, **reading.end_metadata}),
            _event(around, None, "end", at_ns, name="claude_code.turn", category="agent",
                   metadata={**as_turn, **ends_turn}),
        ],
    )  # fmt: skip


_TITLE = 100  # characters of a prompt that name its turn


def _call(attributes: dict[str, Any]) -> Reading:
    reading = Reading()
    usage, cost = _usage(attributes), _number(attributes.get("cost_usd"))
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
    if kind != "api_error" and attributes.get("success") not in (False, "false"):
        return {"otel.status_code": "OK"}
    told = {
        "otel.status_description": attributes.get("error"),
        "error.type": attributes.get("error_type"),
        "status_code": attributes.get("status_code"),
    }
    return {"otel.status_code": "ERROR", **without_none(told)}


def _named(session: str, *of: str | None) -> UUID:
    """A scope that several records tell of."""
    said = "\0".join(("claude_code", session, *(part or "" for part in of)))
    return UUID(bytes=sha256(said.encode("utf-8", "replace")).digest()[:16], version=5)


def _event(uuid: UUID, parent: UUID | None, kind: str, at_ns: int, **members: Any) -> bytes:
    fixed = {"kind": "scope", "scope_category": kind, "atof_version": "0.1", "uuid": str(uuid)}
    above = {"parent_uuid": str(parent) if parent else None, "propagation_root_uuid": None}
    given = {"category_profile": None, "attributes": [], "data": None, "data_schema": None, **members}
    return line(**fixed, **above, timestamp=timestamp(at_ns), **given)
