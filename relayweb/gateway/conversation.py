"""What a request and an answer say about the conversation they belong to, for each wire format.

Pure functions over parsed JSON of any shape: what is not understood is not there; nothing raises.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from adapters import accumulators

CHAT, RESPONSES, MESSAGES = "chat_completions", "codex_responses", "anthropic_messages"

# Claude Code puts its session into Anthropic's metadata.user_id: user_<hash>_account_<uuid>_session_<uuid>, or as JSON.
_SESSION_IN_USER_ID = re.compile(r"""_session_([0-9a-fA-F-]{8,})\Z|"session_id"\s*:\s*"([^"\\]{1,200})\"""")
# Items of a Responses output that the client must act on; other *_call items are run by the provider.
_CLIENT_CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    }
)


# Messages of the user by which a conversation is known again: those of one request must not push out all others'.
_MOST_PREFIXES = 64
# Tools that one answer asks for, as far as they are followed.
_MOST_TOOLS = 1000

# Why an answer stops that was not finished, in the words of the three formats.
_TRUNCATED = frozenset({"length", "max_tokens", "incomplete"})


@dataclass(frozen=True, slots=True)
class Question:
    """A request's place in its conversation.

    `prefixes` holds a digest for each message of the user, of everything the user had said up to and including it: two
    calls whose last ones are equal serve one turn, and the one before last leads to the turn before. System
    texts and answers are left out, for they change between calls of one turn (dates, trimming, cache marks).
    """

    model: str | None = None
    streaming: bool = False
    prefixes: tuple[str, ...] = ()
    asks_anew: bool = True
    asks: tuple[str, ...] = ()
    """Two digests of what is asked: the same for another provider, and the same for another model."""
    tool_results: dict[str, Any] = field(default_factory=dict)
    previous_response_id: str | None = None
    session_hint: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: Any
    complete: bool = True
    """False where the arguments were cut or are no JSON: no client can run that."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer leads to: tools to run (or a pause to go on from), or the end of the turn."""

    response_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    goes_on: bool = False
    failed: bool = False


def read_question(api_mode: str, body: Any) -> Question:
    """Reads a request body."""
    if not isinstance(body, dict):
        return Question()
    items = list(_items(api_mode, body))
    digest = hashlib.blake2b(digest_size=16)
    prefixes: list[str] = []
    results: dict[str, Any] = {}
    anew = True
    for item in items:
        found = dict(_tool_results(api_mode, item))
        if found:
            results.update(found)
            anew = False
        elif item.get("role") == "user":
            digest.update(_said(item.get("content")) + b"\x00")
            prefixes.append(digest.hexdigest())
            results, anew = {}, True
        elif item.get("role") not in ("system", "developer"):
            results = {} if item.get("role") == "assistant" else results
            anew = False
    return Question(
        model=_string(body.get("model")),
        streaming=body.get("stream") is True,
        prefixes=tuple(prefixes[-_MOST_PREFIXES:]),
        asks_anew=anew,
        asks=_asks(prefixes[-1], results, body, items) if prefixes else (),
        tool_results=results,
        previous_response_id=_string(body.get("previous_response_id")),
        session_hint=_session_hint(api_mode, body),
    )


def read_answer(api_mode: str, response: Any) -> Answer:
    """Reads a whole response, as it came or as put together from its chunks."""
    if not isinstance(response, dict):
        return Answer(failed=True)
    failed = bool(response.get("error")) or response.get("type") == "error" or response.get("status") == "failed"
    choices = [choice.get("finish_reason") for choice in _dicts(response.get("choices"))]
    truncated = not _TRUNCATED.isdisjoint(map(str, (response.get("stop_reason"), response.get("status"), *choices)))
    calls = _as_cut(tuple(_tool_calls(api_mode, response)), truncated)
    return Answer(
        response_id=_string(response.get("id")) if api_mode == RESPONSES else None,
        tool_calls=calls,
        goes_on=bool(calls) or response.get("stop_reason") == "pause_turn",
        failed=failed,
    )


class StreamWatch:
    """Follows a stream just closely enough to know, before its last byte is passed on, where the turn stands.

    Puts together only what its chunks tell of tools.
    """

    def __init__(self, api_mode: str) -> None:
        self.api_mode = api_mode
        self.response_id: str | None = None
        self.goes_on = False
        self.finished = False
        self.failed = False
        self.truncated = False
        self._tools: accumulators.Accumulator | None = None
        # Not bound: a cycle would keep each stream until the next full collection.
        self._observe = {CHAT: StreamWatch._chat, MESSAGES: StreamWatch._message}.get(api_mode, StreamWatch._response)

    def observe(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error") or chunk.get("type") in ("error", "response.failed"):
            self.failed = True
        self._observe(self, chunk)

    def answer(self) -> Answer:
        """What the stream led to, as far as it came."""
        if self.failed:
            return Answer(failed=True)
        calls: tuple[ToolCall, ...] = ()
        if self._tools is not None:
            calls = _as_cut(tuple(_tool_calls(self.api_mode, self._tools.finalize())), self.truncated)
        return Answer(self.response_id, calls, self.goes_on)

    def _tell(self, chunk: dict[str, Any]) -> None:
        if self._tools is None:
            self._tools = accumulators.for_api_mode(self.api_mode)
        if self._tools is not None:
            self._tools.observe(chunk)

    def _chat(self, chunk: dict[str, Any]) -> None:
        for choice in _dicts(chunk.get("choices")):
            delta = choice.get("delta")
            if isinstance(delta, dict) and (delta.get("tool_calls") or delta.get("function_call")):
                self.goes_on = True
                self._tell(chunk)
            self.finished |= bool(choice.get("finish_reason"))
            self.truncated |= choice.get("finish_reason") == "length"

    def _message(self, chunk: dict[str, Any]) -> None:
        block, delta = chunk.get("content_block"), chunk.get("delta")
        if isinstance(block, dict) and block.get("type") == "tool_use":
            self.goes_on = True
            self._tell(chunk)
        if isinstance(delta, dict):
            if delta.get("type") == "input_json_delta":
                self._tell(chunk)
            if delta.get("stop_reason"):
                self.finished = True
                self.truncated |= delta["stop_reason"] == "max_tokens"
                self.goes_on |= delta["stop_reason"] == "pause_turn"

    def _response(self, chunk: dict[str, Any]) -> None:
        item, response = chunk.get("item"), chunk.get("response")
        if isinstance(item, dict) and item.get("type") in _CLIENT_CALLS:
            self.goes_on = True
            self._tell(chunk)
        if isinstance(response, dict):
            self.response_id = _string(response.get("id")) or self.response_id
        self.truncated |= chunk.get("type") == "response.incomplete"
        self.finished |= chunk.get("type") in ("response.completed", "response.incomplete")


def _asks(last: str, results: dict[str, Any], body: dict[str, Any], items: list[dict[str, Any]]) -> tuple[str, str]:
    """The second digest also holds what tells a side call (a title, a summary) from another try of the same one."""
    digest = hashlib.blake2b(repr((last, sorted(results))).encode("utf-8", "surrogatepass"), digest_size=16)
    anywhere = digest.hexdigest()
    told = (item.get("content") for item in items if item.get("role") in ("system", "developer"))
    for text in (body.get("system"), body.get("instructions"), *told):
        digest.update(_said(text) + b"\x00")
    tools = body.get("tools")
    digest.update(repr((len(items), len(tools) if isinstance(tools, list) else 0)).encode())
    return anywhere, digest.hexdigest()


def _items(api_mode: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if api_mode != RESPONSES:
        yield from _dicts(body.get("messages"))
    elif isinstance(body.get("input"), str):
        yield {"role": "user", "content": body["input"]}
    else:
        yield from _dicts(body.get("input"))


def _tool_results(api_mode: str, item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if api_mode == CHAT and item.get("role") in ("tool", "function"):
        yield _id(item.get("tool_call_id") or item.get("name")), item.get("content")
    elif api_mode == MESSAGES and item.get("role") == "user":
        for block in _dicts(item.get("content")):
            if block.get("type") == "tool_result":
                yield _id(block.get("tool_use_id")), block.get("content")
    elif api_mode == RESPONSES and str(item.get("type")).endswith("_output"):
        yield _id(item.get("call_id") or item.get("id")), item.get("output")


def _tool_calls(api_mode: str, response: dict[str, Any]) -> Iterator[ToolCall]:
    if api_mode == CHAT:
        for choice in _dicts(response.get("choices")):
            message = choice.get("message")
            for call in _dicts(message.get("tool_calls") if isinstance(message, dict) else None):
                inner = call.get("function") or call.get("custom")
                inner = inner if isinstance(inner, dict) else {}
                free = call.get("type") == "custom"
                arguments = inner.get("arguments", inner.get("input"))
                yield _tool_call(call.get("id"), inner.get("name"), arguments, free)
    elif api_mode == MESSAGES:
        for block in _dicts(response.get("content")):
            if block.get("type") == "tool_use":
                yield _tool_call(block.get("id"), block.get("name"), block.get("input"))
    else:
        for item in _dicts(response.get("output")):
            if item.get("type") in _CLIENT_CALLS:
                arguments = item.get("arguments", item.get("input", item.get("action")))
                free = item["type"] != "function_call"
                yield _tool_call(
                    item.get("call_id") or item.get("id"), item.get("name") or item["type"], arguments, free
                )


def _as_cut(calls: tuple[ToolCall, ...], truncated: bool) -> tuple[ToolCall, ...]:
    """The calls of an answer that reached the limit of its length, which was in the last of them."""
    calls = (*calls[:-1], replace(calls[-1], complete=False)) if calls and truncated else calls
    return calls[:_MOST_TOOLS]


def _tool_call(id: Any, name: Any, arguments: Any, free: bool = False) -> ToolCall:
    """`free` arguments may be any text."""
    complete = True
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except ValueError:
            complete = free
        except RecursionError:
            pass
    return ToolCall(_string(id) or "", _string(name) or "tool", arguments, complete)


def _session_hint(api_mode: str, body: dict[str, Any]) -> str | None:
    if api_mode == RESPONSES:
        conversation = body.get("conversation")
        return _string(conversation.get("id") if isinstance(conversation, dict) else conversation)
    metadata = body.get("metadata")
    user_id = metadata.get("user_id") if api_mode == MESSAGES and isinstance(metadata, dict) else None
    if isinstance(user_id, str) and (match := _SESSION_IN_USER_ID.search(user_id)):
        return match[1] or match[2]
    return _string(user_id)


def _said(content: Any) -> bytes:
    """What the user said, the same for a plain text and for its one text block, whatever cache marks it bears."""
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    parts = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append(part["text"].encode("utf-8", "surrogatepass"))
        else:
            part = {k: v for k, v in part.items() if k != "cache_control"} if isinstance(part, dict) else part
            parts.append(json.dumps(part, sort_keys=True).encode())
    return b"\x01".join(parts)


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _id(value: Any) -> str:
    return str(value or "")[:200]  # as long as those of answers


def _string(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None
