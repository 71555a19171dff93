"""Drafts: kept, tried and published later, while what is in force stays."""

from __future__ import annotations

import json

import pytest

from adapters import intercepts
from relayweb.intercepts import publish, transfer
from relayweb.intercepts.models import InterceptConfig, Revision
from tests.intercepts.test_admin import LIST, TYPED
from tests.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

DRAFT = {**TYPED, "save_draft": "1"}


def in_force() -> list[tuple[str, int | None]]:
    return [(rule.key, rule.revision) for rule in intercepts.current().rules]


def test_a_draft_of_a_new_intercept_is_kept_and_nothing_of_it_is_in_force():
    operator = signed_in("operator")
    answer = operator.post(LIST + "add/", DRAFT)
    config = InterceptConfig.objects.get()
    assert answer.url == f"{LIST}{config.pk}/change/"
    publish.refresh(force=True)
    assert in_force() == [] and not Revision.objects.exists()
    page = operator.get(answer.url).content.decode()
    assert "A draft of operator-1" in page and "temperature: 0.2" in page and "Publish r1" in page
    assert "draft</span>" in operator.get(LIST).content.decode()


def test_publishing_puts_the_draft_in_force_and_ends_it():
    operator = signed_in("operator")
    operator.post(LIST + "add/", DRAFT)
    config = InterceptConfig.objects.get()
    operator.post(f"{LIST}{config.pk}/change/", TYPED)
    assert in_force() == [("cooler", 1)]
    assert InterceptConfig.objects.get().draft is None
    assert Revision.objects.get().author == "operator-1"


def test_a_draft_of_one_in_force_changes_nothing_until_it_is_published(value):
    config = InterceptConfig.publish(value, "ann")
    operator = signed_in("operator")
    path = f"{LIST}{config.pk}/change/"
    operator.post(path, {**DRAFT, "action_parameters": "temperature: 0.9"})
    stored = InterceptConfig.objects.get()
    assert stored.value() == value and stored.draft["action"]["parameters"] == {"temperature": 0.9}
    assert in_force() == [("cooler", 1)]
    page = operator.get(path).content.decode()
    assert "temperature: 0.9" in page and "<del>0.2</del><ins>0.9</ins>" in page
    # The switch, a rollback and a stop are about what is in force, and leave the draft alone.
    operator.post(f"{LIST}{config.pk}/toggle/", {"enabled": "false"})
    assert InterceptConfig.objects.get().draft is not None
    operator.post(f"{LIST}{config.pk}/discard-draft/")
    stored = InterceptConfig.objects.get()
    assert stored.draft is None and stored.value() == {**value, "enabled": False}


def test_publishing_what_is_in_force_already_ends_the_draft_too(value):
    config = InterceptConfig.publish({**value, "mode": "enforce"}, "ann")
    InterceptConfig.keep_draft({**value, "priority": 3}, "ben")
    signed_in("operator").post(f"{LIST}{config.pk}/change/", TYPED)
    assert InterceptConfig.objects.get().draft is None


def test_a_discarded_draft_that_was_never_published_leaves_nothing(value):
    config = InterceptConfig.keep_draft(value, "ann")
    assert signed_in("operator").post(f"{LIST}{config.pk}/discard-draft/").url == LIST
    assert not InterceptConfig.objects.exists()


def test_deleting_one_that_was_never_published_leaves_no_history(value):
    InterceptConfig.keep_draft(value, "ann").withdraw("ann")
    assert not InterceptConfig.objects.exists() and not Revision.objects.exists()


def test_drafts_are_not_exported_moved_or_switched_on(value):
    operator = signed_in("operator")
    draft = InterceptConfig.keep_draft(value, "ann")
    InterceptConfig.publish({**value, "key": "other", "priority": 5}, "ann")
    exported = json.loads(operator.get(LIST + "export/json/").content)
    assert [config["key"] for config in exported["intercepts"]] == ["other"]
    operator.post(LIST + "reorder/", {"key": ["cooler", "other"]})
    assert operator.post(f"{LIST}{draft.pk}/toggle/", {"enabled": "true"}).status_code == 404
    assert in_force() == [("other", 1)] and InterceptConfig.objects.get(key="cooler").revision == 0


def test_an_import_of_its_key_publishes_the_file_and_keeps_the_draft(value):
    InterceptConfig.keep_draft({**value, "priority": 3}, "ann")
    assert transfer.apply([value], "ben", "imported") == 1
    stored = InterceptConfig.objects.get()
    assert (stored.revision, stored.value(), stored.draft["priority"]) == (1, value, 3)


def test_a_viewer_keeps_no_draft_and_discards_none(value):
    config = InterceptConfig.publish(value, "ann")
    viewer = signed_in("viewer")
    assert viewer.post(f"{LIST}{config.pk}/change/", DRAFT).status_code == 403
    assert viewer.post(f"{LIST}{config.pk}/discard-draft/").status_code == 403
