"""Scripts and styles come compressed, pages do not."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from django.contrib.staticfiles import finders

PATH = "relayweb/turn.css"


def content(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


@pytest.mark.parametrize("name", [PATH, "relayweb/turn/page.js", "relayweb/icons.svg"])
def test_a_file_is_compressed_for_who_takes_it_and_stays_the_same(client, name):
    found = finders.find(name)
    with open(found, "rb") as file:
        whole = file.read()
    plain = client.get(f"/static/{name}")
    assert content(plain) == whole and not plain.has_header("Content-Encoding")
    packed = client.get(f"/static/{name}", headers={"accept-encoding": "gzip, br"})
    assert packed["Content-Encoding"] == "gzip" and "Accept-Encoding" in packed["Vary"]
    assert gzip.decompress(content(packed)) == whole and int(packed["Content-Length"]) < len(whole) / 2
    assert packed["Content-Type"] == plain["Content-Type"] and packed["Cache-Control"] == plain["Cache-Control"]


def test_who_has_a_compressed_file_is_told_that_it_is_the_same(client):
    packed = client.get(f"/static/{PATH}", headers={"accept-encoding": "gzip"})
    again = client.get(f"/static/{PATH}", headers={"accept-encoding": "gzip", "if-none-match": packed["ETag"]})
    assert again.status_code == 304


def test_a_part_of_a_file_is_sent_as_it_is(client):
    part = client.get(f"/static/{PATH}", headers={"accept-encoding": "gzip", "range": "bytes=0-99"})
    assert part.status_code == 206 and not part.has_header("Content-Encoding") and len(content(part)) == 100


def test_a_page_is_not_compressed(viewer):
    page = viewer.get("/", headers={"accept-encoding": "gzip"})
    assert page.status_code == 200 and not page.has_header("Content-Encoding")
