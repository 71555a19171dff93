"""Frames of the live sockets and of the turn page: columns instead of rows, encoded once for all (docs/live.md)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from relayweb.recording.reading import rows
from relayweb.recording.reading.rows import Row

TURN_COLUMNS = (
    "uuid",
    "session_id",
    "profile",
    "name",
    "status",
    "outcome",
    "asked",
    "start_us",
    "end_us",
    "duration_us",
    "logical_calls",
    "attempts",
    "retries",
    "rewrites",
    "tools",
    "chunks",
    "subagents",
    "usage",
    "cost_usd",
    "wasted_usd",
    "ttft_us",
    "models",
    "providers",
    "error",
    "seq",
)
NODE_COLUMNS = (
    "uuid",
    "parent_uuid",
    "role",
    "category",
    "name",
    "status",
    "outcome",
    "start_us",
    "end_us",
    "flags",
    "call_role",
    "api_request_id",
    "retries",
    "provider",
    "model",
    "api_mode",
    "attempt",
    "streaming",
    "ttft_us",
    "chunk_count",
    "finish_reason",
    "output_tokens",
    "usage_complete",
    "error",
    "rewrites",
    "asked",
    "cost_usd",
)
CHUNK_COLUMNS = ("attempt", "index", "at_us", "kind", "size", "text")
NODE_FIELDS = (
    "uuid", "parent_uuid", "logical_uuid", "joined_uuid", "role", "category", "name", "status", "outcome", "flags",
    "start_us", "end_us", "last_us", "call_role", "api_request_id", "retries", "provider", "model", "api_mode",
    "attempt", "streaming", "ttft_us", "chunk_count", "finish_reason", "output_tokens", "usage_complete", "error_type",
    "error_status", "error_message", "asked", "cost_pusd",
)  # fmt: skip
"""What `node_columns` reads of a row."""
NodeRow = msgspec.defstruct("NodeRow", NODE_FIELDS, gc=False)
"""A `Row` reduced to these: of ten thousand rows, reading is what costs."""

CALL_PREFIX = "call:"
KIND_LETTERS = {"text": "t", "reasoning": "r", "tool": "a"}

Columns = dict[str, Any]
"""Lists, or tuples, of one length by name."""

_encoder = msgspec.json.Encoder()


def now_us() -> int:
    return time.time_ns() // 1_000


def turn_columns(turns: Sequence[Mapping[str, Any]]) -> Columns:
    """Turns as `rows.turn` gives them, in columns; a column that nobody fills is left out, and then means null."""
    made: Columns = {}
    for name in TURN_COLUMNS:
        column = [turn.get(name) for turn in turns]
        if any(value is not None for value in column):
            made[name] = column
    return made


def node_columns(found: Iterable[Row], rewrites: Mapping[UUID, list[dict[str, Any]]]) -> Columns:
    """Rows of a turn as columns of nodes, each with a uuid of its own.

    The same facts as `rows.node`, without making a dict for each: a turn may have a hundred thousand. A synthetic
    logical call shares the uuid of its attempt on record; here it is `call:<uuid>` and its attempt's parent. Rows that
    another process also saw (`joined_uuid`) are left out, and their children hang where those of the other do.

    Args:
        found: any rows of the turn, in any order.
        rewrites: by attempt, what its intercepts did.
    """
    shown = []
    joined = {}
    for row in found:
        if row.joined_uuid is None:
            shown.append(row)
        else:
            joined[row.uuid] = row.joined_uuid
    values = []
    calls = rows.same_calls(shown)
    for row in shown:
        own = str(row.uuid)
        parent = None if row.parent_uuid is None else str(joined.get(row.parent_uuid, row.parent_uuid))
        if row.role == "attempt" and row.logical_uuid == row.uuid:
            values.append(_call(row, parent, calls.get(row.uuid, [row])))
            parent = CALL_PREFIX + own
        elif rows.in_synthetic_call(row):
            parent = f"{CALL_PREFIX}{row.logical_uuid}"
        values.append(_node(row, own, parent, row.role, rewrites.get(row.uuid)))
    filled = zip(NODE_COLUMNS, zip(*values, strict=True), strict=True) if values else ()
    return {name: column for name, column in filled if any(value is not None for value in column)}


def _call(first: Row, parent: str | None, attempts: list[Row]) -> tuple[Any, ...]:
    """A synthetic call: it begins with its first attempt, and comes to what the last one comes to."""
    uuid, last = f"{CALL_PREFIX}{first.uuid}", attempts[-1]
    call = _node(first, uuid, parent, "logical_call", None)
    if last is first:
        return call
    found = dict(zip(NODE_COLUMNS, call, strict=True))
    ended = dict(zip(NODE_COLUMNS, _node(last, uuid, parent, "logical_call", None), strict=True))
    found |= {name: ended[name] for name in ("status", "outcome", "end_us", "error")}
    found |= {"retries": len(attempts) - 1, "cost_usd": rows.sums(attempts)["cost_usd"]}
    return tuple(found.values())


def _node(row: Row, uuid: str, parent: str | None, role: str, rewrites: list[Any] | None) -> tuple[Any, ...]:
    """The values of one node, in the order of the columns."""
    attempt, call = role == "attempt", role == "logical_call"
    flags = rows.flag_names(row) if row.flags or (row.end_us is None and row.status != "running") else None
    if call and uuid.startswith(CALL_PREFIX):
        flags = ["synthetic"]
    return (
        uuid,
        parent,
        role,
        "function" if call else row.category,
        row.name,
        row.status,
        row.outcome,
        row.start_us,
        row.end_us if row.end_us is not None or row.status == "running" else row.last_us,
        flags,
        row.call_role if attempt or call else None,
        row.api_request_id if attempt or call else None,
        row.retries or None if call else None,
        row.provider if attempt else None,
        row.model if attempt else None,
        row.api_mode if attempt else None,
        row.attempt if attempt else None,
        row.streaming if attempt else None,
        row.ttft_us if attempt else None,
        row.chunk_count or None if attempt else None,
        row.finish_reason if attempt else None,
        row.output_tokens if attempt else None,
        row.usage_complete if attempt and row.output_tokens is not None else None,
        rows.error(row),
        rewrites,
        row.asked if role == "turn" else None,
        rows.usd(row.cost_pusd),
    )


def chunk_rows(attempt: str, chunks: Iterable[Mapping[str, Any]], *, text: bool = True) -> Columns:
    """Columns of the chunks of one attempt, as `queries.chunks` gives them."""
    made: Columns = {name: [] for name in CHUNK_COLUMNS}
    for chunk in chunks:
        made["attempt"].append(attempt)
        made["index"].append(chunk["index"])
        made["at_us"].append(chunk["at_us"])
        made["kind"].append(KIND_LETTERS.get(chunk.get("kind") or "", "o"))
        made["size"].append(chunk.get("size"))
        made["text"].append(chunk.get("text") if text else None)
    if not text:
        del made["text"]
    return made


def encode(
    cursor: int,
    *,
    resync: bool = False,
    turn: Mapping[str, Any] | None = None,
    nodes: Columns | None = None,
    chunks: Columns | None = None,
    turns: Columns | None = None,
    newest_us: int | None = None,
) -> bytes:
    """One frame as JSON text, ASCII only where the recorded text was (lone surrogates are replaced)."""
    frame: dict[str, Any] = {"cursor": cursor, "now_us": now_us(), "resync": resync}
    if newest_us is not None:
        frame["newest_us"] = newest_us
    for name, value in (("turn", turn), ("nodes", nodes), ("chunks", chunks), ("turns", turns)):
        if value:
            frame[name] = value
    return dumps(frame)


def dumps(value: Any) -> bytes:
    """JSON bytes; text that is no Unicode (a lone surrogate) is shown as U+FFFD rather than refused."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, ValueError, OverflowError, TypeError):
        return _encoder.encode(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(_encodable(k)): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def merge(frames: Sequence[bytes]) -> bytes:
    """Several frames in order as one: for viewers that could not take them one by one."""
    if len(frames) == 1:
        return frames[0]
    parts = [msgspec.json.decode(frame) for frame in frames]
    made: dict[str, Any] = {**parts[-1], "resync": any(part["resync"] for part in parts), "now_us": now_us()}
    if turn := next((part["turn"] for part in reversed(parts) if "turn" in part), None):
        made["turn"] = turn
    newest = [part["newest_us"] for part in parts if "newest_us" in part]
    if newest:
        made["newest_us"] = max(newest)
    for name, keep in (("nodes", "uuid"), ("turns", "uuid"), ("chunks", "")):
        tables = [part[name] for part in parts if name in part]
        if tables:
            made[name] = _last_rows(_joined(tables), keep) if keep else _joined(tables)
    return _encoder.encode(made)


def _joined(tables: Sequence[Columns]) -> Columns:
    names = {name: None for table in tables for name in table}
    made: Columns = {name: [] for name in names}
    for table in tables:
        length = len(next(iter(table.values())))
        for name in names:
            made[name].extend(table.get(name) or [None] * length)
    return made


def _last_rows(table: Columns, key: str) -> Columns:
    """Of several states of one thing the last is enough."""
    last = {uuid: row for row, uuid in enumerate(table[key])}
    rows = sorted(last.values())
    return {name: [column[row] for row in rows] for name, column in table.items()}
