"""Values of OpenTelemetry attributes, which instrumentations write as objects, as JSON text, or flattened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_LEVELS = 400  # so that what it becomes part of is not too deep for an event


def parsed(value: Any) -> Any:
    """A value that instrumentations write as JSON text, as the value; other text as it is, also one nested too deep."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            found = json.loads(value)
            return value if value.count("[") + value.count("{") > _LEVELS and _is_deep(found) else found
        except (ValueError, RecursionError):
            return value
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_LEVELS):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            return False
    return True


def mapping(value: Any) -> dict[str, Any]:
    """An object, parsed if it is text; empty for anything else."""
    found = parsed(value)
    return dict(found) if isinstance(found, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, parsed if it is text; empty for anything else."""
    found = parsed(value)
    return found if isinstance(found, list) else []


def string(value: Any) -> str | None:
    """Text that says something, else None."""
    return value if isinstance(value, str) and value else None


def text(value: Any) -> str:
    """A value where the chat format wants text."""
    return value if isinstance(value, str) else json.dumps(value)


def numbered(attributes: Mapping[str, Any], prefix: str) -> Iterator[dict[str, Any]]:
    """The members of flattened lists: `prefix.0.role`, `prefix.1.role`, … in order, each without prefix and number."""
    items: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(prefix + "."):
            number, _, member = key[len(prefix) + 1 :].partition(".")
            if number.isdecimal() and member:
                items.setdefault(int(number), {})[member] = value
    return (items[number] for number in sorted(items))


def without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
