"""What the log says of scopes that are not in memory, or not all of it: read back when it is needed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from relayweb.recording.events.atof import END, MARK, Parsed, parse
from relayweb.recording.models import Event
from relayweb.recording.projection import facts
from relayweb.recording.projection.nodes import FLAG, Node
from relayweb.recording.projection.projection import Projection, is_block
from relayweb.recording.store import stored
from relayweb.recording.store.chunk_log import ChunkLog, Chunks
from relayweb.recording.store.content import Store
from relayweb.recording.store.pieces import Packed
from relayweb.recording.store.tables import Tables

CONFLICT = Event.Flag.CONFLICT
_MORE = 100
_MOST_BYTES = 8_000_000


class Known(msgspec.Struct, gc=False):
    """One event on record (or in this batch) of some identity."""

    seq: int
    digest: bytes
    at_ns: int
    flags: int
    line: bytes | None = None


class Recall(Projection):
    """A projection that knows the events of this batch, and finds those before it in the log."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.store = Store()
        self.chunks = ChunkLog(tables, self.store)
        self._known: dict[tuple[bytes, int], list[Known]] = {}
        self._were: dict[int, Parsed] = {}
        """Events read back from the log for this batch."""
        self._were_bytes = 0
        self._taken: dict[int, tuple[Parsed, Packed]] = {}
        self._orphans: dict[bytes, list[tuple[Parsed, int, int]]] = {}

    def _read(self, seqs: list[int]) -> list[tuple[Parsed, int]]:
        """Events back from the log."""
        if not seqs:
            return []
        rows = [row for at in range(0, len(seqs), 500) for row in Event.objects.filter(seq__in=seqs[at : at + 500])]
        texts = stored.Reader().texts(rows)
        return [(parse(text), row.seq) for row, text in zip(rows, texts, strict=True)]

    def _retell_marks(self, scope: Node) -> None:
        """Count the marks of a scope again: one of them has been displaced by another."""
        scope.own_rewrites, scope.failed, scope.heard, scope.heard_finish = 0, None, None, None
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
        event = self._back(seq)
        return None if event is None else (event, Packed(event.line, event.line, [], False), seq)

    def _back(self, seq: int) -> Parsed | None:
        """An event from the log, read with some more of known identity: if one is asked for, others will be."""
        if seq not in self._were:
            before = {known.seq for same in self._known.values() for known in same if known.line is None}
            self._read_back([seq, *sorted(before - self._were.keys() - {seq})[:_MORE]])
        return self._were.get(seq)

    def _read_back(self, seqs: list[int]) -> None:
        if self._were_bytes > _MOST_BYTES:
            self._were, self._were_bytes = {}, 0
        for event, number in self._read(seqs):
            self._were[number] = event
            self._were_bytes += len(event.line)

    def recall_all(self, nodes: Iterable[Node]) -> None:
        untold = [node for node in nodes if not node.told]
        for at in range(0, len(untold), _MORE):
            some = untold[at : at + _MORE]
            seqs = {seq for node in some for seq in (node.start_seq, node.end_seq) if seq is not None}
            self._read_back(sorted(seqs - self._were.keys() - self._taken.keys()))
            for node in some:
                self.recall(node)

    def revive_all(self, nodes: Iterable[Node]) -> None:
        asleep = [node for node in nodes if not node.revived]
        for at in range(0, len(asleep), _MORE):
            some = asleep[at : at + _MORE]
            self._read_back(sorted({node.end_seq for node in some if node.end_seq is not None} - self._were.keys()))
            self.chunks.prefetch({node.uuid for node in some if node.role == "attempt"})
            for node in some:
                self.revive(node)

    # Scopes that were not there when their marks came

    def create(self, uuid: bytes) -> Node:
        node = super().create(uuid)
        chunks = self.chunks.known(uuid)
        if chunks is not None:
            self.chunks.dirty[uuid] = chunks
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

    def own_last_us(self, node: Node) -> int:
        rows = list(self.tables.events((node.uuid,)))
        named = [*self._read([row[2] for row in rows if row[1] == MARK]), *self._taken.values()]
        told = [event.at_ns for event, _ in named if _is_of(event, node.uuid)]
        told += [row[4] for row in rows if row[1] != MARK]
        latest = max(self.tables.last_mark_ns(node.uuid), *told, 0) // 1000
        return max(latest, self.chunks.of(node.uuid).last_us)

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
        self.chunk(node, chunks.stream, chunks.first_us, chunks.count, len(chunks.seen))

    def revive(self, node: Node) -> None:
        """What a scope read from the database does not hold in its columns."""
        if node.revived:
            return
        node.revived = True
        if node.end_seq is not None:
            event = self._were.get(node.end_seq) or next((event for event, _ in self._read([node.end_seq])), None)
            if event is not None and event.kind == END:
                metadata = facts.metadata_of(event.envelope)
                node.end = facts.read_scope_end(event, metadata, facts.role_of(event.envelope, metadata))
        if node.role != "attempt":
            return
        chunks = self.chunks.of(node.uuid)
        node.stream, node.first_chunk_us = chunks.stream, chunks.first_us
        under = [seq for _, seq, flags in self.tables.orphans({node.uuid}) if not flags & CONFLICT]
        for event, seq in self._read(under):
            self.failure(node, event)
            self.hear(node, event, seq)


def _is_of(event: Parsed, scope: bytes) -> bool:
    """Whether an event is one of this scope. Of marks that bear its uuid only those are that tell of a refusal."""
    if event.kind != MARK:
        return event.uuid == scope
    return event.parent == scope or (event.uuid == scope and is_block(event))
