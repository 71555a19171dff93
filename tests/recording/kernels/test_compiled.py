"""The compiled kernels give what those in Python give, and hold for any bytes."""

from __future__ import annotations

import json
import shutil
import sysconfig
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayweb.recording import kernels
from relayweb.recording.events.atof import parse_timestamp
from relayweb.recording.kernels import plain
from relayweb.recording.kernels.names import (
    ARGUMENTS,
    LIST,
    LOOSE,
    MESSAGE,
    MIN_MESSAGE,
    NAMING,
    SAME_MESSAGES,
    SAME_TOOLS,
    SUSPECT,
    TOOLS,
    VALUE,
)

compiled: Any = pytest.importorskip("relayweb.recording.kernels.compiled") if kernels.COMPILED else None
needs_compiled = pytest.mark.skipif(not kernels.COMPILED, reason="was installed without a C compiler")

NAMES = (
    *("data", "metadata", "category_profile", "messages", "message", "input", "contents", "tools", "functions"),
    *("choices", "content", "headers", "request", "response", "annotated_request", "error", "x"),
)
LONG_TEXTS = st.sampled_from(("x" * 50, 'y\\"[{' * 12, "ä\u2028" * 30, "z" * 600, "m" * 513))
ODD_NAMES = (*NAMES, "größe", 'a"b\\c', "\U0001f600")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | LONG_TEXTS
)


def values(names: Sequence[str]) -> st.SearchStrategy[Any]:
    name = st.sampled_from(names)
    return st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(name, inner, max_size=5), max_leaves=25
    )


def events(names: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), values(names), max_size=6)


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_they_are_compiled_where_there_is_a_compiler() -> None:
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which("cc") is None or not headers.exists():
        pytest.skip("no C compiler, or no headers of this Python")
    assert kernels.COMPILED


# What is kept apart


@needs_compiled
@given(events(NAMES), st.booleans(), st.booleans())
def test_both_keep_the_same_apart(event: dict[str, Any], loose_data: bool, same: bool) -> None:
    line = compact(event)
    assert compiled.plan(line, loose_data, same) == plain.plan(line, loose_data, same)
    assert compiled.plan_inside(line) == plain.plan_inside(line)


@needs_compiled
@given(st.lists(st.sampled_from([b"c" * 60, b"small", SAME_MESSAGES[2:-1], b"m" * 600]), max_size=4), st.booleans())
def test_both_see_the_same_stand_ins(items: list[bytes], tools: bool) -> None:
    messages = b",".join(b'{"role":"user","content":"%b"}' % item for item in items if not item.startswith(b"\x7f"))
    listed = SAME_MESSAGES + b"," + messages + b"]" if messages else SAME_MESSAGES + b"]"
    stray = b",".join(b'"%b"' % item for item in items)
    line = b'{"data":{"content":{"messages":%b,"other":[%b],"tools":%b}}}' % (
        listed,
        stray,
        SAME_TOOLS if tools else b'[{"name":"a%b"}]' % (b"t" * 600),
    )
    assert compiled.plan(line, False, True) == plain.plan(line, False, True)


@pytest.mark.parametrize("plan", [plain.plan, pytest.param(kernels.plan, id="as installed")])
def test_a_request_is_taken_apart(plan: Any) -> None:
    user, big, tools = '{"role":"user","content":"' + "u" * 60 + '"}', "b" * 600, '[{"name":"' + "t" * 600 + '"}]'
    line = (
        '{"data":{"content":{"messages":[' + user + ',{"a":1}],"tools":' + tools + ',"note":"' + big + '"}},'
        '"metadata":{"error":"' + big + '"},"other":"' + big + '"}'
    ).encode()
    cuts = plan(line, False, False)
    said = [(kind, flags & LOOSE, line[start:end]) for start, end, kind, flags, _ in cuts]
    assert said == [
        (LIST, 0, f'[{user},{{"a":1}}]'.encode()),
        (TOOLS, 0, tools.encode()),
        (VALUE, 0, f'"{big}"'.encode()),
        (VALUE, LOOSE, f'"{big}"'.encode()),
    ]
    places = cuts[0][4]
    assert [line[a:b] for a, b in zip(places[::2], places[1::2], strict=True)] == [user.encode(), b'{"a":1}']
    inside = plan(b'{"data":{"choices":[{"message":{"content":"%b"}}]}}' % (b"m" * 600), False, False)
    assert [kind for _, _, kind, _, _ in inside] == [MESSAGE]


@needs_compiled
@given(events(ODD_NAMES), st.sampled_from([1, 2, None]), st.sampled_from([(", ", ": "), ("\n,\t", " :\r")]))
def test_what_is_cut_out_of_spaced_text_is_whole_values(event: Any, indent: int | None, signs: tuple[str, str]) -> None:
    line = json.dumps(event, indent=indent, separators=signs).encode()
    end = 0
    for start, stop, _, _, items in compiled.plan(line, False, False):
        assert end <= start < stop and stop - start >= (2 if items is not None else MIN_MESSAGE)
        end = stop
        value = json.loads(line[start:stop])
        if items is not None:
            assert [json.loads(line[a:b]) for a, b in zip(items[::2], items[1::2], strict=True)] == value


@needs_compiled
@given(events(ODD_NAMES), st.data())
def test_any_bytes_are_taken(event: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(compact(event))
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(line)))
        cut = data.draw(st.integers(0, 3))
        line[at : at + cut] = data.draw(st.sampled_from([b"", b'"', b"\\", b"{", b"]", b"\0", b"\xff", b":", b",,"]))
    text = bytes(line)
    for cuts in (compiled.plan(text, False, False), compiled.plan(text, True, True), compiled.plan_inside(text)):
        assert all(0 <= start < end <= len(text) for start, end, *_ in cuts)
        assert all(0 <= at <= len(text) for *_, items in cuts if items for at in items)
    compiled.is_deeper(text, 3)
    compiled.mark_parts(text * 3)


# Chunk marks

MARK = (
    b'{"atof_version":"0.1","category":"llm","data":{"chunk_index":7,"delta":"x"},"kind":"mark","name":"llm.chunk",'
    b'"parent_uuid":"019ace0e-7c5b-7000-8000-000000000001","propagation_root_uuid":"019ace0e-7c5b-7000-8000-00000000000f",'
    b'"timestamp":"2026-11-30T10:00:00.123456789+00:00","uuid":"019ace0e-7c5b-7abc-8def-0123456789ab"}'
)


@pytest.mark.parametrize("mark_parts", [plain.mark_parts, pytest.param(kernels.mark_parts, id="as installed")])
def test_a_mark_comes_apart(mark_parts: Any) -> None:
    around, look, index, uuid, at_ns = mark_parts(MARK)
    assert around == MARK[-212:-98] and look == MARK[:-212].replace(b":7,", b":,")
    assert (index, UUID(bytes=uuid)) == (7, UUID("019ace0e-7c5b-7abc-8def-0123456789ab"))
    assert at_ns == 1_796_032_800_123_456_789


@needs_compiled
@given(st.integers(0, len(MARK) - 1), st.binary(min_size=1, max_size=1) | st.sampled_from([b"0", b"9", b"A", b'"']))
def test_both_take_apart_the_same_marks(at: int, sign: bytes) -> None:
    line = MARK[:at] + sign + MARK[at + 1 :]
    assert compiled.mark_parts(line) == plain.mark_parts(line)


@needs_compiled
@given(
    st.sampled_from(
        [b"0", b"00", b"01", b"12", b"9" * 15, b"1" * 16, b"-1", b"1.0", b"1e3", b"null", b"", b'"7"', b" 7"]
    )
)
def test_both_know_the_same_numbers_of_chunks(number: bytes) -> None:
    line = MARK.replace(b'"chunk_index":7', b'"chunk_index":' + number)
    assert compiled.mark_parts(line) == plain.mark_parts(line)


@needs_compiled
@given(st.datetimes(datetime(1890, 1, 1), datetime(2210, 1, 1)), st.integers(0, 999_999_999))
def test_both_read_the_same_times(moment: datetime, ns: int) -> None:
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").encode() + b".%09d" % ns
    line = MARK.replace(b"2026-11-30T10:00:00.123456789", text)
    found = compiled.mark_parts(line)
    assert found == plain.mark_parts(line)
    if 1900 <= moment.year < 2200:
        since = moment.replace(tzinfo=UTC, microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)
        assert found[4] == since // timedelta(seconds=1) * 1_000_000_000 + ns
    else:
        assert found is None


@pytest.mark.parametrize("day", ["2026-02-29", "2024-02-30", "1900-02-29", "2026-04-31", "2026-00-10", "2026-13-01"])
def test_no_day_that_never_was(day: str) -> None:
    line = MARK.replace(b"2026-11-30", day.encode())
    assert kernels.mark_parts(line) is plain.mark_parts(line) is None


CANONICAL = st.uuids().map(str)
WRITTEN = (
    st.none() | CANONICAL | CANONICAL.map(str.upper) | st.sampled_from(["", "x", "9" * 36, "ä" * 36, "\U0001f600" * 36])
)
TIMES = st.sampled_from(
    ("2026-11-30T10:00:00.123456789+00:00", "2026-02-29T10:00:00.123456789+00:00", "2026-11-30T10:00:00Z", 1, "ü" * 35)
    + (
        "2026-11-30T10:00:60.123456789+00:00",
        "2026-11-30T10:00:00.12345678x+00:00",
        "2026-11-30 10:00:00.123456789+00:00",
    )
)


@needs_compiled
@given(CANONICAL | WRITTEN.filter(lambda text: text is not None), WRITTEN, WRITTEN, TIMES)
def test_both_know_the_same_events(uuid: str, parent: str | None, root: str | None, timestamp: str | int) -> None:
    found = compiled.identity(uuid, parent, root, timestamp)
    assert found == plain.identity(uuid, parent, root, timestamp)
    if found is not None:
        assert found[:3] == tuple(UUID(text).bytes if text else None for text in (uuid, parent, root))
        assert found[3] == parse_timestamp(timestamp)[0]


# Holes

UUIDS = st.sampled_from([UUID(int=n).bytes for n in (1, 2, 1 << 127, (1 << 128) - 1)])


@needs_compiled
@given(
    *(UUIDS, st.none() | UUIDS, st.none() | UUIDS),
    st.sampled_from([b"", b"2026-11-30T10:00:00Z", b"1796032800123456"]),
    st.lists(st.integers(0, 7), max_size=9),
)
def test_both_make_the_same_holes(
    uuid: bytes, parent: bytes | None, root: bytes | None, stamp: bytes, parts: list[int]
) -> None:
    texts = [str(UUID(bytes=b)).encode() for b in (uuid, parent or b"p" * 16, root or b"r" * 16)]
    some = [*texts, stamp, b'{"a":"', b"-", b"2026-11-30T", b"x-y"]
    text = b'"'.join(some[part] for part in parts)
    made = compiled.make_holes(text, uuid, parent, root, stamp, b"9+")
    assert made == plain.make_holes(text, uuid, parent, root, stamp, b"9+")


# Whole numbers

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300) | st.integers(-40_000, 40_000)


@needs_compiled
@given(st.lists(NUMBERS, min_size=2, max_size=20), st.integers(0, (1 << 64) - 1))
def test_both_write_the_same_numbers(values: list[int], one: int) -> None:
    mine, theirs = bytearray(b"head"), bytearray(b"head")
    for module, out in ((compiled, mine), (plain, theirs)):
        module.write_varint(out, one)
        module.write_deltas(out, [value >> 2 for value in values])
        module.pack(out, values)
        module.pack_differences(out, tuple(values))
    assert mine == theirs


@needs_compiled
@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), NUMBERS), max_size=9))
def test_both_split_the_same_uuids(marks: list[tuple[bytes, int]]) -> None:
    uuids, times = [uuid for uuid, _ in marks], [ns for _, ns in marks]
    assert compiled.split_uuids(uuids, times) == plain.split_uuids(uuids, times)


# Looking through


@needs_compiled
@given(
    st.lists(
        st.sampled_from([b"key=", b"Token\\", b"sk-", b"@", b"passw", b'key"', b"_live_"]), min_size=1, unique=True
    ),
    st.lists(
        st.sampled_from([b"KEY=", b"to", b"ken\\", b"s", b"K-", b"@", b"pass", b"word", b'ey"', b"k", b" "]), max_size=8
    ),
)
def test_both_find_the_same_signs(signs: list[bytes], parts: list[bytes]) -> None:
    text = b"".join(parts)
    assert (
        compiled.Signs(signs).within(text)
        == plain.Signs(signs).within(text)
        == any(s.lower() in text.lower() for s in signs)
    )


@needs_compiled
@given(values(ODD_NAMES), st.integers(0, 6))
def test_both_measure_the_same_depth(value: Any, levels: int) -> None:
    text = json.dumps(value).encode()
    assert compiled.is_deeper(text, levels) == plain.is_deeper(text, levels)


PLAIN_NAMES = ("role", "content", "name", "header", "arguments", "api_key", "error", "größe", 'a"b')


def _kind(name: bytes) -> int:
    flags = {b"name": NAMING, b"header": NAMING, b"arguments": ARGUMENTS, b"api_key": SUSPECT, b"error": SUSPECT}
    return flags.get(name, 0)


@needs_compiled
@given(
    st.recursive(
        st.sampled_from([*PLAIN_NAMES, 1, None, "api_key" * 20]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(PLAIN_NAMES), inner, max_size=3),
    ),
    st.sampled_from([None, 1]),
)
def test_both_think_the_same_names_plain(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    made = [module.Names(_kind, lambda value: b"api" in value) for module in (compiled, plain)]
    assert made[0].are_plain(text) == made[1].are_plain(text)
    assert not made[0].are_plain(text[:-1]) or not isinstance(value, list | dict)


@pytest.mark.parametrize(
    ("text", "are_plain"),
    [
        (b'{"a":[{"b":1},"api_key"]}', True),
        (b'{"a":{"api_key":1}}', False),
        (b'{"a":[["api_key","x"]]}', False),
        (b'{"a":[["api_key","x","y"]]}', True),
        (b'{"name":"api_key","value":1}', False),
        (b'{"other":"api_key"}', True),
        (b'{"arguments":"api"}', False),
        (b'{"arguments":"else"}', True),
        (b"[" * 5_000 + b"]" * 5_000, False),
    ],
)
def test_a_name_that_is_not_plain_is_seen(text: bytes, are_plain: bool) -> None:
    for names in (kernels.Names, plain.Names):
        assert names(_kind, lambda value: b"api" in value).are_plain(text) is are_plain
