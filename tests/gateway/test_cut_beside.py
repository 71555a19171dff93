"""A stream that breaks off beside a stream intercept of somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nemo_relay
import pytest

from relayweb.gateway.answering import Cut
from relayweb.gateway.app import Gateway
from relayweb.gateway.upstreams import Target
from tests.gateway.events import outcome, recorded
from tests.gateway.inprocess import ask
from tests.gateway.provider import CUT, Provider, Script, chat_stream

STREAM = {"content-type": "text/event-stream"}
TIMES = 20  # some were taken for streams that end


@pytest.fixture
def passing() -> Iterator[None]:
    held: list[Any] = []

    async def intercept(_name: str, request: Any, _context: Any, proceed: Any) -> Any:
        async def chunks() -> Any:
            held.append(await proceed(request))  # tests/adapters/test_unheld_streams.py says why
            async for chunk in held[-1]:
                yield chunk

        return chunks()

    nemo_relay.intercepts.register_llm_stream_execution("tests.beside", 5, intercept)
    yield
    nemo_relay.intercepts.deregister_llm_stream_execution("tests.beside")


@pytest.mark.parametrize("before", [0, 1, 3])
async def test_it_never_ends_cleanly(gateway: Gateway, provider: Provider, passing: None, before: int) -> None:
    provider.scripts["beside"] = Script(headers=STREAM, pieces=[*chat_stream(*"ABCDE")[:before], b": on\n\n", CUT])
    target = Target("mock", provider.url, "chat_completions")
    async with recorded() as events:
        for number in range(TIMES):
            body = {"model": "beside", "stream": True, "messages": [{"role": "user", "content": f"q {number}"}]}
            answer = await ask(gateway, target, "chat/completions", body)
            assert isinstance(answer.error, Cut) and not answer.ended
            assert answer.body == b"".join(chat_stream(*"ABCDE")[:before]) or answer.body.endswith(b": on\n\n")
        await gateway.close()
        await events.flushed()
    assert len(events.marks("relay.attempt_failed")) == TIMES
    assert {outcome(call) for call in events.calls} == {"failed"}
