"""Full-text search over recorded messages.

The index follows the log a moment behind the writer (`Indexer`): indexing costs as much as recording, and nobody
searches within the second. What it has not reached yet is searched by reading it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from relayweb.recording.models import Ledger, Scope
from relayweb.recording.reading import rhythm
from relayweb.recording.store import search_index, stored
from relayweb.recording.store.search_words import WORD, normal, stands_alone, terms
from relayweb.recording.store.stored import Reader
from relayweb.recording.writing.writer import writer

log = logging.getLogger(__name__)

MAX_CHECKED = 500
"""Texts read to check a phrase, the newest; older ones count when they hold all its words."""
MAX_UNINDEXED = 2_000
"""Events searched by reading them, the newest."""


class Wanted:
    """One search: terms that must all be there, and the phrase they must form."""

    def __init__(self, text: str) -> None:
        phrase = normal(text)
        self.stem = phrase.rstrip("*")
        self.terms = terms(self.stem)
        words = WORD.findall(self.stem)
        ends = bool(words) and self.stem.endswith(words[-1]) and stands_alone(words[-1])
        self.prefix = words[-1] if phrase != self.stem and ends else None
        """The word of which only the beginning is known."""
        self.is_term = self.terms == [self.stem] or (len(self.stem) == 1 and len(self.terms) == 1)
        """Whether the index alone can tell."""
        whole = r"(?<![^\W_])" + re.escape(self.stem) + ("" if self.prefix else r"(?![^\W_])")
        self._word = re.compile(whole) if self.is_term and stands_alone(self.stem) else None

    def match(self) -> str:
        """In the index's own language."""
        if connection.vendor == "postgresql":
            cut = ((t[: search_index.MAX_WORD], ":*" if t == self.prefix else "") for t in self.terms)
            return " & ".join(f"'{term}'{star}" for term, star in cut)
        return " AND ".join(f'"{term}"' + ("*" if term == self.prefix else "") for term in self.terms)

    def holds(self, text: str) -> bool:
        """Whether a text holds the phrase; a single word must stand alone unless it ends in `*`."""
        text = normal(text)
        return self.stem in text if self._word is None else self._word.search(text) is not None


def turns_saying(text: str, notes: list[str]) -> Q:
    """Turns in which somebody said this.

    Args:
        notes: is told where the answer may be less than all, or more, and how to go on.
    """
    if not text.strip(" *"):
        return Q(uuid__isnull=False)
    return Q(uuid__in=Scope.objects.filter(_saying(text, notes)).values("turn_uuid"))


def steps_saying(text: str, turn: UUID) -> QuerySet[Scope]:
    """The scopes of a turn in which somebody said this, the first first."""
    return Scope.objects.filter(_saying(text, []), turn_uuid=turn, joined_uuid__isnull=True).order_by(
        "start_us", "uuid"
    )


def _saying(text: str, notes: list[str]) -> Q:
    """Scopes in which somebody said this."""
    wanted = Wanted(text)
    if not wanted.terms:
        notes.append(f"“{text}” has no letter, figure or sign that can be looked for")
        return Q(uuid__isnull=True)
    if text.startswith("*") and wanted.prefix != wanted.stem and "*" not in wanted.stem[1:]:
        notes.append(f"“{text}”: the * before it was taken as a sign; only ends of words can be left open, as in fix*")
    scopes = Q(uuid__in=_indexed(wanted, notes))
    if fresh := _unindexed(wanted, notes):
        scopes |= Q(uuid__in=fresh)
    return scopes


def _unindexed(wanted: Wanted, notes: list[str]) -> list[UUID]:
    """Scopes that say this in an event that the index has not reached yet, of the newest `MAX_UNINDEXED`."""
    newest = Ledger.objects.values_list("seq", flat=True).first() or 0
    reached = search_index.reached()
    if reached >= newest:
        return []
    if search_index.following(reached).values("seq")[MAX_UNINDEXED : MAX_UNINDEXED + 1]:
        notes.append(
            f"the full-text index is being made; of what it has not reached the newest {MAX_UNINDEXED} events were "
            "looked through. Ask again in a while"
        )
    return list(_read(wanted, reached))


_MATCH = {
    "postgresql": "words @@ %s::tsquery",
    "sqlite": "recording_search MATCH %s",
}


def _indexed(wanted: Wanted, notes: list[str]) -> Any:
    """Scopes that speak a document with these words: a subquery, or their uuids where a phrase had to be checked."""
    documents = f"SELECT rowid FROM recording_search WHERE {_MATCH[connection.vendor]}"
    if wanted.is_term:
        return RawSQL(f"SELECT scope_uuid FROM recording_mention WHERE doc IN ({documents})", [wanted.match()])  # noqa: S611
    with connection.cursor() as cursor:
        cursor.execute(documents, [wanted.match()])
        found = sorted((number for (number,) in cursor.fetchall()), key=abs, reverse=True)
    checked = [number for number, text in search_index.texts_of(found[:MAX_CHECKED], Reader()) if wanted.holds(text)]
    if len(found) > MAX_CHECKED:
        notes.append(
            f"{len(found)} texts hold all parts of “{wanted.stem}”; whether they stand together was looked up in the "
            f"newest {MAX_CHECKED} and taken for granted in older ones. A further word in the quotes narrows it down"
        )
    numbers = ", ".join(map(str, checked + found[MAX_CHECKED:])) or "NULL"
    return RawSQL(f"SELECT scope_uuid FROM recording_mention WHERE doc IN ({numbers})", [])  # noqa: S611


def _read(wanted: Wanted, after: int) -> Iterable[UUID]:
    """Scopes that say this in an event recorded after `after`, of the newest `MAX_UNINDEXED`."""
    reader = Reader()
    events = list(search_index.following(after).order_by("-seq")[:MAX_UNINDEXED])
    for _, found, new in search_index.spoken_by(reversed(events), reader):
        texts = list(found.inline)
        for text in reader.contents(new).values():
            texts += search_index.spoken(stored.load(text))
        if any(wanted.holds(text) for text in texts):
            yield found.scope


class Indexer:
    """The thread that keeps the word index and the figures of streams up with the log, one process at a time."""

    PAUSE = 0.5
    """Seconds of silence before it begins, so that it does not compete with a burst."""
    LATEST = 30.0
    """Seconds after which it begins all the same."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to follow the log. Idempotent."""
        if self._thread is None:
            self._stopping.clear()
            self._unsubscribe = writer().subscribe(self.poke)
            self._thread = threading.Thread(target=self._run, name="relayweb-search", daemon=True)
            self._thread.start()

    def poke(self, seq: int = 0) -> None:
        """Something was recorded."""
        self._wake.set()

    def close(self, timeout: float = 5.0) -> None:
        """Stop after the batch in hand. Idempotent; what is left is indexed by the next process."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._unsubscribe()
            self._thread.join(timeout)
            self._thread = None

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._catch_up()
                self._wake.wait(60)
                self._wake.clear()
                latest = time.monotonic() + self.LATEST
                while self._wake.wait(self.PAUSE) and time.monotonic() < latest and not self._stopping.is_set():
                    self._wake.clear()
        finally:
            connection.close()

    def _catch_up(self) -> None:
        try:
            for followed in (search_index, rhythm):
                while not self._stopping.is_set() and followed.catch_up():
                    self._stopping.wait(0.01)  # let the writer have the database between two batches
        except DatabaseError as error:
            log.warning("the full-text index or the figures of streams are behind: %s", error)
            connection.close()
        except Exception:
            log.exception("the full-text index or the figures of streams are behind")


_indexer = Indexer()


def indexer() -> Indexer:
    """This process's indexer."""
    return _indexer
