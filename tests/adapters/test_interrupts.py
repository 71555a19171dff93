"""A real Ctrl+C, and exits in the middle of things, in processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

START = """
import asyncio, contextvars, json, sys, threading, time
import nemo_relay
from adapters import relay_llm, turn
log = open(sys.argv[1], "w")
def write(event):
    log.write(event.to_json() + "\\n")
    log.flush()
nemo_relay.subscribers.register("log", write)
call = {"name": "p", "metadata": {"api_request_id": "a"}}
def ready():
    print("ready", flush=True)
"""

IN_PROVIDER = """
def provider(request):
    ready()
    time.sleep(30)
with turn(session="s"):
    relay_llm.execute_current({}, provider, **call)
"""

IN_RELAY = """
async def slow(name, request, context, following):
    ready()
    await asyncio.sleep(30)
nemo_relay.intercepts.register_llm_execution("slow", 1, slow)
with turn(session="s"):
    relay_llm.execute_current({}, lambda r: {}, **call)
"""

IN_STREAM = """
def chunks(request):
    try:
        yield {"n": 1}
        ready()
        time.sleep(30)
        yield {"n": 2}
    finally:
        print("closed", flush=True)
with turn(session="s"):
    for _ in relay_llm.stream_current({}, chunks, **call):
        pass
"""

IN_RELAY_STREAM = """
async def slow(name, request, context, following):
    async def generate():
        async for chunk in await following(request):
            yield chunk
            ready()
            await asyncio.sleep(30)
    return generate()
nemo_relay.intercepts.register_llm_stream_execution("slow", 1, slow)
with turn(session="s"):
    for _ in relay_llm.stream_current({}, lambda r: iter([{"n": 1}, {"n": 2}]), **call):
        pass
"""


IN_LOOP = """
async def provider(request):
    ready()
    await asyncio.sleep(30)
async def main():
    async with turn(session="s"):
        await relay_llm.execute_current_async({}, provider, **call)
asyncio.run(main())
"""


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "program",
    [IN_PROVIDER, IN_RELAY, IN_STREAM, IN_RELAY_STREAM, IN_LOOP],
    ids=["provider", "relay", "stream", "relay-stream", "loop"],
)
def test_ctrl_c_ends_a_call_at_once_and_the_record_says_so(program: str, tmp_path: Path) -> None:
    out = tmp_path / "events"
    process = subprocess.Popen(
        [sys.executable, "-c", START + program, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    started = time.perf_counter()
    rest, errors = process.communicate(timeout=25)
    assert time.perf_counter() - started < 10
    assert errors.strip().endswith("KeyboardInterrupt")
    assert process.returncode in (1, 130, -signal.SIGINT), errors
    assert ("closed" in rest) == (program is IN_STREAM)
    ends = {e["name"]: e["data"] for e in events(out) if e.get("scope_category") == "end"}
    assert ends["relay.turn"] == {"outcome": "cancelled"}
    assert ends["relay.logical_llm_call"] == {"outcome": "cancelled"}
    assert "relay.session" in ends


DAEMON = """
def slow(request):
    ready()
    time.sleep(60)
turn(session="s").__enter__()
run = lambda: relay_llm.execute_current({}, slow, **call)
threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
time.sleep(0.3)
"""

OPEN_STREAM = """
turn(session="s").__enter__()
stream = relay_llm.stream_current({}, lambda r: iter([{"n": 1}, {"n": 2}]), **call)
next(stream)
"""

DROPPED_STREAM = OPEN_STREAM + "del stream"

OPEN_ASYNC_STREAM = """
async def source(request):
    while True:
        yield {"n": 1}
        await asyncio.sleep(0.001)
async def main():
    global stream
    turn(session="s").__enter__()
    stream = await relay_llm.stream_current_async({}, source, **call)
    await anext(stream)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "program",
    [DAEMON, OPEN_STREAM, DROPPED_STREAM, OPEN_ASYNC_STREAM],
    ids=["daemon", "stream", "dropped-stream", "async-stream"],
)
def test_r115_an_exit_in_the_middle_of_a_call_neither_hangs_nor_crashes(program: str, tmp_path: Path) -> None:
    out = tmp_path / "events"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", START + program, str(out)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - started < 20
    assert "relay.session" in {e["name"] for e in events(out) if e.get("scope_category") == "end"}
