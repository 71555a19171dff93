"""Headers of a call: the app's, what Relay can carry of them, and what others made of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.json_values import escape

INTERNAL = frozenset({"x-dynamo-session-id", "x-dynamo-parent-session-id"})
TRACE = "traceparent"
_RELAYS = INTERNAL | {TRACE}


class ExtraHeaders(dict[str, Any]):
    """`extra_headers` of an outgoing request; `removed` names what a rule takes away that the transport would add."""

    removed: tuple[str, ...] = ()


def carriable(headers: Mapping[str, Any]) -> dict[str, str]:
    """What of `headers` Relay can carry."""
    return {k: v for k, v in headers.items() if isinstance(k, str) and isinstance(v, str) and not escape([k, v])[1]}


def changed_headers(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of headers that were set, changed or removed."""
    if before == after:
        return []
    return sorted(k for k in {*before, *after} if before.get(k) != after.get(k) or (k in before) != (k in after))


def changed_by_others(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Names of headers that intercepts changed in what Relay had of us, without those that Relay itself adds."""
    return changed_headers(_without_relays(ours), _without_relays(theirs))


def _without_relays(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name.lower() not in _RELAYS}


def merged(carried: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Relay's headers `carried`, with the changes from `before` to `after`, which are ours."""
    changed = {n.lower() for n in changed_headers(before, after)}
    if not changed:
        return dict(carried)
    kept = {k: v for k, v in carried.items() if k.lower() not in changed}
    return {**kept, **{k: v for k, v in carriable(after).items() if k.lower() in changed}}


def outgoing(
    headers: Mapping[str, Any], removed: tuple[str, ...], passed: Mapping[str, Any], *, trace: bool
) -> ExtraHeaders:
    """The provider's `extra_headers`: ours, and with `trace` Relay's trace context from the headers it `passed` on."""
    extra = ExtraHeaders({k: v for k, v in headers.items() if k.lower() not in INTERNAL})
    extra.removed = removed
    context = passed.get(TRACE) or next((v for k, v in passed.items() if k.lower() == TRACE), None)
    if context is not None and trace and TRACE not in (n.lower() for n in removed):
        for name in [k for k in extra if k.lower() == TRACE]:
            del extra[name]
        extra[TRACE] = context
    return extra
