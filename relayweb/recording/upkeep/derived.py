"""Whether what is worked out a moment later is what the log says: the word index and the figures of streams."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.db import DatabaseError, connection
from django.db.models import Max

from relayweb.recording.models import ChunkBlock, Ledger, Stream
from relayweb.recording.reading import rhythm
from relayweb.recording.store import search_index
from relayweb.recording.store.search_index import as_parameter
from relayweb.recording.store.stored import Reader

Problem = tuple[str, str]
K = TypeVar("K")

_BATCH = 500
_ORIGINS = (("doc > 0", "recording_content WHERE id = m.doc"), ("doc < 0", "recording_event WHERE seq = -m.doc"))
_LACKS = "the word index lacks a text"
_DAMAGED = "the word index is damaged"
_TOO_MUCH = "the word index mentions what is not on record"
_FIGURES = "the figures of a stream are not what its chunks say"


def streams(counted: Counter[str]) -> Iterator[Problem]:
    """Figures that are wrong, missing or left over. Those of chunks that nobody has looked at yet are none of these."""
    reached = Stream.objects.aggregate(newest=Max("seq"))["newest"] or 0
    marks = ChunkBlock.objects.filter(kind=ChunkBlock.Kind.MARKS)
    known = set(marks.values_list("attempt_uuid", flat=True).distinct())
    for uuid in Stream.objects.values_list("attempt_uuid", flat=True):
        if uuid not in known:
            yield _FIGURES, str(uuid)
    settled = marks.values("attempt_uuid").annotate(newest=Max("last_seq")).filter(newest__lte=reached)
    attempts = dict(settled.order_by("attempt_uuid").values_list("attempt_uuid", "newest"))
    counted[""] += len(attempts)
    for some in _cut(list(attempts)):
        there = {row.attempt_uuid: _figures(row) for row in Stream.objects.filter(attempt_uuid__in=some)}
        for row in rhythm.measured({uuid: attempts[uuid] for uuid in some}):
            if there.get(row.attempt_uuid) != _figures(row):
                yield _FIGURES, str(row.attempt_uuid)


def _figures(row: Stream) -> tuple[object, ...]:
    return row.count, row.stalls, row.stalled_us, row.longest_us, bytes(row.gaps)


def words(counted: Counter[str]) -> Iterator[Problem]:
    """Texts up to the event the index has reached that cannot be found, or not by whom they were said."""
    newest = Ledger.objects.values_list("seq", flat=True).first() or 0
    if not search_index.is_current() or search_index.reached() > newest:
        return  # it is made anew
    if connection.vendor == "sqlite" and (damage := _damage()):
        yield _DAMAGED, damage
        return
    reader, after, end = Reader(), 0, search_index.reached()
    while events := list(search_index.following(after).filter(seq__lte=end)[:_BATCH]):
        after = events[-1].seq
        counted[""] += len(events)
        wanted: defaultdict[int, set[UUID]] = defaultdict(set)
        for event in events:
            try:
                found = search_index.said(event, reader)
            except Exception:  # which is told of the event itself
                continue
            if found is None:
                continue
            for number in found.history:
                wanted[number] |= set()
            inline = (-event.seq,) if found.message is None and "".join(found.inline).strip() else ()
            for number in (*found.spoken, *inline):
                wanted[number].add(found.scope)
        yield from _missing(wanted, reader)
    for column, table in (
        ("doc", "recording_content WHERE id = m.doc"),
        ("-doc", "recording_event WHERE seq = -m.doc"),
    ):
        sql = f"SELECT DISTINCT doc FROM recording_mention m WHERE {column} > 0 AND NOT EXISTS (SELECT 1 FROM {table})"
        for (number,) in _fetch(sql):
            yield _TOO_MUCH, str(number)


def _damage() -> str | None:
    """What stops the index from being read in full. SQLite's own check of it would hold the writer up meanwhile."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE VIRTUAL TABLE temp.indexed_words USING fts5vocab(main, recording_search, instance)")
            try:
                cursor.execute("SELECT count(*), count(DISTINCT doc) FROM temp.indexed_words")
                cursor.fetchall()
            finally:
                cursor.execute("DROP TABLE temp.indexed_words")
    except DatabaseError as error:
        return str(error)
    return None


def _missing(wanted: Mapping[int, Collection[UUID]], reader: Reader) -> Iterator[Problem]:
    """Of documents, each with the scopes that said it, those that are not in the index as such."""
    index = "recording_search WHERE rowid" if connection.vendor == "postgresql" else "recording_search_docsize WHERE id"
    for some in _cut(sorted(wanted)):
        marks = ", ".join(["%s"] * len(some))
        said = set(_fetch(f"SELECT doc, scope_uuid FROM recording_mention WHERE doc IN ({marks})", some))
        told = {number for number, _ in said}
        there = {number for (number,) in _fetch(f"SELECT {index.rpartition(' ')[2]} FROM {index} IN ({marks})", some)}
        silent = set(some) - there
        silent -= {number for number, text in search_index.texts_of(sorted(silent), reader) if not text.strip()}
        for number in some:
            unsaid = [scope for scope in wanted[number] if (number, as_parameter(scope)) not in said]
            if unsaid or number in silent or number not in told:
                yield _LACKS, " of ".join(map(str, (number, *unsaid[:1])))


def _cut(values: Sequence[K]) -> Iterator[Sequence[K]]:
    for at in range(0, len(values), _BATCH):
        yield values[at : at + _BATCH]


def _fetch(sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def begin_anew(kinds: Collection[str]) -> None:
    """Have what problems of these kinds tell of worked out again, by the thread that does so."""
    if _FIGURES in kinds:
        Stream.objects.all().delete()
    if not {_LACKS, _DAMAGED, _TOO_MUCH}.isdisjoint(kinds):
        search_index.clear()
