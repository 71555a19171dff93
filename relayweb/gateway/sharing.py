"""What the gateways of several processes tell each other through Redis, so that a turn may go on in any of them.

Three things: where conversations stand, to be looked up by a process that has not seen them; word of each call, by
which those that have the same turn open know when it goes on elsewhere and when it is over; and what a process that
stops leaves of its turns, for one other to inherit. Calls are not held up: what
is told goes out beside them, and a look-up, which only a turn not open here needs, has a bound. Word is sent only of
turns that another process took up, since hearing it costs each process as much as saying it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from redis import asyncio as aioredis
from redis.exceptions import RedisError

from relayweb import shared
from relayweb.gateway.conversation import Answer, Question
from relayweb.gateway.state import Call, Turn, TurnKey
from relayweb.gateway.words import Away, Began, Lead, Leaving, Left, Over, Place, Word

log = logging.getLogger(__name__)

LOOK_UP_SECONDS = 0.1
"""How long a call may wait to hear whether its turn is open elsewhere; after that none waits for half a second."""
GATHER_SECONDS = 0.01
"""How long what is to be told may wait for more: a batch costs 0.15 ms of CPU."""
PING_SECONDS = 2.0
_PLACE_SECONDS = 3600
_LEAD_SECONDS = 24 * 3600
_LARGEST_WORD = 1_000_000
_MOST_WAITING = 10_000
_WRITTEN_PREFIXES, _READ_PREFIXES, _READ_TOOLS = 4, 16, 16


_decode = msgspec.json.Decoder(Word).decode
_decode_place = msgspec.json.Decoder(Place).decode
_decode_lead = msgspec.json.Decoder(Lead).decode
_decode_left = msgspec.json.Decoder(Left).decode


class Sharing:
    """One for each event loop. `hear` gets what other processes tell. Safe to use, of no use, while Redis is away."""

    def __init__(self, url: str, hear: Callable[[Word], None]) -> None:
        options: dict[str, Any] = {"socket_connect_timeout": 1, "socket_timeout": 2}
        self._redis = aioredis.Redis.from_url(url, **options)
        self._listener = aioredis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=None)
        self._hear = hear
        self._process = uuid.uuid4().hex
        self._channel = shared.name("gateway")
        self._estate = shared.name("left")
        self._writes: dict[str, tuple[bytes | None, int]] = {}
        self._left: dict[Any, Any] = {}
        self._words: list[bytes] = []
        self._pending = asyncio.Event()
        self._rest_until = 0.0
        self.look_ups = 0
        self._tasks = [asyncio.ensure_future(self._lasting(work)) for work in (self._send, self._listen, self._watch)]

    async def close(self) -> None:
        """Tell what is left to tell, then stop."""
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._flush()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=2)  # a client that swallows its cancellation holds nobody up
        for connection in (self._redis, self._listener):
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await connection.aclose()

    # -- telling -----------------------------------------------------------------------------------------------------

    def began(self, call: Call, question: Question, results: dict[str, Any]) -> None:
        """An attempt began. `results` are of tools that this process did not see begin."""
        turn, tenant = call.turn, call.turn.key[0]
        session = msgspec.json.encode(turn.session.id)
        for prefix in question.prefixes[-_WRITTEN_PREFIXES:]:
            self._write(shared.name("prefix", tenant, prefix), session, _LEAD_SECONDS)
        self._place(turn)
        if turn.shared:
            self._say(Began(self._process, turn.session.id, turn.id, call.told, results))

    def over(self, call: Call, outcome: str, at: datetime | None, *, closed: bool) -> None:
        turn = call.turn
        self._place(turn)
        at = at or datetime.now(UTC)
        if turn.shared:
            self._say(Over(self._process, turn.session.id, turn.id, call.id, outcome, at, closed, turn.goes_on))

    def answered(self, turn: Turn, answer: Answer) -> None:
        """Ids by which the next request may name its turn."""
        tenant, session, key = turn.key
        lead = msgspec.json.encode(Lead(session, key))
        if answer.response_id:
            self._write(shared.name("response", tenant, answer.response_id), lead, _LEAD_SECONDS)
        for tool in answer.tool_calls:
            if tool.id:
                self._write(shared.name("tool", tenant, tool.id), lead, _PLACE_SECONDS)

    def ended(self, turn: Turn) -> None:
        self._write(shared.name("turn", *turn.key), None, 0)

    def left(self, turn: Turn, left: Left) -> None:
        """This process stops; another shall go on with the turn, or end it in its time."""
        self._left[_field(left.session, turn.id)] = msgspec.json.encode(left)
        self._place(turn, left=True)
        self._say(Leaving(self._process, left.session, turn.id))

    def _place(self, turn: Turn, *, left: bool = False) -> None:
        calls = [call.told for call in (*turn.calls.values(), *turn.elsewhere.values())]
        place = Place(turn.id, turn.named, turn.goes_on, calls, left)
        self._write(shared.name("turn", *turn.key), msgspec.json.encode(place), _PLACE_SECONDS)

    def _write(self, name: str, value: bytes | None, seconds: int) -> None:
        if len(self._writes) < _MOST_WAITING:
            self._writes[name] = value, seconds
            self._pending.set()

    def _say(self, word: Word) -> None:
        try:
            data = msgspec.json.encode(word)
            if len(data) > _LARGEST_WORD and isinstance(word, Began):
                data = msgspec.json.encode(msgspec.structs.replace(word, results=dict.fromkeys(word.results)))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):  # lone surrogates in a result
            if not isinstance(word, Began):
                raise
            data = msgspec.json.encode(msgspec.structs.replace(word, results=dict.fromkeys(word.results)))
        if len(self._words) < _MOST_WAITING and len(data) <= 10 * _LARGEST_WORD:
            self._words.append(data)
            self._pending.set()

    async def _send(self) -> None:
        while True:
            await self._pending.wait()
            await asyncio.sleep(GATHER_SECONDS)
            await self._flush()

    async def _flush(self) -> None:
        self._pending.clear()
        writes, self._writes = self._writes, {}
        words, self._words = self._words, []
        left, self._left = self._left, {}
        if shared.health.resting or not (writes or words):
            return
        pipe = self._redis.pipeline(transaction=False)
        if left:
            pipe.hset(self._estate, mapping=left)
            pipe.expire(self._estate, _PLACE_SECONDS)
        for name, (value, seconds) in writes.items():
            if value is None:
                pipe.delete(name)
            else:
                pipe.set(name, value, ex=seconds)
        for word in words:
            pipe.publish(self._channel, word)
        await pipe.execute()

    # -- hearing -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        async with self._listener.pubsub(ignore_subscribe_messages=True) as told:
            await told.subscribe(self._channel)
            for value in await self._redis.hvals(self._estate):  # left while nobody listened
                left = _decode_left(value)
                self._hear(Leaving("", left.session, left.turn))
            while True:
                message = await told.get_message(timeout=None)
                if message is None:
                    continue
                word = _decode(message["data"])
                if word.process != self._process:
                    self._hear(word)

    async def _watch(self) -> None:
        """Notices that Redis is away, and that it is back, whether or not anything is to be told."""
        while True:
            async with asyncio.timeout(2):  # not wait_for: until Python 3.12 it can swallow a cancellation
                await self._redis.ping()
            shared.health.worked()
            await asyncio.sleep(PING_SECONDS)

    async def _lasting(self, work: Callable[[], Any]) -> None:
        while True:
            try:
                await work()
            except (RedisError, OSError, TimeoutError) as error:
                shared.health.failed(error)
            except Exception:
                log.exception("sharing turns with other processes failed")
            await asyncio.sleep(shared.REST_SECONDS / 2)

    # -- looking up --------------------------------------------------------------------------------------------------

    async def leads(self, question: Question, tenant: Hashable) -> tuple[Lead | None, dict[str, Lead], dict[str, str]]:
        """What is known of the response a request goes on from, of its tools, and of what its user had said."""
        self.look_ups += 1
        tools = list(question.tool_results)[:_READ_TOOLS]
        prefixes = list(question.prefixes[-_READ_PREFIXES:])
        names = [shared.name("response", tenant, question.previous_response_id)]
        names += [shared.name("tool", tenant, id) for id in tools]
        names += [shared.name("prefix", tenant, prefix) for prefix in prefixes]
        response, *others = await self._get(names)
        by_tool = zip(tools, others[: len(tools)], strict=True)
        by_prefix = zip(prefixes, others[len(tools) :], strict=True)
        return (
            _decode_lead(response) if response else None,
            {id: _decode_lead(value) for id, value in by_tool if value},
            {prefix: msgspec.json.decode(value, type=str) for prefix, value in by_prefix if value},
        )

    async def place(self, key: TurnKey) -> Place | None:
        """The open turn of this key."""
        self.look_ups += 1
        (found,) = await self._get([shared.name("turn", *key)])
        return _decode_place(found) if found else None

    async def inherit(self, session: str, turn: str) -> Left | None:
        """What was left of a turn, for the first that asks."""
        field = _field(session, turn)
        pipe = self._redis.pipeline(transaction=True)
        pipe.hget(self._estate, field)
        pipe.hdel(self._estate, field)
        found, _ = await self._bounded(pipe.execute)
        return _decode_left(found) if found else None

    async def _get(self, names: Iterable[str]) -> list[bytes | None]:
        return cast("list[bytes | None]", await self._bounded(lambda: self._redis.mget(list(names))))

    async def _bounded(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        if time.monotonic() < self._rest_until:
            raise Away
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await ask()
        except (RedisError, OSError, TimeoutError) as error:
            self._rest_until = time.monotonic() + 0.5
            raise Away from error


def _field(session: str, turn: str) -> str:
    return shared.name("left", session, turn)
