"""A writer that hangs with the lock of all writers is ended by those who wait for it."""

from __future__ import annotations

import pytest
from django.db import connection

from relayweb.recording.store import postgres
from relayweb.recording.store.tables import Tables

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="about locks of PostgreSQL"),
]


def test_a_writer_that_stands_still_within_a_copy_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg
    from psycopg.errors import LockNotAvailable

    monkeypatch.setattr(postgres, "_HUNG_SECONDS", 1)
    tables = Tables(connection)
    tables.begin()
    tables.rollback()
    hung = psycopg.connect(**connection.get_connection_params(), autocommit=True)
    try:
        postgres.begin(hung)
        hung.pgconn.send_query(b"COPY recording_content FROM STDIN")
        with pytest.raises(LockNotAvailable):
            postgres.begin(connection.connection)
        tables.begin()
        tables.rollback()
    finally:
        hung.close()
