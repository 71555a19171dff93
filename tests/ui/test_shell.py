from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from relayweb.intercepts.models import InterceptConfig
from relayweb.recording.reading.query_language import FIELDS, parse
from relayweb.recording.writing.writer import Writer
from relayweb.ui import shell
from relayweb.ui.templatetags.relay import durcell
from tests.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_theme_in_the_cookie_is_set_by_the_server(viewer):
    assert '<html lang="en">' in viewer.get("/start/").content.decode()
    viewer.cookies["theme"] = "dark"
    assert '<html lang="en" data-theme="dark">' in viewer.get("/start/").content.decode()
    viewer.cookies["theme"] = '"><script>'
    assert '<html lang="en">' in viewer.get("/start/").content.decode()


def test_dropped_events_and_a_degraded_recorder_are_said_on_every_page(viewer, monkeypatch):
    monkeypatch.setattr(Writer, "counters", lambda self: {"dropped": 218})
    monkeypatch.setattr(Writer, "state", lambda self: {"status": "degraded", "reason": "The disk is full."})
    page = viewer.get("/start/").content.decode()
    assert "218 events dropped since the start." in page and "The disk is full." in page


def test_what_the_gateway_could_not_record_is_said_on_every_page(viewer, monkeypatch):
    lost = {"lost_calls": 1, "lost_streams": 0, "lost_chunks": 12}
    monkeypatch.setattr("relayweb.gateway.app.counters", lambda: lost)
    page = viewer.get("/").content.decode()
    assert "since the start: 1 call not recorded, 12 chunks not recorded." in page


def test_a_stopped_intercept_is_said_on_every_page(viewer):
    InterceptConfig.objects.create(key="cooler", action={}, stopped="disabled after 5 failures")
    page = viewer.get("/start/").content.decode()
    assert "Intercept cooler is stopped." in page and "Disabled after 5 failures." in page


def test_a_recorder_that_is_well_says_nothing(viewer):
    assert shell.recorder_notices() == []


@pytest.mark.parametrize(
    ("path", "words"),
    [("/nowhere/", "There is no page at"), ("/turns/00000000-0000-0000-0000-000000000000/peek/", "No turn 0000")],
)
def test_a_missing_page_says_what_to_do_next(viewer, path, words):
    answer = viewer.get(path)
    page = answer.content.decode()
    assert answer.status_code == 404 and words in page and "All turns" in page


def test_a_refused_page_says_who_may(viewer):
    page = viewer.post("/start/token/", {"scope": "gateway"}).content.decode()
    assert "viewer-1 may not do this" in page and "An admin adds you to a group" in page


def test_a_page_that_breaks_says_that_recording_goes_on(viewer, monkeypatch):
    viewer.raise_request_exception = False
    monkeypatch.setattr("relayweb.ui.start.ways", lambda *_: 1 / 0)
    answer = viewer.get("/start/")
    assert answer.status_code == 500 and "Recording goes on" in answer.content.decode()


def test_a_form_from_another_session_is_refused_with_a_way_out():
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = signed_in("operator", "csrf-1").cookies
    answer = strict.post("/start/token/", {"scope": "gateway"})
    assert answer.status_code == 403 and "Nothing was changed" in answer.content.decode()


def test_each_role_sees_the_parts_of_the_site_it_may_use():
    for role, parts in (("viewer", set()), ("operator", {"demo"}), ("admin", {"demo", "admin"})):
        page = signed_in(role, f"{role}-parts").get("/start/").content.decode()
        assert ('href="/admin/"' in page) == ("admin" in parts), role
        assert ("Run a demo turn" in page) == ("demo" in parts), role
        assert 'href="/admin/intercepts/interceptconfig/"' in page, role


@pytest.mark.parametrize("page", ["ui:turns", "ui:sessions", "ui:statistics"])
def test_each_field_is_offered_while_one_writes_and_what_is_offered_can_be_asked(viewer, record, page):
    record()
    text = viewer.get(reverse(page)).content.decode()
    offered = re.findall(r'<option value="([^"]+)">([^<]+)', text)
    assert 'list="search-fields"' in text and {term.partition(":")[0] for term, _ in offered} == set(FIELDS)
    assert "status:failed" in dict(offered) and "rewritten:no" in dict(offered)
    for term, _ in offered:
        parse(term if not term.endswith(":") else term + ("2026-01-01" if term in ("since:", "until:") else "1"))


def test_the_address_above_the_intercepts_leads_to_them(viewer):
    answer = viewer.get("/admin/intercepts/")
    assert answer.status_code == 302 and answer["location"] == "/admin/intercepts/interceptconfig/"
    assert viewer.get("/admin/nothing/").status_code == 404


@pytest.mark.parametrize(
    ("us", "status", "tone"), [(100, "ok", "hot"), (40, "ok", ""), (100, "failed", "hot"), (100, "running", "go")]
)
def test_the_bar_of_a_duration_is_never_red(us, status, tone):
    drawn = durcell({"duration_us": us, "status": status, "start_us": 0}, 100)
    assert f'class="{tone}"' in drawn and "heat-2" not in drawn and ("heat-1" in drawn) is (tone == "hot")
