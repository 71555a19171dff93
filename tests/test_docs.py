"""What the documents promise by name exists."""

from __future__ import annotations

import re

import pytest

from tests.served import PROJECT

CONFIGURATION = (PROJECT / "docs/configuration.md").read_text()


def names_in_code() -> set[str]:
    found = set()
    for file in (PROJECT / "relayweb").rglob("*.py"):
        found |= set(re.findall(r'"(RELAYWEB_[A-Z_]+|DATABASE_URL|REDIS_URL)"', file.read_text()))
    return found


def test_every_environment_variable_is_documented_and_every_documented_one_exists() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)`", CONFIGURATION, re.MULTILINE))
    assert documented == names_in_code()


@pytest.mark.parametrize("document", ["README.md", "docs/configuration.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(document: str) -> None:
    text = (PROJECT / document).read_text()
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    folder = (PROJECT / document).parent
    assert [target for target in targets if not (folder / target).exists()] == []


def test_lock_files_hold_no_addresses() -> None:
    locks = [file for pattern in ("*.lock", "*lock.json", "requirements*.txt") for file in PROJECT.glob(pattern)]
    assert [file.name for file in locks if "://" in file.read_text()] == []
