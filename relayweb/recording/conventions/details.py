"""What of a call has a price of its own: its service tier, audio and images, what the provider's own tools did."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from relayweb.recording.conventions.shapes import GEMINI, RESPONSES, as_list, as_map, text_or_none

Json = Any

STANDARD = "standard"
_TIER_LENGTH = 40
_TIERS: dict[str, str | None] = {
    **dict.fromkeys(("auto", "unspecified", "service_tier_unspecified", "traffic_type_unspecified", "null"), None),
    **dict.fromkeys(("default", "standard_only", "on_demand", "normal"), STANDARD),
    "on_demand_priority": "priority",
    "on_demand_flex": "flex",
}
_ANYWHERE = (None, "", "global", "not_available")  # no place that was asked for, and paid for
TIER_MEMBERS = frozenset(("service_tier", "serviceTier", "trafficType", "traffic_type", "speed", "inference_geo"))
"""Members of a usage object that tell the tier."""


def read_tier(service: Json, speed: Json = None, place: Json = None) -> str | None:
    """The tier a call was asked for or served in, as the price table names it; None where nobody tells.

    Args:
        service: OpenAI's, Anthropic's or Gemini's service tier, Bedrock's object, Vertex's traffic type.
        speed: Anthropic's, `fast` or `standard`.
        place: Anthropic's `inference_geo`; one that was asked for costs more.

    >>> read_tier("default"), read_tier("flex"), read_tier("auto"), read_tier("batch", place="us")
    ('standard', 'flex', None, 'batch+us')
    """
    if service is None and speed is None and place is None:
        return None
    if isinstance(service, Mapping):
        service = service.get("type")
    return _tier(*[text_or_none(told, _TIER_LENGTH) for told in (service, speed, place)])


@lru_cache(256)
def _tier(service: str | None, speed: str | None, place: str | None) -> str | None:
    words = [None if told is None else _TIERS.get(told.lower(), told.lower()) for told in (service, speed, place)]
    if place in _ANYWHERE:
        words.pop()
    parts = [word for word in words if word is not None and word != STANDARD]
    return "+".join(dict.fromkeys(parts))[:_TIER_LENGTH] if parts else STANDARD if STANDARD in words else None


def usage_tier(usage: Mapping[str, Json]) -> str | None:
    """The tier that a usage object tells."""
    service = usage.get("service_tier")
    if service is None:
        service = usage.get("serviceTier") or usage.get("trafficType") or usage.get("traffic_type")
    return read_tier(service, usage.get("speed"), usage.get("inference_geo"))


class Details(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a call's tokens those that are no text, and what it is charged for beside tokens.

    Audio and images are inside the usage's own numbers, cached ones inside both `…_input` and its cached tokens.
    """

    audio_input: int = 0
    audio_output: int = 0
    audio_cached: int = 0
    image_input: int = 0
    """Video included."""
    image_output: int = 0
    image_cached: int = 0
    web_searches: int = 0
    unpriced: int = 0
    """How many other things cost something that no price table tells."""

    def text(self) -> str:
        """As its column keeps it."""
        return msgspec.json.encode(self).decode()


_read = msgspec.json.Decoder(Details).decode
_NONE = Details()


def stored(text: str | None) -> Details | None:
    """What `Details.text` gave."""
    return _read(text) if text else None


def convert(told: Json) -> Details | None:
    """The members of a `Details`; None for anything else."""
    try:
        found = msgspec.convert(told, Details)
    except msgspec.ValidationError:
        return None
    return found if min(msgspec.structs.astuple(found)) >= 0 and found != _NONE else None


def merged(a: Details | None, b: Details | None) -> Details | None:
    """Two reports of the same call: counters only grow."""
    if a is None or b is None or a == b:
        return b if a is None else a
    return Details(*(max(pair) for pair in zip(msgspec.structs.astuple(a), msgspec.structs.astuple(b), strict=True)))


def requested(details: Details | None, searches: int, others: int) -> Details | None:
    """The same with what an answer tells of the provider's own tools; a count that the usage told stands."""
    if not searches and not others:
        return details
    details = details or _NONE
    more = {"web_searches": details.web_searches or searches, "unpriced": details.unpriced + others}
    return msgspec.structs.replace(details, **more)


_FREE = ("web_fetch_requests", "tool_search_requests")
_SEARCHES = "web_search_requests"
_CHARGED = ("num_sources_used", "num_search_queries", "citation_tokens")  # xAI's, Perplexity's
TOOL_MEMBERS = frozenset(("server_tool_use", *_CHARGED))
"""Members of a usage object that tell of tools."""


def of_tools(usage: Mapping[str, Json]) -> Details | None:
    """What a usage object tells of the provider's own tools."""
    used = as_map(usage.get("server_tool_use"))
    others = sum(bool(_count(value)) for name, value in used.items() if name not in _FREE and name != _SEARCHES)
    others += sum(bool(_count(usage.get(name))) for name in _CHARGED)
    return requested(None, _count(used.get(_SEARCHES)), others)


def of_parts(read: Mapping[str, Json], written: Mapping[str, Json], cached: int | None) -> Details | None:
    """What OpenAI's details of a prompt and of an answer tell (and LangChain's, OpenInference's, OpenRouter's)."""
    if not (_beside_text(read) or _beside_text(written)):
        return None
    audio, image = _count(read.get("audio_tokens") or read.get("audio")), _images(read)
    said, drawn = _count(written.get("audio_tokens") or written.get("audio")), _images(written)
    if not (audio or image or said or drawn):
        return None
    split = as_map(read.get("cached_tokens_details"))
    # Which of them were cached is told, or is no question, or nobody knows what they cost.
    unclear = bool(cached and (audio or image) and not split)
    return Details(audio, said, _count(split.get("audio_tokens")), image, drawn, _images(split), unpriced=int(unclear))


def _beside_text(details: Mapping[str, Json]) -> bool:
    get = details.get
    return bool(get("audio_tokens") or get("image_tokens") or get("audio") or get("video_tokens") or get("image"))


def _images(details: Mapping[str, Json]) -> int:
    return sum(_count(details.get(name)) for name in ("image_tokens", "video_tokens", "image"))


def of_modalities(read: Json, written: Json, cached: Json, cached_tokens: int | None) -> Details | None:
    """What Gemini's lists of modalities tell: of the prompt, of the answer, of what was cached."""
    audio, image = _modalities(read)
    said, drawn = _modalities(written)
    if not (audio or image or said or drawn):
        return None
    kept_audio, kept_image = _modalities(cached)
    unclear = bool(cached_tokens and (audio or image) and not as_list(cached))
    return Details(audio, said, kept_audio, image, drawn, kept_image, unpriced=int(unclear))


def _modalities(told: Json) -> tuple[int, int]:
    """Tokens of audio, and of images and video."""
    audio = image = 0
    for part in map(as_map, as_list(told)):
        modality, tokens = part.get("modality"), _count(part.get("tokenCount", part.get("token_count")))
        if modality == "AUDIO":
            audio += tokens
        elif modality in ("IMAGE", "VIDEO"):
            image += tokens
    return audio, image


_CHARGED_CALLS = ("file_search_call", "code_interpreter_call", "image_generation_call")


def tools_of(body: Mapping[str, Json], api_mode: str | None) -> tuple[int, int]:
    """Web searches, and other things of a price of their own, that an answer tells and its usage does not."""
    if api_mode == RESPONSES:
        kinds = [(as_map(item).get("type"), item) for item in as_list(body.get("output"))]
        searches = sum(kind == "web_search_call" and _searched(item) for kind, item in kinds)
        return searches, sum(kind in _CHARGED_CALLS for kind, _ in kinds)
    if api_mode == GEMINI:
        grounded = [as_map(as_map(answer).get("groundingMetadata")) for answer in as_list(body.get("candidates"))]
        return 0, sum(bool(told.get("webSearchQueries")) for told in grounded)
    return 0, 0


def _searched(item: Mapping[str, Json]) -> bool:
    """Whether a web search of OpenAI's is charged for: opening a page that was found is not."""
    return as_map(item.get("action")).get("type") in (None, "search") and item.get("status") != "failed"


def _count(value: Json) -> int:
    """A whole number from 0 to 2^53, else 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53 else 0
