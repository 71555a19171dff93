from __future__ import annotations

import pytest

from relayweb.intercepts.models import InterceptConfig, Publication, Revision

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_change_is_a_revision_with_its_author_and_value(value):
    InterceptConfig.publish(value, "ann", "first try")
    config = InterceptConfig.publish({**value, "mode": "shadow"}, "ben")
    assert config.revision == 2
    history = list(Revision.objects.filter(key="cooler").order_by("number").values_list("number", "author", "note"))
    assert history == [(1, "ann", "first try"), (2, "ben", "")]
    assert Revision.objects.get(key="cooler", number=1).value == value
    assert Revision.objects.get(key="cooler", number=2).value["mode"] == "shadow"


def test_an_unchanged_value_makes_no_revision(value):
    InterceptConfig.publish(value, "ann")
    before = Publication.current()
    assert InterceptConfig.publish(dict(value), "ben").revision == 1
    assert Publication.current() == before


def test_the_stored_value_is_the_one_that_was_published(value):
    InterceptConfig.publish({**value, "match": {"model": ["gpt-*"], "sample": 25}}, "ann")
    assert InterceptConfig.objects.get(key="cooler").value() == {**value, "match": {"model": ["gpt-*"], "sample": 25}}


def test_a_deleted_config_keeps_its_history_and_its_key_goes_on_counting(value):
    InterceptConfig.publish(value, "ann").withdraw("ben")
    assert not InterceptConfig.objects.exists()
    assert list(Revision.objects.values_list("number", "author", "value")) == [(2, "ben", None), (1, "ann", value)]
    assert InterceptConfig.publish(value, "cleo").revision == 3
