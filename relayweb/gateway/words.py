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


class Place(msgspec.Struct):
    """An open turn."""

    turn: str
    named: bool
    goes_on: bool
    calls: list[Open]


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


class Away(Exception):
    """Redis does not answer."""
