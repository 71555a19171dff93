"""Text that UTF-8 cannot hold: refused at its field, and no obstacle where it was stored before that."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from adapters.intercepts import Rule, RuleError
from relayweb.api import views
from relayweb.intercepts import publish, transfer
from relayweb.intercepts.forms import ConfigForm
from relayweb.intercepts.models import InterceptConfig
from tests.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

HALF = "\ud800<script>"
PATCH = {"type": "json_patch", "patch": [{"op": "add", "path": "/x", "value": {"a": [HALF]}}]}
LIST = "/admin/intercepts/interceptconfig/"


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("title", {"title": HALF}),
        ("match.model", {"match": {"model": ["a", HALF]}}),
        ("action.patch", {"action": PATCH}),
        ("action.parameters", {"action": {"type": "set_parameters", "parameters": {HALF: 1}}}),
        ("action.message", {"action": {"type": "block", "message": HALF}}),
        ("action.text", {"action": {"type": "system_text", "where": "append", "text": "a\0b"}}),
    ],
)
def test_every_text_of_a_rule_is_whole(value, place, change):
    with pytest.raises(RuleError) as caught:
        Rule.check({**value, **change})
    assert caught.value.field == place and ("half a surrogate" in str(caught.value) or "U+0000" in str(caught.value))
    str(caught.value).encode()
    with pytest.raises(transfer.FileError) as told:
        transfer.load(json.dumps([{**value, **change}]))
    assert place in str(told.value)


def test_whole_characters_beyond_the_first_plane_are_text(value):
    Rule.check({**value, "title": "😀", "action": {"type": "block", "message": "\U0010ffff"}})


def test_the_form_says_so_at_its_field(value):
    typed = {
        "title": "t",
        "key": "k",
        "mode": "shadow",
        "priority": "1",
        "on_error": "open",
        "action_type": "json_patch",
    }
    form = ConfigForm({**typed, "action_patch": json.dumps(PATCH["patch"])})
    assert not form.is_valid() and list(form.errors) == ["action_patch"]
    assert "half a surrogate pair" in str(form.errors)


def test_what_is_stored_already_is_shown_exported_and_stays_in_force(value, capsys):
    stored = {**value, "match": {"model": [HALF]}, "action": PATCH}
    config = InterceptConfig.publish(stored, "ann")
    InterceptConfig.publish({**stored, "priority": 7}, "ann")
    InterceptConfig.keep_draft({**stored, "title": f"v {HALF}"}, "ann")
    operator = signed_in("operator")
    page = operator.get(f"{LIST}{config.pk}/change/")
    assert page.status_code == 200 and "\\ud800&lt;script&gt;" in page.content.decode()
    assert operator.get(LIST).status_code == 200
    assert operator.get("/").status_code == 200
    assert json.loads(operator.get(LIST + "export/json/").content)["intercepts"][0]["action"] == PATCH
    assert operator.get(LIST + "export/toml/", follow=True).status_code == 200
    call_command("intercepts", "export", "--format", "json")
    assert json.loads(capsys.readouterr().out)["intercepts"][0]["action"] == PATCH
    with pytest.raises(CommandError, match="cooler: holds half a character, which TOML cannot say"):
        call_command("intercepts", "export")
    assert json.loads(views.dumps(publish.ruleset_document()))["rules"][0]["action"] == PATCH
    publish.refresh(force=True)
    assert publish.unusable() == {}
    operator.post(f"{LIST}{config.pk}/delete/", {"post": "yes"})
    assert operator.get(f"{LIST}rule/cooler/").status_code == 200
