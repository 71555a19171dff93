"""Export of recorded events: what to export, and ATOF itself. The other formats are siblings of this module.

atof  JSON lines, the same values that were accepted (secrets masked), chunk marks and conflicting copies included
otlp  OTLP JSON, one trace request a line (`export_otlp`)
atif  agent trajectories, one a line (`export_atif`)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q, QuerySet

from relayweb.recording.events.json_text import ascii_json
from relayweb.recording.models import ChunkBlock, Event, Scope
from relayweb.recording.reading import chunks, queries
from relayweb.recording.store.stored import Reader

_EVENTS = 500  # read at a time
_SCOPES = 400  # named in one query


class NothingThere(LookupError):
    """The turn or session to export is not on record; the message names it."""


@dataclass(frozen=True)
class Part:
    """What to export: everything (`scopes` is None), or these scopes with all that hangs under them.

    `above` are the scopes around them: their starts and ends go along, so that an import shows the part in its place.
    """

    scopes: tuple[UUID, ...] | None = None
    above: tuple[UUID, ...] = ()


def everything() -> Part:
    return Part()


def turn(uuid: UUID | str) -> Part:
    """A turn with its sub-agents. Raises NothingThere."""
    found = queries.turn_row(uuid)
    if found is None:
        raise NothingThere(f"there is no turn {uuid} on record; `relayweb export` without --turn gives all")
    return _with_surroundings([found.uuid])


def session(session_id: str) -> Part:
    """All turns of a session. Raises NothingThere."""
    homes = list(Scope.objects.filter(session_id=session_id, is_home=True).values_list("uuid", flat=True))
    if not homes:
        raise NothingThere(f"there is no session {session_id!r} on record; /api/v1/sessions lists them")
    return _with_surroundings(homes)


def _with_surroundings(homes: list[UUID]) -> Part:
    inside = list(dict.fromkeys(uuid for home in homes for uuid in queries.turn_uuids(home)))
    scopes: dict[UUID, UUID | None] = {}
    for some in queries.slices(inside):
        scopes.update(Scope.objects.filter(turn_uuid__in=some).values_list("uuid", "parent_uuid"))
    for some in queries.slices(list(scopes)):  # what another process saw of the same scopes
        scopes.update(Scope.objects.filter(joined_uuid__in=some).values_list("uuid", "parent_uuid"))
    above: dict[UUID, None] = {}
    parents = {parent for parent in scopes.values() if parent is not None} - scopes.keys()
    while parents:
        found = dict(Scope.objects.filter(uuid__in=list(parents)[:_SCOPES]).values_list("uuid", "parent_uuid"))
        above.update(dict.fromkeys(found))
        parents = {p for p in found.values() if p is not None} - scopes.keys() - above.keys()
    return Part(tuple(scopes), tuple(above))


def atof(part: Part) -> Iterator[bytes]:
    """Every event of a part as one line of ASCII JSON, in the order they were accepted."""
    for _, text in heapq.merge(_events(part), _chunk_marks(part)):
        yield ascii_json(text) + b"\n"


def _events(part: Part) -> Iterator[tuple[int, bytes]]:
    reader = Reader()
    for rows in _selected(part, _event_rows):
        yield from zip((row.seq for row in rows), reader.texts(rows), strict=True)


def _selected(part: Part, select: Callable[[Q | None, int], QuerySet[Event]]) -> Iterator[list[Event]]:
    """Rows by number, some at a time: a part that names few scopes is gathered first, everything is walked."""
    if part.scopes is None:
        after = -1
        while rows := list(select(None, after)[:_EVENTS]):
            yield rows
            after = rows[-1].seq
        return
    numbers: set[int] = set()
    for some in _named(part.scopes):
        numbers.update(select(Q(uuid__in=some) | Q(mark_of__in=some), -1).values_list("seq", flat=True))
    for some in _named(part.above):
        scopes_only = Q(uuid__in=some) & ~Q(kind=Event.Kind.MARK)
        numbers.update(select(scopes_only, -1).values_list("seq", flat=True))
    ordered = sorted(numbers)
    for at in range(0, len(ordered), _EVENTS):
        yield list(Event.objects.filter(seq__in=ordered[at : at + _EVENTS]).order_by("seq"))


def _event_rows(which: Q | None, after: int) -> QuerySet[Event]:
    found = Event.objects.filter(seq__gt=after)
    return (found if which is None else found.filter(which)).order_by("seq")


def _named(uuids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    return (uuids[at : at + _SCOPES] for at in range(0, len(uuids), _SCOPES))


def _chunk_marks(part: Part) -> Iterator[tuple[int, bytes]]:
    """Chunk marks by number. Blocks overlap, so marks wait until no later block can hold a smaller number."""
    waiting: list[tuple[int, bytes]] = []
    for block in _blocks(part):
        while waiting and waiting[0][0] < block.first_seq:
            yield heapq.heappop(waiting)
        for mark, text in chunks.texts(block):
            heapq.heappush(waiting, (mark.seq, text))
    while waiting:
        yield heapq.heappop(waiting)


def _blocks(part: Part) -> Iterator[ChunkBlock]:
    if part.scopes is None:
        after = (-1, -1)
        while blocks := list(
            ChunkBlock.objects.filter(Q(first_seq__gt=after[0]) | Q(first_seq=after[0], id__gt=after[1])).order_by(
                "first_seq", "id"
            )[:_EVENTS]
        ):
            yield from blocks
            after = (blocks[-1].first_seq, blocks[-1].id)
        return
    found: list[tuple[int, int]] = []
    for some in _named(part.scopes):
        found += ChunkBlock.objects.filter(attempt_uuid__in=some).values_list("first_seq", "id")
    for _, number in sorted(found):
        yield ChunkBlock.objects.get(id=number)
