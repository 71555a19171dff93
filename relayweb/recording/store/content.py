"""The content store: payloads split into messages, tool lists and other large values, each kept once.

An event is stored as a skeleton, its JSON text with holes (see `encoding`). Contents may refer to contents. Filling the
holes gives the stored text back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import islice

from relayweb.recording.events import masking
from relayweb.recording.events.atof import BadEvent, Envelope, Parsed, load, parse
from relayweb.recording.kernels import Cut, plan, plan_inside
from relayweb.recording.kernels.names import (
    IN_DATA,
    LOOSE,
    MESSAGE,
    MIN_MESSAGE,
    MIN_VALUE,
    SAME_MESSAGES,
    SAME_TOOLS,
    STAND_IN,
    TEMPLATE,
    TOOLS,
    VALUE,
)
from relayweb.recording.store import histories
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.encoding import encode
from relayweb.recording.store.histories import History
from relayweb.recording.store.pieces import HOLE, Packed, Piece, make_holes
from relayweb.recording.store.recent import Recent

_MASK = masking.MASK.encode()


class Store:
    """Splits what the writer records and numbers what is new. Not thread-safe: it belongs to the writer's thread.

    Args:
        remember: how many contents it recognises.
        masks: False for what is on record: an older version may have known fewer secrets.
    """

    def __init__(self, remember: int = 10_000, *, masks: bool = True) -> None:
        self._masks = masks
        self._known: Recent[bytes, Piece] = Recent(remember, "contents")
        self._unnumbered: dict[bytes, Piece] = {}
        self._aliases: list[tuple[bytes, Piece]] = []
        self._messages: list[tuple[bytes, Piece | None]] | None = None
        self._histories: dict[tuple[bytes, bytes], History] = {}
        """By root, and how the list begins."""
        self._same: History | None = None
        """What the stand-ins of the event in hand stand for."""
        self._stray = False
        self._list: tuple[bytes, bytes, list[Piece], list[tuple[bytes, Piece | None]]] | None = None
        """The first list of messages of this event: text, skeleton, references, messages."""
        self._tools: tuple[bytes, Piece] | None = None
        self._prefilter = masking.Prefilter()

    # Reading

    def parse(self, line: bytes) -> Parsed:
        """As `atof.parse`, but what a request repeats of the last one of its session is not read again."""
        self._same = None
        history = self._history_of(line)
        if history is None:
            return parse(line)
        short = histories.shorten(line, history)
        try:
            event = parse(short)
        except BadEvent:
            return parse(line)
        if event.surrogates or event.replaced_text:
            return parse(line)
        event.short, event.line = short, line
        self._same = history
        return event

    def _history_of(self, line: bytes) -> History | None:
        if (
            len(line) < histories.SHORTEST
            or line.find(b'"llm"', 0, 200) < 0
            or line.find(b'"start"', -220) < 0
            or STAND_IN in line
        ):
            return None
        for name in histories.LIST_STARTS:
            start = line.find(name)
            if start > 0:
                start += len(name) - 3
                history = self._histories.get(histories.key_of(line, line[start : start + 96]))
                return history if history is not None and line.startswith(history.text, start) else None
        return None

    # Splitting

    def pack(self, event: Parsed) -> Packed:
        """Split and mask one event, the last one parsed. Nothing is remembered of a text that needs masking."""
        before, aliases = len(self._unnumbered), len(self._aliases)
        line = event.line
        loose_data = event.envelope.name in masking.FAILURE_MARKS
        self._list, self._tools, self._stray = None, None, False
        if event.short:
            packed = self._pack(event.short, loose_data)
            if self._stray or self._same is None:
                self._same = None
                event.short, event.envelope = b"", parse(line).envelope
                packed = self._pack(line, loose_data)
            else:
                packed = self._restored(packed, self._same, line)
        else:
            self._same = None
            packed = self._pack(line, loose_data)
        make_holes(packed, event)
        if self._masks and (self._prefilter.suspects(packed.text) or _arguments_suspect(packed, event.envelope)):
            masked, surrogates = masking.mask_parsed(event, loose_data=loose_data)
            if masked != line:
                for digest in list(self._unnumbered)[before:]:
                    del self._unnumbered[digest]
                del self._aliases[aliases:]
                self._same = self._list = None
                packed = self._pack(masked, loose_data)
                packed.masked = masked.count(_MASK) != line.count(_MASK) or load(masked) != load(line)
                event.surrogates = surrogates
                make_holes(packed, event)
                self._list = None
        if self._list is not None:
            self._remember_history(line, *self._list)
        return packed

    def _restored(self, packed: Packed, same: History, line: bytes) -> Packed:
        """With the holes of what the stand-ins stand for."""
        out: list[bytes] = []
        refs: list[Piece] = []
        here = iter(packed.refs)
        for part in histories.STAND_INS.split(packed.text):
            if part == HOLE:
                refs.append(next(here))
            elif part == SAME_MESSAGES:
                part = same.skeleton
                refs += [piece for _, piece in same.messages if piece is not None]
            elif part == SAME_TOOLS and same.tools is not None:
                part = HOLE
                refs.append(same.tools[1])
            out.append(part)
        restored = Packed(line, b"".join(out), refs, False)
        restored.messages = packed.messages
        return restored

    def _pack(self, line: bytes, loose_data: bool) -> Packed:
        self._messages = None
        same = self._same is not None
        if len(line) < MIN_VALUE and not (same and STAND_IN in line):
            return Packed(line, line, [], False)
        text, refs = self._with_holes(line, plan(line, loose_data, same))
        packed = Packed(line, text, refs, False)
        packed.messages = self._messages
        return packed

    def _with_holes(self, text: bytes, cuts: Sequence[Cut]) -> tuple[bytes, list[Piece]]:
        """The skeleton of a text, and what its holes refer to."""
        out: list[bytes] = []
        refs: list[Piece] = []
        at = 0
        for start, end, kind, flags, items in cuts:
            out.append(text[at:start])
            at = end
            if items is not None:
                skeleton, some = self._cut_messages(text[start:end], start, items, flags)
                out.append(skeleton)
                refs += some
                continue
            value, loose = text[start:end], bool(flags & LOOSE)
            piece = self._piece(value, MESSAGE if kind == MESSAGE else VALUE, loose)
            if kind == TOOLS and not loose:
                self._tools = (value, piece)
            out.append(HOLE)
            refs.append(piece)
        out.append(text[at:])
        return b"".join(out), refs

    def _cut_messages(self, value: bytes, start: int, items: list[int], flags: int) -> tuple[bytes, list[Piece]]:
        """As `_with_holes`, of a list whose items stand at these places of a text in which it begins at `start`."""
        loose, first = bool(flags & LOOSE), bool(flags & IN_DATA) and self._messages is None
        if self._list is not None and self._list[0] == value and not loose:
            if first:
                self._messages = self._list[3]
            return self._list[1], self._list[2]
        out: list[bytes] = []
        refs: list[Piece] = []
        messages: list[tuple[bytes, Piece | None]] = []
        places = iter(items)
        if self._same is not None and value.startswith(SAME_MESSAGES):
            messages += self._same.messages
            places = islice(places, 2, None)
        at = 0
        for begin, end in zip(places, places, strict=True):
            item = value[begin - start : end - start]
            if len(item) < MIN_MESSAGE:
                messages.append((item, None))
                continue
            piece = self._piece(item, MESSAGE, loose)
            messages.append((item, piece))
            out += (value[at : begin - start], HOLE)
            at = end - start
            refs.append(piece)
        out.append(value[at:])
        skeleton = b"".join(out)
        if first:
            self._messages = messages
        if not loose and self._list is None:
            self._list = (value, skeleton, refs, messages)
        return skeleton, refs

    def _remember_history(
        self,
        line: bytes,
        value: bytes,
        skeleton: bytes,
        refs: list[Piece],
        messages: list[tuple[bytes, Piece | None]],
    ) -> None:
        same, text, tools = self._same, value[:-1], self._tools
        if same is not None and value.startswith(SAME_MESSAGES):
            text, skeleton = same.text + text[len(SAME_MESSAGES) :], same.skeleton + skeleton[len(SAME_MESSAGES) :]
            tools = tools or same.tools
        if (
            not histories.SHORTEST <= len(text) < histories.LONGEST
            or not text.endswith(b"}")
            or not text.startswith(b'[{"')
        ):
            return
        key = histories.key_of(line, text[:96])
        self._histories.pop(key, None)
        self._histories[key] = History(text, skeleton[:-1], messages, tools)
        if len(self._histories) > histories.MOST:
            self._histories.pop(next(iter(self._histories)))

    def _piece(self, value: bytes, kind: int, loose: bool = False) -> Piece:
        if self._same is not None and STAND_IN in value:
            self._stray = True
        if loose and self._masks and (masking.suspects_credentials(value) or masking.suspects_names(value)):
            value = masking.mask(value, masking.LOOSE)
        digest = sha256(value).digest()[:16]
        piece = self._known.get(digest) or self._unnumbered.get(digest)
        if piece is not None:
            return piece
        if self._masks and masking.suspects_names(value):
            masked = masking.mask(value)
            if masked != value:
                piece = self._new(masked, sha256(masked).digest()[:16], kind)
                self._aliases.append((digest, piece))
                return piece
        return self._new(value, digest, kind)

    def _new(self, value: bytes, digest: bytes, kind: int) -> Piece:
        piece = self._known.get(digest) or self._unnumbered.get(digest)
        if piece is not None:
            return piece
        text = value
        refs: list[Piece] = []
        if kind == MESSAGE and len(value) >= MIN_VALUE and (cuts := plan_inside(value)):
            text, refs = self._with_holes(value, cuts)
        piece = Piece(digest, kind, len(value), text, refs)
        self._unnumbered[digest] = piece
        return piece

    def template(self, text: bytes) -> Piece:
        """A chunk template (see `blocks`), which may hold holes of its own."""
        digest = sha256(b"\0" + text).digest()[:16]
        piece = self._known.get(digest) or self._unnumbered.get(digest)
        if piece is None:
            piece = self._unnumbered[digest] = Piece(digest, TEMPLATE, len(text), text)
        return piece

    # Numbering

    def number(
        self, last_id: int, find: Callable[[list[bytes]], Iterable[tuple[bytes, int]]]
    ) -> tuple[int, list[tuple[int, bytes, int, int, bytes]]]:
        """Number what the batch brought.

        Args:
            last_id: the highest number given so far.
            find: looks digests up in the database, gives (digest, id) of those that are there.

        Returns:
            the highest number now, and the new rows (id, digest, kind, size, body).
        """
        pieces = self._unnumbered
        if not pieces:
            return last_id, []
        for digest, number in find(list(pieces)):
            pieces[bytes(digest)].id = number
        new = [p for p in pieces.values() if not p.id]
        for piece in new:
            last_id += 1
            piece.id = last_id
        rows = [
            (p.id, p.digest, p.kind, p.size, encode(p.text, [ref.id for ref in p.refs], CONTENT.compress)) for p in new
        ]
        return last_id, rows

    def committed(self) -> None:
        """The batch is safe: remember what it brought, without the texts."""
        for digest, piece in self._unnumbered.items():
            piece.text, piece.refs = b"", ()
            self._known.put(digest, piece)
        for digest, piece in self._aliases:
            self._known.put(digest, piece)
        self._known.trim()
        self._unnumbered = {}
        self._aliases = []

    def rolled_back(self) -> None:
        self._histories.clear()
        self._unnumbered = {}
        self._aliases = []

    def forget(self) -> None:
        """Rows may have been deleted: believe nothing."""
        self._known.clear()
        self.rolled_back()


def _arguments_suspect(packed: Packed, envelope: Envelope) -> bool:
    """Whether a long text among the arguments of a tool, kept apart from its name, may hold a secret."""
    if not packed.refs:
        return False
    arguments = masking.are_arguments(envelope.category, envelope.scope_category)
    if not arguments and b'arguments"' not in packed.text and b'tool_use"' not in packed.text:
        return False
    return any(masking.suspects_credentials(piece.text) for piece in packed.refs if piece.kind == VALUE and piece.text)
