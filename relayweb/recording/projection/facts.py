"""What one event says about its scope, in the columns of the record."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from adapters import marks
from relayweb.recording.conventions import EndFacts, asked_text, clean, read_end, read_request
from relayweb.recording.conventions.shapes import as_map, known_api_mode, text_or_none
from relayweb.recording.events.atof import NULL, START, Envelope, Parsed, Raw, as_dict, load, parse
from relayweb.recording.events.masking import mask_text
from relayweb.recording.store.pieces import Packed, Piece
from relayweb.recording.store.tables import REWRITE_COLUMNS

STATED_ROLES: Final = ("session", "turn", "subagent")
_NAME_ROLES: Final = ((".session", "session"), (".turn", "turn"), (".logical_llm_call", "logical_call"))
_CATEGORY_ROLES: Final = {"llm": "attempt", "tool": "tool"}
SESSION_LIMIT: Final = 400  # characters of an id or a name that a column keeps


class ScopeFacts(msgspec.Struct, gc=False):
    """What a start or end event says of its scope, whichever comes first."""

    name: str
    category: str | None
    role: str
    """session, turn, subagent, logical_call, attempt, tool, scope; agent where its place decides."""
    session_id: str | None
    turn_id: str | None
    profile: str | None
    api_request_id: str | None
    call_role: str | None
    tool_call_id: str | None
    provider: str | None = None
    model: str | None = None
    api_mode: str | None = None
    streaming: bool | None = None
    asked: str | None = None
    service_tier: str | None = None


def _short(value: Any, limit: int = SESSION_LIMIT) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return text_or_none(value, limit)


# With Relay's `replace_dots` policy the dots of a name arrive as underscores.
_SESSION = ("session_id", "relay.session_id", "relay_session_id")
_TURN = ("turn_id", "relay.turn_id", "relay_turn_id")
_PROFILE = ("relay.profile", "relay_profile", "hermes.profile", "hermes_profile", "profile")
_REQUEST = ("api_request_id",)
_CALL_ROLE = ("call_role", "relay.call_role", "relay_call_role", "hermes.call_role", "hermes_call_role")


def _first(metadata: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = metadata.get(name)
        if value is not None and value != "":
            return _short(value)
    return None


def metadata_of(envelope: Envelope) -> dict[str, Any]:
    return as_dict(envelope.metadata)


def told_ids(envelope: Envelope) -> tuple[str | None, str | None]:
    """The session and the turn that a start or end event tells."""
    metadata = metadata_of(envelope)
    return _first(metadata, _SESSION), _first(metadata, _TURN)


def role_of(envelope: Envelope, metadata: dict[str, Any]) -> str:
    stated = metadata.get("nemo_relay_scope_role")
    if stated in STATED_ROLES:
        return str(stated)
    name = envelope.name or ""
    for end, role in _NAME_ROLES:
        if name.endswith(end):
            return role
    category = (envelope.category or "").lower()
    return "agent" if category == "agent" else _CATEGORY_ROLES.get(category, "scope")


def read_scope(event: Parsed, packed: Packed, metadata: dict[str, Any]) -> ScopeFacts:
    """What a start event says (of an end event: what it repeats)."""
    envelope = event.envelope
    facts = ScopeFacts(
        name=clean((envelope.name or "")[:SESSION_LIMIT]),
        category=_short(envelope.category, 64),
        role=role_of(envelope, metadata),
        session_id=_first(metadata, _SESSION),
        turn_id=_first(metadata, _TURN),
        profile=_first(metadata, _PROFILE),
        api_request_id=_first(metadata, _REQUEST),
        call_role=_first(metadata, _CALL_ROLE),
        tool_call_id=None,
    )
    if facts.role == "tool" or facts.category == "tool":
        facts.tool_call_id = _short(
            as_dict(envelope.category_profile).get("tool_call_id") or metadata.get("tool_call_id")
        )
    elif facts.role == "attempt":
        _read_attempt(facts, event, packed, metadata)
    return facts


class _Annotated(msgspec.Struct, gc=False):
    api_specific: Raw = NULL
    model: Raw = NULL
    messages: Raw = NULL


class _Profile(msgspec.Struct, gc=False):
    model_name: Raw = NULL
    annotated_request: _Annotated | None = None
    annotated_response: _Annotated | None = None


class _Body(msgspec.Struct, gc=False):
    """What is read of a request body. An object of half a million other members takes no longer for them."""

    model: Raw = NULL
    stream: Raw = NULL
    messages: Raw = NULL
    input: Raw = NULL
    contents: Raw = NULL
    prompt: Raw = NULL
    system: Raw = NULL
    instructions: Raw = NULL
    tools: Raw = NULL
    content: Raw = NULL
    type: Raw = NULL
    object: Raw = NULL
    stop_reason: Raw = NULL
    choices: Raw = NULL
    candidates: Raw = NULL
    anthropic_version: Raw = NULL
    annotated_request: Raw = NULL
    service_tier: Raw = NULL
    serviceTier: Raw = NULL
    speed: Raw = NULL
    inference_geo: Raw = NULL


_read_profile = msgspec.json.Decoder(_Profile).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_NO_BODY = _Body()


def _read_body(raw: Raw | bytes) -> _Body:
    """A request body; nothing of what is none."""
    try:
        return _decode_body(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _NO_BODY


def _content_of(data: Raw) -> Raw:
    content = _read_body(data).content
    return data if content is NULL else content


def _read_attempt(facts: ScopeFacts, event: Parsed, packed: Packed, metadata: dict[str, Any]) -> None:
    envelope = event.envelope
    started = event.kind == START
    content: Raw | bytes = NULL
    if started:
        content = _content_of(envelope.data)
    profile = _profile_of(envelope.category_profile)
    stated = metadata.get("api_mode") or known_api_mode(envelope.name)
    if event.short and not stated:  # the messages themselves tell the format
        envelope = parse(event.line).envelope
        content = _content_of(envelope.data)
    body = _body_of(content) if stated else _without_messages(content)
    request = read_request(
        metadata.get("api_mode"),
        body,
        name=envelope.name,
        metadata=metadata,
        profile=profile,
        attributes=load(envelope.attributes) if bytes(envelope.attributes) not in (b"[]", b"null") else (),
    )
    facts.provider, facts.model, facts.api_mode = request.provider, request.model, request.api_mode
    facts.streaming, facts.service_tier = request.streaming, request.service_tier
    if not started:
        return
    messages = packed.messages
    if messages is None:
        told = _read_body(content)
        messages = [(bytes(item), None) for some in (told.messages, told.input, told.contents) for item in _list(some)]
    facts.asked = last_asked(messages)
    if facts.asked is None and event.short:
        envelope = parse(event.line).envelope
        content = _content_of(envelope.data)
    if facts.asked is None:
        facts.asked = request.asked or asked_text(_without_messages(content))
    if facts.asked is None and b"annotated_request" in bytes(envelope.category_profile):
        facts.asked = asked_text(_without_messages(_read_body(envelope.category_profile).annotated_request))


def _body_of(content: Raw | bytes) -> dict[str, Any]:
    """What a request body says beside its messages, when its format is known."""
    body = _read_body(content)
    told = {"model": load(body.model), "stream": load(body.stream)}
    for name in _TIER:
        if (value := getattr(body, name)) is not NULL:
            told[name] = load(value)
    return told


_TIER: Final = ("service_tier", "serviceTier", "speed", "inference_geo")


def _profile_of(raw: Raw) -> dict[str, Any]:
    """A `category_profile` without what is bulky in it."""
    if raw is NULL or bytes(raw) == b"null":
        return {}
    try:
        profile = _read_profile(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _without_messages(raw)
    out: dict[str, Any] = {"model_name": load(profile.model_name)}
    for name, told in (
        ("annotated_request", profile.annotated_request),
        ("annotated_response", profile.annotated_response),
    ):
        if told is not None:
            api = load(told.api_specific) if len(bytes(told.api_specific)) < 4_000 else None
            out[name] = {"api_specific": api, "model": load(told.model)}
    return out


def _list(raw: Raw) -> list[Raw]:
    try:
        return _items(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return []


_BULKY = frozenset(("messages", "input", "contents", "tools", "instructions", "system"))


def _without_messages(raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """A request body with the first and last few of its messages: parsing a long history tells nothing new."""
    out: dict[str, Any] = {}
    body = _read_body(raw)
    for name in _Body.__struct_fields__:
        value = getattr(body, name)
        if value is NULL:
            continue
        text = bytes(value)
        if name == "annotated_request":
            out[name] = _without_messages(text)
        elif name in _BULKY and text[:1] == b"[" and len(text) > 2000:
            items = _items(text)
            some = items if len(items) <= 4 else (*items[:2], *items[-2:])
            out[name] = [load(item) for item in some if len(bytes(item)) < 20_000]
        elif name in _BULKY and len(text) > 20_000:
            out[name] = ""
        else:
            out[name] = load(text)
    return out


_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def last_asked(messages: list[tuple[bytes, Piece | None]]) -> str | None:
    """The first words of the last user message; each message is looked at once, whatever the number of requests."""
    for text, piece in reversed(messages):
        if piece is None:
            asked = asked_text({"messages": [load(text)]})
        else:
            if piece.asked == "":
                piece.asked = asked_text({"messages": [load(text)]}) if b"user" in text or b"human" in text else None
            asked = piece.asked
        if asked:
            return asked
    return None


def read_scope_end(event: Parsed, metadata: dict[str, Any], role: str) -> EndFacts:
    envelope = event.envelope
    data: Any = None
    if role == "attempt":
        data, profile = load(envelope.data), as_dict(envelope.category_profile)
    else:
        profile = {}
        if len(bytes(envelope.data)) < 20_000:
            data = load(envelope.data)
    return read_end(
        category="llm" if role == "attempt" else "tool" if role == "tool" else envelope.category,
        api_mode=metadata.get("api_mode"),
        name=envelope.name,
        data=data,
        metadata=metadata,
        profile=profile,
    )


_CHANGED = frozenset(("hit", "block", "respond", "fault"))


def read_rewrite(seq: int, scope: bytes, data: Any) -> tuple[Any, ...]:
    """A row of `Rewrite`, in the order of `tables.REWRITE_COLUMNS`."""
    data = as_map(data)
    mode = _short(data.get("mode"), 16) or "enforce"
    result = _short(data.get("result"), 16) or "hit"
    position = _whole(data.get("position"))
    return (
        seq,
        scope,
        0 if position is None else position % 2**31,
        _short(data.get("key")) or "unknown",
        _whole(data.get("revision")),
        _short(data.get("title")),
        _short(data.get("action")),
        _whole(data.get("priority")),
        mode,
        result,
        mode == "enforce" and result in _CHANGED,
        _number(data.get("duration_us")),
        _whole(data.get("bytes_before")),
        _whole(data.get("bytes_after")),
        _masked(data.get("reason")),
        _masked(data.get("error")),
        _short(data.get("ruleset")),
    )


def _masked(value: Any) -> str | None:
    text = _short(value, 2000)
    return mask_text(text) if text else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


BLOCKED = marks.ATTEMPT_BLOCKED
CHANGED_COLUMN = REWRITE_COLUMNS.index("changed")
