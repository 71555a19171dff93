"""Forgetting old turns, and content that nothing refers to, in slices short enough that recording goes on.

A turn goes with its sub-agents, their events, chunks and rewrites; a session goes when its last turn has gone. Each
slice is a transaction of its own that takes turns with the writers and then tells them to believe the database again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from relayweb.recording.models import ChunkBlock, Content, Event, Ledger, Scope
from relayweb.recording.store import blocks, encoding, search_index
from relayweb.recording.store.compression import CONTENT, EVENT
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing import copy_rows
from relayweb.recording.writing.recorder import Recorder
from relayweb.recording.writing.retelling import slices

SLICE = 20  # turns in one transaction
SCAN = 2_000  # rows read at once
REST = 0.02  # seconds between slices, for the writers
_FREED = 64  # pages given back in one transaction
_TABLES = ("event", "scope", "chunkblock", "rewrite", "content", "search", "mention")


@dataclass
class Pruned:
    """What has gone."""

    turns: int = 0
    scopes: int = 0
    events: int = 0
    contents: int = 0


Report = Callable[[Pruned], None]


def _silent(_: Pruned) -> None:
    pass


def older_than(cutoff_us: int, report: Report = _silent) -> Pruned:
    """Forget turns and sessions whose last event lies before `cutoff_us` (µs since 1970), and marks without a scope."""
    pruned = Pruned()
    while True:
        old = _oldest(SLICE, cutoff_us=cutoff_us)
        if not old:
            break
        _forget(old, pruned)
        report(pruned)
    _forget_stray_marks(cutoff_us, pruned)
    collect_garbage(pruned, report)
    return pruned


def matching(turns: Iterable[UUID], report: Report = _silent) -> Pruned:
    """Forget these turns, and sessions that then have nothing inside and do not run."""
    pruned, some = Pruned(), []
    for uuid in turns:
        some.append(uuid)
        if len(some) == SLICE:
            _forget_with_emptied(some, pruned)
            report(pruned)
            some = []
    if some:
        _forget_with_emptied(some, pruned)
    collect_garbage(pruned, report)
    return pruned


def down_to(size: int, report: Report = _silent) -> Pruned:
    """Forget the oldest turns, and sessions that then have nothing inside, until what the database holds is at most
    `size` bytes. Running ones stay, and what comes or changes meanwhile: else this had no end beside a busy agent.
    """
    pruned, newest = Pruned(), Ledger.objects.get().seq
    while used_bytes() > size:
        count = max(SLICE, Scope.objects.filter(is_turn=True).count() // 20)
        before = pruned.turns
        for _ in range(0, count, SLICE):
            old = _oldest(SLICE, newest=newest)
            if not old:
                break
            _forget_with_emptied(old, pruned)
            report(pruned)
        if pruned.turns == before:
            break
        collect_garbage(pruned, report)
    return pruned


def used_bytes() -> int:
    """Bytes that the record takes; free pages of an SQLite file, which will be used again, are not counted."""
    if connection.vendor == "sqlite":
        return (_pragma("page_count") - _pragma("freelist_count")) * _pragma("page_size")
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + " + ".join(f"pg_total_relation_size('recording_{t}')" for t in _TABLES))
        return int(cursor.fetchone()[0])


def give_back(rest: float = REST) -> int | None:
    """Give room that nothing uses any more back to the disk, in slices; returns the bytes, None where it cannot.

    PostgreSQL uses it again by itself. An SQLite file made before this was possible needs `rewrite` once.
    """
    if connection.vendor != "sqlite" or not _pragma("auto_vacuum"):
        return None
    before = _pragma("page_count")
    while _pragma("freelist_count"):
        free = _pragma("freelist_count")
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA incremental_vacuum({_FREED})")
            cursor.fetchall()
        if _pragma("freelist_count") >= free:
            break
        time.sleep(rest)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")  # the others would hold up who writes
        cursor.fetchall()
    return (before - _pragma("page_count")) * _pragma("page_size")


def rewrite() -> None:
    """Write the file anew without the room that nothing uses. Recording waits, and it needs as much room again."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
            cursor.execute("VACUUM")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            cursor.fetchall()
        else:
            for table in _TABLES:
                cursor.execute(f"VACUUM (FULL) recording_{table}")


def _pragma(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        return int(cursor.fetchone()[0])


def _oldest(limit: int, *, cutoff_us: int | None = None, newest: int | None = None) -> list[UUID]:
    """Homes to forget next: turns that are not running, and sessions with nothing inside; silent since that time, or
    unchanged since that number."""
    homes = Scope.objects.filter(is_home=True).exclude(status="running")
    if cutoff_us is not None:
        homes = homes.filter(last_us__lt=cutoff_us)
    if newest is not None:
        homes = homes.filter(seq__lte=newest)
    turns = list(homes.filter(is_turn=True).order_by("start_us", "uuid").values_list("uuid", flat=True)[:limit])
    return turns or list(_empty(homes).order_by("last_us").values_list("uuid", flat=True)[:limit])


def _empty(homes: QuerySet[Scope]) -> QuerySet[Scope]:
    """Of homes the sessions with nothing inside."""
    inner = Scope.objects.exclude(parent_turn_uuid=None).values("parent_turn_uuid")
    return homes.filter(is_turn=False, joined_uuid=None).exclude(uuid__in=inner)


def _forget_with_emptied(homes: list[UUID], pruned: Pruned) -> None:
    """Forget homes, and the sessions around them that then have nothing inside."""
    around = set(Scope.objects.filter(uuid__in=homes).values_list("parent_turn_uuid", flat=True)) - {None}
    _forget(homes, pruned)
    left = Scope.objects.filter(uuid__in=around, is_home=True).exclude(status="running")
    emptied = list(_empty(left).values_list("uuid", flat=True))
    if emptied:
        counted = pruned.turns
        _forget(emptied, pruned)
        pruned.turns = counted


def _forget(homes: list[UUID], pruned: Pruned) -> None:
    """Forget homes and everything inside, in one transaction; those around them count anew what is left."""
    found, edge = set(homes), list(homes)
    while edge:
        below = Scope.objects.filter(parent_turn_uuid__in=edge).values_list("uuid", flat=True)
        edge = [uuid for uuid in below if uuid not in found]
        found.update(edge)
    found |= set(Scope.objects.filter(joined_uuid__in=found).values_list("uuid", flat=True))
    _Forgetting(Tables(connection)).forget([uuid.bytes for uuid in found], pruned)
    pruned.turns += len(homes)
    time.sleep(REST)


class _Forgetting(Recorder):
    """A writer that deletes. Others notice, as they do when rows have gone."""

    def forget(self, homes: list[bytes], pruned: Pruned) -> None:
        try:
            ledger = self.begin()
            self.prefetch(homes)
            for home in filter(None, map(self.find, homes)):
                if home.parent_turn_uuid not in homes:
                    self.take_leave(home)
            self._delete(homes, pruned)
            self._absent.update(homes)
            ledger[2] += 1
            self._commit(ledger)
        except BaseException:
            self.abandon()
            self.tables.rollback()
            raise

    def _delete(self, homes: list[bytes], pruned: Pruned) -> None:
        tables, uuids = self.tables, [UUID(bytes=home) for home in homes]
        found = Scope.objects.filter(turn_uuid__in=uuids).values_list("uuid", flat=True)
        scopes = [uuid.bytes for uuid in found]
        gone = {seq for (seq,) in tables.seqs(scopes)} - self._left_around(scopes)
        search_index.forget((), gone)
        pruned.events += tables.delete("recording_event", "seq", sorted(gone))
        tables.delete("recording_chunkblock", "attempt_uuid", scopes)
        tables.delete("recording_stream", "attempt_uuid", scopes)
        tables.delete("recording_rewrite", "attempt_uuid", scopes)
        pruned.scopes += tables.delete("recording_scope", "uuid", scopes)
        for uuid in scopes:
            self.nodes.drop(uuid)

    def _left_around(self, scopes: list[bytes]) -> set[int]:
        """The marks of others that bear a uuid of these scopes. What they hang under is told anew, and what is left of
        what hung under these scopes."""
        going, left = set(scopes), set[int]()
        for some in slices([UUID(bytes=scope) for scope in scopes]):
            rows = Scope.objects.filter(uuid__in=some).values_list("start_seq", flat=True)
            own = {seq for seq in rows if seq is not None}  # of a call blocked before it began its mark
            marks = Event.objects.filter(uuid__in=some, kind=Event.Kind.MARK).exclude(seq__in=own)
            for seq, uuid in marks.values_list("seq", "mark_of"):
                if uuid is not None and uuid.bytes not in going:
                    left.add(seq)
                    self.doubt(uuid.bytes)
            for child in Scope.objects.filter(parent_uuid__in=some).values_list("uuid", flat=True):
                if child.bytes not in going:
                    self.doubt(child.bytes)
        return left

    def _keep_doubts(self) -> None:
        if self.doubts:
            copy_rows.put_unsettled(self.tables, self.doubts)
        super()._keep_doubts()


def _forget_stray_marks(cutoff_us: int, pruned: Pruned) -> None:
    known = Scope.objects.values("uuid")
    while True:
        stray = Event.objects.filter(kind=Event.Kind.MARK, at_ns__lt=cutoff_us * 1000).exclude(mark_of__in=known)
        uuids = [uuid.bytes for uuid in stray.values_list("uuid", flat=True)[:SCAN]]
        if not uuids:
            return
        with _alone() as tables:
            gone = tables.delete("recording_event", "uuid", uuids)
        pruned.events += gone
        time.sleep(REST)
        if not gone:
            return


class _alone:
    """A transaction that takes turns with the writers; they forget what they hold in memory when it ends."""

    def __enter__(self) -> Tables:
        self.tables = Tables(connection)
        self.ledger = self.tables.begin()
        return self.tables

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            seq, content_id, epoch, swept_us = self.ledger
            self.tables.commit(seq, content_id, epoch + 1, swept_us)
        else:
            self.tables.rollback()


# Content ------------------------------------------------------------------------------------------------------------


class _Used:
    """Numbers of contents that something refers to: one bit each, up to the newest there was at first."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self._bits = bytearray(newest // 8 + 1)
        self._later: set[int] = set()

    def add(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number <= self.newest:
                self._bits[number >> 3] |= 1 << (number & 7)
            else:
                self._later.add(number)

    def __contains__(self, number: int) -> bool:
        return number in self._later if number > self.newest else bool(self._bits[number >> 3] & 1 << (number & 7))


def collect_garbage(pruned: Pruned | None = None, report: Report = _silent) -> Pruned:
    """Delete contents that nothing refers to.

    The events are read without holding anybody up. Before each slice of deletions the events that came meanwhile are
    read as well, inside the transaction; and as each slice voids what the writers remember, none refers to what has
    gone. A content refers to such as were numbered before it, and goes before them: one that a writer finds is whole.
    """
    pruned = pruned or Pruned()
    newest = Content.objects.order_by("-id").values_list("id", flat=True).first() or 0
    used = _Used(newest)
    seen = _mark(used, 0, 0)
    for at in reversed(range(0, newest + 1, SCAN)):
        known = Content.objects.filter(id__gt=at, id__lte=min(at + SCAN, newest)).values_list("id", flat=True)
        idle = [number for number in known if number not in used]
        if not idle:
            continue
        with _alone() as tables:
            seen = _mark(used, *seen)
            idle = [number for number in idle if number not in used]
            search_index.forget(idle, ())
            pruned.contents += tables.delete("recording_content", "id", idle)
        report(pruned)
        time.sleep(REST)
    return pruned


def _mark(used: _Used, after_event: int, after_block: int) -> tuple[int, int]:
    """Mark what the events and blocks after these numbers refer to, and what that refers to in turn."""
    while True:
        rows = list(Event.objects.filter(seq__gt=after_event).order_by("seq").values_list("seq", "body")[:SCAN])
        if not rows:
            break
        after_event = rows[-1][0]
        _mark_deep(used, {ref for _, body in rows for ref in encoding.decode(bytes(body), EVENT.expand).refs})
    while True:
        found = ChunkBlock.objects.filter(id__gt=after_block, kind=ChunkBlock.Kind.MARKS).order_by("id")
        rows = list(found.values_list("id", "body")[:SCAN])
        if not rows:
            break
        after_block = rows[-1][0]
        used.add({m.template for _, body in rows for m in blocks.decode(blocks.MARKS, bytes(body))[0]})
    return after_event, after_block


def _mark_deep(used: _Used, refs: set[int]) -> None:
    refs = {ref for ref in refs if ref not in used}
    while refs:
        used.add(refs)
        inner: set[int] = set()
        some = sorted(refs)
        for at in range(0, len(some), 500):
            for body in Content.objects.filter(id__in=some[at : at + 500]).values_list("body", flat=True):
                inner.update(encoding.decode(bytes(body), CONTENT.expand).refs)
        refs = {ref for ref in inner if ref not in used}
