"""Each look-up of the writer, the pages and the search has an index on PostgreSQL, by the planner's own word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from relayweb.recording.reading import queries
from relayweb.recording.store.tables import Tables

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="reads PostgreSQL's query plan"),
]

ONE = [bytes(15) + b"\1"]


class Nothing:
    rowcount = 0

    def fetchall(self) -> list[Any]:
        return []

    def fetchone(self) -> tuple[None]:
        return (None,)


class Explaining(Tables):
    """Asks for the plan of each statement, and runs none."""

    plans = ""

    def _run(self, sql: str, values: Any = ()) -> Any:
        self.plans += "\n".join(row[0] for row in super()._run("EXPLAIN " + sql, values).fetchall())
        return Nothing()


@pytest.fixture
def unwilling_to_scan(transactional_db: None) -> None:
    """Tables of tests are empty, where reading them whole is right; what still does so then has no index."""
    with connection.cursor() as cursor:
        # Emptied anew they are of unknown size; where a vacuum has counted no rows, all indexes are equally good.
        tables = [name for name in connection.introspection.table_names() if name.startswith("recording_")]
        cursor.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
        cursor.execute("SET enable_seqscan = off")
    yield
    with connection.cursor() as cursor:
        cursor.execute("RESET enable_seqscan; RESET enable_sort; RESET enable_bitmapscan")


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (lambda t: list(t.scopes(ONE)), "recording_scope_pkey"),
        (lambda t: list(t.waiting(ONE)), "scope_"),
        (lambda t: list(t.members(ONE)), "scope_turn"),
        (lambda t: list(t.inner_homes(ONE)), "scope_inner_turns"),
        (lambda t: t.running(10, 10), "scope_running"),
        (lambda t: t.changed_scopes(10), "scope_seq"),
        (lambda t: t.changed_attempts(10), "block_seq"),
        (lambda t: list(t.events(ONE)), "event_uuid"),
        (lambda t: list(t.orphans(ONE)), "event_marks"),
        (lambda t: list(t.blocks(ONE)), "block_attempt"),
        (lambda t: list(t.content_ids(ONE)), "recording_content_digest"),
        (lambda t: list(t.contents([1])), "recording_content_pkey"),
        (lambda t: t.delete("recording_event", "mark_of", ONE), "event_marks"),
        (lambda t: t.delete("recording_rewrite", "attempt_uuid", ONE), "rewrite_attempt"),
    ],
)
def test_the_writer_finds_by_an_index(unwilling_to_scan: None, ask: Callable[[Tables], Any], index: str) -> None:
    tables = Explaining(connection)
    ask(tables)
    assert index in tables.plans and "Seq Scan" not in tables.plans


def test_the_turn_list_is_read_in_its_order_from_an_index(unwilling_to_scan: None) -> None:
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        queries.turns(limit=50)
    asked = [q["sql"] for q in captured if re.search(r'FROM "recording_scope".*ORDER BY', q["sql"])]
    assert asked
    with connection.cursor() as cursor:
        cursor.execute("SET enable_sort = off; SET enable_bitmapscan = off")  # cheaper while there are no rows
        cursor.execute("EXPLAIN " + asked[0])
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "scope_turn_list" in plan and "Sort" not in plan


def test_words_are_looked_up_in_the_inverted_index(unwilling_to_scan: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN SELECT rowid FROM recording_search WHERE words @@ %s::tsquery", ["'fox'"])
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "recording_search_words" in plan


def test_the_list_asks_each_turn_for_what_is_inside_it_and_joins_nothing(unwilling_to_scan: None, monkeypatch) -> None:
    from relayweb.recording.reading import turn_filter
    from relayweb.recording.reading.query_language import parse

    monkeypatch.setattr(turn_filter, "FEW", -1)
    for q in ("finish:stop", "error:429", "role:primary", "intercept:k"):
        plan = turn_filter.turns_matching(parse(q)).order_by("-start_us", "-uuid")[:51].explain()
        joins = plan.replace("Nested Loop Semi Join", "").replace("Join Filter", "")
        assert "SubPlan" in plan and "Join" not in joins, plan
