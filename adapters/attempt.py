"""One physical provider request on its way through Relay: where it belongs, what the rules decided, how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from adapters import failures, faults, marks
from adapters.actions.base import Block, Respond
from adapters.json_values import escape, frozen, holds, overlay, to_json
from adapters.options import CallOptions, StreamOptions
from adapters.places import Place
from adapters.scopes import emit_all
from adapters.sessions import PRIMARY, PROVIDER_KEY, RUNTIME_SCHEMA_KEY, RUNTIME_SCHEMA_VERSION, LogicalCall
from adapters.unplaced import CallBlocked
from adapters.views import changed, view

if TYPE_CHECKING:
    from adapters.wire import ProviderCall

log = logging.getLogger("adapters")


class CallFault(RuntimeError):
    """A rule of ours made the call fail as a provider would: HTTP status, headers and body are the rule's."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str], key: str = "") -> None:
        super().__init__(f"fault {status} injected by rule {key!r}")
        self.status_code, self.body, self.headers, self.key = status, body, dict(headers), key


class CallCut(ConnectionError):
    """A rule of ours cut the connection to the provider."""


class ProviderInterrupted(Exception):
    """Carries a KeyboardInterrupt or the like through Relay, which an event loop would not survive."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


def prepared(where: Place, request: Mapping[str, Any], options: CallOptions | StreamOptions) -> ProviderCall:
    """The caller's request as the rules would have it. Needs no event loop, and may run in any thread."""
    from adapters import intercepts, wire  # they need nemo_relay, which is there once there is a place

    given = options.metadata or {}
    call = wire.ProviderCall(
        request,
        api_mode=str(given.get("api_mode") or ""),
        provider=options.name,
        model=options.model_name,
        call_role=str(given.get("call_role") or PRIMARY),
        session_id=where.session.session_id,
        profile=where.host.profile,
        stream=isinstance(options, StreamOptions),
        request_id=given.get("api_request_id"),
    )
    intercepts.prepare(call)
    return call


class Attempt:
    """One attempt of a `prepared` request; `adapter` makes what the caller gets of JSON that no provider gave."""

    def __init__(self, where: Place, call: ProviderCall, options: CallOptions | StreamOptions) -> None:
        given = dict(options.metadata or {})
        self.where = where
        self.relay = where.host.relay
        self.deferred = options.defer_logical_completion
        stream = isinstance(options, StreamOptions)
        self.adapter = options.chunk_adapter if isinstance(options, StreamOptions) else options.response_adapter
        role = str(given.get("call_role") or PRIMARY)
        self.api_mode = str(given.get("api_mode") or "")
        self.wire = call
        self.model = options.model_name or None
        self.metadata = self._metadata(given, options.name)
        request_id = given.get("api_request_id")
        self.logical: LogicalCall | None = None
        if where.turn is not None and request_id:
            self.logical = where.turn.logical_call(str(request_id), role)
        self.parent = self.logical.scope if self.logical is not None else where.parent
        self.attributes = self.relay.LLMAttributes(self.relay.LLMAttributes.STREAMING) if stream else None
        self.context: Any = None  # of the llm scope, for marks under it
        self.started = False
        self.error: BaseException | None = None  # what the provider raised last
        self.own_error: BaseException | None = None  # what a rule of ours raised
        self.cut_after: int | None = None
        self._told_flags: set[str] = set()

    def _metadata(self, given: dict[str, Any], name: str) -> dict[str, Any]:
        meta = {"session_id": self.where.session.session_id, **given}
        meta.setdefault(PROVIDER_KEY, name)
        meta[RUNTIME_SCHEMA_KEY] = RUNTIME_SCHEMA_VERSION
        if self.where.turn is not None:
            meta.setdefault("turn_id", self.where.turn.turn_id)
        return meta if holds(meta) else dict(escape(to_json(meta))[0])

    def started_by(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What Relay's `function` gives for this attempt: called in the parent's stack, our call known to the rules."""
        with self.parent.entered(), self.wire.activate():
            return function(
                self.wire.operation,
                self.wire.relay_request,
                *arguments,
                handle=self.parent.handle,
                attributes=self.attributes,
                metadata=self.metadata,
                model_name=self.model,
                codec=self.wire.codec,
                response_codec=self.wire.response_codec,
            )

    # -- inside Relay's callback

    def outgoing(self, passed: Any) -> Mapping[str, Any]:
        """The provider's request; emits what the llm scope does not say by itself."""
        self.started = True
        self.error = self.own_error = None
        request = self.wire.outgoing(passed)
        self.context = None
        if late := self.wire.late_marks():  # escaped already
            self._emit(*late)
        return request

    def captured(self) -> Any:
        """The propagation context of the llm scope; inside Relay's callback only, kept for later."""
        if self.context is None:
            self.context = self.relay.capture_propagation_context()
        return self.context

    async def ruled(self, *, streaming: bool) -> Any:
        """Do what our rules decided: a `Respond` to answer with, None to ask the provider.

        Raises CallBlocked, CallFault or CallCut; a stream that is to be cut later gets its `cut_after`.
        """
        decision = self.wire.decision
        if decision is None:
            return None
        effect = decision.effect
        if isinstance(effect, Block):
            raise self._own(CallBlocked(effect.reason, decision.key, decision.revision))
        if isinstance(effect, Respond):
            return effect
        if effect.delay_s:
            await asyncio.sleep(effect.delay_s)
        if effect.status is not None:
            raise self._own(CallFault(effect.status, effect.body, effect.headers, decision.key))
        if effect.cut_after is not None and (not streaming or effect.cut_after == 0):
            raise self._own(self.cut())
        self.cut_after = effect.cut_after
        return None

    def cut(self) -> CallCut:
        decision = self.wire.decision
        return CallCut(f"the connection was cut by rule {decision.key!r}" if decision else "the connection was cut")

    def _own(self, error: Exception) -> Exception:
        self.own_error = error
        if not isinstance(error, CallBlocked):
            self.failed(error)
        return error

    def provider_failed(self, error: BaseException) -> BaseException:
        """Note what the provider raised and give what may be raised through Relay in its place."""
        self.error = error
        self.tell_flags()
        if isinstance(error, Exception):
            if not failures.is_abort(error):
                self.failed(error)
            if self.wire.redacts and self.wire.redact(str(error)) != str(error):
                return ProviderInterrupted(error)  # Relay writes an error's text into the record
        if type(error).__name__ == "CancelledError" or (
            isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration))
        ):
            return error
        return ProviderInterrupted(error)

    def failed(self, error: Exception) -> None:
        """Emit `relay.attempt_failed`."""
        try:
            self.told(failures.describe(error))
        except Exception as problem:
            faults.note("mark", problem)

    def told(self, data: marks.AttemptFailed) -> None:
        """Emit `relay.attempt_failed` for what the provider told, by an exception or inside its stream."""
        try:
            self.mark(marks.ATTEMPT_FAILED, self.wire.redact(dict(data)))
        except Exception as problem:
            faults.note("mark", problem)

    def tell_flags(self) -> None:
        """Emit `relay.flags` for the flags of the call that were not told yet."""
        if self.wire.flags and (new := sorted(self.wire.flags - self._told_flags)):
            self._told_flags.update(new)
            self.mark(marks.FLAGS, {"flags": new})

    def mark(self, name: str, data: Any) -> None:
        """Emit a mark under the llm scope; what Relay cannot hold is escaped, failures are only logged."""
        self._emit((name, escape(to_json(data))[0]))

    def _emit(self, *named: tuple[str, Any]) -> None:
        try:
            emit_all(self.relay, self.captured(), named)
        except Exception as problem:
            faults.note("mark", problem)

    def carried(self, plain: Any) -> Any:
        """The copy of a JSON result that Relay carries: redacted, and escaped where Relay cannot hold it."""
        return self.escaped(self.wire.redact(plain) if self.wire.redacts else plain)[0]

    def recorded(self, answer: Any) -> tuple[Any, Any]:
        """An answer as JSON, and the copy of it that Relay carries."""
        if not self.wire.redacts and holds(answer):
            return answer, answer
        plain = to_json(answer)
        return plain, self.carried(plain)

    def escaped(self, plain: Any) -> tuple[Any, list[str]]:
        """A JSON value as Relay can hold it, and the pointers of what stands escaped in it; warns once."""
        carried, pointers = escape(plain)
        if pointers:
            _warn_once("the record holds escaped copies of values that Relay cannot carry, first at %s", pointers[0])
        return carried, pointers

    # -- after Relay

    def original_error(self, error: BaseException) -> BaseException:
        """What to raise for what Relay raised: the provider's own object where it is that (R31), else Relay's (R32)."""
        if isinstance(error, ProviderInterrupted):
            return error.cause
        if self.error is not None:
            if isinstance(self.error, BaseException) and not isinstance(self.error, Exception):
                carrier = f"internal error: {ProviderInterrupted.__name__}: "
                if str(error).startswith(carrier):
                    return self.error
            if error is self.error or failures.is_wrapper(error, self.error):
                return self.error
        return error

    def delivered(self, result: Any, plain: Any, carried: Any, out: Any) -> Any:
        """The provider's own object when Relay passed it on unchanged, else its changed JSON as an object."""
        if frozen(out) == frozen(carried):
            return result
        value = overlay(plain, carried, out)
        return self.adapter(value) if self.adapter is not None else changed(result, value)

    def answered(self, out: Any) -> Any:
        """An answer that no provider gave."""
        return self.adapter(out) if self.adapter is not None else view(out)

    def blocked(self, error: BaseException) -> None:
        """Emit `relay.attempt_blocked` where Relay refused the call before its llm scope opened."""
        if self.started or not isinstance(error, Exception):
            return
        text = str(error)
        stage = "guardrail" if text.startswith("guardrail rejected") else "intercept"
        if (
            stage == "intercept"
            and type(error) is RuntimeError
            and text.startswith(("invalid argument", "internal error"))
        ):
            stage = "relay"
        held = self.wire.held_request()
        data = {
            "stage": stage,
            "reason": self.wire.redact(text),
            "error_type": type(error).__name__,
            "request": held,
            "model": self.model,
            "provider": self.metadata.get(PROVIDER_KEY),
            "api_mode": self.api_mode or None,
        }
        try:
            for rewrite in self.wire.rewrites:  # Relay drops the pending marks of a call that never started
                self.parent.mark(marks.REWRITE, dict(rewrite), self.metadata)
            self.parent.mark(marks.ATTEMPT_BLOCKED, escape(data)[0], self.metadata)
        except Exception as problem:
            faults.note("mark", problem)

    def complete(self, outcome: str) -> None:
        """Close the logical call, unless the caller does that."""
        if not self.deferred and self.logical is not None and self.where.turn is not None:
            self.where.turn.complete(self.logical, outcome)


_warned: set[str] = set()


def _warn_once(message: str, *args: Any) -> None:
    if message not in _warned:
        _warned.add(message)
        log.warning(message, *args)
