from __future__ import annotations

from urllib.parse import quote

import pytest

from relayweb.ui.models import SavedView
from tests.people import signed_in


def test_a_search_is_kept_under_a_name_and_stands_beside_the_list(viewer, record):
    record()
    answer = viewer.post("/views/save/", {"name": "  Failed   ones ", "q": "status:failed"})
    assert answer.url == "/?q=status%3Afailed"
    page = viewer.get("/").content.decode()
    assert "Your views" in page and "Failed ones" in page and 'href="?q=status%3Afailed" title="status:failed"' in page
    assert "Save this search" not in viewer.get("/?q=status:failed").content.decode()
    assert "Save this search" in viewer.get("/?q=status:ok").content.decode()


def test_a_name_that_is_taken_gets_the_new_search(viewer):
    viewer.post("/views/save/", {"name": "Mine", "q": "status:failed"})
    viewer.post("/views/save/", {"name": "Mine", "q": "status:ok"})
    assert list(SavedView.objects.values_list("name", "q")) == [("Mine", "status:ok")]


def test_a_search_with_a_mistake_and_one_without_a_name_are_not_kept(viewer):
    viewer.post("/views/save/", {"name": "Bad", "q": "modle:x"})
    viewer.post("/views/save/", {"name": " ", "q": "status:ok"})
    assert not SavedView.objects.exists()


def test_views_are_their_owners_own(viewer, record):
    record()
    viewer.post("/views/save/", {"name": "Mine", "q": "status:failed"})
    other = signed_in("operator")
    assert "Mine" not in other.get("/").content.decode()
    [view] = SavedView.objects.all()
    assert other.post(f"/views/{view.pk}/forget/").status_code == 404
    assert viewer.post(f"/views/{view.pk}/forget/").status_code == 302
    assert not SavedView.objects.exists()


@pytest.mark.parametrize("name", ["team/../agent", "plain", "a/../../b"])
def test_a_session_opens_without_a_slash_at_the_end_too(viewer, record, name):
    record(session=name)
    for end in ("", "/"):
        page = viewer.get(f"/sessions/{quote(name, safe='')}{end}")
        assert page.status_code == 200 and name in page.content.decode()
