"""Cutting Server-Sent Events without losing a byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import sse
from adapters.sse import Slice, Splitter, chunk, encode


def split(*pieces: bytes) -> list[Slice]:
    splitter = Splitter()
    out = [piece for data in pieces for piece in splitter.feed(data)]
    rest = splitter.rest()
    return [*out, rest] if rest else out


def data(stream: bytes) -> list[bytes]:
    return [piece.data for piece in split(stream) if piece.data is not None]


def test_lines_end_with_lf_crlf_or_cr() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        assert data(b"data: a" + end * 2 + b"data: b" + end * 2) == [b"a", b"b"]


def test_line_ends_may_be_mixed() -> None:
    assert data(b"data: a\r\n\ndata: b\r\r\ndata: c\n\r\n") == [b"a", b"b", b"c"]


def test_B16_crlf_no_space_and_several_data_lines_are_one_event() -> None:
    assert [json.loads(d) for d in data(b'data:{"a":\r\ndata:1}\r\n\r\n')] == [{"a": 1}]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert data(b"data:  a \n\n") == [b" a "]


def test_a_field_without_a_colon_has_an_empty_value() -> None:
    assert data(b"data\n\n") == [b""]
    assert data(b"data\ndata\n\n") == [b"\n"]


def test_B17_comments_and_empty_data_are_no_data() -> None:
    pieces = split(b": ping\n\ndata:\n\n\n\n: x\ndata: {}\n\n")
    assert [p.data for p in pieces] == [None, b"", None, b"{}"]
    assert b"".join(p.raw for p in pieces) == b": ping\n\ndata:\n\n\n\n: x\ndata: {}\n\n"


def test_B19_the_event_name_belongs_to_the_whole_event() -> None:
    for stream in (b"event: error\ndata: {}\n\n", b"data: {}\nevent: error\n\n", b"event:error\ndata: {\ndata: }\n\n"):
        (piece,) = split(stream)
        assert piece.event == "error"
        assert json.loads(piece.data or b"") == {}


def test_the_name_of_one_event_does_not_leak_into_the_next() -> None:
    assert [p.event for p in split(b"event: a\ndata: 1\n\ndata: 2\n\n")] == ["a", None]


def test_B15_data_is_utf8_whatever_the_charset_says_and_u0085_is_no_line_end() -> None:
    text = "✅ next\u0085line\u2028and\u2029more\x0b\x0c"
    (found,) = data(f"data: {text}\n\n".encode())
    assert found.decode() == text


def test_a_character_cut_in_two_is_whole_again() -> None:
    stream = "data: ✅\n\n".encode()
    assert [p.data for p in split(stream[:7], stream[7:])] == ["✅".encode()]


def test_a_bom_at_the_start_is_no_part_of_the_first_field() -> None:
    assert data(b"\xef\xbb\xbfdata: a\n\ndata: b\n\n") == [b"a", b"b"]
    assert data(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_each_event_is_given_out_with_its_last_byte() -> None:
    for end in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        splitter = Splitter()
        last = end[-1:] if end != b"\r\n\r\n" else b"\r"
        stream = b"data: a" + end
        stream = stream[: stream.rindex(last)]
        assert splitter.feed(stream) == []
        assert [p.data for p in splitter.feed(last)] == [b"a"]


def test_a_cr_at_the_end_of_a_piece_may_be_half_of_a_crlf() -> None:
    assert [p.data for p in split(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\ndata: c\r\n\r\n") if p.data] == [
        b"a\nb",
        b"c",
    ]


def test_a_cut_stream_leaves_its_rest() -> None:
    splitter = Splitter()
    assert splitter.feed(b"data: a\n\ndata: b\n") == [Slice(b"data: a\n\n", None, b"a")]
    assert splitter.rest() == Slice(b"data: b\n", None, b"b")
    assert splitter.rest() is None


def test_encode_and_split_are_inverse() -> None:
    (piece,) = split(encode(b"a\nb\r\nc", "x"))
    assert (piece.event, piece.data) == ("x", b"a\nb\nc")
    (piece,) = split(encode(b"{}"))
    assert (piece.event, piece.data) == (None, b"{}")


TOKENS = [
    b"data: {}", b"data:x", b"data", b":c", b"event: e", b"id: 1", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n",
    b"\r\r", b"\xef\xbb\xbf", "✅".encode(), b"", b" ", b"[DONE]",
]  # fmt: skip
streams = st.one_of(st.lists(st.sampled_from(TOKENS), max_size=30).map(b"".join), st.binary(max_size=60))


@given(stream=streams, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_any_chunking_gives_the_same_events_and_every_byte(stream: bytes, cuts: list[int]) -> None:
    at = sorted({0, len(stream), *(c for c in cuts if c < len(stream))})
    pieces = [stream[a:b] for a, b in zip(at, at[1:], strict=False)]
    found, whole = split(*pieces), split(stream)
    assert b"".join(p.raw for p in found) == stream
    assert [(p.event, p.data) for p in found if p.data is not None] == [
        (p.event, p.data) for p in whole if p.data is not None
    ]


@given(stream=streams)
def test_one_byte_at_a_time_is_any_chunking_too(stream: bytes) -> None:
    found = split(*(stream[i : i + 1] for i in range(len(stream))))
    assert b"".join(p.raw for p in found) == stream
    assert [p.data for p in found if p.data is not None] == data(stream)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


@pytest.mark.parametrize("data", [b"{not json}", b"null", b"[]", b'"str"', b"NaN", b"[" * 20_000])
def test_data_that_is_no_json_object_is_kept_as_text(data: bytes) -> None:
    (piece,) = Splitter().feed(b"data: " + data + b"\n\n")
    assert chunk(piece, _json) == {"type": "relay.unreadable", "text": data.decode(), "bytes": len(data)}


@pytest.mark.parametrize("event", [b": ping\n\n", b"data:\n\n", b"data: [DONE]\n\n", b"\n", b"event: ping\n\n"])
def test_what_keeps_a_stream_alive_or_ends_it_is_no_chunk(event: bytes) -> None:
    (piece,) = Splitter().feed(event)
    assert chunk(piece, _json) is None


@pytest.mark.parametrize("data", [b"boom: plain text", b'"boom: plain text"'])
def test_b19_an_event_named_error_is_one_whatever_its_data_is(data: bytes) -> None:
    (piece,) = Splitter().feed(b"event: error\ndata: " + data + b"\n\n")
    assert chunk(piece, _json) == {"type": "error", "error": {"message": "boom: plain text"}}
    (piece,) = Splitter().feed(b'event: error\ndata: {"message": "m"}\n\n')
    assert chunk(piece, _json) == {"type": "error", "message": "m"}


@pytest.mark.parametrize(
    "head", [b"data: x", b"event: y\n", b": hello", b"id: 1", b"retry: 2", b"\xef\xbb\xbf\r\n data:"]
)
def test_an_event_stream_is_known_by_its_first_bytes(head: bytes) -> None:
    assert sse.begins(head) is True
    *undecided, last = (sse.begins(head[: i + 1]) for i in range(head.index(b":") + 1))
    assert set(undecided) <= {None} and last is True


@pytest.mark.parametrize("head", [b'{"a": 1}', b"[", b"<html>", b"dato", b"\xef\xbb{", b"database", b"\xff"])
def test_what_is_none_is_known_as_well(head: bytes) -> None:
    assert sse.begins(head) is False


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream ; charset=utf-8", True),
        ("text/event-streams", False),
        ("", False),
    ],
)
def test_a_response_says_that_it_is_an_event_stream(kind: str, said: bool) -> None:
    assert sse.is_said(kind) is said
