"""An agent in a process of its own, with Relay's real exporters: `python -m tests.ingest.exporting KINDS URL TOKEN N`.

It makes a turn each time it reads a line from standard input, says so, and shuts the exporter down at the end. With a
fifth argument the spans of each kind go to a path of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import nemo_relay as nr

PATHS = {"http_post": "/ingest/atof", "ndjson": "/ingest/atof", "websocket": "/ingest/atof/ws"}


def exporter(kind: str, url: str, token: str, each: bool) -> object:
    headers = {"x-relay-token": token}
    if kind in PATHS:
        config = nr.AtofExporterConfig()
        config.sink_type = "stream"
        config.url = (url.replace("http", "ws", 1) if kind == "websocket" else url) + PATHS[kind]
        config.transport, config.headers = kind, headers
        found = nr.AtofExporter(config)
    else:
        config = nr.OpenTelemetryConfig(kind, url + "/v1/traces" if not each else f"{url}/{kind}/v1/traces")
        config.headers = headers
        found = nr.OpenTelemetrySubscriber(config)
    found.register(kind)
    return found


async def call(codec: object) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
    request = nr.LLMRequest({}, body)
    names = {"model_name": "gpt-4o", "codec": codec, "response_codec": codec}

    async def answer(_: object) -> dict:
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        message = {"role": "assistant", "content": "hi"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {"id": "r1", "model": "gpt-4o", "choices": choices, "usage": usage}

    async def fail(_: object) -> dict:
        raise ValueError("broken")

    with contextlib.suppress(ValueError):
        await nr.llm.execute("openai.chat_completions", request, fail, **names)
    await nr.llm.execute("openai.chat_completions", request, answer, **names)


async def turn(number: int, marks: int) -> None:
    codec = nr.codecs.OpenAIChatCodec()
    metadata = {"session_id": "exported", "nemo_relay_scope_role": "session"}
    with (
        nr.use_scope_stack(nr.create_scope_stack()),
        nr.scope.scope("relay.session", nr.ScopeType.Agent, metadata=metadata),
        nr.scope.scope("relay.turn", nr.ScopeType.Function, metadata={"turn_id": str(number)}),
        nr.scope.scope("relay.logical_llm_call", nr.ScopeType.Function),
    ):
        for index in range(marks):
            nr.scope.event("note", data={"turn": number, "index": index, "text": "x" * 200})
        await call(codec)


async def main() -> None:
    kinds, url, token, marks, *each = sys.argv[1:]
    exporters = [exporter(kind, url, token, bool(each)) for kind in kinds.split("+")]
    await asyncio.sleep(0.3)  # the ndjson and websocket sinks connect in the background
    for number, _ in enumerate(iter(sys.stdin.readline, "")):
        await turn(number, int(marks))
        await nr.subscribers.flush_async()
        print(f"turn {number}", flush=True)
    await asyncio.sleep(0.3)
    for found in exporters:
        found.force_flush()
        found.shutdown()


asyncio.run(main())
