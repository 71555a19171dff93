"""Fixtures that more than one part's tests use."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator

import pytest
import pytest_django
from hypothesis import HealthCheck, settings
from pytest_django.plugin import DjangoDbBlocker

from tests.paired import Site
from tests.served import Served

# A busy machine is no fault of an example; generating one may take long on a first run.
settings.register_profile("relayweb", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("relayweb")


_LONG = {"scale", "journeys", "test_canary.py"}
"""Folders and files that start servers and wait for minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What takes long comes first, so that no process is left alone with it at the end.
    items.sort(key=lambda item: _LONG.isdisjoint(item.path.parts))
    # From its first use on Playwright keeps an event loop running, beside which no test of asyncio can run one.
    items.sort(key=lambda item: "chromium" in getattr(item, "fixturenames", ()))


def pytest_unconfigure() -> None:
    # What no test waits for any more may still hold the process up: threads that are joined at its end.
    faulthandler.dump_traceback_later(120, exit=True)


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Starts servers on fresh homes, and stops them after the test: `serve(RELAYWEB_MAX_BODY="1000")`."""
    started: list[Served] = []

    def start(*args: str, **env: str) -> Served:
        started.append(Site(tmp_path_factory.mktemp("home"), **env))
        return started[-1].start(*args)

    yield start
    for served in started:
        served.stop()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    """Threads of asynchronous tests may have left connections behind, with which PostgreSQL drops no database."""
    from django.db import connection

    yield
    if connection.vendor == "postgresql":
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


@pytest.fixture(scope="session", autouse=True)
def _quick_to_empty() -> None:
    """The word index is emptied as well, which no model tells Django of.

    PostgreSQL makes a hundred files for a TRUNCATE of all tables, which takes a second a test.
    """
    from django.db import connection

    ops, plain = connection.ops, connection.ops.sql_flush
    index = ["DELETE FROM recording_mention", "UPDATE recording_searchstate SET seq = 0 WHERE id = 1"]
    if connection.vendor == "postgresql":
        index.append("DELETE FROM recording_search")
        ops.sql_flush = lambda style, tables, **_: [*(f"DELETE FROM {ops.quote_name(name)}" for name in tables), *index]
    else:
        index.append("INSERT INTO recording_search (recording_search) VALUES ('delete-all')")
        ops.sql_flush = lambda *args, **options: [*plain(*args, **options), *index]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """Each test has a record of its own; what a process remembers of one does not hold for the next."""
    from relayweb.recording.conventions import pricing
    from relayweb.recording.projection import projection
    from relayweb.recording.reading import chunks
    from relayweb.recording.store import search_index

    search_index._indexed.epoch = -1
    search_index._messages.clear()
    chunks.forget()
    pricing.forget()
    projection._tariffs.clear()


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    """Rules that a test put in force are not there for the next one of this process."""
    yield
    if (intercepts := sys.modules.get("adapters.intercepts")) is not None:
        intercepts.swap(intercepts.RuleSet())


@pytest.fixture(scope="session")
def migrated(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> str:
    """What the migrations put into an empty database, as Django serialises it."""
    from django.db import connection

    with django_db_blocker.unblock():
        return str(connection.creation.serialize_db_to_string())


@pytest.fixture(scope="session", autouse=True)
def _before_any_test_empties_it(request: pytest.FixtureRequest) -> None:
    if any("as_migrated" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("migrated")


@pytest.fixture
def as_migrated(migrated: str, transactional_db: None) -> None:
    """The database as the migrations left it, whatever an earlier test of this process emptied."""
    from django.core.management import call_command
    from django.db import connection

    call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=True)
    connection.creation.deserialize_db_from_string(migrated)
