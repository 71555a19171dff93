"""A small ASGI application behind our server, for the server's own tests: `python -m tests.server_app`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys

from relayweb import server

sent = 0
left: list[str] = []


def memory_mb() -> int:
    with open("/proc/self/status") as status:
        return int(status.read().split("VmRSS:")[1].split()[0]) // 1024


async def http(scope, receive, send):
    deed = scope["path"].rsplit("/", 1)[-1]
    if deed == "atof":
        deed = "echo"
    await globals()[f"do_{deed}"](scope, receive, send)


async def start(send, status=200, *headers):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def part(send, body=b"", more=False):
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def do_state(scope, receive, send):
    await start(send)
    await part(
        send,
        json.dumps(
            {
                "memory": memory_mb(),
                "sent": sent,
                "left": left,
                "connections": len(running.connections),
                "channels": len(running.http_factory.channels),
                "sockets": running.ws_factory.open,
                "files": len(os.listdir("/proc/self/fd")),
            }
        ).encode(),
    )


async def do_echo(scope, receive, send):
    """Answers each piece as it comes."""
    await start(send)
    while (message := await receive())["type"] == "http.request":
        await part(send, message["body"], message["more_body"])
        if not message["more_body"]:
            return
    left.append("echo")
    await part(send, b"[stopped]")


async def do_collect(scope, receive, send):
    """Answers with the whole body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await start(send)
    await part(send, body)


async def do_refuse(scope, receive, send):
    """Answers without asking for the body."""
    await start(send, 401, (b"content-length", b"7"))
    await part(send, b"refused")


async def do_raise(scope, receive, send):
    raise RuntimeError("raised on purpose")


async def do_cut(scope, receive, send):
    await start(send)
    await part(send, b"half", more=True)
    raise ConnectionAbortedError


async def do_silent(scope, receive, send):
    pass


async def do_ticks(scope, receive, send):
    """One tick each tenth of a second, as many as the query says."""
    await start(send)
    try:
        for _ in range(int(scope["query_string"])):
            await part(send, b"tick\n", more=True)
            await asyncio.sleep(0.1)
        await part(send)
    except asyncio.CancelledError:
        left.append("cancelled")
        raise


async def do_until_gone(scope, receive, send):
    await start(send)
    await part(send, b"here", more=True)
    while (await receive())["type"] != "http.disconnect":
        pass
    left.append("gone")


async def do_flood(scope, receive, send):
    global sent
    sent = 0
    await start(send)
    for _ in range(3000):
        await part(send, bytes(100_000), more=True)
        sent += 100_000


async def do_ignore(scope, receive, send):
    await receive()
    await asyncio.sleep(60)


async def websocket(scope, receive, send):
    global sent
    await receive()
    if scope["path"].endswith("/refuse"):
        await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no token"})
        return
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        text = message.get("text") or ""
        if text == "return":
            return
        if text == "raise":
            raise RuntimeError("raised on purpose")
        if text == "ignore":
            await asyncio.sleep(60)
        if text == "flood":
            sent = 0
            for _ in range(3000):
                await send({"type": "websocket.send", "text": "x" * 100_000})
                sent += 100_000
        if text == "chatter":
            for _ in range(100_000):
                await send({"type": "websocket.send", "text": "x"})
                await asyncio.sleep(0)
        await send({"type": "websocket.send", "text": str(len(text))})
    left.append(f"socket {message['code']}")


async def application(scope, receive, send):
    await (http if scope["type"] == "http" else websocket)(scope, receive, send)


async def begin():
    if seconds := os.environ.get("SLOW_START"):
        print("starting", flush=True)
        await asyncio.sleep(float(seconds))
    if os.environ.get("FAIL_START"):
        raise RuntimeError("no disk")


async def stopped():
    if os.environ.get("HANG_STOP"):
        await asyncio.sleep(60)
    print("left", json.dumps(left), flush=True)


async def ready(host, port):
    print(f"relayweb is at http://{host}:{port}", flush=True)


if __name__ == "__main__":
    server.limits.GRACE_SECONDS = float(os.environ.get("GRACE", "2"))
    server.limits.IDLE_SECONDS = server.limits.STALL_SECONDS = float(os.environ.get("PATIENCE", "60"))
    server.limits.LINGER_SECONDS = 3
    server.limits.PAGE_SECONDS = float(os.environ.get("PAGE_SECONDS", "60"))
    server.limits.PAGES_BYTES = int(os.environ.get("PAGES_BYTES", "268435456"))
    server.limits.FILES = int(os.environ.get("FILES", "65536"))
    server.limits.STOP_SECONDS = float(os.environ.get("STOP", "14"))
    logging.basicConfig(level=logging.INFO)
    port = int(sys.argv[1]) if sys.argv[1:] else 0
    running = server.Server(application, "127.0.0.1", port, start=begin, stop=stopped, ready=ready)
    running.ping_interval = 0.5
    try:
        running.run()
    except OSError as error:
        sys.exit(str(error))
