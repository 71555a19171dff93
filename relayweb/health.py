"""/healthz: whether this process lives and records. Open to all, so it tells states, no data."""

from __future__ import annotations

from typing import Any

from relayweb.access.answers import Receive, Scope, Send, answer


def state() -> dict[str, Any]:
    """`{"status": "ok" | "degraded", "writer": {…}, "gateway": {…}}`; degraded names its reason and is still alive."""
    from relayweb.gateway.app import counters
    from relayweb.recording.writer import writer

    found = writer().state()
    return {"status": found.get("status", "ok"), "writer": found, "gateway": counters()}


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: answer with the state."""
    await answer(send, 200, state())
