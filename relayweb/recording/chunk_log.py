"""The writer's side of chunk marks: recognised, deduplicated, and gathered into blocks.

Marks come one by one and are read by the block. Each commit writes what came as a small block; when enough are
together, or the attempt has ended, the small ones are replaced by one that is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapters import marks as names
from relayweb.recording import blocks, masking
from relayweb.recording.atof import (
    BadEvent,
    Parsed,
    load,
    parse_timestamp,
    restore_surrogates,
    uuid_bytes,
    uuid_text,
)
from relayweb.recording.blocks import CONTENTS, INDEX, MARKS, Mark
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
_QUICK = 1_000  # bytes: no longer line can be a mark that is worth recognising
_INDEX = len(INDEX)
_NOTHING_SAID = Stream()
_REMEMBERED = 100_000  # marks of the attempts that came lately: a quarter of a kilobyte each
_TEMPLATES = 4096  # remembered; more means that marks differ in more than numbers


def is_chunk(event: Parsed) -> bool:
    return event.envelope.name in (CHUNK, names.CHUNKS) and event.parent is not None and event.kind == 2


class QuickMark(msgspec.Struct, gc=False):
    """A mark recognised by its bytes alone: all but its index, uuids and time is as in a mark seen before."""

    attempt: bytes
    root: bytes
    at_ns: int
    uuid: bytes
    index: int
    look: _Look


class _Look(msgspec.Struct, gc=False):
    """A mark that was parsed, and by whose bytes others are recognised."""

    sample: Parsed
    known: _Template | None = None


# A mark of Relay ends in four members of one length: `,"parent_uuid":"…","propagation_root_uuid":"…",` and
# `"timestamp":"…","uuid":"…"}`. Offsets from the end of the line.
_PARENT, _ROOT, _TIME, _UUID = slice(-197, -161), slice(-134, -98), slice(-83, -48), slice(-38, -2)
_SECOND, _FRACTION = slice(-83, -63), slice(-63, -54)
_OWN = -212  # where they begin


def _ends_as_relay_writes(line: bytes) -> bool:
    return (
        line[-48:-38] == b'","uuid":"'
        and line[-98:-83] == b'","timestamp":"'
        and line[-161:-134] == b'","propagation_root_uuid":"'
        and line[-212:-197] == b'"parent_uuid":"'
        and line[-2:] == b'"}'
    )


class _Template(msgspec.Struct, gc=False, frozen=True):
    """What marks of one look have in common: `slots` are their numbers, None for the index, which stands `index_at`."""

    piece: Piece
    text: bytes
    slots: tuple[int | None, ...]
    index_at: int | None
    said: ChunkFacts | None


class _Open:
    """The marks of one kind that are not sealed yet: those on record in `ids`, those of this batch in `fresh`."""

    __slots__ = ("fresh", "ids", "kept")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.kept: list[Mark] = []
        self.fresh: list[Mark] = []


class Chunks:
    """What the writer knows of one attempt's chunks."""

    __slots__ = (
        *("arrived_us", "conflict", "count", "first_us", "last_us", "open"),
        *("replaced", "root", "seen", "seq", "stream"),
    )

    def __init__(self) -> None:
        self.seen: dict[bytes, tuple[int, ...]] = {}
        """uuid → hashes of the marks that came under it: more than one is a conflict."""
        self.conflict = False
        self.open = (_Open(), _Open())
        self.root: bytes | None = None
        self.stream: Stream | None = None
        self.first_us: int | None = None
        self.last_us = self.seq = self.arrived_us = 0
        self.count = 0
        self.replaced = False


class ChunkLog:
    """All attempts whose chunks come in these days. Belongs to the writer's thread."""

    def __init__(self, tables: Tables, store: Store) -> None:
        self._tables = tables
        self._store = store
        self._attempts: Recent[bytes, Chunks] = Recent(2_000)
        self._templates: dict[bytes, _Template] = {}
        """By a mark's text without its index."""
        self._looks: dict[bytes, _Look] = {}
        """By a mark's bytes without its index, uuids and time."""
        self._uuids: dict[bytes, bytes] = {}
        self._marks = 0
        self._seconds: dict[bytes, int] = {}
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

    def quick(self, line: bytes) -> QuickMark | None:
        """Recognise a mark that Relay wrote, without parsing it."""
        if len(line) > _QUICK or not _ends_as_relay_writes(line):
            return None
        cut = line.find(INDEX) + _INDEX
        end = line.find(b",", cut)
        look = self._looks.get(line[:cut] + line[end:_OWN])
        digits = line[cut:end]
        if look is None or not _is_index(digits):
            return None
        attempt, root = self._uuid(line[_PARENT]), self._uuid(line[_ROOT])
        if attempt is None or root is None or (attempt == root) != (look.sample.parent == look.sample.root):
            return None
        text, fraction = line[_UUID], line[_FRACTION]
        digits_only = text.replace(b"-", b"").decode("ascii", "replace")
        if text[8:24:5] != b"----" or line[-54:-48] != b"+00:00" or not fraction.isdigit():
            return None
        try:
            uuid = bytes.fromhex(digits_only)
            at_ns = self._second(line[_SECOND]) + int(fraction)
        except ValueError:
            return None
        if len(uuid) != 16 or uuid.hex() != digits_only:
            return None
        return QuickMark(attempt, root, at_ns, uuid, int(digits), look)

    def _second(self, text: bytes) -> int:
        """`2026-11-30T10:00:00.` in ns. Remembered, because marks come by the dozen a second."""
        at_ns = self._seconds.get(text)
        if at_ns is None:
            at_ns, style = parse_timestamp(text.decode() + "000000000+00:00")
            if style != "9+":
                raise ValueError
            if len(self._seconds) > _TEMPLATES:
                self._seconds.clear()
            self._seconds[text] = at_ns
        return at_ns

    def _uuid(self, text: bytes) -> bytes | None:
        """A uuid from its usual text; None from any other. Remembered, because marks repeat their parent and root."""
        uuid = self._uuids.get(text)
        if uuid is None:
            try:
                uuid = uuid_bytes(text.decode(), "uuid")
            except (BadEvent, UnicodeDecodeError):
                return None
            if uuid_text(uuid).encode() != text:
                return None
            if len(self._uuids) > _TEMPLATES:
                self._uuids.clear()
            self._uuids[text] = uuid
        return uuid

    def learn(self, event: Parsed) -> None:
        """Recognise marks that look like this one from now on."""
        line = event.line
        if event.style != "9+" or event.surrogates or event.replaced_text or event.envelope.name != CHUNK:
            return
        if len(line) > _QUICK or event.root is None or not _ends_as_relay_writes(line):
            return
        cut = line.find(INDEX) + _INDEX
        own = {line[_PARENT], line[_ROOT], line[_UUID], line[_TIME]}  # nowhere but at the end: they become holes
        if _is_index(line[cut : line.find(b",", cut)]) and not any(text in line[:_OWN] for text in own):
            if len(self._looks) > _TEMPLATES:
                self._looks.clear()
            self._looks[line[:cut] + line[line.find(b",", cut) : _OWN]] = _Look(event)

    def add_quick(self, mark: QuickMark, seq: int, arrived_us: int) -> str | None:
        """As `add`; None if the mark must be parsed after all."""
        attempt, look = mark.attempt, mark.look
        chunks = self.of(attempt)
        if chunks.root is None:
            chunks.root = mark.root
        elif chunks.root != mark.root:  # the root of its block is a hole, any other is text
            return None
        known = look.known
        if known is None:
            known = look.known = self._template(look.sample, look.sample.root)[0]
        made = _mark(known, seq, mark.uuid, mark.at_ns, mark.index)
        if known.said is not None or mark.uuid in chunks.seen:
            return self._add(chunks, attempt, MARKS, made, known, arrived_us)
        chunks.seen[mark.uuid] = (hash(made.identity),)
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
            known, index = self._template(event, chunks.root)
            mark = _mark(known, seq, event.uuid, event.at_ns, index)
            return self._add(chunks, event.parent, MARKS, mark, known, arrived_us)
        line, surrogates = event.line, event.surrogates
        if masking.suspects_names(line) or masking.suspects_credentials(bytes(event.envelope.metadata)):
            line, surrogates = masking.mask_parsed(event)
        text = blocks.hole(event, restore_surrogates(line, surrogates), chunks.root)
        return self._add(chunks, event.parent, CONTENTS, Mark(seq, event.uuid, event.at_ns, text), None, arrived_us)

    def _add(
        self, chunks: Chunks, attempt: bytes, kind: int, mark: Mark, known: _Template | None, arrived_us: int
    ) -> str:
        before = chunks.seen.get(mark.uuid)
        if before is not None and hash(mark.identity) in before:
            return "duplicate"
        said = None
        if known is not None:
            if not mark.template:
                self._unnumbered.append((mark, known.piece))
            said = known.said
            if said is not None and said.index is None and INDEX in known.text:
                index = None if known.index_at is None else mark.numbers[known.index_at]
                said = ChunkFacts(index, said.kind, said.event_type, said.finish_reason, said.usage, said.error)
        chunks.open[kind].fresh.append(mark)
        self._take(chunks, kind, mark, said)
        chunks.seq, chunks.arrived_us = mark.seq, max(chunks.arrived_us, arrived_us)
        self.dirty[attempt] = chunks
        return "new" if before is None else "conflict"

    def _template(self, event: Parsed, root: bytes | None) -> tuple[_Template, int | None]:
        whole = blocks.hole(event, event.line, root)
        text, index = blocks.take_index(whole)
        if event.surrogates:
            text, index = blocks.hole(event, restore_surrogates(event.line, event.surrogates), root), None
        known = self._templates.get(text)
        if known is None:
            data, masked = as_dict(event.envelope.data), False
            if masking.suspects_names(text) or masking.suspects_credentials(text):
                line, surrogates = masking.mask_parsed(event)
                masked = line != event.line
                text, index = blocks.take_index(blocks.hole(event, restore_surrogates(line, surrogates), root))
                data = load(line).get("data")
            template, slots = (text, ()) if event.surrogates else blocks.take_numbers(text)
            facts = read_chunk_mark(data)
            plain = facts.finish_reason is None and facts.error is None and not facts.usage.known
            if len(self._templates) > _TEMPLATES:
                self._templates.clear()
            facts = ChunkFacts(None, facts.kind, facts.event_type, facts.finish_reason, facts.usage, facts.error)
            index_at = slots.index(None) if None in slots else None
            known = _Template(self._store.template(template), template, slots, index_at, None if plain else facts)
            if masked:
                return known, index
            self._templates[text] = known
        return known, index

    def _take(self, chunks: Chunks, kind: int, mark: Mark, said: ChunkFacts | None) -> None:
        before = chunks.seen.get(mark.uuid)
        if before is None:
            chunks.seen[mark.uuid] = (hash(mark.identity),)
            chunks.count += kind == MARKS
        else:
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
        self._templates.clear()
        self._looks.clear()

    def drop(self, attempt: bytes) -> None:
        """Another process has written this attempt."""
        self._attempts.drop(attempt)


def _is_index(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 15 and (digits[0] != 48 or len(digits) == 1)


def _mark(known: _Template, seq: int, uuid: bytes, at_ns: int, index: int | None) -> Mark:
    numbers = known.slots
    if known.index_at is not None:
        numbers = (*numbers[: known.index_at], index or 0, *numbers[known.index_at + 1 :])
    return Mark(seq, uuid, at_ns, known.text, numbers, known.piece.id)  # type: ignore[arg-type]  # no None is left


def _facts_of(mark: Mark) -> ChunkFacts:
    text = blocks.fill(mark, "00000000-0000-0000-0000-000000000000", bytes(16))
    return read_chunk_mark(load(text).get("data"))
