from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.served import Served

pytestmark = pytest.mark.skipif(bool(os.environ.get("DATABASE_URL")), reason="about the file of SQLite")


def pragmas(database: Any) -> tuple[Any, ...]:
    names = ("page_size", "auto_vacuum", "journal_mode")
    return tuple(database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)


def test_a_new_file_has_large_pages_and_gives_room_back(tmp_path: Path) -> None:
    served = Served(tmp_path)
    assert served.run("token", "create", "--scope", "read").returncode == 0
    database = sqlite3.connect(tmp_path / "relayweb.sqlite3")
    assert pragmas(database) == (8192, 2, "wal")
    database.close()


@pytest.mark.django_db(transaction=True)
def test_a_new_connection_does_not_wait_for_who_is_writing() -> None:
    writing = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")
    seen: list[Any] = []

    def read() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM recording_event")
            seen.append(cursor.fetchone()[0])
        connection.close()

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(5)
    held_up = reader.is_alive()
    writing.execute("ROLLBACK")
    writing.close()
    reader.join(30)
    assert not held_up and seen == [0]
