"""Running calls and turns that only wait for a retry: their last attempt failed, and nothing inside them runs.

A logical call stays open after a failure, because a retry is one more attempt of the same call; its status is
`running` until it is closed. What people want to know of it is that it failed and until when a retry may come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from relayweb import conf
from relayweb.recording.models import Role, Scope, Status
from relayweb.recording.reading.rows import rfc3339

Waiting = dict[str, Any]
"""{"since", "since_us": the end of the last attempt, "until", "until_us": None where only the sender knows}."""

GATEWAY_PROFILE = "gateway"
"""The profile of turns that our gateway records: it closes their calls when the retry window is over."""
_BUSY = (Role.ATTEMPT, Role.TOOL)
_SLICE = 500


def calls(open_calls: Mapping[UUID, UUID]) -> dict[UUID, Waiting]:
    """Those of some running logical calls, each given with its turn, that wait for a retry."""
    attempts: dict[UUID, list[tuple[str, int]]] = defaultdict(list)
    for some in _slices(list(open_calls)):
        made = Scope.objects.filter(parent_uuid__in=some, role=Role.ATTEMPT, joined_uuid__isnull=True)
        found: Any = made.values_list("parent_uuid", "status", "end_us", "last_us")
        for call, status, end_us, last_us in found:
            attempts[call].append((status, last_us if end_us is None else end_us))
    failed: dict[UUID, int] = {}
    for call, of in attempts.items():
        status, end_us = max(of, key=lambda one: one[1])
        if status in (Status.FAILED, Status.INTERRUPTED) and all(s != Status.RUNNING for s, _ in of):
            failed[call] = end_us
    profiles: dict[UUID, str | None] = {}
    for some in _slices(list({open_calls[call] for call in failed})):
        profiles.update(Scope.objects.filter(uuid__in=some).values_list("uuid", "profile"))
    return {call: _told(end_us, profiles.get(open_calls[call])) for call, end_us in failed.items()}


def turns(running: Sequence[UUID]) -> dict[UUID, Waiting]:
    """Those of some running turns that wait for a retry."""
    open_calls: dict[UUID, UUID] = {}
    busy: set[UUID] = set()
    for some in _slices(running):
        inside = Scope.objects.filter(turn_uuid__in=some, status=Status.RUNNING, role__in=(*_BUSY, Role.LOGICAL_CALL))
        for uuid, turn, role in inside.values_list("uuid", "turn_uuid", "role"):
            if role in _BUSY:
                busy.add(turn)
            else:
                open_calls[uuid] = turn
        agents = Scope.objects.filter(parent_turn_uuid__in=some, is_home=True, status=Status.RUNNING)
        busy.update(turn for turn in agents.values_list("parent_turn_uuid", flat=True) if turn is not None)
    found: dict[UUID, list[Waiting | None]] = defaultdict(list)
    waiting = calls({call: turn for call, turn in open_calls.items() if turn not in busy})
    for call, turn in open_calls.items():
        found[turn].append(waiting.get(call))
    return {turn: _last([one for one in of if one]) for turn, of in found.items() if all(of)}


def _last(of: list[Waiting]) -> Waiting:
    """Of several calls the one that waits longest; one without a limit first."""
    return max(of, key=lambda one: (one["until_us"] is None, one["until_us"] or one["since_us"]))


def _told(since_us: int, profile: str | None) -> Waiting:
    until_us = since_us + conf.RETRY_WINDOW * 1_000_000 if profile == GATEWAY_PROFILE else None
    return {
        "since": rfc3339(since_us),
        "until": rfc3339(until_us),
        "since_us": since_us,
        "until_us": until_us,
    }


def _slices(values: Sequence[UUID]) -> Iterable[Sequence[UUID]]:
    return (values[at : at + _SLICE] for at in range(0, len(values), _SLICE))
