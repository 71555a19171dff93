from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from relayweb.intercepts import transfer
from relayweb.intercepts.models import InterceptConfig

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("form", ["toml", "json"])
def test_an_export_imports_to_the_same_configs(value, form):
    values = [value, {**value, "key": "b", "match": {"model": ["x*"]}, "action": {"type": "block", "message": "a\nb"}}]
    assert transfer.load(transfer.dump(values, form)) == values


def test_what_a_file_leaves_out_has_its_default():
    [value] = transfer.load('[[intercepts]]\nkey = "a"\naction = { type = "block", message = "No." }')
    assert value == {**transfer.DEFAULTS, "key": "a", "match": {}, "action": {"type": "block", "message": "No."}}


def test_every_fault_of_a_file_is_named_with_its_place():
    text = json.dumps(
        [
            {"key": "a", "action": {"type": "block"}},
            {"key": "B!", "action": {"type": "block", "message": "x"}},
            {"key": "c", "mode": "maybe", "action": {"type": "block", "message": "x"}},
            "d",
        ]
    )
    with pytest.raises(transfer.FileError) as caught:
        transfer.load(text)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "intercepts[0] (a).action.message",
        "intercepts[1] (B!).key",
        "intercepts[2] (c).mode",
        "intercepts[3] ",
    ]


@pytest.mark.parametrize("text", ["[[intercepts", '{"intercepts": 3}', '{"rules": []}', "", "[" * 100_000])
def test_a_file_that_is_no_list_of_configs_says_so(text):
    with pytest.raises(transfer.FileError):
        transfer.load(text)


@pytest.mark.parametrize("key", ["a\n", "A", "a b", "../a"])
def test_a_key_with_anything_else_in_it_is_refused(value, key):
    with pytest.raises(transfer.FileError, match="key: Small letters"):
        transfer.load(transfer.dump([{**value, "key": key}], "json"))


def test_null_is_refused_in_toml_with_the_way_out(value):
    with pytest.raises(transfer.FileError, match="cooler: holds null"):
        transfer.dump([{**value, "action": {"type": "set_parameters", "parameters": {"stop": None}}}], "toml")


def test_the_check_command_passes_a_good_file_and_names_what_is_wrong_in_a_bad_one(tmp_path, value, capsys):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(transfer.dump([value], "toml"))
    bad.write_text('[[intercepts]]\nkey = "a"\naction = { type = "blok" }')
    call_command("intercepts", "check", str(good))
    assert "nothing wrong" in capsys.readouterr().out
    with pytest.raises(CommandError, match=r"bad\.toml: intercepts\[0\] \(a\)\.action\.type"):
        call_command("intercepts", "check", str(good), str(bad))
    assert not InterceptConfig.objects.exists()


def test_the_import_command_publishes_all_or_nothing(tmp_path, value):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(transfer.dump([value], "json"))
    bad.write_text("[{}]")
    with pytest.raises(CommandError):
        call_command("intercepts", "import", str(good), str(bad))
    assert not InterceptConfig.objects.exists()
    call_command("intercepts", "import", str(good))
    assert InterceptConfig.objects.get().value() == value


def test_the_export_command_prints_what_import_takes(value, capsys):
    InterceptConfig.publish(value, "ann")
    call_command("intercepts", "export", "--format", "json")
    assert transfer.load(capsys.readouterr().out) == [value]
