"""What a process asks and tells others of its turns, and what it makes of what they tell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from relayweb import shared
from relayweb.gateway.conversation import CHAT, Answer, ToolCall, read_question
from relayweb.gateway.headers import Caller
from relayweb.gateway.state import Call, Patience
from relayweb.gateway.turns import Registry
from relayweb.gateway.words import Away, Began, Open, Over, Place

SLOW = Patience(retry=60, hangup=60, idle=60, failed=60, named=60, session=60)
TOOL = Answer(None, (ToolCall("c1", "look", {}),), goes_on=True)
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "And the weather?"}]
RESULT: list[dict[str, Any]] = [*ASKED, {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]


class Others:
    """In place of Redis: counts what is looked up, and knows what it is given."""

    def __init__(self) -> None:
        self.look_ups = 0
        self.known: Place | None = None
        self.away = False
        self.ended_turns: list[str] = []

    async def leads(self, question: Any, tenant: Any) -> tuple[None, dict[str, Any], dict[str, str]]:
        self._asked()
        return None, {}, {}

    async def place(self, key: Any) -> Place | None:
        self._asked()
        return self.known

    def _asked(self) -> None:
        self.look_ups += 1
        if self.away:
            raise Away

    def began(self, call: Call, question: Any, results: dict[str, Any]) -> None: ...

    def over(self, call: Call, outcome: str, at: Any, *, closed: bool) -> None: ...

    def answered(self, turn: Any, answer: Answer) -> None: ...

    def ended(self, turn: Any) -> None:
        self.ended_turns.append(turn.id)


@pytest.fixture
async def registry() -> Any:
    registry = Registry(SLOW)
    registry.sharing = Others()  # type: ignore[assignment]
    yield registry
    await registry.close()


async def begin(registry: Registry, messages: list[dict[str, Any]], **caller: Any) -> Call:
    question, digest = read_question(CHAT, {"messages": messages}), repr(messages).encode()
    await registry.recall(Caller(**caller), question, digest, "a", "tests")
    return registry.begin(Caller(**caller), question, digest, "a", "tests")


def over(call: Call, *, closed: bool = True, goes_on: bool = False) -> Over:
    turn = call.turn
    return Over("other", turn.session.id, turn.id, call.id, "success", datetime.now(UTC), closed, goes_on)


def began(call: Call) -> Began:
    there = Open(call.id, call.digest, call.asks, call.named, call.attempts + 1, True)
    return Began("other", call.turn.session.id, call.turn.id, there, {})


async def test_a_call_whose_turn_is_open_here_asks_nobody(registry: Registry) -> None:
    others: Any = registry.sharing
    call = await begin(registry, ASKED)
    assert others.look_ups == 1  # nothing was known of the conversation
    registry.answered(call, TOOL, "a")
    call = await begin(registry, RESULT)
    registry.failed(call, retryable=True)
    assert (await begin(registry, RESULT, retry_count=1)) is call
    assert others.look_ups == 1


async def test_a_turn_open_elsewhere_is_taken_up_with_its_failed_call(registry: Registry) -> None:
    others: Any = registry.sharing
    digest = repr(ASKED).encode()
    others.known = Place("turn-1", False, False, [Open("call-1", digest, (), False, 1, False)])
    call = await begin(registry, ASKED, session_id="s", retry_count=1)
    assert (call.id, call.turn.id, call.attempts, call.turn.shared) == ("call-1", "turn-1", 2, True)
    assert not call.turn.elsewhere


async def test_a_retry_elsewhere_takes_the_call_along_and_its_answer_ends_the_turn_here(registry: Registry) -> None:
    others: Any = registry.sharing
    call = await begin(registry, ASKED)
    registry.failed(call, retryable=True)
    registry.hear(began(call))
    assert call.turn.elsewhere == {call.id: call} and not call.turn.calls and not call.turn.ended
    registry.hear(over(call))
    assert call.closed and call.turn.ended and others.ended_turns == [call.turn.id]


async def test_a_turn_that_waits_for_a_tool_goes_on_waiting_while_another_process_asks_for_the_next(
    registry: Registry,
) -> None:
    call = await begin(registry, ASKED)
    registry.answered(call, TOOL, "a")
    elsewhere = Call("call-2", call.turn, b"", (), False)
    registry.hear(began(elsewhere))
    registry.hear(over(elsewhere, goes_on=True))
    assert not call.turn.ended and call.turn.goes_on
    registry.hear(began(elsewhere))
    registry.hear(over(elsewhere))
    assert call.turn.ended


async def test_what_runs_here_too_is_not_taken_away(registry: Registry) -> None:
    call = await begin(registry, ASKED, session_id="s", turn_id="t", request_id="r")
    registry.hear(began(call))
    registry.hear(over(call))
    assert call.running == 1 and not call.closed and call.turn.calls == {"r": call}


async def test_word_of_turns_that_are_not_open_here_is_passed_over(registry: Registry) -> None:
    call = await begin(registry, ASKED)
    registry.answered(call, Answer(), "a")
    registry.hear(began(call))
    registry.hear(over(call))
    assert registry.counts()["turns"] == 0


async def test_while_redis_is_away_calls_are_placed_by_what_is_known_here(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: Any = registry.sharing
    others.away = True
    assert (await begin(registry, ASKED)).attempts == 1 and others.look_ups == 1
    monkeypatch.setattr(shared, "health", shared.Health())
    shared.health.failed(OSError("gone"))
    assert (await begin(registry, [{"role": "user", "content": "Another"}])).attempts == 1 and others.look_ups == 1
