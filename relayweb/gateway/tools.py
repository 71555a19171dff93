"""Tools the client runs between two calls, as the gateway sees them: asked for in an answer, answered in a request."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from adapters.json_values import escape
from adapters.relay_runtime import RelayTurnContext
from relayweb.gateway.conversation import ToolCall
from relayweb.gateway.words import OpenTool
from relayweb.recording.writing.writer import writer

log = logging.getLogger(__name__)

# Says that start and end are those of the answer and of the request, not the tool's own.
_METADATA = {"relay.observed_by": "gateway"}


class ToolScopes:
    """The tool scopes of one turn. Never raises: without them the call itself is still whole."""

    def __init__(self, turn: RelayTurnContext) -> None:
        self._turn = turn
        self._running: dict[str, Any] = {}

    def start(self, tool: ToolCall, at: datetime | None) -> bool:
        """Opens a scope for a tool that an answer asked for `at`; False when it cannot be run, or not be recorded."""
        scope = self._turn.scope
        if scope is None or not tool.complete or not tool.id or tool.id in self._running:
            return False
        now = at or datetime.now(UTC)
        try:
            with scope.entered():
                handle = scope.relay.tools.call(
                    tool.name,
                    escape(tool.arguments)[0],
                    handle=scope.handle,
                    tool_call_id=tool.id,
                    metadata=_METADATA,
                    timestamp=now,
                )
            self._running[tool.id] = handle, now
        except Exception as error:
            log.warning("the tool call %s is not recorded: %s", tool.name, error)
            return False
        return True

    @property
    def running(self) -> list[OpenTool]:
        """What another process needs to close the scopes in place of this one."""
        return [
            handle if isinstance(handle, OpenTool) else OpenTool(id, handle.name, handle.uuid, handle.parent_uuid, at)
            for id, (handle, at) in self._running.items()
        ]

    def inherit(self, tools: Iterable[OpenTool]) -> None:
        """Closes scopes from now on that a process opened which is gone."""
        for tool in tools:
            self._running.setdefault(tool.id, (tool, tool.at))

    def finish(self, results: Mapping[str, Any]) -> list[str]:
        """Closes the scopes whose results a request brings; returns their ids."""
        done = [id for id in results if id in self._running]
        for id in done:
            self._end(id, results[id], None)
        return done

    def abandon(self) -> list[str]:
        """Closes what is left, for no result was ever sent back; returns their ids.

        Nobody knows whether they ran, or how long: their end is the time of their start.
        """
        left = list(self._running)
        for id in left:
            self._end(id, None, {**_METADATA, "outcome": "interrupted"}, self._running[id][1])
        return left

    def _end(self, id: str, result: Any, metadata: dict[str, str] | None, at: datetime | None = None) -> None:
        handle, scope = self._running.pop(id)[0], self._turn.scope
        if scope is None:
            return
        try:
            if isinstance(handle, OpenTool):  # Relay closes only what this process opened
                writer().offer(_end_of(handle, escape(result)[0], metadata, at))
                return
            with scope.entered():
                scope.relay.tools.call_end(
                    handle, scope.relay.ToolExecutionResult(escape(result)[0]), metadata=metadata, timestamp=at
                )
        except Exception as error:
            log.warning("the end of a tool call is not recorded: %s", error)


def _end_of(tool: OpenTool, result: Any, metadata: dict[str, str] | None, at: datetime | None) -> bytes:
    event = {
        "atof_version": "0.1",
        "kind": "scope",
        "scope_category": "end",
        "category": "tool",
        "category_profile": {"tool_call_id": tool.id},
        "name": tool.name,
        "uuid": tool.uuid,
        "parent_uuid": tool.parent_uuid,
        "timestamp": at or datetime.now(UTC),
        "attributes": [],
        "data": result,
        "data_schema": None,
        "metadata": metadata,
    }
    return msgspec.json.encode(event)
