"""Set or remove headers of the request to the provider."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from adapters.actions.base import Action, Draft, Field, RuleError

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Set by whoever sends the request; a rule that changed them would break the message itself.
_RESERVED = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"})


def _valid(names: Any) -> Any:
    for name in names:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is no header name")
        if name.lower() in _RESERVED:
            raise ValueError(f"{name} is set by the HTTP client and cannot be changed")
    return names


@dataclass(frozen=True)
class Headers(Action):
    type = "headers"
    title = "Set or remove headers"
    help = "Only names are recorded, never values."
    fields = (
        Field("set", "mapping", "Header name to value.", default=None, check=_valid),
        Field("remove", "list", "Header names to leave out.", default=(), check=_valid),
    )

    set: dict[str, str] | None = None
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.set and not self.remove:
            raise RuleError("set", "give a header to set or to remove")
        for name, value in (self.set or {}).items():
            if any(ord(c) < 32 and c != "\t" or ord(c) == 127 or ord(c) > 255 for c in value):
                raise RuleError("set", f"the value of {name} holds characters that no header can carry")

    def apply(self, draft: Draft) -> Draft:
        wanted = self.set or {}
        gone = {name.lower() for name in (*self.remove, *wanted)}
        headers = {k: v for k, v in draft.headers.items() if k.lower() not in gone}
        headers.update({name: None for name in self.remove if name.lower() not in {n.lower() for n in wanted}})
        headers.update(wanted)
        return draft if headers == draft.headers else draft.but(headers=headers)
