"""The answers of the API, for OpenAPI. Unknown is null, never 0; times are RFC 3339 in UTC with microseconds."""

from __future__ import annotations

from typing import Any

from ninja import Field, Schema


class Problem(Schema):
    """What is wrong, where, and what mends it."""

    error: str
    field: str | None = Field(None, description="The parameter that is wrong.")
    column: int | None = Field(None, description="1-based place in `q`.")
    length: int | None = None
    suggestion: str | None = Field(None, description="What the wrong term of `q` could read instead.")


class Usage(Schema):
    """`input_tokens` is everything the model read, cached included; `output_tokens` everything it wrote."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    complete: bool = Field(description="False: the numbers are a lower bound.")


class Error(Schema):
    type: str | None
    status: int | None
    message: str | None


class AwaitingRetry(Schema):
    """The last attempt failed and nothing runs; `until` is null where only the sender knows when it gives up."""

    since: str | None
    until: str | None
    since_us: int
    until_us: int | None


class Turn(Schema):
    uuid: str
    session_id: str | None
    turn_id: str | None
    parent_turn_uuid: str | None
    profile: str | None
    name: str
    asked: str | None = Field(description="First words of what the user asked.")
    status: str = Field(description="running, ok, failed, cancelled, blocked or interrupted")
    awaiting_retry: AwaitingRetry | None = Field(description="Of a running turn that only waits for a retry.")
    outcome: str | None
    started_at: str | None
    ended_at: str | None
    start_us: int | None
    end_us: int | None
    last_us: int | None
    duration_us: int | None
    ttft_us: int | None
    logical_calls: int
    attempts: int
    retries: int
    rewrites: int
    tools: int
    chunks: int
    subagents: int
    usage: Usage
    cost_usd: float | None
    cost_complete: bool = Field(description="False: an attempt that used tokens has no price, so it is a lower bound.")
    wasted_usd: float | None
    models: list[str]
    providers: list[str]
    error: Error | None
    flags: list[str]
    seq: int


class Run(Schema):
    """An intercept that looked at an attempt. `changed`: it changed, answered or stopped the call."""

    key: str
    revision: int | None
    result: str
    mode: str
    changed: bool


class Node(Schema):
    """A node of the tree. What only some roles have is listed last: calls, attempts, tools, turns and agents."""

    uuid: str
    parent_uuid: str | None
    turn_uuid: str
    role: str = Field(description="session, turn, subagent, logical_call, attempt, tool or scope")
    category: str | None
    name: str
    status: str
    outcome: str | None
    started_at: str | None
    ended_at: str | None
    start_us: int | None
    end_us: int | None
    last_us: int | None
    duration_us: int | None
    flags: list[str]
    error: Error | None
    depth: int | None
    seq: int
    children: list[Node] = []
    call_role: str | None = None
    api_request_id: str | None = None
    attempts: int | None = Field(None, description="Of a logical call.")
    retries: int | None = None
    awaiting_retry: AwaitingRetry | None = Field(None, description="Of a running call that only waits for a retry.")
    provider: str | None = None
    model: str | None = None
    api_mode: str | None = None
    attempt: int | None = None
    streaming: bool | None = None
    ttft_us: int | None = None
    chunk_count: int | None = None
    finish_reason: str | None = None
    stream_finish_reason: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    wasted_usd: float | None = None
    price_version: str | None = Field(
        None, description="The price table that gave the cost; relay where the answer, or who recorded it, told it."
    )
    service_tier: str | None = Field(None, description="It is priced by: standard, flex, batch, priority, fast …")
    usage_details: dict[str, int] | None = Field(
        None,
        description="Counts of what has a price of its own: audio, images, web searches; null where there is none.",
    )
    asked: str | None = None
    session_id: str | None = None
    tool_call_id: str | None = None
    rewrites: list[Run] = []


class TurnWithTree(Turn):
    tree: Node | None


class TurnPage(Schema):
    turns: list[Turn]
    next: str | None = Field(description="`cursor` of the next page; null at the end.")
    notes: list[str] = Field([], description="Where a text search looked at less than all, and how to go on.")


class Session(Schema):
    session_id: str
    turns: int
    running: int
    failed: int
    calls: int
    tokens: int | None
    cost_usd: float | None
    cost_complete: bool = Field(description="False: an attempt that used tokens has no price, so it is a lower bound.")
    asked: str | None
    started_at: str | None
    last_at: str | None
    start_us: int | None
    last_us: int | None


class SessionPage(Schema):
    sessions: list[Session]
    next: str | None


class SessionWithTurns(Schema):
    session_id: str
    turn_count: int
    running: int
    failed: int
    calls: int
    tokens: int | None
    cost_usd: float | None
    cost_complete: bool = Field(description="False: an attempt that used tokens has no price, so it is a lower bound.")
    started_at: str | None
    last_at: str | None
    start_us: int | None
    last_us: int | None
    turns: list[Turn]
    next: str | None


class RequestBody(Schema):
    """The provider's request as recorded, and what the app gave where an intercept changed it."""

    request: Any
    app: Any = None
    headers: Any = None
    escaped: list[str] = []


class ResponseBody(Schema):
    """The provider's answer as recorded; `partial` says it was put together from the chunks of a cut stream."""

    response: Any
    partial: bool = False
    failure: Any = Field(None, description="What the provider answered to an attempt that failed.")


class Chunk(Schema):
    index: int | None
    at: str | None
    at_us: int | None
    kind: str = Field(description="text, reasoning, tool or other")
    event_type: str | None = Field(None, description="The provider's own name for it.")
    size: int | None
    text: str | None
    finish_reason: str | None
    usage: Usage | None
    error: Error | None = None
    content: Any = Field(None, description="The chunk as the provider sent it; null where the core did not see it.")


class ChunkPage(Schema):
    chunks: list[Chunk]
    count: int
    next: int | None = Field(description="`offset` of the next page; null at the end.")


class Rewrites(Schema):
    """The request from stage to stage: what the app gave, after each intercept, what the provider got."""

    stages: list[dict[str, Any]] = Field(description="The last is `provider`, or `held` where nothing was sent.")
    rewrites: list[dict[str, Any]]


class Events(Schema):
    events: list[dict[str, Any]] = Field(description="The ATOF events as recorded, in the order they were accepted.")
    seqs: list[int] = Field(description="The number of each.")
    flags: list[list[str]] = Field(description="Of each: conflict, replaced_text, masked.")
    next: int | None = Field(description="`offset` of the next page; null at the end.")


class Ruleset(Schema):
    etag: str
    rules: list[dict[str, Any]]


class Health(Schema):
    status: str = Field(description="ok, or degraded: calls go on, but events are not being recorded.")
    live: bool
    ready: bool
    reason: str | None
    seq: int | None = Field(description="Number of the newest event on record.")
    writer: dict[str, Any]
    gateway: dict[str, Any]
