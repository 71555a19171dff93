"""Chunks of a stream put together to the response they make: one module, and one accumulator, for each wire format."""

from __future__ import annotations

from adapters.accumulators.anthropic import AnthropicStreamAccumulator
from adapters.accumulators.base import Accumulator
from adapters.accumulators.chat import ChatStreamAccumulator
from adapters.accumulators.responses import ResponsesStreamAccumulator

__all__ = [
    "Accumulator",
    "AnthropicStreamAccumulator",
    "ChatStreamAccumulator",
    "ResponsesStreamAccumulator",
    "for_api_mode",
]

_KINDS: dict[str, type[ChatStreamAccumulator | AnthropicStreamAccumulator | ResponsesStreamAccumulator]] = {
    "chat_completions": ChatStreamAccumulator,
    "codex_responses": ResponsesStreamAccumulator,
    "anthropic_messages": AnthropicStreamAccumulator,
}


def for_api_mode(api_mode: str) -> Accumulator | None:
    """A new accumulator for the stream of one call, None where the wire format is not known."""
    kind = _KINDS.get(api_mode)
    return kind() if kind else None
