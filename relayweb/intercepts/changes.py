"""What differs between two values of a config, in words short enough for a line of history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relayweb.intercepts.models import InterceptConfig, Revision, Value

ABSENT = object()


@dataclass(frozen=True)
class Change:
    """One place that differs, as in "action.parameters.temperature"; a missing side is None."""

    place: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.place}: {_short(self.before)} → {_short(self.after)}"


def between(before: Value | None, after: Value | None) -> list[Change]:
    """The places in which two values differ, in the order of the form; nothing for equal ones."""
    old, new = _flat(before or {}), _flat(after or {})
    places = [*new, *(place for place in old if place not in new)]
    return [
        Change(place, _said(old.get(place, ABSENT)), _said(new.get(place, ABSENT)))
        for place in places
        if old.get(place, ABSENT) != new.get(place, ABSENT)
    ]


def summary(before: Value | None, after: Value | None) -> str:
    """One line about a change."""
    if after is None:
        return "deleted"
    if before is None:
        return "created"
    changes = between(before, after)
    if not changes:
        return "no change"
    more = f", and {len(changes) - 2} more" if len(changes) > 2 else ""
    return ", ".join(str(change) for change in changes[:2]) + more


@dataclass(frozen=True)
class Since:
    """What became of a config after somebody had read it: who did it last, and how it differs from what was read."""

    author: str
    by_draft: bool
    changes: list[Change]


def since(config: InterceptConfig | None, stamp: str) -> Since:
    """What changed in `config` (None: it is gone) since it had this stamp."""
    number = stamp.partition("-")[0]
    if config is None:
        return Since("", False, [])
    if number == str(config.revision):
        return Since(config.draft_by, True, between(config.value(), config.draft) if config.draft else [])
    revisions = {str(r.number): r for r in Revision.objects.filter(key=config.key)}
    read, newest = revisions.get(number), revisions.get(str(config.revision))
    found = between(read.value, config.value()) if read and read.value else []
    return Since(newest.author if newest else "", False, found)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        place = f"{prefix}{name}"
        if isinstance(item, dict) and item:
            flat.update(_flat(item, place + "."))
        else:
            flat[place] = item
    return flat


def _said(item: Any) -> str | None:
    if item is ABSENT:
        return None
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, list):
        return ", ".join(str(part) for part in item)
    return str(item)


def _short(text: str | None) -> str:
    if text is None:
        return "–"
    return text if len(text) <= 40 else text[:38] + "…"
