"""A workload like that of real agents: sessions of turns, each a chain of calls whose histories grow.

A span here is a scope; one has about seven events and 9-13 KB. Messages have 1-20 KB, some 100 KB. Some attempts fail
and are retried, most are streamed. Texts are made of invented words with the frequencies of natural language, of
source-like lines and of JSON, so that they compress about as well as what agents say and read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

T0 = 1_767_225_600_000_000_000


class Texts:
    """Invented text."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        parts = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pre", "qui", "ro", "su", "ta", "ve"]
        ends = ["", "n", "r", "s", "t", "ing", "ed", "ly"]
        self.words = ["".join(rng.choices(parts, k=rng.randint(1, 4))) + rng.choice(ends) for _ in range(12_000)]
        total, self.weights = 0.0, []
        for rank in range(1, len(self.words) + 1):
            total += 1 / rank
            self.weights.append(total)

    def prose(self, size: int) -> str:
        words = self.rng.choices(self.words, cum_weights=self.weights, k=max(1, size // 6))
        for i in range(11, len(words), 12):
            words[i] += ".\n" if self.rng.random() < 0.2 else "."
        return " ".join(words)[:size]

    def listing(self, size: int) -> str:
        rng, out, length = self.rng, [], 0
        while length < size:
            name = rng.choice(self.words)
            line = rng.choice(
                (
                    f"{rng.randint(1, 999):>4}  def {name}(self, {rng.choice(self.words)}: int) -> None:",
                    f"-rw-r--r-- 1 dev dev {rng.randint(10, 90_000):>8} Jan {rng.randint(1, 31):>2} "
                    f"src/{name}/{rng.choice(self.words)}.py",
                    f"        return {name}.{rng.choice(self.words)}"
                    f"({rng.randint(0, 500)}, {rng.choice(self.words)!r})",
                    f'{{"id": {rng.randint(1, 10**7)}, "name": "{name}", "score": {rng.random():.4f}}}',
                )
            )
            out.append(line)
            length += len(line) + 1
        return "\n".join(out)[:size]


class Session:
    """One session's events, in the order in which Relay would emit them."""

    def __init__(self, number: int, texts: Texts, rng: random.Random, turns: int, calls: int) -> None:
        self.rng, self.texts = rng, texts
        self.turns, self.calls = turns, calls
        self.ns = T0 + number * 977_000_000
        self.session_id = f"session-{number:05d}"
        tools = [self._tool(i) for i in range(6)]
        self.tools, self.system = tools, {"content": texts.prose(1_600), "role": "system"}
        self.root = ""

    def uid(self) -> str:
        h = (
            f"{self.ns // 1_000_000:012x}7{self.rng.getrandbits(12):03x}"
            f"{0x8000 | self.rng.getrandbits(14):04x}{self.rng.getrandbits(48):012x}"
        )
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def _tool(self, number: int) -> Any:
        name = self.texts.words[number * 31]
        parameters = {
            "properties": {"path": {"description": self.texts.prose(90), "type": "string"}},
            "required": ["path"],
            "type": "object",
        }
        return {
            "function": {"description": self.texts.prose(160), "name": name, "parameters": parameters},
            "type": "function",
        }

    def stamp(self) -> str:
        self.ns += self.rng.randint(200_000, 9_000_000)
        seconds, ns = divmod(self.ns - T0, 1_000_000_000)
        day, hour, minute = 1 + seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
        return f"2026-01-{day:02d}T{hour:02d}:{minute:02d}:{seconds % 60:02d}.{ns:09d}+00:00"

    def event(self, kind: str, uuid: str, parent: str, name: str, **more: Any) -> bytes:
        event: dict[str, Any] = {
            "atof_version": "0.1",
            "category": None,
            "category_profile": None,
            "data": None,
            "data_schema": None,
            "kind": kind,
        }
        event |= {
            "metadata": None,
            "name": name,
            "parent_uuid": parent,
            "propagation_root_uuid": self.root,
            "timestamp": self.stamp(),
            "uuid": uuid,
        }
        if kind == "scope":
            event["attributes"] = []
        return json.dumps(event | more, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()

    def events(self) -> Iterator[bytes]:
        self.root = session = self.uid()
        meta = {
            "relay.schema_version": "relay.runtime.v1",
            "relay.runtime_instance": f"{self.rng.getrandbits(128):032x}",
            "session_id": self.session_id,
        }
        yield self.event(
            "scope", session, self.uid(), "relay.session", category="agent", metadata=meta, scope_category="start"
        )
        history = [self.system]
        for number in range(self.turns):
            yield from self._turn(session, history, {**meta, "turn_id": f"{self.session_id}:{number}"})
            del history[1:-3]
        yield self.event(
            "scope", session, self.uid(), "relay.session", category="agent", metadata=meta, scope_category="end"
        )

    def _turn(self, session: str, history: list[Any], meta: dict[str, str]) -> Iterator[bytes]:
        rng, turn = self.rng, self.uid()
        yield self.event(
            "scope", turn, session, "relay.turn", category="function", metadata=meta, scope_category="start"
        )
        history.append({"content": self.texts.prose(rng.randint(200, 2_500)), "role": "user"})
        for number in range(self.calls):
            logical, request_id = self.uid(), f"{meta['turn_id']}:api:{number}"
            common = {"category": "function", "metadata": {**meta, "relay.call_role": "primary"}}
            yield self.event(
                "scope", logical, turn, "relay.logical_llm_call", data={}, scope_category="start", **common
            )
            last = number == self.calls - 1
            yield from self._attempts(
                logical,
                history,
                {**meta, "api_request_id": request_id, "api_mode": "chat_completions", "call_role": "primary"},
                last,
            )
            yield self.event(
                "scope",
                logical,
                turn,
                "relay.logical_llm_call",
                data={"outcome": "success"},
                scope_category="end",
                **common,
            )
            if not last:
                yield from self._tools(turn, history, {**meta, "api_request_id": request_id})
        yield self.event(
            "scope",
            turn,
            session,
            "relay.turn",
            category="function",
            metadata=meta,
            data={"outcome": "success"},
            scope_category="end",
        )

    def _attempts(self, logical: str, history: list[Any], meta: dict[str, str], last: bool) -> Iterator[bytes]:
        rng = self.rng
        if rng.random() < 0.12:
            yield from self._attempt(logical, history, {**meta, "retry_count": 0}, None)
        text = self.texts.prose(rng.randint(200, 1_600))
        message: dict[str, Any] = {"content": text, "role": "assistant"}
        if not last:
            calls = [
                {
                    "function": {
                        "arguments": json.dumps({"path": self.texts.prose(30)}),
                        "name": rng.choice(self.tools)["function"]["name"],
                    },
                    "id": f"call_{rng.getrandbits(60):015x}",
                    "type": "function",
                }
                for _ in range(rng.choice((1, 1, 2)))
            ]
            message["tool_calls"] = calls
        yield from self._attempt(logical, history, meta, message)
        history.append(message)

    def _attempt(self, logical: str, history: list[Any], meta: dict[str, Any], message: Any) -> Iterator[bytes]:
        rng, uuid = self.rng, self.uid()
        body = {"messages": history, "model": "gpt-4o", "stream": True, "tools": self.tools}
        annotated = {
            "api_specific": {"api": "openai_chat"},
            "messages": history,
            "model": "gpt-4o",
            "tools": self.tools,
        }
        common = {"category": "llm", "metadata": meta}
        yield self.event(
            "scope",
            uuid,
            logical,
            "openai.chat_completions",
            category_profile={"annotated_request": annotated, "model_name": "gpt-4o"},
            data={"content": body, "headers": {"x-dynamo-session-id": self.session_id}},
            scope_category="start",
            **common,
        )
        if message is None:
            failed = {
                "error.type": "internal_error",
                "exception.type": "InternalServerError",
                "otel.status_code": "ERROR",
                "otel.status_description": "internal error: InternalServerError: Error code: 500",
            }
            yield self.event(
                "scope",
                uuid,
                logical,
                "openai.chat_completions",
                category_profile={"model_name": "gpt-4o"},
                scope_category="end",
                category="llm",
                metadata={**meta, **failed},
            )
            return
        finish = "tool_calls" if "tool_calls" in message else "stop"
        usage = {
            "completion_tokens": len(message["content"]) // 4,
            "prompt_tokens": sum(len(m["content"] or "") for m in history) // 4,
        }
        usage["total_tokens"] = sum(usage.values())
        count = rng.randint(8, 24)
        for index in range(count):
            data: dict[str, Any] = {
                "choice_indices": [0],
                "chunk_index": index,
                "event_type": "chat.completion.chunk",
                "provider": "openai_chat_completions",
            }
            if index == count - 2:
                data["finish_reasons"] = [{"choice_index": 0, "finish_reason": finish}]
            if index == count - 1:
                data["usage"] = usage
            yield self.event("mark", self.uid(), uuid, "llm.chunk", data=data)
        answer = {
            "choices": [{"finish_reason": finish, "index": 0, "message": message}],
            "created": 1,
            "id": f"chatcmpl-{rng.getrandbits(90):x}",
            "model": "gpt-4o",
            "object": "chat.completion",
            "usage": usage,
        }
        profile = {
            "annotated_response": {
                "api_specific": {"api": "openai_chat"},
                "finish_reason": finish,
                "message": message["content"],
                "model": "gpt-4o",
                "usage": usage,
            },
            "model_name": "gpt-4o",
            "time_to_first_chunk": 0.2134,
        }
        yield self.event(
            "scope",
            uuid,
            logical,
            "openai.chat_completions",
            category_profile=profile,
            data=answer,
            scope_category="end",
            category="llm",
            metadata={**meta, "otel.status_code": "OK"},
        )

    def _tools(self, turn: str, history: list[Any], meta: dict[str, Any]) -> Iterator[bytes]:
        rng = self.rng
        for call in history[-1]["tool_calls"]:
            uuid, name = self.uid(), call["function"]["name"]
            size = (
                100_000
                if rng.random() < 0.002
                else round(rng.choice((1, 1, 1, 1, 2, 2, 4, 15)) * rng.uniform(300, 1_000))
            )
            output = self.texts.listing(size)
            common = {"category": "tool", "category_profile": {"tool_call_id": call["id"]}}
            yield self.event(
                "scope",
                uuid,
                turn,
                name,
                data=json.loads(call["function"]["arguments"]),
                metadata=meta,
                scope_category="start",
                **common,
            )
            yield self.event(
                "scope",
                uuid,
                turn,
                name,
                data=output,
                metadata={**meta, "otel.status_code": "OK"},
                scope_category="end",
                **common,
            )
            history.append({"content": output, "role": "tool", "tool_call_id": call["id"]})


def stream(spans: int, *, seed: int = 1, turns: int = 4, calls: int = 3, together: int = 8) -> tuple[list[bytes], int]:
    """Lines of at least `spans` scopes of several sessions at once, and how many scopes there are."""
    rng = random.Random(seed)
    texts = Texts(rng)
    lines: list[bytes] = []
    running: list[Iterator[bytes]] = []
    count = number = 0
    while count < spans or running:
        while len(running) < together and count < spans:
            number += 1
            running.append(Session(number, texts, random.Random(seed * 7919 + number), turns, calls).events())
            rng.shuffle(running)
            count += turns * (1 + calls * 3) + 1
        for one in list(running):
            for _ in range(rng.randint(1, 40)):
                line = next(one, None)
                if line is None:
                    running.remove(one)
                    break
                lines.append(line)
    return lines, sum(
        b'"scope_category":"start"' in line[-140:] or b'"scope_category":"start"' in line for line in lines
    )
