"""Two people, one intercept: who saves second is told, and undoes nothing unseen."""

from __future__ import annotations

import re

import pytest

from relayweb.intercepts.models import InterceptConfig, StaleError
from tests.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/intercepts/interceptconfig/"
TYPED = {
    "title": "Cooler answers",
    "key": "cooler",
    "enabled": "on",
    "mode": "enforce",
    "priority": "100",
    "on_error": "open",
    "action_type": "set_parameters",
    "action_parameters": "temperature: 0.2",
}


def opened(client, where) -> str:
    page = client.get(where).content.decode()
    found = re.search(r'name="stamp" value="([^"]*)"', page)
    assert found
    return found[1]


@pytest.fixture
def form(value):
    config = InterceptConfig.publish(value, "ann")
    return f"{LIST}{config.pk}/change/"


def test_the_second_save_is_refused_shows_what_it_would_undo_and_says_what_to_do(form):
    ann, ben = signed_in("operator"), signed_in("operator", "ben")
    first, second = opened(ann, form), opened(ben, form)
    assert ann.post(form, {**TYPED, "priority": "7", "stamp": first}).status_code == 302
    answer = ben.post(form, {**TYPED, "mode": "shadow", "stamp": second})
    page = answer.content.decode()
    assert answer.status_code == 200 and "Not saved." in page and "published r2 since you opened the form" in page
    assert "1 change that yours would undo" in page and "<del>100</del><ins>7</ins>" in page
    stored = InterceptConfig.objects.get()
    assert (stored.revision, stored.priority, stored.mode) == (2, 7, "enforce")
    assert answer.context["form"]["mode"].value() == "shadow", "what was typed is kept"
    again = re.search(r'name="stamp" value="([^"]*)"', page)
    assert again and ben.post(form, {**TYPED, "mode": "shadow", "stamp": again[1]}).status_code == 302
    stored.refresh_from_db()
    assert (stored.revision, stored.priority, stored.mode) == (3, 100, "shadow")


def test_a_draft_does_not_replace_a_newer_one_and_publishing_does_not_drop_it_unseen(form):
    operator = signed_in("operator")
    stamp = opened(operator, form)
    assert operator.post(form, {**TYPED, "priority": "7", "save_draft": "1", "stamp": stamp}).status_code == 302
    for more in ({"save_draft": "1"}, {}):
        page = operator.post(form, {**TYPED, "priority": "9", "stamp": stamp, **more}).content.decode()
        assert "saved a draft since you opened the form" in page and "<ins>7</ins>" in page
    stored = InterceptConfig.objects.get()
    assert stored.draft and stored.draft["priority"] == 7 and stored.revision == 1


def test_switching_it_off_elsewhere_counts_as_a_change(form):
    operator = signed_in("operator")
    stamp = opened(operator, form)
    operator.post(form.replace("change/", "toggle/"), {"enabled": "false"})
    assert "Not saved." in operator.post(form, {**TYPED, "stamp": stamp}).content.decode()
    assert InterceptConfig.objects.get().enabled is False


def test_a_new_one_is_not_published_over_one_made_meanwhile(value):
    stamp = opened(signed_in("operator"), LIST + "add/")
    InterceptConfig.publish(value, "ann")
    with pytest.raises(StaleError):
        InterceptConfig.publish({**value, "priority": 1}, "ben", stamp=stamp)
    assert InterceptConfig.objects.get().priority == 100


@pytest.mark.parametrize("stamp", ["", "x", "-1-", "99-", "1-2026", "9" * 5000])
def test_a_stamp_that_is_none_is_stale(form, stamp):
    answer = signed_in("operator").post(form, {**TYPED, "priority": "7", "stamp": stamp})
    assert answer.status_code == 200 and "Not saved." in answer.content.decode()
