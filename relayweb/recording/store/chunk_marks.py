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
    parse_timestamp,
    restore_surrogates,
    uuid_bytes,
    uuid_text,
)
from relayweb.recording.store import blocks
from relayweb.recording.store.blocks import INDEX
from relayweb.recording.store.content import Store
from relayweb.recording.store.pieces import Piece

CHUNK = "llm.chunk"
_QUICK = 1_000  # bytes: no longer line can be a mark that is worth recognising
_REMEMBERED = 4096  # looks, templates, …; more means that marks differ in more than numbers
_INDEX = len(INDEX)


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
_SECOND, _FRACTION = slice(-83, -63), slice(-63, -54)
_OWN = -212  # where they begin
_AROUND = slice(_OWN, -98)  # the first two


def _ends_as_relay_writes(line: bytes) -> bool:
    return line[-48:-38] == b'","uuid":"' and line[-98:-83] == b'","timestamp":"' and line[-2:] == b'"}'


def _is_index(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 15 and (digits[0] != 48 or len(digits) == 1)


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
        self._seconds: dict[bytes, int] = {}

    def forget(self) -> None:
        """Rows may have been deleted."""
        self._templates.clear()
        self._looks.clear()

    # By their bytes

    def quick(self, line: bytes) -> QuickMark | None:
        """Recognise a mark that Relay wrote, without parsing it."""
        if len(line) > _QUICK or not _ends_as_relay_writes(line):
            return None
        around = self._around.get(line[_AROUND]) or self._meet(line)
        if around is None:
            return None
        cut = line.find(INDEX) + _INDEX
        end = line.find(b",", cut)
        look, numbers, digits = self._looks.get(line[:cut] + line[end:_OWN]), None, line[cut:end]
        if look is None or not _is_index(digits):
            text, numbers = blocks.take_numbers(line[:_OWN])
            look = self._looks.get(text)
            if look is None:
                return None
        attempt, root = around
        if (attempt == root) != (look.sample.parent == look.sample.root):
            return None
        uuid, at_ns = self._own(line)
        if uuid is None:
            return None
        if numbers is None:
            return QuickMark(attempt, root, at_ns, uuid, look, int(digits))
        return QuickMark(attempt, root, at_ns, uuid, look, 0, numbers, _telling(read_chunk_mark(_data(line).data)))

    def _own(self, line: bytes) -> tuple[bytes | None, int]:
        """Uuid and time, where they are written as Relay does."""
        text, fraction = line[_UUID], line[_FRACTION]
        digits = text.replace(b"-", b"").decode("ascii", "replace")
        if text[8:24:5] != b"----" or line[-54:-48] != b"+00:00" or not fraction.isdigit():
            return None, 0
        try:
            uuid = bytes.fromhex(digits)
            at_ns = (self._seconds.get(line[_SECOND]) or self._second(line[_SECOND])) + int(fraction)
        except ValueError:
            return None, 0
        return (uuid if len(uuid) == 16 and uuid.hex() == digits else None), at_ns

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

    def _second(self, text: bytes) -> int:
        """`2026-11-30T10:00:00.` in ns. Remembered, because marks come by the dozen a second."""
        at_ns, style = parse_timestamp(text.decode() + "000000000+00:00")
        if style != "9+":
            raise ValueError
        if len(self._seconds) > _REMEMBERED:
            self._seconds.clear()
        self._seconds[text] = at_ns
        return at_ns

    def learn(self, event: Parsed) -> None:
        """Recognise marks that look like this one from now on."""
        line = event.line
        if event.style != "9+" or event.surrogates or event.replaced_text or event.envelope.name != CHUNK:
            return
        if len(line) > _QUICK or not _ends_as_relay_writes(line) or self._meet(line) is None:
            return
        cut = line.find(INDEX) + _INDEX
        own = {line[_PARENT], line[_ROOT], line[_UUID], line[_TIME]}  # nowhere but at the end: they become holes
        if _is_index(line[cut : line.find(b",", cut)]) and not any(text in line[:_OWN] for text in own):
            if len(self._looks) > _REMEMBERED:
                self._looks.clear()
            look = Look(event)
            self._looks[line[:cut] + line[line.find(b",", cut) : _OWN]] = look
            self._looks[blocks.take_numbers(line[:_OWN])[0]] = look

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
            numbers = (*numbers[:at], mark.index, *numbers[at + 1 :])
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
