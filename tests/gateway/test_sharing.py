"""What a process asks and tells others of its turns, and what it makes of what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from relayweb import shared
from relayweb.gateway import tools
from relayweb.gateway.conversation import CHAT, Answer, ToolCall, read_question
from relayweb.gateway.headers import Caller
from relayweb.gateway.state import Call, Patience, Turn
from relayweb.gateway.turns_shared import SharedRegistry as Registry
from relayweb.gateway.words import Away, Began, Leaving, Left, Open, Over, Place
from tests.gateway.events import Events, outcome, recorded

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
        self.estate: dict[tuple[str, str], bytes] = {}

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

    def left(self, turn: Turn, left: Left) -> None:
        self.estate[left.session, turn.id] = msgspec.json.encode(left)

    async def inherit(self, session: str, turn: str) -> Left | None:
        left = self.estate.pop((session, turn), None)
        return msgspec.json.decode(left, type=Left) if left else None


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


class Heirs:
    """Two processes, of which the first stops; and what is told of tools that the second did not begin."""

    def __init__(self, patience: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
        self.others = Others()
        self.first, self.second = Registry(SLOW), Registry(patience)
        self.first.sharing = self.second.sharing = self.others  # type: ignore[assignment]
        self.offered: list[dict[str, Any]] = []
        monkeypatch.setattr(tools, "writer", lambda: self)

    def offer(self, event: bytes) -> None:
        self.offered.append(msgspec.json.decode(event))

    async def stop_the_first(self) -> None:
        await self.first.close()
        for session, turn in list(self.others.estate):
            for _ in range(2):  # the second time in vain
                self.second.hear(Leaving("first", session, turn))
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 20 s")


async def told(events: Events, registry: Registry) -> list[str | None]:
    """How the turns of one id ended, in the order of their processes, once the last one has."""
    await registry.close()
    await events.flushed()
    assert len({turn["metadata"]["turn_id"] for turn in events.turns}) == 1
    return [outcome(turn) for turn in events.turns]


async def test_a_turn_that_waits_for_a_tool_goes_on_in_the_process_that_inherits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heirs = Heirs(SLOW, monkeypatch)
    async with recorded() as events:
        call = await begin(heirs.first, ASKED)
        heirs.first.answered(call, TOOL, "a")
        await heirs.stop_the_first()
        assert heirs.second.counts() == {"sessions": 1, "turns": 1, "calls": 0} and not heirs.others.estate
        again = await begin(heirs.second, RESULT)
        assert again.turn.id == call.turn.id
        heirs.second.answered(again, Answer(), "a")
        assert await told(events, heirs.second) == [None, "success"]
    (tool,) = events.tools
    (end,) = heirs.offered
    assert tool["end"] is None and (end["uuid"], end["parent_uuid"]) == (tool["uuid"], tool["parent_uuid"])
    assert (end["data"], end["category_profile"]) == ("sunny", tool["category_profile"])


async def test_what_nobody_goes_on_with_ends_in_the_process_that_inherits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    heirs = Heirs(Patience(idle=0.05), monkeypatch)
    async with recorded() as events:
        call = await begin(heirs.first, ASKED)
        heirs.first.answered(call, TOOL, "a")
        over_at = call.turn.over_at
        await heirs.stop_the_first()
        await until(lambda: not heirs.second.counts()["turns"])
        assert await told(events, heirs.second) == [None, "success"]
    assert over_at and datetime.fromisoformat(events.turns[1]["end"]["timestamp"]) == over_at
    assert [end["metadata"]["outcome"] for end in heirs.offered] == ["interrupted"]


async def test_a_failed_call_waits_for_its_retry_in_the_process_that_inherits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heirs = Heirs(SLOW, monkeypatch)
    call = await begin(heirs.first, ASKED)
    heirs.first.failed(call, retryable=True)
    await heirs.stop_the_first()
    again = await begin(heirs.second, ASKED, session_id=call.turn.session.id, retry_count=1)
    assert (again.id, again.turn.id, again.attempts) == (call.id, call.turn.id, 2)
    await heirs.second.close()


async def test_a_failed_call_that_nobody_retries_is_closed_by_the_process_that_inherits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heirs = Heirs(Patience(hangup=0.05, failed=0.05), monkeypatch)
    async with recorded() as events:
        call = await begin(heirs.first, ASKED)
        heirs.first.cancelled(call, retryable=True)
        await heirs.stop_the_first()
        await until(lambda: not heirs.second.counts()["turns"])
        assert await told(events, heirs.second) == [None, "cancelled"]
    assert [outcome(one) for one in events.calls] == ["cancelled"]


async def test_a_turn_open_in_two_processes_goes_on_in_the_one_when_the_other_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heirs = Heirs(SLOW, monkeypatch)
    call = await begin(heirs.first, ASKED, session_id="s", turn_id="t", request_id="r")
    heirs.first.failed(call, retryable=True)
    heirs.others.known = Place("t", True, False, [call.told])
    again = await begin(heirs.second, ASKED, session_id="s", turn_id="t", request_id="r")
    await heirs.stop_the_first()
    assert again.running == 1 and again.turn.calls == {"r": again} and not again.turn.ended
    await heirs.second.close()


async def test_while_redis_is_away_turns_end_with_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    heirs = Heirs(SLOW, monkeypatch)
    async with recorded() as events:
        call = await begin(heirs.first, ASKED)
        heirs.first.answered(call, TOOL, "a")
        monkeypatch.setattr(shared, "health", shared.Health())
        shared.health.failed(OSError("gone"))
        assert await told(events, heirs.first) == ["success"]
    assert not heirs.others.estate and events.tools[0]["end"]
