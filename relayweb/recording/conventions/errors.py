"""What went wrong, and what an outcome word means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

from relayweb.recording.conventions.shapes import Json, Status, as_list, as_map, first_of, http_status, text_or_none

_MESSAGE = 2_000  # characters of an error's message kept on a row; the whole text is in the event


class ErrorFacts(msgspec.Struct, frozen=True, gc=False):
    """One error: `type` as the provider or the language names it, HTTP `status` where there was one."""

    type: str | None = None
    status: int | None = None
    message: str | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        return {"type": self.type, "status": self.status, "message": self.message}


_OUTCOMES: dict[str, Status] = {
    **dict.fromkeys(("success", "succeeded", "ok", "completed", "complete", "done"), "ok"),
    **dict.fromkeys(("failed", "failure", "error", "errored", "timeout", "timed_out", "incomplete"), "failed"),
    **dict.fromkeys(("cancelled", "canceled", "aborted"), "cancelled"),
    **dict.fromkeys(("blocked", "rejected", "denied"), "blocked"),
    "interrupted": "interrupted",
}
RECORDED_STATUS = "relayweb.status"
"""Metadata and attribute: what a scope came to in the record that a span was exported from, if not "ok"."""
RECORDED: dict[str, Status] = {
    **{"failed": "failed", "cancelled": "cancelled", "blocked": "blocked", "interrupted": "interrupted"},
    "running": "interrupted",  # nobody will tell its end
}
_CANCELLED_TEXTS = ("LLM execution cancelled", "stream dropped before clean completion", "tool execution cancelled")
_CANCELLED_TYPES = ("CancelledError", "KeyboardInterrupt", "GeneratorExit", "InterruptedError")
_HTTP_STATUS_IN_TEXT = re.compile(r"(?:error code|status(?: code)?|HTTP)[:= ]{1,3}([1-5]\d\d)\b", re.IGNORECASE)


def read_outcome(outcome: Json) -> Status | None:
    """The status an outcome word stands for; None where it is absent or not a word."""
    return _OUTCOMES.get(outcome.lower()) if isinstance(outcome, str) else None


def error_object(body: Json) -> ErrorFacts | None:
    """The error in an answer or a chunk: providers put one into an HTTP-200 body or into a stream that ends OK."""
    body = as_map(body[0] if isinstance(body, (list, tuple)) and body else body)
    kind = body.get("type")
    if kind in ("response.failed", "response.error", "response.incomplete"):
        body = as_map(body.get("response"))
        if kind == "response.incomplete":
            return None
    error = body.get("error")
    if not error and kind == "error":
        error = {k: body.get(k) for k in ("code", "message", "status", "status_code")}
    if not error:
        inside = (*as_list(body.get("choices")), body.get("delta") if "delta" in body else None)
        error = next(filter(None, (as_map(c).get("error") for c in inside)), None)
    if not error:
        error = _bare_error(body)
    if isinstance(error, str):
        kind = text_or_none(body.get("error_type")) or text_or_none(body.get("code"))
        return ErrorFacts(type=kind, message=text_or_none(error, _MESSAGE))
    if error is True or (isinstance(error, int) and http_status(error)):  # said beside it
        error = {**body, "status_code": body.get("status_code") or (None if error is True else error)}
    elif isinstance(error, (list, tuple)):
        error = error[0] if isinstance(error[0], Mapping) else {"message": error[0]}
    if not error or not isinstance(error, Mapping):
        return None
    code = error.get("code")
    return ErrorFacts(
        type=text_or_none(error.get("type") or (code if isinstance(code, str) else error.get("status"))),
        status=http_status(error.get("status_code")) or http_status(code) or http_status(error.get("status")),
        message=text_or_none(error.get("message") or error.get("detail"), _MESSAGE),
    )


_ERROR_MEMBERS = frozenset(
    spelled
    for name in (
        *("exception.type", "error.type", "exception.message", "otel.status_description", "error.message"),
        *("http.response.status_code", "http.status_code", "status_code"),
    )
    for spelled in (name, name.replace(".", "_"))
)


_ANSWERS = frozenset(
    ("choices", "output", "content", "candidates", "results", "response", "text", "delta", "embeddings")
    + ("assistant_message", "tool_calls")
)


def _bare_error(body: Mapping[str, Json]) -> Json:
    """An error that stands for the whole body instead of in a member `error`."""
    if body.get("object") == "error":  # vLLM, Mistral
        return body
    if not _ANSWERS.isdisjoint(body) or "chunk_index" in body:
        return None
    if isinstance(body.get("__type"), str):  # AWS
        return {"type": body["__type"].rpartition("#")[2], "message": body.get("message", body.get("Message"))}
    for name, told in body.items():  # Bedrock, within a stream
        if isinstance(told, Mapping) and isinstance(name, str) and name.endswith("Exception"):
            return {"type": name, **told}
    listed = next(iter(as_list(body.get("errors"))), None)
    if isinstance(listed, Mapping):  # Cloudflare, watsonx
        return {"status_code": body.get("status_code"), **listed}
    detail = body.get("detail")  # FastAPI
    if isinstance(detail, (list, tuple)) and detail and isinstance(detail[0], Mapping):
        place = ".".join(map(str, as_list(detail[0].get("loc"))))
        return {"type": detail[0].get("type"), "message": f"{place}: {detail[0].get('msg')}"}
    return detail if isinstance(detail, (str, Mapping)) and len(body) < 4 else None


def error_of(metadata: Json) -> ErrorFacts | None:
    """The error in an event's metadata: OpenTelemetry's exception attributes and what Relay writes beside them."""
    metadata = as_map(metadata)
    if _ERROR_MEMBERS.isdisjoint(metadata):
        return None
    kind = first_of(metadata, "exception.type")
    coarse = first_of(metadata, "error.type")
    text = first_of(metadata, "exception.message", "otel.status_description", "error.message")
    message = text if isinstance(text, str) else None
    if message:
        message = message.removeprefix("internal error: ")
        if isinstance(kind, str):
            message = message.removeprefix(f"{kind}: ")
    status = http_status(first_of(metadata, "http.response.status_code", "http.status_code", "status_code"))
    if status is None and message and (found := _HTTP_STATUS_IN_TEXT.search(message[:300])):
        status = int(found[1])
    if kind is None and coarse is None and message is None and status is None:
        return None
    return ErrorFacts(type=text_or_none(kind or coarse), status=status, message=text_or_none(message, _MESSAGE))


def read_failure(data: Json) -> ErrorFacts:
    """What a `relay.attempt_failed` mark says the provider answered."""
    data = as_map(data)
    stated = ErrorFacts(
        type=text_or_none(data.get("error_type")),
        status=http_status(data.get("status")),
        message=text_or_none(data.get("message"), _MESSAGE),
    )
    try:
        answered = error_object(json.loads(data["body"])) if isinstance(data.get("body"), str) else None
    except (ValueError, RecursionError):
        answered = None
    return better_error(answered, stated) or stated


def better_error(a: ErrorFacts | None, b: ErrorFacts | None) -> ErrorFacts | None:
    """One error told twice: `a`'s members, `b`'s where `a` says nothing."""
    if a is None or b is None:
        return b if a is None else a
    return ErrorFacts(a.type or b.type, a.status or b.status, a.message or b.message)


def read_block(data: Json) -> ErrorFacts | None:
    """Why a call never happened, by a guardrail's end, Relay's rejection mark or ours; None if it did happen."""
    data = as_map(data)
    if data.get("rejected") is True:
        return ErrorFacts(type="guardrail", message=text_or_none(data.get("rejection_reason"), _MESSAGE))
    if isinstance(data.get("stage"), str) and "reason" in data:
        return ErrorFacts(
            type=text_or_none(data.get("error_type") or data["stage"]), message=text_or_none(data["reason"], _MESSAGE)
        )
    return None


def end_status(metadata: Mapping[str, Json], error: ErrorFacts | None, outcome: Status | None) -> Status:
    """A scope's status by its end event: OpenTelemetry's code first, then what the outcome word stands for."""
    recorded = metadata.get(RECORDED_STATUS)
    if isinstance(recorded, str) and recorded in RECORDED:
        return RECORDED[recorded]
    code = first_of(metadata, "otel.status_code")
    if not isinstance(code, str) or code.upper() != "ERROR":
        return outcome or "ok"
    text = (error.message if error else None) or ""
    if (error and error.type in _CANCELLED_TYPES) or any(t in text for t in _CANCELLED_TEXTS):
        return "cancelled"
    if "guardrail rejected" in text or (error and error.type == "CallBlocked"):
        return "blocked"
    return outcome if outcome in ("cancelled", "blocked", "interrupted") else "failed"
