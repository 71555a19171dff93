"""A run that comes as ATOF and again as OpenTelemetry spans is one run, whichever comes first.

A span's id is the last half of its scope's uuid, and its trace is the uuid of the root scope. Some spans tell the whole
uuid as well; of the others the first half is made up from the trace until a better copy of the run tells it. The better
copy is kept: ATOF, which says most, before spans that tell their uuid, before the rest. What comes after a better copy
is a duplicate, but for starts and ends that are still missing; what came before is taken out once the better one is
there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q

from relayweb.recording import conflicts, copy_rows, search_index
from relayweb.recording.atof import END, MARK, START, Parsed
from relayweb.recording.chunk_marks import QuickMark
from relayweb.recording.models import Event, Scope
from relayweb.recording.pieces import Packed
from relayweb.recording.recent import Recent
from relayweb.recording.recorder import Line, Recorder
from relayweb.recording.replay import Replay
from relayweb.recording.stored import Reader
from relayweb.recording.tables import Tables

COPY, MADE = Event.Flag.COPY, Event.Flag.MADE
_WORST = 2 * MADE
_COPY = re.compile(rb'\{"otlp":\{"trace_id":"([0-9a-f]{32})"(,"made":true)?\}')
_KINDS = {"start": START, "end": END}


def told_by_span(trace_id: bytes, *, made: bool) -> dict[str, Any]:
    """The first member of an event that a span was read into. `made`: half of its uuid is made up."""
    return {"otlp": {"trace_id": trace_id.hex(), **({"made": True} if made else {})}}


def made_uuid(trace_id: bytes, span_id: bytes) -> UUID:
    return UUID(bytes=trace_id[:8].ljust(8, b"\0") + span_id[:8].rjust(8, b"\0"))


class _Copy:
    """One line that was a span."""

    def __init__(self, line: Line, trace: bytes, made: bool) -> None:
        self.line, self.trace, self.made = line, trace, made
        self.event: dict[str, Any] = json.loads(line.text)
        self.kind = _KINDS.get(self.event.get("scope_category") or "", MARK)

    @property
    def rank(self) -> int:
        return MADE if self.made else COPY

    @property
    def scope(self) -> bytes:
        return UUID(self.event["parent_uuid" if self.kind == MARK else "uuid"]).bytes

    def rename(self, known: dict[bytes, bytes]) -> None:
        """Give the scopes their whole uuids where a better copy tells them."""
        for member in ("parent_uuid",) if self.kind == MARK else ("uuid", "parent_uuid"):
            text = self.event.get(member)
            whole = known.get(UUID(text).bytes) if text else None
            if whole is not None:
                self.event[member] = str(UUID(bytes=whole))
                self.line.text = json.dumps(self.event, separators=(",", ":")).encode()


class RunRecorder(Recorder):
    """A recorder that knows the copies of one run."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._rank = 0
        self._twins: Recent[bytes, set[bytes]] = Recent(2_000)
        """By root: scopes on record under a uuid that was made up from it."""
        self._better: dict[bytes, bytes | None] = {}
        """Scopes of which a worse copy is on record as well, and their roots."""

    def record(self, lines: list[Line]) -> int:
        copies = [copy for line in lines if (copy := _copy(line)) is not None]
        if not copies:
            return self._sort_out(super().record(lines))
        seq, theirs = self._seq, {id(copy.line) for copy in copies}
        if originals := [line for line in lines if id(line) not in theirs]:
            seq = self._sort_out(super().record(originals))
        for made in (False, True):
            if some := [copy for copy in copies if copy.made == made]:
                seq = self._record_copies(some)
        return seq

    def _record_copies(self, copies: list[_Copy]) -> int:
        if copies[0].made:
            known = _known({copy.trace for copy in copies})
            for copy in copies:
                copy.rename(known)
        ranks = _ranks({copy.scope for copy in copies})
        for copy in copies:
            there = ranks.setdefault(copy.scope, {})
            if copy.kind == MARK:
                copy.line.duplicate = min(there.values(), default=_WORST) < copy.rank
            elif there.setdefault(copy.kind, _WORST) <= copy.rank:  # of equally good ones the first
                copy.line.duplicate = True
            else:
                there[copy.kind] = copy.rank
        self._rank = copies[0].rank
        try:
            seq = super().record([copy.line for copy in copies if not copy.line.duplicate])
        finally:
            self._rank = 0
        for copy in copies:
            self._twins.drop(copy.trace)
        return self._sort_out(seq)

    def begin(self) -> list[int]:
        before = self._seq
        ledger = super().begin()
        if self._seq != before:  # others may have recorded copies
            self._twins.clear()
        return ledger

    def abandon(self) -> None:
        super().abandon()
        self._twins.clear()
        self._better = {}

    def _prefetch(self, events: Sequence[Parsed | QuickMark]) -> None:
        super()._prefetch(events)
        roots = {event.root for event in events if isinstance(event, Parsed) and event.kind != MARK}
        unknown = [root for root in roots if root is not None and self._twins.get(root) is None]
        for root, found in copy_rows.made_up(self.tables, unknown, MADE).items():
            self._twins.put(root, found)

    def _take(self, event: Parsed, packed: Packed, line: Line) -> None:
        before = self._seq
        super()._take(event, packed, line)
        if self._seq == before:
            return
        known = self._known[event.uuid, event.kind]
        if self._rank:
            known[-1].flags |= self._rank
            self._flagged[self._seq] = self._flagged.get(self._seq, 0) | self._rank
        if len(known) > 1 and len({other.flags & (COPY | MADE) for other in known}) > 1:
            self._better[(event.parent or event.uuid) if event.kind == MARK else event.uuid] = event.root
        elif event.kind != MARK and event.root is not None and (twins := self._twins.get(event.root)):
            twin = made_from(event.root, event.uuid)
            if twin != event.uuid and twin in twins:
                self._better[event.uuid] = event.root

    def _sort_out(self, seq: int) -> int:
        """Take out the copies of runs of which a better one has come now, and record what of them is still wanted."""
        better, self._better = self._better, {}
        if not better or isinstance(self.tables, _Joint):
            return seq
        tables = _Joint(self.tables.connection)
        try:
            tables.begin()
            lines = _Again(tables).tell(better)
            RunRecorder(tables).record([Line(line, 0) for line in lines])
            return tables.end()
        except BaseException:
            tables.rollback()
            raise


def _copy(line: Line) -> _Copy | None:
    if not line.text.startswith(b'{"otlp":') or (found := _COPY.match(line.text)) is None:
        return None
    return _Copy(line, bytes.fromhex(found[1].decode()), bool(found[2]))


def made_from(root: bytes, uuid: bytes) -> bytes:
    return root[:8] + uuid[8:]


def _known(traces: set[bytes]) -> dict[bytes, bytes]:
    """The whole uuids of scopes on record, by those that would be made up for their spans."""
    found: dict[bytes, bytes] = {}
    roots = {UUID(bytes=trace) for trace in traces}
    for top in Scope.objects.filter(uuid__in=roots).values_list("uuid", "turn_uuid"):
        homes, looked = {top[1]}, set()
        while homes:
            for uuid in Scope.objects.filter(turn_uuid__in=homes).values_list("uuid", flat=True):
                made = made_from(top[0].bytes, uuid.bytes)
                if made != uuid.bytes:
                    found[made] = uuid.bytes
            looked |= homes
            homes = set(Scope.objects.filter(parent_turn_uuid__in=homes).values_list("uuid", flat=True)) - looked
    return found


def _ranks(scopes: set[bytes]) -> dict[bytes, dict[int, int]]:
    """How good the starts and ends on record of these scopes are: the best of each, 0 for ATOF's own."""
    found: dict[bytes, dict[int, int]] = {}
    for some in slices([UUID(bytes=scope) for scope in scopes]):
        events = Event.objects.filter(uuid__in=some).exclude(kind=MARK)
        for uuid, kind, flags in events.values_list("uuid", "kind", "flags"):
            there = found.setdefault(uuid.bytes, {})
            there[kind] = min(there.get(kind, _WORST), flags & (COPY | MADE))
    return found


class _Joint(Tables):
    """Several recorders in one transaction."""

    _held: tuple[int, int, int, int] | None = None

    def begin(self) -> tuple[int, int, int, int]:
        if self._held is None:
            self._held = super().begin()
        return self._held

    def commit(self, seq: int, content_id: int, epoch: int, swept_us: int) -> None:
        self._held = seq, content_id, epoch, swept_us

    def end(self) -> int:
        seq, content_id, epoch, swept_us = self.begin()
        super().commit(seq, content_id, epoch + 1, swept_us)
        return seq


class _Again(Replay):
    """Tells what was recorded of some runs anew, without the copies."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables, "recording_before")
        self._ledger = list(tables.begin())
        self._seq = self._ledger[0]

    def tell(self, better: dict[bytes, bytes | None]) -> list[bytes]:
        """Returns the lines of the copies."""
        wanted, made = set(better), {root for root in better.values() if root is not None}
        while True:
            for some in copy_rows.made_up(self.tables, sorted(made), MADE).values():
                wanted |= some
            scopes = self._around(wanted | made)
            events = self._events_of(scopes)
            copies = [event for event in events.values() if event.flags & (COPY | MADE)]
            lines = list(Reader().texts(copies))
            traces = {copy.trace for line in lines if (copy := _copy(Line(line, 0))) is not None}
            if traces <= made:
                break
            made |= traces
        uuids = [scope.bytes for scope in scopes]
        copy_rows.set_aside(self.tables, "recording_before", uuids)
        search_index.forget((), [event.seq for event in copies])
        self.tables.delete("recording_event", "seq", [event.seq for event in copies])
        self.tables.delete("recording_rewrite", "attempt_uuid", uuids)
        self.tables.delete("recording_scope", "uuid", uuids)
        for uuid in {event.uuid for event in copies}:
            conflicts.show_one(uuid)
        self.run(log=_slices_of(events.keys() - {event.seq for event in copies}))
        copy_rows.restore_arrival(self.tables, "recording_before")
        return lines

    @staticmethod
    def _events_of(scopes: list[UUID]) -> dict[int, Event]:
        found: dict[int, Event] = {}
        for some in slices(scopes):
            found.update((e.seq, e) for e in Event.objects.filter(Q(uuid__in=some) | Q(mark_of__in=some)))
        return found

    @staticmethod
    def _around(found: set[bytes]) -> list[UUID]:
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
