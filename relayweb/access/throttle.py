"""How often something may happen, by key: failed logins, wrong tokens, the requests of one token.

Kept in each process: several processes allow several times as much, which is still nothing to somebody who guesses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable

_MOST_KEYS = 10_000


class Throttle:
    """The generic cell rate algorithm: `most` at once, then one each time that `seconds / most` have gone by."""

    def __init__(self) -> None:
        self._full_until: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    def wait(self, key: Hashable, most: int, seconds: float) -> float:
        """Seconds until one more is allowed; 0 when it is allowed now."""
        earliest = self._full_until.get(key, 0.0) - seconds + seconds / most
        return max(0.0, earliest - time.monotonic())

    def count(self, key: Hashable, most: int, seconds: float) -> None:
        """One more has happened."""
        now = time.monotonic()
        with self._lock:
            if len(self._full_until) >= _MOST_KEYS:
                self._forget(now)
            self._full_until[key] = max(now, self._full_until.pop(key, 0.0)) + seconds / most

    def take(self, key: Hashable, most: int, seconds: float) -> float:
        """Count one more if it is allowed now; else how many seconds are to go."""
        wait = self.wait(key, most, seconds)
        if not wait:
            self.count(key, most, seconds)
        return wait

    def _forget(self, now: float) -> None:
        self._full_until = {key: until for key, until in self._full_until.items() if until > now}
        # Somebody with very many addresses: the keys that were not counted for longest go first.
        for key in list(self._full_until)[: len(self._full_until) - _MOST_KEYS // 2]:
            del self._full_until[key]
