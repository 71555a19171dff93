"""ATOF 0.1 events from bytes: one line parsed once, its payloads left as slices of the line.

What JSON does not allow but senders send is mended here, so that everything after this module sees valid JSON:
invalid UTF-8 is replaced (and flagged), NaN and infinities become `{"$float": "NaN"}`, a lone surrogate escape becomes
`\\ufffd` of the same length, with its place remembered so that export gives it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from relayweb.recording.kernels import identity, is_deeper

MAX_DEPTH: Final = 500
"""Levels of nesting that are kept. What lies deeper is left out, and a text in its place says how much that was."""

START, END, MARK = 0, 1, 2

NULL = msgspec.Raw(b"null")
Raw = msgspec.Raw


class BadEvent(ValueError):
    """A line that cannot be recorded. The text names the member and what would do."""


class Envelope(msgspec.Struct, gc=False):
    """The members of an event that the record reads, payloads unparsed."""

    kind: str
    uuid: str
    timestamp: str | int
    scope_category: str | None = None
    name: str | None = None
    parent_uuid: str | None = None
    category: str | None = None
    propagation_root_uuid: str | None = None
    data: Raw = NULL
    metadata: Raw = NULL
    category_profile: Raw = NULL
    attributes: Raw = NULL


class Parsed(msgspec.Struct, gc=False):
    """One event, ready to be stored."""

    line: bytes
    envelope: Envelope
    kind: int
    """START, END or MARK."""
    uuid: bytes
    parent: bytes | None
    root: bytes | None
    at_ns: int
    style: str | None
    """How its timestamp is written, for `format_timestamp`; None if only as it stands."""
    replaced_text: bool = False
    surrogates: tuple[tuple[int, bytes], ...] = ()
    """Lone surrogates: offset in `line`, and the four hex digits that stood there."""
    short: bytes = b""
    """What the envelope was read from, if not `line` itself: see `content.Store.parse`."""


_decode = msgspec.json.Decoder(Envelope).decode


def parse(line: bytes) -> Parsed:
    """One line of ATOF.

    Raises:
        BadEvent: not an event, or one that cannot be recorded.
    """
    try:
        return _parse(line)
    except _TooDeep:
        event = _parse(shallow(line))
        event.replaced_text = True
        return event


def _parse(line: bytes) -> Parsed:
    replaced = False
    surrogates: tuple[tuple[int, bytes], ...] = ()
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            line, replaced = line.decode(errors="replace").encode(), True
    try:
        envelope = _decode(line)
    except msgspec.ValidationError as error:
        raise BadEvent(_explain(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        line, surrogates = _mend(line, error)
        try:
            envelope = _decode(line)
        except msgspec.ValidationError as wrong:
            raise BadEvent(_explain(wrong)) from None
        except msgspec.DecodeError as wrong:
            raise BadEvent(f"not JSON: {wrong}") from None
        except RecursionError:
            raise _TooDeep from None
    if len(line) >= 2 * MAX_DEPTH and is_deeper(line, MAX_DEPTH):
        raise _TooDeep
    known = identity(envelope.uuid, envelope.parent_uuid, envelope.propagation_root_uuid, envelope.timestamp)
    uuid, parent, root, at_ns, style = (*known, "9+") if known is not None else _identity(envelope)
    return Parsed(line, envelope, _kind(envelope), uuid, parent, root, at_ns, style, replaced, surrogates)


def _identity(envelope: Envelope) -> tuple[bytes, bytes | None, bytes | None, int, str | None]:
    at_ns, style = parse_timestamp(envelope.timestamp)
    uuid, parent, root = envelope.uuid, envelope.parent_uuid, envelope.propagation_root_uuid
    return (
        uuid_bytes(uuid, "uuid"),
        uuid_bytes(parent, "parent_uuid") if parent else None,
        uuid_bytes(root, "propagation_root_uuid") if root else None,
        at_ns,
        style,
    )


class _TooDeep(BadEvent):
    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")


_MOST_BRACKETS = 200_000  # of a line that is too deep and yet kept
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|[][{}]', re.DOTALL)


def shallow(line: bytes) -> bytes:
    """JSON text without what is nested too deep.

    Raises:
        BadEvent: it would take long.
    """
    if line.count(b"[") + line.count(b"{") > _MOST_BRACKETS:
        raise _TooDeep
    out: list[bytes] = []
    depth = kept = start = 0
    for match in _BRACKETS.finditer(line):
        sign = match[0][:1]
        if sign in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                start = match.start()
        elif sign in b"]}":
            if depth == MAX_DEPTH + 1:
                said = f'"[{match.end() - start} bytes, nested deeper than {MAX_DEPTH} levels, were left out]"'
                out += (line[kept:start], said.encode())
                kept = match.end()
            depth -= 1
    return b"".join((*out, line[kept:]))


def _explain(error: msgspec.ValidationError) -> str:
    text = str(error)
    if "missing required field" in text or "expected `object`" in text.lower():
        return f"not an ATOF event: {text}"
    return text


def _kind(envelope: Envelope) -> int:
    if envelope.kind == "mark":
        return MARK
    if envelope.kind != "scope":
        raise BadEvent(f'kind: {envelope.kind[:40]!r} is neither "scope" nor "mark"')
    if envelope.scope_category == "start":
        return START
    if envelope.scope_category == "end":
        return END
    raise BadEvent(f'scope_category: {str(envelope.scope_category)[:40]!r} is neither "start" nor "end"')


@lru_cache(8192)
def uuid_bytes(text: str, member: str) -> bytes:
    try:
        value = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        value = b""
    if len(value) != 16:
        raise BadEvent(f"{member}: {text[:60]!r} is not a UUID")
    return value


def uuid_text(value: bytes) -> str:
    h = value.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


# Timestamps ---------------------------------------------------------------------------------------------------------

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)([Tt ])(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|z|[+-]\d\d:?\d\d)", re.ASCII)
_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT = 2**63 - 1
# Seconds and milliseconds of these years (2000 to 2100) are, taken for microseconds, hours and days of early 1970.
_FROM, _TO, _UNITS = 946_684_800, 4_102_444_800, {"seconds": 1, "milliseconds": 1000}
_minutes: dict[str, int] = {}


def _minute(text: str) -> int:
    """Seconds since 1970 at "YYYY-MM-DDTHH:MM:", remembered: streams come in order."""
    found = _minutes.get(text)
    if found is None:
        if len(_minutes) > 4096:
            _minutes.clear()
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:").replace(tzinfo=UTC)
        found = _minutes[text] = round((moment - _EPOCH_DAY).total_seconds())
    return found


def parse_timestamp(value: str | int) -> tuple[int, str | None]:
    """A timestamp in ns since 1970, and its style (see `format_timestamp`).

    Takes RFC 3339 text with any offset and any number of digits (beyond nine they are cut), or whole microseconds.
    """
    if isinstance(value, int):
        for unit, factor in _UNITS.items():
            if _FROM * factor <= value < _TO * factor:
                by = 1_000_000 // factor
                mend = f"it looks like {unit}: multiply it by {by}"
                raise BadEvent(f"timestamp: {value} µs would be early in 1970, and {mend}, or write RFC 3339")
        if not -_LIMIT <= value * 1000 <= _LIMIT:
            raise _out_of_range(f"{str(value)[:60]} µs")
        return value * 1000, "i"
    try:
        # The form that Relay writes, without the regex.
        if len(value) == 35 and value[29:] == "+00:00" and value[19] == "." and value[10] == "T":
            second, fraction = value[17:19], value[20:29]
            if second.isdigit() and fraction.isdigit() and second < "60":
                ns = (_minute(value[:17]) + int(second)) * 1_000_000_000 + int(fraction)
                return (ns, "9+") if -_LIMIT <= ns <= _LIMIT else _parse_rfc3339(value)
        return _parse_rfc3339(value)
    except BadEvent:
        raise
    except ValueError:
        mend = "; add its offset, for example Z" if _RFC3339.fullmatch(f"{value[:60]}Z") else ""
        raise BadEvent(f"timestamp: {value[:60]!r} is neither RFC 3339 nor whole microseconds{mend}") from None


def _parse_rfc3339(value: str) -> tuple[int, str | None]:
    match = _RFC3339.fullmatch(value)
    if match is None:
        raise ValueError
    day, separator, hour, minute, second, digits, zone = match.groups(default="")
    leap = second == "60"
    seconds = _minute(f"{day}T{hour}:{minute}:") + (59 if leap else int(second))
    if int(second) > 60:
        raise ValueError
    if zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 23 or minutes > 59:
            raise BadEvent(f"timestamp: {value[:60]!r} has the offset {zone}; RFC 3339 ends at 23:59")
        seconds -= (1 if zone[0] == "+" else -1) * (hours * 3600 + minutes * 60)
    ns = seconds * 1_000_000_000 + (999_999_999 if leap else int((digits + "000000000")[:9]))
    if not -_LIMIT <= ns <= _LIMIT:
        raise _out_of_range(value[:60])
    plain = separator == "T" and not leap and len(digits) <= 9 and zone in ("Z", "+00:00")
    return ns, f"{len(digits)}{zone[0]}" if plain else None


def _out_of_range(value: str) -> BadEvent:
    unset = " It looks like one that was never set." if value.startswith(("0001-", "9999-")) else ""
    return BadEvent(
        f"timestamp: {value} lies outside the years 1678 to 2261 of which the record keeps nanoseconds.{unset} "
        "Send the time at which it happened"
    )


def format_timestamp(at_ns: int, style: str) -> str:
    """The text (or the digits of the number) that `parse_timestamp` read as `at_ns` and `style`."""
    if style == "i":
        return str(at_ns // 1000)
    seconds, ns = divmod(at_ns, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = int(style[0])
    fraction = f".{ns:09d}"[: digits + 1] if digits else ""
    return f"{text}{fraction}{'Z' if style[1] == 'Z' else '+00:00'}"


# Mending ------------------------------------------------------------------------------------------------------------

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)
_LONE = re.compile(  # every escape, so that an escaped backslash is never taken for the start of one
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|u([dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def _mend(line: bytes, error: Exception) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    if line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    if b"NaN" in line or b"Infinity" in line:
        line = _TOKENS.sub(_escape_float, line)
    surrogates: list[tuple[int, bytes]] = []
    if b"\\ud" in line or b"\\uD" in line:

        def replace(match: re.Match[bytes]) -> bytes:
            lone = match[3] or (match[1] if match[2] is None else None)
            if lone is None:
                return match[0]
            surrogates.append((match.start() + 2, lone))
            return b"\\ufffd"

        line = _LONE.sub(replace, line)
    return line, tuple(surrogates)


def _escape_float(match: re.Match[bytes]) -> bytes:
    token = match[0]
    return token if token.startswith(b'"') else b'{"$float":"' + token + b'"}'


def restore_surrogates(line: bytes, surrogates: Iterable[tuple[int, bytes]]) -> bytes:
    text = bytearray(line)
    for offset, digits in surrogates:
        text[offset : offset + 4] = digits
    return bytes(text)


# Reading payloads -----------------------------------------------------------------------------------------------------

_decode_any = msgspec.json.Decoder().decode


def _integer(text: str) -> int | str:
    return int(text) if len(text) < 4000 else text


def load(text: bytes | Raw) -> Any:
    """A payload as Python values, whatever its numbers. Integers longer than 4 000 digits come as text."""
    try:
        return _decode_any(text)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        return json.loads(bytes(text), parse_int=_integer)


def as_dict(raw: Raw | bytes) -> dict[str, Any]:
    """A payload that is an object; nothing if it is anything else."""
    if raw is NULL:
        return {}
    try:
        value = load(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def canonical(text: bytes) -> bytes:
    """The same JSON value always as the same bytes: sorted keys, no spaces, numbers as they were written."""
    value = json.loads(text, parse_int=_Number, parse_float=lambda t: _Number(repr(float(t)) if len(t) < 17 else t))
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str).encode()


class _Number(dict[str, str]):
    """A number kept as its text, in a shape that JSON can hold."""

    def __init__(self, text: str) -> None:
        super().__init__({"$number": text})
