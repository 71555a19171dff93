"""Answer a call without the provider, in its wire format, buffered and streamed."""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapters.actions.base import Action, Draft, Facts, Field, Respond, RuleError

_WORDS = re.compile(r"\s*\S+|\s+$")
_PIECE = 24  # characters in a streamed piece, about


def pieces(text: str) -> list[str]:
    """The text in streamed pieces that break before white space and, joined, are the text."""
    out: list[str] = []
    for word in _WORDS.findall(text):
        if out and len(out[-1]) + len(word) <= _PIECE:
            out[-1] += word
        else:
            out.append(word)
    return out


class Answer(NamedTuple):
    """What to say: text, a tool call, or both."""

    text: str
    tool: str | None
    arguments: str
    model: str
    usage_wanted: bool


def _id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex[:24]}"


def chat(answer: Answer) -> Respond:
    """`chat.completion` and its chunks."""
    top = {"id": _id("chatcmpl-"), "created": int(time.time()), "model": answer.model}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    finish = "stop"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if answer.text else None}]
    deltas += [{"content": piece} for piece in pieces(answer.text)]
    if answer.tool is not None:
        call = {
            "id": _id("call_"),
            "type": "function",
            "function": {"name": answer.tool, "arguments": answer.arguments},
        }
        message["tool_calls"] = [call]
        finish = "tool_calls"
        deltas.append({"tool_calls": [{"index": 0, **call}]})
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    body = {**top, "object": "chat.completion", "choices": [choice], "usage": usage}
    chunk = {**top, "object": "chat.completion.chunk"}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if answer.usage_wanted:
        chunks.append({**chunk, "choices": [], "usage": usage})
    return Respond(body, tuple(chunks), (None,) * len(chunks))


def anthropic(answer: Answer) -> Respond:
    """`message` and its events."""
    usage = {"input_tokens": 0, "output_tokens": 0}
    top = {"id": _id("msg_"), "type": "message", "role": "assistant", "model": answer.model}
    content: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []

    def block(start: dict[str, Any], whole: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        index = len(content)
        content.append(whole)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})

    if answer.text or answer.tool is None:
        texts = [{"type": "text_delta", "text": piece} for piece in pieces(answer.text)]
        block({"type": "text", "text": ""}, {"type": "text", "text": answer.text}, texts)
    if answer.tool is not None:
        call = {"type": "tool_use", "id": _id("toolu_"), "name": answer.tool}
        delta = {"type": "input_json_delta", "partial_json": answer.arguments}
        block({**call, "input": {}}, {**call, "input": json.loads(answer.arguments)}, [delta])
    stop = {"stop_reason": "tool_use" if answer.tool is not None else "end_turn", "stop_sequence": None}
    body = {**top, "content": content, **stop, "usage": usage}
    nothing = {"stop_reason": None, "stop_sequence": None}
    start = {"type": "message_start", "message": {**top, "content": [], **nothing, "usage": usage}}
    end = {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 0}}
    chunks = (start, *events, end, {"type": "message_stop"})
    return Respond(body, chunks, tuple(c["type"] for c in chunks))


def responses(answer: Answer) -> Respond:
    """`response` and its events."""
    usage = {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }
    top = {
        "id": _id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "model": answer.model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    output: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [
        {"type": kind, "response": {**top, "status": "in_progress", "output": [], "usage": None}}
        for kind in ("response.created", "response.in_progress")
    ]
    if answer.text or answer.tool is None:
        item, made = _message_item(answer.text, len(output))
        output.append(item)
        events += made
    if answer.tool is not None:
        item, made = _call_item(answer.tool, answer.arguments, len(output))
        output.append(item)
        events += made
    body = {**top, "status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": body})
    chunks = tuple({"type": e["type"], "sequence_number": i, **e} for i, e in enumerate(events))
    return Respond(body, chunks, tuple(c["type"] for c in chunks))


def _message_item(text: str, index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    item: dict[str, Any] = {"id": _id("msg_"), "type": "message", "role": "assistant"}
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    whole = {**item, "status": "completed", "content": [part]}
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    added = {**item, "status": "in_progress", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": added},
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
    ]
    events += [{"type": "response.output_text.delta", **at, "delta": p, "logprobs": []} for p in pieces(text)]
    events.append({"type": "response.output_text.done", **at, "text": text, "logprobs": []})
    events.append({"type": "response.content_part.done", **at, "part": part})
    events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
    return whole, events


def _call_item(name: str, arguments: str, index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    item: dict[str, Any] = {"id": _id("fc_"), "type": "function_call", "call_id": _id("call_"), "name": name}
    whole = {**item, "arguments": arguments, "status": "completed"}
    at = {"item_id": item["id"], "output_index": index}
    added = {**item, "arguments": "", "status": "in_progress"}
    return whole, [
        {"type": "response.output_item.added", "output_index": index, "item": added},
        {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
        {"type": "response.function_call_arguments.done", **at, "name": name, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


_FORMATS = {"chat_completions": chat, "codex_responses": responses, "anthropic_messages": anthropic}


@dataclass(frozen=True)
class RespondCall(Action):
    type = "respond"
    title = "Canned answer"
    help = "The provider is not called. Usage is zero tokens."
    fields = (
        Field("text", "textarea", "The answer's text.", default=""),
        Field("tool", "text", "Name of a tool to call.", default=None),
        Field("arguments", "json_object", "Arguments of that call.", default=None),
    )

    text: str = ""
    tool: str | None = None
    arguments: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.text and not self.tool:
            raise RuleError("text", "give a text, a tool call, or both")
        if self.arguments is not None and not self.tool:
            raise RuleError("arguments", "belong to a tool")

    def apply(self, draft: Draft) -> Draft:
        return draft.but(effect=self.answer(draft.body, draft.facts))

    def answer(self, body: dict[str, Any], facts: Facts) -> Respond:
        """The answer in the wire format of the call; raises ValueError where that is not known."""
        make = _FORMATS.get(facts.api_mode)
        if make is None:
            raise ValueError(f"no canned answer for calls in {facts.api_mode}")
        model = body.get("model")
        options = body.get("stream_options")
        return make(
            Answer(
                text=self.text,
                tool=self.tool or None,
                arguments=json.dumps(self.arguments or {}),
                model=model if isinstance(model, str) else facts.model or "",
                usage_wanted=isinstance(options, dict) and options.get("include_usage") is True,
            )
        )
