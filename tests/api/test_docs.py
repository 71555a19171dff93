from __future__ import annotations

import re
from pathlib import Path

from relayweb.api.views import api
from relayweb.recording.reading.query_language import FIELDS, parse

DOCS = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def test_every_path_of_the_api_is_documented():
    for path in api.get_openapi_schema()["paths"]:
        name = path.removeprefix("/api/v1/")
        assert name in DOCS or f"…/{name.rsplit('/', 1)[-1]}" in DOCS, name


def test_every_search_field_is_documented():
    table = DOCS[DOCS.index("| field |") :]
    documented = {name for row in re.findall(r"^\| (`[^|]+`) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert documented == set(FIELDS)


def test_every_search_in_the_documentation_can_be_read():
    block = DOCS[DOCS.index("## Search") : DOCS.index("## Costs")]
    examples = [line.strip() for line in block.splitlines() if line.startswith("    ")]
    examples += [
        found for found in re.findall(r"`([^`]+)`", block) if re.match(r"-?\w+:.", found) and found != "field:value"
    ]
    assert len(examples) > 10
    for example in examples:
        assert parse(example).terms
