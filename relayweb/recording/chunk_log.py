"""The writer's side of chunk marks: recognised, deduplicated, and gathered into blocks.

Marks come one by one and are read by the block. Each commit writes what came as a small block; when enough are
together, or the attempt has ended, the small ones are replaced by one that is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable

from adapters import marks as names
from relayweb.recording import blocks, masking
from relayweb.recording.atof import Parsed, load
from relayweb.recording.blocks import CONTENTS, MARKS, Mark
from relayweb.recording.compression import CONTENT
from relayweb.recording.content import Piece, Store, decode
from relayweb.recording.conventions import ChunkFacts, Stream, read_chunk_mark
from relayweb.recording.facts import as_dict
from relayweb.recording.recent import Recent
from relayweb.recording.tables import Tables

CHUNK = "llm.chunk"
_SEAL_MARKS = 128
_SEAL_BYTES = 48_000
_MERGE_BLOCKS = 8
_TEMPLATES = 4096  # remembered; more means that marks differ in more than numbers


def is_chunk(event: Parsed) -> bool:
    return event.envelope.name in (CHUNK, names.CHUNKS) and event.parent is not None and event.kind == 2


class _Open:
    """The marks of one kind that are not sealed yet: those on record in `ids`, those of this batch in `fresh`."""

    __slots__ = ("fresh", "ids", "kept")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.kept: list[Mark] = []
        self.fresh: list[Mark] = []


class Chunks:
    """What the writer knows of one attempt's chunks."""

    __slots__ = ("count", "first_us", "last_us", "open", "replaced", "root", "seen", "stream")

    def __init__(self) -> None:
        self.seen: dict[bytes, set[int]] = {}
        """uuid → digests of the marks that came under it: more than one is a conflict."""
        self.open = (_Open(), _Open())
        self.root: bytes | None = None
        self.stream: Stream | None = None
        self.first_us: int | None = None
        self.last_us = 0
        self.count = 0
        self.replaced = False


class ChunkLog:
    """All attempts whose chunks come in these days. Belongs to the writer's thread."""

    def __init__(self, tables: Tables, store: Store) -> None:
        self._tables = tables
        self._store = store
        self._attempts: Recent[bytes, Chunks] = Recent(2_000)
        self._facts: dict[bytes, tuple[Piece, bytes, tuple[int | None, ...], ChunkFacts | None]] = {}
        """By a mark's text without its index: its template, the text and holes of that, and what it says if anything."""
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

    def add(self, event: Parsed, seq: int) -> str:
        """Take one mark. Returns "new", "duplicate" or "conflict" (which is kept, too)."""
        assert event.parent is not None
        chunks = self.of(event.parent)
        if chunks.root is None:
            chunks.root = event.root
        line, replaced = event.line, event.replaced_text
        if event.envelope.name == names.CHUNKS:
            kind = CONTENTS
            if masking.suspects_names(line) or masking.suspects_credentials(bytes(event.envelope.metadata)):
                line = masking.mask_event(line)
            text = blocks.hole(event, line if line is not event.line else blocks.original(event, line), chunks.root)
            mark, said, piece = Mark(seq, event.uuid, event.at_ns, text), None, None
        else:
            kind = MARKS
            mark, said, piece = self._mark(event, seq, chunks.root)
        before = chunks.seen.get(event.uuid)
        digest = _digest(mark)
        if before is not None and digest in before:
            return "duplicate"
        if piece is not None:
            self._unnumbered.append((mark, piece))
        chunks.open[kind].fresh.append(mark)
        chunks.replaced = chunks.replaced or replaced
        self._take(chunks, kind, mark, said)
        self.dirty[event.parent] = chunks
        return "new" if before is None else "conflict"

    def _mark(self, event: Parsed, seq: int, root: bytes | None) -> tuple[Mark, ChunkFacts | None, Piece]:
        text, index = blocks.take_index(blocks.hole(event, event.line, root))
        if event.surrogates:
            text, index = blocks.hole(event, blocks.original(event, event.line), root), None
        known = self._facts.get(text)
        if known is None:
            data = as_dict(event.envelope.data)
            if masking.suspects_names(text) or masking.suspects_credentials(text):
                line = masking.mask_event(event.line)
                text, index = blocks.take_index(blocks.hole(event, line, root))
                data = load(line).get("data")
            template, slots = (text, ()) if event.surrogates else blocks.take_numbers(text)
            facts = read_chunk_mark(data)
            plain = facts.finish_reason is None and facts.error is None and not facts.usage.known
            if len(self._facts) > _TEMPLATES:
                self._facts.clear()
            known = self._facts[text] = (self._store.template(template), template, slots, None if plain else facts)
        piece, template, slots, said = known
        numbers = tuple([index or 0 if n is None else n for n in slots])
        if said is not None and said.index != index:
            said = ChunkFacts(index, said.kind, said.event_type, said.finish_reason, said.usage, said.error)
        return Mark(seq, event.uuid, event.at_ns, template, numbers, piece.id), said, piece

    def _take(self, chunks: Chunks, kind: int, mark: Mark, said: ChunkFacts | None) -> None:
        digests = chunks.seen.get(mark.uuid)
        if digests is None:
            chunks.seen[mark.uuid] = {_digest(mark)}
            chunks.count += kind == MARKS
        else:
            digests.add(_digest(mark))
        at_us = mark.at_ns // 1000
        chunks.last_us = max(chunks.last_us, at_us)
        if kind == MARKS:
            if chunks.first_us is None or at_us < chunks.first_us:
                chunks.first_us = at_us
            stream = chunks.stream or Stream()
            chunks.stream = stream.fold(said) if said is not None else stream

    # Writing

    def flush(self, ended: set[bytes]) -> None:
        """Write the blocks of this batch. `ended` names the attempts that have ended."""
        for mark, piece in self._unnumbered:
            mark.template = piece.id
        self._unnumbered = []
        gone: list[int] = []
        rows, owners = [], []
        for attempt, chunks in self.dirty.items():
            for kind, part in enumerate(chunks.open):
                if not part.fresh:
                    continue
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
        self.dirty = {}
        self._attempts.trim()

    def forget(self) -> None:
        """The batch failed, or rows were deleted: believe the database."""
        self.dirty, self._unnumbered = {}, []
        self._attempts.clear()
        self._facts.clear()

    def drop(self, attempt: bytes) -> None:
        """Another process has written this attempt."""
        self._attempts.drop(attempt)


def _digest(mark: Mark) -> int:
    return hash(mark.identity)


def _facts_of(mark: Mark) -> ChunkFacts:
    text = blocks.fill(mark, "00000000-0000-0000-0000-000000000000", bytes(16))
    return read_chunk_mark(load(text).get("data"))
