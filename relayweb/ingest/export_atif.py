"""Export as ATIF 1.7 (agent trajectory interchange format), the format of Relay's own `AtifExporter`.

A trajectory is a session, its steps what the user said and what each logical call came to: the attempt that counted,
with its tool calls and what the tools returned. Turns of sub-agents are trajectories of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from relayweb import __version__
from relayweb.ingest.export import Part
from relayweb.recording.conventions import answer_texts, asked_text, tool_calls
from relayweb.recording.conventions.shapes import as_list, as_map, content_text, messages_of
from relayweb.recording.events.json_text import ascii_json
from relayweb.recording.models import Scope
from relayweb.recording.reading import bodies, queries
from relayweb.recording.reading.rows import Row, rfc3339, usd
from relayweb.recording.store import stored

Step = dict[str, Any]


def atif(part: Part) -> Iterator[bytes]:
    """One trajectory a line, in the order in which they began."""
    for key, turns, parent in _trajectories(part):
        steps = [step for turn in turns for step in _steps(turn)]
        for number, step in enumerate(steps, 1):
            step["step_id"] = number
        yield ascii_json(json.dumps(_trajectory(key, turns, steps, parent), separators=(",", ":")).encode()) + b"\n"


def _trajectories(part: Part) -> Iterator[tuple[str, list[Row], UUID | None]]:
    """Key, turns and calling turn of each trajectory."""
    turns = list(_turns(part))
    callers = queries.calling_turns({turn.parent_turn_uuid for turn in turns if turn.parent_turn_uuid is not None})
    found: dict[str, list[Row]] = {}
    parents: dict[str, UUID | None] = {}
    for turn in turns:
        parent = callers.get(turn.parent_turn_uuid) if turn.parent_turn_uuid else None
        whole = turn.session_id if turn.session_id and parent is None else str(turn.uuid)
        found.setdefault(whole, []).append(turn)
        parents[whole] = parent
    return ((key, some, parents[key]) for key, some in found.items())


def _turns(part: Part) -> Iterator[Row]:
    listed = Scope.objects.filter(is_turn=True, joined_uuid__isnull=True).order_by("start_us", "uuid")
    if part.scopes is None:
        yield from queries.read_rows(listed)
        return
    rows = [row for some in queries.slices(part.scopes) for row in queries.read_rows(listed.filter(uuid__in=some))]
    yield from sorted(rows, key=lambda row: (row.start_us or 0, row.uuid))


def _trajectory(key: str, turns: list[Row], steps: list[Step], parent: UUID | None) -> dict[str, Any]:
    first = turns[0]
    models = [step["model_name"] for step in steps if step.get("model_name")]
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": first.session_id or key,
        "trajectory_id": key,
        "agent": _without_none(
            {
                "name": first.profile or first.name,
                "version": __version__,
                "model_name": models[0] if models else None,
            }
        ),
        "steps": steps,
        "final_metrics": _without_none(
            {
                "total_prompt_tokens": _sum(turn.input_tokens for turn in turns),
                "total_completion_tokens": _sum(turn.output_tokens for turn in turns),
                "total_cached_tokens": _sum(turn.cached_tokens for turn in turns),
                "total_cost_usd": usd(_sum(turn.cost_pusd for turn in turns)),
                "total_steps": len(steps),
            }
        ),
        "extra": _without_none(
            {
                "turns": [str(turn.uuid) for turn in turns],
                "parent_turn": str(parent) if parent else None,
                "cost_complete": False if queries.unpriced([turn.uuid for turn in turns]) else None,
            }
        ),
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _steps(turn: Row) -> Iterator[Step]:
    inside = list(queries.read_rows(Scope.objects.filter(turn_uuid=turn.uuid, joined_uuid__isnull=True)))
    tools: dict[str | None, Row]
    tools = {row.tool_call_id: row for row in inside if row.role == "tool" and row.tool_call_id}
    asked_before: str | None = None
    for attempt in _counted(inside):
        request = _value(bodies.request(attempt.uuid), "request")
        asked = asked_text(request)
        if asked and asked != asked_before:
            yield {
                "source": "user",
                "message": _last_user_text(request) or asked,
                "timestamp": rfc3339(attempt.start_us),
            }
            asked_before = asked
        yield _agent_step(attempt, _value(bodies.response(attempt.uuid), "response"), tools)


def _counted(rows: list[Row]) -> list[Row]:
    """Of each logical call the attempt that counted: the last that was answered well, else the last."""
    calls: dict[UUID, Row] = {}
    for row in sorted((r for r in rows if r.role == "attempt"), key=lambda r: (r.start_us or 0, r.uuid)):
        call = row.logical_uuid or row.uuid
        if call not in calls or row.status == "ok" or calls[call].status != "ok":
            calls[call] = row
    return sorted(calls.values(), key=lambda r: (r.start_us or 0, r.uuid))


def _value(found: dict[str, Any] | None, name: str) -> Any:
    text = (found or {}).get(name)
    return stored.load(text) if isinstance(text, bytes) else None


def _last_user_text(request: Any) -> str | None:
    messages = messages_of(as_map(request))
    if isinstance(messages, str):
        return messages
    for message in reversed(as_list(messages)):
        if as_map(message).get("role") == "user" and (text := content_text(as_map(message).get("content"))):
            return text
    return None


def _agent_step(attempt: Row, answer: Any, tools: dict[str | None, Row]) -> Step:
    text, reasoning = answer_texts(answer)
    calls = tool_calls(answer)
    results = [
        (call.id, _value(bodies.response(tools[call.id].uuid), "response")) for call in calls if call.id in tools
    ]
    metrics = {
        "prompt_tokens": attempt.input_tokens,
        "completion_tokens": attempt.output_tokens,
        "cached_tokens": attempt.cached_tokens,
        "cost_usd": usd(attempt.cost_pusd),
    }
    return _without_none(
        {
            "source": "agent",
            "timestamp": rfc3339(attempt.end_us or attempt.start_us),
            "model_name": attempt.model,
            "message": text,
            "reasoning_content": reasoning or None,
            "tool_calls": [
                {"tool_call_id": call.id, "function_name": call.name, "arguments": _arguments(call.arguments)}
                for call in calls
            ]
            or None,
            "observation": {"results": [{"source_call_id": id, "content": _as_text(result)} for id, result in results]}
            if results
            else None,
            "metrics": _without_none(metrics) or None,
            "extra": _without_none(
                {"attempt": str(attempt.uuid), "status": attempt.status, "error": attempt.error_message}
            ),
        }
    )


def _arguments(text: str) -> Any:
    value = stored.load(text.encode("utf-8", "surrogatepass") if text else None)
    return value if isinstance(value, dict) else {"arguments": text} if text else {}


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
