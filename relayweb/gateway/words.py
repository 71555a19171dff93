"""What gateways of several processes say to each other of turns and calls, as it passes through Redis."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Open(msgspec.Struct):
    """A call that is not closed."""

    id: str
    digest: bytes
    asks: tuple[str, ...]
    named: bool
    attempts: int
    running: bool
    outcome: str = "failed"
    over_at: datetime | None = None
    """How and when its last attempt was over, where it waits for another."""


class Place(msgspec.Struct):
    """An open turn; `left` by a process that stopped, unless another has inherited it."""

    turn: str
    named: bool
    goes_on: bool
    calls: list[Open]
    left: bool = False


class OpenTool(msgspec.Struct):
    """A tool that runs: what the end of its scope has to name."""

    id: str
    name: str
    uuid: str
    parent_uuid: str | None
    at: datetime


class Left(msgspec.Struct):
    """What a process that stops leaves of a turn: scopes whose ends the process tells that inherits it."""

    session: str
    platform: str
    model: str
    tenant: Any
    key: str
    turn: str
    named: bool
    goes_on: bool
    outcome: str
    over_at: datetime | None
    calls: list[Open]
    elsewhere: list[Open]
    tools: list[OpenTool]


class Lead(msgspec.Struct):
    """What an id of a response or a tool leads to: a session, and a turn of it."""

    session: str
    key: str


class Began(msgspec.Struct, tag="began"):
    """An attempt of a call began, with results of tools."""

    process: str
    session: str
    turn: str
    call: Open
    results: dict[str, Any]


class Over(msgspec.Struct, tag="over"):
    """An attempt is over, and with `closed` its call."""

    process: str
    session: str
    turn: str
    call: str
    outcome: str
    at: datetime
    closed: bool
    goes_on: bool


class Leaving(msgspec.Struct, tag="leaving"):
    """A process stops, and leaves a turn to whoever asks for it first."""

    process: str
    session: str
    turn: str


Word = Began | Over | Leaving


class Away(Exception):
    """Redis does not answer."""
