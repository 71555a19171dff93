"""The record: an append-only log of events, and the rows that pages read.

Only `writing.writer` writes these tables, in raw SQL that both databases understand; everybody else reads.
`seq` is the number the writer gave, commit-ordered: it is also the cursor of the live sockets.
"""

# ruff: noqa: DJ001, DJ008 (unknown is null and never "", also in text; nobody prints a row)

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from relayweb.recording.fields import UuidField


class Event(models.Model):
    """One accepted ATOF event, except `llm.chunk` and `relay.chunks` marks, which live in `ChunkBlock`."""

    class Kind(models.IntegerChoices):
        START = 0
        END = 1
        MARK = 2

    class Flag(models.IntegerChoices):
        CONFLICT = 1, "another event of the same identity says something else, and is shown"
        REPLACED_TEXT = 2, "invalid UTF-8 was replaced"
        MASKED = 4, "a secret was masked"
        COPY = 8, "read from a span, which tells less than ATOF"
        MADE = 16, "read from a span that tells half of its uuid"

    # BigAutoField, although the writer gives every number: on SQLite only an "integer" key is the row's own.
    seq = models.BigAutoField(primary_key=True)
    uuid = UuidField()
    kind = models.PositiveSmallIntegerField(choices=Kind.choices)
    digest = models.BinaryField(max_length=16)
    mark_of = UuidField(null=True)
    """Parent of a mark; null for scope events, which are found by uuid."""
    at_ns = models.BigIntegerField()
    """Its timestamp, in ns since 1970."""
    flags = models.PositiveSmallIntegerField(default=0)
    body = models.BinaryField()
    """The event as `content.Store` packed it."""

    class Meta:
        indexes: ClassVar = [
            # Duplicates and conflicts, and the events of a scope. Not unique: the writers take turns, and look.
            models.Index(fields=["uuid"], name="event_uuid"),
            # Marks under a scope.
            models.Index(fields=["mark_of"], condition=models.Q(mark_of__isnull=False), name="event_marks"),
            # Marks under nothing: their page.
            models.Index(fields=["seq"], condition=models.Q(kind=2, mark_of__isnull=True), name="event_loose"),
        ]


class Status(models.TextChoices):
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    INTERRUPTED = "interrupted"


class Role(models.TextChoices):
    SESSION = "session"
    TURN = "turn"
    SUBAGENT = "subagent"
    LOGICAL_CALL = "logical_call"
    ATTEMPT = "attempt"
    TOOL = "tool"
    SCOPE = "scope"


class Scope(models.Model):
    """One row a scope: what pages need without opening a payload.

    `turn_uuid` is the turn that counts this scope (its own uuid for a turn, a session and a top scope), so the nodes of
    a turn are `turn_uuid = X`, and its sub-agents are the rows with `is_home` whose `parent_turn_uuid` is X, in turn.
    A scope that another process also saw has `joined_uuid`: show its children under that one and hide it.
    """

    class Flag(models.IntegerChoices):
        SYNTHETIC = 1
        LATE_CHILD = 2
        CLOCK_SKEW = 4
        CONFLICT = 8
        ORPHAN_DRAIN = 16
        FINISH_REASON_MISMATCH = 32
        NO_SUCCESSFUL_ATTEMPT = 64
        MISSING_PARENT = 128
        REPLACED_TEXT = 256
        INCOMPLETE_TOOL_CALL = 512
        UNFINISHED_STREAM = 1024
        UNREADABLE_CHUNK = 2048

    uuid = UuidField(primary_key=True)
    seq = models.BigIntegerField()
    """Number of the last change."""
    start_seq = models.BigIntegerField(null=True)
    """The shown start event; for a call blocked before it began, its mark."""
    end_seq = models.BigIntegerField(null=True)

    parent_uuid = UuidField(null=True)
    turn_uuid = UuidField()
    parent_turn_uuid = UuidField(null=True)
    logical_uuid = UuidField(null=True)
    """The logical call around it; an attempt's own uuid where that call is synthetic."""
    joined_uuid = UuidField(null=True)
    top = models.BooleanField(default=False)
    """No parent on record: Relay's implicit root, or one still missing."""

    role = models.CharField(max_length=12, choices=Role.choices)
    is_session = models.BooleanField(default=False)
    is_turn = models.BooleanField(default=False)
    """A row of the turn list. The top agent of a foreign stream is session and turn at once."""
    is_home = models.BooleanField(default=False)
    """Counts what is inside it: turns, sessions, sub-agents, top scopes."""
    category = models.CharField(max_length=64, null=True)
    name = models.TextField()
    status = models.CharField(max_length=12, choices=Status.choices)
    outcome = models.CharField(max_length=64, null=True)
    flags = models.IntegerField(default=0)

    start_us = models.BigIntegerField(null=True)
    """µs since 1970, as `end_us` and `last_us`."""
    end_us = models.BigIntegerField(null=True)
    last_us = models.BigIntegerField()
    """The last event seen in it (for a home: anywhere inside)."""
    arrived_us = models.BigIntegerField()
    """When its last event came in; 0 from a file."""

    session_id = models.TextField(null=True)
    turn_id = models.TextField(null=True)
    profile = models.TextField(null=True)
    api_request_id = models.TextField(null=True)
    call_role = models.TextField(null=True)
    tool_call_id = models.TextField(null=True)

    # Attempts; a turn and a logical call hold the sums of theirs.
    provider = models.TextField(null=True)
    model = models.TextField(null=True)
    api_mode = models.TextField(null=True)
    attempt = models.IntegerField(null=True)
    streaming = models.BooleanField(null=True)
    ttft_us = models.BigIntegerField(null=True)
    chunk_count = models.IntegerField(null=True)
    finish_reason = models.TextField(null=True)
    stream_finish_reason = models.TextField(null=True)
    """What the chunk marks say, where they say something: shown beside `finish_reason` when the two differ."""
    input_tokens = models.BigIntegerField(null=True)
    output_tokens = models.BigIntegerField(null=True)
    cached_tokens = models.BigIntegerField(null=True)
    cache_write_tokens = models.BigIntegerField(null=True)
    reasoning_tokens = models.BigIntegerField(null=True)
    total_tokens = models.BigIntegerField(null=True)
    usage_complete = models.BooleanField(null=True)
    cost_pusd = models.BigIntegerField(null=True)
    """Millionths of a millionth of a US dollar: sums must not depend on order."""
    wasted_pusd = models.BigIntegerField(null=True)
    cache_write_1h_tokens = models.BigIntegerField(null=True)
    """Of `cache_write_tokens` those kept for an hour: their price is another."""
    service_tier = models.TextField(null=True)
    """By which an attempt is priced: the answer's, else the one it asked for."""
    usage_details = models.TextField(null=True)
    """JSON: what else of an attempt has a price of its own, see `conventions.details.Details`."""
    price_version = models.TextField(null=True)
    """The price table that gave an attempt's cost (`pricing.Table.version`), or "relay"."""
    error_type = models.TextField(null=True)
    error_status = models.IntegerField(null=True)
    error_message = models.TextField(null=True)

    # Turns; a logical call has `attempts` and `retries`.
    logical_calls = models.IntegerField(null=True)
    attempts = models.IntegerField(null=True)
    retries = models.IntegerField(null=True)
    rewrites = models.IntegerField(null=True)
    tools = models.IntegerField(null=True)
    subagents = models.IntegerField(null=True)
    model_names = models.TextField(null=True)
    """JSON object: model → number of attempts."""
    provider_names = models.TextField(null=True)
    asked = models.TextField(null=True)
    """First words of the user's message: an attempt's, and a turn's from its first attempt."""
    state = models.BinaryField(null=True)
    """What the projection needs to go on from this row; nobody else reads it."""

    class Meta:
        indexes: ClassVar = [
            # What changed since a cursor: the live list, and processes that share the database.
            models.Index(fields=["seq"], name="scope_seq"),
            # Nodes of a turn, and those changed since a cursor.
            models.Index(fields=["turn_uuid", "seq"], name="scope_turn"),
            # Children: those that came before their parent, and what moves or turns late with it.
            models.Index(fields=["parent_uuid"], name="scope_children"),
            # Sub-agents of a turn, turns of a session.
            models.Index(
                fields=["parent_turn_uuid"],
                condition=models.Q(parent_turn_uuid__isnull=False),
                name="scope_inner_turns",
            ),
            # The turn list, newest first.
            models.Index(fields=["start_us", "uuid"], condition=models.Q(is_turn=True), name="scope_turn_list"),
            # A session's turns in order; turns of one session and turn id that several processes saw.
            models.Index(fields=["session_id", "start_us"], condition=models.Q(is_home=True), name="scope_session"),
            # Turns with a call of a role (`role:auxiliary:*`), a tool (`tool:read_*`), an answer (`finish:`, `api:`) or
            # an error (`error:429`): covering, because patterns are compared with every entry. The role stands in them
            # because SQLite asks for it again where it comes as a parameter.
            models.Index(
                fields=["call_role", "turn_uuid"], condition=models.Q(call_role__isnull=False), name="scope_call_role"
            ),
            models.Index(fields=["name", "role", "turn_uuid"], condition=models.Q(role="tool"), name="scope_tool"),
            models.Index(
                fields=["finish_reason", "api_mode", "role", "turn_uuid"],
                condition=models.Q(role="attempt"),
                name="scope_answer",
            ),
            models.Index(
                fields=["error_type", "error_status", "turn_uuid"],
                condition=models.Q(error_type__isnull=False),
                name="scope_error",
            ),
            # One turn that several processes saw.
            models.Index(
                fields=["turn_id"], condition=models.Q(is_home=True, turn_id__isnull=False), name="scope_same_turn"
            ),
            # Attempts without a price, which make the cost of their turn a lower bound.
            models.Index(
                fields=["turn_uuid"],
                condition=models.Q(cost_pusd__isnull=True, total_tokens__isnull=False),
                name="scope_unpriced",
            ),
            # The interruption sweep.
            models.Index(fields=["arrived_us"], condition=models.Q(status="running"), name="scope_running"),
        ]

    @property
    def cost_usd(self) -> float | None:
        return None if self.cost_pusd is None else self.cost_pusd / 1e12

    @property
    def wasted_usd(self) -> float | None:
        return None if self.wasted_pusd is None else self.wasted_pusd / 1e12

    @property
    def flag_names(self) -> list[str]:
        return [flag.name.lower() for flag in Scope.Flag if self.flags & flag]


class _Where(models.Manager[Any]):
    """The scopes that meet one condition."""

    def __init__(self, **condition: Any) -> None:
        super().__init__()
        self.condition = condition

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(**self.condition)


class Session(Scope):
    objects: ClassVar[_Where] = _Where(is_session=True)

    class Meta:
        proxy = True


class Turn(Scope):
    objects: ClassVar[_Where] = _Where(is_turn=True)

    class Meta:
        proxy = True


class LogicalCall(Scope):
    objects: ClassVar[_Where] = _Where(role=Role.LOGICAL_CALL)

    class Meta:
        proxy = True


class Attempt(Scope):
    objects: ClassVar[_Where] = _Where(role=Role.ATTEMPT)

    class Meta:
        proxy = True


class ChunkBlock(models.Model):
    """Consecutive chunk marks of one attempt in columns; `blocks.read` gives back single marks."""

    class Kind(models.IntegerChoices):
        MARKS = 0, "llm.chunk"
        CONTENT = 1, "relay.chunks"

    id = models.BigAutoField(primary_key=True)
    attempt_uuid = UuidField()
    kind = models.PositiveSmallIntegerField(choices=Kind.choices)
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    count = models.IntegerField()
    sealed = models.BooleanField(default=False)
    """Blocks that are not sealed are merged when more marks come, or the attempt ends."""
    body = models.BinaryField()

    class Meta:
        indexes: ClassVar = [
            # Chunks of an attempt.
            models.Index(fields=["attempt_uuid"], name="block_attempt"),
            # Chunks since a cursor.
            models.Index(fields=["last_seq"], name="block_seq"),
        ]


class Stream(models.Model):
    """The gaps between an attempt's chunks, worked out from its blocks by `rhythm`."""

    attempt_uuid = UuidField(primary_key=True)
    seq = models.BigIntegerField()
    """The newest chunk of it that was looked at."""
    count = models.IntegerField()
    """How many gaps."""
    stalls = models.IntegerField()
    """Gaps that stand out, and how long they were together."""
    stalled_us = models.BigIntegerField()
    longest_us = models.BigIntegerField(null=True)
    gaps = models.BinaryField()
    """How many lie in each step of a scale, as `rhythm.pack` writes it."""

    class Meta:
        indexes: ClassVar = [
            # How far the chunks have been looked at.
            models.Index(fields=["seq"], name="stream_seq"),
            # Turns with stalls.
            models.Index(fields=["attempt_uuid", "stalls"], condition=models.Q(stalls__gt=0), name="stream_stalls"),
        ]


class Rewrite(models.Model):
    """One `relay.rewrite` mark. Its patch and headers are in the event `seq`."""

    seq = models.BigAutoField(primary_key=True)
    """The number of its event."""
    attempt_uuid = UuidField()
    """The scope it hangs under: an attempt, or the logical call of a call that never began."""
    position = models.IntegerField()
    key = models.TextField()
    revision = models.BigIntegerField(null=True)
    title = models.TextField(null=True)
    action = models.TextField(null=True)
    priority = models.BigIntegerField(null=True)
    mode = models.CharField(max_length=16)
    result = models.CharField(max_length=16)
    changed = models.BooleanField(default=False)
    """It changed, answered or stopped the call: what a turn counts."""
    duration_us = models.FloatField(null=True)
    bytes_before = models.BigIntegerField(null=True)
    bytes_after = models.BigIntegerField(null=True)
    reason = models.TextField(null=True)
    error = models.TextField(null=True)
    ruleset = models.TextField(null=True)

    class Meta:
        indexes: ClassVar = [
            # Rewrites of an attempt.
            models.Index(fields=["attempt_uuid"], name="rewrite_attempt"),
            # What an intercept did.
            models.Index(fields=["key", "seq"], name="rewrite_key"),
        ]


class Content(models.Model):
    """A value stored once, found by digest: a message, a tool list, another large value, a chunk template."""

    class Kind(models.IntegerChoices):
        VALUE = 0
        MESSAGE = 1
        TEMPLATE = 2

    id = models.BigAutoField(primary_key=True)
    digest = models.BinaryField(max_length=16, unique=True)
    kind = models.PositiveSmallIntegerField(choices=Kind.choices)
    size = models.IntegerField()
    """Bytes of its JSON text."""
    body = models.BinaryField()

    class Meta:
        db_table = "recording_content"


class Unsettled(models.Model):
    """A scope whose rows may depend on the order of events, until `retelling` has told it anew."""

    uuid = UuidField(primary_key=True)
    root = UuidField(null=True)
    """Of its run, if a better copy of that has come."""


class Ledger(models.Model):
    """The writer's counters, one row: read and written in each of its transactions."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField(default=0)
    content_id = models.BigIntegerField(default=0)
    epoch = models.BigIntegerField(default=0)
    """Grows when rows are deleted: what other processes hold in memory is then void."""
    swept_us = models.BigIntegerField(default=0)


from relayweb.recording.prices import Price, PriceTable  # noqa: E402, F401 (models of this app)
