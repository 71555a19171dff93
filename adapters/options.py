"""What a caller may ask of an attempt, buffered or streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Required, TypedDict

import msgspec


class CallArguments(TypedDict, total=False):
    """Keyword arguments of `execute` and its siblings.

    name: The provider's name.
    model_name: The model asked for.
    metadata: api_mode, api_request_id (attempts with one id share a logical call), call_role, retry_count and whatever
        else the record shall say.
    defer_logical_completion: Leave closing the logical call to `complete_logical_call`.
    response_adapter: Makes an answer of JSON that an intercept gave or changed; default: the type of the provider's own
        answer where it is pydantic, else an attribute view.
    """

    name: Required[str]
    model_name: str | None
    metadata: Mapping[str, Any] | None
    defer_logical_completion: bool
    response_adapter: Callable[[Any], Any] | None


class StreamArguments(TypedDict, total=False):
    """Keyword arguments of `stream` and its siblings; the first four as in CallArguments.

    finalizer: Gives the response for the record when the provider's stream ended; build it from what `on_chunk` saw.
        Default: the response put together for the api_mode.
    on_stream_created: Called once with the provider's stream, before it is read.
    on_chunk: Called with each chunk as JSON, after intercepts.
    chunk_adapter: Makes a chunk of the JSON of an intercept that changed or added one; default: an attribute view.
    chunk_json: Gives the JSON of a provider's chunk; default: what `to_json` makes of it.
    accept_chunk: The first chunk of the provider that it refuses ends the stream.
    completed_response_predicate: Tells a complete response from a stream, where a provider ignores `stream`.
    """

    name: Required[str]
    model_name: str | None
    metadata: Mapping[str, Any] | None
    defer_logical_completion: bool
    finalizer: Callable[[], Any] | None
    on_stream_created: Callable[[Any], None] | None
    on_chunk: Callable[[Any], None] | None
    chunk_adapter: Callable[[Any], Any] | None
    chunk_json: Callable[[Any], Any] | None
    accept_chunk: Callable[[Any], bool] | None
    completed_response_predicate: Callable[[Any], bool] | None


class CallOptions(msgspec.Struct, frozen=True):
    name: str
    model_name: str | None = None
    metadata: Mapping[str, Any] | None = None
    defer_logical_completion: bool = False
    response_adapter: Callable[[Any], Any] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    name: str
    model_name: str | None = None
    metadata: Mapping[str, Any] | None = None
    defer_logical_completion: bool = False
    finalizer: Callable[[], Any] | None = None
    on_stream_created: Callable[[Any], None] | None = None
    on_chunk: Callable[[Any], None] | None = None
    chunk_adapter: Callable[[Any], Any] | None = None
    chunk_json: Callable[[Any], Any] | None = None
    accept_chunk: Callable[[Any], bool] | None = None
    completed_response_predicate: Callable[[Any], bool] | None = None
