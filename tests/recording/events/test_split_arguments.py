"""Secrets in arguments that are split over the chunks of one mark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from hypothesis import example, given
from hypothesis import strategies as st

from relayweb.recording.events.masking import mask_event, suspects_split
from relayweb.recording.models import ChunkBlock
from relayweb.recording.reading import chunks as kept
from relayweb.recording.store.tables import Tables
from relayweb.recording.writing.recorder import Line, Recorder
from tests.recording import streams


def chat(piece: str, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}}]}


def message(piece: str, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": piece}}


def response(piece: str, index: int = 0) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}


def said(chunk: dict[str, Any]) -> str:
    if "choices" in chunk:
        return str(chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"])
    return str(chunk["delta"]["partial_json"] if isinstance(chunk["delta"], dict) else chunk["delta"])


def masked(chunks: list[dict[str, Any]]) -> list[str]:
    data = {"first": 0, "chunks": chunks}
    line = json.dumps({"name": "relay.chunks", "data": data, "timestamp": 1.50}, separators=(",", ":")).encode()
    out = mask_event(line, split=suspects_split(json.dumps(data).encode()))
    return [said(chunk) for chunk in json.loads(out)["data"]["chunks"]]


CASES = [
    (["run sk-ant-api03-AAA", "BBBBCCCC", "DDDD now"], ["run [masked]", "", " now"]),
    (["export TOKEN=", "q7Rw5Tz9Lk2M", "; ls"], ["export TOKEN=", "[masked]", "; ls"]),
    (["ls -", "l /t", "mp"], ["ls -", "l /t", "mp"]),
    (['{"command":"export API_', "KEY=q7Rw5T", 'z9Lk2M"}'], ['{"command":"export API_', "KEY=[masked]", '"}']),
]


@pytest.mark.parametrize("make", [chat, message, response])
@pytest.mark.parametrize(("pieces", "shown"), CASES)
def test_a_secret_over_several_pieces_is_masked_where_it_begins(
    pieces: list[str], shown: list[str], make: Callable[[str], dict[str, Any]]
) -> None:
    assert masked([make(piece) for piece in pieces]) == shown


def test_calls_that_come_in_turns_are_joined_each_for_itself() -> None:
    chunks = [chat("TOK", 0), chat("say EN=", 1), chat("EN=q7Rw5T", 0), chat("hello", 1), chat("z9Lk2M", 0)]
    assert masked(chunks) == ["TOK", "say EN=", "EN=[masked]", "hello", ""]


SECRETS = {
    "sk-ant-api03-q7Rw5Tz9Lk2MxV4n": "run {} now",
    "q7Rw5Tz9Lk2MxV4n": "export TOKEN={}; ls",
    "AKIAQ7RW5TZ9LK2MXV4N": '{{"command": "aws {}"}}',
    "Zq8vN3xK7pL2wR9t": '{{"user": "x", "password": "{}", "n": 1}}',
}


@pytest.mark.parametrize("make", [chat, message, response])
@given(
    secret=st.sampled_from(sorted(SECRETS)),
    cuts=st.lists(st.integers(0, 100), max_size=30),
    before=st.text('ab \n"\\{}:=é😀', max_size=10),
)
@example(secret="q7Rw5Tz9Lk2MxV4n", cuts=list(range(100)), before="")
def test_however_it_is_cut_no_eight_characters_of_a_secret_stay(
    make: Callable[[str], dict[str, Any]], secret: str, cuts: list[int], before: str
) -> None:
    text = SECRETS[secret].format(secret)
    if not text.startswith("{"):
        text = f"{before} {text}" if not before.strip() else text
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    shown = masked([make(text[a:b]) for a, b in zip(places, places[1:], strict=False)])
    whole = "".join(shown)
    assert "[masked]" in whole
    assert not [at for at in range(len(secret) - 7) if secret[at : at + 8] in whole]
    assert len(shown) == len(places) - 1


@given(pieces=st.lists(st.text('ab \n"\\{}:,é😀1', max_size=6), max_size=12))
def test_what_is_no_secret_keeps_its_pieces(pieces: list[str]) -> None:
    assert masked([chat(piece) for piece in pieces]) == pieces


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("escaped", [False, True])
def test_the_record_of_a_stream_holds_no_part_of_such_a_secret(escaped: bool) -> None:
    chunks = [chat("export TOKEN="), chat("q7Rw5Tz9"), chat("Lk2MxV4n; echo \U0001f600"), chat("\ud83d done")]
    mark = streams.mark("relay.chunks", streams.uid(), 1, {"first": 0, "chunks": chunks})
    line = json.dumps(mark, separators=(",", ":")).encode()
    if escaped:
        line = line.replace(b'"arguments"', b'"\\u0061rguments"')
    Recorder(Tables(connection)).record([Line(line, 1)])
    (text,) = [text.decode() for block in ChunkBlock.objects.all() for _, text in kept.texts(block)]
    assert "q7Rw5Tz9" not in text and "Lk2MxV4n" not in text
    said_of = [said(chunk) for chunk in json.loads(text)["data"]["chunks"]]
    assert said_of == ["export TOKEN=", "[masked]", "; echo \U0001f600", "\ud83d done"]
