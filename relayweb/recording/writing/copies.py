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
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from relayweb.recording.events.atof import END, MARK, START, Parsed
from relayweb.recording.models import Event, Scope
from relayweb.recording.store.chunk_marks import QuickMark
from relayweb.recording.store.pieces import Packed
from relayweb.recording.store.recent import Recent
from relayweb.recording.store.stored import Reader
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing import copy_rows
from relayweb.recording.writing.recorder import Line
from relayweb.recording.writing.retelling import Joint, Retelling, Settling, around, events_of, slices

COPY, MADE = Event.Flag.COPY, Event.Flag.MADE
_WORST = 2 * MADE
_COPY = re.compile(rb'\{"otlp":\{"trace_id":"([0-9a-f]{32})"(,"made":true)?(,"log":true)?\}')
_SIGN = b'{"otlp":'
_NOBODY = "0" * 32
_KINDS = {"start": START, "end": END}


def told_by_span(trace_id: bytes, *, made: bool, log: bool = False) -> dict[str, Any]:
    """The first member of an event that a span was read into.

    Args:
        made: half of its uuid, or of its parent's, is made up.
        log: it is no part of the span but a record of its own, which no better copy of the span repeats.
    """
    marked = {"made": True} if made else {}
    return {"otlp": {"trace_id": trace_id.hex(), **marked, **({"log": True} if log else {})}}


def made_uuid(trace_id: bytes, span_id: bytes) -> UUID:
    return UUID(bytes=trace_id[:8].ljust(8, b"\0") + span_id[:8].rjust(8, b"\0"))


class _Copy:
    """One line that was a span."""

    def __init__(self, line: Line, trace: bytes, made: bool, log: bool) -> None:
        self.line, self.trace, self.made, self.log = line, trace, made, log
        self.event: dict[str, Any] = json.loads(line.text)
        self.kind = _KINDS.get(self.event.get("scope_category") or "", MARK)
        for member in ("uuid", "parent_uuid"):
            UUID(self.event[member] or _NOBODY)
        if self.kind == MARK and not self.event["parent_uuid"]:
            raise ValueError

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


class RunRecorder(Settling):
    """A recorder that knows the copies of one run."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._rank = 0
        self._twins: Recent[bytes, set[bytes]] = Recent(2_000)
        """By root: scopes on record under a uuid that was made up from it."""

    def record(self, lines: list[Line]) -> int:
        # Asked here, because it is asked of every line.
        copies = [copy for line in lines if line.text.startswith(_SIGN) and (copy := _copy(line)) is not None]
        theirs = {id(copy.line) for copy in copies}
        originals = [line for line in lines if id(line) not in theirs] if copies else lines
        if originals or not copies:
            super().record(originals)
        for made in (False, True):
            if some := [copy for copy in copies if copy.made == made]:
                self._record_copies(some)
        self.clear_up_soon()
        return self._seq

    def _record_copies(self, copies: list[_Copy]) -> None:
        if copies[0].made:
            known = _known({copy.trace for copy in copies})
            for copy in copies:
                copy.rename(known)
        ranks = _ranks({copy.scope for copy in copies})
        for copy in copies:
            there = ranks.setdefault(copy.scope, {})
            if copy.kind == MARK:
                copy.line.duplicate = not copy.log and min(there.values(), default=_WORST) < copy.rank
                continue
            best = there.get(copy.kind, _WORST)
            # Relay tells of one scope in several vocabularies, of which the first will do. Foreign spans of one id that
            # differ are different results: kept, and flagged.
            copy.line.duplicate = best < copy.rank or (best == copy.rank and not copy.made)
            there[copy.kind] = min(best, copy.rank)
        self._rank = copies[0].rank
        try:
            super().record([copy.line for copy in copies if not copy.line.duplicate])
        finally:
            self._rank = 0
        for copy in copies:
            self._twins.drop(copy.trace)

    def begin(self) -> list[int]:
        before = self._seq
        self._twins.trim()
        ledger = super().begin()
        if self._seq != before:  # others may have recorded copies
            self._twins.clear()
        return ledger

    def abandon(self) -> None:
        super().abandon()
        self._twins.clear()

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
            self._better((event.parent or event.uuid) if event.kind == MARK else event.uuid, event.root)
        elif event.kind != MARK and event.root is not None and (twins := self._twins.get(event.root)):
            twin = made_from(event.root, event.uuid)
            # Of the top all others: only with it on record they were looked for when log records came.
            if twin in twins if twin != event.uuid else event.uuid == event.root and self._rank != MADE:
                self._better(event.uuid, event.root)

    def _better(self, scope: bytes, root: bytes | None) -> None:
        """A worse copy of this scope is on record as well."""
        self.doubts[scope] = root or scope

    def _tell_anew(self, tables: Joint, doubts: dict[bytes, bytes | None]) -> None:
        """Take out the copies of runs of which a better one has come, and record what of them is still wanted."""
        better = {scope: root for scope, root in doubts.items() if root is not None}
        if better:
            lines = _without_copies(tables, better)
            RunRecorder(tables).record([Line(line, 0) for line in lines])
        if rest := doubts.keys() - better.keys():
            Retelling(tables).tell(rest)


def _without_copies(tables: Joint, better: dict[bytes, bytes]) -> list[bytes]:
    """Tell these scopes of these roots without the copies, whose lines are returned."""
    wanted, made = set(better), set(better.values())
    while True:
        for some in copy_rows.made_up(tables, sorted(made), MADE).values():
            wanted |= some
        # Around them, and where nothing but log records tells of them.
        scopes = sorted({*around(wanted | made), *(UUID(bytes=scope) for scope in wanted)})
        events = events_of(scopes)
        theirs = sorted(seq for seq, flags in events.items() if flags & (COPY | MADE))
        copies = [event for some in slices(theirs) for event in Event.objects.filter(seq__in=some).order_by("seq")]
        lines = list(Reader().texts(copies))
        traces = {copy.trace for line in lines if (copy := _copy(Line(line, 0))) is not None}
        if traces <= made:
            break
        made |= traces
    Retelling(tables).tell_without(scopes, events.keys() - set(theirs), copies)
    return lines


def _copy(line: Line) -> _Copy | None:
    if (found := _COPY.match(line.text)) is None:
        return None
    try:
        return _Copy(line, bytes.fromhex(found[1].decode()), bool(found[2]), bool(found[3]))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # nothing that we made of a span: whoever wrote it is told so, if it is no event


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
