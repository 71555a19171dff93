"""A turn as a file, from its page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.test import AsyncClient, Client
from django.urls import reverse

from relayweb.ingest import export
from relayweb.ui.downloads import FORMATS


async def read(client: AsyncClient, address: str) -> tuple[int, dict[str, str], bytes]:
    answer: Any = await client.get(address)
    if not answer.streaming:
        return answer.status_code, dict(answer.headers), answer.content
    return answer.status_code, dict(answer.headers), b"".join([piece async for piece in answer.streaming_content])


def load(viewer: Client, address: str) -> tuple[int, dict[str, str], bytes]:
    client = AsyncClient()
    client.cookies = viewer.cookies
    return async_to_sync(read)(client, address)


@pytest.mark.parametrize("form", FORMATS)
def test_a_turn_is_downloaded_as_lines_of_json(viewer: Client, record: Callable[..., str], form: str) -> None:
    turn = record("Say hello.")
    status, headers, body = load(viewer, reverse("ui:turn-download", args=[turn, form]))
    assert status == 200
    assert headers["Content-Disposition"] == f'attachment; filename="turn-{turn}.{form}.jsonl"'
    assert body.endswith(b"\n")
    told = [json.loads(line) for line in body.splitlines()]
    assert told and "Say hello." in json.dumps(told)


def test_the_atof_of_a_page_is_that_of_the_command(viewer: Client, record: Callable[..., str]) -> None:
    turn = record("Say hello.")
    record("Something else.", session="s2")
    _, _, body = load(viewer, reverse("ui:turn-download", args=[turn, "atof"]))
    assert body == b"".join(export.atof(export.turn(turn)))
    assert b"Something else." not in body


def test_an_unknown_turn_or_format_is_not_found(viewer: Client, record: Callable[..., str]) -> None:
    turn = record()
    assert load(viewer, reverse("ui:turn-download", args=[turn, "csv"]))[0] == 404
    assert load(viewer, "/turns/01a22b60-1feb-7c80-a7f6-000000000000/download/atof/")[0] == 404


def test_nobody_downloads_without_the_right_to_see_the_record(record: Callable[..., str]) -> None:
    address = reverse("ui:turn-download", args=[record(), "atof"])
    assert Client().get(address).status_code == 302
    outsider = Client()
    outsider.force_login(get_user_model().objects.create_user("nobody"))
    assert outsider.get(address).status_code == 403
