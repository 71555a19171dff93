"""Rules over live calls: the set in force, the one request intercept in Relay, and the offline preview."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import nemo_relay
from nemo_relay import runtime_registrations

from adapters import rules, wire
from adapters.actions import ACTIONS
from adapters.actions.base import Facts, RuleError
from adapters.follow import Follower, follow
from adapters.json_values import to_json
from adapters.marks import Rewrite
from adapters.match import Match
from adapters.rule_failures import Failures
from adapters.rules import Decision, Rule, RuleSet, current, failures, swap

__all__ = [
    "ACTIONS",
    "Decision",
    "Follower",
    "Match",
    "Rule",
    "RuleError",
    "RuleSet",
    "current",
    "ensure_dispatcher",
    "failures",
    "follow",
    "prepare",
    "preview",
    "swap",
]

NAME = "relayweb.rules"
PRIORITY = 0
_LOOK_AT_REQUESTS = {
    runtime_registrations.RuntimeRegistrationKind.LLM_REQUEST_INTERCEPT,
    runtime_registrations.RuntimeRegistrationKind.LLM_CONDITIONAL_EXECUTION_GUARDRAIL,
}

_lock = threading.Lock()
_registered = False


def ensure_dispatcher() -> None:
    """Registers our request intercept in Relay, once a process. It stays; only the rule set changes."""
    global _registered
    if _registered:
        return
    with _lock:
        if not _registered:
            nemo_relay.intercepts.register_llm_request(NAME, PRIORITY, False, dispatch)
            _registered = True


def prepare(call: wire.ProviderCall) -> None:
    """Runs the rules over this call, or sees to it that our intercept will; attempts do so before they go to Relay.

    Relay's dispatch costs a switch of threads, about 0.2 ms, and a second copy of the body. It is needed only for an
    order among intercepts, where there are others, and for guardrails, which see what the app gave.
    """
    rule_set = current()
    if not _registered and (not rule_set.rules or not _others()):
        call.run_rules(rule_set)
    else:
        ensure_dispatcher()


def _others() -> bool:
    """Whether anybody else in Relay looks at requests before they go out."""
    return bool(runtime_registrations.list_runtime_registrations(_LOOK_AT_REQUESTS))


def dispatch(
    name: str, request: nemo_relay.LLMRequest, annotation: Any | None
) -> nemo_relay.LLMRequestInterceptOutcome:
    """The request intercept itself. Calls that are not ours pass."""
    call = wire.current_call()
    outcome = call.dispatch(current(), name, request, annotation) if call is not None else None
    return outcome or nemo_relay.LLMRequestInterceptOutcome(request, annotation)


def preview(
    rule_set: RuleSet,
    body: Mapping[str, Any],
    *,
    api_mode: str,
    provider: str = "",
    model: str | None = None,
    call_role: str = "primary",
    session_id: str | None = None,
    profile: str | None = None,
    stream: bool = False,
    headers: Mapping[str, Any] | None = None,
) -> tuple[list[Rewrite], dict[str, Any], Decision | None]:
    """What `rule_set` would do to a recorded request, offline, by the code that runs live.

    Returns the ledger entries, the provider's body, and the decision to block, answer or fail, if any.
    """
    facts = Facts(api_mode, provider, model or _model(body), profile, call_role, session_id, stream)
    # A tally of its own: what a draft does to old requests must not stop a rule that is in force.
    outcome = rules.run(rule_set, to_json(body), facts, dict(headers or {}), Failures())
    return outcome.rewrites(), outcome.draft.body, outcome.decision


def _model(body: Mapping[str, Any]) -> str | None:
    model = body.get("model")
    return model if isinstance(model, str) else None
