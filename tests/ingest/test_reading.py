from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from relayweb import conf
from relayweb.ingest.reading import BodyError, Gzip, Lines, Zstd, decoder

cuts = st.lists(st.integers(0, 400), max_size=6)


def pieces(data: bytes, at: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(min(n, len(data)) for n in at), len(data)]
    return (data[a:b] for a, b in zip(edges, edges[1:], strict=False))


@given(st.binary(max_size=300), cuts, st.booleans(), st.sampled_from(["gzip", "zstd", "deflate", "identity"]))
def test_a_body_unpacks_to_what_was_packed_however_it_is_cut(
    data: bytes, at: list[int], twice: bool, kind: str
) -> None:
    pack = {"gzip": gzip.compress, "zstd": zstandard.compress, "deflate": zlib.compress, "identity": bytes}[kind]
    packed = pack(data) + (pack(data) if twice else b"")
    decode = decoder(kind)
    if kind == "identity" and data.startswith((b"\x1f\x8b", zstandard.FRAME_HEADER)):
        return
    out = b"".join(decode.feed(piece) for piece in pieces(packed, at))
    decode.end()
    assert out == data * (1 + twice)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_body_that_is_not_what_it_says_is_named(kind: str) -> None:
    with pytest.raises(BodyError, match=kind) as error:
        decoder(kind).feed(b"plain text, not packed at all")
    assert error.value.status == 400


@pytest.mark.parametrize(("kind", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_a_body_that_breaks_off_is_an_error(kind: str, pack) -> None:
    decode = decoder(kind)
    decode.feed(pack(b"x" * 1000)[:-5])
    with pytest.raises(BodyError, match="breaks off"):
        decode.end()


def test_an_encoding_that_is_not_spoken_is_named_with_those_that_are() -> None:
    with pytest.raises(BodyError, match="'br'.*gzip, zstd") as error:
        decoder("br")
    assert error.value.status == 415


@pytest.mark.parametrize("told", ["gzip, identity", "identity,GZIP", " gzip ,", "x-gzip"])
def test_a_list_of_codings_of_which_one_packs_is_understood(told: str) -> None:
    assert decoder(told).feed(gzip.compress(b"{}")) == b"{}"
    with pytest.raises(BodyError) as error:
        decoder(f"{told}, gzip")
    assert error.value.status == 415


def test_zeros_after_a_gzip_body_are_nothing() -> None:
    decode = decoder("gzip")
    packed = gzip.compress(b"{}")
    assert b"".join(map(decode.feed, (packed, bytes(600), bytes(3)))) == b"{}"
    decode.end()
    with pytest.raises(BodyError):
        decode.feed(b"\0xxx")


@pytest.mark.parametrize(("pack", "coding"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_a_packed_body_that_does_not_say_so_is_told_the_header(pack, coding: str) -> None:
    with pytest.raises(BodyError, match=f"content-encoding: {coding}") as error:
        decoder("").feed(pack(b"{}"))
    assert error.value.status == 400


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_bomb_is_stopped_before_it_fills_the_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_BODY", 1_000_000)
    blank = bytes(1_000_000)
    if kind == "gzip":
        squeeze = zlib.compressobj(9, wbits=31)
        bomb = b"".join(squeeze.compress(blank) for _ in range(200)) + squeeze.flush()
    else:
        squeeze = zstandard.ZstdCompressor().compressobj()
        bomb = b"".join(squeeze.compress(blank) for _ in range(200)) + squeeze.flush()
    decode = Gzip() if kind == "gzip" else Zstd()
    given_out = 0
    with pytest.raises(BodyError, match="1000000 bytes") as error:
        for at in range(0, len(bomb), 4096):
            given_out += len(decode.feed(bomb[at : at + 4096]))
    assert error.value.status == 413
    assert given_out <= 1_000_000


def test_what_honestly_packs_well_is_taken_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_BODY", 100_000)
    data = b"".join(b'{"n": %d, "text": "the same again"}\n' % n for n in range(20_000))
    decode = Gzip()
    packed = gzip.compress(data)
    assert len(data) > 5 * conf.MAX_BODY
    assert b"".join(decode.feed(packed[at : at + 1000]) for at in range(0, len(packed), 1000)) == data


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xe2\x80\xa8", b"\x85", b"bc\nd"]), max_size=30), cuts)
def test_lines_end_at_lf_only_however_they_are_cut(words: list[bytes], at: list[int]) -> None:
    data = b"".join(words)
    lines = Lines()
    fed = [lines.feed(piece) for piece in pieces(data, at)]
    assert all(not out or out.endswith(b"\n") for out in fed)
    assert b"".join(fed) + lines.rest() == data
    assert lines.given == len(data.split(b"\n")) - data.endswith(b"\n") - (not data)


@given(st.lists(st.integers(0, 30), max_size=12), cuts)
def test_a_line_that_is_too_long_is_dropped_alone(lengths: list[int], at: list[int]) -> None:
    limit, conf.MAX_BODY = conf.MAX_BODY, 20
    try:
        data = b"".join(b"x" * n + b"\n" for n in lengths)
        lines = Lines()
        out = b"".join(lines.feed(piece) for piece in pieces(data, at)) + lines.rest()
        # The LF counts: a line is what is held until it is complete.
        kept = [n if n + 1 <= 20 else 0 for n in lengths]
        assert [len(line) for line in out.split(b"\n")[:-1]] == kept
        assert lines.too_long == [number for number, n in enumerate(lengths, 1) if n + 1 > 20]
    finally:
        conf.MAX_BODY = limit


def test_memory_holds_no_more_of_a_long_line_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_BODY", 1000)
    lines = Lines()
    for _ in range(1000):
        lines.feed(bytes(100))
        assert sum(map(len, lines._tail)) <= 1000
    assert lines.rest() == b"\n"
