"""What the writer says to PostgreSQL in its own way: whole batches by COPY, look-ups by array.

Django's cursors put values into the text of each statement; these send them apart, and in binary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper

LOCK: Final = 0x72656C6179
"""Advisory lock of all writers of one database, held for a transaction."""

# A writer that hangs inside a transaction would hold up all others: the server ends it, and nobody waits for it longer
# than a door waits for its answer.
_TUNE: Final = "SET lock_timeout = '4s'; SET idle_in_transaction_session_timeout = '15s'"

# That timeout does not count while a COPY waits for its rows: whoever waits for such a writer ends it.
_HUNG: Final = (
    "SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database() "
    f"AND l.classid = {LOCK >> 32} AND l.objid = {LOCK & 0xFFFFFFFF} "
    "AND a.state = 'active' AND a.wait_event = 'ClientRead' AND clock_timestamp() - a.query_start > %s * interval '1 s'"
)
_HUNG_SECONDS = 15

_BEGIN: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({LOCK}); "
    "SELECT seq, content_id, epoch, swept_us FROM recording_ledger WHERE id = 1"
)


def tune(raw: Any) -> None:
    """Prepare a new connection for writing."""
    execute(raw, _TUNE)


def begin(raw: Any) -> tuple[int, int, int, int] | None:
    """Open a transaction once no other writer has one, in one round trip; returns the ledger, if there is one."""
    from psycopg.errors import LockNotAvailable

    try:
        cursor = raw.execute(_BEGIN)
    except LockNotAvailable:
        raw.execute("ROLLBACK")
        raw.execute(_HUNG, [_HUNG_SECONDS])
        raise
    while cursor.nextset():
        pass
    row: tuple[int, int, int, int] | None = cursor.fetchone()
    return row


def execute(raw: Any, sql: str, values: Sequence[Any] = ()) -> Any:
    """Run one statement; several, without values, in one round trip."""
    from psycopg import Cursor

    cursor = Cursor(raw)
    return cursor.execute(sql, values, binary=True) if values else cursor.execute(sql)


def copy(connection: BaseDatabaseWrapper, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows; uuids come as `uuid.UUID`."""
    if not rows:
        return
    from psycopg import Cursor

    sql = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with Cursor(connection.connection) as cursor, cursor.copy(sql) as out:
        out.set_types(_types(table, tuple(columns)))
        for row in rows:
            out.write_row(row)


def next_ids(raw: Any, table: str, count: int) -> list[int]:
    """`count` new values of the table's `id`."""
    sql = f"SELECT nextval(pg_get_serial_sequence('{table}', 'id')) FROM generate_series(1, {count:d})"
    return [number for (number,) in execute(raw, sql).fetchall()]


@lru_cache
def _types(table: str, columns: Sequence[str]) -> list[str]:
    from django.db import connections

    model = next(m for m in apps.get_app_config("recording").get_models() if m._meta.db_table == table)
    found = [model._meta.get_field(column).db_type(connections["default"]) or "text" for column in columns]
    return [name.partition("(")[0] for name in found]
