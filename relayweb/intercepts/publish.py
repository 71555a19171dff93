"""Keeps the rules in force in this process the same as the ones configured, within a second of a change.

The process that saves swaps at once, after its transaction. The others hear of it through the channel layer, where one
connects processes, and look at the number of changes twice a second in any case, so a lost message costs half a second.
A swap is one assignment: every call runs under exactly one rule set, the old or the new.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.db import DatabaseError, close_old_connections, transaction

from adapters import intercepts
from relayweb.intercepts.models import InterceptConfig, Publication

log = logging.getLogger(__name__)

GROUP = "relayweb.intercepts"
POLL = 0.5  # seconds
PATIENCE = 1.0  # seconds that whoever saves waits for the channel layer


class _Applied:
    """What this process last swapped in. The lock makes the last swap the latest reading."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number: int | None = None
        self.unusable: dict[str, str] = {}


_applied = _Applied()
# Rules that failed too often, put here by calls: those may be on the event loop, where the database is out of reach.
_failing: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()


def ruleset_document() -> dict[str, Any]:
    """The enabled rules as plain data, in the order they run: `{"etag": "…", "rules": [config, …]}`.

    Each config is what adapters.intercepts.Rule.parse takes. The etag changes when the rules do.
    """
    number = Publication.current()
    rules = [{**config.value(), "revision": config.revision} for config in InterceptConfig.objects.filter(enabled=True)]
    digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:12]
    return {"etag": f"{number}-{digest}", "rules": rules}


def refresh(force: bool = False) -> bool:
    """Read the configs and swap them in, when they have changed since the last time; returns whether they had.

    A stored config this version cannot parse is left out and reported by `unusable`; the others are in force.
    """
    with _applied.lock:
        number = Publication.current()
        if number == _applied.number and not force:
            return False
        # The number is read first: rules newer than it are read again at the next look, never missed.
        document = ruleset_document()
        usable, unusable = [], {}
        for rule in document["rules"]:
            try:
                intercepts.Rule.parse(rule)
                usable.append(rule)
            except intercepts.RuleError as error:
                unusable[rule["key"]] = f"{error.field}: {error.message}"
                log.error("intercept %s r%s is not in force: %s", rule["key"], rule["revision"], unusable[rule["key"]])
        intercepts.swap(intercepts.RuleSet.parse(usable, etag=document["etag"]))
        _applied.number, _applied.unusable = number, unusable
        return True


def unusable() -> dict[str, str]:
    """Enabled configs that are not in force because they do not parse: key → reason."""
    return dict(_applied.unusable)


def stop_failing() -> None:
    """Stop the rules that failed too often since the last time, unless they have been changed meanwhile."""
    while not _failing.empty():
        key, reason = _failing.get_nowait()
        in_force = [rule for rule in intercepts.current().rules if rule.key == key]
        if in_force and intercepts.failures.disabled(in_force[0]):
            log.warning("intercept %s is stopped: %s", key, reason)
            InterceptConfig.stop(key, reason)


def _note_failing(key: str, reason: str) -> None:
    _failing.put((key, reason))


def announce() -> None:
    """Call inside or after a change: swaps here once it is committed and tells the other processes."""
    transaction.on_commit(_announce)


def _announce() -> None:
    try:
        refresh()
        layer = get_channel_layer("rules")
        if layer is not None and not isinstance(layer, InMemoryChannelLayer):
            async_to_sync(_tell)(layer)
    except Exception:
        # The change is stored; whoever could not be told finds it at the next look.
        log.exception("could not tell every process about new rules at once")


async def _tell(layer: Any) -> None:
    await asyncio.wait_for(layer.group_send(GROUP, {"type": "rules.changed"}), PATIENCE)


_LAYER_AWAY = "the channel layer is away; rules are looked up every half second"
_UNREADABLE = "the rules could not be read; the last ones stay in force"


class _Watcher(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="relayweb-rules", daemon=True)
        self.stopping = threading.Event()
        self.wake: Callable[[], object] = lambda: None
        self.channel: str | None = None
        self.troubles: set[str] = set()

    def stop(self) -> None:
        self.stopping.set()
        # Its loop may be closed already.
        with contextlib.suppress(RuntimeError):
            self.wake()

    def run(self) -> None:
        layer = get_channel_layer("rules")
        if layer is None or isinstance(layer, InMemoryChannelLayer):
            # One process, which swaps when it saves; commands in other processes are found by looking.
            while not self.stopping.wait(POLL):
                self.look()
        else:
            asyncio.run(self.listen(layer))

    async def listen(self, layer: Any) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self.wake = lambda: loop.call_soon_threadsafe(stopped.set)
        halt = asyncio.ensure_future(stopped.wait())
        message: asyncio.Future[Any] | None = None
        while not self.stopping.is_set():
            if message is None:
                message = asyncio.ensure_future(self.next_message(layer))
            # It is kept from look to look: cancelling a receive may lose its message, and a layer that hangs must not
            # keep us from looking.
            await asyncio.wait({message, halt}, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                if (error := message.exception()) is not None:
                    self.channel = None
                    self.trouble(_LAYER_AWAY, error)
                    await asyncio.wait({halt}, timeout=POLL)
                message = None
            await asyncio.to_thread(self.look)
        for pending in (message, halt):
            if pending is not None:
                pending.cancel()

    async def next_message(self, layer: Any) -> None:
        if self.channel is None:
            channel = await layer.new_channel("rules")
            await layer.group_add(GROUP, channel)
            self.channel = channel
            self.troubles.discard(_LAYER_AWAY)
        await layer.receive(self.channel)

    def look(self) -> None:
        try:
            stop_failing()
            refresh()
            self.troubles.discard(_UNREADABLE)
        except DatabaseError as error:
            self.trouble(_UNREADABLE, error)
        except Exception:
            log.exception("the rules could not be applied; the last ones stay in force")
        finally:
            close_old_connections()

    def trouble(self, what: str, error: BaseException) -> None:
        """Say it once, until it is over."""
        if what not in self.troubles:
            log.warning("%s: %s", what, error)
        self.troubles.add(what)


_watcher: _Watcher | None = None


def start() -> None:
    """Put the configured rules in force and keep watching for changes. Idempotent; call before listening.

    Raises:
        django.db.DatabaseError: the rules could not be read. A server must not take calls then.
    """
    global _watcher
    refresh(force=True)
    intercepts.failures.on_disabled = _note_failing
    if _watcher is None or not _watcher.is_alive():
        _watcher = _Watcher()
        _watcher.start()


def close(timeout: float = 5.0) -> None:
    """Stop watching. The rules stay in force for calls that still run. Idempotent."""
    global _watcher
    watcher, _watcher = _watcher, None
    if watcher is not None:
        watcher.stop()
        watcher.join(timeout)
