"""What a provider's request, answer, chunk or error means, read from JSON of any shape.

Pure functions over parsed JSON. They are called on everything that arrives, so none of them raises: what cannot be read
is None. Sources: the API references of OpenAI (Chat Completions, Responses), Anthropic (Messages) and Gemini,
OpenTelemetry's exception and status attributes, and what Relay itself writes (annotations, `llm.chunk` marks).
"""

from relayweb.recording.conventions.answers import (
    ToolCall,
    answer_texts,
    finish_reason,
    finish_reasons_differ,
    tool_calls,
    unwrap,
)
from relayweb.recording.conventions.chunks import ChunkFacts, Stream, chunk_content, read_chunk, read_chunk_mark
from relayweb.recording.conventions.ends import AttemptFacts, EndFacts, read_end, settle
from relayweb.recording.conventions.errors import (
    ErrorFacts,
    better_error,
    error_object,
    error_of,
    read_block,
    read_failure,
    read_outcome,
)
from relayweb.recording.conventions.requests import RequestFacts, asked_text, provider_of, read_request
from relayweb.recording.conventions.shapes import ChunkKind, Status, clean, guess_api_mode, known_api_mode
from relayweb.recording.conventions.usage import UNKNOWN, Usage

__all__ = [
    "UNKNOWN",
    "AttemptFacts",
    "ChunkFacts",
    "ChunkKind",
    "EndFacts",
    "ErrorFacts",
    "RequestFacts",
    "Status",
    "Stream",
    "ToolCall",
    "Usage",
    "answer_texts",
    "asked_text",
    "better_error",
    "chunk_content",
    "clean",
    "error_object",
    "error_of",
    "finish_reason",
    "finish_reasons_differ",
    "guess_api_mode",
    "known_api_mode",
    "provider_of",
    "read_block",
    "read_chunk",
    "read_chunk_mark",
    "read_end",
    "read_failure",
    "read_outcome",
    "read_request",
    "settle",
    "tool_calls",
    "unwrap",
]
