"""Rows of scopes, written narrowly on SQLite: an insert names what is known, an update what has changed.

A row has 64 columns, most of them null. Binding a null costs as much as binding a number, and an update of a column
that has an index costs the index too, whether the value is another one or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import Any, Final

SCOPE_COLUMNS: Final = (
    "uuid", "seq", "start_seq", "end_seq", "parent_uuid", "turn_uuid", "parent_turn_uuid", "logical_uuid",
    "joined_uuid", "top", "role", "is_session", "is_turn", "is_home", "category", "name", "status", "outcome",
    "flags", "start_us", "end_us", "last_us", "arrived_us", "session_id", "turn_id", "profile", "api_request_id",
    "call_role", "tool_call_id", "provider", "model", "api_mode", "attempt", "streaming", "ttft_us", "chunk_count",
    "finish_reason", "stream_finish_reason", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens",
    "reasoning_tokens", "total_tokens", "usage_complete", "cost_pusd", "wasted_pusd", "price_version",
    "cache_write_1h_tokens", "service_tier", "usage_details", "error_type", "error_status", "error_message",
    "logical_calls", "attempts", "retries", "rewrites", "tools", "subagents", "model_names", "provider_names",
    "asked", "state",
)  # fmt: skip

Row = tuple[Any, ...]
"""The values of `SCOPE_COLUMNS`, in their order; the first is the key."""


def write(rows: Iterable[tuple[Row, Row | None]], many: Callable[[str, Sequence[Sequence[Any]]], None]) -> None:
    """Write rows, those alike in one statement.

    Args:
        rows: each as it is now and as it is on record, None for a new one.
        many: executes a statement once for each list of values.
    """
    statements: dict[str, list[list[Any]]] = {}
    for row, before in rows:
        if before is None:
            known = tuple([value is not None for value in row])
            statements.setdefault(_insert(known), []).append(list(compress(row, known)))
            continue
        changed = tuple(map(ne, row, before))
        values = list(compress(row, changed))
        if values:
            values.append(row[0])
            statements.setdefault(_update(changed), []).append(values)
    for sql, values_of in statements.items():
        many(sql, values_of)


@lru_cache(512)
def _insert(known: tuple[bool, ...]) -> str:
    names = list(compress(SCOPE_COLUMNS, known))
    return f"INSERT INTO recording_scope ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@lru_cache(512)
def _update(changed: tuple[bool, ...]) -> str:
    sets = ", ".join(f"{name} = ?" for name in compress(SCOPE_COLUMNS, changed))
    return f"UPDATE recording_scope SET {sets} WHERE uuid = ?"
