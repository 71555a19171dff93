"""Set, default or remove parameters of the request body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapters.actions.base import Action, Draft, Field, RuleError
from adapters.json_values import same


def _names(value: Any) -> Any:
    for name in value:
        if not isinstance(name, str) or not name or any(not part for part in name.split(".")):
            raise ValueError(f"{name!r} is no parameter name; nested ones are written reasoning.effort")
    return value


def _home(body: dict[str, Any], name: str) -> list[str]:
    """The path of a parameter: as a member of the body, or of `extra_body` where the SDK's caller put it."""
    path = name.split(".")
    extra = body.get("extra_body")
    if isinstance(extra, dict) and path[0] in extra:
        return ["extra_body", *path]
    return path


def _set(value: Any, path: list[str], new: Any, only_if_absent: bool) -> Any:
    if not path:
        return value if same(value, new) or only_if_absent else new
    members = value if isinstance(value, dict) else {}
    key, rest = path[0], path[1:]
    if key not in members:
        for part in reversed(rest):
            new = {part: new}
        return {**members, key: new}
    if only_if_absent and rest and not isinstance(members[key], dict):
        return value
    changed = _set(members[key], rest, new, only_if_absent)
    return value if changed is members[key] else {**members, key: changed}


def _remove(value: Any, path: list[str]) -> Any:
    if not isinstance(value, dict) or path[0] not in value:
        return value
    if len(path) == 1:
        return {k: v for k, v in value.items() if k != path[0]}
    changed = _remove(value[path[0]], path[1:])
    return value if changed is value[path[0]] else {**value, path[0]: changed}


@dataclass(frozen=True)
class SetParameters(Action):
    type = "set_parameters"
    title = "Set parameters"
    help = "Give parameters of the request a value, whatever the app said, or only where it said nothing."
    fields = (
        Field(
            "parameters",
            "json_object",
            "Names with their values, such as temperature and 0.2; the dot in reasoning.effort goes into an object.",
            required=True,
            check=_names,
        ),
        Field("only_if_absent", "bool", "Leave a parameter alone when the app has set it.", default=False),
    )

    parameters: dict[str, Any]
    only_if_absent: bool = False

    def __post_init__(self) -> None:
        if "model" in self.parameters and not isinstance(self.parameters["model"], str):
            raise RuleError("parameters", "model must be text")
        for name in ("messages", "input"):
            if name in self.parameters:
                raise RuleError("parameters", f"{name} is the conversation, not a parameter; use a JSON Patch action")

    def apply(self, draft: Draft) -> Draft:
        body = draft.body
        for name, value in self.parameters.items():
            body = _set(body, _home(body, name), value, self.only_if_absent)
        return draft.with_body(body)


@dataclass(frozen=True)
class RemoveParameters(Action):
    type = "remove_parameters"
    title = "Remove parameters"
    help = "Take parameters out of the request, as if the app had never set them."
    fields = (
        Field(
            "names", "list", "Parameter names; a dot goes into an object, e.g. reasoning.effort.", True, check=_names
        ),
    )

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.names:
            if name in ("messages", "input", "model"):
                raise RuleError("names", f"{name} cannot be removed: no provider takes a request without it")

    def apply(self, draft: Draft) -> Draft:
        body = draft.body
        for name in self.names:
            body = _remove(body, ["extra_body", *name.split(".")])
            body = _remove(body, name.split("."))
        return draft.with_body(body)
