"""One provider call on the wire: the app's own body, and the copy of it that Relay carries."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import nemo_relay

from adapters import json_patch, rules
from adapters.actions.base import Facts, Redactor
from adapters.json_values import escape, json_equal, overlay, same, to_json
from adapters.marks import REQUEST, REWRITE, Request, Rewrite
from adapters.rules import Decision, Outcome, RuleSet, redacted

__all__ = ["ProviderCall", "current_call", "escape", "json_equal", "to_json"]

_log = logging.getLogger(__name__)


class Wire(NamedTuple):
    """How one api_mode is told to Relay (R66)."""

    operation: str
    codec: type[Any]


WIRES: dict[str, Wire] = {
    "chat_completions": Wire("openai.chat_completions", nemo_relay.codecs.OpenAIChatCodec),
    "codex_responses": Wire("openai.responses", nemo_relay.codecs.OpenAIResponsesCodec),
    "anthropic_messages": Wire("anthropic.messages", nemo_relay.codecs.AnthropicMessagesCodec),
}

# Arguments of the SDK's call that are no part of the body.
_ASIDE = ("timeout", "extra_headers")
_INTERNAL_HEADERS = frozenset({"x-dynamo-session-id", "x-dynamo-parent-session-id"})
_TRACE = "traceparent"

_current: ContextVar[ProviderCall | None] = ContextVar("relay_provider_call", default=None)


def current_call() -> ProviderCall | None:
    """The call whose `activate()` surrounds us."""
    return _current.get()


class ProviderCall:
    """One attempt on the wire.

    `request` is what the provider's callback would get without Relay: the body, and the SDK's `extra_headers` and
    `timeout`. It is never changed. The object is itself the codec handed to Relay: `decode` gives Relay's annotation,
    `encode` the whole body, and `outgoing` lays what others changed over the app's own body, so that unchanged parts
    keep their objects, bytes and key order. Give `relay_request` and `codec` to one `llm.execute` or `stream_execute`
    inside `activate()`.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        *,
        api_mode: str,
        provider: str,
        model: str | None,
        call_role: str = "primary",
        session_id: str | None = None,
        profile: str | None = None,
        stream: bool = False,
    ) -> None:
        wire = WIRES.get(api_mode)
        self.request = request
        self.operation = wire.operation if wire else provider
        self.facts = Facts(api_mode, provider, model, profile, call_role, session_id, stream)
        self.decision: Decision | None = None
        self.rewrites: list[Rewrite] = []
        self.changed = False
        self.removed_headers: list[str] = []
        self.ruleset: str | None = None
        self._known = wire is not None
        self._app = {k: v for k, v in request.items() if k not in _ASIDE and not _unset(v)}
        self._given: dict[str, Any] = to_json(self._app)  # what rules read and change
        self._body = self._given  # after the rules
        headers = request.get("extra_headers")
        self._headers = dict(headers) if isinstance(headers, Mapping) else {}
        self._new_headers = self._headers
        self._redactors: tuple[Redactor, ...] = ()
        self._outcome: Outcome | None = None
        self._foreign: list[Rewrite] = []
        self._native = wire.codec() if wire else None
        self.response_codec: Any | None = wire.codec() if wire else None
        self._carried: dict[str, Any]
        self._carried, self.escaped = escape(self._given)
        self.relay_request = nemo_relay.LLMRequest(_relay_headers(self._headers), self._carried)
        self._decoded = self.relay_request  # what the annotation was decoded from
        self._annotation = self._decode(self.relay_request)
        self._codec_failed = False

    # -- the codec Relay sees --------------------------------------------------------------------------------------

    @property
    def codec(self) -> Any | None:
        """This object where the native codec takes the body, else None: Relay then carries the body as it is."""
        return self if self._annotation is not None else None

    def decode(self, _request: nemo_relay.LLMRequest) -> Any:
        return self._annotation

    def encode(self, annotation: Any, original: nemo_relay.LLMRequest) -> nemo_relay.LLMRequest:
        """The whole body (Relay alone would trim its history in events), with what others did to the annotation."""
        return nemo_relay.LLMRequest(original.headers, self._with_foreign(annotation))

    def _decode(self, request: nemo_relay.LLMRequest) -> Any | None:
        if self._native is None:
            return None
        try:
            return self._native.decode(_shaped(request, self.facts.api_mode))
        except Exception:
            return None

    def _with_foreign(self, annotation: Any) -> dict[str, Any]:
        """The carried body with the difference between `annotation` and ours laid over it (R70, R74)."""
        native = self._native
        assert native is not None
        try:
            shaped = _shaped(self._decoded, self.facts.api_mode)
            got = native.encode(annotation, shaped).content
            base = native.encode(self._annotation, shaped).content
            if not isinstance(got, dict) or not isinstance(base, dict):
                raise TypeError(f"the codec gave {type(got).__name__}, not an object")
        except Exception as error:
            _log.warning("Relay's %s codec failed; rewrites by others are ignored: %s", self.operation, error)
            self._codec_failed = True
            return self._carried
        if same(got, base):
            return self._carried
        result: dict[str, Any] = overlay(self._carried, base, got)
        return result

    # -- rules -----------------------------------------------------------------------------------------------------

    def dispatch(
        self, rule_set: RuleSet, request: nemo_relay.LLMRequest, annotation: Any | None
    ) -> nemo_relay.LLMRequestInterceptOutcome:
        """Runs the rules inside Relay's request intercept; what earlier intercepts changed is taken in first."""
        before = self._with_foreign(annotation) if annotation is not None else request.content
        self._take_foreign(before, request.headers, "before")
        self._run(rule_set)
        pending = [nemo_relay.PendingMarkSpec(REWRITE, data=_data(r)) for r in self.rewrites]
        headers = _merged(request.headers, self._headers, self._new_headers)
        if self._annotation is None or annotation is None:
            passed = nemo_relay.LLMRequest(headers, self._carried)
            return nemo_relay.LLMRequestInterceptOutcome(passed, None, pending)
        passed = nemo_relay.LLMRequest(headers, request.content) if headers != request.headers else request
        return nemo_relay.LLMRequestInterceptOutcome(passed, self._annotation, pending)

    def _run(self, rule_set: RuleSet) -> None:
        outcome = rules.run(rule_set, self._body, self.facts, self._new_headers)
        self._outcome = outcome
        self.ruleset = outcome.etag
        self.decision = outcome.decision
        self._redactors = outcome.redactors
        for rewrite in outcome.rewrites():
            rewrite["position"] = len(self.rewrites)
            self.rewrites.append(rewrite)
        self._new_headers = {k: v for k, v in outcome.draft.headers.items() if v is not None}
        self.removed_headers = [k for k, v in outcome.draft.headers.items() if v is None]
        if outcome.draft.body is not self._body or self._redactors:
            self._body = outcome.draft.body
            self._carry()

    def _carry(self) -> None:
        """Makes Relay's copy anew: escaped, and redacted, since Relay records what it carries."""
        self._carried, self.escaped = escape(redacted(self._body, self._redactors))
        if self._native is None:
            return
        request = nemo_relay.LLMRequest({}, self._carried)
        annotation = self._decode(request)
        if annotation is not None and self._annotation is not None:
            self._annotation, self._decoded = annotation, request

    def _take_foreign(self, content: Any, headers: Mapping[str, Any], when: str) -> None:
        """Lays over our body what an intercept that is not ours did, and writes it down."""
        ours = _relay_headers(self._new_headers)
        names = [n for n in rules.changed_headers(ours, headers) if n.lower() not in (_TRACE, *_INTERNAL_HEADERS)]
        for name in names:
            self._new_headers = {k: v for k, v in self._new_headers.items() if k.lower() != name.lower()}
            if name in headers:
                self._new_headers[name] = headers[name]
        if not isinstance(content, dict):
            content = self._carried
        if content is not self._carried and not same(content, self._carried):
            self._body = overlay(self._body, self._carried, content)
            patch = json_patch.diff(self._carried, content)
        else:
            patch = []
        if not names and not patch:
            return
        entry = _foreign(len(self.rewrites), names, patch, when, self.ruleset or "")
        entry["bytes_before"], entry["bytes_after"] = rules.size(self._carried), rules.size(content)
        self._carried = content
        if self._annotation is not None and patch:
            self._carry()
        self.rewrites.append(entry)
        self._foreign.append(entry)

    # -- the provider's side ---------------------------------------------------------------------------------------

    def outgoing(self, passed: nemo_relay.LLMRequest) -> Mapping[str, Any]:
        """The provider's request. `request` itself when nothing changed at all (R71), else a deep merge (R72, R76)."""
        content, headers = passed.content, passed.headers
        if isinstance(content, dict) and not self._codec_failed:
            self._take_foreign(content, headers, "after")
        body = self._app if self._body is self._given else overlay(self._app, self._given, self._body)
        self.changed = body is not self._app
        extra = self._extra_headers(headers)
        if not self.changed and extra == self._headers:
            return self.request
        out = {k: body.get(k, v) for k, v in self.request.items() if k in body or k not in self._app}
        out.update({k: v for k, v in body.items() if k not in out})
        if extra or "extra_headers" in self.request:
            out["extra_headers"] = extra
        return out

    def _extra_headers(self, passed: Mapping[str, Any]) -> dict[str, Any]:
        extra = {k: v for k, v in self._new_headers.items() if k.lower() not in _INTERNAL_HEADERS}
        trace = next((v for k, v in passed.items() if k.lower() == _TRACE), None)
        if trace is not None and (self._known or "extra_headers" in self.request):
            extra = {k: v for k, v in extra.items() if k.lower() != _TRACE}
            extra[_TRACE] = trace
        return extra

    # -- the record ------------------------------------------------------------------------------------------------

    def request_mark(self, passed: nemo_relay.LLMRequest) -> Request | None:
        """Data of the `relay.request` mark, None when the llm scope's start says it exactly. After `outgoing`."""
        mark: Request = {}
        if self.changed:
            mark["app"] = escape(redacted(self._given, self._redactors))[0]
        provider, escaped = escape(redacted(self._body, self._redactors))
        if not same(provider, passed.content):
            mark["provider"] = provider
        if escaped:
            mark["escaped"] = escaped
        if names := rules.changed_headers(self._headers, self._new_headers):
            mark["headers"] = names
        return mark or None

    def late_marks(self, passed: nemo_relay.LLMRequest) -> list[tuple[str, dict[str, Any]]]:
        """Marks (name, data) that the callback emits under the llm scope, after `outgoing`: what an intercept that ran
        after ours did, and `relay.request`."""
        late = [(REWRITE, dict(r)) for r in self._foreign if r.get("reason") == "after"]
        mark = self.request_mark(passed)
        return [*late, (REQUEST, dict(mark))] if mark else late

    @contextlib.contextmanager
    def activate(self) -> Iterator[ProviderCall]:
        """Makes this the call the dispatcher decides about."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


def _data(mark: Mapping[str, Any]) -> Any:
    return dict(mark)


def _unset(value: Any) -> bool:
    """The SDKs' markers for an argument that was not given."""
    return type(value).__name__ in ("NotGiven", "Omit", "NOT_GIVEN")


def _relay_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if isinstance(k, str) and isinstance(v, str) and not escape([k, v])[1]}


def _merged(carried: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = {n.lower() for n in rules.changed_headers(before, after)}
    kept = {k: v for k, v in carried.items() if k.lower() not in changed}
    return {**kept, **{k: v for k, v in _relay_headers(after).items() if k.lower() in changed}}


def _shaped(request: nemo_relay.LLMRequest, api_mode: str) -> nemo_relay.LLMRequest:
    return request


def _foreign(position: int, names: list[str], patch: list[Any], when: str, etag: str) -> Rewrite:
    return Rewrite(
        position=position,
        key="foreign",
        revision=None,
        title="An intercept of the host",
        action="foreign",
        priority=0,
        mode="enforce",
        result="hit",
        patch=patch,
        headers=names,
        duration_us=0.0,
        bytes_before=0,
        bytes_after=0,
        reason=when,
        ruleset=etag,
    )
