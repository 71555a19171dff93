"""Calls to a model, each one attempt through the core; buffered ones here, streams in streaming.py."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from adapters import relay_llm, unplaced, wire
from adapters.actions.base import Facts, Unread
from relayweb.gateway import exchange as provider
from relayweb.gateway.answering import Answering, Cut
from relayweb.gateway.conversation import Answer, Question, read_answer, read_question
from relayweb.gateway.errors import GatewayError
from relayweb.gateway.exchange import Exchange, ProviderError
from relayweb.gateway.headers import Caller, Headers, to_client
from relayweb.gateway.state import Call
from relayweb.gateway.turns import Registry
from relayweb.recording.projection.joining import GATEWAY

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Managed:
    """A call to a model and its place. Without a `call` it goes out all the same and is not recorded."""

    exchange: Exchange
    api_mode: str
    question: Question
    caller: Caller
    tenant: Hashable
    registry: Registry
    call: Call | None

    @property
    def options(self) -> dict[str, Any]:
        """What execute_async and stream_async take alike."""
        call = self.call
        assert call is not None
        return {
            "session_id": call.turn.session.id,
            "name": self.exchange.incoming.target.name,
            "model_name": self.question.model,
            "metadata": {
                "api_mode": self.api_mode,
                "api_request_id": call.id,
                "call_role": self.caller.call_role,
                "retry_count": call.retry_count,
            },
            "defer_logical_completion": True,
        }

    def answered(self, answer: Answer) -> None:
        """Tells the registry how the call stands after a 2xx answer."""
        if self.call is None:
            return
        if answer.failed:
            self.registry.failed(self.call, retryable=False)
        else:
            self.registry.answered(self.call, answer, self.tenant)
        self.call = None

    def failed(self, *, retryable: bool, blocked: bool = False) -> None:
        if self.call is not None:
            self.registry.failed(self.call, retryable=retryable, outcome="blocked" if blocked else "failed")
            self.call = None

    def cancelled(self, *, retryable: bool) -> None:
        if self.call is not None:
            self.registry.cancelled(self.call, retryable=retryable)
            self.call = None


async def place(exchange: Exchange, api_mode: str, caller: Caller, tenant: Hashable, registry: Registry) -> Managed:
    """Finds the session, turn and logical call of a request. When that fails the call is made without a record.

    Raises CallBlocked where it must not be made then, because a rule that fails closed is for it.
    """
    question = Question()
    call = None
    try:
        question = read_question(api_mode, exchange.body)
        content = exchange.incoming.content
        digest = hashlib.blake2b(content, digest_size=16).digest()
        platform = f"gateway:{exchange.incoming.target.name}"
        await registry.recall(caller, question, digest, tenant, platform)
        call = registry.begin(caller, question, digest, tenant, platform)
    except Exception:
        log.exception("a call could not be placed; it goes through unrecorded")
    if call is None or call.turn.relay.scope is None:
        registry.losses["calls"] += 1
    if call is None:
        unplaced.check(
            Facts(
                api_mode,
                exchange.incoming.target.name,
                question.model,
                GATEWAY,
                caller.call_role,
                stream=question.streaming,
                unread=question.model is None,
            )
        )
    return Managed(exchange, api_mode, question, caller, tenant, registry, call)


async def buffered(managed: Managed, client: Answering) -> None:
    """Makes a call whose answer comes in one piece, and passes the answer on."""
    exchange = managed.exchange
    content: bytes = b""
    parsed: Any = None

    async def ask(request: Mapping[str, Any] | None) -> Any:
        nonlocal content, parsed
        response = await exchange.send(request)
        content = await exchange.read()
        shown = provider.plain(response, content)
        call = wire.current_call()
        if call is not None and (exchange.replaced or provider.is_replaced(shown)):
            call.flags.add("replaced_text")
        if not response.is_success:
            raise ProviderError(response, content)
        parsed = provider.read(shown)
        if parsed is None:
            parsed = {"text": shown[:65_536].decode("utf-8", "replace")}
        return parsed

    if managed.call is None:
        result = await ask(None)
    else:
        with managed.call.turn.relay.activate():
            result = await relay_llm.execute_async(
                exchange.body, ask, response_adapter=lambda value: value, **managed.options
            )
    if isinstance(parsed, Unread) and result is not parsed:
        text = "an intercept changed an answer that has too many values to be read; let it pass such answers"
        raise GatewayError(502, "answer_too_complex", text, retry=False)
    managed.answered(read_answer(managed.api_mode, result))
    response = exchange.response
    if result is parsed and response is not None:
        headers = to_client(response.headers.raw, length=len(content))
        await client.whole(response.status_code, headers, content)
        return
    content = provider.dump(result)
    sent = to_client(response.headers.raw) if response is not None else [(b"content-type", b"application/json")]
    sent = [(name, value) for name, value in sent if name != b"content-encoding"]
    status = response.status_code if response is not None else 200
    await client.whole(status, [*sent, (b"content-length", str(len(content)).encode())], content)


async def pass_through(exchange: Exchange, client: Answering) -> None:
    """Any other request: there and back untouched, and not recorded."""
    response = await exchange.send()
    try:
        await client.start(response.status_code, to_client(response.headers.raw, keep_length=True))
        async for part in provider.raw(response):
            await client.piece(part)
    except httpx2.TransportError as error:
        raise Cut(f"the upstream broke off: {error}") from error
    await client.end()


def error_answer(error: Exception, exchange: Exchange) -> tuple[int, Headers, bytes]:
    """What a client gets for an exception: a provider's own answer unchanged, else one in its wire format.

    Raises Cut where a rule wants the connection cut.
    """
    if isinstance(error, ProviderError):
        length = len(error.content)
        return error.status_code, to_client(error.headers.raw, length=length), error.content
    if isinstance(error, relay_llm.CallFault):
        return _fault(error)
    if isinstance(error, relay_llm.CallCut):
        raise Cut(str(error)) from error
    return _explained(error, exchange).response(exchange.incoming.api_mode)


def is_retryable(error: Exception) -> bool:
    """Whether the client's SDK will try again."""
    if isinstance(error, ProviderError):
        return error.retryable
    if isinstance(error, relay_llm.CallFault):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, (httpx2.TransportError, relay_llm.CallCut))


def _fault(error: relay_llm.CallFault) -> tuple[int, Headers, bytes]:
    is_text = isinstance(error.body, str)
    content = error.body.encode("utf-8", "replace") if is_text else json.dumps(error.body).encode()
    given = {
        name.lower().encode("latin-1", "replace"): str(value).encode("latin-1", "replace")
        for name, value in error.headers.items()
    }
    given.setdefault(b"content-type", b"text/plain; charset=utf-8" if is_text else b"application/json")
    return error.status_code, to_client(given.items(), length=len(content)), content


def _explained(error: Exception, exchange: Exchange) -> GatewayError:
    target = exchange.incoming.target
    where = f"upstream {target.name} at {target.base_url}"
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, relay_llm.CallBlocked):
        rule = f"intercept {error.key}" + (f" (revision {error.revision})" if error.revision is not None else "")
        return GatewayError(403, "blocked", f"blocked by {rule}: {error.reason}", retry=False)
    if isinstance(error, httpx2.ConnectTimeout):
        return GatewayError(504, "upstream_timeout", f"{where} accepted no connection in time")
    if isinstance(error, httpx2.TimeoutException):
        return GatewayError(504, "upstream_timeout", f"{where} did not answer in time")
    if isinstance(error, httpx2.TransportError):
        return GatewayError(502, "upstream_unreachable", f"cannot reach {where}: {str(error) or type(error).__name__}")
    if isinstance(error, httpx2.InvalidURL):
        return GatewayError(400, "invalid_path", f"no valid URL at {where}: {error}", retry=False)
    text = str(error)
    if text.startswith("guardrail rejected"):
        return GatewayError(403, "blocked", f"blocked before it reached {where}: {text}", retry=False)
    log.error("a call failed before it reached %s", where, exc_info=error)
    return GatewayError(
        500, "intercept_failed", f"an intercept failed before the call reached {where}: {type(error).__name__}: {text}"
    )
