"""Keeps the rules of a relayweb server in force in this process."""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from typing import Any

from adapters import rules
from adapters.actions.base import RuleError
from adapters.rules import Rule, RuleSet

_log = logging.getLogger(__name__)

PATH = "/api/v1/ruleset"
TIMEOUT_S = 5.0
_MAX_BYTES = 16_000_000


class Follower:
    """Reads the server's rule set every `interval` seconds and swaps it in when it is another one.

    While the server is away, refuses the token or answers nonsense, the last good set stays in force; `error` says what
    is wrong, None when all is well. `close()` stops following, and leaves the rules as they are. A rule this version
    cannot parse is left out and named in `unusable` (key to reason).
    """

    def __init__(self, url: str, token: str, interval: float) -> None:
        base = url.rstrip("/")
        if not base.startswith(("http://", "https://")):
            raise ValueError(f"url must start with http:// or https://, is {url!r}")
        self.url = base if base.endswith(PATH) else base + PATH
        self.etag: str | None = None
        self.error: str | None = None
        self.unusable: dict[str, str] = {}
        self._token = token
        self._interval = interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay-rules", daemon=True)

    def start(self) -> None:
        """Reads once, so that calls made from now on run under the server's rules, then goes on in a thread."""
        self.look()
        self._thread.start()

    def close(self, timeout: float = TIMEOUT_S) -> None:
        """Stops following. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def look(self) -> bool:
        """Reads the set now; whether another one is in force afterwards. Never raises."""
        try:
            document = self._read()
            swapped = document is not None and self._apply(document)
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
            return False
        if self.error is not None:
            _log.info("the rules of %s are followed again", self.url)
        self.error = None
        return swapped

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            self.look()

    def _failed(self, reason: str) -> None:
        if reason != self.error:
            _log.warning("the rules of %s cannot be read, the last ones stay in force: %s", self.url, reason)
        self.error = reason

    def _read(self) -> Any:
        """The server's document, None when it says that nothing has changed."""
        headers = {"Accept": "application/json"}
        if self.etag is not None:
            headers["If-None-Match"] = f'"{self.etag}"'
        request = urllib.request.Request(self.url, headers=headers)
        # Not to where an answer may redirect.
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.loads(response.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 304:
                    return None
            raise

    def _apply(self, document: Any) -> bool:
        if not isinstance(document, dict) or not isinstance(document.get("rules"), list):
            raise ValueError("the answer holds no rules; is this the address of a relayweb server?")
        etag = str(document.get("etag"))
        if etag == self.etag:
            return False
        usable: dict[str, Rule] = {}
        unusable: dict[str, str] = {}
        for config in document["rules"]:
            try:
                rule = Rule.parse(config)
                usable[rule.key] = rule
            except RuleError as error:
                key = str(config.get("key")) if isinstance(config, dict) else "?"
                unusable[key] = str(error)
                _log.error("intercept %s is not in force: %s", key, error)
        rules.swap(RuleSet(list(usable.values()), etag))
        self.etag, self.unusable = etag, unusable
        return True


def follow(url: str, token: str, *, interval: float = 1.0) -> Follower:
    """Puts the rules of the relayweb server at `url` in force here, and keeps them so.

    Args:
        url: Where the server is, e.g. `http://127.0.0.1:8000`.
        token: A token with the scope `read`.
        interval: Seconds between two looks.

    Returns:
        The follower; close it to stop. A server that is away now is asked again.

    Raises:
        ValueError: `url` is no http address.
    """
    follower = Follower(url, token, interval)
    follower.start()
    return follower
