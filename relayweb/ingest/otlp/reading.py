"""What a span says, in ATOF's terms, and helpers to read it out of attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec


class Reading(msgspec.Struct):
    """What one vocabulary reads out of a span; None is what it does not say."""

    category: str | None = None
    name: str | None = None
    start_data: Any = None
    end_data: Any = None
    start_metadata: dict[str, Any] = {}
    end_metadata: dict[str, Any] = {}
    start_profile: dict[str, Any] = {}
    end_profile: dict[str, Any] = {}
    streaming: bool = False
    used: frozenset[str] = frozenset()
    """Attributes that went into the members above; the others are kept as metadata."""

    def over(self, other: Reading) -> Reading:
        """This reading, and the other one where this says nothing."""
        return Reading(
            category=self.category or other.category,
            name=self.name or other.name,
            start_data=other.start_data if self.start_data is None else self.start_data,
            end_data=other.end_data if self.end_data is None else self.end_data,
            start_metadata={**other.start_metadata, **self.start_metadata},
            end_metadata={**other.end_metadata, **self.end_metadata},
            start_profile={**other.start_profile, **self.start_profile},
            end_profile={**other.end_profile, **self.end_profile},
            streaming=self.streaming or other.streaming,
            used=self.used | other.used,
        )


def parsed(value: Any) -> Any:
    """A value that instrumentations write as JSON text, as the value; other text as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


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


def numbered(attributes: dict[str, Any], prefix: str) -> Iterator[dict[str, Any]]:
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
