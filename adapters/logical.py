"""`logical_call`: one wanted answer and all attempts at it, for the body of a `with` block."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from adapters import failures, relay_llm


class logical_call:
    """Attempts at one answer: `with logical_call("openai", api_mode="chat_completions") as call: ...`, or `async with`.

    Each `execute`, `stream` or their async twins is the next attempt, in the live turn of this context. The logical
    call ends with the block: with `success`, with `cancelled` when it is cancelled or interrupted, with `failed` on any
    other exception.

    Args:
        name: The provider's name.
        api_mode: `chat_completions`, `codex_responses`, `anthropic_messages`, or another one without a codec.
        call_role: What the answer is for, such as `primary` or `auxiliary:title`.
        metadata: Whatever else the record of each attempt shall say.

    Attributes: `attempts`, how many there have been; `request_id`, which they share.
    """

    def __init__(
        self, name: str, *, api_mode: str, call_role: str = "primary", metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.attempts = 0
        self.request_id = uuid.uuid4().hex
        self._name = name
        self._metadata = {
            **(metadata or {}),
            "api_mode": api_mode,
            "call_role": call_role,
            "api_request_id": self.request_id,
        }

    def execute(self, request: Mapping[str, Any], callback: Callable[[Any], Any], **options: Any) -> Any:
        """The next attempt, buffered: `relay_llm.execute_current`, whose options it takes."""
        return relay_llm.execute_current(request, callback, **self._next(request, options))

    async def execute_async(self, request: Mapping[str, Any], callback: Callable[[Any], Any], **options: Any) -> Any:
        """The next attempt, buffered: `relay_llm.execute_current_async`."""
        return await relay_llm.execute_current_async(request, callback, **self._next(request, options))

    def stream(self, request: Mapping[str, Any], factory: Callable[[Any], Any], **options: Any) -> Any:
        """The next attempt, streamed: `relay_llm.stream_current`, whose options it takes."""
        return relay_llm.stream_current(request, factory, **self._next(request, options))

    async def stream_async(self, request: Mapping[str, Any], factory: Callable[[Any], Any], **options: Any) -> Any:
        """The next attempt, streamed: `relay_llm.stream_current_async`."""
        return await relay_llm.stream_current_async(request, factory, **self._next(request, options))

    def _next(self, request: Mapping[str, Any], options: dict[str, Any]) -> Any:
        self.attempts += 1
        return {
            "model_name": request.get("model"),
            **options,
            "name": self._name,
            "metadata": {**self._metadata, "retry_count": self.attempts - 1},
            "defer_logical_completion": True,
        }

    def __enter__(self) -> logical_call:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = "success" if error is None else failures.outcome(error)
        relay_llm.complete_logical_call(self.request_id, outcome=outcome)

    async def __aenter__(self) -> logical_call:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


__all__ = ["logical_call"]
