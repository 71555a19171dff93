"""A scope's row is written narrowly: what is known of it, then what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relayweb.recording.projection.nodes import Node
from relayweb.recording.store import scope_rows


def written(*changes: tuple[scope_rows.Row, scope_rows.Row | None]) -> list[tuple[str, list[list[Any]]]]:
    found: list[tuple[str, list[list[Any]]]] = []

    def many(sql: str, rows: Sequence[Sequence[Any]]) -> None:
        found.append((sql, [list(row) for row in rows]))

    scope_rows.write(changes, many)
    return found


def test_new_rows_that_know_the_same_share_a_statement_that_names_no_other_column() -> None:
    rows = [Node.fresh(bytes([number]) * 16).save() for number in (1, 2)]
    ((sql, values),) = written(*rows)
    assert sql.startswith("INSERT") and "turn_uuid" in sql and "finish_reason" not in sql
    assert [row[0] for row in values] == [b"\1" * 16, b"\2" * 16]


def test_a_row_on_record_is_updated_where_it_changed_and_left_alone_where_not() -> None:
    node = Node.fresh(bytes(16))
    node.save()
    node.seq, node.finish_reason = 5, "stop"
    change = node.save()
    assert written(change) == [
        ("UPDATE recording_scope SET seq = ?, finish_reason = ? WHERE uuid = ?", [[5, "stop", bytes(16)]])
    ]
    assert written(node.save()) == []


def test_a_value_that_goes_is_written_as_null() -> None:
    node = Node.fresh(bytes(16))
    node.asked = "hi"
    node.save()
    node.asked = None
    assert written(node.save()) == [("UPDATE recording_scope SET asked = ? WHERE uuid = ?", [[None, bytes(16)]])]
