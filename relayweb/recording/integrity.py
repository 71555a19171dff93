"""Whether the record is whole: every event can be read back, every number adds up. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256

from django.db import connection
from django.db.models import Count, Q, Sum

from relayweb.recording import blocks, content
from relayweb.recording.atof import BadEvent, parse
from relayweb.recording.compression import CONTENT
from relayweb.recording.models import ChunkBlock, Content, Event, Ledger, Role, Scope
from relayweb.recording.stored import Reader

SCAN = 1_000
_MOST = 20  # problems of one kind that are told one by one

Problem = tuple[str, str]
"""What kind, and where."""


def problems(progress: Callable[[str, int], None] = lambda name, count: None) -> Iterator[Problem]:
    """Everything that is wrong with the record. `progress` is told what has been looked at, and how much of it."""
    for name, check in (
        ("database", _database),
        ("contents", _contents),
        ("events", _events),
        ("chunk blocks", _blocks),
        ("scopes", _scopes),
        ("turns", _turns),
    ):
        counted = Counter[str]()
        for kind, where in check(counted):
            counted[kind] += 1
            if counted[kind] <= _MOST:
                yield kind, where
            elif counted[kind] == _MOST + 1:
                yield kind, "… and more"
        progress(name, counted[""])


def _database(counted: Counter[str]) -> Iterator[Problem]:
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA quick_check")
        for (line,) in cursor.fetchall():
            if line != "ok":
                yield "the database file is damaged", line


def _contents(counted: Counter[str]) -> Iterator[Problem]:
    reader, after = Reader(0), 0
    while rows := list(Content.objects.filter(id__gt=after).order_by("id")[:SCAN]):
        after = rows[-1].id
        counted[""] += len(rows)
        try:
            texts = reader.contents([row.id for row in rows if row.kind != Content.Kind.TEMPLATE])
        except Exception:
            texts = {}
        for row in rows:
            try:
                if row.kind == Content.Kind.TEMPLATE:
                    text = b"\0" + content.decode(bytes(row.body), CONTENT.expand).text
                else:
                    text = texts.get(row.id) or reader.contents([row.id])[row.id]
            except Exception as error:
                yield "a content cannot be read", f"{row.id}: {type(error).__name__}"
                continue
            if sha256(text).digest()[:16] != bytes(row.digest):
                yield "a content is not what its digest says", str(row.id)


def _events(counted: Counter[str]) -> Iterator[Problem]:
    reader, after = Reader(), 0
    newest = Ledger.objects.values_list("seq", flat=True).first() or 0
    while rows := list(Event.objects.filter(seq__gt=after).order_by("seq")[:SCAN]):
        after = rows[-1].seq
        counted[""] += len(rows)
        try:
            texts: list[bytes | None] = [*reader.texts(rows)]
        except Exception:
            texts = [None] * len(rows)
        for row, text in zip(rows, texts, strict=True):
            try:
                event = parse(text if text is not None else reader.texts([row])[0])
            except (BadEvent, Exception) as error:
                yield "an event cannot be read", f"{row.seq}: {type(error).__name__}"
                continue
            if (event.uuid, event.kind, event.at_ns) != (row.uuid.bytes, row.kind, row.at_ns):
                yield "an event is not what its row says", str(row.seq)
            elif sha256(event.line).digest()[:16] != bytes(row.digest):
                yield "an event is not what its digest says", str(row.seq)
            if row.seq > newest:
                yield "an event has a number that was never given", str(row.seq)
        yield from _without_scope(rows)


def _without_scope(rows: list[Event]) -> Iterator[Problem]:
    uuids = {row.uuid for row in rows if row.kind != Event.Kind.MARK}
    known = {}
    for uuid, start, end in Scope.objects.filter(uuid__in=uuids).values_list("uuid", "start_seq", "end_seq"):
        known[uuid] = (start, end)
    for row in rows:
        if row.kind != Event.Kind.MARK and known.get(row.uuid, (None, None))[row.kind] is None:
            yield "an event has no scope that shows it", f"{row.seq} ({row.uuid})"


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


def _scopes(counted: Counter[str]) -> Iterator[Problem]:
    after = None
    while True:
        scopes = (
            Scope.objects.order_by("uuid") if after is None else Scope.objects.filter(uuid__gt=after).order_by("uuid")
        )
        rows = list(scopes.values_list("uuid", "start_seq", "end_seq", "turn_uuid", "parent_uuid", "top")[:SCAN])
        if not rows:
            return
        after = rows[-1][0]
        counted[""] += len(rows)
        wanted = {seq for row in rows for seq in row[1:3] if seq is not None}
        told = dict(Event.objects.filter(seq__in=wanted).values_list("seq", "uuid"))
        near = {u for row in rows for u in (row[3], row[4]) if u is not None}
        there = set(Scope.objects.filter(uuid__in=near).values_list("uuid", flat=True))
        for uuid, start, end, turn, parent, top in rows:
            if any(seq is not None and told.get(seq) != uuid for seq in (start, end)):
                yield "a scope refers to an event that is not its own", str(uuid)
            if turn not in there:
                yield "a scope is counted by a turn that is not there", str(uuid)
            if parent is not None and (parent in there) == top and parent != uuid:
                yield "a scope does not hang where its parent is", str(uuid)


def _turns(counted: Counter[str]) -> Iterator[Problem]:
    attempt = Q(role=Role.ATTEMPT, joined_uuid=None)
    inside = (
        Scope.objects.values("turn_uuid")
        .annotate(
            n_attempts=Count("uuid", filter=attempt),
            n_calls=Count("uuid", filter=Q(role=Role.LOGICAL_CALL, joined_uuid=None)),
            n_tools=Count("uuid", filter=Q(role=Role.TOOL, joined_uuid=None)),
            n_input=Sum("input_tokens", filter=attempt),
            n_output=Sum("output_tokens", filter=attempt),
            n_chunks=Sum("chunk_count", filter=attempt),
        )
        .order_by()
    )
    counts = {row["turn_uuid"]: row for row in inside.iterator(chunk_size=SCAN)}
    homes = Scope.objects.filter(is_home=True).exclude(role=Role.ATTEMPT)
    for home in homes.iterator(chunk_size=SCAN):
        counted[""] += 1
        row = counts.get(home.uuid) or dict.fromkeys(("n_attempts", "n_calls", "n_tools"), 0)
        shown = (home.attempts, home.tools, home.chunk_count or 0, home.input_tokens, home.output_tokens)
        found = (
            row["n_attempts"],
            row["n_tools"],
            row.get("n_chunks") or 0,
            row.get("n_input"),
            row.get("n_output"),
        )
        if shown != found and home.role not in (Role.LOGICAL_CALL, Role.TOOL):
            yield "a turn does not add up", f"{home.uuid}: shows {shown}, holds {found}"
