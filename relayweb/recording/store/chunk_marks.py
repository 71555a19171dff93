"""Chunk marks as they come: most are recognised by their bytes alone, like one that was parsed before them.

A mark that differs from a known one in its index, uuids and time costs a few slices; one that differs in other numbers
too, as those that tell the usage do, an expression more.
"""

from __future__ import annotations

from typing import Any

import msgspec

from adapters import marks as names
from relayweb.recording.conventions import ChunkFacts, read_chunk_mark
from relayweb.recording.events import masking
from relayweb.recording.events.atof import (
    MARK,
    BadEvent,
    Parsed,
    as_dict,
    load,
    restore_surrogates,
    uuid_bytes,
    uuid_text,
)
from relayweb.recording.kernels import mark_parts
from relayweb.recording.kernels.names import INDEX
from relayweb.recording.store import blocks
from relayweb.recording.store.content import Store
from relayweb.recording.store.pieces import Piece

CHUNK = "llm.chunk"
_QUICK = 1_000  # bytes: no longer line can be a mark that is worth recognising
_REMEMBERED = 4096  # looks, templates, …; more means that marks differ in more than numbers


def is_chunk(event: Parsed) -> bool:
    return event.envelope.name in (CHUNK, names.CHUNKS) and event.parent is not None and event.kind == MARK


class Template(msgspec.Struct, gc=False, frozen=True):
    """The text that marks of one look share, with holes for their numbers."""

    piece: Piece
    text: bytes
    masked: bool = False


class Look(msgspec.Struct, gc=False):
    """A mark that was parsed, and by whose bytes others are recognised."""

    sample: Parsed
    known: Template | None = None
    numbers: tuple[int, ...] = ()
    index_at: int = -1
    """Which of the numbers is the index."""
    said: ChunkFacts | None = None


class QuickMark(msgspec.Struct, gc=False):
    """A mark recognised by its bytes alone: all but its numbers, uuids and time is as in a mark seen before."""

    attempt: bytes
    root: bytes
    at_ns: int
    uuid: bytes
    look: Look
    index: int = 0
    numbers: tuple[int, ...] = ()
    """All of them, the index included, where more than the index differs."""
    said: ChunkFacts | None = None


# A mark of Relay ends in four members of one length: `"parent_uuid":"…","propagation_root_uuid":"…",` and
# `"timestamp":"…","uuid":"…"}`. Offsets from the end of the line.
_PARENT, _ROOT, _TIME, _UUID = slice(-197, -161), slice(-134, -98), slice(-83, -48), slice(-38, -2)
_OWN = -212  # where they begin
_AROUND = slice(_OWN, -98)  # the first two


class _Data(msgspec.Struct, gc=False):
    data: Any = None


_data = msgspec.json.Decoder(_Data).decode


def _telling(facts: ChunkFacts) -> ChunkFacts | None:
    """What a mark says, if it says anything of the stream as a whole."""
    plain = facts.finish_reason is None and facts.error is None and not facts.usage.known
    return None if plain else facts


class MarkReader:
    """Reads chunk marks, and remembers how they look. Belongs to the writer's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._templates: dict[bytes, Template] = {}
        """By their text."""
        self._looks: dict[bytes, Look] = {}
        """By a mark's bytes without its uuids and time: either without its index, or with holes for all numbers."""
        self._around: dict[bytes, tuple[bytes, bytes]] = {}

    def forget(self) -> None:
        """Rows may have been deleted."""
        self._templates.clear()
        self._looks.clear()

    # By their bytes

    def quick(self, line: bytes) -> QuickMark | None:
        """Recognise a mark that Relay wrote, without parsing it."""
        if len(line) > _QUICK or (parts := mark_parts(line)) is None:
            return None
        between, text, index, uuid, at_ns = parts
        around = self._around.get(between) or self._meet(line)
        if around is None:
            return None
        look, numbers = self._looks.get(text) if text is not None else None, None
        if look is None:
            text, numbers = blocks.take_numbers(line[:_OWN])
            look = self._looks.get(text)
            if look is None:
                return None
        attempt, root = around
        if (attempt == root) != (look.sample.parent == look.sample.root):
            return None
        if numbers is None:
            return QuickMark(attempt, root, at_ns, uuid, look, index)
        return QuickMark(attempt, root, at_ns, uuid, look, 0, numbers, _telling(read_chunk_mark(_data(line).data)))

    def _meet(self, line: bytes) -> tuple[bytes, bytes] | None:
        """Parent and root, where they are written as Relay does. Remembered, because marks repeat them."""
        if line[-161:-134] != b'","propagation_root_uuid":"' or line[-212:-197] != b'"parent_uuid":"':
            return None
        found = []
        for text in (line[_PARENT], line[_ROOT]):
            try:
                uuid = uuid_bytes(text.decode(), "uuid")
            except (BadEvent, UnicodeDecodeError):
                return None
            if uuid_text(uuid).encode() != text:
                return None
            found.append(uuid)
        if len(self._around) > _REMEMBERED:
            self._around.clear()
        self._around[line[_AROUND]] = around = (found[0], found[1])
        return around

    def learn(self, event: Parsed) -> None:
        """Recognise marks that look like this one from now on."""
        line = event.line
        if event.style != "9+" or event.surrogates or event.replaced_text or event.envelope.name != CHUNK:
            return
        if len(line) > _QUICK or (parts := mark_parts(line)) is None or self._meet(line) is None:
            return
        own = {line[_PARENT], line[_ROOT], line[_UUID], line[_TIME]}  # nowhere but at the end: they become holes
        if parts[1] is not None and not any(text in line[:_OWN] for text in own):
            if len(self._looks) > _REMEMBERED:
                self._looks.clear()
            self._looks[parts[1]] = self._looks[blocks.take_numbers(line[:_OWN])[0]] = Look(event)

    def numbers(self, mark: QuickMark) -> tuple[Template, tuple[int, ...], ChunkFacts | None] | None:
        """As `read`, of a recognised mark; None if it must be parsed after all."""
        look = mark.look
        if look.known is None:
            look.known, look.numbers, look.said = self.read(look.sample, look.sample.root)
            start = look.known.text.find(INDEX + b"\0n")
            look.index_at = look.known.text.count(b"\0n", 0, start) if start >= 0 else -1
        if mark.numbers:
            alike = len(mark.numbers) == len(look.numbers) and not look.known.masked
            return (look.known, mark.numbers, mark.said) if alike else None
        numbers, at, said = look.numbers, look.index_at, look.said
        if at >= 0:
            numbers = (mark.index,) if len(numbers) == 1 else (*numbers[:at], mark.index, *numbers[at + 1 :])
        if said is not None:
            said = msgspec.structs.replace(said, index=mark.index)
        return look.known, numbers, said

    # By their JSON

    def read(self, event: Parsed, root: bytes | None) -> tuple[Template, tuple[int, ...], ChunkFacts | None]:
        """Template and numbers of a mark, and what it says. `root` is that of its block."""
        text, numbers = _holes(event, event.line, event.surrogates, root)
        known, data = self._templates.get(text), as_dict(event.envelope.data)
        if known is None:
            if masking.suspects_names(text) or masking.suspects_credentials(text):
                line, surrogates = masking.mask_parsed(event)
                if line != event.line:
                    text, numbers = _holes(event, line, surrogates, root)
                    facts = read_chunk_mark(load(line).get("data"))
                    return Template(self._store.template(text), text, masked=True), numbers, _telling(facts)
            if len(self._templates) > _REMEMBERED:
                self._templates.clear()
            known = self._templates[text] = Template(self._store.template(text), text)
        return known, numbers, _telling(read_chunk_mark(data))


def _holes(
    event: Parsed, line: bytes, surrogates: tuple[tuple[int, bytes], ...], root: bytes | None
) -> tuple[bytes, tuple[int, ...]]:
    if surrogates:
        return blocks.hole(event, restore_surrogates(line, surrogates), root), ()
    return blocks.take_numbers(blocks.hole(event, line, root))
