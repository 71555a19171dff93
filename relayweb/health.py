"""/healthz: whether this process lives, takes work and records. Open to all, so it tells states, no data."""

from __future__ import annotations

from typing import Any

from relayweb import lifecycle
from relayweb.access.answers import Receive, Scope, Send, answer


def state() -> dict[str, Any]:
    """How this process is: `status` "ok" or "degraded", `live`, `ready`, `reason`, and counters of its parts.

    Degraded is alive and takes work: calls go through, but what they leave on record is delayed or lost, and `reason`
    says why. Not ready is a process that has not started yet or is stopping: send it nothing new.
    """
    from relayweb.gateway.app import counters
    from relayweb.recording.writer import writer

    found = writer().state()
    return {
        "status": found.get("status", "ok"),
        "live": True,
        "ready": lifecycle.PARTS[-1].module in {part.module for part, _ in lifecycle._started},
        "reason": found.get("reason"),
        "writer": found,
        "gateway": counters(),
    }


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: answer with the state; 503 while not ready, so that a load balancer needs to read no JSON."""
    found = state()
    await answer(send, 200 if found["ready"] else 503, found)
