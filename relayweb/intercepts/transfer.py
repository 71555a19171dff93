"""Configs as TOML or JSON files, so that they can live in a repository and be checked in CI.

A file holds `intercepts`, a list of configs as adapters.intercepts.Rule.parse takes them, without `revision`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any, Literal

import tomli_w
from django.db import transaction

from adapters.intercepts import Rule, RuleError
from adapters.json_values import visible
from relayweb.intercepts.models import KEY, KEY_FORM, InterceptConfig, Value

Format = Literal["toml", "json"]

# A list in JSON; two brackets begin a table in TOML.
# Beyond all use; tomllib takes time with the square of it.
_DEEPEST = 1000
_JSON = re.compile(r"\s*(\{|\[\s*[{\]\"])")

DEFAULTS: Value = {
    "title": "",
    "enabled": True,
    "mode": "enforce",
    "priority": 100,
    "break_chain": False,
    "on_error": "open",
}


class FileError(ValueError):
    """A file that cannot be taken; `problems` names each place and what is wrong there. Nothing of it is applied."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = [visible(problem) for problem in problems]
        super().__init__("; ".join(self.problems))


def dump(values: Iterable[Value], form: Format) -> str:
    """The file that holds these configs.

    Raises:
        FileError: a value holds null, which TOML cannot say; JSON can.
    """
    document = {"intercepts": list(values)}
    if form == "json":
        return visible(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"
    try:
        text = tomli_w.dumps(document, multiline_strings=True)
    except TypeError:
        keys = [v["key"] for v in document["intercepts"] if _holds_null(v)]
        raise FileError([f"{', '.join(keys)}: holds null, which TOML cannot say; export as JSON"]) from None
    if visible(text) != text:  # stored before such text was refused
        said = {v["key"]: json.dumps(v, ensure_ascii=False) for v in document["intercepts"]}
        keys = [key for key, text in said.items() if visible(text) != text]
        raise FileError([f"{', '.join(keys)}: holds half a character, which TOML cannot say; export as JSON"])
    return text


def load(text: str, form: Format | None = None) -> list[Value]:
    """The configs of a file, checked, with what the file leaves out filled in.

    Args:
        text: the file.
        form: "toml" or "json"; told by how the text begins when not given.

    Raises:
        FileError: names every fault, not only the first.
    """
    if any(line.partition("=")[0].count(".") > _DEEPEST for line in text.splitlines()):
        raise FileError([f"a key has more than {_DEEPEST} parts"])
    form = form or ("json" if _JSON.match(text) else "toml")
    try:
        document: Any = json.loads(text) if form == "json" else tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise FileError([f"line {error.lineno}, column {error.colno}: {error.msg}"]) from None
    except tomllib.TOMLDecodeError as error:
        raise FileError([str(error)]) from None
    except RecursionError:
        raise FileError(["it is nested too deeply to be a list of configs"]) from None
    rows = document.get("intercepts") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise FileError(["intercepts: a list of configs is expected, as [[intercepts]] in TOML"])
    if isinstance(document, dict) and (unknown := sorted(set(document) - {"intercepts"})):
        raise FileError([f"{name}: is not known; a file has intercepts" for name in unknown])
    return _checked(rows)


def _checked(rows: list[Any]) -> list[Value]:
    problems, values, seen = [], [], set()
    for index, row in enumerate(rows):
        name = row.get("key") if isinstance(row, dict) else None
        where = f"intercepts[{index}]" + (f" ({name})" if name else "")
        try:
            Rule.check(row)
            value: Value = {**DEFAULTS, "match": {}, **{k: v for k, v in row.items() if k != "revision"}}
            if value["key"] in seen:
                raise RuleError("key", f"{value['key']!r} is used twice")
            seen.add(value["key"])
            problems += [f"{where}.{problem}" for problem in model_problems(value)]
            values.append(value)
        except RuleError as error:
            problems.append(f"{where}{'.' if error.field else ' '}{error.field}: {error.message}")
    if problems:
        raise FileError(problems)
    return values


def model_problems(value: Value) -> list[str]:
    """What the database would not take of a value that parses, as "key: …"."""
    from django.core.exceptions import ValidationError

    try:
        InterceptConfig(**value).clean_fields(exclude=["title", "match", "action"])
    except ValidationError as error:
        return [f"{name}: {' '.join(messages)}" for name, messages in error.message_dict.items()]
    # A pattern's `$` is content with a line break after it.
    return [] if re.fullmatch(KEY_FORM, value["key"]) else [f"key: {KEY.message}"]


def apply(values: list[Value], author: str, note: str) -> int:
    """Publish checked values, all or none; returns how many of them were new or different."""
    changed = 0
    with transaction.atomic():
        for value in values:
            before = InterceptConfig.objects.filter(key=value["key"]).values_list("revision", flat=True).first()
            changed += InterceptConfig.publish(value, author, note).revision != before
    return changed


def _holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_null(item) for item in value.values())
    return any(_holds_null(item) for item in value) if isinstance(value, list) else value is None
