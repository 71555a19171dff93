"""How often something may happen, by key: failed logins, wrong tokens, the requests of one token.

With REDIS_URL all processes count together. Nobody waits for that: each decides by what it knows, tells the others of
what it let happen, and learns from the answer what they did, so that each may let one more pass than allowed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Hashable
from typing import Any

from relayweb import conf, shared

_MOST_KEYS = 10_000
_MOST_UNTOLD = 10_000
_COUNT = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local full = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0')) + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.6f', full), 'PX', math.ceil((full - now) * 1000))
return string.format('%.6f', full - now)
"""


class Throttle:
    """The generic cell rate algorithm: `most` at once, then one each time that `seconds / most` have gone by.

    Throttles of the same name count together in all processes; one without a name counts by itself.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
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
        if self.name and conf.REDIS_URL:
            _together.tell(self, key, seconds / most)

    def take(self, key: Hashable, most: int, seconds: float) -> float:
        """Count one more if it is allowed now; else how many seconds are to go."""
        wait = self.wait(key, most, seconds)
        if not wait:
            self.count(key, most, seconds)
        return wait

    def learn(self, key: Hashable, seconds: float) -> None:
        """All processes together have counted so much that nothing is left of it after `seconds`."""
        with self._lock:
            self._full_until[key] = max(self._full_until.pop(key, 0.0), time.monotonic() + seconds)

    def _forget(self, now: float) -> None:
        self._full_until = {key: until for key, until in self._full_until.items() if until > now}
        # Somebody with very many addresses: the keys that were not counted for longest go first.
        for key in list(self._full_until)[: len(self._full_until) - _MOST_KEYS // 2]:
            del self._full_until[key]


class _Together:
    """Tells Redis what was counted here, in a thread of its own, and lets throttles learn what was counted in all."""

    def __init__(self) -> None:
        self._untold: queue.Queue[tuple[Throttle, Hashable, float]] = queue.Queue(_MOST_UNTOLD)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, throttle: Throttle, key: Hashable, cost: float) -> None:
        try:
            self._untold.put_nowait((throttle, key, cost))
        except queue.Full:
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="relayweb-throttle", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        from redis import Redis
        from redis.exceptions import RedisError

        client = Redis.from_url(conf.REDIS_URL, socket_connect_timeout=1, socket_timeout=1)
        count = client.register_script(_COUNT)
        while True:
            costs = self._next()
            if shared.health.resting:
                continue
            try:
                for (throttle, key), cost in costs.items():
                    answer: Any = count(keys=[shared.name("throttle", throttle.name, key)], args=[cost])
                    throttle.learn(key, float(answer))
            except (RedisError, OSError) as error:
                shared.health.failed(error)

    def _next(self) -> dict[tuple[Throttle, Hashable], float]:
        """All that waits to be told."""
        costs: dict[tuple[Throttle, Hashable], float] = {}
        found: tuple[Throttle, Hashable, float] | None = self._untold.get()
        while found is not None:
            throttle, key, cost = found
            costs[throttle, key] = costs.get((throttle, key), 0.0) + cost
            try:
                found = self._untold.get_nowait() if len(costs) < 100 else None
            except queue.Empty:
                found = None
        return costs


_together = _Together()
