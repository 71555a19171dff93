"""The page of events that belong to no session, turn or call."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from relayweb.ingest.otlp import logs
from relayweb.recording.models import Event
from tests.ingest.test_logs import log, record
from tests.people import signed_in
from tests.recording.recorded import Talk

pytestmark = pytest.mark.django_db(transaction=True)
NO_SPAN = {"trace_id": b"", "span_id": b""}


def told(at: int = 0, **members: object) -> list[bytes]:
    return logs.events(log("", at, **{**NO_SPAN, **members}))


def test_log_records_that_name_no_call_are_found_from_the_sessions(viewer: Client) -> None:
    Talk("s-1").record()
    assert "/events/" not in viewer.get("/sessions/").content.decode()
    full = told(body="Disk <b>almost</b> full", severity_text="WARN", resource={"service.name": "shop"})
    emptied = told(1, attributes={"event.name": "cart.emptied", "session.id": "s-1", "items": 3})
    record([*full, *emptied, *told(2, attributes={"event.name": "cart.filled", "session.id": "elsewhere"})])
    Talk("s-1").record()
    assert reverse("ui:events") in viewer.get("/sessions/").content.decode()
    page = viewer.get("/events/").content.decode()
    assert re.findall(r'class="ask cut" title="([^"]*)', page) == ["cart.filled", "cart.emptied", "log"]
    assert "Disk &lt;b&gt;almost&lt;/b&gt; full" in page and "<b>almost" not in page
    assert "WARN" in page and "shop" in page and "items 3" in page
    assert page.count(reverse("ui:session", args=["s-1"])) == 1 and "/sessions/elsewhere/" not in page


def test_events_are_shown_a_hundred_at_a_time(viewer: Client) -> None:
    record([line for at in range(230) for line in told(at, body=f"line {at}")])
    address, seen = "/events/", list[str]()
    while address:
        page = viewer.get(address).content.decode()
        seen += re.findall(r'<summary class="cut">line (\d+)<', page)
        more = re.search(r'rel="next" href="(\?before=\d+)"', page)
        address = f"/events/{more[1]}" if more else ""
    assert seen == [str(at) for at in reversed(range(230))]
    for wrong in ("x", "-1", "9" * 30):
        assert viewer.get("/events/", {"before": wrong}).status_code == 200


def test_what_belongs_to_a_call_or_waits_for_one_is_not_among_them(viewer: Client) -> None:
    Talk("s-1").record()
    record(logs.events(log("gen_ai.user.message", body={"content": "hi"})))
    assert "No such events" in viewer.get("/events/").content.decode()


def test_the_page_needs_a_login() -> None:
    assert Client().get("/events/").status_code == 302
    assert signed_in("viewer").get("/events/").status_code == 200


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads the plan of SQLite")
def test_events_outside_of_sessions_are_found_by_an_index() -> None:
    found = Event.objects.filter(kind=Event.Kind.MARK, mark_of=None).order_by("-seq")[:10]
    assert "event_loose" in found.explain()
