"""What the accumulators share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

RECORDED = 1000
"""Tools, blocks and tokens with their probabilities that the response for the record holds. Chunks tell the rest."""


class Accumulator(Protocol):
    """Chunks of one stream, as JSON, put together to the response they make.

    `observe` takes anything and never raises; `finalize` gives the response for the record from what was observed so
    far (a cut stream gives what arrived, what is missing stays missing; of thousands of parts the first); `response`
    gives the one for a caller that must have a complete object.
    """

    def observe(self, chunk: Any) -> None: ...
    def finalize(self) -> dict[str, Any]: ...
    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]: ...


class Growing:
    """A text that comes in pieces: joined when it is asked for, not at each of them."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def __str__(self) -> str:
        self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


class Gathered(list[Any]):
    """A list of ours that things are added to, not one of a chunk."""


def grown(old: Any, piece: str) -> Any:
    """A text, or what is known of one, with one piece more; anything else gives way to the piece."""
    if type(old) is Growing:
        old.pieces.append(piece)
        return old
    return Growing(old, piece) if isinstance(old, str) and old else piece


def gathered(old: Any, items: Iterable[Any]) -> Gathered:
    """A list, or anything else as none, with more items."""
    known = old if isinstance(old, Gathered) else Gathered(old if isinstance(old, list) else ())
    known.extend(items)
    return known


def settled(value: Any, depth: int = 3) -> Any:
    """A copy in which texts and lists that grew are plain ones; no deeper than they stand."""
    if type(value) is Growing:
        return str(value)
    if depth and isinstance(value, list):
        return [settled(item, depth - 1) for item in value]
    if depth and isinstance(value, dict):
        return {key: settled(item, depth - 1) for key, item in value.items()}
    return list(value) if type(value) is Gathered else value


def index_of(value: Any) -> int | None:
    """A member that should be an index, None where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def counts(usage: Any) -> bool:
    """Whether a usage object counts anything: some providers send one of zeros after the real one."""
    return not isinstance(usage, Mapping) or any(
        counts(value) if isinstance(value, Mapping) else bool(value) for value in usage.values()
    )


def combined(base: Mapping[str, Any] | None, made: dict[str, Any]) -> dict[str, Any]:
    """Base fields, overridden by assembled ones; content is taken if it is not empty or base has none (R65)."""
    out = dict(base or {})
    for key, value in made.items():
        if key in ("content", "output", "choices") and not value and out.get(key):
            continue
        out[key] = value
    return out
