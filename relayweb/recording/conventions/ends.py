"""What an end event says, and one attempt read together from all that was told about it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from relayweb.recording.conventions.answers import finish_reason, finish_reasons_differ, tool_calls, unwrap
from relayweb.recording.conventions.chunks import Stream
from relayweb.recording.conventions.details import STANDARD, read_tier, requested, tools_of
from relayweb.recording.conventions.errors import (
    ErrorFacts,
    better_error,
    end_status,
    error_object,
    error_of,
    read_block,
    read_outcome,
)
from relayweb.recording.conventions.shapes import (
    ANTHROPIC,
    CHAT,
    GEMINI,
    RESPONSES,
    Json,
    Status,
    as_map,
    first_of,
    guess_api_mode,
    text_or_none,
    usage_object,
)
from relayweb.recording.conventions.usage import UNKNOWN, Usage, merge, read_usage, recorded

_GROWING = (ANTHROPIC, GEMINI)  # they tell usage while a stream runs
_LONGEST_OUTCOME = 64  # as its column, which on PostgreSQL takes no more


class EndFacts(msgspec.Struct, frozen=True, gc=False):
    """What an end event says. `status` is the event's own; see `settle` for what streams and marks add."""

    status: Status = "ok"
    outcome: str | None = None
    usage: Usage = UNKNOWN
    finish_reason: str | None = None
    error: ErrorFacts | None = None
    api_mode: str | None = None
    model: str | None = None
    cost_usd: float | None = None
    ttft_us: int | None = None
    flags: tuple[str, ...] = ()
    settled: bool = False
    """The usage is what another record came to, from chunks that are not told any more."""


def read_end(
    *,
    category: Json = "llm",
    api_mode: Json = None,
    name: Json = None,
    data: Json = None,
    metadata: Json = None,
    profile: Json = None,
) -> EndFacts:
    """What a scope's end event says, for any category; usage, finish and model only for `llm`."""
    metadata, profile = as_map(metadata), as_map(profile)
    stated = as_map(data).get("outcome")
    outcome = stated if isinstance(stated, str) else first_of(metadata, "outcome", "relay.outcome")
    error = error_of(metadata)
    if category == "tool":  # what a tool gave may look like an outcome; the gateway tells that nothing came back
        observed = metadata.get("relay.observed_by") == "gateway"
        told = read_outcome(metadata.get("outcome")) if observed else None
    else:
        told = None if category == "llm" else read_outcome(outcome)
    status = end_status(metadata, error, told)
    if status == "ok":
        error = None
    if category == "guardrail" and (refused := read_block(data)):  # as a span such an end is an error
        status, error = "blocked", refused
    end = EndFacts(status=status, outcome=text_or_none(outcome, _LONGEST_OUTCOME), error=error, ttft_us=_ttft(profile))
    return _read_answer(end, api_mode, name, data, metadata, profile) if category == "llm" else end


def _ttft(profile: Mapping[str, Json]) -> int | None:
    seconds = profile.get("time_to_first_chunk")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e6:
        return None
    return round(seconds * 1_000_000)


def _read_answer(
    end: EndFacts, api_mode: Json, name: Json, data: Json, metadata: Mapping[str, Json], profile: Mapping[str, Json]
) -> EndFacts:
    body, annotated = unwrap(data), as_map(profile.get("annotated_response"))
    mode = guess_api_mode(api_mode, name=name, content=body, metadata=metadata, profile=profile)
    settled = recorded(annotated.get("usage"))
    usage = settled or read_usage(usage_object(body), beside=mode == ANTHROPIC)
    if settled is None:
        if not usage.known:
            usage = _annotated_usage(annotated, usage.tier, beside=mode == ANTHROPIC)
        usage = _as_charged(usage, body, metadata, mode)
    status, error, flags = end.status, end.error, []
    if status == "ok" and (found := error_object(body or data)):
        status, error = "failed", found
    elif status == "ok" and body.get("status") in ("cancelled", "failed") and mode == RESPONSES:
        status = body["status"]
    finish = finish_reason(body) or text_or_none(annotated.get("finish_reason"))
    if settled is None and finish is None and (status != "ok" or mode in _GROWING):
        usage = usage.partial()  # counters of a stream that was cut: at least that much
    if finish is None and body and mode in (CHAT, RESPONSES, ANTHROPIC):
        flags.append("unfinished")
    if any(not call.complete for call in tool_calls(body)):
        flags.append("incomplete_tool_call")
    models = (*(body.get(name) for name in ("model", "modelVersion", "model_version")), annotated.get("model"))
    return msgspec.structs.replace(
        end,
        status=status,
        error=error,
        usage=usage,
        finish_reason=finish,
        api_mode=mode,
        model=next(filter(None, map(text_or_none, models)), None),
        cost_usd=_told_cost(annotated, body, usage.tier),
        flags=tuple(flags),
        settled=settled is not None,
    )


def _annotated_usage(annotated: Mapping[str, Json], tier: str | None, *, beside: bool) -> Usage:
    """Relay's own account of an answer."""
    usage = read_usage(annotated.get("usage"), beside=beside)
    return usage if tier is None or usage.tier is not None else msgspec.structs.replace(usage, tier=tier)


def _as_charged(usage: Usage, body: Mapping[str, Json], metadata: Mapping[str, Json], mode: str | None) -> Usage:
    """A usage with the service tier and the requests of tools that the answer tells outside of it."""
    tier = usage.tier
    if tier is None:  # a host that runs batches may say so
        service = body.get("service_tier") or body.get("serviceTier") or metadata.get("service_tier")
        tier = read_tier(service) if service else None
    details = usage.details
    if mode is not None and mode in _TOOLS_IN_ANSWER:
        details = requested(details, *tools_of(body, mode))
    if tier is usage.tier and details is usage.details:
        return usage
    return msgspec.structs.replace(usage, tier=tier, details=details)


_TOOLS_IN_ANSWER = (RESPONSES, GEMINI)


def _told_cost(annotated: Mapping[str, Json], body: Mapping[str, Json], tier: str | None) -> float | None:
    """What the answer itself says, or what Relay estimates, which knows of one tier only."""
    cost = _cost(body)
    return _cost(annotated) if cost is None and tier in (None, STANDARD) else cost


def _cost(body: Mapping[str, Json]) -> float | None:
    """`usage.cost` in US dollars or not at all: OpenRouter's number, Perplexity's `total_cost`, Relay's `total`."""
    usage = as_map(body.get("usage"))
    cost = usage.get("cost")
    if not isinstance(cost, Mapping):
        told = _dollars(cost)
        if told is None or usage.get("is_byok") is not True:
            return told
        # With a key of one's own OpenRouter tells its fee, and apart what the provider charges.
        upstream = _dollars(as_map(usage.get("cost_details")).get("upstream_inference_cost"))
        return None if upstream is None else told + upstream
    if cost.get("currency", "USD") != "USD":
        return None
    return _dollars(cost.get("total", cost.get("total_cost")))


def _dollars(told: Json) -> float | None:
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 <= told < 1e9:
        return None
    return float(told)


class AttemptFacts(msgspec.Struct, frozen=True, gc=False):
    status: Status
    usage: Usage
    finish_reason: str | None
    stream_finish_reason: str | None
    error: ErrorFacts | None
    flags: tuple[str, ...]


def settle(
    end: EndFacts | None, stream: Stream | None = None, failed: ErrorFacts | None = None, *, streaming: bool = False
) -> AttemptFacts:
    """Everything known about one attempt, read together.

    Args:
        end: the end event, None while the attempt runs or was interrupted.
        stream: what its chunks said, None when there were none.
        failed: its `relay.attempt_failed` mark.
        streaming: whether it is known to have asked for a stream.

    The usage of a call that never reached a model (blocked, or refused by the provider with an HTTP error before any
    chunk) is unknown and complete: nothing is missing from the sum over a turn.
    """
    streamed, stream = stream is not None, stream or Stream()
    flags = list(end.flags) if end else []
    status: Status = end.status if end else "running"
    error = better_error(better_error(failed, stream.error), end.error if end else None)
    end_finish = end.finish_reason if end else None
    if status == "ok" and (
        stream.error is not None or failed is not None or (end_finish or stream.finish_reason or "").lower() == "error"
    ):
        status = "failed"  # an error event inside a stream that Relay saw end well
    if finish_reasons_differ(end_finish, stream.finish_reason):
        flags.append("finish_reason_mismatch")
    finished = end_finish or stream.finish_reason
    if "unfinished" in flags:
        flags.remove("unfinished")
        if status == "ok" and finished is None and (streamed or streaming):
            flags.append("unfinished_stream")
    refused = status == "failed" and error is not None and error.status is not None and error.status >= 400
    never_read = not streamed and (refused or status == "blocked")
    return AttemptFacts(
        status=status,
        usage=end.usage if end and end.settled else _together(end, stream, status, finished is None, never_read),
        finish_reason=finished,
        stream_finish_reason=stream.finish_reason,
        error=error if status not in ("ok", "running") else None,
        flags=tuple(dict.fromkeys(flags)),
    )


def _together(end: EndFacts | None, stream: Stream, status: Status, unfinished: bool, never_read: bool) -> Usage:
    """The usage of an attempt by its end and its stream."""
    usage = end.usage if end else UNKNOWN
    if not usage.known:
        usage = Usage(tier=usage.tier) if usage.tier else UNKNOWN
    if stream.usage.known and (not usage.complete or not usage.total_tokens):
        usage = merge(usage, stream.usage)
    if unfinished and (end is None or status != "ok" or end.api_mode in _GROWING):
        usage = usage.partial()
    return Usage(complete=True) if never_read and not usage.known else usage
