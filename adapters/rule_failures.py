"""Rules that keep failing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapters.rules import Rule

_log = logging.getLogger(__name__)

MAX_FAILURES = 5  # in a row, of one revision; then it is not run any more


class Failures:
    """Counts failures in a row of each rule; a rule that keeps failing is not run any more in this process.

    A disabled rule fails as its setting says: `open` is passed over, `closed` goes on blocking.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, int | None], int] = {}
        self._disabled: dict[tuple[str, int | None], str] = {}
        self.on_disabled: Callable[[str, str], object] | None = None

    def disabled(self, rule: Rule) -> str | None:
        """Why a rule is not run any more, None while it is."""
        return self._disabled.get((rule.key, rule.revision)) if self._disabled else None

    def note(self, rule: Rule, error: str | None) -> None:
        name = (rule.key, rule.revision)
        if error is None:
            if self._counts:
                self._counts.pop(name, None)
            return
        with self._lock:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            if count < MAX_FAILURES or name in self._disabled:
                return
            reason = self._disabled[name] = f"disabled after {count} failures in a row, the last: {error}"
        if self.on_disabled is not None:
            try:
                self.on_disabled(rule.key, reason)
            except Exception:
                _log.exception("on_disabled failed for intercept %s", rule.key)

    def clear(self, key: str | None = None) -> None:
        """Gives a rule (or all) another chance."""
        with self._lock:
            for table in (self._counts, self._disabled):
                for name in [n for n in table if key is None or n[0] == key]:
                    del table[name]
