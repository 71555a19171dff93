"""What every action shares: typed fields that validate, the draft it works on, the effects it may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec


class RuleError(ValueError):
    """A value in a rule's configuration that cannot be used: `field` names the place, `message` what is wrong there."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class Field:
    """One value of an action's configuration, described well enough to parse it and to draw its form.

    `kind` is one of text, textarea, bool, integer, number, choice, list (of text), mapping (name to text), json (any
    value), json_object. `check` gets the parsed value and returns it, or raises ValueError saying what is wrong.
    """

    name: str
    kind: str = "text"
    help: str = ""
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    check: Callable[[Any], Any] | None = None

    def parse(self, config: Mapping[str, Any], path: str) -> Any:
        """The typed value of this field in `config`; raises RuleError."""
        where = f"{path}.{self.name}" if path else self.name
        value = config.get(self.name)
        if value is None or (value == "" and self.kind not in ("text", "textarea", "json")):
            if self.required:
                raise RuleError(where, "is required")
            return self.default
        if self.required and isinstance(value, (str, list, dict)) and not value:
            raise RuleError(where, "must not be empty")
        try:
            value = _PARSERS[self.kind](self, value)
            return self.check(value) if self.check else value
        except RuleError:
            raise
        except ValueError as error:
            raise RuleError(where, str(error)) from None


def _text(_field: Field, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {_name(value)}")
    return value


def _bool(_field: Field, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_name(value)}")
    return value


def _number(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise ValueError(f"must be a number, not {_name(value)}")
    if field.minimum is not None and value < field.minimum:
        raise ValueError(f"must be at least {field.minimum:g}, is {value:g}")
    if field.maximum is not None and value > field.maximum:
        raise ValueError(f"must be at most {field.maximum:g}, is {value:g}")
    return value


def _integer(field: Field, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {_name(value)}")
    return int(_number(field, value))


def _choice(field: Field, value: Any) -> str:
    if value not in field.choices:
        raise ValueError(f"must be one of {', '.join(field.choices)}, is {value!r}")
    return str(value)


def _list(field: Field, value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError(f"must be a list of texts, not {_name(value)}")
    for i, item in enumerate(items):
        if not isinstance(item, str) or not item:
            raise ValueError(f"entry {i + 1} must be a text that is not empty")
        if field.choices and item not in field.choices:
            raise ValueError(f"entry {i + 1} must be one of {', '.join(field.choices)}, is {item!r}")
    return tuple(items)


def _mapping(_field: Field, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"must map names to texts, not be {_name(value)}")
    for name, text in value.items():
        if not isinstance(name, str) or not name:
            raise ValueError("a name must be a text that is not empty")
        if not isinstance(text, str):
            raise ValueError(f"the value of {name!r} must be text, not {_name(text)}")
    return dict(value)


def _json(_field: Field, value: Any) -> Any:
    return value


def _json_object(_field: Field, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {_name(value)}")
    return value


_PARSERS: dict[str, Callable[[Field, Any], Any]] = {
    "text": _text,
    "textarea": _text,
    "bool": _bool,
    "integer": _integer,
    "number": _number,
    "choice": _choice,
    "list": _list,
    "mapping": _mapping,
    "json": _json,
    "json_object": _json_object,
}


def _name(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


class Facts(msgspec.Struct, frozen=True):
    """What is known about a call before any rule looks at it; matches are made against this."""

    api_mode: str = "chat_completions"
    provider: str = ""
    model: str | None = None
    profile: str | None = None
    call_role: str = "primary"
    session_id: str | None = None
    stream: bool = False
    request_id: str | None = None  # of the logical call, shared by its attempts
    unread: bool = False  # the body could not be read: stream and session are not known, the model perhaps


UNREADABLE = "unreadable_body"


class Unread(dict[str, Any]):
    """A body that cannot be read: its text, for the record, is its member UNREADABLE, beside what is known of it."""


@dataclass(frozen=True, slots=True)
class Block:
    """The call must not reach the provider."""

    reason: str


@dataclass(frozen=True, slots=True)
class Respond:
    """The call is answered without the provider: the response body, and its chunks when streaming was asked for.

    `events` gives the SSE event name of each chunk (None in Chat Completions).
    """

    body: dict[str, Any]
    chunks: tuple[dict[str, Any], ...]
    events: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """The call fails on purpose, after `delay_s`: with HTTP `status` and the provider-shaped `body`, or, where status
    is None, by a connection cut after `cut_after` chunks (a buffered call: before its answer). Both None: only late.
    """

    delay_s: float
    status: int | None
    cut_after: int | None
    headers: dict[str, str]
    body: dict[str, Any]


Effect = Block | Respond | Fault
Redactor = Callable[[Any], Any]


class Draft(msgspec.Struct, frozen=True):
    """A request on its way through the rules. Actions return a changed copy and never change `body` in place."""

    body: dict[str, Any]
    facts: Facts
    headers: dict[str, Any] = {}
    effect: Effect | None = None
    redactors: tuple[Redactor, ...] = ()

    def with_body(self, body: dict[str, Any]) -> Draft:
        return self if body is self.body else self.but(body=body)

    def but(self, **changes: Any) -> Draft:
        return msgspec.structs.replace(self, **changes)


class Action:
    """One kind of change. A subclass is a frozen dataclass whose attributes are its `fields`."""

    type: ClassVar[str]
    title: ClassVar[str]
    help: ClassVar[str] = ""
    fields: ClassVar[tuple[Field, ...]] = ()

    @classmethod
    def parse(cls, config: Mapping[str, Any], path: str = "action") -> Self:
        """The validated action; raises RuleError naming the field, as in `action.headers`."""
        known = {f.name for f in cls.fields}
        for name in config:
            if name not in known and name != "type":
                raise RuleError(f"{path}.{name}", f"is not a field of {cls.type}; it has {', '.join(sorted(known))}")
        try:
            return cls(**{f.name: f.parse(config, path) for f in cls.fields})
        except RuleError as error:
            if error.field.startswith(path):
                raise
            raise RuleError(f"{path}.{error.field}", error.message) from None

    def apply(self, draft: Draft) -> Draft:
        """The draft after this action; the same object when there is nothing to do."""
        raise NotImplementedError
