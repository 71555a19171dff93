"""One batch of events into the database: checked, masked, stored, projected, in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from relayweb.recording import facts, pricing, stored
from relayweb.recording.atof import END, MARK, START, BadEvent, Parsed, canonical, parse
from relayweb.recording.chunk_log import ChunkLog, Chunks
from relayweb.recording.chunk_marks import QuickMark, is_chunk
from relayweb.recording.content import Store
from relayweb.recording.models import Event
from relayweb.recording.nodes import FLAG, Node
from relayweb.recording.pieces import Packed, encode_event
from relayweb.recording.projection import Projection
from relayweb.recording.tables import Tables

log = logging.getLogger(__name__)

_SWEEP = 5_000  # scopes in one transaction

CONFLICT, REPLACED, MASKED = Event.Flag.CONFLICT, Event.Flag.REPLACED_TEXT, Event.Flag.MASKED


class Known(msgspec.Struct, gc=False):
    """One event on record (or in this batch) of some identity."""

    seq: int
    digest: bytes
    at_ns: int
    flags: int
    line: bytes | None = None


class Line(msgspec.Struct, gc=False):
    """One line that waits to be recorded, and what became of it."""

    text: bytes
    arrived_us: int
    error: str | None = None
    duplicate: bool = False


_Read = tuple[Parsed | QuickMark, Packed | None, Line]
"""An event as it was read; chunk marks are not split."""


class Recorder(Projection):
    """Writes batches. Belongs to the writer's thread; `record` is one transaction."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.store = Store()
        self.chunks = ChunkLog(tables, self.store)
        self._seq = 0
        self._epoch = -1
        self._forgotten = 0
        """How often everything in memory was given up."""
        self._known: dict[tuple[bytes, int], list[Known]] = {}
        self._taken: dict[int, tuple[Parsed, Packed]] = {}
        self._orphans: dict[bytes, list[tuple[Parsed, int, int]]] = {}
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
        node.status, node.seq = "interrupted", self._seq
        if node.role == "attempt":
            node.wasted_pusd = node.cost_pusd
        self.changed(node)
        return True

    def _commit(self, ledger: list[int]) -> int:
        changed = self.finish()
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
        self.rewrites, self.early = [], {}

    # Before the batch

    def _parse(self, lines: list[Line]) -> list[_Read]:
        """Read and split the lines; nothing in here asks the database."""
        events: list[_Read] = []
        for line in lines:
            mark = self.chunks.reader.quick(line.text)
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
        for event in events:
            if isinstance(event, QuickMark):
                chunked.add(event.attempt)
                continue
            if event.parent is not None:
                scopes.add(event.parent)
            if event.kind != MARK:
                scopes.add(event.uuid)
            elif is_chunk(event):
                chunked.add(event.parent or b"")
            else:
                marks.add(event.uuid)
        self.prefetch(scopes | chunked)
        again: set[bytes] = set()
        for event in events:
            if not isinstance(event, QuickMark) and event.kind != MARK:
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

    def _read(self, seqs: list[int]) -> list[tuple[Parsed, int]]:
        """Events back from the log."""
        if not seqs:
            return []
        rows = [row for at in range(0, len(seqs), 500) for row in Event.objects.filter(seq__in=seqs[at : at + 500])]
        texts = stored.Reader().texts(rows)
        return [(parse(text), row.seq) for row, text in zip(rows, texts, strict=True)]

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
            text = other.line if other.line is not None else self._read([other.seq])[0][0].line
            theirs = canonical(text)
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
            start, end = self._said(node.start_seq), self._said(node.end_seq)
            mine = (event, packed, seq)
            self.retell(node, mine if event.kind == START else start, mine if event.kind == END else end)
            self._retell_marks(node)

    def _mark_conflict(self, event: Parsed, packed: Packed, seq: int, shown: bool) -> None:
        scope = self.find(event.parent)
        blocked = self.find(event.uuid)  # a call that never began, told by this mark
        if blocked is not None:
            self.touch(blocked, seq, event.at_ns // 1000, 0)
        if shown:
            hidden = [other.seq for other in self._known[(event.uuid, MARK)] if other.seq != seq]
            self.rewrites = [row for row in self.rewrites if row[0] not in hidden]
            self.tables.drop_rewrites(hidden)
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

    def _retell_marks(self, scope: Node) -> None:
        """Count the marks of a scope again: one of them has been displaced by another."""
        scope.own_rewrites, scope.failed = 0, None
        self.untell(scope)
        for event, seq in self._marks_of({scope.uuid}):
            self.mark_of(scope, event, seq, 0)

    def _marks_of(self, scopes: set[bytes]) -> list[tuple[Parsed, int]]:
        """The shown marks of these scopes, from this batch and from the log, by number."""
        known = {known.seq: known for kinds in self._known.values() for known in kinds}
        on_record = {seq for _, seq, flags in self.tables.orphans(scopes) if not flags & CONFLICT}
        here = {seq for seq, (event, _) in self._taken.items() if event.kind == MARK and event.parent in scopes}
        shown = [seq for seq in sorted(on_record | here) if seq not in known or not known[seq].flags & CONFLICT]
        told = [self._said(seq) for seq in shown]
        return [(event, seq) for event, _, seq in filter(None, told)]

    def tell_marked_sessions(self, nodes: Iterable[Node]) -> None:
        of = {node.uuid: node for node in nodes}
        for event, _ in self._marks_of(set(of)):
            self.mark_session(of[event.parent or b""], event)

    def recall(self, node: Node) -> None:
        node.told = True
        if node.start_seq is not None and node.start_seq == node.end_seq:  # blocked before it began
            return
        for said in filter(None, (self._said(node.start_seq), self._said(node.end_seq))):
            session_id, turn_id = facts.told_ids(said[0].envelope)
            node.told_session = node.told_session or session_id
            node.told_turn = node.told_turn or turn_id

    def _said(self, seq: int | None) -> tuple[Parsed, Packed, int] | None:
        """A shown start or end, from this batch or from the log."""
        if seq is None:
            return None
        if seq in self._taken:
            return (*self._taken[seq], seq)
        event, _ = self._read([seq])[0]
        return event, Packed(event.line, event.line, [], False), seq

    # Scopes that were not there when their marks came

    def create(self, uuid: bytes) -> Node:
        node = super().create(uuid)
        if uuid not in self._orphans and uuid not in self.early:
            return node
        hidden = {known.seq for same in self._known.values() for known in same if known.flags & CONFLICT}
        hidden |= {seq for _, seq, flags in self._orphans.get(uuid, ()) if flags & CONFLICT}
        earlier = [(event, seq, 0) for event, seq, _ in self._orphans.pop(uuid, ())]
        for event, seq, arrived_us in [*earlier, *self.early.pop(uuid, ())]:
            if seq in hidden:
                node.flag(FLAG.CONFLICT)
                self.touch(node, seq, event.at_ns // 1000, arrived_us)
            else:
                self.mark_of(node, event, seq, arrived_us)
        return node

    def scope_event(self, event: Parsed, packed: Packed, seq: int, arrived_us: int) -> None:
        new = self.nodes.get(event.uuid) is None
        super().scope_event(event, packed, seq, arrived_us)
        if new:
            chunks = self.chunks.known(event.uuid)
            if chunks is not None:
                self.chunks.dirty[event.uuid] = chunks

    def own_last_us(self, node: Node) -> int:
        latest = self.tables.last_ns(node.uuid)
        here = [e.at_ns for e, _ in self._taken.values() if node.uuid in (e.uuid, e.parent if e.kind == MARK else None)]
        chunks = self.chunks.known(node.uuid)
        return max(latest // 1000, *(at_ns // 1000 for at_ns in here), chunks.last_us if chunks else 0, 0)

    def _tell_chunks(self, attempt: bytes, chunks: Chunks) -> None:
        node = self.find(attempt)
        if node is None:
            return
        self.revive(node)
        if chunks.replaced:
            node.flag(FLAG.REPLACED_TEXT)
        if chunks.conflict:
            node.flag(FLAG.CONFLICT)
        self.touch(node, max(chunks.seq, node.seq), chunks.last_us, chunks.arrived_us)
        self.chunk(node, chunks.stream, chunks.first_us, chunks.count)

    def revive(self, node: Node) -> None:
        """What a scope read from the database does not hold in its columns."""
        if node.revived:
            return
        node.revived = True
        for event, _ in self._read([s for s in (node.end_seq,) if s is not None]):
            if event.kind == END:
                node.end = facts.read_scope_end(event, facts.metadata_of(event.envelope), node.role)
        if node.role != "attempt":
            return
        chunks = self.chunks.of(node.uuid)
        node.stream, node.first_chunk_us = chunks.stream, chunks.first_us
        for event, _ in self._read([seq for _, seq, flags in self.tables.orphans({node.uuid}) if not flags & CONFLICT]):
            self.failure(node, event)


def _masked(event: Parsed, packed: Packed) -> Parsed:
    """The event as it was masked, for everything that reads it."""
    clean = parse(packed.line)
    clean.replaced_text, clean.surrogates = event.replaced_text, event.surrogates
    return clean
