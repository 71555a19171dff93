"""Relay scopes that can be closed in any order: one scope, one stack.

A Relay scope stack is last-in-first-out, so scopes of overlapping work cannot share one. Every scope here is pushed on
a stack of its own, made from its parent by a propagation context; the parent stays right and nothing blocks anything.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeVar

from adapters import faults, marks

log = logging.getLogger("adapters")
T = TypeVar("T")

CLOSE_TIMEOUT = 10.0
"""Seconds a native operation may hold up the end of a turn or session."""


class NativeTimeout(RuntimeError):
    """A native Relay operation did not return in time; it was left behind in its thread."""


def bounded(operation: Callable[[], T], *, seconds: float | None = None) -> T:
    """Run a native operation in a thread of its own and wait for it no longer than `seconds`.

    The operation sees a copy of the caller's context. Raises NativeTimeout when it does not come back, else whatever
    the operation raises.
    """
    seconds = CLOSE_TIMEOUT if seconds is None else seconds
    done = threading.Event()
    outcome: list[Any] = [None, None]
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome[0] = context.run(operation)
        except BaseException as error:
            outcome[1] = error
        finally:
            done.set()

    try:
        threading.Thread(target=work, name="relay-native", daemon=True).start()
    except RuntimeError:
        if _exit_jobs is None:
            return operation()
        _exit_jobs.put(work)
    if not done.wait(seconds):
        raise NativeTimeout(f"a Relay operation did not return within {seconds:g} s")
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]  # type: ignore[no-any-return]


_exit_jobs: queue.SimpleQueue[Callable[[], None]] | None = None


def keep_an_exit_thread() -> None:
    """Have a thread at hand for `bounded` while the interpreter exits, when Python 3.12 and later start none."""
    global _exit_jobs
    if _exit_jobs is None and sys.version_info >= (3, 12):
        _exit_jobs = queue.SimpleQueue()
        threading.Thread(target=_run_exit_jobs, args=(_exit_jobs,), name="relay-native-exit", daemon=True).start()


def _run_exit_jobs(jobs: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        jobs.get()()


def _forget_exit_thread() -> None:
    global _exit_jobs
    _exit_jobs = None


os.register_at_fork(after_in_child=_forget_exit_thread)


class Scope:
    """One open Relay scope.

    `relay` is the nemo_relay module, `handle` Relay's own handle and `stack` the stack it lives on.
    """

    __slots__ = ("_context", "handle", "name", "relay", "stack")

    def __init__(
        self,
        relay: Any,
        name: str,
        kind: Any,
        *,
        parent: Scope | None = None,
        metadata: dict[str, Any] | None = None,
        input: Any = None,
    ) -> None:
        self.relay = relay
        self.name = name
        self.stack = relay.create_scope_stack_from_propagation(parent.context) if parent else relay.create_scope_stack()
        self._context: Any = None
        with relay.use_scope_stack(self.stack):
            self.handle = relay.scope.push(name, kind, metadata=metadata, input=input)

    @property
    def context(self) -> Any:
        """The propagation context from which children and marks of this scope are made. First asked for while open."""
        if self._context is None:
            with self.relay.use_scope_stack(self.stack):
                self._context = self.relay.capture_propagation_context()
        return self._context

    @property
    def uuid(self) -> str:
        return str(self.handle.uuid)

    def entered(self) -> AbstractContextManager[Any]:
        """Make this scope the current one of Relay for the body of a `with` block."""
        manager: AbstractContextManager[Any] = self.relay.use_scope_stack(self.stack)
        return manager

    def mark(self, name: str, data: Any = None, metadata: dict[str, Any] | None = None) -> None:
        """Emit a mark under this scope, open or closed."""
        emit(self.relay, self.context, name, data, metadata)

    def close(
        self, output: Any = None, *, metadata: dict[str, Any] | None = None, ended_at: datetime | None = None
    ) -> None:
        """Pop the scope, as ended at an earlier time if one is given; raises what Relay raises."""
        with self.relay.use_scope_stack(self.stack):
            self.relay.scope.pop(self.handle, output=output, metadata=metadata, timestamp=ended_at)

    def drain(self, output: Any = None, ended_at: datetime | None = None) -> bool:
        """Pop the scope within a bound, whatever lies above it on its stack; True when it is closed.

        What would not close is given up with the mark `relay.orphan_drain`; nothing is raised.
        """
        try:
            bounded(lambda: self.close(output, ended_at=ended_at))
            return True
        except Exception as error:
            log.warning("relay scope %s did not close: %s", self.name, error)
            if isinstance(error, NativeTimeout):
                return False
        try:
            return bounded(lambda: self._drain(output))
        except Exception as error:
            log.warning("relay scope %s was given up", self.name)
            faults.note("scope", error)
            with contextlib.suppress(Exception):
                self.mark(marks.ORPHAN_DRAIN, {"scope": self.name, "uuid": self.uuid, "error": str(error)})
            return False

    def _drain(self, output: Any) -> bool:
        with self.relay.use_scope_stack(self.stack):
            for _ in range(1000):
                top = self.relay.scope.get_handle()
                if top is None or top.uuid == self.handle.uuid:
                    break
                self.relay.scope.event(marks.ORPHAN_DRAIN, data={"scope": top.name, "uuid": str(top.uuid)})
                self.relay.scope.pop(top, output=None)
            self.relay.scope.pop(self.handle, output=output)
        return True


def emit(relay: Any, context: Any, name: str, data: Any = None, metadata: dict[str, Any] | None = None) -> None:
    """Emit a mark under the scope that `context`, a propagation context, names."""
    emit_all(relay, context, [(name, data)], metadata)


def emit_all(
    relay: Any, context: Any, named: Iterable[tuple[str, Any]], metadata: dict[str, Any] | None = None
) -> None:
    """Emit marks, each a name and its data, under one scope; its stack costs much more than a mark."""
    with relay.use_scope_stack(relay.create_scope_stack_from_propagation(context)):
        for name, data in named:
            relay.scope.event(name, data=data, metadata=metadata)
