"""Part of the record anew, from the log alone: where rows might depend on the order in which events came.

Events that contradict each other about what hangs where, and better copies of a run, take back what was counted
before. What they touch is noted as unsettled with them, in one transaction, and told anew soon after. That costs as
much as recording all of the session again; so it is rested in between, and what comes meanwhile is settled together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any
from uuid import UUID

from django.db.models import Q

from relayweb.recording.models import Event, Scope
from relayweb.recording.projection import conflicts
from relayweb.recording.store import search_index
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing import copy_rows
from relayweb.recording.writing.recorder import Recorder
from relayweb.recording.writing.replay import Replay

log = logging.getLogger(__name__)

REST = 4.0
"""Times as long as the last settling took, until the next: a fifth of the writer's time at most."""
_AFTER_FAILURE = 30.0  # seconds


class Settling(Recorder):
    """A recorder that tells anew what events have put in doubt, by and by."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.unsettled = False
        """Whether something is to be told anew, as far as this process knows."""
        self._rested = 0.0

    def clear_up(self) -> int:
        """Tell anew everything that is in doubt; returns the newest number."""
        begun = time.monotonic()
        tables = Joint(self.tables.connection)
        try:
            tables.begin()
            doubts = copy_rows.take_unsettled(tables)
            if doubts:
                self._tell_anew(tables, doubts)
                self._seq = tables.end()
            else:
                tables.rollback()
        except BaseException:
            tables.rollback()
            raise
        self.unsettled = False
        self._rested = time.monotonic() + REST * (time.monotonic() - begun)
        return self._seq

    def clear_up_soon(self) -> float | None:
        """Settle, unless that has just been done.

        Returns:
            after how many seconds to ask again, None if there is nothing to do.
        """
        if not self.unsettled or isinstance(self.tables, Joint):
            return None
        if (rest := self._rested - time.monotonic()) > 0:
            return rest
        return None if self._try_to_clear_up() else _AFTER_FAILURE

    def _try_to_clear_up(self) -> bool:
        try:
            self.clear_up()
        except Exception as error:  # the events are on record, and what is unsettled stays noted
            if not isinstance(error, self.tables.unavailable):
                log.exception("events that contradict each other could not be told anew")
            self._rested = time.monotonic() + _AFTER_FAILURE
            return False
        return True

    def sweep(self, now_us: int, silent_since_us: int, every_us: int) -> int:
        if every_us == 0 or time.monotonic() >= self._rested:
            self._try_to_clear_up()  # also what other processes have left
        return super().sweep(now_us, silent_since_us, every_us)

    def _keep_doubts(self) -> None:
        if self.doubts and not isinstance(self.tables, Joint):
            copy_rows.put_unsettled(self.tables, self.doubts)
            self.unsettled = True
        super()._keep_doubts()

    def _tell_anew(self, tables: Joint, doubts: dict[bytes, bytes | None]) -> None:
        Retelling(tables).tell(set(doubts))


class Joint(Tables):
    """Several recorders in one transaction."""

    _held: tuple[int, int, int, int] | None = None

    def begin(self) -> tuple[int, int, int, int]:
        if self._held is None:
            self._held = super().begin()
        return self._held

    def commit(self, seq: int, content_id: int, epoch: int, swept_us: int) -> None:
        self._held = seq, content_id, epoch, swept_us

    def end(self) -> int:
        """Commit; what anybody holds in memory is void."""
        seq, content_id, epoch, swept_us = self.begin()
        super().commit(seq, content_id, epoch + 1, swept_us)
        return seq


class Retelling(Replay):
    """Tells some scopes anew, and all that is counted together with them."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables, "recording_before")
        self._ledger = list(tables.begin())
        self._seq = self._ledger[0]

    def tell(self, wanted: set[bytes]) -> None:
        scopes = around(wanted)
        self.tell_without(scopes, sorted(events_of(scopes)), ())

    def tell_without(self, scopes: list[UUID], seqs: Collection[int], gone: Collection[Event]) -> None:
        """Tell these events of these scopes, after others of them have been deleted."""
        uuids = [scope.bytes for scope in scopes]
        first = _starts_of_homes(scopes).intersection(seqs)
        copy_rows.set_aside(self.tables, "recording_before", uuids)
        search_index.forget((), [event.seq for event in gone])
        self.tables.delete("recording_event", "seq", [event.seq for event in gone])
        self.tables.delete("recording_rewrite", "attempt_uuid", uuids)
        self.tables.delete(
            "recording_rewrite", "seq", list(seqs)
        )  # marks of another scope with the uuid of one of these
        self.tables.delete("recording_scope", "uuid", uuids)
        conflicts.show_one_each({event.uuid for event in gone})
        # Homes first: below one that comes late everything is hung anew.
        self.run(log=chain(_slices_of(first), _slices_of(set(seqs) - first)))
        copy_rows.restore_arrival(self.tables, "recording_before")

    def _priced(self, scopes: set[bytes]) -> dict[bytes, tuple[int | None, str | None]]:
        """What had no price may have one now: it may have been no attempt before."""
        return {uuid: told for uuid, told in super()._priced(scopes).items() if told[1] is not None}


def events_of(scopes: list[UUID]) -> dict[int, int]:
    """The events of these scopes with their flags, by number; marks are of the scope they hang under, too."""
    found: dict[int, int] = {}
    for some in slices(scopes):
        events = Event.objects.filter(Q(uuid__in=some) | Q(mark_of__in=some))
        found.update(events.values_list("seq", "flags"))
    return found


def _starts_of_homes(scopes: list[UUID]) -> set[int]:
    found: set[int] = set()
    for some in slices(scopes):
        homes = Scope.objects.filter(uuid__in=some, is_home=True).values("uuid")
        found.update(Event.objects.filter(uuid__in=homes, kind=Event.Kind.START).values_list("seq", flat=True))
    return found


def around(found: Iterable[bytes]) -> list[UUID]:
    """These scopes, and all that is counted together with them."""
    homes: set[UUID] = set()
    for some in slices([UUID(bytes=uuid) for uuid in found]):
        homes |= set(Scope.objects.filter(uuid__in=some).values_list("turn_uuid", flat=True))
    edge = set(homes)
    while edge:
        near: set[UUID | None] = set()
        for some in slices(list(edge)):
            inside = Scope.objects.filter(
                Q(uuid__in=some) | Q(parent_turn_uuid__in=some) | Q(joined_uuid__in=some), is_home=True
            )
            for row in inside.values_list("uuid", "parent_turn_uuid", "joined_uuid"):
                near |= set(row)
        edge = {uuid for uuid in near if uuid is not None} - homes
        homes |= edge
    scopes = set(homes)
    for some in slices(list(homes)):
        scopes |= set(Scope.objects.filter(turn_uuid__in=some).values_list("uuid", flat=True))
    return sorted(scopes)


def slices(values: list[Any], size: int = 500) -> Iterator[list[Any]]:
    return (values[at : at + size] for at in range(0, len(values), size))


def _slices_of(seqs: Iterable[int]) -> Iterator[list[Event]]:
    for some in slices(sorted(seqs)):
        yield list(Event.objects.filter(seq__in=some).order_by("seq"))
