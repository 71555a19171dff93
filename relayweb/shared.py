"""What several processes share through Redis, beside wake-ups: counts of throttles, places of conversations.

Nothing depends on it: while it is away each process goes by what it has seen itself, and /healthz says so.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import time

from relayweb import conf

log = logging.getLogger(__name__)

REST_SECONDS = 2.0
"""Redis is not asked again for so long after it failed, so that calls do not wait for it one after the other."""
SILENT_SECONDS = 300.0
"""Between two lines in the log about the same outage."""


class Health:
    """Whether Redis answered when it was asked last."""

    def __init__(self) -> None:
        self.error: str | None = None
        self._failed_at = self._said_at = float("-inf")

    def failed(self, error: BaseException) -> None:
        now = time.monotonic()
        self.error, self._failed_at = str(error) or type(error).__name__, now
        if now - self._said_at > SILENT_SECONDS:
            self._said_at = now
            log.warning("Redis does not answer (%s); each process goes by itself until it does", self.error)

    def worked(self) -> None:
        if self.error is not None:
            self.error, self._said_at = None, float("-inf")
            log.info("Redis answers again")

    @property
    def resting(self) -> bool:
        return self.error is not None and time.monotonic() - self._failed_at < REST_SECONDS


health = Health()


@functools.cache
def _secret() -> bytes:
    return hashlib.sha256(conf.secret_key().encode()).digest()


def name(kind: str, *parts: object) -> str:
    """A key of ours, of which nobody can read what it names. Installations with other secret keys may share a Redis."""
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16, key=_secret())
    return f"relayweb:{kind}:{digest.hexdigest()}"
