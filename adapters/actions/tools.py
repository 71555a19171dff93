"""Keep or drop tools that the model may call."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from adapters.actions.base import Action, Draft, Field

_WITH_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")


def tool_name(tool: Any) -> str:
    """The name a model calls a tool by; a built-in one without a name goes by its type."""
    if not isinstance(tool, dict):
        return ""
    for kind in ("function", "custom"):
        inner = tool.get(kind)
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    return str(tool.get("name") or tool.get("server_label") or tool.get("type") or "")


@dataclass(frozen=True)
class Tools(Action):
    type = "tools"
    title = "Keep or drop tools"
    help = (
        "A tool_choice that names a dropped tool goes too. Anthropic refuses a history with tool calls when no tool is "
        "left: then the tools stay and tool_choice becomes none."
    )
    fields = (
        Field("mode", "choice", "keep: only these; drop: all but these.", True, choices=("keep", "drop")),
        Field("names", "list", "Tool names; globs. A built-in tool goes by its type, e.g. web_search*.", required=True),
    )

    mode: str
    names: tuple[str, ...]

    def _stays(self, tool: Any) -> bool:
        name = tool_name(tool)
        return any(fnmatchcase(name, glob) for glob in self.names) == (self.mode == "keep")

    def apply(self, draft: Draft) -> Draft:
        body = draft.body
        for member in ("tools", "functions"):
            tools = body.get(member)
            if isinstance(tools, list):
                kept = [tool for tool in tools if self._stays(tool)]
                if len(kept) < len(tools):
                    body = self._without(body, member, kept, draft.facts.api_mode)
        return draft.with_body(body)

    def _without(self, body: dict[str, Any], member: str, kept: list[Any], api_mode: str) -> dict[str, Any]:
        if not kept and api_mode == "anthropic_messages" and _calls_tools(body):
            return {**body, "tool_choice": {"type": "none"}}
        if not kept:
            gone = _WITH_TOOLS if member == "tools" else ("functions", "function_call")
            return {k: v for k, v in body.items() if k not in gone}
        body = {**body, member: kept}
        choice = body.get("tool_choice" if member == "tools" else "function_call")
        if isinstance(choice, dict) and choice.get("type") not in ("auto", "any", "none", "allowed_tools"):
            names = {tool_name(tool) for tool in kept}
            if tool_name(choice) not in names:
                del body["tool_choice" if member == "tools" else "function_call"]
        elif isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            return {**body, "tool_choice": self._allowed(choice)}
        return body

    def _allowed(self, choice: dict[str, Any]) -> dict[str, Any]:
        """OpenAI's list of allowed tools, which Chat Completions wraps once more."""
        inner = choice.get("allowed_tools")
        if isinstance(inner, dict):
            return {**choice, "allowed_tools": self._allowed(inner)}
        tools = choice.get("tools")
        return {**choice, "tools": [t for t in tools if self._stays(t)]} if isinstance(tools, list) else choice


def _calls_tools(body: dict[str, Any]) -> bool:
    messages = body.get("messages")
    return any(
        isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result")
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for block in message["content"]
    )
