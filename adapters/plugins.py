"""The one plugin configuration Relay holds for a process, shared by the runtimes that asked for one.

The core activates none of its own accord: Relay would layer the user's own plugins.toml and start the sinks in it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

from adapters.scopes import bounded

log = logging.getLogger("adapters")


class PluginConfiguration:
    """Who uses Relay's plugin configuration. The first owner's file decides, the last owner to leave closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._activation: Any = None
        self._owners: set[str] = set()

    @property
    def active(self) -> bool:
        return self._activation is not None

    def join(self, owner: str, relay: Any, path: str | os.PathLike[str]) -> bool:
        """Activate the file at `path`, or join what an earlier owner activated; False (and a warning) if neither."""
        with self._lock:
            if self._activation is not None:
                self._owners.add(owner)
                return True
            if not os.path.isfile(path):
                log.warning("Relay plugins: no file at %s; going on without plugins", os.fspath(path))
                return False
            try:
                self._activation = bounded(lambda: asyncio.run(_initialize(relay, path)))
            except Exception as error:
                log.warning("Relay plugins: %s was not activated: %s; going on without plugins", os.fspath(path), error)
                return False
            self._owners.add(owner)
            return True

    def leave(self, owner: str, relay: Any) -> None:
        """Drop an owner; the last one flushes what is queued for the plugins, then closes them."""
        with self._lock:
            if owner not in self._owners:
                return
            self._owners.discard(owner)
            if self._owners or self._activation is None:
                return
            activation, self._activation = self._activation, None
        try:
            bounded(relay.subscribers.flush)
            bounded(lambda: asyncio.run(activation.close()))
        except Exception as error:
            log.warning("Relay plugins did not close: %s", error)


async def _initialize(relay: Any, path: str | os.PathLike[str]) -> Any:
    return await relay.plugin.initialize(relay.plugin.PluginConfig(), path)


PLUGINS = PluginConfiguration()
