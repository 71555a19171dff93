"""Errors of a provider: what they say, and whether an error of Relay is one of them in disguise."""

from __future__ import annotations

import json
from typing import Any

from adapters.json_values import escape, to_json
from adapters.marks import AttemptFailed

BODY_LIMIT = 65_536
BLOCKED = "x-relay-blocked"
"""A header of the response that a wrapped client gets for a call that was refused."""
MESSAGE_LIMIT = 4_096


def is_wrapper(relay_error: BaseException, provider_error: BaseException) -> bool:
    """Whether `relay_error` is `provider_error` in Relay's native words: "internal error: <type>: <message>"."""
    if type(relay_error) is not RuntimeError:
        return False
    text, kind = str(relay_error), type(provider_error)
    names = {kind.__name__, kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}"}
    return any(text.startswith(f"internal error: {name}: {provider_error}") for name in names)


def is_abort(error: BaseException) -> bool:
    """Whether an exception means that the owner wanted the end: cancelled, interrupted, Ctrl+C."""
    return isinstance(error, InterruptedError) or not isinstance(error, Exception)


def is_block(error: BaseException) -> bool:
    """Whether a rule of ours or a guardrail of Relay refused the call."""
    if type(error) is RuntimeError:
        return str(error).startswith("guardrail rejected")
    return type(error).__name__ == "CallBlocked" or BLOCKED in _headers(_get(error, "response"))


def outcome(error: BaseException) -> str:
    """How a call or a turn ends that this exception leaves."""
    return "cancelled" if is_abort(error) else "blocked" if is_block(error) else "failed"


def describe(error: BaseException) -> AttemptFailed:
    """What a provider's exception tells, read from its attributes: openai, anthropic, httpx, requests and the like."""
    response = _get(error, "response")
    headers = _headers(response) or _headers(error)
    status = _first_int(_get(error, "status_code"), _get(error, "status"), _get(response, "status_code"))
    body = _body(error, response)
    return AttemptFailed(
        status=status,
        error_type=_error_type(error),
        message=_clip(str(error), MESSAGE_LIMIT),
        body=_clip(body, BODY_LIMIT) if body is not None else None,
        request_id=_text(_get(error, "request_id")) or headers.get("x-request-id") or headers.get("request-id"),
        retry_after=headers.get("retry-after") or headers.get("retry-after-ms"),
    )


def in_stream(chunk: Any) -> AttemptFailed | None:
    """The error that a chunk tells of, where a provider ends a stream with one after a good HTTP status."""
    if not isinstance(chunk, dict):
        return None
    kind = chunk.get("type")
    error = chunk.get("error")
    if kind == "response.failed" and isinstance(chunk.get("response"), dict):
        error = chunk["response"].get("error")
    elif kind == "error" and not error:
        error = chunk
    if not error:
        return None
    told = error if isinstance(error, dict) else {"message": str(error)}
    words = (word for word in (told.get("type"), told.get("code")) if word != "error")
    return AttemptFailed(
        status=_first_int(told.get("status"), told.get("code")),
        error_type=next((found for word in words if (found := _text(word))), None),
        message=_clip(_text(told.get("message")) or _text(told.get("detail")) or "", MESSAGE_LIMIT) or None,
        body=_clip(json.dumps(escape(error)[0], ensure_ascii=False), BODY_LIMIT),
        request_id=_text(chunk.get("request_id")),
        retry_after=None,
    )


def _get(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # httpx raises from .request and .text where there is none
        return None


def _headers(response: Any) -> dict[str, str]:
    headers = _get(response, "headers")
    try:
        return {str(key).lower(): str(value) for key, value in headers.items()} if headers is not None else {}
    except Exception:  # a stand-in of a test, or another library's response
        return {}


def _first_int(*values: Any) -> int | None:
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _error_type(error: BaseException) -> str:
    """The provider's own word for it (`error.type` of its body), else the class."""
    body = _get(error, "body")
    for holder in (body.get("error") if isinstance(body, dict) else None, body):
        kind = holder.get("type") if isinstance(holder, dict) else None
        if isinstance(kind, str) and kind and kind != "error":
            return kind
    return _text(_get(error, "type")) or type(error).__name__


def _body(error: BaseException, response: Any) -> str | None:
    text = _get(response, "text")  # the bytes as they came, where they were read
    if isinstance(text, str) and text:
        return text
    body = _get(error, "body")
    if body is None:
        return None
    if isinstance(body, (bytes, bytearray)):
        return bytes(body).decode(errors="replace")
    if isinstance(body, str):
        return body
    return json.dumps(escape(to_json(body))[0], ensure_ascii=False)


def _clip(text: str, limit: int) -> str:
    clipped = text[:limit]
    return escape(clipped)[0] if not clipped.isascii() else clipped


_BY_STATUS = {
    400: "format_error",
    401: "auth_error",
    402: "billing_error",
    403: "auth_error",
    404: "model_not_found",
    408: "timeout",
    413: "context_overflow",
    422: "format_error",
    429: "rate_limit",
    503: "overloaded",
    529: "overloaded",
}


def error_class(value: Any) -> str:
    """A short word for what went wrong: by HTTP status, by the kind of exception, or by an error object in a body.

    `server_error`, `format_error`, `rate_limit`, `auth_error`, `billing_error`, `model_not_found`, `context_overflow`,
    `overloaded`, `timeout`, `network_error`, else `unknown`.
    """
    status = _first_int(_get(value, "status_code"), _get(value, "status"), _get(_get(value, "response"), "status_code"))
    if status is None and not isinstance(value, BaseException):
        error = value.get("error") if isinstance(value, dict) else _get(value, "error")
        code = error.get("code") if isinstance(error, dict) else _get(error, "code")
        status = _first_int(code)
        if status is None and error is not None:
            return "server_error"
    if status is not None and status >= 400:
        return _BY_STATUS.get(status, "server_error" if status >= 500 else "format_error")
    name = type(value).__name__.lower()
    if isinstance(value, TimeoutError) or "timeout" in name:
        return "timeout"
    if isinstance(value, (ConnectionError, OSError)) or "connection" in name or "connect" in name:
        return "network_error"
    return "unknown"
