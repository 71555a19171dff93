"""Names and shapes of the marks that the core adds to Relay's own events.

Each mark hangs under the `llm` scope of its attempt, `relay.attempt_blocked` under the logical call (or turn) because
Relay then emits no llm scope. `data` has the shape given here; unknown members are allowed and kept.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

REWRITE = "relay.rewrite"
REQUEST = "relay.request"
CHUNKS = "relay.chunks"
ATTEMPT_FAILED = "relay.attempt_failed"
ATTEMPT_BLOCKED = "relay.attempt_blocked"
ORPHAN_DRAIN = "relay.orphan_drain"
FLAGS = "relay.flags"
"""`data` is `{"flags": [...]}`, names of what the record of an attempt does not say literally: `unreadable_chunk`,
`replaced_text` (bytes that were no text)."""
COMPACTION = "compaction"

UNREADABLE_CHUNK = "relay.unreadable"
"""`type` of the chunk that stands for an event of a stream that was no JSON object; `text` is what came."""

RUNTIME_SCHEMA_KEY = "relay.schema_version"
"""Member of the metadata of every scope that this core opened, sessions to attempts."""

Result = Literal["hit", "miss", "error", "block", "respond", "fault"]


class PatchOp(TypedDict):
    """One operation of RFC 6902: add, remove or replace."""

    op: str
    path: str
    value: NotRequired[Any]


class Rewrite(TypedDict):
    """`relay.rewrite`: one for each intercept that looked at the request, in the order they ran.

    `patch` turns the body before this intercept into the body after it (empty on a miss); in shadow mode it is what
    would have changed. A change made by an intercept that is not ours has key `foreign` and a null revision.
    """

    position: int
    key: str
    revision: int | None
    title: NotRequired[str]
    action: str
    priority: int
    mode: Literal["enforce", "shadow"]
    result: Result
    patch: list[PatchOp]
    headers: list[str]
    duration_us: float
    bytes_before: int
    bytes_after: int
    reason: NotRequired[str]
    error: NotRequired[str]
    ruleset: NotRequired[str]


class Request(TypedDict):
    """`relay.request`: emitted only where the llm scope's start data does not say it exactly.

    Where an intercept changed the body, `app_patch` turns the start event's content back into what the app gave, or
    `app` is that itself and goes before; `provider` is the body the provider got, present when it differs as JSON from
    the start event's content; `escaped` lists JSON pointers of values that Relay cannot encode and that stand in the
    record as `{"$int": "…"}`, `{"$float": "…"}` or `{"$bytes": "…"}`. A later mark of the same call goes before.
    """

    app: NotRequired[Any]
    app_patch: NotRequired[list[PatchOp]]
    provider: NotRequired[Any]
    escaped: NotRequired[list[str]]
    headers: NotRequired[list[str]]


class Chunks(TypedDict):
    """`relay.chunks`: content of consecutive chunks; `first` is the index of the first one in its stream."""

    first: int
    chunks: list[Any]
    escaped: NotRequired[list[str]]


class AttemptFailed(TypedDict):
    """`relay.attempt_failed`: what the provider answered. `body` is text, at most 65 536 characters."""

    status: int | None
    error_type: str | None
    message: str | None
    body: str | None
    request_id: str | None
    retry_after: str | None


class AttemptBlocked(TypedDict):
    """`relay.attempt_blocked`: a call that never started, because a guardrail refused or an intercept raised."""

    stage: Literal["guardrail", "intercept", "relay"]
    reason: str
    error_type: str | None
    request: Any
    model: str | None
    provider: str | None
    api_mode: str | None
