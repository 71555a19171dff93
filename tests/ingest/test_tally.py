from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from relayweb.ingest import tally


@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), max_size=40), st.booleans())
def test_pieces_are_the_lines_and_none_is_long(lines: list[bytes], ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    with mock.patch.multiple(tally, PIECE_LINES=3, PIECE_BYTES=10):
        found = list(tally.pieces(data))
    assert b"".join(found) == data
    for piece in found:
        assert 0 < piece.count(b"\n") <= 3 or piece is found[-1]
        assert len(piece) <= 10 or piece.count(b"\n", 0, -1) == 0
        assert piece.endswith(b"\n") or piece is found[-1]
