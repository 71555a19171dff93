"""What the hub reads from the record. Runs on the hub's one thread, with a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from uuid import UUID

from django.db import connection
from django.db.models import Q

from relayweb.live import frames
from relayweb.recording.models import Rewrite, Scope
from relayweb.recording.reading import chunks, queries, rows
from relayweb.recording.reading.rows import Row

T = TypeVar("T")

REWRITE = ("key", "revision", "result", "mode", "action", "duration_us", "bytes_before", "bytes_after", "changed")
MANY_HOMES = 500
"""With more turns and sub-agents than this under watch, all changes are read instead of naming each."""
AFTERGLOW_US = 60_000_000
"""How long after its end an attempt may still get chunks: the last content often comes late."""


@dataclass
class Changes:
    """What was recorded since the last pull: one frame for each watched topic that it touched (None is the list)."""

    cursor: int
    frames: dict[UUID | None, bytes] = field(default_factory=dict)


@dataclass
class Watch:
    """A turn that somebody watches, with its sub-agents' turns and what may still stream inside."""

    homes: set[UUID]
    attempts: dict[UUID, str | None]
    """With the api_mode of each."""


class Source:
    def __init__(self) -> None:
        self._watches: dict[UUID, Watch] = {}

    def subscribe(self, poke: Callable[[int], None]) -> Callable[[], None]:
        from relayweb.recording.writing.writer import writer

        return writer().subscribe(poke)

    def guarded(self, call: Callable[..., T], *args: Any) -> T:
        """Run one read; a connection that failed is thrown away, so that the next read gets a new one."""
        try:
            return call(*args)
        except Exception:
            connection.close()
            raise

    def disconnect(self) -> None:
        connection.close()

    def latest(self) -> int:
        return queries.latest_seq()

    def watch(self, turn: UUID) -> None:
        """Remember what a turn holds now, so that chunks arriving from here on can be told to belong to it."""
        homes = set(queries.turn_uuids(turn))
        attempts: dict[UUID, str | None] = {}
        for some in queries.slices(list(homes)):
            found = Scope.objects.filter(turn_uuid__in=some, role="attempt").filter(_may_stream())
            attempts |= dict(found.values_list("uuid", "api_mode"))
        self._watches[turn] = Watch(homes, attempts)

    def snapshot(self, turn: UUID | None, since: int) -> tuple[int, bytes]:
        """All that changed since a cursor, marked as a resync: chunks are not in it, clients ask for those again."""
        cursor = self.latest()
        if since > cursor:
            since = 0
        if turn is None:
            changed = Scope.objects.filter(seq__gt=since, is_turn=True).order_by("-seq")[:1000]
            return cursor, frames.encode(cursor, resync=True, turns=_turns(list(queries.read_rows(changed))))
        return cursor, turn_frame(turn, since=since, cursor=cursor, resync=True)

    def changes(self, since: int, watched: set[UUID], turns: bool) -> Changes:
        """What was recorded after `since`, as frames for the turns in `watched` and, if `turns`, for the list."""
        # Here and not when the last viewer leaves, which may be while another read is under way.
        for turn in self._watches.keys() - watched:
            del self._watches[turn]
        made = Changes(self.latest())
        if made.cursor <= since:
            return made
        for turn in watched - self._watches.keys():
            self.watch(turn)
        homes = {home: turn for turn, watch in self._watches.items() for home in watch.homes}
        wanted = Q(is_home=True) | Q(is_turn=True)
        if len(homes) <= MANY_HOMES:
            wanted |= Q(turn_uuid__in=list(homes))
        else:
            wanted = Q()
        changed = list(queries.read_rows(Scope.objects.filter(wanted, seq__gt=since).order_by("seq")))
        of_turn = self._sort(changed, homes)
        fresh = self._new_chunks(since)
        for turn in watched:
            tables = [table for attempt, table in fresh.items() if attempt in self._watches[turn].attempts]
            if turn in of_turn or tables:
                made.frames[turn] = _frame(made.cursor, turn, of_turn.get(turn, []), tables)
        if turns:
            # Sessions and other homes count what is inside them, but are no rows of the list.
            are_turns = set(Scope.objects.filter(seq__gt=since, is_turn=True).values_list("uuid", flat=True))
        if turns and (listed := [row for row in changed if row.uuid in are_turns]):
            made.frames[None] = frames.encode(made.cursor, turns=_turns(listed), newest_us=_newest(listed))
        return made

    def _sort(self, changed: list[Row], homes: dict[UUID, UUID]) -> dict[UUID, list[Row]]:
        """Changed rows by the watched turn they belong to; new sub-agents join the watch of their turn."""
        of_turn: dict[UUID, list[Row]] = {}
        for row in changed:
            turn = homes.get(row.turn_uuid)
            if turn is None and row.parent_turn_uuid is not None and row.parent_turn_uuid in homes:
                turn = homes[row.parent_turn_uuid]
                homes[row.uuid] = turn
                self._watches[turn].homes.add(row.uuid)
            if turn is None:
                continue
            of_turn.setdefault(turn, []).append(row)
            if row.role == "attempt":
                self._watches[turn].attempts[row.uuid] = row.api_mode
        return of_turn

    def _new_chunks(self, since: int) -> dict[UUID, frames.Columns]:
        """Chunks that came since the last pull, of attempts in watched turns."""
        known = {uuid: mode for watch in self._watches.values() for uuid, mode in watch.attempts.items()}
        if not known:
            return {}
        return {uuid: frames.chunk_rows(str(uuid), rows) for uuid, rows in chunks.fresh(since, known).items()}


def _may_stream() -> Q:
    return Q(status="running") | Q(end_us__gt=time.time_ns() // 1000 - AFTERGLOW_US)


def _turns(found: list[Row]) -> frames.Columns:
    return frames.turn_columns([rows.turn(row) for row in found])


def _newest(found: list[Row]) -> int | None:
    return max((row.last_us for row in found), default=None)


def _frame(cursor: int, turn: UUID, changed: list[Row], tables: list[frames.Columns]) -> bytes:
    """The frame of one turn."""
    nodes = frames.node_columns(changed, rewrites_of(changed)) if changed else None
    columns: frames.Columns = {name: [v for table in tables for v in table[name]] for name in frames.CHUNK_COLUMNS}
    own = next((_facts(row, changed) for row in changed if row.uuid == turn), None)
    times = [*columns["at_us"], *([_newest(changed)] if changed else [])]
    return frames.encode(
        cursor,
        turn=own,
        nodes=nodes,
        chunks=columns if columns["attempt"] else None,
        newest_us=max((t for t in times if t is not None), default=None),
    )


def _facts(turn: Row, changed: list[Row]) -> dict[str, Any]:
    """A turn's own facts. While an attempt runs it waits for nothing: that spares a stream's frames the queries."""
    runs = any(row.role == "attempt" and row.status == "running" for row in changed)
    return rows.turn(turn) if runs else queries.as_turns([turn])[0]


def rewrites_of(found: list[Row]) -> dict[UUID, list[dict[str, Any]]]:
    """What intercepts did to the attempts (and never begun calls) among some rows, in the order they ran."""
    able = [row.uuid for row in found if row.role in ("attempt", "logical_call")]
    made: dict[UUID, list[dict[str, Any]]] = {}
    for some in queries.slices(able):
        ran = Rewrite.objects.filter(attempt_uuid__in=some).order_by("position", "seq")
        for of, *values in ran.values_list("attempt_uuid", *REWRITE):
            made.setdefault(of, []).append(dict(zip(REWRITE, values, strict=True)))
    return made


def turn_frame(turn: UUID, *, since: int = 0, cursor: int | None = None, resync: bool = False) -> bytes:
    """A turn as one frame: all of it, or what changed since a cursor. The page loads it; late viewers are sent it."""
    at = queries.latest_seq() if cursor is None else cursor
    found: list[Row] = []
    for homes in queries.slices(queries.turn_uuids(turn)):
        of_turn = Scope.objects.filter(turn_uuid__in=homes, seq__gt=since).values_list(*frames.NODE_FIELDS)
        found += cast(Iterator[Row], (frames.NodeRow(*values) for values in of_turn))
    nodes = frames.node_columns(found, rewrites_of(found)) if found else None
    return frames.encode(at, resync=resync, turn=queries.turn_summary(turn), nodes=nodes)
