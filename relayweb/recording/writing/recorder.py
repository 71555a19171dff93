"""One batch of events into the database: checked, masked, stored, projected, in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from relayweb.recording.conventions import pricing
from relayweb.recording.events.atof import END, MARK, START, BadEvent, Parsed, canonical, parse
from relayweb.recording.models import Event
from relayweb.recording.projection.nodes import FLAG, Node
from relayweb.recording.projection.projection import is_block
from relayweb.recording.projection.recall import CONFLICT, Known, Recall
from relayweb.recording.store.chunk_marks import QuickMark, is_chunk
from relayweb.recording.store.pieces import Packed, encode_event
from relayweb.recording.store.tables import Tables

log = logging.getLogger(__name__)

_SWEEP = 5_000  # scopes in one transaction

REPLACED, MASKED = Event.Flag.REPLACED_TEXT, Event.Flag.MASKED


class Line(msgspec.Struct, gc=False):
    """One line that waits to be recorded, and what became of it."""

    text: bytes
    arrived_us: int
    error: str | None = None
    duplicate: bool = False


_Read = tuple[Parsed | QuickMark, Packed | None, Line]
"""An event as it was read; chunk marks are not split."""


class Recorder(Recall):
    """Writes batches. Belongs to the writer's thread; `record` is one transaction."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._seq = 0
        self._epoch = -1
        self._forgotten = 0
        """How often everything in memory was given up."""
        self._events: list[tuple[int, bytes, Parsed, Packed, int]] = []
        self._flagged: dict[int, int] = {}

    @property
    def newest(self) -> int:
        """The number of the newest event, or of the last change after it."""
        return self._seq

    # The transaction

    def record(self, lines: list[Line]) -> int:
        """Record what can be recorded of these lines, and say of each what became of it.

        Returns:
            the number of the newest event.

        Raises:
            DatabaseError: nothing was recorded; the same lines may be tried again.
        """
        try:
            self.prices = pricing.table()  # asks the database at times: a connection that broke has to be closed
            events, forgotten = self._parse(lines), self._forgotten
            ledger = self.begin()
            if self._forgotten != forgotten:  # what the lines were split into may be gone
                events = self._parse(lines)
            self._prefetch([read[0] for read in events])
            quick = self.chunks.add_quick
            for event, packed, line in events:
                if packed is None:
                    seq = self._seq + 1
                    became = quick(event, seq, line.arrived_us) if isinstance(event, QuickMark) else None
                    if became is None:
                        event = event if isinstance(event, Parsed) else parse(line.text)
                        became = self.chunks.add(event, seq, line.arrived_us)
                    if became == "duplicate":
                        line.duplicate = True
                    else:
                        self._seq = seq
                elif isinstance(event, Parsed):
                    self._take(event, packed, line)
            for attempt, chunks in self.chunks.dirty.items():
                self._tell_chunks(attempt, chunks)
            return self._commit(ledger)
        except BaseException:
            self.abandon()
            self.tables.rollback()
            raise

    def begin(self) -> list[int]:
        """Open the transaction, and forget what other processes have changed."""
        ledger = list(self.tables.begin())
        if self._epoch < 0:  # nothing is in memory yet
            self._epoch = ledger[2]
        elif ledger[2] != self._epoch or ledger[0] < self._seq:
            self.abandon()
            self._epoch = ledger[2]
        elif ledger[0] != self._seq:
            for uuid in self.tables.changed_scopes(self._seq):
                self.nodes.drop(uuid)
                self.chunks.drop(uuid)
            for uuid in self.tables.changed_attempts(self._seq):
                self.chunks.drop(uuid)
        self._seq = ledger[0]
        return ledger

    def sweep(self, now_us: int, silent_since_us: int, every_us: int) -> int:
        """Call interrupted what runs and has been silent since then; done by one process, at most every `every_us`.

        Returns:
            how many scopes were interrupted.
        """
        try:
            ledger = self.begin()
            if now_us - ledger[3] < every_us:
                self.tables.rollback()
                return 0
            ledger[3] = now_us
            count = 0
            for row in self.tables.running(silent_since_us, _SWEEP):
                count += self._interrupt(self._remember(row), silent_since_us)
            self._commit(ledger)
            return count
        except BaseException:
            self.abandon()
            self.tables.rollback()
            raise

    def _interrupt(self, node: Node, silent_since_us: int) -> bool:
        home = self.find(node.turn_uuid)
        if home is not None and home is not node and home.status == "running" and home.arrived_us >= silent_since_us:
            return False
        self._seq += 1
        node.seq = self._seq
        self.silent(node)
        return True

    def silent(self, node: Node) -> None:
        """Call a scope interrupted."""
        node.status = "interrupted"
        self.changed(node)
        if node.role == "attempt":
            node.wasted_pusd = node.cost_pusd
            home = self.find(node.turn_uuid)
            if home is not None and home.home_state is not None and home.home_state.shared:
                self.changed(home)  # another process may have told its end, of which this attempt made one doubt

    def _commit(self, ledger: list[int]) -> int:
        changed = self.finish()
        self._keep_doubts()
        self._number_changes(changed, ledger[0])
        content_id, contents = self.store.number(ledger[1], self.tables.content_ids)
        tables = self.tables
        tables.put_contents(contents)
        tables.put_events(
            [
                (
                    seq,
                    event.uuid,
                    event.kind,
                    digest,
                    event.parent if event.kind == MARK else None,
                    event.at_ns,
                    self._flagged.pop(seq, 0) | flags,
                    encode_event(event, packed),
                )
                for seq, digest, event, packed, flags in self._events
            ]
        )
        tables.flag_events([(flags, seq) for seq, flags in self._flagged.items()])
        self.chunks.flush({node.uuid for node in changed if node.end_seq is not None})
        tables.put_scopes([node.save() for node in changed])
        tables.put_rewrites(self.rewrites)
        tables.commit(self._seq, content_id, ledger[2], ledger[3])
        self.store.committed()
        self.chunks.committed()
        self.nodes.trim()
        self._forget_batch()
        return self._seq

    def _keep_doubts(self) -> None:
        self.doubts = {}

    def _number_changes(self, changed: list[Node], before: int) -> None:
        """Each change has a number of its time, by which viewers and other processes learn of it."""
        late = [node for node in changed if node.seq <= before]
        if late and self._seq == before:
            self._seq += 1
        for node in late:
            node.seq = self._seq

    def abandon(self) -> None:
        super().abandon()
        self._forgotten += 1
        self.store.forget()
        self.chunks.forget()
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._known, self._taken, self._orphans, self._events, self._flagged = {}, {}, {}, [], {}
        self._were, self._were_bytes = {}, 0
        self.rewrites, self.early = [], {}

    # Before the batch

    def _parse(self, lines: list[Line]) -> list[_Read]:
        """Read and split the lines; nothing in here asks the database."""
        events: list[_Read] = []
        quick = self.chunks.reader.quick
        for line in lines:
            mark = quick(line.text)
            if mark is not None:
                events.append((mark, None, line))
                continue
            try:
                event = self.store.parse(line.text)
            except BadEvent as error:
                line.error = str(error)
                continue
            if event.kind == MARK and is_chunk(event):
                self.chunks.reader.learn(event)
                events.append((event, None, line))
                continue
            packed = self.store.pack(event)
            events.append((_masked(event, packed) if packed.masked else event, packed, line))
        return events

    def _prefetch(self, events: Sequence[Parsed | QuickMark]) -> None:
        """All the look-ups of a batch in a few queries."""
        scopes: set[bytes] = set()
        marks: set[bytes] = set()
        chunked: set[bytes] = set()
        new: set[bytes] = set()
        ends: list[Parsed] = []  # and starts
        for event in events:
            if isinstance(event, QuickMark):
                chunked.add(event.attempt)
                continue
            if event.parent is not None:
                scopes.add(event.parent)
            if event.kind != MARK:
                scopes.add(event.uuid)
                ends.append(event)
            elif is_chunk(event):
                chunked.add(event.parent or b"")
            else:
                marks.add(event.uuid)
                if is_block(event):
                    new.add(event.uuid)  # if it is on record, nothing asks for what comes of this
        self.prefetch(scopes | chunked)
        again: set[bytes] = set()
        for event in ends:
            node = self.nodes.get(event.uuid)
            if node is None:
                new.add(event.uuid)
            elif (node.start_seq if event.kind == START else node.end_seq) is not None:
                again.add(event.uuid)
        for uuid, kind, seq, digest, at_ns, flags, _ in self.tables.events(marks | again):
            self._known.setdefault((uuid, kind), []).append(Known(seq, digest, at_ns, flags))
        self.chunks.prefetch(chunked, new)
        orphans = {seq: flags for _, seq, flags in self.tables.orphans(new)}
        for event, seq in self._read(list(orphans)):
            self._orphans.setdefault(event.parent or b"", []).append((event, seq, orphans[seq]))

    # One event

    def _take(self, event: Parsed, packed: Packed, line: Line) -> None:
        digest = packed.digest
        known = self._known.get((event.uuid, event.kind))
        shown = True
        if known is not None:
            verdict = self._compare(event, packed, digest, known)
            if verdict is None:
                line.duplicate = True
                return
            shown = verdict
        self._seq += 1
        seq = self._seq
        flags = (REPLACED if event.replaced_text else 0) | (MASKED if packed.masked else 0)
        if not shown:
            flags |= CONFLICT
        self._events.append((seq, digest, event, packed, flags))
        self._known.setdefault((event.uuid, event.kind), []).append(Known(seq, digest, event.at_ns, flags, packed.line))
        self._taken[seq] = (event, packed)
        if known is not None:
            self._conflict(event, packed, seq, shown)
        elif event.kind == MARK:
            self.mark(event, packed, seq, line.arrived_us)
        else:
            self.scope_event(event, packed, seq, line.arrived_us)

    def _compare(self, event: Parsed, packed: Packed, digest: bytes, known: list[Known]) -> bool | None:
        """Whether an event of a known identity is the one to show; None for a duplicate."""
        if any(other.digest == digest for other in known):
            return None
        mine = canonical(packed.line)
        best = True
        for other in known:
            text = other.line
            if text is None and (read := self._back(other.seq)) is not None:
                text = read.line
            theirs = canonical(text or b"null")
            if theirs == mine:
                return None
            if (other.at_ns, sha256(theirs).digest()) < (event.at_ns, sha256(mine).digest()):
                best = False
        return best

    def _conflict(self, event: Parsed, packed: Packed, seq: int, shown: bool) -> None:
        """A second, different event of one identity: kept, flagged, and shown if it is the smaller."""
        if shown:
            for other in self._known[(event.uuid, event.kind)]:
                if other.seq != seq and not other.flags & CONFLICT:
                    other.flags |= CONFLICT
                    self._flagged[other.seq] = other.flags
        if event.kind == MARK:
            self._mark_conflict(event, packed, seq, shown)
            return
        node = self.find(event.uuid)
        if node is None:
            return
        self.revive(node)
        node.flag(FLAG.CONFLICT)
        self.touch(node, seq, event.at_ns // 1000, 0)
        self.changed(node)
        if shown:
            before = self.identity(node)
            start, end = self._said(node.start_seq), self._said(node.end_seq)
            mine = (event, packed, seq)
            self.retell(node, mine if event.kind == START else start, mine if event.kind == END else end)
            self._retell_marks(node)
            if self.identity(node) != before:
                self.doubt(node.uuid, before[0], node.parent_uuid)

    def _mark_conflict(self, event: Parsed, packed: Packed, seq: int, shown: bool) -> None:
        scope = self.find(event.parent)
        blocked = self.find(event.uuid) if is_block(event) else None  # a call that never began, told by this mark
        if blocked is not None:
            self.touch(blocked, seq, event.at_ns // 1000, 0)
        others = [other.seq for other in self._known[(event.uuid, MARK)] if other.seq != seq]
        parents = {said[0].parent for said in map(self._said, others) if said is not None}
        if blocked is not None or parents != {event.parent}:
            self.doubt(event.uuid, event.parent, *parents)
        if shown:
            self.rewrites = [row for row in self.rewrites if row[0] not in others]
            self.tables.drop_rewrites(others)
        if scope is None:
            if shown:
                self.mark(event, packed, seq, 0)
            elif event.parent is not None:
                self.early.setdefault(event.parent, []).append((event, seq, 0))
            return
        scope.flag(FLAG.CONFLICT)
        self.touch(scope, seq, event.at_ns // 1000, 0)
        self.changed(scope)
        if shown:
            self.mark(event, packed, seq, 0)
            self._retell_marks(scope)


def _masked(event: Parsed, packed: Packed) -> Parsed:
    """The event as it was masked, for everything that reads it."""
    clean = parse(packed.line)
    clean.replaced_text, clean.surrogates = event.replaced_text, event.surrogates
    return clean
