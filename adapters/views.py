"""What a caller gets when an intercept changed an answer: the JSON, readable like the object it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class AttributeView:
    """A JSON object whose members are attributes, nested ones too; also readable as a mapping."""

    __slots__ = ("_json",)

    def __reduce__(self) -> Any:
        return AttributeView, (self._json,)

    def __init__(self, value: dict[str, Any]) -> None:
        object.__setattr__(self, "_json", value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # what copying and pickling ask for, before there is a value
        try:
            return view(self._json[name])
        except KeyError:
            raise AttributeError(f"this answer has no member {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._json[name] = value._json if isinstance(value, AttributeView) else value

    def __getitem__(self, name: str) -> Any:
        return view(self._json[name])

    def __contains__(self, name: object) -> bool:
        return name in self._json

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)

    def __eq__(self, other: object) -> bool:
        return bool(self._json == (other._json if isinstance(other, AttributeView) else other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AttributeView({self._json!r})"

    def __dir__(self) -> list[str]:
        return [*self._json, "get", "keys", "model_dump"]

    def get(self, name: str, default: Any = None) -> Any:
        return view(self._json[name]) if name in self._json else default

    def keys(self) -> Any:
        return self._json.keys()

    def model_dump(self, **_options: Any) -> dict[str, Any]:
        """The JSON itself."""
        value: dict[str, Any] = self._json
        return value


def view(value: Any) -> Any:
    """`value`, a JSON value, with every object in it as an AttributeView."""
    if isinstance(value, dict):
        return AttributeView(value)
    if isinstance(value, list):
        return [view(item) for item in value]
    return value


def changed(original: Any, value: Any) -> Any:
    """`value`, the changed JSON of `original`: of the same pydantic type where that takes it, else a view."""
    kind = type(original)
    if isinstance(value, dict):
        for make in (getattr(kind, "model_validate", None), _constructor(kind)):
            if callable(make):
                try:
                    return make(value)
                except Exception:  # the type refuses what a rule made of it; a view takes anything
                    continue
    return view(value)


def _constructor(kind: type) -> Any:
    construct = getattr(kind, "model_construct", None)
    return (lambda value: construct(**value)) if callable(construct) else None
