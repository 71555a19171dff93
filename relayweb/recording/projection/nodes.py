"""Scopes in the writer's memory, and what each one adds to the turn that counts it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from relayweb.recording.conventions import EndFacts, ErrorFacts, Stream
from relayweb.recording.conventions.usage import FIELDS as TOKENS
from relayweb.recording.events.masking import mask_text
from relayweb.recording.models import Scope
from relayweb.recording.store.scope_rows import SCOPE_COLUMNS, Row

FLAG = Scope.Flag

# What a scope adds to its turn: pairs of a position and a number. Sums, so order does not matter.
CALLS, CALLED, ATTEMPTS, REWRITES, TOOLS, CHUNKS = range(6)
TOKEN = 6  # six counts of TOKENS, then six counts of the attempts that know them
MISSING, COST, COSTED, WASTE, WASTED, TURNS, SUBAGENTS, INNER = range(18, 26)
_SUMS = 26
Part = tuple[tuple[int, int], ...]
NOTHING: Part = ()


class Home(msgspec.Struct, array_like=True, gc=False):
    """What a turn, session or top scope knows of what is inside it, beyond the columns of its row."""

    sums: list[int] = msgspec.field(default_factory=lambda: [0] * _SUMS)
    own_session: str | None = None
    session_at: int = 0
    session_told: str | None = None
    """A session id that a mark, a call or a turn inside told, the earliest."""
    asked_at: int | None = None
    asked_by: bytes = b""
    first_chunk_us: int | None = None
    failed_at: int | None = None
    failed_by: bytes = b""
    rewrites: int = 0
    """Of marks that hang directly under it."""
    shared: bool = False
    """Several processes saw this turn."""


class Logical(msgspec.Struct, array_like=True, gc=False):
    """What a logical call knows of its attempts."""

    attempts: int = 0
    ok: int = 0
    open: int = 0


class State(msgspec.Struct, array_like=True, gc=False):
    """What a row keeps in `state`."""

    home: Home | None = None
    logical: Logical | None = None
    marks: int = 0
    """Chunk marks under it that `chunk_count` does not count. Nothing else tells that they were there."""


class Node(msgspec.Struct, eq=False, gc=False):
    """One row of `Scope`, and what else the projection knows while it is in memory.

    The first members are the columns, in the order of `scope_rows.SCOPE_COLUMNS`.
    """

    uuid: bytes
    seq: int = 0
    start_seq: int | None = None
    end_seq: int | None = None
    parent_uuid: bytes | None = None
    turn_uuid: bytes = b""
    parent_turn_uuid: bytes | None = None
    logical_uuid: bytes | None = None
    joined_uuid: bytes | None = None
    top: bool = False
    role: str = "scope"
    is_session: bool = False
    is_turn: bool = False
    is_home: bool = False
    category: str | None = None
    name: str = ""
    status: str = "running"
    outcome: str | None = None
    flags: int = 0
    start_us: int | None = None
    end_us: int | None = None
    last_us: int = 0
    arrived_us: int = 0
    session_id: str | None = None
    turn_id: str | None = None
    profile: str | None = None
    api_request_id: str | None = None
    call_role: str | None = None
    tool_call_id: str | None = None
    provider: str | None = None
    model: str | None = None
    api_mode: str | None = None
    attempt: int | None = None
    streaming: bool | None = None
    ttft_us: int | None = None
    chunk_count: int | None = None
    finish_reason: str | None = None
    stream_finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    usage_complete: bool | None = None
    cost_pusd: int | None = None
    wasted_pusd: int | None = None
    price_version: str | None = None
    cache_write_1h_tokens: int | None = None
    service_tier: str | None = None
    usage_details: str | None = None
    error_type: str | None = None
    error_status: int | None = None
    error_message: str | None = None
    logical_calls: int | None = None
    attempts: int | None = None
    retries: int | None = None
    rewrites: int | None = None
    tools: int | None = None
    subagents: int | None = None
    model_names: str | None = None
    provider_names: str | None = None
    asked: str | None = None
    state: bytes | None = None

    root: bytes | None = None
    new: bool = False
    revived: bool = False
    """Whether `end`, `stream`, `failed`, `heard…` and `first_chunk_us` say all that is on record."""
    end: EndFacts | None = None
    stream: Stream | None = None
    failed: tuple[int, bytes, ErrorFacts] | None = None
    heard: tuple[int, int, str] | None = None
    """The last thing a user said, as marks tell it: time in ns, number, text."""
    heard_finish: tuple[int, int, str] | None = None
    """Likewise the finish reason."""
    first_chunk_us: int | None = None
    told_session: str | None = None
    told_turn: str | None = None
    told: bool = False
    """Whether these two say all that is on record."""
    turn_key: tuple[str, str] | None = None
    """What it was joined by."""
    request_key: tuple[bytes, str] | None = None
    """An attempt without a logical call: what it shares with others of the same call."""
    own_rewrites: int = 0
    marks: int = 0
    saved: Row | None = None
    """Its row as it is on record."""
    saved_last_us: int = 0
    """`last_us` when the batch began."""
    linked: tuple[Any, ...] | None = None
    home_state: Home | None = None
    logical_state: Logical | None = None
    calls: dict[bytes, int] | None = None
    """A logical call's attempts and their starts, once somebody asked."""
    added: Part = NOTHING
    added_up: Part = NOTHING
    added_names: tuple[str | None, str | None] = (None, None)
    added_call: tuple[int, int, int, int] = (0, 0, 0, 0)
    added_to: bytes | None = None
    added_up_to: bytes | None = None
    added_call_to: bytes | None = None

    @classmethod
    def fresh(cls, uuid: bytes) -> Node:
        """A scope of which nothing is on record."""
        return cls(uuid, turn_uuid=uuid, new=True, revived=True, told=True, calls={})

    @classmethod
    def of(cls, row: Iterable[Any]) -> Node:
        """A scope as it is on record."""
        node = cls(*row)
        node.saved = tuple(row)
        if node.state:
            state = _read_state(node.state)
            node.home_state, node.logical_state, node.marks = state.home, state.logical, state.marks
        if node.home_state is not None:
            node.told_session, node.told_turn, node.told = node.home_state.own_session, node.turn_id, True
            if node.role == "turn" and node.told_session is not None and node.turn_id is not None:
                node.turn_key = node.told_session, node.turn_id
        node.request_key = request_key(node)
        node.own_rewrites = node.home_state.rewrites if node.home_state else node.rewrites or 0
        node.saved_last_us = node.last_us
        node.linked = node.place()
        node.added = contribution(node)
        node.added_up = contribution_up(node)
        node.added_names = names(node)
        node.added_call = call_contribution(node)
        node.added_to, node.added_up_to, node.added_call_to = node.turn_uuid, node.parent_turn_uuid, node.logical_uuid
        return node

    def save(self) -> tuple[Row, Row | None]:
        """Its row as it is to be written, and as it was before."""
        if self.home_state is not None:
            self.home_state.rewrites = self.own_rewrites
        else:
            self.rewrites = self.own_rewrites or None
        if self.home_state is not None or self.logical_state is not None or self.marks:
            self.state = _write((self.home_state, self.logical_state, self.marks))
        else:
            self.state = None
        before, self.saved, self.saved_last_us = self.saved, msgspec.structs.astuple(self)[:_COLUMNS], self.last_us
        return self.saved, before

    def home(self) -> Home:
        if self.home_state is None:
            self.home_state = Home()
        return self.home_state

    def place(self) -> tuple[Any, ...]:
        """What decides where its children hang."""
        return self.turn_uuid, self.logical_uuid, self.is_home, self.role, self.parent_turn_uuid

    def flag(self, flag: int, on: bool = True) -> None:
        self.flags = self.flags | flag if on else self.flags & ~flag


_write = msgspec.msgpack.Encoder().encode
_read_state = msgspec.msgpack.Decoder(State).decode


_COLUMNS = len(SCOPE_COLUMNS)


_CALL: Part = ((CALLS, 1),)
_CALLED: Part = ((CALLS, 1), (CALLED, 1))
_TOOL: Part = ((TOOLS, 1),)


def contribution(node: Node) -> Part:
    """What a scope adds to the turn that counts it."""
    if node.joined_uuid is not None:
        return NOTHING
    role = node.role
    if role == "attempt":
        part = _attempt_part(node)
    elif role == "logical_call":
        part = _CALLED if node.logical_state is not None and node.logical_state.attempts else _CALL
    else:
        part = _TOOL if role == "tool" else NOTHING
    return (*part, (REWRITES, node.own_rewrites)) if node.own_rewrites else part


def _attempt_part(node: Node) -> Part:
    part = [(ATTEMPTS, 1), (CHUNKS, node.chunk_count or 0), (MISSING, 0 if node.usage_complete else 1)]
    if node.flags & FLAG.SYNTHETIC and node.logical_uuid == node.uuid:
        part += _CALLED
    for i, value in enumerate(_tokens(node), TOKEN):
        if value is not None:
            part += ((i, value), (i + 6, 1))
    if node.cost_pusd is not None:
        part += ((COST, node.cost_pusd), (COSTED, 1))
    if node.wasted_pusd is not None:
        part += ((WASTE, node.wasted_pusd), (WASTED, 1))
    return tuple(part)


_INNER_TURN: Part = ((TURNS, 1), (INNER, 1))
_INNER_AGENT: Part = ((SUBAGENTS, 1), (INNER, 1))
_INNER: Part = ((INNER, 1),)


def contribution_up(node: Node) -> Part:
    """What a turn, session or sub-agent adds to the one around it."""
    if not node.is_home or node.parent_turn_uuid is None or node.joined_uuid is not None:
        return NOTHING
    return _INNER_AGENT if node.role == "subagent" else _INNER_TURN if node.role == "turn" else _INNER


def names(node: Node) -> tuple[str | None, str | None]:
    """Model and provider that a scope adds to its turn."""
    return (node.model, node.provider) if node.role == "attempt" and node.joined_uuid is None else (None, None)


def call_contribution(node: Node) -> tuple[int, int, int, int]:
    """What an attempt adds to its logical call: itself, whether it went well, whether it still runs; and its place."""
    if node.role != "attempt" or node.joined_uuid is not None:
        return 0, 0, 0, 0
    return 1, int(node.status == "ok"), int(node.status == "running"), began(node)


def request_key(node: Node) -> tuple[bytes, str] | None:
    """Attempts of one turn that no logical call holds are of one call if they tell the same request id."""
    if node.role != "attempt" or not node.flags & FLAG.SYNTHETIC or node.api_request_id is None:
        return None
    return node.turn_uuid, node.api_request_id


def began(node: Node) -> int:
    """When a scope began, as far as is known."""
    if node.start_us is not None:
        return node.start_us
    return node.end_us if node.end_us is not None else node.last_us


def told_at(node: Node) -> int:
    """When a scope told its session, in ns: the earlier of start and end, so that either may come first."""
    return 1000 * min(began(node), node.end_us if node.end_us is not None else began(node))


_tokens = attrgetter(*TOKENS)


def show_sums(node: Node, sums: list[int]) -> None:
    """Write a home's sums into the columns of its row."""
    node.logical_calls = sums[CALLS]
    node.attempts = sums[ATTEMPTS]
    node.retries = sums[ATTEMPTS] - sums[CALLED]
    node.rewrites = sums[REWRITES]
    node.tools = sums[TOOLS]
    node.subagents = sums[SUBAGENTS]
    if node.role == "attempt":  # a call without anything around it: its columns are its own
        return
    node.chunk_count = sums[CHUNKS]
    for i, name in enumerate(TOKENS):
        setattr(node, name, sums[TOKEN + i] if sums[TOKEN + 6 + i] else None)
    node.usage_complete = sums[MISSING] == 0
    node.cost_pusd = sums[COST] if sums[COSTED] else None
    node.wasted_pusd = sums[WASTE] if sums[WASTED] else None


@lru_cache(4096)
def add_name(text: str | None, name: str | None, by: int) -> str | None:
    """A JSON object of counts, `name` counted `by` more."""
    if name is None:
        return text
    counts: dict[str, int] = json.loads(text) if text else {}
    counts[name] = counts.get(name, 0) + by
    if counts[name] <= 0:
        del counts[name]
    return json.dumps(counts, sort_keys=True) if counts else None


def set_error(node: Node, error: ErrorFacts | None) -> None:
    node.error_type = mask_text(error.type) if error and error.type else None
    node.error_status = error.status if error else None
    node.error_message = mask_text(error.message) if error and error.message else None
