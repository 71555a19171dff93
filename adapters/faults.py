"""What the core could not record. It never raises into the agent; it logs, and counts, so that the loss can be seen."""

from __future__ import annotations

import logging
import threading
from collections import Counter

log = logging.getLogger("adapters")

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def note(kind: str, error: BaseException) -> None:
    """Count one loss of `kind`: session, turn, call, mark, scope, tool."""
    with _lock:
        _counts[kind] += 1
    log.warning("%s not recorded: %s: %s", kind, type(error).__name__, error)


def counts() -> dict[str, int]:
    """Losses of this process so far, by kind."""
    with _lock:
        return dict(_counts)
