"""The rows anew, from the log alone: what `check` compares those of the record with, and `check --repair` puts there.

They are written to temporary tables of the same names, which on their connection stand before the record's own: the
code is the writer's, and nothing of the record changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from relayweb.recording.conventions import pricing
from relayweb.recording.events.atof import MARK, Parsed, parse
from relayweb.recording.models import Event
from relayweb.recording.projection.nodes import FLAG, Node
from relayweb.recording.projection.projection import is_block
from relayweb.recording.projection.recall import CONFLICT
from relayweb.recording.store import stored
from relayweb.recording.store.chunk_log import ChunkLog, Chunks
from relayweb.recording.store.pieces import Packed
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import REPLACED, Recorder

SLICE = 500


class Aside(Tables):
    """Rows go to the temporary tables, in a transaction that others open and end."""

    def commit(self, seq: int, content_id: int, epoch: int, swept_us: int) -> None:
        pass


class _Blocks(ChunkLog):
    """Chunks are only read; blocks that cannot be count as none."""

    def prefetch(self, attempts: set[bytes], perhaps: Iterable[bytes] = ()) -> None:
        wanted = {*attempts, *perhaps}
        try:
            super().prefetch(set(), wanted)
        except Exception:  # one of them cannot be read: find out which
            for attempt in wanted:
                try:
                    super().prefetch(set(), (attempt,))
                except Exception:  # this one; `check` names the block
                    self._attempts.put(attempt, Chunks())
        super().prefetch(attempts)

    def flush(self, ended: set[bytes]) -> None:
        pass


class Replay(Recorder):
    """A writer whose events are those on record already."""

    def __init__(self, tables: Tables, before: str) -> None:
        """`before` is the table of the rows as they were."""
        super().__init__(tables)
        self.chunks = _Blocks(self.tables, self.store)
        self.prices = pricing.table()
        self._before = before
        self._ledger = [-1, 0, 0, 0]
        self._costs: dict[bytes, tuple[int | None, str | None]] = {}
        self._only_rows = False

    def run(self, progress: Callable[[int], None] = lambda _: None, log: Iterable[list[Event]] | None = None) -> None:
        """Tell these events, or everything in the log. `progress` is told how many events that were so far."""
        count, hidden = 0, []
        for rows in _log() if log is None else log:
            count += len(rows)
            hidden += [row.seq for row in rows if row.flags & CONFLICT]
            self._tell([row for row in rows if not row.flags & CONFLICT])
            progress(count)
        for at in range(0, len(hidden), SLICE):
            self._hide(list(Event.objects.filter(seq__in=hidden[at : at + SLICE])))
        self._interrupt_again()

    def _tell(self, rows: list[Event]) -> None:
        told = [(row, event) for row, event in zip(rows, _events(rows), strict=True) if event is not None]
        scopes = {event.uuid for _, event in told if event.kind != MARK or is_block(event)}
        self.prefetch(scopes | {event.parent for _, event in told if event.kind != MARK and event.parent is not None})
        new = {uuid for uuid in scopes if self.nodes.get(uuid) is None}
        self.chunks.prefetch(set(), new)
        orphans = {seq: flags for _, seq, flags in self.tables.orphans(new)}
        for event, seq in self._read(list(orphans)):
            self._orphans.setdefault(event.parent or b"", []).append((event, seq, orphans[seq]))
        self._costs = self._priced(scopes)
        for row, event in told:
            packed = Packed(event.line, event.line, [], False)
            if event.kind != MARK:
                self.scope_event(event, packed, row.seq, 0)
                continue
            self._only_rows = True  # what it says of its scope was told when that came up
            self.mark(event, packed, row.seq, 0)
            self._only_rows, self.early = False, {}
        for attempt, chunks in self.chunks.dirty.items():
            self._tell_chunks(attempt, chunks)
        self._put()

    def _hide(self, rows: list[Event]) -> None:
        """Events that another of their identity displaced, once that is there."""
        for row, event in zip(rows, _events(rows), strict=True):
            if event is None:
                continue
            around = self.find(event.parent if event.kind == MARK else event.uuid)
            blocked = self.find(event.uuid) if event.kind == MARK and is_block(event) else None
            for node in filter(None, (around, blocked)):
                self.touch(node, row.seq, event.at_ns // 1000, 0)
                self.changed(node)
            if around is not None:
                around.flag(FLAG.CONFLICT)
        self._put()

    def _interrupt_again(self) -> None:
        """Silence is in no event: what was found interrupted stays so."""
        sql = f"SELECT uuid FROM {self._before} WHERE status = 'interrupted' AND end_seq IS NULL"
        found = [self.tables.uuid_out(uuid) or b"" for (uuid,) in self.tables._run(sql).fetchall()]
        for at in range(0, len(found), SLICE):
            self.prefetch(found[at : at + SLICE])
            for node in filter(None, map(self.find, found[at : at + SLICE])):
                if node.end_seq is None and node.status == "running":
                    self.silent(node)
            self._put()

    def _put(self) -> None:
        self._commit(self._ledger)

    # What the writer does that does not hold here

    def create(self, uuid: bytes) -> Node:
        only, self._only_rows = self._only_rows, False  # a call that never began comes up with its mark
        node = super().create(uuid)
        self._only_rows = only
        return node

    def mark_of(self, scope: Node, event: Parsed, seq: int, arrived_us: int) -> None:
        if not self._only_rows:
            super().mark_of(scope, event, seq, arrived_us)

    def settle(self, node: Node) -> None:
        super().settle(node)
        cost, version = self._costs.get(node.uuid, (None, pricing.RELAY))
        if node.role != "attempt" or pricing.RELAY in (version, node.price_version) or version == self.prices.version:
            return
        node.cost_pusd, node.price_version = cost, version  # of a table that was in force then
        node.wasted_pusd = cost if node.status in ("failed", "cancelled", "interrupted") else None

    def _priced(self, scopes: set[bytes]) -> dict[bytes, tuple[int | None, str | None]]:
        sql = f"SELECT uuid, cost_pusd, price_version FROM {self._before} WHERE uuid"
        found = self.tables._in(sql, [self.tables.uuid_in(uuid) for uuid in scopes])
        return {self.tables.uuid_out(uuid) or b"": (cost, version) for uuid, cost, version in found}

    def _read(self, seqs: list[int]) -> list[tuple[Parsed, int]]:
        found = []
        for at in range(0, len(seqs), SLICE):
            rows = list(Event.objects.filter(seq__in=seqs[at : at + SLICE]))
            found += [(event, row.seq) for row, event in zip(rows, _events(rows), strict=True) if event is not None]
        return found


def _log() -> Iterator[list[Event]]:
    after = 0
    while rows := list(Event.objects.filter(seq__gt=after).order_by("seq")[:SLICE]):
        yield rows
        after = rows[-1].seq


def _events(rows: Sequence[Event]) -> Iterator[Parsed | None]:
    """Events of the log; None for one that cannot be read."""
    reader = stored.Reader()
    try:
        texts: list[bytes | None] = [*reader.texts(rows)]
    except Exception:  # one of them cannot be read: each is tried alone below
        texts = [None] * len(rows)
    for row, text in zip(rows, texts, strict=True):
        try:
            event = parse(text if text is not None else reader.texts([row])[0])
        except Exception:  # `check` names it
            yield None
            continue
        event.replaced_text = bool(row.flags & REPLACED)
        yield event
