"""Turns of agents that send log records and no spans: each record brings a piece, so that they may come in any order.

A piece is a turn of its own, of the same session and turn id as the others; `relayweb.recording.projection.joining`
makes one of them. That of the prompt tells no end: the last one's stands for it.
"""

from __future__ import annotations

import math
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from relayweb.ingest.otlp.lines import line, timestamp
from relayweb.ingest.otlp.reading import Reading
from relayweb.recording.conventions.attributes import without_none

_TITLE = 100  # characters of a prompt that name its turn
_UNTOLD = (None, "", "<REDACTED>", "[REDACTED]")


class Piece(msgspec.Struct):
    """The scopes that a record tells of, as lines, and the one it hangs under."""

    under: UUID
    lines: list[bytes] = []


class Turn(msgspec.Struct, frozen=True):
    """The turn that a record belongs to."""

    agent: str
    """The first part of the names of its records."""
    profile: str
    session: str
    prompt: str | None = None
    """What tells it from others of its session."""

    def named(self, *of: str | None) -> UUID:
        """A scope that several records tell of."""
        said = "\0".join((self.agent, self.session, *(part or "" for part in of)))
        return UUID(bytes=sha256(said.encode("utf-8", "replace")).digest()[:16], version=5)

    def begun(self, uuid: UUID, at_ns: int, prompt: Any) -> Piece:
        """The piece that a prompt brings, as the scope `uuid`."""
        known = isinstance(prompt, str) and prompt not in _UNTOLD
        start = {"name": prompt[:_TITLE] if known else f"{self.agent}.turn", "category": "agent"}
        data = None if prompt in _UNTOLD[:2] else {"prompt": prompt}
        return Piece(uuid, [_event(uuid, None, "start", at_ns, **start, data=data, metadata=self._as_turn)])

    def held(
        self,
        uuid: UUID,
        at_ns: int,
        duration_ms: Any,
        reading: Reading,
        outcome: dict[str, Any],
        ends_turn: dict[str, Any],
    ) -> Piece:
        """The piece that a call or a tool brings: the scope `uuid`, which ended at `at_ns`, in a turn."""
        around = UUID(int=uuid.int ^ (1 << 64))  # begins when it was told, so after the prompt, whatever clocks say
        began = at_ns - int(max(number(duration_ms) or 0, 0) * 1e6)
        turn = {"name": f"{self.agent}.turn", "category": "agent"}
        scope = {"name": reading.name or f"{self.agent}.{reading.category}", "category": reading.category}
        return Piece(
            uuid,
            [
                _event(around, None, "start", at_ns, **turn, metadata=self._as_turn),
                _event(uuid, around, "start", began, **scope, category_profile=reading.start_profile or None,
                       data=reading.start_data, metadata={**self._metadata, **reading.start_metadata}),
                _event(uuid, around, "end", at_ns, **scope, category_profile=reading.end_profile or None,
                       data=reading.end_data, metadata={**outcome, **reading.end_metadata}),
                _event(around, None, "end", at_ns, **turn, metadata={**self._as_turn, **ends_turn}),
            ],
        )  # fmt: skip

    @property
    def _metadata(self) -> dict[str, Any]:
        told = {"turn_id": self.prompt} if self.prompt else {}
        return {"session_id": self.session, **told, "profile": self.profile}

    @property
    def _as_turn(self) -> dict[str, Any]:
        return {**self._metadata, "nemo_relay_scope_role": "turn"}


OK = {"otel.status_code": "OK"}


def failed(message: Any, kind: Any = None, status: Any = None) -> dict[str, Any]:
    """The outcome of what went wrong, as the metadata of an end."""
    told = {"otel.status_description": message, "error.type": kind, "status_code": status}
    return {"otel.status_code": "ERROR", **without_none(told)}


def is_false(value: Any) -> bool:
    """Whether an attribute says no, as truth or as text."""
    return value is False or value == "false"


def number(value: Any) -> float | None:
    """A number, which some write as text."""
    try:
        found = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def told_ns(attributes: dict[str, Any]) -> int:
    """The time in the attribute `event.timestamp`, in ns since 1970; 0 where none is told."""
    try:
        return int(datetime.fromisoformat(attributes["event.timestamp"]).timestamp() * 1e6) * 1000
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return 0


def _event(uuid: UUID, parent: UUID | None, kind: str, at_ns: int, **members: Any) -> bytes:
    fixed = {"kind": "scope", "scope_category": kind, "atof_version": "0.1", "uuid": str(uuid)}
    above = {"parent_uuid": str(parent) if parent else None, "propagation_root_uuid": None}
    given = {"category_profile": None, "attributes": [], "data": None, "data_schema": None, **members}
    return line(**fixed, **above, timestamp=timestamp(at_ns), **given)
