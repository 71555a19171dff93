from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from relayweb.recording.writing.writer import writer
from relayweb.ui import facets
from tests.people import signed_in
from tests.writers import own_writer


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Records of two tests can have the same number of changes."""
    facets._context.cache_clear()


@pytest.fixture(autouse=True)
def own_writer_of_the_test() -> Iterator[None]:
    with own_writer():
        yield


@pytest.fixture
def viewer(transactional_db: None) -> Client:
    return signed_in("viewer")


@pytest.fixture
def operator(transactional_db: None) -> Client:
    return signed_in("operator")


@pytest.fixture
def record(transactional_db: None) -> Callable[..., str]:
    """Records a turn with one call; returns its uuid."""

    def one(
        asked: str = "Say hello.",
        *,
        model: str = "gpt-5.2",
        session: str = "s1",
        minute: int = 0,
        seconds: int = 2,
        failed: bool = False,
        parent: str | None = None,
    ) -> str:
        turn, call = str(uuid.uuid4()), str(uuid.uuid4())
        messages = [{"role": "user", "content": asked}]
        base: dict[str, Any] = {"kind": "scope", "atof_version": "0.1", "attributes": []}
        start = f"2026-11-30T08:{minute:02d}:00.000000Z"
        end = f"2026-11-30T08:{minute + seconds // 60:02d}:{seconds % 60:02d}.000000Z"
        role = {"nemo_relay_scope_role": "turn", "session_id": session}
        bad = {"otel.status_code": "ERROR", "otel.status_description": "overloaded"}
        outer = {**base, "category": "agent", "name": "agent.turn", "uuid": turn, "parent_uuid": parent}
        inner = {**base, "category": "llm", "name": "openai.chat_completions", "uuid": call, "parent_uuid": turn}
        profile = {"model_name": model}
        content = {"headers": {}, "content": {"model": model, "messages": messages}}
        events = [
            {**outer, "scope_category": "start", "timestamp": start, "data": None, "metadata": role},
            {**inner, "scope_category": "start", "timestamp": start, "data": content, "category_profile": profile},
            {**inner, "scope_category": "end", "timestamp": end, "data": None, "metadata": bad if failed else {}},
            {
                **outer,
                "scope_category": "end",
                "timestamp": end,
                "data": None,
                "metadata": role | (bad if failed else {}),
            },
        ]
        receipt = writer().submit_sync(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        assert receipt.rejected == []
        return turn

    return one
