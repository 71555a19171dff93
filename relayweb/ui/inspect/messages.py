"""Provider bodies as a conversation: who said what, with tool calls, reasoning and pictures told apart.

One reader for all wire formats, by shape and not by declared format: what people record is often a mixture. What it
cannot place is listed, never dropped, and nothing that was recorded makes it raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from relayweb.ui.inspect import jsonview, parts
from relayweb.ui.inspect.jsonview import dump
from relayweb.ui.inspect.parts import Part, preview

LOOKED_UP = 16
"""Tool calls of one message whose results are read beside it."""
JOINED = 100
"""Items of the Responses format that make one message at most."""


@dataclass
class Message:
    role: str
    parts: list[Part] = field(default_factory=list)
    other: list[tuple[str, str]] = field(default_factory=list)
    pointer: str = ""
    note: str = ""
    name: str = ""

    @property
    def icon(self) -> str:
        return {"system": "system", "developer": "system", "user": "user", "tool": "tool", "function": "tool"}.get(
            self.role, "llm" if self.role in ("assistant", "model") else "mark"
        )

    @property
    def tone(self) -> str:
        return {"tool": "k-tool", "function": "k-tool", "assistant": "k-llm", "model": "k-llm"}.get(self.role, "k-mark")

    @property
    def css(self) -> str:
        return {"developer": "system"}.get(self.role, self.role if self.role in ("user", "system", "tool") else "")


@dataclass
class Body:
    """A request or a response, read."""

    messages: list[Message] = field(default_factory=list)
    count: int = 0
    """Of a request: how many messages it has, read or not."""
    first: int = 0
    """Of a request: how many come before those that were read."""
    settings: list[tuple[str, str]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    other: list[tuple[str, str]] = field(default_factory=list)
    understood: bool = True
    untold: bool = False
    """Only facts and figures are recorded, not what was said."""
    stop: str = ""


_SETTINGS = (
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "stop_sequences",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "response_format",
    "text",
    "service_tier",
    "previous_response_id",
    "output_config",
)
_CONVERSATION = {"messages", "system", "instructions", "input", "tools"}
_RESPONSE_FACTS = {"id", "object", "created", "created_at", "completed_at", "type", "model", "usage", "status", "role"}


def request(body: Any, before: int | None = None, most: int | None = None) -> Body:
    """A request of any of the wire formats.

    Args:
        before: messages from this one on are not read; none are left out if it is not given.
        most: how many are read, the last ones; a history may hold hundreds of thousands.
    """
    if not isinstance(body, dict):
        return Body(understood=False)
    told: list[Sequence[Message]] = []
    for key in ("system", "instructions"):
        if body.get(key) is not None:
            told.append([_said("system", body[key], f"/{key}")])
    for key in ("messages", "input"):
        if key in body:
            told.append(_history(body[key], f"/{key}"))
    made = Body(count=sum(map(len, told)))
    before = made.count if before is None else min(before, made.count)
    made.first = 0 if most is None else max(0, before - most)
    made.messages = list(_stretch(told, made.first, before))
    made.settings = [(key, preview(body[key])) for key in _SETTINGS if key in body]
    made.tools = list(_tools(body.get("tools")))
    known = {*_SETTINGS, *_CONVERSATION}
    made.other = [(str(key), preview(value)) for key, value in body.items() if key not in known]
    made.understood = bool(made.count or made.settings)
    made.untold = made.understood and not made.count
    return made


def _stretch(told: Sequence[Sequence[Message]], first: int, before: int) -> Iterator[Message]:
    """Those from number `first` to `before` of lists put one after another."""
    for some in told:
        for n in range(max(first, 0), min(before, len(some))):
            yield some[n]
        first, before = first - len(some), before - len(some)


def response(body: Any) -> Body:
    """A response of any of the wire formats, or what was put together from a stream."""
    if isinstance(body, str) and body:
        return Body([_said("assistant", body, "")])
    if not isinstance(body, dict) or not body:
        return Body(understood=False)
    made = Body()
    if isinstance(body.get("choices"), list):
        for n, choice in enumerate(body["choices"]):
            made.messages += _choice(choice, f"/choices/{n}")
            if isinstance(choice, dict) and isinstance(choice.get("finish_reason"), str):
                made.stop = choice["finish_reason"]
    elif "output" in body and isinstance(body["output"], list):
        made.messages += _history(body["output"], "/output", "assistant")
    elif "content" in body or "tool_calls" in body:
        made.messages.append(_message(body, "", "assistant", known=_RESPONSE_FACTS | {"stop_reason", "finish_reason"}))
    for key in ("stop_reason", "finish_reason"):
        if isinstance(body.get(key), str):
            made.stop = body[key]
    placed = {*_RESPONSE_FACTS, "choices", "output", "content", "tool_calls", "stop_reason", "finish_reason"}
    if "content" not in body:
        made.other = [(str(k), preview(v)) for k, v in body.items() if k not in placed and v not in (None, [], {})]
    made.understood = bool(made.messages)
    made.untold = not made.messages and not made.other
    return made


def _choice(choice: Any, pointer: str) -> Iterator[Message]:
    if not isinstance(choice, dict):
        yield _said("assistant", choice, pointer)
        return
    for key in ("message", "delta"):
        if isinstance(choice.get(key), dict):
            yield _message(choice[key], f"{pointer}/{key}", "assistant")
            return
    if "text" in choice:
        yield Message("assistant", list(parts.read(choice["text"], f"{pointer}/text")), pointer=pointer)


def _is_message(item: dict[str, Any]) -> bool:
    return "role" in item or item.get("type") == "message" or ("content" in item and "type" not in item)


def last_of(role: str, items: Sequence[bytes], pointer: str) -> Message | None:
    """The last message of a role, looked for from the end: a history may hold hundreds of thousands.

    Args:
        items: messages of a request as JSON texts; `pointer` is that of their list.
    """
    size = 4
    while True:
        first = max(0, len(items) - size)
        some = [jsonview.read(text) for text in items[first:]]
        found = [message for message in _history(some, pointer, first=first) if message.role == role]
        if found or not first:
            return found[-1] if found else None
        size *= 16


def _history(value: Any, pointer: str, role: str = "user", first: int = 0) -> Sequence[Message]:
    if isinstance(value, list):
        return _History(value, pointer, role, first)
    return [_said(role, value, pointer)] if value is not None else []


class _History(Sequence[Message]):
    """Messages of a list, each read when it is asked for.

    Items of the Responses format that follow each other are one message of the assistant.
    """

    def __init__(self, items: list[Any], pointer: str, role: str, first: int) -> None:
        self.items, self.pointer, self.role, self.first = items, pointer, role, first
        self.begins: list[int] = []
        speaker = ""
        for n, item in enumerate(items):
            before, speaker = speaker, _speaker(item, role)
            joins = before == speaker == "assistant" and not (isinstance(item, dict) and _is_message(item))
            if not joins or n - self.begins[-1] >= JOINED:
                self.begins.append(n)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, n: Any) -> Any:
        begin = self.begins[n]
        end = self.begins[n + 1] if n + 1 < len(self.begins) else len(self.items)
        head, at = self.items[begin], f"{self.pointer}/{self.first + begin}"
        if isinstance(head, dict) and _is_message(head):
            made = _message(head, at, self.role)
        else:
            made = Message(_speaker(head, self.role), list(parts.read([head], at, single=True)), pointer=at)
        for k in range(begin + 1, end):
            made.parts += parts.read([self.items[k]], f"{self.pointer}/{self.first + k}", single=True)
        return made


def _speaker(item: Any, role: str) -> str:
    if isinstance(item, dict) and _is_message(item):
        said = item.get("role")
        return said if isinstance(said, str) else role
    return "tool" if parts.is_result(item) else "assistant" if isinstance(item, dict) else role


def _said(role: str, content: Any, pointer: str) -> Message:
    return Message(role, list(parts.read(content, pointer)), pointer=pointer)


def _message(item: dict[str, Any], pointer: str, role: str, known: Set[str] = frozenset()) -> Message:
    made = Message(_speaker(item, role), pointer=pointer)
    if isinstance(item.get("name"), str):
        made.name = item["name"]
    made.parts, held = parts.of_message(item, pointer, made.role)
    placed = {"role", "type", "id", "status", "name", "tool_call_id", *held, *known}
    made.other = [(str(k), preview(v)) for k, v in item.items() if k not in placed and v not in (None, [], {})]
    return made


def _tools(tools: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(tools, list):
        return
    for n, tool in enumerate(tools):
        inner = tool.get("function") if isinstance(tool, dict) and isinstance(tool.get("function"), dict) else tool
        if not isinstance(inner, dict):
            yield {"name": preview(tool), "description": "", "pointer": f"/tools/{n}"}
            continue
        name = inner.get("name") or inner.get("type") or "?"
        about = inner.get("description")
        yield {"name": str(name), "description": about if isinstance(about, str) else "", "pointer": f"/tools/{n}"}


def pair(
    bodies: Sequence[Body],
    tools: Mapping[str, Mapping[str, Any]],
    outputs: Callable[[Sequence[str]], Mapping[str, Any]],
) -> None:
    """Give each tool call the scope that ran for it, by tool call id, and the first words of what it gave back.

    Args:
        tools: scopes of the turn by tool call id.
        outputs: what tool scopes gave back, by their uuids; asked once.
    """
    ran = [part for body in bodies for part in _paired(body, tools)[:LOOKED_UP]]
    found = outputs(list({str(part.tool["uuid"]) for part in ran if part.tool}))
    for part in ran:
        value = found.get(str(part.tool["uuid"])) if part.tool else None
        text = value if isinstance(value, str) else "" if value is None else dump(value)
        part.outcome = " ".join(text[:400].split())[:200]


def _paired(body: Body, tools: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """The tool calls of a body that have a scope, now with it."""
    found, stack = [], [part for message in body.messages for part in message.parts]
    while stack:
        part = stack.pop()
        stack += part.parts
        if part.kind == "call" and part.id in tools:
            part.tool = tools[part.id]
            found.append(part)
    return found


__all__ = ["Body", "Message", "last_of", "pair", "request", "response"]
