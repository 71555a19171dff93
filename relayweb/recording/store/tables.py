"""The writer's SQL, for SQLite and PostgreSQL: whole batches, no ORM.

Uuids are 16 bytes everywhere in the writer; `Tables` turns them into what the database wants and back.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from relayweb.recording.store import postgres, scope_rows
from relayweb.recording.store.scope_rows import SCOPE_COLUMNS

_SCOPE_UUIDS = [i for i, c in enumerate(SCOPE_COLUMNS) if c == "uuid" or c.endswith("_uuid")]
_SCOPE_BOOLS = [
    i
    for i, c in enumerate(SCOPE_COLUMNS)
    if c in ("top", "is_session", "is_turn", "is_home", "streaming", "usage_complete")
]
# Without an adapter of its own, sqlite3 looks in vain for two methods of each value that is bound.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(bool, int)
# Our own word index may hold the lock for most of a second when the machine is busy: that is no trouble yet.
_PRAGMAS = ("busy_timeout=2500", "cache_size=-16000", "temp_store=MEMORY")
_EVENT_COLUMNS = ("seq", "uuid", "kind", "digest", "mark_of", "at_ns", "flags", "body")
_CONTENT_COLUMNS = ("id", "digest", "kind", "size", "body")
_BLOCK_COLUMNS = ("attempt_uuid", "kind", "first_seq", "last_seq", "count", "sealed", "body")

REWRITE_COLUMNS: Final = (
    "seq",
    "attempt_uuid",
    "position",
    "key",
    "revision",
    "title",
    "action",
    "priority",
    "mode",
    "result",
    "changed",
    "duration_us",
    "bytes_before",
    "bytes_after",
    "reason",
    "error",
    "ruleset",
)


_ADVICE: Final = (
    ("disk is full", "free some space; recording goes on by itself"),
    ("no space left", "free some space; recording goes on by itself"),
    ("readonly", "RELAYWEB_HOME must be writable; recording goes on by itself once it is"),
    ("unable to open", "RELAYWEB_HOME must exist and be writable; recording goes on by itself once it is"),
    ("locked", "another program holds the database; recording goes on by itself once it lets go"),
    ("no such table", "run `relayweb serve` or any command of it, which migrates the database"),
    ("connect", "the database server cannot be reached; recording goes on by itself once it can"),
)


@lru_cache(1)
def _unavailable() -> tuple[type[BaseException], ...]:
    found: list[type[BaseException]] = [OperationalError, InterfaceError, sqlite3.OperationalError]
    with contextlib.suppress(ImportError):
        import psycopg

        found += [psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.UndefinedTable]
    return tuple(found)


class Tables:
    """One connection, used by one thread."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.postgres = connection.vendor == "postgresql"
        self._mark = "%s" if self.postgres else "?"
        self._tuned: Any = None
        columns = ", ".join(SCOPE_COLUMNS)
        self._select_scope = f"SELECT {columns} FROM recording_scope WHERE "
        self._insert_event = self._insert("recording_event", _EVENT_COLUMNS)
        self._insert_content = self._insert("recording_content", _CONTENT_COLUMNS)
        self._insert_block = self._insert("recording_chunkblock", ("id", *_BLOCK_COLUMNS))
        self._insert_rewrite = self._insert("recording_rewrite", REWRITE_COLUMNS)

    def _insert(self, table: str, columns: Sequence[str]) -> str:
        names = ", ".join(columns)
        return f"INSERT INTO {table} ({names}) VALUES ({', '.join([self._mark] * len(columns))})"

    # Errors

    @property
    def unavailable(self) -> tuple[type[BaseException], ...]:
        """What the drivers raise when the database, and not an event, is the trouble."""
        return _unavailable()

    @staticmethod
    def explain(error: BaseException) -> str:
        """What is wrong with the database, and what would mend it."""
        text = str(error).strip().split("\n")[0]
        for part, advice in _ADVICE:
            if part in text.lower():
                return f"{text}: {advice}"
        return f"the database cannot be written: {text}"

    # Values

    def uuid_in(self, value: bytes | None) -> Any:
        return uuid.UUID(bytes=value) if self.postgres and value is not None else value

    @staticmethod
    def uuid_out(value: Any) -> bytes | None:
        return value.bytes if isinstance(value, uuid.UUID) else value if value is None else bytes(value)

    # Transactions

    def begin(self) -> tuple[int, int, int, int]:
        """Start writing, alone. Returns the ledger: seq, content_id, epoch, swept_us."""
        self.connection.ensure_connection()
        if self._tuned is not self.connection.connection:
            self._tuned = self.connection.connection
            if self.postgres:
                postgres.tune(self._tuned)
            for pragma in () if self.postgres else _PRAGMAS:
                self._run(f"PRAGMA {pragma}").close()
        row: Any
        if self.postgres:
            row = postgres.begin(self._tuned)
        else:
            self._run("BEGIN IMMEDIATE")
            row = self._run("SELECT seq, content_id, epoch, swept_us FROM recording_ledger WHERE id = 1").fetchone()
        if row is None:
            self._run("INSERT INTO recording_ledger (id, seq, content_id, epoch, swept_us) VALUES (1, 0, 0, 0, 0)")
            return 0, 0, 0, 0
        return tuple(row)

    def commit(self, seq: int, content_id: int, epoch: int, swept_us: int) -> None:
        self._run(
            f"UPDATE recording_ledger SET seq = {seq:d}, content_id = {content_id:d}, epoch = {epoch:d}, "
            f"swept_us = {swept_us:d} WHERE id = 1" + ("; COMMIT" if self.postgres else "")
        )
        if not self.postgres:
            self._run("COMMIT")

    def rollback(self) -> None:
        """Give up the transaction; a connection that is broken is closed, and opened anew by the next `begin`."""
        try:
            self._run("ROLLBACK")
        except Exception:  # "no transaction is active" after a failed BEGIN, or the connection is gone
            self.connection.close()

    def _run(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Execute on the driver's own cursor: Django would translate each statement and every value again."""
        raw = self.connection.connection
        if raw is None:
            raise OperationalError("the database connection is closed")
        if self.postgres:
            return postgres.execute(raw, sql, values)
        cursor = raw.cursor()
        cursor.execute(sql, values) if values else cursor.execute(sql)
        return cursor

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.connection.connection.cursor().executemany(sql, rows)

    def _put(self, table: str, columns: Sequence[str], insert: str, rows: Sequence[Sequence[Any]]) -> None:
        if self.postgres:
            postgres.copy(self.connection, table, columns, rows)
        else:
            self._many(insert, rows)

    def _in(self, sql: str, values: Sequence[Any], tail: str = "") -> Iterator[Any]:
        """Rows of `sql IN (values)`, asked in portions of few sizes so that statements are reused."""
        if self.postgres:
            if values:
                yield from self._run(f"{sql} = ANY(%s){tail}", [list(values)]).fetchall()
            return
        at = 0
        while at < len(values):
            part = list(values[at : at + 256])
            at += len(part)
            size = 1
            while size < len(part):
                size *= 2
            part += [part[-1]] * (size - len(part))
            yield from self._run(f"{sql} IN ({', '.join([self._mark] * size)}){tail}", part).fetchall()

    # Scopes

    def scopes(self, uuids: Iterable[bytes]) -> Iterator[list[Any]]:
        return self._scope_rows(self._select_scope + "uuid", uuids)

    def waiting(self, parents: Iterable[bytes]) -> Iterator[list[Any]]:
        """Scopes without a parent on record whose parent is one of these."""
        return self._scope_rows(self._select_scope + "top AND parent_uuid", parents)

    def children(self, parents: Iterable[bytes]) -> Iterator[list[Any]]:
        return self._scope_rows(self._select_scope + "parent_uuid", parents)

    def members(self, homes: Iterable[bytes]) -> Iterator[list[Any]]:
        """All scopes that are counted by these homes, the homes included."""
        return self._scope_rows(self._select_scope + "turn_uuid", homes)

    def attempts_of(self, home: bytes, request_id: str) -> list[list[Any]]:
        """The attempts that this home counts and that tell this request id."""
        mark = self._mark
        sql = f"{self._select_scope} turn_uuid = {mark} AND api_request_id = {mark} AND role = 'attempt'"
        return [self._scope_out(row) for row in self._run(sql, (self.uuid_in(home), request_id)).fetchall()]

    def inner_homes(self, homes: Iterable[bytes]) -> Iterator[list[Any]]:
        return self._scope_rows(self._select_scope + "parent_turn_uuid", homes)

    def running(self, arrived_before_us: int, limit: int) -> list[list[Any]]:
        sql = f"{self._select_scope} status = 'running' AND arrived_us < {arrived_before_us:d} LIMIT {limit:d}"
        return [self._scope_out(row) for row in self._run(sql).fetchall()]

    def changed_scopes(self, since: int) -> list[bytes]:
        rows = self._run(f"SELECT uuid FROM recording_scope WHERE seq > {since:d}").fetchall()
        return [self.uuid_out(row[0]) or b"" for row in rows]

    def changed_attempts(self, since: int) -> list[bytes]:
        rows = self._run(f"SELECT attempt_uuid FROM recording_chunkblock WHERE last_seq > {since:d}").fetchall()
        return [self.uuid_out(row[0]) or b"" for row in rows]

    def turns_of(self, turn_ids: Iterable[str]) -> Iterator[list[Any]]:
        """Turns, sessions and top scopes that tell one of these turn ids."""
        for row in self._in(self._select_scope + "is_home AND turn_id", list(turn_ids)):
            yield self._scope_out(row)

    def _scope_rows(self, sql: str, uuids: Iterable[bytes]) -> Iterator[list[Any]]:
        for row in self._in(sql, [self.uuid_in(u) for u in uuids]):
            yield self._scope_out(row)

    def _scope_out(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        if self.postgres:
            for i in _SCOPE_UUIDS:
                values[i] = self.uuid_out(values[i])
        else:
            for i in _SCOPE_BOOLS:
                if values[i] is not None:
                    values[i] = bool(values[i])
        return values

    def put_scopes(self, changes: Sequence[tuple[scope_rows.Row, scope_rows.Row | None]]) -> None:
        """Write rows, each given as it is now and as it is on record (None for a new one)."""
        if self.postgres:
            rows = [list(row) for row, _ in changes]
            for row in rows:
                for i in _SCOPE_UUIDS:
                    row[i] = self.uuid_in(row[i])
            # An update would write all of a row and its index entries anew as well, and COPY knows no conflicts.
            if rows:
                self._run("DELETE FROM recording_scope WHERE uuid = ANY(%s)", [[row[0] for row in rows]])
            postgres.copy(self.connection, "recording_scope", SCOPE_COLUMNS, rows)
            return
        scope_rows.write(changes, self._many)

    # Events

    def events(self, uuids: Iterable[bytes]) -> Iterator[tuple[bytes, int, int, bytes, int, int, bytes]]:
        """(uuid, kind, seq, digest, at_ns, flags, body) of all events with these uuids."""
        sql = "SELECT uuid, kind, seq, digest, at_ns, flags, body FROM recording_event WHERE uuid"
        for row in self._in(sql, [self.uuid_in(u) for u in uuids]):
            yield self.uuid_out(row[0]) or b"", row[1], row[2], bytes(row[3]), row[4], row[5], bytes(row[6])

    def last_mark_ns(self, scope: bytes) -> int:
        """The time of the newest mark of a scope (chunks are not among them); 0 if it has none."""
        sql = f"SELECT MAX(at_ns) FROM recording_event WHERE mark_of = {self._mark}"
        return self._run(sql, (self.uuid_in(scope),)).fetchone()[0] or 0

    def orphans(self, scopes: Iterable[bytes]) -> Iterator[tuple[bytes, int, int]]:
        """(scope, seq, flags) of the marks on record under these scopes."""
        sql = "SELECT mark_of, seq, flags FROM recording_event WHERE mark_of"
        for row in self._in(sql, [self.uuid_in(u) for u in scopes]):
            yield self.uuid_out(row[0]) or b"", row[1], row[2]

    def put_events(self, rows: list[tuple[int, bytes, int, bytes, bytes | None, int, int, bytes]]) -> None:
        if self.postgres:
            rows = [(r[0], self.uuid_in(r[1]), r[2], r[3], self.uuid_in(r[4]), *r[5:]) for r in rows]
        self._put("recording_event", _EVENT_COLUMNS, self._insert_event, rows)

    def flag_events(self, rows: list[tuple[int, int]]) -> None:
        """(flags, seq) of events already on record."""
        self._many(f"UPDATE recording_event SET flags = {self._mark} WHERE seq = {self._mark}", rows)

    # Contents

    def content_ids(self, digests: list[bytes]) -> Iterator[tuple[bytes, int]]:
        yield from self._in("SELECT digest, id FROM recording_content WHERE digest", digests)

    def contents(self, ids: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        for row in self._in("SELECT id, body FROM recording_content WHERE id", list(ids)):
            yield row[0], bytes(row[1])

    def put_contents(self, rows: list[tuple[int, bytes, int, int, bytes]]) -> None:
        self._put("recording_content", _CONTENT_COLUMNS, self._insert_content, rows)

    # Retention

    def seqs(self, scopes: Sequence[bytes]) -> Iterator[tuple[int]]:
        """The numbers of all events of these scopes, their marks included."""
        uuids = [self.uuid_in(u) for u in scopes]
        for column in ("uuid", "mark_of"):
            yield from self._in(f"SELECT seq FROM recording_event WHERE {column}", uuids)

    def delete(self, table: str, column: str, values: Sequence[Any]) -> int:
        """Delete the rows of `table` whose `column` is one of `values` (16 bytes a uuid); returns how many went."""
        if values and isinstance(values[0], bytes):
            values = [self.uuid_in(value) for value in values]
        count = 0
        for at in range(0, len(values), 256):
            some = values[at : at + 256]
            marks = ", ".join([self._mark] * len(some))
            count += self._run(f"DELETE FROM {table} WHERE {column} IN ({marks})", some).rowcount
        return count

    # Chunks and rewrites

    def blocks(self, attempts: Iterable[bytes]) -> Iterator[tuple[bytes, int, int, bool, bytes]]:
        """(attempt, kind, id, sealed, body) of the blocks of these attempts."""
        sql = "SELECT attempt_uuid, kind, id, sealed, body FROM recording_chunkblock WHERE attempt_uuid"
        for row in self._in(sql, [self.uuid_in(u) for u in attempts], " ORDER BY id"):
            yield self.uuid_out(row[0]) or b"", row[1], row[2], bool(row[3]), bytes(row[4])

    def put_blocks(self, rows: list[tuple[bytes, int, int, int, int, bool, bytes]]) -> list[int]:
        """Insert blocks; returns their ids."""
        if not rows:
            return []
        if not self.postgres:
            last = self._run("SELECT seq FROM sqlite_sequence WHERE name = 'recording_chunkblock'").fetchone()
            first = last[0] + 1 if last else 1
            self._many(self._insert_block, [(first + i, *row) for i, row in enumerate(rows)])
            return list(range(first, first + len(rows)))
        ids = postgres.next_ids(self.connection.connection, "recording_chunkblock", len(rows))
        numbered = [(number, self.uuid_in(row[0]), *row[1:]) for number, row in zip(ids, rows, strict=True)]
        postgres.copy(self.connection, "recording_chunkblock", ("id", *_BLOCK_COLUMNS), numbered)
        return ids

    def drop_blocks(self, ids: list[int]) -> None:
        self.delete("recording_chunkblock", "id", ids)

    def drop_rewrites(self, seqs: list[int]) -> None:
        self.delete("recording_rewrite", "seq", seqs)

    def put_rewrites(self, rows: list[tuple[Any, ...]]) -> None:
        if self.postgres:
            rows = [(row[0], self.uuid_in(row[1]), *row[2:]) for row in rows]
        self._put("recording_rewrite", REWRITE_COLUMNS, self._insert_rewrite, rows)
