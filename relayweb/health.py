"""/healthz: whether this process lives, takes work and records. Open to all, so it tells states, no data.

What the database itself said is for those who may read the record: it may name folders, hosts and people.
"""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError

from relayweb import lifecycle, shared
from relayweb.access import readers, tokens
from relayweb.access.answers import Receive, Scope, Send, answer

DEGRADED = "events are not being recorded; a read token or a login shows why"
ALONE = "Redis does not answer: turns and limits count in each process, and pages learn of others by a poll"
LOSSES = "events were lost since the start; a read token or a login shows how"


def state() -> dict[str, Any]:
    """How this process is: `status` "ok" or "degraded", `live`, `ready`, `reason`, and counters of its parts.

    Degraded is alive and takes work: calls go through, but what they leave on record is delayed or lost, and `reason`
    says why. Not ready is a process that has not started yet or is stopping: send it nothing new.
    """
    from relayweb.gateway.app import counters
    from relayweb.recording.writing.writer import writer

    found = writer().state()
    alone = f"{ALONE} ({shared.health.error})" if shared.health.error is not None else None
    return {
        "status": "degraded" if alone else found.get("status", "ok"),
        "live": True,
        "ready": lifecycle.PARTS[-1].module in {part.module for part, _ in lifecycle._started},
        "reason": found.get("reason") or alone,
        "writer": found,
        "gateway": counters(),
    }


def told_to_all(found: dict[str, Any]) -> dict[str, Any]:
    """The same state, with reasons by their kind only."""
    kind = DEGRADED if found["writer"].get("status", "ok") != "ok" else LOSSES
    reason = kind if found["writer"].get("reason") else None
    return {
        **found,
        "reason": reason or (ALONE if found["reason"] else None),
        "writer": {**found["writer"], "reason": reason},
    }


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: answer with the state; 503 while not ready, so that a load balancer needs to read no JSON."""
    found = state()
    if found["reason"] and not await _may_read(scope):
        found = told_to_all(found)
    await answer(send, 200 if found["ready"] else 503, found)


async def _may_read(scope: Scope) -> bool:
    try:
        return await readers.may_read(scope)
    except (tokens.NotNow, DatabaseError):
        return False
