"""The content store: payloads split into messages, tool lists and other large values, each kept once.

An event is stored as a skeleton, its JSON text with holes (see `encoding`). Contents may refer to contents. Filling the
holes gives the stored text back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import repeat
from operator import itemgetter

import msgspec

from relayweb.recording.events import masking
from relayweb.recording.events.atof import BadEvent, Envelope, Parsed, load, parse
from relayweb.recording.store import histories
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.encoding import encode
from relayweb.recording.store.histories import SAME_MESSAGES, SAME_TOOLS, History
from relayweb.recording.store.pieces import (
    HOLE,
    MESSAGE,
    MIN_MESSAGE,
    MIN_VALUE,
    TEMPLATE,
    VALUE,
    Packed,
    Piece,
    make_holes,
)
from relayweb.recording.store.recent import Recent

_LISTS = frozenset(("messages", "input", "contents"))
_WHOLE = frozenset(("tools", "functions"))
_FRAMES = frozenset(
    ("data", "metadata", "category_profile", "content", "headers", "request", "response", "params")
    + ("annotated_request", "annotated_response", "app", "provider", "api_specific", "message")
)

_MASK = masking.MASK.encode()

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _find(text: bytes, part: bytes, guess: int, at: int) -> int:
    """Where `part` stands in `text`, at `at` or later. In JSON without spaces and escapes the guess is right."""
    return guess if guess >= at and text.startswith(part, guess) else text.find(part, at)


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
        self._in_data = False
        self._histories: dict[tuple[bytes, bytes], History] = {}
        """By root, and how the list begins."""
        self._same: History | None = None
        """What the stand-ins of the event in hand stand for."""
        self._stray = False
        self._list: tuple[bytes, bytes, list[Piece], list[tuple[bytes, Piece | None]]] | None = None
        """A list of messages of this event: text, skeleton, references, messages."""
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
            or histories.STAND_IN in line
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
            packed = self._pack(event.short, event.envelope, loose_data)
            if self._stray or self._same is None:
                self._same = None
                event.short, event.envelope = b"", parse(line).envelope
                packed = self._pack(line, event.envelope, loose_data)
            else:
                packed = self._restored(packed, self._same, line)
        else:
            self._same = None
            packed = self._pack(line, event.envelope, loose_data)
        make_holes(packed, event)
        if self._masks and self._prefilter.suspects(packed.text):
            masked, surrogates = masking.mask_parsed(event, loose_data=loose_data)
            if masked != line:
                for digest in list(self._unnumbered)[before:]:
                    del self._unnumbered[digest]
                del self._aliases[aliases:]
                self._same = self._list = None
                packed = self._pack(masked, parse(masked).envelope, loose_data)
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

    def _pack(self, line: bytes, envelope: Envelope, loose_data: bool) -> Packed:
        self._messages = None
        if not self._is_large(line):
            return Packed(line, line, [], False)
        cuts: list[tuple[int, int, bytes, list[Piece]]] = []
        payloads = (("data", envelope.data), ("category_profile", envelope.category_profile))
        for name, raw in (*payloads, ("metadata", envelope.metadata)):
            value = bytes(raw)
            if len(value) < MIN_MESSAGE:
                continue
            self._in_data = name == "data"
            refs: list[Piece] = []
            loose = name == "metadata" or (loose_data and name == "data")
            text = self._cut(name, value, loose, refs)
            if text is not None:
                key = line.find(b'"%b":' % name.encode())
                start = _find(line, value, key + len(name) + 3, 0)
                cuts.append((start, start + len(value), text, refs))
        cuts.sort(key=itemgetter(0))
        out: list[bytes] = []
        at = 0
        for start, end, text, _ in cuts:
            if start < at:  # one payload looks like a part of another: leave it as it is
                return Packed(line, line, [], False)
            out += (line[at:start], text)
            at = end
        out.append(line[at:])
        refs = [piece for *_, some in cuts for piece in some]
        packed = Packed(line, b"".join(out), refs, False)
        packed.messages = self._messages
        return packed

    def _cut(self, name: str, value: bytes, loose: bool, refs: list[Piece]) -> bytes | None:
        """The skeleton of a value, its references added to `refs`; None if it stays as it is."""
        first = value[:1]
        if first == b"[" and name in _LISTS:
            return self._cut_messages(value, loose, refs)
        if not self._is_large(value):
            if first == b"{" and name in ("message", "content"):  # what an answer says, a later request repeats
                if name == "message" and len(value) >= MIN_MESSAGE:
                    refs.append(self._piece(value, MESSAGE, loose))
                    return HOLE
                return self._cut_inside(value, loose, refs)
            if name in ("choices", "data", "response") and first in b"[{":
                return self._cut_inside(value, loose, refs)
            return None
        if first == b'"' or name in _WHOLE:
            if value == SAME_TOOLS and name == "tools" and self._same is not None:
                return value
            piece = self._piece(value, VALUE, loose)
            if name == "tools" and not loose:
                self._tools = (value, piece)
            refs.append(piece)
            return HOLE
        if first == b"{" and name == "message":
            refs.append(self._piece(value, MESSAGE, loose))
            return HOLE
        if value[0] not in b"[{":
            return None
        mark = len(refs)
        text = self._cut_inside(value, loose, refs)
        if name not in _FRAMES and self._is_large(text or value):
            del refs[mark:]
            refs.append(self._piece(value, VALUE, loose))
            return HOLE
        return text

    def _is_large(self, value: bytes) -> bool:
        return len(value) >= MIN_VALUE or (self._same is not None and histories.STAND_IN in value)

    def _cut_messages(self, value: bytes, loose: bool, refs: list[Piece]) -> bytes:
        if self._list is not None and self._list[0] == value and not loose:
            refs += self._list[2]
            return self._list[1]
        out: list[bytes] = []
        own: list[Piece] = []
        messages: list[tuple[bytes, Piece | None]] = []
        at, place, items = 0, 1, _raw_array(value)
        if self._same is not None and value.startswith(SAME_MESSAGES):
            messages += self._same.messages
            del items[0]
            place += len(SAME_MESSAGES)
        for raw in items:
            item = bytes(raw)
            guess, place = place, place + len(item) + 1
            if len(item) < MIN_MESSAGE:
                messages.append((item, None))
                continue
            piece = self._piece(item, MESSAGE, loose)
            messages.append((item, piece))
            start = _find(value, item, guess, at)
            out += (value[at:start], HOLE)
            at = start + len(item)
            own.append(piece)
        out.append(value[at:])
        skeleton = b"".join(out)
        refs += own
        if self._in_data and self._messages is None:
            self._messages = messages
        if not loose:
            self._list = (value, skeleton, own, messages)
        return skeleton

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

    def _cut_inside(self, value: bytes, loose: bool, refs: list[Piece]) -> bytes | None:
        names: Iterable[str] = repeat("")
        if value[:1] == b"{":
            names = members = _raw_object(value)
            children, key = list(map(bytes, members.values())), 3
        else:
            children, key = list(map(bytes, _raw_array(value))), 0
        sizes = list(map(len, children))
        if max(sizes, default=0) < MIN_MESSAGE:
            return None
        out: list[bytes] = []
        at, place = 0, 1
        for name, child, size in zip(names, children, sizes, strict=False):
            place += len(name) + key
            if size >= MIN_MESSAGE:
                text = self._cut(name, child, loose or masking.is_loose(name), refs)
                if text is not None:
                    start = _find(value, child, place, at)
                    out += (value[at:start], text)
                    at = start + size
            place += size + 1
        if not at:
            return None
        out.append(value[at:])
        return b"".join(out)

    def _piece(self, value: bytes, kind: int, loose: bool = False) -> Piece:
        if self._same is not None and histories.STAND_IN in value:
            self._stray = True
        if loose and self._masks and (masking.suspects_credentials(value) or masking.suspects_names(value)):
            value = masking.mask(value, loose=True)
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
        refs: list[Piece] = []
        text = None
        if kind == MESSAGE and len(value) >= MIN_VALUE and value[0] in b"{[":
            text = self._cut_inside(value, False, refs)
        piece = Piece(digest, kind, len(value), value if text is None else text, refs)
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
