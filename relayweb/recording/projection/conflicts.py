"""Of several different events of one identity one is shown: the smallest by time, then by digest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from uuid import UUID

from django.db.models import F

from relayweb.recording.events.atof import canonical, parse
from relayweb.recording.models import Event
from relayweb.recording.store.stored import Reader


def show_one_each(uuids: Iterable[UUID]) -> None:
    """As `show_one`, of many."""
    wanted = sorted(uuids)
    for at in range(0, len(wanted), 500):
        some = Event.objects.filter(uuid__in=wanted[at : at + 500])
        counts = Counter(some.values_list("uuid", "kind"))
        several = {uuid for (uuid, _), count in counts.items() if count > 1}
        alone = (
            some.exclude(uuid__in=several).annotate(hidden=F("flags").bitand(Event.Flag.CONFLICT)).filter(hidden__gt=0)
        )
        alone.update(flags=F("flags") - Event.Flag.CONFLICT)
        for uuid in several:
            show_one(uuid)


def show_one(uuid: UUID) -> int:
    """Flag the events of this uuid as the writer does; returns how many were not flagged so."""
    count = 0
    for kind in Event.Kind:
        rows = list(Event.objects.filter(uuid=uuid, kind=kind))
        if not rows:
            continue
        lines = [parse(text).line for text in Reader().texts(rows)]
        order = [(row.at_ns, sha256(canonical(line)).digest()) for row, line in zip(rows, lines, strict=True)]
        first = rows[order.index(min(order))]
        for row in rows:
            flags = row.flags & ~Event.Flag.CONFLICT if row is first else row.flags | Event.Flag.CONFLICT
            if flags != row.flags:
                Event.objects.filter(seq=row.seq).update(flags=flags)
                count += 1
    return count
