"""Whether the record is whole: every event can be read back, and the rows are what the events say. And mending it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count, Q

from relayweb import conf
from relayweb.recording.events.atof import BadEvent
from relayweb.recording.models import ChunkBlock, Content, Event, Ledger, Scope
from relayweb.recording.projection import conflicts
from relayweb.recording.store import blocks, content, encoding
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.stored import Reader
from relayweb.recording.store.tables import Tables
from relayweb.recording.upkeep import derived, retention
from relayweb.recording.writing.copies import RunRecorder
from relayweb.recording.writing.rebuilding import Rebuilt
from relayweb.recording.writing.recorder import Recorder

SCAN = 1_000
_SHOWN = [flags for flags in range(2 * max(Event.Flag)) if not flags & Event.Flag.CONFLICT]
_MOST = 20  # problems of one kind that are told one by one

Problem = tuple[str, str]
"""What kind, and where."""


def problems(
    progress: Callable[[str, int], None] = lambda name, count: None, only: Collection[str] = ()
) -> Iterator[Problem]:
    """Everything that is wrong with the record. `progress` is told what has been looked at, and how much of it."""
    for name, check in (
        ("database", _database),
        ("contents", _contents),
        ("events", _events),
        ("conflicts", _conflicts),
        ("chunk blocks", _blocks),
        ("events told again", _rows),
        ("streams", derived.streams),
        ("word index", derived.words),
    ):
        if only and name not in only:
            continue
        counted = Counter[str]()
        for kind, where in check(counted):
            counted[kind] += 1
            if counted[kind] <= _MOST:
                yield kind, where
            elif counted[kind] == _MOST + 1:
                yield kind, "… and more"
        progress(name, counted[""])


LOG = frozenset(
    ("the database file is damaged", "an event cannot be read", "an event is not what its row says")
    + ("an event is not what its digest says", "a content cannot be read", "a content is not what its digest says")
    + ("a chunk block cannot be read", "a chunk block refers to a content that is not there")
)
"""Damage to what was recorded itself, which nothing on record can mend."""


@dataclass
class Mended:
    """What was put right."""

    rows: int = 0
    marks: int = 0
    """Events, contents and chunk blocks whose rows said something else than they do."""
    contents: int = 0
    """Contents that nothing referred to."""


def mend(progress: Callable[[str, int], None] = lambda name, count: None) -> Mended:
    """Make everything that follows from the log anew, where it is not what the log says. Recording waits meanwhile.

    Raises:
        Damaged: the log itself cannot be read everywhere; nothing was changed.
    """
    lost = [f"{kind}: {where}" for kind, where in problems(only=("database", "contents", "events", "chunk blocks"))
            if kind in LOG]  # fmt: skip
    if lost:
        raise Damaged(lost)
    done = Mended()
    with transaction.atomic():
        done.marks = _mend_blocks() + _mend_conflicts() + _mend_contents()
    RunRecorder(Tables(connection)).clear_up()
    done.rows = Rebuilt().mend(lambda count: progress("events told again", count))
    newest = Ledger.objects.values_list("seq", flat=True).first() or 0
    done.rows += Scope.objects.filter(seq__gt=newest).update(seq=newest)
    now_us = time.time_ns() // 1000
    derived.begin_anew({kind for kind, _ in problems(only=("streams", "word index"))})
    Recorder(Tables(connection)).sweep(now_us, now_us - conf.INTERRUPT_AFTER * 1_000_000, 0)
    done.contents = retention.collect_garbage().contents
    return done


class Damaged(Exception):
    """What cannot be read, in `args[0]`."""


def _mend_blocks() -> int:
    count = 0
    for row in ChunkBlock.objects.order_by("id").iterator(chunk_size=SCAN):
        marks, _ = blocks.decode(row.kind, bytes(row.body))
        told = len(marks), marks[0].seq, marks[-1].seq
        if told != (row.count, row.first_seq, row.last_seq):
            row.count, row.first_seq, row.last_seq = told
            row.save(update_fields=("count", "first_seq", "last_seq"))
            count += 1
    return count


def _mend_contents() -> int:
    count = 0
    for row, text in _read_contents(Counter()):
        if isinstance(text, bytes) and row.size != _size(row, text):
            row.size = _size(row, text)
            row.save(update_fields=("size",))
            count += 1
    return count


def _mend_conflicts() -> int:
    return sum(conflicts.show_one(UUID(uuid)) for uuid in {where for _, where in _conflicts(Counter())})


def _database(counted: Counter[str]) -> Iterator[Problem]:
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA quick_check")
        for (line,) in cursor.fetchall():
            if line != "ok":
                yield "the database file is damaged", line


def _contents(counted: Counter[str]) -> Iterator[Problem]:
    for row, text in _read_contents(counted):
        if isinstance(text, Exception):
            yield "a content cannot be read", f"{row.id}: {type(text).__name__}"
        elif sha256(text).digest()[:16] != bytes(row.digest):
            yield "a content is not what its digest says", str(row.id)
        elif row.size != _size(row, text):
            yield "a content is not as long as its row says", str(row.id)


def _size(row: Content, text: bytes) -> int:
    return len(text) - (row.kind == Content.Kind.TEMPLATE)


def _read_contents(counted: Counter[str]) -> Iterator[tuple[Content, bytes | Exception]]:
    """Each content with its text as it is digested, or with why it cannot be read."""
    reader, after = Reader(0), 0
    while rows := list(Content.objects.filter(id__gt=after).order_by("id")[:SCAN]):
        after = rows[-1].id
        counted[""] += len(rows)
        try:
            texts = reader.contents([row.id for row in rows if row.kind != Content.Kind.TEMPLATE])
        except Exception:  # one of them cannot be read: each is tried alone below
            texts = {}
        for row in rows:
            try:
                if row.kind == Content.Kind.TEMPLATE:
                    yield row, b"\0" + encoding.decode(bytes(row.body), CONTENT.expand).text
                else:
                    yield row, texts.get(row.id) or reader.contents([row.id])[row.id]
            except Exception as error:
                yield row, error


def _events(counted: Counter[str]) -> Iterator[Problem]:
    reader, store, after = Reader(), content.Store(0, masks=False), 0
    while rows := list(Event.objects.filter(seq__gt=after).order_by("seq")[:SCAN]):
        after = rows[-1].seq
        newest = _newest()  # after the rows: others record meanwhile
        counted[""] += len(rows)
        store.forget()
        try:
            texts: list[bytes | None] = [*reader.texts(rows)]
        except Exception:  # as above
            texts = [None] * len(rows)
        for row, text in zip(rows, texts, strict=True):
            try:
                event = store.parse(text if text is not None else reader.texts([row])[0])
                digest = store.pack(event).digest
            except (BadEvent, Exception) as error:
                yield "an event cannot be read", f"{row.seq}: {type(error).__name__}"
                continue
            if (event.uuid, event.kind, event.at_ns) != (row.uuid.bytes, row.kind, row.at_ns):
                yield "an event is not what its row says", str(row.seq)
            elif digest != bytes(row.digest):
                yield "an event is not what its digest says", str(row.seq)
            if row.seq > newest:
                yield "an event has a number that was never given", str(row.seq)


def _newest() -> int:
    return Ledger.objects.values_list("seq", flat=True).first() or 0


def _conflicts(counted: Counter[str]) -> Iterator[Problem]:
    shown = Count("seq", filter=Q(flags__in=_SHOWN))
    wrong = Event.objects.values("uuid", "kind").annotate(shown=shown).exclude(shown=1).order_by()
    for uuid in wrong.values_list("uuid", flat=True).iterator(chunk_size=SCAN):
        yield "of events of one identity not just one is shown", str(uuid)


def _blocks(counted: Counter[str]) -> Iterator[Problem]:
    after = 0
    while rows := list(ChunkBlock.objects.filter(id__gt=after).order_by("id")[:SCAN]):
        after = rows[-1].id
        wanted: dict[int, list[int]] = {}
        for row in rows:
            try:
                marks, root = blocks.decode(row.kind, bytes(row.body))
            except Exception as error:
                yield "a chunk block cannot be read", f"{row.id}: {type(error).__name__}"
                continue
            counted[""] += len(marks)
            if (len(marks), marks[0].seq, marks[-1].seq) != (row.count, row.first_seq, row.last_seq):
                yield "a chunk block is not what its row says", str(row.id)
            for mark in marks:
                if row.kind == ChunkBlock.Kind.MARKS:
                    wanted.setdefault(mark.template, []).append(row.id)
        there = set(Content.objects.filter(id__in=wanted).values_list("id", flat=True))
        for template in wanted.keys() - there:
            yield "a chunk block refers to a content that is not there", f"{wanted[template][0]}: {template}"


def _rows(counted: Counter[str]) -> Iterator[Problem]:
    def progress(count: int) -> None:
        counted[""] = count

    unknown = list(Scope.objects.filter(seq__gt=_newest()).values_list("uuid", "seq")[: _MOST + 1])
    newest = _newest() if unknown else 0  # others may have given it meanwhile
    for uuid, seq in unknown:
        if seq > newest:
            yield "a scope has a number that was never given", str(uuid)
    RunRecorder(Tables(connection)).clear_up()  # what is noted as unsettled is no damage
    for kind, key, where in Rebuilt().differences(progress):
        name = key if isinstance(key, UUID | int) else UUID(bytes=bytes(key))
        yield kind, f"{name}: {where}" if where else str(name)
