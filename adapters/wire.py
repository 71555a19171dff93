"""One provider call on the wire: the app's own body, and the copy of it that Relay carries."""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import nemo_relay

from adapters import call_headers, json_patch, rules
from adapters.actions.base import Block, Facts, Redactor, Unread
from adapters.call_headers import ExtraHeaders, changed_headers
from adapters.carried import Carried
from adapters.json_values import escape, json_equal, overlay, to_json
from adapters.marks import REQUEST, REWRITE, Request, Rewrite
from adapters.rules import Decision, RuleSet, redacted

__all__ = ["WIRES", "ExtraHeaders", "ProviderCall", "current_call", "escape", "json_equal", "to_json"]

_log = logging.getLogger(__name__)


class Wire(NamedTuple):
    """How one api_mode is told to Relay (R66). `empty` is a body without content that its codec takes."""

    operation: str
    codec: type[Any]
    empty: dict[str, Any]


WIRES: dict[str, Wire] = {
    "chat_completions": Wire("openai.chat_completions", nemo_relay.codecs.OpenAIChatCodec, {"messages": []}),
    "codex_responses": Wire("openai.responses", nemo_relay.codecs.OpenAIResponsesCodec, {"input": []}),
    "anthropic_messages": Wire("anthropic.messages", nemo_relay.codecs.AnthropicMessagesCodec, {"messages": []}),
}

# Arguments of the SDK's call that are no part of the body.
_ASIDE = ("timeout", "extra_headers")

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
    inside `activate()`; call `outgoing` in the callback, then look at `decision`.

    Attributes: `operation` for Relay (R66); `response_codec`; `escaped`, JSON pointers of what Relay cannot hold;
    `decision`, what the rules want beyond a changed body; `rewrites`, the ledger so far; `ruleset`, etag of the set the
    call ran under; `changed`, whether the provider's body is another one than the app's; `flags`, which whoever asks
    the provider may add to (`relay.flags`).
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
        request_id: str | None = None,
    ) -> None:
        self._wire = WIRES.get(api_mode)
        self._native = self._wire.codec() if self._wire else None
        self.request = request
        self.operation = self._wire.operation if self._wire else provider
        self.response_codec: Any | None = self._wire.codec() if self._wire else None
        who = _text(provider) or "", _text(model), _text(profile), _text(call_role) or "", _text(session_id)
        self.facts = Facts(api_mode, *who, stream, _text(request_id), isinstance(request, Unread))
        self.decision: Decision | None = None
        self.rewrites: list[Rewrite] = []
        self.ruleset: str | None = None
        self.changed = False
        self.flags: set[str] = set()
        self._app = {k: v for k, v in request.items() if k not in _ASIDE and not _unset(v)}
        headers = request.get("extra_headers")
        self._app_headers: dict[str, Any] = dict(headers) if isinstance(headers, Mapping) else {}
        self._headers = self._app_headers
        self._removed: tuple[str, ...] = ()
        self._redactors: tuple[Redactor, ...] = ()
        self._reported = 0  # how many rewrites Relay's pending marks tell
        self._marked: tuple[tuple[Any, ...], Request] | None = None  # `relay.request`, made beforehand, and of what
        self._told: Carried | None = None  # the copy that its pending `relay.request` is about
        self._codec_failed = False
        self._encoded: nemo_relay.LLMRequest | None = None
        self._passed: dict[str, Any] | None = None  # the content of Relay's request in the callback
        carried, self.escaped = escape(self._app)
        self._given: dict[str, Any] = self._app if carried is self._app else to_json(self._app)
        self._body = self._given  # what the rules and others made of it
        relay_headers = call_headers.carriable(self._headers)
        self._carries: Mapping[str, Any] = relay_headers  # the headers that Relay has of us
        self._carriable = carried
        self._relay_request: nemo_relay.LLMRequest | None = None
        self._coded: bool | None = None
        self._copy = self._first = Carried(self._native, carried, relay_headers)

    # -- the codec Relay sees --------------------------------------------------------------------------------------

    @property
    def relay_request(self) -> nemo_relay.LLMRequest:
        """What Relay is given, the same at all times."""
        if self._relay_request is None:
            self._relay_request = self._copy.request(self._carries)
        return self._relay_request

    @property
    def codec(self) -> ProviderCall | None:
        """This object where the native codec takes the body, else None: Relay then carries the body as it is."""
        if self._coded is None:
            self._coded = self._copy.annotation is not None
        return self if self._coded else None

    def decode(self, request: nemo_relay.LLMRequest) -> Any:
        """Relay's annotation of the body: redacted from the start, since Relay records the one it ends up with."""
        if self.ruleset is None:
            self._redact_early()
        return self._copy.annotation

    def encode(self, annotation: Any, original: nemo_relay.LLMRequest) -> nemo_relay.LLMRequest:
        """The whole body, with what others did to the annotation.

        Relay asks twice: for the callback, then for the start event, with an annotation whose history it has trimmed.
        The second answer is the first one, so that the event shows what the callback got.
        """
        if self._encoded is None:
            self._encoded = self._encode(annotation, original)
        return self._encoded

    def _encode(self, annotation: Any, original: nemo_relay.LLMRequest) -> nemo_relay.LLMRequest:
        copy, headers = self._copy, original.headers
        unchanged: nemo_relay.LLMRequest | None = None
        if copy is self._first and not self._codec_failed:
            with contextlib.suppress(Exception):  # _changed_by says what is wrong
                unchanged = copy.readdressed(annotation, original)
            if unchanged is not None and self.ruleset is not None:
                return unchanged
        body = self._changed_by(annotation) if unchanged is None else copy.body
        if self.ruleset is None:  # an intercept of the host broke the chain before ours
            headers = self._run(rules.current(), body, headers)
            body = self._copy.body
            self._carries = {**original.headers, **headers}  # Relay lays the headers of the answer over its own
        if unchanged is not None and self._copy is copy and headers == original.headers:
            return unchanged
        carried = self._copy if body is self._copy.body else Carried(None, body, headers)
        return carried.request(headers)

    def _changed_by(self, annotation: Any) -> dict[str, Any]:
        if not self._codec_failed:
            try:
                return self._copy.changed_by(annotation)
            except Exception as error:
                _log.warning("%s: rewrites by other intercepts are ignored, %s", self.operation, error)
                self._codec_failed = True  # R74
        return self._copy.body

    # -- rules -----------------------------------------------------------------------------------------------------

    def run_rules(self, rule_set: RuleSet) -> None:
        """Runs the rules before Relay is given the call: it is given what they made of it."""
        if rule_set.rules:
            self._carries = self._run(rule_set, self._copy.body, self._carries)
            self._first = self._copy
        self.ruleset = rule_set.etag

    def dispatch(
        self, rule_set: RuleSet, name: str, request: nemo_relay.LLMRequest, annotation: Any | None
    ) -> nemo_relay.LLMRequestInterceptOutcome | None:
        """Runs the rules inside Relay's request intercept; what earlier intercepts changed is taken in first.

        None when the request is not this call, on its way for the first time: a guardrail or the provider's callback
        may itself call a model through Relay, in our context.
        """
        if self.ruleset is not None or name != self.operation or (annotation is None) != (self.codec is None):
            return None
        if annotation is None:
            before = request.content
        else:
            before = self._changed_by(annotation)
            unlike = before is not self._copy.body or self._codec_failed
            if unlike and not self._first.says(request.content):
                self._codec_failed = False
                return None
        headers = self._carries = self._run(rule_set, before, request.headers)
        self._reported = len(self.rewrites)
        pending = [nemo_relay.PendingMarkSpec(REWRITE, data=_data(r)) for r in self.rewrites]
        self._told = self._copy
        if mark := self._request_mark(exact=True):
            pending.append(nemo_relay.PendingMarkSpec(REQUEST, data=_data(mark)))
        if annotation is None:
            return nemo_relay.LLMRequestInterceptOutcome(self._copy.request(headers), None, pending)
        passed = request if headers == request.headers else nemo_relay.LLMRequest(headers, request.content)
        return nemo_relay.LLMRequestInterceptOutcome(passed, self._copy.annotation, pending)

    def _run(self, rule_set: RuleSet, content: Any, headers: Mapping[str, Any]) -> dict[str, Any]:
        """Takes in what others changed, runs the rules, and gives Relay's headers as they are then. Never raises."""
        try:
            return self._ruled(rule_set, content, headers)
        except Exception:  # told in the ledger; a rule that fails closed refuses the call
            self._failed(rule_set)
            return dict(headers)

    def _ruled(self, rule_set: RuleSet, content: Any, headers: Mapping[str, Any]) -> dict[str, Any]:
        ours, carried = self._headers, self._copy.body
        names, changed = self._take(content, headers)
        outcome = rules.run(rule_set, self._body, self.facts, self._headers)
        self.ruleset, self.decision, self._redactors = outcome.etag, outcome.decision, outcome.redactors
        if not outcome.stages and not names and changed is None:
            return dict(headers)
        if names or changed is not None:
            pair = redacted(carried, self._redactors), redacted(changed or carried, self._redactors)
            self.rewrites.append(rules.foreign(len(self.rewrites), names, *pair, outcome.etag))
        for rewrite in outcome.rewrites():
            rewrite["position"] = len(self.rewrites)
            self.rewrites.append(rewrite)
        self._headers = {k: v for k, v in outcome.draft.headers.items() if v is not None}
        self._removed = tuple(k for k, v in outcome.draft.headers.items() if v is None)
        self._body = outcome.draft.body
        now = call_headers.merged(headers, ours, self._headers)
        if self._redactors:
            self._carry(redacted(self._body, self._redactors), now)
        elif self._body is not self._given:
            self._carry(self._body, now, plain=outcome.plain and not self.escaped)
        return now

    def _failed(self, rule_set: RuleSet) -> None:
        """The rules could not be carried out, by a fault of ours: each then fails as it says, open or closed."""
        _log.exception("the rules could not be applied to a call of %s", self.operation)
        self.ruleset, self._body, self._headers = rule_set.etag, self._given, self._app_headers
        closed = rule_set.refusing(self.facts)
        if closed is not None:
            reason = f"intercept {closed.key} could not be applied"
            self.decision = Decision(closed.key, closed.revision, Block(reason))

    def _carry(self, body: dict[str, Any], headers: Mapping[str, Any], *, plain: bool = False) -> None:
        """Makes Relay's copy anew: redacted, since Relay records what it carries, and escaped unless it is `plain`."""
        carried, self.escaped = (body, []) if plain else escape(body)
        given = self._relay_request is not None
        self._copy = Carried(self._native if not given or self.codec else None, carried, headers)
        if given and self.codec and self._copy.annotation is None and self._wire is not None:
            self._copy.stand_in(self._wire.empty)

    def _take(self, content: Any, headers: Mapping[str, Any]) -> tuple[list[str], dict[str, Any] | None]:
        """Lays what intercepts that are not ours did over our body and headers.

        Returns the names of headers they changed, and their body if it is another one. A content that is no object
        counts as no rewrite (R75).
        """
        names = call_headers.changed_by_others(self._carries, headers)
        self._carries = headers
        for name in names:
            self._headers = {k: v for k, v in self._headers.items() if k.lower() != name.lower()}
            if name in headers:
                self._headers[name] = headers[name]
        if not isinstance(content, dict) or self._copy.says(content):
            return names, None
        self._body = overlay(self._body, self._copy.body, content)
        return names, content

    # -- the provider's side ---------------------------------------------------------------------------------------

    def outgoing(self, passed: nemo_relay.LLMRequest) -> Mapping[str, Any]:
        """The provider's request. `request` itself when nothing changed at all (R71), else a deep merge (R72, R76).

        Where an intercept of the host broke the chain before ours, the rules run here: no call goes without them.
        """
        headers = passed.headers
        self._passed = passed.content
        content = self._copy.body if self._codec_failed else self._passed
        if self.ruleset is None:
            self._run(rules.current(), content, headers)
        else:
            self._take_late(content, headers)
        body = self._body if self._given is self._app else overlay(self._app, self._given, self._body)
        self.changed = body is not self._app
        trace = self._wire is not None or "extra_headers" in self.request  # R77
        extra = call_headers.outgoing(self._headers, self._removed, headers, trace=trace)
        if not self.changed and extra == self._app_headers and not self._removed:
            return self.request
        out = {k: body.get(k, v) for k, v in self.request.items() if k in body or k not in self._app}
        out.update({k: v for k, v in body.items() if k not in out})
        if extra or self._removed or "extra_headers" in self.request:
            out["extra_headers"] = extra
        return out

    def _take_late(self, content: Any, headers: Mapping[str, Any]) -> None:
        before = self._copy.body
        names, changed = self._take(content, headers)
        if not names and changed is None:
            return
        self.rewrites.append(rules.foreign(len(self.rewrites), names, before, changed or before, self.ruleset))
        if changed is not None:
            self._copy = Carried(None, changed, headers)
            if self.escaped:
                self.escaped = escape(redacted(self._body, self._redactors))[1]

    # -- the record ------------------------------------------------------------------------------------------------

    @property
    def redacts(self) -> bool:
        """Whether a redact rule is about this call: the content of its chunks must not be recorded."""
        return bool(self._redactors)

    def redact(self, value: Any) -> Any:
        """`value`, JSON, as it may be recorded."""
        return redacted(value, self._redactors)

    def held_request(self) -> dict[str, Any]:
        """The body as it may be recorded of a call that never started, because Relay refused it."""
        if self.ruleset is None:
            self._redact_early()
        return self._copy.body

    def _redact_early(self) -> None:
        """What must not be recorded is known before the rules run, and holds where they never do."""
        self._redactors = rules.redactors(rules.current(), self.facts)
        if self._redactors:
            self._carry(redacted(self._body, self._redactors), call_headers.carriable(self._headers))

    def make_ready(self) -> None:
        """Makes what Relay and the callback will ask for, on whatever thread has the time."""
        if self.ruleset is not None and self.codec is not None and self.relay_request is not None:
            self._marked = self._marked_of(), self._request_mark(exact=True)

    def _marked_of(self) -> tuple[Any, ...]:
        return self._copy, self._body, self._headers

    def _request_mark(self, *, exact: bool) -> Request:
        """Data of `relay.request`, empty when the llm scope's start says all; `exact` where it says our copy."""
        if exact and self._marked is not None and all(map(operator.is_, self._marked[0], self._marked_of())):
            return self._marked[1]
        mark: Request = {}
        if self._body is not self._given:
            app = escape(redacted(self._given, self._redactors))[0] if self._redactors else self._carriable
            if not exact:
                mark["app"] = app
            elif patch := json_patch.diff(self._copy.body, app):
                mark["app_patch"] = patch
        if not exact:
            mark["provider"] = self._copy.body
        if self.escaped:
            mark["escaped"] = self.escaped
        if names := [*changed_headers(self._app_headers, self._headers), *self._removed]:
            mark["headers"] = sorted(set(names))
        return mark

    def late_marks(self) -> list[tuple[str, dict[str, Any]]]:
        """Marks (name, data) that the callback emits under the llm scope, after `outgoing`.

        They are the rewrites that Relay does not tell by itself, since they were seen after our intercept (each is
        given once), and `relay.request` where it is another one than our intercept told.
        """
        late = [(REWRITE, _data(r)) for r in self.rewrites[self._reported :]]
        self._reported = len(self.rewrites)
        exact = isinstance(self._passed, dict) and self._copy.says(self._passed)
        if exact and self._told is self._copy and not late:
            return []
        mark = self._request_mark(exact=exact)
        return [*late, (REQUEST, _data(mark))] if mark else late

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
    return type(value).__name__ in ("NotGiven", "Omit")


def _text(value: Any) -> str | None:
    """A fact about a call, None where the app gave something that is no text, such as a list for a model."""
    return value if isinstance(value, str) else None
