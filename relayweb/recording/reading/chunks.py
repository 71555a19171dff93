"""The chunks of a streamed attempt: Relay's `llm.chunk` marks and the core's content, joined by chunk index."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from relayweb.recording.conventions import ChunkFacts, better_error, chunk_content, read_chunk, read_chunk_mark
from relayweb.recording.models import ChunkBlock, Content, Scope
from relayweb.recording.reading.rows import rfc3339
from relayweb.recording.store import blocks, encoding, stored
from relayweb.recording.store.compression import CONTENT
from relayweb.recording.store.recent import Recent


class Chunk(msgspec.Struct, gc=False):
    """One chunk as far as it is known. `data` is that of its mark, `body` its content as JSON text."""

    at_us: int
    data: bytes | None = None
    body: bytes | None = None
    length: int | None = None
    """Characters of a chunk whose content a redact rule keeps off the record."""


_Told = tuple[bytes, int, int, bytes | None, bytes | None, int | None]
"""Of one chunk: its mark's identity (uuid, time, digest), index (-1 unknown), µs, data of the mark, content, length."""
_Decoded = tuple[_Told, ...]


class _Blocks:
    """Blocks decoded lately, so that a growing stream does not decode its beginning again for every frame."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: Recent[tuple[UUID, int, int], _Decoded] = Recent(128)

    def read(self, block: ChunkBlock) -> _Decoded:
        key = (block.attempt_uuid, block.kind, hash(bytes(block.body)))
        with self._lock:
            found = self._recent.get(key)
        if found is None:
            found = tuple(_marks(block) if block.kind == ChunkBlock.Kind.MARKS else _contents(block))
            with self._lock:
                self._recent.put(key, found)
                self._recent.trim()
        return found


_blocks = _Blocks()


class _MarkEvent(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Index(msgspec.Struct):
    chunk_index: int | None = None


class _ContentData(msgspec.Struct):
    first: int = 0
    chunks: list[msgspec.Raw] = []
    redacted: bool = False


_event = msgspec.json.Decoder(_MarkEvent).decode
_index = msgspec.json.Decoder(_Index).decode
_content = msgspec.json.Decoder(_ContentData).decode


def texts(block: ChunkBlock, *, since: int = 0) -> Iterator[tuple[blocks.Mark, bytes]]:
    """Each mark of a block accepted after number `since` with its JSON text."""
    marks, root = blocks.decode(block.kind, bytes(block.body))
    marks = [mark for mark in marks if mark.seq > since] if since else marks
    if block.kind == ChunkBlock.Kind.MARKS:
        known = _templates.read({mark.template for mark in marks})
        for mark in marks:
            mark.text = known[mark.template]
    for mark in marks:
        yield mark, blocks.fill(mark, str(block.attempt_uuid), root)


class _Templates:
    """Texts of templates by number. A record never uses a number again, so they may be remembered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: Recent[int, bytes] = Recent(4_000)

    def read(self, wanted: set[int]) -> dict[int, bytes]:
        with self._lock:
            found = {number: text for number in wanted if (text := self._recent.get(number)) is not None}
        missing = wanted - found.keys()
        if missing:
            rows = Content.objects.filter(id__in=missing).values_list("id", "body")
            new = {number: encoding.decode(bytes(body), CONTENT.expand).text for number, body in rows}
            with self._lock:
                for number, text in new.items():
                    self._recent.put(number, text)
                self._recent.trim()
            found |= new
        return found

    def forget(self) -> None:
        with self._lock:
            self._recent.clear()


_templates = _Templates()


def forget() -> None:
    """The record is another one now, as between tests."""
    _templates.forget()


def _data(text: bytes) -> bytes:
    try:
        return bytes(_event(text).data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return stored.member(text, "data") or b"null"


def _marks(block: ChunkBlock, since: int = 0) -> Iterator[_Told]:
    for mark, text in texts(block, since=since):
        data = _data(text)
        try:
            index = _index(data).chunk_index
        except (msgspec.DecodeError, msgspec.ValidationError):  # lone surrogates, or another shape
            index = read_chunk_mark(stored.load(data)).index
        yield _identity(mark, text), -1 if index is None or index < 0 else index, mark.at_ns // 1000, data, None, None


def _contents(block: ChunkBlock, since: int = 0) -> Iterator[_Told]:
    for mark, text in texts(block, since=since):
        data, at_us = _data(text), mark.at_ns // 1000
        try:
            told = _content(data)
            first, items, redacted = told.first, [bytes(c) for c in told.chunks], told.redacted
        except (msgspec.DecodeError, msgspec.ValidationError):  # lone surrogates, or another shape
            first, items, redacted = 0, stored.items(stored.member(data, "chunks") or b"[]"), False
            start = stored.load(stored.member(data, "first"))
            first = start if isinstance(start, int) else 0
        identity = _identity(mark, text)
        for at, item in enumerate(items):
            length = stored.load(stored.member(item, "length")) if redacted else None
            body = None if redacted else item
            yield identity, first + at, at_us, None, body, length if isinstance(length, int) else None


def _identity(mark: blocks.Mark, text: bytes) -> bytes:
    return mark.uuid + (mark.at_ns + 2**63).to_bytes(8, "big") + sha256(text).digest()[:8]


def _order(one: _Told) -> tuple[int, bytes]:
    return one[2], one[0][24:]


def _shown(told: Iterable[_Told]) -> list[_Told]:
    """Those of one mark for each uuid: of several that differ, the one with the smallest time, then digest."""
    found = list(told)
    first: dict[bytes, bytes] = {}
    for identity, *_ in found:
        first[identity[:16]] = min(first.get(identity[:16], identity), identity)
    return [one for one in found if first[one[0][:16]] == one[0]]


def joined(attempt: UUID) -> list[tuple[int, Chunk]]:
    """All chunks of an attempt with their index, in order. A mark that tells no index follows those that do."""
    told: tuple[list[_Told], list[_Told]] = ([], [])
    for block in ChunkBlock.objects.filter(attempt_uuid=attempt).order_by("first_seq", "id"):
        told[block.kind].extend(_blocks.read(block))
    found: dict[int, Chunk] = {}
    nameless: list[Chunk] = []
    for _, index, at_us, data, _, _ in sorted(_shown(told[0]), key=_order):
        if index < 0:
            nameless.append(Chunk(at_us, data))
        else:
            found.setdefault(index, Chunk(at_us, data))
    for _, index, at_us, _, body, length in sorted(_shown(told[1]), key=_order):
        chunk = found.setdefault(index, Chunk(at_us))
        chunk.body, chunk.length = body, length
    last = max(found, default=-1)
    return sorted(found.items()) + [(last + 1 + i, chunk) for i, chunk in enumerate(nameless)]


def moments(block: ChunkBlock) -> list[tuple[bytes, int]]:
    """The uuid of each mark of a block and when it was made, in µs, without opening their texts."""
    return [(mark.uuid, mark.at_ns // 1000) for mark in blocks.decode(block.kind, bytes(block.body))[0]]


def fresh(since: int, modes: Mapping[UUID, str | None]) -> dict[UUID, list[dict[str, Any]]]:
    """What came after a number of the chunks of some attempts: for live views, where everything would cost too much.

    Args:
        since: the number.
        modes: attempts, each with its api_mode.

    Returns:
        By attempt, in order of index, chunks as `page` gives them, reduced to index, at_us, kind, size and text. The
        content of a chunk often comes after its mark: the chunk is then told again, with what was not known before.
    """
    found: dict[UUID, dict[int, dict[str, Any]]] = {}
    touched = ChunkBlock.objects.filter(last_seq__gt=since).order_by("kind", "first_seq")
    for block in touched if len(modes) > 500 else touched.filter(attempt_uuid__in=list(modes)):
        if block.attempt_uuid not in modes:
            continue
        mode, of = modes[block.attempt_uuid], found.setdefault(block.attempt_uuid, {})
        if block.kind == ChunkBlock.Kind.MARKS:
            for _, index, at_us, data, _, _ in _shown(_marks(block, since)):
                if index >= 0:
                    kind = read_chunk_mark(stored.load(data), api_mode=mode).kind if data else None
                    of[index] = {"index": index, "at_us": at_us, "kind": kind, "size": None, "text": None}
            continue
        for _, index, at_us, _, body, length in _shown(_contents(block, since)):
            kind, text = chunk_content(mode, stored.load(body)) if body is not None else (None, None)
            told = of.setdefault(index, {"index": index, "at_us": at_us})
            told |= {"kind": kind, "size": length if text is None else len(text), "text": text}
    return {attempt: [of[index] for index in sorted(of)] for attempt, of in found.items() if of}


def contents(attempt: UUID) -> Iterator[Any]:
    """The content of each chunk, in order, as far as it is on record."""
    return (stored.load(chunk.body) for _, chunk in joined(attempt) if chunk.body is not None)


def page(attempt: UUID | str, *, offset: int = 0, limit: int = 500, raw: bool = False) -> dict[str, Any] | None:
    """Some chunks of an attempt, in the order of their index; with `raw` their content as JSON text, unparsed.

    Returns:
        `chunks`: [{"index", "at", "at_us", "kind", "size", "text", "finish_reason", "usage", "error", "content"}];
        `size` counts characters of text, None where the content is unknown; `count`: how many there are; `next`:
        offset of the next page, None at the end. None if there is no such scope.
    """
    uuid = attempt if isinstance(attempt, UUID) else UUID(attempt)
    api_mode = Scope.objects.filter(uuid=uuid).values_list("api_mode").first()
    if api_mode is None:
        return None
    everything = joined(uuid)
    some = everything[offset : offset + limit]
    return {
        "chunks": [_chunk(index, chunk, api_mode[0], raw) for index, chunk in some],
        "count": len(everything),
        "next": offset + limit if offset + limit < len(everything) else None,
    }


def _chunk(index: int, chunk: Chunk, api_mode: str | None, raw: bool) -> dict[str, Any]:
    facts = read_chunk_mark(stored.load(chunk.data), api_mode=api_mode) if chunk.data else ChunkFacts()
    kind, text, size, body = facts.kind, None, chunk.length, None
    if chunk.body is not None:
        body = stored.load(chunk.body)
        kind, text = chunk_content(api_mode, body)
        size = len(text)
        said = read_chunk(api_mode, body)
        facts = msgspec.structs.replace(
            facts,
            finish_reason=facts.finish_reason or said.finish_reason,
            usage=facts.usage if facts.usage.known else said.usage,
            error=better_error(said.error, facts.error),  # the mark may tell only the kind of event
        )
    return {
        "index": index,
        "at": rfc3339(chunk.at_us),
        "at_us": chunk.at_us,
        "kind": kind,
        "event_type": facts.event_type,
        "size": size,
        "text": text,
        "finish_reason": facts.finish_reason,
        "usage": facts.usage.as_dict() if facts.usage.known else None,
        "error": facts.error.as_dict() if facts.error else None,
        "content": body if chunk.body is None or not raw else msgspec.Raw(chunk.body),
    }
