"""Any change at all, as a JSON Patch on the provider body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapters import json_patch
from adapters.actions.base import Action, Draft, Field

MAX_OPERATIONS = 1_000

_NEEDS = {
    "add": ("value",),
    "replace": ("value",),
    "test": ("value",),
    "remove": (),
    "move": ("from",),
    "copy": ("from",),
}


def _operations(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of operations (RFC 6902) that is not empty")
    if len(value) > MAX_OPERATIONS:
        raise ValueError(f"has {len(value)} operations; a patch may have {MAX_OPERATIONS}")
    for i, op in enumerate(value, 1):
        if not isinstance(op, dict):
            raise ValueError(f"operation {i} must be an object")
        kind = op.get("op")
        if not isinstance(kind, str) or kind not in _NEEDS:
            raise ValueError(f"operation {i}: op must be one of {', '.join(_NEEDS)}, is {kind!r}")
        for name in ("path", *_NEEDS[kind]):
            if name not in op:
                raise ValueError(f"operation {i}: {name} is missing")
        for name in ("path", "from"):
            if name in op and not isinstance(op[name], str):
                raise ValueError(f"operation {i}: {name} must be text")
            try:
                json_patch.parse_pointer(op.get(name, ""))
            except json_patch.PatchError as error:
                raise ValueError(f"operation {i}: {error}") from None
        if op["path"] == "" and (
            kind == "remove" or (kind in ("add", "replace") and not isinstance(op["value"], dict))
        ):
            raise ValueError(f"operation {i}: the whole body can only become another object")
    return value


@dataclass(frozen=True)
class JsonPatch(Action):
    type = "json_patch"
    title = "JSON Patch"
    help = "A failing `test` operation means the patch is not for this call; any other misfit is an error of the rule."
    fields = (
        Field(
            "patch",
            "json",
            'Operations, e.g. [{"op": "replace", "path": "/temperature", "value": 0}].',
            required=True,
            check=_operations,
        ),
    )

    patch: list[dict[str, Any]]

    def apply(self, draft: Draft) -> Draft:
        try:
            return draft.with_body(json_patch.apply(draft.body, self.patch))
        except json_patch.TestFailed:
            return draft
