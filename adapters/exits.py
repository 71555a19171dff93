"""Leaving the interpreter after a call or stream was cancelled.

Relay's native threads let go of a cancelled call a little later. When that happens while the interpreter is being taken
down, it crashes (3 of 14 processes that left `asyncio.run` by Ctrl+C); so the exit waits a moment, if need be.
"""

from __future__ import annotations

import atexit
import time

SETTLE = 0.3
"""Seconds after the last cancelled call at which the interpreter may exit."""

_cancelled_at: float | None = None


def note_cancelled() -> None:
    """A managed call was cancelled or interrupted just now."""
    global _cancelled_at
    _cancelled_at = time.monotonic()


@atexit.register
def settle() -> None:
    # Registered on import, before any runtime's own handler, hence called after it.
    if _cancelled_at is not None:
        time.sleep(max(0.0, _cancelled_at + SETTLE - time.monotonic()))
