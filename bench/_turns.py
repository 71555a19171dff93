"""Many short turns: sessions of five; each turn with three calls, of which one is retried, streams, tools, rewrites."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from bench._agent import timestamp

MODELS = ("gpt-5.2", "gpt-5.2-mini", "claude-sonnet-4-6", "claude-haiku-4-5", "llama-4-70b")
SPAN = 29 * 86_400  # seconds that the turns are spread over, up to now
SESSION_TURNS = 5
CHUNKS = 12


class Turns:
    """Makes the events of `count` turns, oldest first: `ATTEMPTS` attempts each."""

    ATTEMPTS = 4

    def __init__(self, count: int, *, seed: int = 5) -> None:
        self.count, self.rng = count, random.Random(seed)
        self.origin = time.time_ns() - SPAN * 10**9

    def lines(self) -> Iterator[bytes]:
        """One body of lines a turn."""
        session = ""
        for number in range(self.count):
            at = self.origin + SPAN * 10**9 * number // self.count
            first = number % SESSION_TURNS == 0
            session = self.uuid(at) if first else session
            events = list(self._turn(number, at, session, first))
            yield b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)

    def uuid(self, at_ns: int) -> str:
        value = (at_ns // 1_000_000 << 80) | (0x7 << 76) | self.rng.getrandbits(76)
        return str(UUID(int=(value & ~(0x3 << 62)) | (0x2 << 62)))

    def _turn(self, number: int, at: int, session: str, first: bool) -> Iterator[dict[str, Any]]:
        rng, name = self.rng, f"session-{number // SESSION_TURNS:05d}"
        meta = {"session_id": name, "relay.profile": f"profile-{number // SESSION_TURNS % 7}"}
        if first:
            yield self._scope("start", session, None, at, "relay.session", "agent", session, metadata=meta)
        turn = self.uuid(at)
        yield self._scope("start", turn, session, at + 1_000_000, "relay.turn", "function", session, metadata=meta)
        bad = number % 17 == 0
        for k, role in enumerate(("primary", "primary", "auxiliary:title")):
            call, now = self.uuid(at), at + (2 + 4_000 * k) * 1_000_000
            metadata = {"relay.call_role": role}
            yield self._scope(
                "start", call, turn, now, "relay.logical_llm_call", "function", session, metadata=metadata
            )
            if k == 0:
                yield from self._attempt(number, call, now + 1_000_000, session, failed=True)
            yield from self._attempt(number + k, call, now + 400_000_000, session, failed=bad and k == 1)
            outcome = {"outcome": "failure" if bad and k == 1 else "success"}
            end = now + 3_000_000_000
            yield self._scope("end", call, turn, end, "relay.logical_llm_call", "function", session, data=outcome)
            if k < 2:
                tool = self.uuid(at)
                for edge, ms in (("start", 3_010), ("end", 3_010 + rng.randrange(900))):
                    yield self._scope(edge, tool, turn, now + ms * 1_000_000, f"tool_{number % 9}", "tool", session)
        ended = {"outcome": "failure" if bad else "success"}
        yield self._scope("end", turn, session, at + 13_000_000_000, "relay.turn", "function", session, data=ended)

    def _attempt(self, number: int, call: str, at: int, session: str, *, failed: bool) -> Iterator[dict[str, Any]]:
        rng, attempt, model = self.rng, self.uuid(at), MODELS[number % len(MODELS)]
        name = "anthropic.messages" if model.startswith("claude") else "openai.chat_completions"
        asked = f"Question {number} about the weather"
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": asked}]}
        metadata = {"api_mode": "chat_completions", "streaming": True}
        given = {"data": {"content": body, "headers": {}}, "metadata": metadata, "attributes": ["streaming"]}
        given["category_profile"] = {"model_name": model}
        yield self._scope("start", attempt, call, at, name, "llm", session, **given)
        data = {
            "position": 0, "key": f"rule-{number % 4}", "revision": 1, "mode": "enforce", "patch": [],
            "result": "hit" if number % 3 == 0 else "miss", "duration_us": 40.0,
            "bytes_before": 200, "bytes_after": 210,
        }  # fmt: skip
        yield self._mark("relay.rewrite", attempt, at, session, data)
        if failed:
            error = {"otel.status_code": "ERROR", "error.type": "rate_limit", "exception.type": "RateLimitError"}
            told = {"metadata": error, "data": {"error": {"type": "rate_limit_error", "message": "Slow down"}}}
            end = at + rng.randrange(10**8, 3 * 10**8)
            yield self._scope("end", attempt, call, end, name, "llm", session, **told)
            return
        moment = at + int(rng.lognormvariate(12.5, 0.5) * 1_000)
        for index in range(CHUNKS):
            mark = {"chunk_index": index, "provider_event_type": None}
            yield self._mark("llm.chunk", attempt, moment, session, mark)
            stalled = index == CHUNKS // 2 and number % 11 == 0
            moment += 900_000_000 if stalled else int(rng.lognormvariate(10.0, 0.4) * 1_000)
        usage = {"prompt_tokens": rng.randrange(500, 9_000), "completion_tokens": rng.randrange(10, 900)}
        usage["total_tokens"] = sum(usage.values())
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": f"Answer {number}"}}
        data = {"model": model, "choices": [choice], "usage": usage}
        status = {"otel.status_code": "OK"}
        yield self._scope("end", attempt, call, moment, name, "llm", session, data=data, metadata=status)

    def _scope(
        self, edge: str, uuid: str, parent: str | None, at: int, name: str, category: str, root: str, **more: Any
    ) -> dict[str, Any]:
        base = {"kind": "scope", "scope_category": edge, "category": category, "uuid": uuid, "attributes": []}
        return {**self._event(name, parent, at, root), **base, **more}

    def _mark(self, name: str, parent: str, at: int, root: str, data: dict[str, Any]) -> dict[str, Any]:
        return {**self._event(name, parent, at, root), "kind": "mark", "uuid": self.uuid(at), "data": data}

    def _event(self, name: str, parent: str | None, at: int, root: str) -> dict[str, Any]:
        return {
            "atof_version": "0.1",
            "category": None,
            "category_profile": None,
            "data": None,
            "data_schema": None,
            "metadata": {},
            "name": name,
            "parent_uuid": parent,
            "propagation_root_uuid": root,
            "timestamp": timestamp(at),
        }
