"""Leave out old messages, never separating a tool call from its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from adapters.actions.base import Action, Draft, Field, RuleError


class _Item(NamedTuple):
    """What a message or input item is to the cut: kind, and the tool calls it makes and answers."""

    kind: str  # system, user, model, result
    calls: frozenset[str]
    answers: frozenset[str]


def _item(item: Any) -> _Item:
    none: frozenset[str] = frozenset()
    if not isinstance(item, dict):
        return _Item("user", none, none)
    kind = item.get("type")
    if isinstance(kind, str) and kind.endswith("_call_output"):
        return _Item("result", none, frozenset({str(item.get("call_id"))}))
    if isinstance(kind, str) and kind not in ("message", "item_reference", "compaction"):
        return _Item("model", frozenset({str(item["call_id"])}) if "call_id" in item else none, none)
    role = item.get("role")
    if role in ("system", "developer"):
        return _Item("system", none, none)
    if role in ("tool", "function"):
        return _Item("result", none, frozenset({str(item.get("tool_call_id") or item.get("name"))}))
    calls, answers = _inside(item)
    if role == "assistant":
        return _Item("model", calls, none)
    return _Item("result" if answers else "user", none, answers)


def _inside(message: dict[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    blocks = message.get("content")
    blocks = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    calls = {str(b.get("id")) for b in blocks if b.get("type") == "tool_use"}
    answers = {str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"}
    made = message.get("tool_calls")
    calls |= {str(c.get("id")) for c in (made if isinstance(made, list) else ()) if isinstance(c, dict)}
    function = message.get("function_call")
    if isinstance(function, dict):
        calls.add(str(function.get("name")))
    return frozenset(calls), frozenset(answers)


@dataclass(frozen=True)
class TrimHistory(Action):
    type = "trim_history"
    title = "Trim the history"
    help = (
        "Cuts only where the rest is a whole conversation: before a user message, or, when the first user message is "
        "kept, before a step of the model. System messages always stay."
    )
    fields = (
        Field("keep_turns", "integer", "How many user messages, with all that followed each.", minimum=1),
        Field("keep_messages", "integer", "At least so many messages; the cut moves back to a safe place.", minimum=1),
        Field("keep_first", "bool", "Keep the first user message, the task of an agent.", default=True),
    )

    keep_turns: int | None = None
    keep_messages: int | None = None
    keep_first: bool = True

    def __post_init__(self) -> None:
        if (self.keep_turns is None) == (self.keep_messages is None):
            raise RuleError("keep_turns", "give either keep_turns or keep_messages")

    def apply(self, draft: Draft) -> Draft:
        member = "input" if draft.facts.api_mode == "codex_responses" else "messages"
        history = draft.body.get(member)
        if not isinstance(history, list):
            return draft
        items = [_item(item) for item in history]
        cut = self._cut(items)
        first = next((i for i, item in enumerate(items) if item.kind == "user"), -1) if self.keep_first else -1
        kept = [h for i, h in enumerate(history) if i >= cut or items[i].kind == "system" or i == first]
        return draft if len(kept) == len(history) else draft.with_body({**draft.body, member: kept})

    def _cut(self, items: list[_Item]) -> int:
        safe = self._safe(items)
        if self.keep_turns is not None:
            starts = [i for i in safe if items[i].kind == "user"]
            return starts[-self.keep_turns] if len(starts) >= self.keep_turns else 0
        counted = [i for i, item in enumerate(items) if item.kind != "system"]
        if len(counted) <= (self.keep_messages or 0):
            return 0
        limit = counted[-(self.keep_messages or 0)]
        return max((i for i in safe if i <= limit), default=0)

    def _safe(self, items: list[_Item]) -> list[int]:
        """Where the history may start: no result after it belongs to a call before it, and no step is torn."""
        last_answer: dict[str, int] = {}
        for i, item in enumerate(items):
            for answer in item.answers:
                last_answer[answer] = i
        safe: list[int] = []
        needed = -1  # the farthest result of a call seen so far
        before: str | None = None
        for i, item in enumerate(items):
            step = item.kind == "model" and self.keep_first and before in ("user", "result")
            if needed < i and (item.kind == "user" or step):
                safe.append(i)
            for call in item.calls:
                needed = max(needed, last_answer.get(call, -1))
            before = item.kind if item.kind != "system" else before
        return safe
