from __future__ import annotations

import json

import pytest
from django.urls import reverse

from adapters import intercepts
from relayweb.intercepts import transfer
from relayweb.intercepts.models import InterceptConfig, Revision
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
    "note": "cheaper",
}


def test_an_operator_creates_an_intercept_and_it_is_in_force():
    answer = signed_in("operator").post(LIST + "add/", TYPED)
    config = InterceptConfig.objects.get()
    assert answer.url == f"{LIST}{config.pk}/change/"
    assert [(rule.key, rule.revision) for rule in intercepts.current().rules] == [("cooler", 1)]
    revision = Revision.objects.get()
    assert (revision.author, revision.note) == ("operator-1", "cheaper")


def test_a_wrong_value_is_shown_at_its_field_and_nothing_is_in_force():
    answer = signed_in("operator").post(LIST + "add/", {**TYPED, "action_parameters": "temperature"})
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "Line 1: write name: value" in page and "1 field to correct. Nothing is in force yet." in page
    assert not InterceptConfig.objects.exists() and intercepts.current().rules == ()


def test_the_form_shows_what_is_stored_and_escapes_it(value):
    config = InterceptConfig.publish({**value, "title": "<script>alert(1)</script>"}, "ann")
    page = signed_in("operator").get(f"{LIST}{config.pk}/change/").content.decode()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "temperature: 0.2" in page and "Publish r2" in page


def test_a_viewer_sees_intercepts_and_can_change_nothing(value):
    config = InterceptConfig.publish(value, "ann")
    viewer = signed_in("viewer")
    assert viewer.get(LIST).status_code == 200
    page = viewer.get(f"{LIST}{config.pk}/change/").content.decode()
    assert "Publish r" not in page and "Roll back" not in page
    one = f"{config.pk}/"
    for path in ("add/", one + "change/", one + "toggle/", one + "roll-back/1/", "reorder/", "import/"):
        assert viewer.post(LIST + path, TYPED).status_code == 403, path
    assert viewer.post(f"{LIST}{config.pk}/delete/", {"post": "yes"}).status_code == 403
    assert InterceptConfig.objects.get().revision == 1


def test_nobody_comes_in_without_signing_in(client):
    assert client.get(LIST).status_code == 302


def test_rollback_puts_an_old_value_in_force_as_a_new_revision(value):
    config = InterceptConfig.publish(value, "ann")
    InterceptConfig.publish({**value, "action": {"type": "block", "message": "No."}}, "ben")
    signed_in("operator").post(f"{LIST}{config.pk}/roll-back/1/")
    assert InterceptConfig.objects.get().value() == value
    newest = Revision.objects.order_by("-number")[0]
    assert (newest.number, newest.author, newest.note) == (3, "operator-1", "rolled back to r1")
    assert intercepts.current().rules[0].revision == 3


def test_history_says_what_changed_in_words(value):
    config = InterceptConfig.publish(value, "ann")
    InterceptConfig.publish({**value, "mode": "shadow"}, "ben")
    page = signed_in("viewer").get(f"{LIST}{config.pk}/change/").content.decode()
    assert "mode: enforce → shadow" in page and "<del>enforce</del><ins>shadow</ins>" in page


def test_the_switch_disables_and_enables(value):
    config = InterceptConfig.publish(value, "ann")
    operator = signed_in("operator")
    operator.post(f"{LIST}{config.pk}/toggle/", {"enabled": "false"})
    assert intercepts.current().rules == ()
    operator.post(f"{LIST}{config.pk}/toggle/", {"enabled": "true"})
    assert [rule.revision for rule in intercepts.current().rules] == [3]


def test_reordering_changes_the_order_in_which_rules_run(value):
    for key, priority in (("a", 10), ("b", 10), ("c", 50)):
        InterceptConfig.publish({**value, "key": key, "priority": priority}, "ann")
    signed_in("operator").post(LIST + "reorder/", {"key": ["c", "a", "b"]})
    assert [rule.key for rule in intercepts.current().rules] == ["c", "a", "b"]


def test_the_fields_of_another_action_are_drawn_on_request():
    page = signed_in("operator").get(LIST + "fields/?action_type=system_text").content.decode()
    assert 'name="action_text"' in page and 'name="action_parameters"' not in page


def test_a_rewrite_links_to_its_config_and_to_what_is_left_of_a_deleted_one(value):
    config = InterceptConfig.publish(value, "ann")
    viewer = signed_in("viewer")
    link = reverse("admin:intercepts_interceptconfig_rule", args=["cooler"]) + "?r=1"
    assert viewer.get(link).url == f"{LIST}{config.pk}/change/#r1"
    config.withdraw("ann")
    assert "This intercept was deleted" in viewer.get(link).content.decode()
    assert viewer.get(reverse("admin:intercepts_interceptconfig_rule", args=["never"])).status_code == 404


def test_deleting_takes_it_out_of_force(value):
    config = InterceptConfig.publish(value, "ann")
    operator = signed_in("operator")
    assert operator.get(f"{LIST}{config.pk}/delete/").status_code == 200
    operator.post(f"{LIST}{config.pk}/delete/", {"post": "yes"})
    assert intercepts.current().rules == () and Revision.objects.filter(value__isnull=True).count() == 1


def test_export_and_import_through_the_pages(value):
    InterceptConfig.publish(value, "ann")
    operator = signed_in("operator")
    exported = operator.get(LIST + "export/toml/").content.decode()
    InterceptConfig.objects.get().withdraw("ann")
    assert operator.post(LIST + "import/", {"text": exported}).status_code == 302
    assert InterceptConfig.objects.get().value() == value
    refused = operator.post(LIST + "import/", {"text": exported.replace("set_parameters", "blok")})
    assert refused.status_code == 200 and "action.type" in refused.content.decode()


def test_pages_carry_no_inline_script_or_style(value):
    config = InterceptConfig.publish(value, "ann")
    operator = signed_in("operator")
    for path in ("", "add/", f"{config.pk}/change/", f"{config.pk}/delete/", "import/"):
        page = operator.get(LIST + path).content.decode()
        assert " style=" not in page and "<style" not in page and "onclick" not in page, path
        assert "<script>" not in page, path


def test_one_text_of_a_file_in_the_place_of_a_list_is_one_text_everywhere(value):
    action = {"type": "redact", "pii": "email", "patterns": "secret"}
    [stored] = transfer.load(json.dumps([{**value, "match": {"session": "zz-blk*"}, "action": action}]))
    config = InterceptConfig.publish(stored, "ann")
    operator = signed_in("operator")
    assert "session zz-blk*" in operator.get(LIST).content.decode()
    form = operator.get(f"{LIST}{config.pk}/change/").context["form"]
    shown = [form.initial[name] for name in ("match_session", "action_pii", "action_patterns")]
    assert shown == ["zz-blk*", ["email"], "secret"]
