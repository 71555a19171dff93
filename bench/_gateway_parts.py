"""The other processes of bench/gateway.py: `provider` streams chunks that carry their time, `proxy` is a bare proxy."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


async def provider() -> None:
    """Answers every POST with `n` chunks, `interval` seconds apart, as its JSON body says."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                wanted = json.loads(await reader.readexactly(length))["metadata"]
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for i in range(wanted["n"]):
                    if wanted["interval"]:
                        await asyncio.sleep(wanted["interval"])
                    write(writer, chunk(i))
                    await writer.drain()
                write(writer, b"data: [DONE]\n\n")
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def chunk(index: int) -> bytes:
    delta = {"content": f" word{index}"}
    body = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "bench",
        "system_fingerprint": time.monotonic_ns(),
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def proxy(upstream: str) -> None:
    """Passes bytes on with httpx2, on the server the gateway runs on, and does nothing else."""
    import httpx2

    from relayweb import server

    client: Any = None

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        async with client.stream("POST", upstream + "/v1/chat/completions", content=body) as response:
            head = [(b"content-type", response.headers["content-type"].encode())]
            await send({"type": "http.response.start", "status": response.status_code, "headers": head})
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def start() -> None:
        nonlocal client
        client = httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=None))

    async def stop() -> None:
        await client.aclose()

    async def ready(host: str, port: int) -> None:
        print(port, flush=True)

    server.Server(application, "127.0.0.1", 0, start=start, stop=stop, ready=ready).run()


if __name__ == "__main__":
    if sys.argv[1] == "provider":
        asyncio.run(provider())
    else:
        proxy(sys.argv[2])
