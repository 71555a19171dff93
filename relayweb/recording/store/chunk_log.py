"""The writer's side of chunk marks: deduplicated, and gathered into blocks.

Marks come one by one and are read by the block. Each commit writes what came as a small block; when enough are
together, or the attempt has ended, the small ones are replaced by one that is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapters import marks as names
from relayweb.recording.conventions import ChunkFacts, Stream, read_chunk_mark
from relayweb.recording.events import masking
from relayweb.recording.events.atof import Parsed, load, restore_surrogates
from relayweb.recording.store import blocks
from relayweb.recording.store.blocks import CONTENTS, MARKS, Mark
from relayweb.recording.store.chunk_marks import MarkReader, QuickMark
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.content import Store
from relayweb.recording.store.encoding import decode
from relayweb.recording.store.pieces import Piece
from relayweb.recording.store.recent import Recent
from relayweb.recording.store.tables import Tables

_SEAL_MARKS = 128
_SEAL_BYTES = 48_000
_MERGE_BLOCKS = 8
_NOTHING_SAID = Stream()
_REMEMBERED = 100_000  # marks of the attempts that came lately: a quarter of a kilobyte each


class _Open(msgspec.Struct, eq=False, gc=False):
    """The marks of one kind that are not sealed yet: those on record in `ids`, those of this batch in `fresh`."""

    ids: list[int] = []
    kept: list[Mark] = []
    fresh: list[Mark] = []


class Chunks(msgspec.Struct, eq=False, gc=False):
    """What the writer knows of one attempt's chunks."""

    seen: dict[bytes, tuple[int, ...]] = {}
    """uuid → hashes of the marks that came under it: more than one is a conflict."""
    uncounted: set[bytes] = set()
    """Uuids under which only contents came."""
    conflict: bool = False
    open: tuple[_Open, _Open] = msgspec.field(default_factory=lambda: (_Open(), _Open()))
    root: bytes | None = None
    stream: Stream | None = None
    first_us: int | None = None
    last_us: int = 0
    seq: int = 0
    arrived_us: int = 0
    count: int = 0
    replaced: bool = False


class ChunkLog:
    """All attempts whose chunks come in these days. Belongs to the writer's thread."""

    def __init__(self, tables: Tables, store: Store) -> None:
        self._tables = tables
        self.reader = MarkReader(store)
        self._attempts: Recent[bytes, Chunks] = Recent(2_000, "streams")
        self._marks = 0
        self._unnumbered: list[tuple[Mark, Piece]] = []
        self.dirty: dict[bytes, Chunks] = {}

    # Memory

    def prefetch(self, attempts: set[bytes], perhaps: Iterable[bytes] = ()) -> None:
        """Load what is on record of these attempts, where it is not in memory; of `perhaps` only what there is."""
        missing = [a for a in (*attempts, *perhaps) if self._attempts.get(a) is None]
        loaded: dict[bytes, Chunks] = {}
        rows = list(self._tables.blocks(missing))
        decoded = [blocks.decode(kind, body) for _, kind, _, _, body in rows]
        wanted = {m.template for marks, _ in decoded for m in marks if m.template}
        texts = {n: decode(body, CONTENT.expand).text for n, body in self._tables.contents(wanted)}
        for (attempt, kind, number, sealed, _), (marks, root) in zip(rows, decoded, strict=True):
            chunks = loaded.setdefault(attempt, Chunks())
            chunks.root = root or chunks.root
            self._marks += len(marks)
            for mark in marks:
                if kind == MARKS:
                    mark.text = texts[mark.template]
                self._take(chunks, kind, mark, _facts_of(mark) if kind == MARKS else None)
            if not sealed:
                chunks.open[kind].ids.append(number)
                chunks.open[kind].kept += marks
        for attempt in missing:
            if attempt in loaded or attempt in attempts:
                self._attempts.put(attempt, loaded.get(attempt) or Chunks())

    def known(self, attempt: bytes) -> Chunks | None:
        """What is in memory of an attempt."""
        return self._attempts.get(attempt)

    def of(self, attempt: bytes) -> Chunks:
        found = self._attempts.get(attempt)
        if found is None:
            self.prefetch({attempt})
            found = self._attempts.get(attempt)
        assert found is not None
        return found

    # Taking marks

    def add_quick(self, mark: QuickMark, seq: int, arrived_us: int) -> str | None:
        """As `add`; None if the mark must be parsed after all."""
        attempt = mark.attempt
        chunks = self._attempts.get(attempt) or self.of(attempt)
        if chunks.root is None:
            chunks.root = mark.root
        elif chunks.root != mark.root:  # the root of its block is a hole, any other is text
            return None
        told = self.reader.numbers(mark)
        if told is None:
            return None
        known, numbers, said = told
        made = Mark(seq, mark.uuid, mark.at_ns, known.text, numbers, known.piece.id)
        if said is not None or mark.uuid in chunks.seen:
            return self._add(chunks, attempt, MARKS, made, known.piece, said, arrived_us)
        chunks.seen[mark.uuid] = (hash((mark.at_ns, known.text, numbers)),)  # of its identity
        chunks.count += 1
        chunks.open[MARKS].fresh.append(made)
        if not made.template:
            self._unnumbered.append((made, known.piece))
        at_us = mark.at_ns // 1000
        if at_us > chunks.last_us:
            chunks.last_us = at_us
        if chunks.first_us is None or at_us < chunks.first_us:
            chunks.first_us = at_us
        if chunks.stream is None:
            chunks.stream = _NOTHING_SAID
        chunks.seq = seq
        if arrived_us > chunks.arrived_us:
            chunks.arrived_us = arrived_us
        self.dirty[attempt] = chunks
        return "new"

    def add(self, event: Parsed, seq: int, arrived_us: int) -> str:
        """Take one mark. Returns "new", "duplicate" or "conflict" (which is kept, too)."""
        assert event.parent is not None
        chunks = self.of(event.parent)
        if chunks.root is None:
            chunks.root = event.root
        chunks.replaced = chunks.replaced or event.replaced_text
        if event.envelope.name != names.CHUNKS:
            known, numbers, said = self.reader.read(event, chunks.root)
            mark = Mark(seq, event.uuid, event.at_ns, known.text, numbers, known.piece.id)
            return self._add(chunks, event.parent, MARKS, mark, known.piece, said, arrived_us)
        line, surrogates = event.line, event.surrogates
        split = masking.suspects_split(bytes(event.envelope.data))
        if split or masking.suspects_names(line) or masking.suspects_credentials(bytes(event.envelope.metadata)):
            line, surrogates = masking.mask_parsed(event, split=split)
        text = blocks.hole(event, restore_surrogates(line, surrogates), chunks.root)
        mark = Mark(seq, event.uuid, event.at_ns, text)
        return self._add(chunks, event.parent, CONTENTS, mark, None, None, arrived_us)

    def _add(
        self,
        chunks: Chunks,
        attempt: bytes,
        kind: int,
        mark: Mark,
        piece: Piece | None,
        said: ChunkFacts | None,
        arrived_us: int,
    ) -> str:
        before = chunks.seen.get(mark.uuid)
        if before is not None and hash(mark.identity) in before:
            return "duplicate"
        if piece is not None and not mark.template:
            self._unnumbered.append((mark, piece))
        chunks.open[kind].fresh.append(mark)
        self._take(chunks, kind, mark, said)
        chunks.seq, chunks.arrived_us = mark.seq, max(chunks.arrived_us, arrived_us)
        self.dirty[attempt] = chunks
        return "new" if before is None else "conflict"

    def _take(self, chunks: Chunks, kind: int, mark: Mark, said: ChunkFacts | None) -> None:
        before = chunks.seen.get(mark.uuid)
        if before is None:
            chunks.seen[mark.uuid] = (hash(mark.identity),)
            if kind == MARKS:
                chunks.count += 1
            else:
                chunks.uncounted.add(mark.uuid)
        else:
            if kind == MARKS and mark.uuid in chunks.uncounted:
                chunks.uncounted.remove(mark.uuid)
                chunks.count += 1
            chunks.seen[mark.uuid] = (*before, hash(mark.identity))
            chunks.conflict = True
        at_us = mark.at_ns // 1000
        chunks.last_us = max(chunks.last_us, at_us)
        if kind == MARKS:
            if chunks.first_us is None or at_us < chunks.first_us:
                chunks.first_us = at_us
            stream = chunks.stream or _NOTHING_SAID
            chunks.stream = stream.fold(said) if said is not None else stream

    # Writing

    def flush(self, ended: set[bytes]) -> None:
        """Write the blocks of this batch. `ended` names the attempts that have ended."""
        for mark, piece in self._unnumbered:
            mark.template = piece.id
        self._unnumbered = []
        gone: list[int] = []
        rows, owners = [], []
        # An end often comes in a later batch than the last chunk.
        silent = {a: c for a in ended if a not in self.dirty and (c := self._attempts.get(a)) is not None}
        for attempt, chunks in {**self.dirty, **silent}.items():
            for kind, part in enumerate(chunks.open):
                if not part.fresh and not (part.ids and attempt in ended):
                    continue
                self._marks += len(part.fresh)
                size = sum(len(m.text) for m in part.kept) + sum(len(m.text) for m in part.fresh) if kind else 0
                seal = attempt in ended or len(part.kept) + len(part.fresh) >= _SEAL_MARKS or size > _SEAL_BYTES
                if seal or len(part.ids) >= _MERGE_BLOCKS:
                    gone += part.ids
                    part.ids, written = [], part.kept + part.fresh
                else:
                    written = part.fresh
                body = blocks.encode(kind, written, chunks.root)
                rows.append((attempt, kind, written[0].seq, written[-1].seq, len(written), seal, body))
                owners.append((part, seal))
                part.kept = [] if seal else part.kept + part.fresh
                part.fresh = []
        self._tables.drop_blocks(gone)
        for (part, sealed), number in zip(owners, self._tables.put_blocks(rows), strict=True):
            if not sealed:
                part.ids.append(number)

    def committed(self) -> None:
        if self._attempts.trim(self._marks > _REMEMBERED // 2):
            self._marks = 0
        self.dirty = {}

    def forget(self) -> None:
        """The batch failed, or rows were deleted: believe the database."""
        self.dirty, self._unnumbered = {}, []
        self._attempts.clear()
        self._marks = 0
        self.reader.forget()

    def drop(self, attempt: bytes) -> None:
        """Another process has written this attempt."""
        self._attempts.drop(attempt)


def _facts_of(mark: Mark) -> ChunkFacts:
    text = blocks.fill(mark, "00000000-0000-0000-0000-000000000000", bytes(16))
    return read_chunk_mark(load(text).get("data"))
