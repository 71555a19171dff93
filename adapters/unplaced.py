"""Calls that a fault of ours keeps from running through the rules.

A watched agent is never harmed by its watcher, so such a call goes out as the app made it, unrecorded. But a rule that
fails closed says that no call may go without it: then the call is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters import rules
from adapters.actions.base import Facts, Unread
from adapters.options import CallOptions, StreamOptions


class CallBlocked(RuntimeError):
    """A rule of ours refused the call; the provider was not asked. `key` and `revision` name the rule."""

    def __init__(self, reason: str, key: str = "", revision: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.key, self.revision = reason, key, revision


class Unplaced(Exception):
    """A call that is to be managed has no place, by a fault of ours, which is counted. `profile` is where it ran."""

    def __init__(self, profile: str, session_id: str) -> None:
        super().__init__(f"no scope for a call of session {session_id!r}")
        self.profile, self.session_id = profile, session_id


def check(facts: Facts) -> None:
    """Raise CallBlocked where a rule in force that fails closed is for this call; it says nothing otherwise."""
    rule = rules.current().refusing(facts)
    if rule is not None:
        raise CallBlocked(f"intercept {rule.key} could not be applied", rule.key, rule.revision)


def check_call(
    request: Mapping[str, Any], options: CallOptions | StreamOptions, *, profile: str, session_id: str
) -> None:
    """`check` for a call of `relay_llm`."""
    given = options.metadata if isinstance(options.metadata, Mapping) else {}
    check(
        Facts(
            api_mode=str(given.get("api_mode") or ""),
            provider=options.name,
            model=options.model_name if isinstance(options.model_name, str) else None,
            profile=profile,
            call_role=str(given.get("call_role") or "primary"),
            session_id=session_id,
            stream=isinstance(options, StreamOptions),
            request_id=str(given.get("api_request_id") or "") or None,
            unread=isinstance(request, Unread),
        )
    )
