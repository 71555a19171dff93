"""Events become rows: which scope hangs where, what it is, and what each turn adds up to.

The rows depend on the set of events alone, not on their order, their repetition or the batches they came in. To that
end a scope's own columns are a function of its shown start and end and of its marks, everything a turn counts is a sum
or a minimum over its scopes (`nodes.contribution`), and a scope that turns out to hang elsewhere takes its part along.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from adapters import marks
from relayweb.recording.conventions import (
    EndFacts,
    Stream,
    asked_text,
    clean,
    finish_reason,
    genai,
    guess_api_mode,
    pricing,
    read_block,
    read_failure,
    settle,
)
from relayweb.recording.conventions.shapes import text_or_none
from relayweb.recording.conventions.usage import FIELDS as TOKENS
from relayweb.recording.conventions.usage import Usage
from relayweb.recording.events.atof import NULL, START, Parsed, as_dict
from relayweb.recording.projection import facts
from relayweb.recording.projection.homes import BY_PLACE
from relayweb.recording.projection.linking import Linking
from relayweb.recording.projection.nodes import FLAG, Node, set_error
from relayweb.recording.store.pieces import Packed
from relayweb.recording.store.tables import Tables

_IDENTITY = (
    *("name", "category", "profile", "api_request_id", "call_role", "tool_call_id", "provider", "model"),
    *("api_mode", "streaming", "asked", "service_tier"),
)
_COLUMNS = (*_IDENTITY, "told_session", "told_turn")
_OF_ATTEMPTS: tuple[str, ...] = (
    *("finish_reason", "stream_finish_reason", "ttft_us", "chunk_count", "usage_complete", "cost_pusd", "wasted_pusd"),
    *("price_version", "cache_write_1h_tokens", "usage_details", *TOKENS),
)
_said = attrgetter(*_IDENTITY, "session_id", "turn_id")
"""What a scope's facts say of `_COLUMNS`."""


class Projection(Linking):
    """The writer's view of the rows. `nodes` and linking come from `Linking`."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.early: dict[bytes, list[tuple[Parsed, int, int]]] = {}
        """Marks of this batch whose scope nobody has seen yet."""
        self.prices = pricing.Table("", ())
        self._unsettled: dict[bytes, Node] = {}

    def clear(self) -> None:
        super().clear()
        self._unsettled = {}

    def finish(self) -> list[Node]:
        for node in self._unsettled.values():
            self.settle(node)
        return super().finish()

    # Scope events

    def scope_event(self, event: Parsed, packed: Packed, seq: int, arrived_us: int) -> None:
        """A start or an end that is the one to show."""
        node = self.find(event.uuid) or self.create(event.uuid)
        self.revive(node)
        if node.start_seq is not None and node.start_seq == node.end_seq:
            self._unblock(node)
        metadata = facts.metadata_of(event.envelope)
        if event.kind == START:
            self._take_start(node, event, packed, metadata, seq)
        else:
            self._take_end(node, event, packed, metadata, seq)
        self.touch(node, seq, event.at_ns // 1000, arrived_us)
        self.unsettle(node)

    def retell(
        self, node: Node, start: tuple[Parsed, Packed, int] | None, end: tuple[Parsed, Packed, int] | None
    ) -> None:
        """Forget what the shown start and end said, and take these: one of them has been displaced by another."""
        for column in _COLUMNS:
            setattr(node, column, None)
        node.told = True
        node.start_seq = node.end_seq = node.start_us = node.end_us = node.end = None
        for told, take in ((start, self._take_start), (end, self._take_end)):
            if told is not None:
                event, packed, seq = told
                take(node, event, packed, facts.metadata_of(event.envelope), seq)
        node.flag(FLAG.CONFLICT)
        self.recount(node)
        self.untell(node)
        self.unsettle(node)

    def _take_start(self, node: Node, event: Parsed, packed: Packed, metadata: dict[str, object], seq: int) -> None:
        said = facts.read_scope(event, packed, metadata)
        other = node.end_seq is not None and node.role != said.role and not node.flags & BY_PLACE
        if other:  # than the end said, by whose role more was read
            for column in (*_COLUMNS, *_OF_ATTEMPTS):
                setattr(node, column, None)
        self._identify(node, event, said, stronger=True)
        node.start_seq, node.start_us = seq, event.at_ns // 1000
        if other and (told := self._said(node.end_seq)) is not None:
            end, its_packed, its_seq = told
            self._take_end(node, end, its_packed, facts.metadata_of(end.envelope), its_seq)
        if event.replaced_text:
            node.flag(FLAG.REPLACED_TEXT)

    def _take_end(self, node: Node, event: Parsed, packed: Packed, metadata: dict[str, object], seq: int) -> None:
        role = facts.role_of(event.envelope, metadata)
        if node.start_seq is None or _wants_more(node, role, event):
            self._identify(node, event, facts.read_scope(event, packed, metadata), stronger=False)
        node.end_seq, node.end_us = seq, event.at_ns // 1000
        node.end = facts.read_scope_end(event, metadata, role)
        if role == "tool" and node.end.status == "interrupted":
            node.end_us = None  # nobody saw it end
        if event.replaced_text:
            node.flag(FLAG.REPLACED_TEXT)
        self.ended(node)

    def _said(self, seq: int | None) -> tuple[Parsed, Packed, int] | None:
        """A shown start or end, from this batch or from the log. The writer knows how."""
        raise NotImplementedError

    def _identify(self, node: Node, event: Parsed, said: facts.ScopeFacts, stronger: bool) -> None:
        """Columns that both events give: the start's value, else the end's."""
        first = node.start_seq is None and node.end_seq is None
        if not node.told:
            self.recall(node)
        before = node.told_session, node.told_turn
        for column, value in zip(_COLUMNS, _said(said), strict=True):
            if value is not None and (stronger or getattr(node, column) is None):
                setattr(node, column, value)
        if stronger or first:
            node.name = said.name
            if not first and node.role != said.role:
                self.untell(node)  # sessions are told by what is inside, other homes are not
            if not first and (node.role != said.role or node.parent_uuid != event.parent):
                self.doubt(node.uuid, node.parent_uuid, event.parent)
            node.role = said.role
            node.flag(BY_PLACE, said.role == "agent")
            node.parent_uuid, node.root = event.parent, event.root
            if event.root is None:  # what another event said of it before holds no more
                node.flag(FLAG.MISSING_PARENT, False)
            self.needs_link(node)
        if not first and before != (node.told_session, node.told_turn):
            self.needs_link(node)
            if before[0] is not None:
                self.untell(node)

    def identity(self, node: Node) -> tuple[Any, ...]:
        """What decides where a scope hangs and counts, its parent first."""
        if not node.told:
            self.recall(node)
        role = BY_PLACE if node.flags & BY_PLACE else node.role
        return node.parent_uuid, node.root, role, node.told_session, node.told_turn, node.api_request_id

    # What an attempt comes to

    def unsettle(self, node: Node) -> None:
        """More was told about a scope: what it comes to is worked out once, when the batch is over."""
        self._unsettled[node.uuid] = node
        self.changed(node)

    def settle(self, node: Node) -> None:
        """Status, usage and error of a scope from all that was told about it."""
        start, end = node.start_us, node.end_us if node.end_seq is not None else None
        node.flag(FLAG.CLOCK_SKEW, start is not None and end is not None and end < start)
        if node.role == "attempt":
            self._settle_attempt(node)
        elif node.end is not None:
            node.status, node.outcome = node.end.status, node.end.outcome
            set_error(node, node.end.error)
        elif node.end_seq is None:
            node.status, node.outcome = "running", None

    def _settle_attempt(self, node: Node) -> None:
        if node.start_seq is not None and node.start_seq == node.end_seq:  # blocked before it began
            return
        end = node.end
        if end is not None and end.finish_reason is None and node.heard_finish is not None:
            end = msgspec.structs.replace(end, finish_reason=node.heard_finish[2])
        told = settle(end, node.stream, node.failed[2] if node.failed else None, streaming=bool(node.streaming))
        node.status, node.outcome = told.status, end.outcome if end else None
        node.finish_reason, node.stream_finish_reason = told.finish_reason, told.stream_finish_reason
        node.flag(FLAG.FINISH_REASON_MISMATCH, "finish_reason_mismatch" in told.flags)
        node.flag(FLAG.INCOMPLETE_TOOL_CALL, "incomplete_tool_call" in told.flags)
        node.flag(FLAG.UNFINISHED_STREAM, "unfinished_stream" in told.flags)
        for name in TOKENS:
            setattr(node, name, getattr(told.usage, name))
        node.cache_write_1h_tokens = told.usage.cache_write_1h_tokens
        node.usage_details = told.usage.details.text() if told.usage.details is not None else None
        node.service_tier = told.usage.tier or node.service_tier
        node.usage_complete = told.usage.complete if end is not None else False
        set_error(node, told.error)
        if node.heard is not None and not self._asks(node):
            node.asked = node.heard[2]
        if end is not None:
            node.api_mode = node.api_mode or end.api_mode
            node.model = node.model or end.model
        if node.streaming is None and node.stream is not None:
            node.streaming = True
        first = node.first_chunk_us
        if end is not None and end.ttft_us is not None:
            node.ttft_us = end.ttft_us
        else:
            node.ttft_us = None if first is None or node.start_us is None else max(first - node.start_us, 0)
        _set_cost(node, end, told.usage, self.prices)

    def _asks(self, node: Node) -> bool:
        """Whether its start tells what the user asked."""
        said = self._said(node.start_seq)
        return said is not None and facts.read_scope(*said[:2], facts.metadata_of(said[0].envelope)).asked is not None

    # Marks

    def mark(self, event: Parsed, packed: Packed, seq: int, arrived_us: int) -> None:
        """A mark that is no chunk."""
        name = event.envelope.name or ""
        if name == marks.REWRITE and event.parent is not None:
            self.rewrites.append(facts.read_rewrite(seq, event.parent, as_dict(event.envelope.data)))
        if event.parent is not None and is_block(event):
            self._blocked(event, seq, arrived_us)
        scope = self.find(event.parent)
        if scope is not None:
            self.mark_of(scope, event, seq, arrived_us)
        elif event.parent is not None:
            self.early.setdefault(event.parent, []).append((event, seq, arrived_us))

    def mark_of(self, scope: Node, event: Parsed, seq: int, arrived_us: int) -> None:
        """What a mark says about the scope it hangs under, whichever came first."""
        name = event.envelope.name or ""
        self.revive(scope)
        if name == marks.REWRITE:
            row = facts.read_rewrite(seq, scope.uuid, as_dict(event.envelope.data))
            scope.own_rewrites += int(row[facts.CHANGED_COLUMN])
        elif name == marks.ATTEMPT_FAILED:
            self.failure(scope, event)
        elif name.endswith(".orphan_drain"):
            scope.flag(FLAG.ORPHAN_DRAIN)
        elif name == marks.FLAGS:
            told = as_dict(event.envelope.data).get("flags")
            for flag in told if isinstance(told, list) else ():
                if flag in _TOLD_FLAGS:
                    scope.flag(_TOLD_FLAGS[flag])
        else:
            self.hear(scope, event, seq)
        self.mark_session(scope, event)
        self.touch(scope, seq, event.at_ns // 1000, arrived_us)
        self.unsettle(scope)

    def mark_session(self, scope: Node, event: Parsed) -> None:
        """The session that a mark tells."""
        if event.envelope.metadata is not NULL:
            session = facts.metadata_of(event.envelope).get("session_id")
            if isinstance(session, str) and session:
                self.tell_session(scope, event.at_ns, session[: facts.SESSION_LIMIT])

    def failure(self, scope: Node, event: Parsed) -> None:
        """What a `relay.attempt_failed` mark says; of several, the first."""
        if event.envelope.name != marks.ATTEMPT_FAILED:
            return
        told = (event.at_ns, event.uuid, read_failure(as_dict(event.envelope.data)))
        if scope.failed is None or told[:2] < scope.failed[:2]:
            scope.failed = told

    def hear(self, scope: Node, event: Parsed, seq: int) -> None:
        """What log records tell of a call: what a user said last, and why the answer ended."""
        name, at = event.envelope.name, (event.at_ns, seq)
        if name is None or not genai.tells_call(name):
            return
        call = genai.read_call({}, [(name, genai.said_in(as_dict(event.envelope.data)))])
        asked, finish = asked_text({"messages": call.messages}), finish_reason(call.answer())
        if asked and (scope.heard is None or at > scope.heard[:2]):
            scope.heard = *at, asked
        if finish and (scope.heard_finish is None or at > scope.heard_finish[:2]):
            scope.heard_finish = *at, finish

    def _blocked(self, event: Parsed, seq: int, arrived_us: int) -> None:
        """A call that never began is an attempt of its own, told by one mark."""
        data = as_dict(event.envelope.data)
        node = self.find(event.uuid) or self.create(event.uuid)
        if node.start_seq != node.end_seq:  # it began, whatever the mark says
            self.touch(node, seq, event.at_ns // 1000, arrived_us)
            return
        ours = event.envelope.name == facts.BLOCKED
        node.name = clean(str(data.get("provider") or "blocked" if ours else event.envelope.name)[:400])
        node.role, node.category, node.status = "attempt", "llm", "blocked"
        node.parent_uuid, node.root = event.parent, event.root
        node.start_seq = node.end_seq = seq
        node.start_us = node.end_us = event.at_ns // 1000
        request = data.get("request")
        node.model = text_or_none(data.get("model"))
        node.provider = text_or_none(data.get("provider")) or (None if ours else node.name)
        node.api_mode = guess_api_mode(data.get("api_mode"), name=None if ours else node.name, content=request)
        node.asked = asked_text(request)
        node.usage_complete = True
        metadata = facts.metadata_of(event.envelope)
        node.api_request_id = text_or_none(metadata.get("api_request_id"))
        node.call_role = text_or_none(metadata.get("call_role"))
        set_error(node, read_block(data))
        self.needs_link(node)
        self.touch(node, seq, node.start_us, arrived_us)
        self.changed(node)

    def _unblock(self, node: Node) -> None:
        """The call did begin: what the mark said of it holds no longer."""
        for column in (*_COLUMNS, *_OF_ATTEMPTS, "start_seq", "end_seq", "start_us", "end_us"):
            setattr(node, column, None)
        node.status = "running"
        set_error(node, None)
        self.doubt(node.uuid, node.parent_uuid)

    # Chunks

    def chunk(self, scope: Node, told: Stream | None, first_us: int | None, count: int, marks: int) -> None:
        """What the chunks of an attempt come to, after some more of them: `count` chunks, told by `marks` marks."""
        scope.stream = told
        scope.marks = marks
        if scope.role == "attempt":
            scope.chunk_count = count
            scope.marks -= count
        scope.first_chunk_us = first_us
        self.unsettle(scope)


_TOLD_FLAGS = {"unreadable_chunk": FLAG.UNREADABLE_CHUNK, "replaced_text": FLAG.REPLACED_TEXT}


def is_block(event: Parsed) -> bool:
    """Whether a mark tells of a call that never began."""
    if event.envelope.name == facts.BLOCKED:
        return True
    data = bytes(event.envelope.data)
    if b'"rejected"' not in data or as_dict(event.envelope.data).get("rejected") is not True:
        return False
    # Of a call of our core Relay tells the refusal too, but the core's own mark says more: it is shown once.
    return marks.RUNTIME_SCHEMA_KEY not in facts.metadata_of(event.envelope)


def _set_cost(node: Node, end: EndFacts | None, usage: Usage, table: pricing.Table) -> None:
    cost = pricing.picodollars(end.cost_usd) if end else None
    node.price_version = None if cost is None else pricing.RELAY
    if cost is None and usage.known:
        day = _day(node.start_us or node.last_us)
        cost = pricing.cost(_tariff(table, node.model, node.provider, day, node.service_tier), usage)
        node.price_version = None if cost is None else table.version
    node.cost_pusd = cost
    node.wasted_pusd = cost if node.status in ("failed", "cancelled", "interrupted") else None


_ALWAYS = ("category", "call_role", "api_request_id", "provider", "model", "api_mode")


def _wants_more(node: Node, role: str, event: Parsed) -> bool:
    """Whether an end may tell something of the scope's identity that its start did not."""
    holds = bytes(event.envelope.metadata).find
    if holds(b"profile") >= 0 or (node.told_session is None and holds(b"session_id") >= 0):
        return True
    if node.told_turn is None and holds(b"turn_id") >= 0:
        return True
    if role == "attempt":
        return any(getattr(node, column) is None for column in _ALWAYS)
    if role == "tool" and node.tool_call_id is None:
        return True
    return (node.call_role is None and holds(b"call_role") >= 0) or (
        node.api_request_id is None and holds(b"api_request_id") >= 0
    )


_tariffs: dict[tuple[str, str | None, str | None, date, str | None], pricing.Tariff] = {}


def _tariff(
    table: pricing.Table, model: str | None, provider: str | None, day: date, tier: str | None
) -> pricing.Tariff:
    key = (table.version, model, provider, day, tier)
    if key not in _tariffs:
        if len(_tariffs) > 4096:
            _tariffs.clear()
        _tariffs[key] = table.tariff(model, provider, day, tier)
    return _tariffs[key]


@lru_cache(64)
def _date(days: int) -> date:
    return date(1970, 1, 1) + timedelta(days=days)


def _day(us: int) -> date:
    return _date(us // 86_400_000_000)
