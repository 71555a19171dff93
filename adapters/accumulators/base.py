"""What the accumulators share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Accumulator(Protocol):
    """Chunks of one stream, as JSON, put together to the response they make.

    `observe` takes anything and never raises; `finalize` gives the response for the record from what was observed so
    far (a cut stream gives what arrived, what is missing stays missing); `response` gives the one for a caller that
    must have a complete object.
    """

    def observe(self, chunk: Any) -> None: ...
    def finalize(self) -> dict[str, Any]: ...
    def response(self, base: Mapping[str, Any] | None = None) -> dict[str, Any]: ...


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
