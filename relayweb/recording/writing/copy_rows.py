"""SQL for telling scopes anew, and for the copies of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relayweb.recording.store.tables import Tables

_RANGES = 8  # looked through in one statement


def made_up(tables: Tables, roots: Sequence[bytes], flag: int) -> dict[bytes, set[bytes]]:
    """The scopes of each root that have the first half of its uuid, and events or marks with this flag."""
    found: dict[bytes, set[bytes]] = {root: set() for root in roots}
    bounds = [(root[:8] + b"\0" * 8, root[:8] + b"\xff" * 8) for root in found]
    rows: list[tuple[Any, ...]] = []
    for column in ("uuid", "mark_of"):
        if tables.postgres and bounds:
            sql = (
                f"SELECT DISTINCT e.{column} FROM unnest(%s, %s) AS r (low, high) JOIN recording_event e "
                f"ON e.{column} BETWEEN r.low AND r.high WHERE e.flags & {flag:d} <> 0"
            )
            rows += tables._run(sql, [[tables.uuid_in(bound[i]) for bound in bounds] for i in (0, 1)]).fetchall()
        for at in range(0, 0 if tables.postgres else len(bounds), _RANGES):
            some = bounds[at : at + _RANGES]
            size = 1 << (len(some) - 1).bit_length()  # few sizes, so that statements are reused
            some += [some[-1]] * (size - len(some))
            sql = (
                f"WITH r (low, high) AS (VALUES {', '.join(['(?, ?)'] * size)}) SELECT DISTINCT e.{column} "
                f"FROM r CROSS JOIN recording_event e WHERE e.{column} BETWEEN r.low AND r.high AND e.flags & {flag:d}"
            )
            rows += tables._run(sql, [value for bound in some for value in bound]).fetchall()
    halves: dict[bytes, list[bytes]] = {}
    for root in found:
        halves.setdefault(root[:8], []).append(root)
    for (uuid,) in rows:
        made = tables.uuid_out(uuid) or b""
        for root in halves[made[:8]]:
            found[root].add(made)
    return found


def set_aside(tables: Tables, table: str, scopes: Sequence[bytes]) -> None:
    """Copy the rows of these scopes into a temporary table."""
    tables._run(f"DROP TABLE IF EXISTS {table}")
    tables._run(f"CREATE TEMP TABLE {table} AS SELECT * FROM recording_scope WHERE false")
    uuids = [(tables.uuid_in(scope),) for scope in scopes]
    tables._many(f"INSERT INTO {table} SELECT * FROM recording_scope WHERE uuid = {tables._mark}", uuids)
    tables._run(f"CREATE INDEX {table}_uuid ON {table} (uuid)")


def restore_arrival(tables: Tables, table: str) -> None:
    """Rows that were made anew came when they had come before."""
    before = f"(SELECT b.arrived_us FROM {table} b WHERE b.uuid = recording_scope.uuid)"
    tables._run(
        f"UPDATE recording_scope SET arrived_us = COALESCE({before}, arrived_us) "
        f"WHERE uuid IN (SELECT uuid FROM {table})"
    )
    tables._run(f"DROP TABLE {table}")


def put_unsettled(tables: Tables, doubts: dict[bytes, bytes | None]) -> None:
    """Note scopes to be told anew, those of a better copy with their root."""
    rows = [(tables.uuid_in(scope), tables.uuid_in(root)) for scope, root in doubts.items()]
    tables._many(
        f"INSERT INTO recording_unsettled (uuid, root) VALUES ({tables._mark}, {tables._mark}) "
        "ON CONFLICT (uuid) DO UPDATE SET root = COALESCE(excluded.root, recording_unsettled.root)",
        rows,
    )


def take_unsettled(tables: Tables) -> dict[bytes, bytes | None]:
    """What was noted, which is noted no longer."""
    rows = tables._run("SELECT uuid, root FROM recording_unsettled").fetchall()
    if rows:
        tables._run("DELETE FROM recording_unsettled")
    return {tables.uuid_out(uuid) or b"": tables.uuid_out(root) for uuid, root in rows}
