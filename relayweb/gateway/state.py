"""Sessions, turns and calls that the gateway has open."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from adapters import relay_runtime
from relayweb import conf
from relayweb.gateway.tools import ToolScopes
from relayweb.gateway.words import Open

_REMEMBERED = 10_000
MOST_RESTING = 10_000
"""Sessions and turns kept open without a call; one of them takes 20 KB."""


TurnKey = tuple[Hashable, str, str]
"""Whose turn (tenant), its session's id, and what tells it from the session's other turns."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait for what may still come."""

    retry: float = conf.RETRY_WINDOW
    """A failed call for its retry."""
    hangup: float = 10.0
    """A call whose client hung up before an answer began, for the retry of an SDK that ran out of time."""
    idle: float = 120.0
    """A turn whose tools run, for the call with their results."""
    failed: float = 5.0
    """A turn whose last call failed for good, for an agent that tries something else."""
    named: float = 3.0
    """A turn that the client named, for its next call: only the client knows when it is over."""
    session: float = 600.0
    """A session without a turn, before it is closed; a later call opens it again."""
    elsewhere: float = conf.INTERRUPT_AFTER
    """A call that another process has, for word of its end: that process may have died."""


@dataclass(eq=False)
class Session:
    id: str
    lease: relay_runtime.ConversationLease
    turns: set[Turn] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Turn:
    """An open turn: the core's own, its calls that are not closed, its tools that run."""

    id: str
    key: TurnKey
    session: Session
    relay: relay_runtime.RelayTurnContext
    tools: ToolScopes
    named: bool
    calls: dict[str, Call] = field(default_factory=dict)
    elsewhere: dict[str, Call] = field(default_factory=dict)
    """Calls that another process has: that run there, or failed there and wait for a retry."""
    shared: bool = False
    """Whether another process has, or may have, the same turn open."""
    goes_on: bool = False
    outcome: str = "success"
    ended: bool = False
    over_at: datetime | None = None
    """When its last closed call was over: its end, should nothing more come."""
    timer: asyncio.TimerHandle | None = None

    @property
    def all_calls(self) -> list[Call]:
        return [*self.elsewhere.values(), *self.calls.values()]

    @property
    def is_over(self) -> bool:
        """Whether a call with the same key is another turn: all was said, only the closing is not done."""
        said_all = all(call.final for call in self.calls.values()) and not self.goes_on and not self.elsewhere
        return self.ended or (bool(self.calls) and said_all and not self.named)


@dataclass(eq=False)
class Call:
    """A logical call: attempts of one wanted answer. `final` from when its last bytes say that no tool will follow."""

    id: str
    turn: Turn
    digest: bytes
    asks: tuple[str, ...]
    named: bool
    attempts: int = 0
    running: int = 0
    final: bool = False
    closed: bool = False
    outcome: str = "failed"
    over_at: datetime | None = None
    """How and when its last attempt was over: its end, should no retry come."""
    timer: asyncio.TimerHandle | None = None

    @property
    def retry_count(self) -> int:
        return self.attempts - 1

    @property
    def told(self) -> Open:
        """As other processes are told of it."""
        running = self.running > 0
        return Open(self.id, self.digest, self.asks, self.named, self.attempts, running, self.outcome, self.over_at)


def cancel(holder: Session | Turn | Call) -> None:
    """Stop its timer."""
    if holder.timer is not None:
        holder.timer.cancel()
        holder.timer = None


class Resting(OrderedDict["Session | Turn", None]):
    """What is kept open without a call, those that have waited longest first."""

    def add(self, holder: Session | Turn) -> Session | Turn | None:
        """Returns the first of them when there are too many."""
        self[holder] = None
        self.move_to_end(holder)
        return next(iter(self)) if len(self) > MOST_RESTING else None


class Memory(OrderedDict[Hashable, Any]):
    """The newest things remembered."""

    def __setitem__(self, key: Hashable, value: Any) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)
