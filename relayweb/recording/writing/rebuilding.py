"""Whether the rows are what the log says, and making them so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from django.db import connection

from relayweb.recording.conventions import pricing
from relayweb.recording.models import Rewrite, Scope
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.replay import Aside, Replay

Difference = tuple[str, bytes, str]
"""What kind, of which scope or mark, and what in it."""

_TABLES = {"recording_scope": Scope, "recording_rewrite": Rewrite}
_BY_ARRIVAL = frozenset(("seq", "arrived_us", "state"))
_SLICE = 200
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_SHARED = 10  # of a home's state, whether several processes were seen to share it: depends on when

Progress = Callable[[int], None]


class Rebuilt:
    """The rows that the log gives, beside those of the record, inside one transaction."""

    def __init__(self) -> None:
        self._tables = Tables(connection)
        self._record = "main" if connection.vendor == "sqlite" else self._fetch("SELECT current_schema()")[0][0]
        pricing.table()  # which may write

    def differences(self, progress: Progress) -> Iterator[Difference]:
        """Scopes and rewrites on record that are not what the log says. Nobody is held up meanwhile."""
        with self._transaction(write=False):
            self._replay(progress)
            yield from self._compare()

    def mend(self, progress: Progress) -> int:
        """Put the rows that the log gives where others stand; returns how many. Recording waits meanwhile."""
        with self._transaction(write=True):
            self._replay(progress)
            wrong = {table: {key for key, _ in self._wrong(table)} for table in _TABLES}
            self._number_anew()
            for table, keys in wrong.items():
                self._replace(table, sorted(keys))
            return sum(map(len, wrong.values()))

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[None]:
        connection.ensure_connection()
        if write:
            self._tables.begin()
        elif connection.vendor == "postgresql":
            self._run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        else:
            self._run("BEGIN")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK")
            raise
        for table in _TABLES:
            self._run(f"DROP TABLE {self._aside}.{table}")
        self._run("COMMIT" if write else "ROLLBACK")

    @property
    def _aside(self) -> str:
        return "temp" if connection.vendor == "sqlite" else "pg_temp"

    def _replay(self, progress: Progress) -> None:
        for table in _TABLES:
            if connection.vendor == "postgresql":
                self._run(f"CREATE TEMP TABLE {table} (LIKE {self._record}.{table} INCLUDING ALL)")
                continue
            made_by = f"SELECT sql FROM main.sqlite_master WHERE tbl_name = '{table}' AND sql IS NOT NULL"
            for (made,) in self._fetch(f"{made_by} ORDER BY type = 'index'"):
                made = made.replace("CREATE TABLE ", "CREATE TEMP TABLE ", 1)
                self._run(made.replace("CREATE INDEX ", "CREATE INDEX temp.", 1))
        Replay(Aside(connection), f"{self._record}.recording_scope").run(progress)

    # Comparing

    def _compare(self) -> Iterator[Difference]:
        for table in _TABLES:
            yield from ((kind, key, where) for key, (kind, where) in self._wrong(table))

    def _wrong(self, table: str) -> Iterator[tuple[Any, tuple[str, str]]]:
        columns = [str(field.column) for field in _TABLES[table]._meta.fields]
        key, what = columns[0], table.removeprefix("recording_")
        yield from (
            (row[0], (f"a {what} that no event tells", ""))
            for row in self._fetch(f"SELECT {key} FROM {self._record}.{table} EXCEPT SELECT {key} FROM {table}")
        )
        yield from (
            (row[0], (f"an event has no {what} that shows it", ""))
            for row in self._fetch(f"SELECT {key} FROM {table} EXCEPT SELECT {key} FROM {self._record}.{table}")
        )
        both = ", ".join([f"m.{c}" for c in columns] + [f"t.{c}" for c in columns])
        differs = "IS NOT" if connection.vendor == "sqlite" else "IS DISTINCT FROM"
        where = " OR ".join(f"m.{c} {differs} t.{c}" for c in columns if c not in _BY_ARRIVAL or c == "state")
        sql = f"SELECT {both} FROM {self._record}.{table} m JOIN {table} t ON m.{key} = t.{key} WHERE {where}"
        for row in self._rows(sql):
            here, there = row[: len(columns)], row[len(columns) :]
            found = [
                f"{column} is {_short(one)}, not {_short(other)}"
                for column, one, other in zip(columns, here, there, strict=True)
                if column not in _BY_ARRIVAL and one != other
            ]
            if not found and "state" in columns:
                found = _states_differ(*(values[columns.index("state")] for values in (here, there)))
            if found:
                yield here[0], (f"a {what} is not what its events say", "; ".join(found))

    # Mending

    def _number_anew(self) -> None:
        """A number that is new to viewers and other writers, who all believe the database again."""
        newest = "(SELECT COALESCE(MAX(seq), 0) FROM recording_event)"
        chunks = "(SELECT COALESCE(MAX(last_seq), 0) FROM recording_chunkblock)"
        most = "GREATEST" if connection.vendor == "postgresql" else "MAX"
        self._run(
            f"UPDATE recording_ledger SET epoch = epoch + 1, seq = 1 + {most}(seq, {newest}, {chunks}), "
            f"content_id = {most}(content_id, (SELECT COALESCE(MAX(id), 0) FROM recording_content))"
        )

    def _replace(self, table: str, keys: Sequence[Any]) -> None:
        columns = [str(field.column) for field in _TABLES[table]._meta.fields]
        key, values = columns[0], list(columns)
        if table == "recording_scope":
            values[values.index("seq")] = "(SELECT seq FROM recording_ledger)"
            arrived = f"(SELECT m.arrived_us FROM {self._record}.{table} m WHERE m.{key} = {table}.{key})"
            self._run(f"UPDATE {table} SET arrived_us = COALESCE({arrived}, arrived_us)")
        mark = "%s" if connection.vendor == "postgresql" else "?"
        for at in range(0, len(keys), _SLICE):
            some = list(keys[at : at + _SLICE])
            chosen = f"{key} IN ({', '.join([mark] * len(some))})"
            self._run(f"DELETE FROM {self._record}.{table} WHERE {chosen}", some)
            self._run(
                f"INSERT INTO {self._record}.{table} ({', '.join(columns)}) "
                f"SELECT {', '.join(values)} FROM {table} WHERE {chosen}",
                some,
            )

    # SQL

    def _run(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._tables._run(sql, values)

    def _fetch(self, sql: str) -> list[tuple[Any, ...]]:
        connection.ensure_connection()
        found: list[tuple[Any, ...]] = self._run(sql).fetchall()
        return found

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        cursor = self._run(sql)
        while rows := cursor.fetchmany(_SLICE):
            yield from rows


def _states_differ(here: Any, there: Any) -> list[str]:
    (one, marks), (other, marks_there) = _state(here), _state(there)
    found = ["what the writer keeps with it"] if one != other else []
    if marks and marks != marks_there:  # rows of before this was counted have none
        found.append(f"marks of its chunks are {marks}, not {marks_there}")
    return found


def _state(body: Any) -> tuple[Any, int]:
    """A row's state without what depends on when things came, and how many marks it counts."""
    if body is None:
        return [None, None], 0
    try:
        home, call, *marks = _decode(bytes(body))
        return [home and home[:_SHARED], call], marks[0] if marks else 0
    except (msgspec.MsgspecError, ValueError, TypeError):
        return body, 0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
