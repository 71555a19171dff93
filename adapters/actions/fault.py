"""Fail on purpose, to see what an agent does then."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from adapters.actions.base import Action, Draft, Facts, Fault, Field, RuleError

_REMEMBERED = 10_000  # logical calls

_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {**_OPENAI_TYPES, 413: "request_too_large", 529: "overloaded_error"}


def error_body(api_mode: str, status: int, message: str) -> dict[str, Any]:
    """An error as the provider of this wire format would word it."""
    if api_mode == "anthropic_messages":
        return {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}}
    kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class _Attempts:
    """Counts the attempts of the latest logical calls; a call without an id is a first attempt each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[str | None, str], int] = OrderedDict()

    def next(self, facts: Facts) -> int:
        """The number of this attempt, from 1."""
        if facts.request_id is None:
            return 1
        name = (facts.session_id, facts.request_id)
        with self._lock:
            number = self._counts[name] = self._counts.pop(name, 0) + 1
            if len(self._counts) > _REMEMBERED:
                self._counts.popitem(last=False)
        return number


@dataclass(frozen=True)
class FaultCall(Action):
    type = "fault"
    title = "Fail on purpose"
    help = "A status answers without the provider; a cut breaks the connection; a delay alone only makes the call late."
    fields = (
        Field("status", "integer", "HTTP status of the error, e.g. 429 or 500.", minimum=400, maximum=599),
        Field("delay_s", "number", "Seconds to wait first.", default=0.0, minimum=0, maximum=600),
        Field("cut_after", "integer", "Break the stream after so many chunks; a buffered call at once.", minimum=0),
        Field("message", "text", "The error's message.", default="Injected by an intercept."),
        Field("retry_after", "number", "Seconds in a Retry-After header.", minimum=0, maximum=3600),
        Field("percent", "number", "Share of calls that fail, drawn for each.", default=100.0, minimum=0, maximum=100),
        Field(
            "attempts", "integer", "Only the first attempts of each logical call: a later retry succeeds.", minimum=1
        ),
    )

    status: int | None = None
    delay_s: float = 0.0
    cut_after: int | None = None
    message: str = "Injected by an intercept."
    retry_after: float | None = None
    percent: float = 100.0
    attempts: int | None = None

    def __post_init__(self) -> None:
        if self.status is not None and self.cut_after is not None:
            raise RuleError("cut_after", "give a status or a cut, not both")
        if self.status is None and self.cut_after is None and not self.delay_s:
            raise RuleError("status", "give a status, a cut or a delay")
        if self.retry_after is not None and self.status is None:
            raise RuleError("retry_after", "belongs to a status")
        object.__setattr__(self, "_seen", _Attempts())

    def apply(self, draft: Draft) -> Draft:
        if self.attempts is not None and self._seen.next(draft.facts) > self.attempts:  # type: ignore[attr-defined]
            return draft
        if self.percent < 100 and random.random() * 100 >= self.percent:
            return draft
        headers = {} if self.retry_after is None else {"retry-after": f"{self.retry_after:g}"}
        body = {} if self.status is None else error_body(draft.facts.api_mode, self.status, self.message)
        return draft.but(effect=Fault(self.delay_s, self.status, self.cut_after, headers, body))
