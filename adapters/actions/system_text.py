"""Prepend, append or replace system text, in the place where each wire format keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapters.actions.base import Action, Draft, Field

_SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True)
class SystemText(Action):
    type = "system_text"
    title = "System text"
    help = "Chat Completions: the first system or developer message; Responses: `instructions`; Anthropic: `system`."
    fields = (
        Field("where", "choice", "What to do with the text.", True, choices=("prepend", "append", "replace")),
        Field("text", "textarea", "The text.", required=True),
        Field("separator", "text", "Between the app's text and this one.", default="\n\n"),
    )

    where: str
    text: str
    separator: str = "\n\n"

    def apply(self, draft: Draft) -> Draft:
        body = draft.body
        if draft.facts.api_mode == "anthropic_messages":
            return draft.with_body(self._member(body, "system"))
        if draft.facts.api_mode == "codex_responses":
            return draft.with_body(self._member(body, "instructions"))
        return draft.with_body(self._message(body))

    def _joined(self, old: str) -> str:
        if self.where == "replace" or not old:
            return self.text
        return self.text + self.separator + old if self.where == "prepend" else old + self.separator + self.text

    def _member(self, body: dict[str, Any], name: str) -> dict[str, Any]:
        old = body.get(name)
        if isinstance(old, list):
            return {**body, name: self._blocks(old)}
        new = self._joined(old if isinstance(old, str) else "")
        return body if old == new else {**body, name: new}

    def _blocks(self, blocks: list[Any]) -> list[Any]:
        """Text blocks: the app's keep their cache_control; a replaced text takes over the last one there was."""
        block: dict[str, Any] = {"type": "text", "text": self.text}
        if self.where == "prepend":
            return [block, *blocks]
        if self.where == "append":
            return [*blocks, block]
        for old in reversed(blocks):
            if isinstance(old, dict) and old.get("cache_control") is not None:
                block["cache_control"] = old["cache_control"]
                break
        return [block]

    def _message(self, body: dict[str, Any]) -> dict[str, Any]:
        messages = body.get("messages")
        messages = messages if isinstance(messages, list) else []
        for i, message in enumerate(messages):
            if isinstance(message, dict) and message.get("role") in _SYSTEM_ROLES:
                content = message.get("content")
                new: Any
                if isinstance(content, list):
                    new = self._blocks(content)
                else:
                    new = self._joined(content if isinstance(content, str) else "")
                if new == content:
                    return body
                return {**body, "messages": [*messages[:i], {**message, "content": new}, *messages[i + 1 :]]}
        return {**body, "messages": [{"role": "system", "content": self.text}, *messages]}
