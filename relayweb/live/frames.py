"""Frames of the live sockets and of the turn page: columns instead of rows, encoded once for every viewer (docs/live.md)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

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
    "usage",
    "error",
    "rewrites",
    "asked",
    "cost_usd",
)
CHUNK_COLUMNS = ("attempt", "index", "at_us", "kind", "size", "text")
CALL_PREFIX = "call:"
KIND_LETTERS = {"text": "t", "reasoning": "r", "tool": "a"}

Columns = dict[str, list[Any]]

_encoder = msgspec.json.Encoder()


def now_us() -> int:
    return time.time_ns() // 1_000


def columns(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> Columns:
    """Rows turned into columns; a column that nobody fills is left out, and then means null."""
    made: Columns = {}
    for name in names:
        column = [_slim(row.get(name)) for row in rows]
        if any(value is not None for value in column):
            made[name] = column
    return made


def _slim(value: Any) -> Any:
    """Empty lists say no more than null, and there are thousands of them."""
    return None if value == [] else value


def node_columns(nodes: Sequence[Mapping[str, Any]]) -> Columns:
    """Nodes as `queries.turn_nodes` gives them, each with a uuid of its own.

    A synthetic logical call shares the uuid of its attempt on record; here it is `call:<uuid>` and its attempt's parent.
    """
    synthetic = {n["uuid"] for n in nodes if n["role"] == "logical_call" and "synthetic" in n["flags"]}
    made = []
    for node in nodes:
        if node["uuid"] in synthetic:
            named = "uuid" if node["role"] == "logical_call" else "parent_uuid"
            node = {**node, named: CALL_PREFIX + node["uuid"]}
        made.append(node)
    return columns(made, NODE_COLUMNS)


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
