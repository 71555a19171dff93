"""Everything that pages, API and live sockets read, as plain dicts. Nothing here writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Sum

from relayweb.recording.models import Ledger, Rewrite, Scope
from relayweb.recording.reading import rows, tree, waiting
from relayweb.recording.reading.bodies import events, request, response, rewrites
from relayweb.recording.reading.chunks import page as chunks
from relayweb.recording.reading.overview import facets, histogram
from relayweb.recording.reading.query_language import Query, QueryError, parse
from relayweb.recording.reading.rows import COLUMNS, Row
from relayweb.recording.reading.turn_filter import turns_matching

__all__ = [
    "CursorError",
    "QueryError",
    "as_turns",
    "calling_turns",
    "chunks",
    "events",
    "facets",
    "histogram",
    "inner_turns",
    "latest_seq",
    "nodes_of",
    "read_rows",
    "request",
    "response",
    "rewrites",
    "scope",
    "session",
    "sessions",
    "turn",
    "turn_nodes",
    "turn_summary",
    "turn_uuids",
    "turns",
]

PAGE = 500
_CURSOR = re.compile(r"(-?\d{1,19})\.([0-9a-f]{32})")
_SLICE = 500  # values in one IN (…), below every database's limit


class CursorError(ValueError):
    """A `cursor` that no answer of ours gave out."""


def latest_seq() -> int:
    """The number of the newest thing recorded; 0 in an empty record."""
    return Ledger.objects.values_list("seq", flat=True).first() or 0


def as_uuid(value: UUID | str) -> UUID | None:
    """The uuid in a URL or a message; None where it is none."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None


def read_rows(found: QuerySet[Any]) -> Iterator[Row]:
    return (Row(*values) for values in found.values_list(*COLUMNS))


def slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[at : at + _SLICE] for at in range(0, len(values), _SLICE))


# ---------------------------------------------------------------- turns


def turns(
    q: str | Query = "", *, limit: int = 50, cursor: str | None = None, now: datetime | None = None
) -> dict[str, Any]:
    """One page of turns, newest first.

    Args:
        q: a query of `query_language`.
        limit: 1 to 500 turns.
        cursor: `next` of the page before.

    Returns:
        `{"turns": [Turn], "next": cursor or None, "notes": [what the answer leaves out, if anything]}`.

    Raises:
        QueryError: the query cannot be read. CursorError: the cursor is not one of ours.
    """
    notes: list[str] = []
    found = turns_matching(parse(q, now=now) if isinstance(q, str) else q, notes)
    page, following = _page(found, limit, cursor)
    return {"turns": as_turns(page), "next": following, "notes": notes}


def _page(found: QuerySet[Any], limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
    """Keyset pagination on (start_us, uuid): a page costs the same wherever it is, and new rows do not shift it."""
    limit = max(1, min(limit, PAGE))
    if place := _place(cursor):
        found = _before(found, *place)
    page = list(read_rows(found.filter(start_us__isnull=False).order_by("-start_us", "-uuid")[: limit + 1]))
    more = len(page) > limit
    page = page[:limit]
    return page, f"{page[-1].start_us}.{page[-1].uuid.hex}" if more else None


def _place(cursor: str | None) -> tuple[int, UUID] | None:
    """The place in the list of turns that a cursor names; None without one."""
    if not cursor:
        return None
    match = _CURSOR.fullmatch(cursor)
    if not match:
        raise CursorError("cursor: give back `next` of the page before, unchanged")
    return int(match[1]), UUID(match[2])


def _before(found: QuerySet[Any], start_us: int, uuid: UUID) -> QuerySet[Any]:
    """Turns that stand behind this place in the list. The last condition is the one an index answers."""
    return found.filter(Q(start_us__lt=start_us) | Q(start_us=start_us, uuid__lt=uuid), start_us__lte=start_us)


def turn(uuid: UUID | str) -> dict[str, Any] | None:
    """A Turn with `tree`, its nodes nested (`tree.NESTING` levels); None if there is no such turn."""
    found = turn_row(uuid)
    if found is None:
        return None
    nodes = _completed(tree.flat(_turn_rows(found.uuid), found.uuid))
    return {**as_turns([found])[0], "tree": tree.nest(nodes)}


def turn_row(uuid: UUID | str) -> Row | None:
    wanted = as_uuid(uuid)
    if wanted is None:
        return None
    found = next(read_rows(Scope.objects.filter(uuid=wanted, is_turn=True)), None)
    if found is None:  # a part of a turn that several processes saw is known by its own name too
        whole = Scope.objects.filter(uuid=wanted, joined_uuid__isnull=False, role="turn").values_list("joined_uuid")
        found = next(read_rows(Scope.objects.filter(uuid__in=whole, is_turn=True)), None)
    return found


def turn_summary(uuid: UUID | str) -> dict[str, Any] | None:
    """A Turn without its tree."""
    found = turn_row(uuid)
    return None if found is None else as_turns([found])[0]


def as_turns(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as Turns, each with the turn that called it where it is a sub-agent's, and whether it waits for a retry."""
    parents = calling_turns({row.parent_turn_uuid for row in found if row.parent_turn_uuid is not None})
    running = [row.uuid for row in found if row.status == "running"]
    waits = waiting.turns(running) if running else {}
    without_price = unpriced([row.uuid for row in found])
    return [
        rows.turn(row, parents.get(row.parent_turn_uuid) if row.parent_turn_uuid else None, waits.get(row.uuid))
        | {"cost_complete": row.uuid not in without_price}
        for row in found
    ]


# Ended attempts that used tokens and have no price; the first two conditions are those of an index.
_UNPRICED = Scope.objects.filter(
    cost_pusd__isnull=True, total_tokens__isnull=False, role="attempt", joined_uuid__isnull=True
).exclude(status="running")


def unpriced(turns: Sequence[UUID]) -> set[UUID]:
    """Of these turns those whose cost is a lower bound, because an attempt has no price."""
    found: set[UUID] = set()
    for some in slices(turns):
        found.update(_UNPRICED.filter(turn_uuid__in=some).order_by().values_list("turn_uuid", flat=True).distinct())
    return found


def _unpriced_sessions(found: QuerySet[Any], names: Sequence[str]) -> set[str]:
    """Of these sessions those of which one of the turns has an attempt without a price."""
    least = found.filter(Exists(_UNPRICED.filter(turn_uuid=OuterRef("uuid"))), is_home=True)
    told: set[str] = set()
    for some in slices(names):
        told.update(least.filter(session_id__in=some).order_by().values_list("session_id", flat=True).distinct())
    return told


def calling_turns(homes: set[UUID]) -> dict[UUID, UUID | None]:
    """For each home the turn it is or lies in: a sub-agent's turn hangs under a session, and that under a turn."""
    around: dict[UUID, tuple[bool, UUID | None]] = {}
    missing = homes
    while missing:
        known = Scope.objects.filter(uuid__in=list(missing)[:_SLICE]).values_list("uuid", "is_turn", "parent_turn_uuid")
        fresh = {uuid: (is_turn, parent) for uuid, is_turn, parent in known}
        around.update(fresh)
        further = {parent for is_turn, parent in fresh.values() if parent is not None and not is_turn}
        missing = (set(list(missing)[_SLICE:]) | further) - around.keys()
        if not fresh:
            break
    found: dict[UUID, UUID | None] = {}
    for home in homes:
        at: UUID | None = home
        for _ in range(64):
            is_turn, parent = around.get(at, (False, None)) if at is not None else (False, None)
            if is_turn or at is None:
                break
            at = parent
        found[home] = at
    return found


def inner_turns(turns: Sequence[UUID]) -> list[dict[str, Any]]:
    """The turns of sub-agents inside these turns, however deep, in order of time."""
    inside = set(turn_uuids(*turns)) - set(turns)
    found: list[Row] = []
    for some in slices(list(inside)):
        found += read_rows(Scope.objects.filter(uuid__in=some, is_turn=True, joined_uuid__isnull=True))
    return as_turns(sorted(found, key=lambda row: (row.start_us or 0, row.uuid)))


def turn_uuids(*uuids: UUID) -> list[UUID]:
    """These turns and every turn, session or top scope of a sub-agent inside them, however deep."""
    inside, frontier = dict.fromkeys(uuids), list(uuids)
    while frontier:
        inner = Scope.objects.filter(parent_turn_uuid__in=frontier[:_SLICE], is_home=True).values_list(
            "uuid", flat=True
        )
        frontier = frontier[_SLICE:] + [u for u in inner if u not in inside]
        inside.update(dict.fromkeys(frontier))
    return list(inside)


def _turn_rows(uuid: UUID, since_seq: int = 0) -> list[Row]:
    found: list[Row] = []
    for homes in slices(turn_uuids(uuid)):
        of_turn = Scope.objects.filter(turn_uuid__in=homes)
        found += read_rows(of_turn.filter(seq__gt=since_seq) if since_seq else of_turn)
    return found


def turn_nodes(uuid: UUID | str, *, since_seq: int = 0) -> list[dict[str, Any]]:
    """The nodes of a turn, its sub-agents' included, in order of display.

    Args:
        uuid: the turn.
        since_seq: only nodes that changed after this number; `depth` is then None, since it needs the others.
    """
    wanted = as_uuid(uuid)
    if wanted is None:
        return []
    found = _turn_rows(wanted, since_seq)
    if not since_seq:
        return _completed(tree.flat(found, wanted))
    return nodes_of(found)


def nodes_of(found: Iterable[Row]) -> list[dict[str, Any]]:
    """Some rows of a turn as nodes, the earliest changed first; `depth` is None, since it needs the others."""
    nodes: list[dict[str, Any]] = []
    found = list(found)
    calls = rows.same_calls(found)
    for row in sorted((r for r in found if r.joined_uuid is None), key=lambda r: r.seq):
        if row.role == "attempt" and row.logical_uuid == row.uuid:
            nodes.append(rows.synthetic_call(row, None, calls.get(row.uuid, ())))
        nodes.append(rows.node(row))
    return _completed(nodes)


_REWRITE = ("key", "revision", "result", "mode", "changed")


def _completed(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each attempt the intercepts that looked at it, in the order they ran, and each open call what it awaits."""
    running = {UUID(n["uuid"]): UUID(n["turn_uuid"]) for n in nodes if n["role"] == "logical_call" and _is_open(n)}
    waits = waiting.calls(running) if running else {}
    for node in nodes:
        if node["role"] == "logical_call":
            node["awaiting_retry"] = waits.get(UUID(node["uuid"])) if waits else None
    attempts = {n["uuid"]: n for n in nodes if n["role"] == "attempt"}
    if attempts:
        for uuids in slices([UUID(u) for u in attempts]):
            ran = Rewrite.objects.filter(attempt_uuid__in=uuids).order_by("position", "seq")
            for of, *told in ran.values_list("attempt_uuid", *_REWRITE):
                attempts[str(of)]["rewrites"].append(dict(zip(_REWRITE, told, strict=True)))
    return nodes


def _is_open(call: dict[str, Any]) -> bool:
    return call["status"] == "running" and "synthetic" not in call["flags"]


def scope(uuid: UUID | str) -> dict[str, Any] | None:
    """One node, without children; None if it is not on record."""
    wanted = as_uuid(uuid)
    row = None if wanted is None else next(read_rows(Scope.objects.filter(uuid=wanted)), None)
    return None if row is None else _completed([rows.node(row)])[0]


# ---------------------------------------------------------------- sessions


def sessions(q: str = "", *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
    """One page of sessions, the one with the newest turn first: `{"sessions": [Session], "next": cursor or None}`.

    A session is what shares a `session_id`; a turn without one is a session of its own and not listed here. With a
    query, only the turns that match it count.
    """
    limit = max(1, min(limit, PAGE))
    found = turns_matching(parse(q)).filter(session_id__isnull=False, start_us__isnull=False)
    page: list[tuple[str, int, UUID]] = []
    for newest in _newest_turns(found, limit, _place(cursor)):
        page.append(newest)
        if len(page) > limit:
            break
    more, page = len(page) > limit, page[:limit]
    told = {sums["session_id"]: sums for sums in _grouped(found, [name for name, *_ in page])}
    following = f"{page[-1][1]}.{page[-1][2].hex}" if more else None
    heads = Scope.objects.filter(uuid__in=[uuid for *_, uuid in page]).values_list("session_id", "asked")
    asked: dict[str | None, str | None] = dict(heads)
    without_price = _unpriced_sessions(found, list(told))
    listed = [
        {**_session(told[name]), "cost_complete": name not in without_price, "asked": asked.get(name)}
        for name, *_ in page
        if name in told
    ]
    return {"sessions": listed, "next": following}


def _newest_turns(found: QuerySet[Any], many: int, after: tuple[int, UUID] | None) -> Iterator[tuple[str, int, UUID]]:
    """The newest turn of each session, the newest first, of those older than the place `after`.

    Read from the list of turns, some at a time, so that a page costs the same in a record of any size.
    """
    seen: dict[str, None] = {}
    start, many = after, 4 * many
    while True:
        older = found if start is None else _before(found, *start)
        if seen:
            older = older.exclude(session_id__in=list(seen)[-_SLICE:])
        turns = list(older.order_by("-start_us", "-uuid").values_list("session_id", "start_us", "uuid")[:many])
        fresh: dict[str, tuple[str, int, UUID]] = {}
        for turn in turns:
            if turn[0] not in seen:
                fresh.setdefault(turn[0], turn)
        told: set[str] = set() if after is None else _with_newer(found, list(fresh), *after)
        yield from (turn for name, turn in fresh.items() if name not in told)
        if len(turns) < many:
            return
        seen.update(dict.fromkeys(fresh))
        start, many = turns[-1][1:], min(2 * many, 10 * PAGE)


def _with_newer(found: QuerySet[Any], names: Sequence[str], start_us: int, uuid: UUID) -> set[str]:
    """Which of these sessions have a turn at this place or after it, so that a page before has told them."""
    newer = found.filter(Q(start_us__gt=start_us) | Q(start_us=start_us, uuid__gte=uuid), start_us__gte=start_us)
    told: set[str] = set()
    for some in slices(names):
        told.update(newer.filter(session_id__in=some, is_home=True).order_by().values_list("session_id", flat=True))
    return told


# Conditions that name a session say `is_home`, which every turn is, because the index of sessions is over homes.
_SUMS = {
    "turns": Count("uuid"),
    "first_us": Min("start_us"),
    "last": Max("last_us"),
    "running": Count("uuid", filter=Q(status="running")),
    "failed": Count("uuid", filter=Q(status__in=("failed", "interrupted", "blocked"))),
    "calls": Sum("logical_calls"),
    "tokens": Sum("total_tokens"),
    "cost": Sum("cost_pusd"),
}


def _grouped(found: QuerySet[Any], names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for some in slices(names):
        of = found.filter(session_id__in=some, is_home=True)
        yield from of.order_by().values("session_id").annotate(**_SUMS)


def _session(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "session_id": found["session_id"],
        "turns": found["turns"],
        "running": found["running"],
        "failed": found["failed"],
        "calls": found["calls"] or 0,
        "tokens": found["tokens"],
        "cost_usd": rows.usd(found["cost"]),
        "started_at": rows.rfc3339(found["first_us"]),
        "last_at": rows.rfc3339(found["last"]),
        "start_us": found["first_us"],
        "last_us": found["last"],
    }


def session(session_id: str, *, limit: int = PAGE, cursor: str | None = None) -> dict[str, Any] | None:
    """One session: its sums, and its turns in order of time, the oldest first; None if nobody has that id.

    `turns` holds at most `limit` of them, `next` the cursor of the rest.
    """
    if "\0" in session_id:
        return None
    found = turns_matching(Query()).filter(session_id=session_id, is_home=True)
    sums = next(_grouped(found, [session_id]), None)
    if sums is None:
        return None
    limit = max(1, min(limit, PAGE))
    ordered = found.order_by("start_us", "uuid")
    if place := _place(cursor):
        start, uuid = place
        ordered = ordered.filter(Q(start_us__gt=start) | Q(start_us=start, uuid__gt=uuid), start_us__gte=start)
    page = list(read_rows(ordered[: limit + 1]))
    more, page = len(page) > limit, page[:limit]
    return {
        **_session(sums),
        "cost_complete": not _unpriced_sessions(found, [session_id]),
        "turn_count": sums["turns"],
        "turns": as_turns(page),
        "next": f"{page[-1].start_us}.{page[-1].uuid.hex}" if more else None,
    }
