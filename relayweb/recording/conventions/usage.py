"""Token usage in one shape, whoever reported it.

`input_tokens` is everything the model read, cached tokens included; `output_tokens` is everything it wrote, reasoning
included. OpenAI counts cached tokens inside the prompt, Anthropic and Bedrock beside it; xAI and Gemini count
reasoning beside the output. Unknown is None and never 0. Nothing in here raises, whatever it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from relayweb.recording.conventions import details as apart
from relayweb.recording.conventions.details import Details

Json = Any
_LARGEST = 2**53  # beyond this neither a browser nor a price is exact; no provider bills such a call

FIELDS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "total_tokens")


_HOUR = "cache_write_1h_tokens"


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one attempt, or of several added up.

    `complete` is False when the numbers are a lower bound: a stream was cut before its final count, a part is unknown,
    or one of the attempts added up reported nothing.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    complete: bool = False
    cache_write_1h_tokens: int | None = None
    """Of `cache_write_tokens` those that are kept for an hour, which cost more; it only matters to the price."""
    details: Details | None = None
    """What else has a price of its own; None where there is nothing of the kind."""
    tier: str | None = None
    """The service tier it is charged by, as the price table names it; None where nobody tells."""

    @property
    def known(self) -> bool:
        return self.input_tokens is not None or self.output_tokens is not None or self.total_tokens is not None

    def as_dict(self) -> dict[str, int | bool | None]:
        return {name: getattr(self, name) for name in (*FIELDS, "complete")}

    def as_told(self) -> dict[str, Json]:
        """All of it, as `recorded` reads it; what is unknown is left out."""
        told = {name: value for name in (*FIELDS, _HOUR) if (value := getattr(self, name)) is not None}
        told |= {"details": msgspec.to_builtins(self.details)} if self.details is not None else {}
        return {**told, **({"service_tier": self.tier} if self.tier else {}), "complete": self.complete}

    def partial(self) -> Usage:
        """The same numbers as a lower bound."""
        return msgspec.structs.replace(self, complete=False)


UNKNOWN = Usage()


def count(value: Json) -> int | None:
    """A token count, or None for anything that is not a whole number from 0 to 2^53."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        if value != value or not 0 <= value <= _LARGEST or value != int(value):
            return None
        value = int(value)
    return value if 0 <= value <= _LARGEST else None


def _first(source: Json, *names: str) -> int | None:
    if type(source) is dict or isinstance(source, Mapping):  # an ABC's instance check is slow
        for name in names:
            value = source.get(name)
            if value is not None and (found := count(value)) is not None:
                return found
    return None


def _total(*parts: int | None) -> int | None:
    known = [p for p in parts if p is not None]
    return sum(known) if known else None


def build(
    *,
    input: int | None,
    output: int | None,
    cached: int | None = None,
    cache_write: int | None = None,
    reasoning: int | None = None,
    total: int | None = None,
    cache_write_1h: int | None = None,
    details: Details | None = None,
) -> Usage:
    """A Usage from counts that already follow this module's meaning (cached inside input, reasoning inside output)."""
    if input is not None and output is not None:
        if total is not None and reasoning and total == input + output + reasoning:
            output += reasoning  # xAI and Gemini by way of the OpenAI format: reasoning beside the output
        total = input + output
    elif total is None:
        total = _total(input, output)
    elif input is None and output is not None and total >= output:
        input = total - output
    elif output is None and input is not None and total >= input:
        output = total - input
    return Usage(
        input_tokens=input,
        output_tokens=output,
        cached_tokens=cached,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
        total_tokens=total,
        complete=input is not None and output is not None,
        cache_write_1h_tokens=cache_write_1h,
        details=details,
    )


def _cache_creation(usage: Mapping[str, Json]) -> int | None:
    written = _first(usage, "cache_creation_input_tokens", "cacheCreationInputTokens", "cacheWriteInputTokens")
    if written is None and isinstance(usage.get("cache_creation"), Mapping):
        written = _total(*(count(v) for v in usage["cache_creation"].values()))
    return written


def _anthropic(usage: Mapping[str, Json]) -> Usage:
    cached = _first(usage, "cache_read_input_tokens", "cacheReadInputTokens", "cache_read_tokens")
    written = _cache_creation(usage)
    if written is None:
        written = _first(usage, "cache_write_tokens")
    fresh = _first(usage, "input_tokens", "inputTokens", "uncached_input_tokens", "prompt_tokens")
    return build(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=_first(usage, "output_tokens", "outputTokens", "completion_tokens"),
        cached=cached,
        cache_write=written,
        cache_write_1h=_first(usage.get("cache_creation"), "ephemeral_1h_input_tokens"),
        reasoning=_first(usage.get("output_tokens_details"), "thinking_tokens", "reasoning_tokens"),
    )


def _gemini(usage: Mapping[str, Json]) -> Usage:
    def read(name: str, in_python: str) -> int | None:
        return _first(usage, name, in_python)

    thoughts = read("thoughtsTokenCount", "thoughts_token_count")
    answer = read("candidatesTokenCount", "candidates_token_count")
    tools = read("toolUsePromptTokenCount", "tool_use_prompt_token_count")
    cached = read("cachedContentTokenCount", "cached_content_token_count")
    camel = "promptTokensDetails" in usage or "candidatesTokensDetails" in usage
    parts = _MODALITIES if camel else _MODALITIES_IN_PYTHON
    return build(
        input=_total(read("promptTokenCount", "prompt_token_count"), tools),
        output=_total(answer, thoughts),
        cached=cached,
        reasoning=thoughts,
        total=read("totalTokenCount", "total_token_count"),
        details=apart.of_modalities(usage.get(parts[0]), usage.get(parts[1]), usage.get(parts[2]), cached),
    )


_MODALITIES = ("promptTokensDetails", "candidatesTokensDetails", "cacheTokensDetails")
_MODALITIES_IN_PYTHON = ("prompt_tokens_details", "candidates_tokens_details", "cache_tokens_details")


def _ai_sdk(usage: Mapping[str, Json]) -> Usage:
    """Vercel's AI SDK: plain counts up to version 5, from 6 on objects."""
    read, written = usage.get("inputTokens"), usage.get("outputTokens")
    plain = not isinstance(read, Mapping)
    return build(
        input=count(read) if plain else _first(read, "total"),
        output=_first(written, "total") if isinstance(written, Mapping) else count(written),
        cached=_first(usage, "cachedInputTokens") if plain else _first(read, "cacheRead"),
        cache_write=None if plain else _first(read, "cacheWrite"),
        reasoning=_first(usage, "reasoningTokens") if plain else _first(written, "reasoning"),
        total=_first(usage, "totalTokens"),
    )


_READ_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_WRITTEN_DETAILS = ("completion_tokens_details", "output_tokens_details", "output_token_details")


_NOTHING: Mapping[str, Json] = {}


def _part(usage: Mapping[str, Json], names: tuple[str, ...]) -> Mapping[str, Json]:
    for name in names:
        found = usage.get(name)
        if found and isinstance(found, dict):
            return found
    return _NOTHING


def _openai(usage: Mapping[str, Json]) -> Usage:
    read, written = _part(usage, _READ_DETAILS), _part(usage, _WRITTEN_DETAILS)
    cached = _first(read, "cached_tokens", "cache_read", "flex_cache_read", "priority_cache_read")  # LangChain's
    if cached is None:
        cached = _first(usage, "cache_read_tokens", "prompt_cache_hit_tokens", "cached_tokens")
    creation = _first(read, "cache_write_tokens", "cache_creation")
    if creation is None:  # LiteLLM keeps Anthropic's own members
        creation = _cache_creation(usage)
    if cached is None:
        cached = _first(usage, "cache_read_input_tokens")
    reasoning = _first(written, "reasoning_tokens", "reasoning")
    hour = _first(usage.get("cache_creation"), "ephemeral_1h_input_tokens")
    if "ephemeral_1h_input_tokens" in read or "ephemeral_5m_input_tokens" in read:  # LangChain's of Anthropic
        hour = _first(read, "ephemeral_1h_input_tokens")
        kept = _total(hour, _first(read, "ephemeral_5m_input_tokens"))
        creation = creation or kept
    # Hermes' observer gives both: prompt_tokens holds all of it, input_tokens what was not cached.
    input = _first(usage, "prompt_tokens", "input_tokens", "prompt_eval_count", "input_token_count")
    if (
        input is not None
        and not _ANTHROPIC_ONLY.isdisjoint(usage)
        and input < (inside := (cached or 0) + (creation or 0))
    ):
        input += inside  # older versions of LiteLLM
    return build(
        input=input,
        output=_first(usage, "completion_tokens", "output_tokens", "eval_count", "generated_token_count"),
        cached=cached,
        cache_write=creation if creation is not None else _first(usage, "cache_write_tokens"),
        reasoning=reasoning if reasoning is not None else _first(usage, "reasoning_tokens"),
        total=_first(usage, "total_tokens"),
        cache_write_1h=hour,
        details=apart.of_parts(read, written, cached) if read or written else None,
    )


_ANTHROPIC_ONLY = frozenset(
    ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation", "cacheReadInputTokens", "inputTokens")
)
_GEMINI_ONLY = frozenset(
    ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")
    + ("prompt_token_count", "candidates_token_count", "total_token_count")
)
_AI_SDK_ONLY = frozenset(("cachedInputTokens", "reasoningTokens"))


def read_usage(usage: Json, *, beside: bool = False) -> Usage:
    """Any provider's usage object, Relay's own included.

    Args:
        usage: the object as reported; anything else reads as unknown.
        beside: cached tokens are counted beside the input (Anthropic's convention) where the object's own member
            names do not tell.
    """
    if type(usage) is not dict and not isinstance(usage, Mapping):
        return UNKNOWN
    found = _read(usage, beside)
    if _APART.isdisjoint(usage):
        return found
    details, tier = found.details, apart.usage_tier(usage)
    if not apart.TOOL_MEMBERS.isdisjoint(usage):
        details = apart.merged(details, apart.of_tools(usage))
    if details is found.details and tier is None:
        return found
    return msgspec.structs.replace(found, details=details, tier=tier)


def recorded(told: Json) -> Usage | None:
    """What `Usage.as_told` gave, also of a usage nobody knows; None for anything else, such as a provider's object."""
    if not isinstance(told, dict) or not isinstance(told.get("complete"), bool):
        return None
    counts = {name: _first(told, name) for name in (*FIELDS, _HOUR)}
    tier, details = told.get("service_tier"), apart.convert(told.get("details"))
    return Usage(**counts, complete=told["complete"], details=details, tier=apart.read_tier(tier))


_APART = apart.TIER_MEMBERS | apart.TOOL_MEMBERS


def _read(usage: Mapping[str, Json], beside: bool) -> Usage:
    if "tokens" in usage or "billed_units" in usage:  # Cohere
        return read_usage(usage.get("tokens") or usage.get("billed_units"), beside=beside)
    if "prompt_eval_count" in usage or "eval_count" in usage:  # Ollama, which has no cache
        return _openai(usage)
    if not _GEMINI_ONLY.isdisjoint(usage):
        return _gemini(usage)
    if not _AI_SDK_ONLY.isdisjoint(usage) or isinstance(usage.get("inputTokens"), Mapping):
        return _ai_sdk(usage)
    if not _ANTHROPIC_ONLY.isdisjoint(usage) and "prompt_tokens" not in usage:
        return _anthropic(usage)
    return _anthropic(usage) if beside else _openai(usage)


def _most(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def merge(a: Usage, b: Usage) -> Usage:
    """Two reports of the same tokens (chunk marks repeat each other and the end): each counted once, in any order.

    Counters of a stream only grow, so the larger of two is the later one.
    """
    input, output = _most(a.input_tokens, b.input_tokens), _most(a.output_tokens, b.output_tokens)
    if input is not None and output is not None:
        total: int | None = input + output
    else:
        total = _most(a.total_tokens, b.total_tokens)
    return Usage(
        input_tokens=input,
        output_tokens=output,
        cached_tokens=_most(a.cached_tokens, b.cached_tokens),
        cache_write_tokens=_most(a.cache_write_tokens, b.cache_write_tokens),
        reasoning_tokens=_most(a.reasoning_tokens, b.reasoning_tokens),
        total_tokens=total,
        complete=input is not None and output is not None,
        cache_write_1h_tokens=_most(a.cache_write_1h_tokens, b.cache_write_1h_tokens),
        details=apart.merged(a.details, b.details),
        tier=a.tier if b.tier is None else b.tier if a.tier is None else max(a.tier, b.tier),
    )


def add(usages: Iterable[Usage]) -> Usage:
    """The sum over different attempts. What nobody knows stays unknown; what somebody does not know makes it partial.

    The sum of nothing is unknown and complete: no call has been made, so nothing is missing.
    """
    sums: dict[str, Any] = dict.fromkeys(FIELDS)
    complete = True
    for usage in usages:
        complete = complete and usage.complete
        for name in FIELDS:
            value = getattr(usage, name)
            if value is not None:
                sums[name] = (sums[name] or 0) + value
    return Usage(**sums, complete=complete)
