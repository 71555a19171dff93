"""A row of the record as the dict that API, pages and live sockets give out ("Interfaces that stay")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from relayweb.recording.conventions.usage import FIELDS, Usage, add
from relayweb.recording.models import Scope

COLUMNS = (
    "uuid", "seq", "parent_uuid", "turn_uuid", "parent_turn_uuid", "logical_uuid", "joined_uuid", "role", "category",
    "name", "status", "outcome", "flags", "start_us", "end_us", "last_us", "session_id", "turn_id", "profile",
    "api_request_id", "call_role", "tool_call_id", "provider", "model", "api_mode", "attempt", "streaming", "ttft_us",
    "chunk_count", "finish_reason", "stream_finish_reason", "input_tokens", "output_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "total_tokens", "usage_complete", "cost_pusd", "wasted_pusd",
    "price_version", "service_tier", "usage_details", "error_type", "error_status", "error_message", "logical_calls",
    "attempts", "retries", "rewrites", "tools", "subagents", "model_names", "provider_names", "asked",
)  # fmt: skip
"""What `Row` holds, in order: everything but the projection's own state, which can be large."""

_ATTEMPT_FLAGS = ("finish_reason_mismatch", "incomplete_tool_call", "unfinished_stream", "unreadable_chunk")
FLAGS = tuple((flag.value, flag.name.lower()) for flag in Scope.Flag)


class Row(msgspec.Struct):
    """One row of `Scope`, read with `values_list(*COLUMNS)`: a model instance costs ten times as much."""

    uuid: UUID
    seq: int
    parent_uuid: UUID | None
    turn_uuid: UUID
    parent_turn_uuid: UUID | None
    logical_uuid: UUID | None
    joined_uuid: UUID | None
    role: str
    category: str | None
    name: str
    status: str
    outcome: str | None
    flags: int
    start_us: int | None
    end_us: int | None
    last_us: int
    session_id: str | None
    turn_id: str | None
    profile: str | None
    api_request_id: str | None
    call_role: str | None
    tool_call_id: str | None
    provider: str | None
    model: str | None
    api_mode: str | None
    attempt: int | None
    streaming: bool | None
    ttft_us: int | None
    chunk_count: int | None
    finish_reason: str | None
    stream_finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    usage_complete: bool | None
    cost_pusd: int | None
    wasted_pusd: int | None
    price_version: str | None
    service_tier: str | None
    usage_details: str | None
    error_type: str | None
    error_status: int | None
    error_message: str | None
    logical_calls: int | None
    attempts: int | None
    retries: int | None
    rewrites: int | None
    tools: int | None
    subagents: int | None
    model_names: str | None
    provider_names: str | None
    asked: str | None


def rfc3339(us: int | None) -> str | None:
    """Microseconds since 1970 as RFC 3339 with six fractional digits; None where a year has not four digits."""
    if us is None:
        return None
    seconds, micros = divmod(us, 1_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
    except (ValueError, OverflowError, OSError):
        return None


def usd(picodollars: int | None) -> float | None:
    return None if picodollars is None else picodollars / 1e12


def names(counts: str | None) -> list[str]:
    """The keys of a JSON object of counts, the most used first."""
    if not counts:
        return []
    try:
        found = json.loads(counts)
    except ValueError:
        return []
    return sorted(found, key=lambda name: (-found[name], name)) if isinstance(found, dict) else []


def flag_names(row: Row) -> list[str]:
    flags = [name for bit, name in FLAGS if row.flags & bit] if row.flags else []
    if row.end_us is None and _duration(row) is not None:
        flags.append("derived_end")
    return flags


def _duration(row: Row) -> int | None:
    """End minus start, never negative; without an end up to the last event seen, which `derived_end` then says.

    Nothing is known of what was interrupted without anything seen after its start.
    """
    end = row.end_us if row.end_us is not None else row.last_us
    if row.start_us is None or end is None or (row.status == "interrupted" and end <= row.start_us):
        return None
    return max(end - row.start_us, 0)


def usage(row: Row) -> dict[str, Any]:
    return {
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cached_tokens": row.cached_tokens,
        "cache_write_tokens": row.cache_write_tokens,
        "reasoning_tokens": row.reasoning_tokens,
        "total_tokens": row.total_tokens,
        "complete": bool(row.usage_complete),
    }


def sums(attempts: Sequence[Row]) -> dict[str, Any]:
    """What some attempts used and cost together."""
    together = add(Usage(**{n: getattr(row, n) for n in FIELDS}, complete=bool(row.usage_complete)) for row in attempts)
    costs = [row.cost_pusd for row in attempts if row.cost_pusd is not None]
    wasted = [row.wasted_pusd for row in attempts if row.wasted_pusd is not None]
    return {
        "usage": together.as_dict(),
        "cost_usd": usd(sum(costs)) if costs else None,
        "wasted_usd": usd(sum(wasted)) if wasted else None,
    }


def error(row: Row) -> dict[str, Any] | None:
    if row.error_type is None and row.error_status is None and row.error_message is None:
        return None
    return {"type": row.error_type, "status": row.error_status, "message": row.error_message}


def _common(row: Row) -> dict[str, Any]:
    return {
        "uuid": str(row.uuid),
        "seq": row.seq,
        "name": row.name,
        "status": row.status,
        "outcome": row.outcome,
        "started_at": rfc3339(row.start_us),
        "ended_at": rfc3339(row.end_us),
        "start_us": row.start_us,
        "end_us": row.end_us,
        "last_us": row.last_us,
        "duration_us": _duration(row),
        "flags": flag_names(row),
        "error": error(row),
    }


def turn(row: Row, parent: UUID | None = None, waiting: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Turn, without its tree. `parent` is the turn that called this one, a sub-agent's; `waiting`: see `waiting`."""
    return {
        **_common(row),
        "session_id": row.session_id,
        "turn_id": row.turn_id,
        "parent_turn_uuid": None if parent is None else str(parent),
        "awaiting_retry": waiting,
        "profile": row.profile,
        "asked": row.asked,
        "logical_calls": row.logical_calls or 0,
        "attempts": row.attempts or 0,
        "retries": row.retries or 0,
        "rewrites": row.rewrites or 0,
        "tools": row.tools or 0,
        "chunks": row.chunk_count or 0,
        "subagents": row.subagents or 0,
        "ttft_us": row.ttft_us,
        "usage": usage(row),
        "cost_usd": usd(row.cost_pusd),
        "wasted_usd": usd(row.wasted_pusd),
        "models": names(row.model_names),
        "providers": names(row.provider_names),
    }


def node(row: Row, depth: int | None = None) -> dict[str, Any]:
    """A tree node, without children."""
    found = {
        **_common(row),
        "parent_uuid": None if row.parent_uuid is None else str(row.parent_uuid),
        "turn_uuid": str(row.turn_uuid),
        "role": row.role,
        "category": row.category,
        "depth": depth,
    }
    if row.role == "attempt":
        found |= _attempt(row)
        found["flags"] = [flag for flag in found["flags"] if flag != "synthetic"]  # said of the call above it
    elif row.role == "logical_call":
        found |= _call(row)
    elif row.role == "tool":
        found["tool_call_id"] = row.tool_call_id
    elif row.role in ("turn", "session", "subagent"):
        found |= {"session_id": row.session_id, "asked": row.asked, "cost_usd": usd(row.cost_pusd), "usage": usage(row)}
    return found


def _call(row: Row) -> dict[str, Any]:
    return {
        "call_role": row.call_role,
        "api_request_id": row.api_request_id,
        "attempts": row.attempts,
        "retries": row.retries or 0,
        "usage": usage(row),
        "cost_usd": usd(row.cost_pusd),
        "wasted_usd": usd(row.wasted_pusd),
    }


def _attempt(row: Row) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "model": row.model,
        "api_mode": row.api_mode,
        "attempt": row.attempt,
        "streaming": row.streaming,
        "ttft_us": row.ttft_us,
        "chunk_count": row.chunk_count,
        "finish_reason": row.finish_reason,
        "stream_finish_reason": row.stream_finish_reason,
        "usage": usage(row),
        "cost_usd": usd(row.cost_pusd),
        "wasted_usd": usd(row.wasted_pusd),
        "price_version": row.price_version,
        "service_tier": row.service_tier,
        "usage_details": None if row.usage_details is None else json.loads(row.usage_details),
        "call_role": row.call_role,
        "api_request_id": row.api_request_id,
        "asked": row.asked,
        "rewrites": [],
    }


def same_calls(found: Iterable[Row]) -> dict[UUID, list[Row]]:
    """The attempts of each logical call that no scope stands for, by the uuid of the first one."""
    calls: dict[UUID, list[Row]] = {}
    for row in found:
        if in_synthetic_call(row):
            calls.setdefault(row.logical_uuid or row.uuid, []).append(row)
    for attempts in calls.values():
        attempts.sort(key=lambda row: (row.attempt or 0, row.uuid))
    return calls


def in_synthetic_call(row: Row) -> bool:
    return row.role == "attempt" and bool(row.flags & Scope.Flag.SYNTHETIC) and row.joined_uuid is None


def synthetic_call(row: Row, depth: int | None = None, attempts: Sequence[Row] = ()) -> dict[str, Any]:
    """The logical call shown above an attempt that has none, with the same uuid.

    Args:
        row: its first attempt.
        attempts: all of them, in order, where there are several; the call comes to what the last one comes to.
    """
    last = attempts[-1] if attempts else row
    ended = ("status", "outcome", "error", "ended_at", "end_us", "last_us")
    call = node(row, depth) | {name: value for name, value in node(last).items() if name in ended}
    if last is not row:
        end = last.end_us if last.end_us is not None else last.last_us
        call["duration_us"] = None if row.start_us is None else max(end - row.start_us, 0)
    for key in set(_attempt(row)) - set(_call(row)):
        call.pop(key)
    flags = [f for f in call["flags"] if f not in _ATTEMPT_FLAGS]
    same = sums(attempts) if attempts else {}
    return (
        call
        | _call(row)
        | same
        | {
            "role": "logical_call",
            "category": "function",
            "flags": flags if "synthetic" in flags else ["synthetic", *flags],
            "attempts": max(len(attempts), 1),
            "retries": max(len(attempts) - 1, 0),
        }
    )
