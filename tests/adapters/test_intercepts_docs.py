"""The page on intercepts names every action and field there is."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.actions import ACTIONS
from adapters.actions.redact import PII
from adapters.match import Match

PAGE = (Path(__file__).parents[2] / "docs" / "intercepts.md").read_text()
ROWS = {m[1]: m[2] for m in re.finditer(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)}


def test_each_action_has_a_row_with_exactly_its_fields() -> None:
    assert {kind: set(re.findall(r"`(\w+)`", row)) for kind, row in ROWS.items()} == {
        kind: {field.name for field in action.fields} for kind, action in ACTIONS.items()
    }


def test_each_field_of_a_match_and_each_kind_of_personal_data_is_named() -> None:
    assert all(f"`{field.name}`" in PAGE for field in Match.fields)
    assert all(kind in PAGE for kind in PII)
