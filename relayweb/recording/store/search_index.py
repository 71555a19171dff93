"""The full-text index over recorded messages: SQLite FTS5 or PostgreSQL tsvector, each unique message indexed once.

What is searched for are the terms of `search_words`. A document is a content of the store (its number) or what stands
in an event itself (minus its number). A mention says which attempt spoke it: answers, the messages since the user's
last one, and history that nobody spoke before; history that a request only repeats is not mentioned again. The SQLite
index holds no positions, which would triple it: phrases are checked on the texts found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q

from relayweb.recording.conventions import genai
from relayweb.recording.models import Event, Ledger
from relayweb.recording.store import encoding, stored
from relayweb.recording.store.compression import EVENT
from relayweb.recording.store.recent import Recent
from relayweb.recording.store.search_words import MAX_TEXT, split, words
from relayweb.recording.store.stored import Reader

BATCH = 200  # events of one transaction
_LOCK = 0x696E646578  # of the process that indexes, on PostgreSQL
MAX_WORD = 255  # characters of one word that count

FORMAT = 2
"""Of what is in the index; one of another format is made anew."""

_HOLE = re.compile(rb"\0(?:(c)|[upr]|t..)", re.DOTALL)
_LISTS = ("messages", "input", "contents")
_SILENT = frozenset(
    ("id", "type", "role", "tool_call_id", "tool_use_id", "call_id", "signature", "model", "object", "status")
    + ("finish_reason", "stop_reason", "encrypted_content", "mime_type", "media_type", "system_fingerprint")
    + ("created", "service_tier", "usage", "cache_control")
)
_FILES = ("base64", "image", "input_image", "image_url", "input_audio", "file", "input_file", "redacted_thinking")


def spoken(value: Any) -> Iterator[str]:
    """The texts in a message or an answer: what was said, called and returned; no ids, kinds or encoded files."""
    stack, size = [value], 0
    while stack and size < MAX_TEXT:
        value = stack.pop()
        if isinstance(value, str):
            if not value.startswith("data:"):
                size += len(value)
                yield value[:MAX_TEXT]
        elif isinstance(value, dict):
            if value.get("type") not in _FILES:
                stack += [value[name] for name in reversed(value) if name not in _SILENT]
        elif isinstance(value, list):
            stack += reversed(value)


# What an event says -------------------------------------------------------------------------------------------------


class Said:
    """What one event says: contents it speaks, contents it repeats or brings as history, and texts of its own."""

    __slots__ = ("history", "inline", "message", "scope", "spoken")

    def __init__(self, scope: UUID) -> None:
        self.scope = scope
        self.message: bytes | None = None
        """Of a log record with one message of a request: the message in its trace. Each request tells it again."""
        self.spoken: set[int] = set()
        self.history: set[int] = set()
        self.inline: list[str] = []


def _skeleton(body: encoding.Body) -> Any:
    """An event's value with `{"$c": number}` where a content stood."""
    refs = iter(body.refs)
    text = _HOLE.sub(lambda m: b'{"$c":%d}' % next(refs) if m[1] else b"x", body.text)
    return stored.load(text)


def _reference(value: Any) -> int | None:
    number = value.get("$c") if isinstance(value, dict) and len(value) == 1 else None
    return number if isinstance(number, int) else None


def _references(value: Any) -> Iterator[int]:
    stack = [value]
    while stack:
        value = stack.pop()
        number = _reference(value)
        if number is not None:
            yield number
        elif isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value


def said(event: Event, reader: Reader) -> Said | None:
    """What the start or end event of an llm scope says, or a mark that tells of a conversation; None for others."""
    value = _skeleton(encoding.decode(bytes(event.body), EVENT.expand))
    if not isinstance(value, dict):
        return None
    found, data = Said(event.mark_of or event.uuid), value.get("data")
    if event.kind == Event.Kind.MARK and genai.tells_call(value.get("name")):
        found.history.update(_references(data))
        call = genai.read_call({}, [(value["name"], genai.said_in(_without_references(data)))])
        found.inline += spoken([_since_the_user(call.messages, reader), [message for message, _ in call.answers]])
        if genai.tells_message(value["name"]):
            found.message = found.scope.bytes[:8] + sha256("\n".join(found.inline).encode("utf-8", "replace")).digest()
        return found
    if value.get("category") != "llm":
        return None
    if event.kind == Event.Kind.END:
        found.spoken.update(_references(data))
        found.inline += spoken(_without_references(data))
        return found
    request = data.get("content") if isinstance(data, dict) else None
    request = request if isinstance(request, dict) else {}
    messages = next((request[name] for name in _LISTS if request.get(name)), None)
    tail = _since_the_user(messages, reader) if isinstance(messages, list) else [messages]
    for message in tail:
        found.spoken.update(_references(message))
        found.inline += spoken(_without_references(message))
    found.history.update(_references([messages, request.get("system"), request.get("instructions")]))
    found.history -= found.spoken
    return found


def _without_references(value: Any) -> Any:
    if isinstance(value, dict):
        return None if _reference(value) is not None else {k: _without_references(v) for k, v in value.items()}
    return [_without_references(v) for v in value] if isinstance(value, list) else value


def _since_the_user(messages: list[Any], reader: Reader) -> list[Any]:
    """The messages from the user's last one on: what this request adds, even where its text is old."""
    for at in range(len(messages) - 1, -1, -1):
        number = _reference(messages[at])
        message = messages[at] if number is None else stored.load(reader.contents([number]).get(number))
        if isinstance(message, dict) and message.get("role", message.get("type")) in ("user", "human"):
            blocks = message.get("content")
            kinds = {b.get("type") for b in blocks if isinstance(b, dict)} if isinstance(blocks, list) else set()
            if kinds != {"tool_result"}:
                return messages[at:]
    return messages[-1:]


# Indexing -----------------------------------------------------------------------------------------------------------


class _Indexed:
    """Contents known to be in the index, so that a long history costs no look-up each time it is repeated."""

    def __init__(self) -> None:
        self.recent: Recent[int, bool] = Recent(50_000, "indexed_contents")
        self.epoch = -1

    def unknown(self, numbers: set[int]) -> set[int]:
        """Those of `numbers` that are not indexed yet."""
        epoch = Ledger.objects.values_list("epoch", flat=True).first() or 0
        if epoch != self.epoch:  # contents were deleted
            self.recent.clear()
            self.epoch = epoch
        open_ = [number for number in numbers if self.recent.get(number) is None]
        indexed: set[int] = set()
        for some in (open_[at : at + 500] for at in range(0, len(open_), 500)):
            marks = ", ".join(["%s"] * len(some))
            indexed.update(
                n for (n,) in _fetch(f"SELECT DISTINCT doc FROM recording_mention WHERE doc IN ({marks})", some)
            )
        self.add(indexed)
        return set(open_) - indexed

    def add(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.recent.put(number, True)
        self.recent.trim()


_indexed = _Indexed()
_messages: Recent[bytes, bool] = Recent(20_000, "indexed_messages")
"""As `Said.message`: those in the index."""


def reached() -> int:
    """The number of the last event in the index."""
    return int(next(iter(_fetch("SELECT seq FROM recording_searchstate WHERE id = 1")), (0,))[0])


def is_current() -> bool:
    """Whether the index is of the form that is written today."""
    return _fetch("SELECT seq FROM recording_searchstate WHERE id = 2") == [(FORMAT,)]


def catch_up(limit: int = BATCH) -> bool:
    """Index the next events of the log; returns whether there may be more.

    Reading and splitting into words holds no writer up; the writes are one short transaction, given up if another
    process was faster. On PostgreSQL one process indexes at a time; the others leave it to that one.
    """
    if connection.vendor != "postgresql":
        return _catch_up(limit)
    with transaction.atomic():
        return bool(_fetch("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])[0][0]) and _catch_up(limit)


def _catch_up(limit: int) -> bool:
    after = reached()
    newest = Ledger.objects.values_list("seq", flat=True).first() or 0
    if after > newest or not is_current():  # of another record, or in another form
        clear()
        after = 0
    events = list(following(after)[:limit])
    if not events:
        return False
    new, documents, mentions, messages = _read(events)
    texts, said_by = _rows(documents, mentions)
    with transaction.atomic():
        _alone()
        if reached() != after:
            return True
        if Event.objects.filter(seq__in=[event.seq for event in events]).count() < len(events):
            return True  # some were forgotten meanwhile, when nothing of them was in the index yet
        _insert(texts, said_by)
        _execute("UPDATE recording_searchstate SET seq = %s WHERE id = 1", [events[-1].seq])
    _indexed.add(new)
    for message in messages:
        _messages.put(message, True)
    _messages.trim()
    return len(events) == limit


def _alone() -> None:
    """Let nobody else change the index until the transaction ends."""
    if connection.vendor == "postgresql":
        _fetch("SELECT 1 FROM recording_searchstate WHERE id = 1 FOR UPDATE")


def following(seq: int) -> Any:
    """Starts and ends of scopes after a number, and what was read from spans and log records, in order."""
    copies = F("flags").bitand(Event.Flag.COPY | Event.Flag.MADE)
    wanted = ~Q(kind=Event.Kind.MARK) | Q(copies__gt=0)
    return Event.objects.alias(copies=copies).filter(wanted, seq__gt=seq).order_by("seq")


def spoken_by(events: Iterable[Event], reader: Reader) -> Iterator[tuple[Event, Said, set[int]]]:
    """Each event of an llm scope with what it says and the contents it mentions: those it speaks, and history that is
    neither in the index nor mentioned by an event before it."""
    told = [(event, found) for event in events if (found := said(event, reader)) is not None]
    unspoken = _indexed.unknown(set().union(*(found.history for _, found in told)))
    for event, found in told:
        mentioned = found.spoken | (found.history & unspoken)
        unspoken -= mentioned
        yield event, found, mentioned


def _read(events: Iterable[Event]) -> tuple[set[int], dict[int, str], list[tuple[int, UUID]], set[bytes]]:
    """Contents that are new to the index, documents to add, who spoke which, and single messages that are new."""
    reader = Reader()
    messages: set[bytes] = set()
    documents: dict[int, str] = {}
    mentions: list[tuple[int, UUID]] = []
    for event, found, mentioned in spoken_by(events, reader):
        mentions += [(number, found.scope) for number in mentioned]
        if found.message is not None:
            if found.message in messages or _messages.get(found.message):
                continue
            messages.add(found.message)
        if found.inline:
            documents[-event.seq] = "\n".join(found.inline)
            mentions.append((-event.seq, found.scope))
    new = _indexed.unknown({number for number, _ in mentions if number > 0})
    texts = reader.contents(new)
    documents |= {number: "\n".join(spoken(stored.load(texts[number]))) for number in new if number in texts}
    return new, documents, mentions, messages


def _rows(documents: dict[int, str], mentions: list[tuple[int, UUID]]) -> tuple[list[Any], list[Any]]:
    """The documents and mentions as the database takes them."""
    texts: list[tuple[int, Any]] = _given(documents.items())
    if connection.vendor == "postgresql":
        # Not by PostgreSQL's own parser, which keeps URLs, e-mail addresses and numbers with signs in one piece.
        texts = [(number, sorted({word[:MAX_WORD] for word in split(text)})) for number, text in texts]
    return texts, [(number, as_parameter(uuid)) for number, uuid in mentions]


def _insert(texts: list[Any], mentions: list[Any]) -> None:
    on_postgresql = connection.vendor == "postgresql"
    row = "(%s, array_to_tsvector(%s::text[]))" if on_postgresql else "(%s, %s)"
    unless_there = " ON CONFLICT DO NOTHING"
    _put("INSERT INTO recording_search (rowid, words) VALUES ", row, unless_there if on_postgresql else "", texts)
    _put("INSERT INTO recording_mention (doc, scope_uuid) VALUES ", "(%s, %s)", unless_there, mentions)


def _put(insert: str, row: str, tail: str, pairs: list[Any]) -> None:
    """Many rows a statement: after each statement Python's lock is waited for, with the database locked meanwhile."""
    for some in (pairs[at : at + 400] for at in range(0, len(pairs), 400)):
        _execute(insert + ", ".join([row] * len(some)) + tail, [value for pair in some for value in pair])


def _given(documents: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(number, words(text)) for number, text in documents if text.strip()]


def as_parameter(uuid: UUID) -> Any:
    return uuid if connection.vendor == "postgresql" else uuid.bytes


def _fetch(sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def _execute(sql: str, parameters: Sequence[Any] = ()) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def texts_of(numbers: Sequence[int], reader: Reader) -> Iterator[tuple[int, str]]:
    """Documents by number, as they were given to the index; those that are gone are left out."""
    contents = reader.contents([number for number in numbers if number > 0])
    for number in numbers:
        if number in contents:
            yield number, "\n".join(spoken(stored.load(contents[number])))
    for event in Event.objects.filter(seq__in=[-number for number in numbers if number < 0]):
        found = said(event, reader)
        if found is not None:
            yield -event.seq, "\n".join(found.inline)


def forget(contents: Iterable[int], events: Iterable[int]) -> None:
    """Take documents out of the index, before their contents and events are deleted and in that same transaction.

    An index without a copy of the texts must be told what to take out.
    """
    if not is_current():
        clear()
    _alone()
    numbers = [*contents, *(-seq for seq in events)]
    for some in (numbers[at : at + 500] for at in range(0, len(numbers), 500)):
        marks = ", ".join(["%s"] * len(some))
        indexed = [n for (n,) in _fetch(f"SELECT DISTINCT doc FROM recording_mention WHERE doc IN ({marks})", some)]
        if connection.vendor == "postgresql":
            _execute(f"DELETE FROM recording_search WHERE rowid IN ({marks})", some)
        else:
            take_out = "INSERT INTO recording_search (recording_search, rowid, words) VALUES ('delete', %s, %s)"
            given = _given(texts_of(indexed, Reader()))
            with connection.cursor() as cursor:
                cursor.executemany(take_out, given)
        _execute(f"DELETE FROM recording_mention WHERE doc IN ({marks})", some)
    _indexed.epoch = -1


def clear() -> None:
    """Empty the index; the next `catch_up` begins at the first event."""
    if connection.vendor == "postgresql":
        _execute("DELETE FROM recording_search")
    else:
        _execute("INSERT INTO recording_search (recording_search) VALUES ('delete-all')")
    _execute("DELETE FROM recording_mention")
    _execute("DELETE FROM recording_searchstate")
    _execute("INSERT INTO recording_searchstate (id, seq) VALUES (1, 0), (2, %s)", [FORMAT])
    _indexed.epoch = -1
    _messages.clear()
