"""What docs/adapters.md warns of: Relay 0.10.4 kills the process over a stream that is let go while an error is raised.

Relay clears the error as it frees the stream, and the interpreter goes on with none.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, collections, os, resource, sys
import nemo_relay

held = collections.deque(maxlen=100)
holds, does, streams = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

async def intercept(_name, request, _context, proceed):
    async def chunks():
        try:
            if holds == "holds":
                held.append(await proceed(request))
                async for chunk in held[-1]:
                    yield chunk
            else:
                async for chunk in await proceed(request):
                    yield chunk
        except Exception:
            if does == "passes":
                raise
            yield {"instead": True}
    return chunks()

async def provider(_request):
    yield {"n": 1}
    raise ValueError("broken off")

async def main():
    nemo_relay.intercepts.register_llm_stream_execution("tests.beside", 5, intercept)
    request = nemo_relay.LLMRequest({}, {"model": "m"})
    for _ in range(streams):
        seen = []
        try:
            answer = await nemo_relay.llm.stream_execute("p", request, provider, seen.append, dict)
            async for chunk in answer:
                pass
        except Exception as error:
            assert does == "passes" and "broken off" in str(error), error
        assert seen == [{"n": 1}, {"instead": True}][: 2 if does == "swallows" else 1], seen

asyncio.run(main())
os._exit(0)  # Relay's own fault at the interpreter's exit, one time in a hundred, is none of these streams'
"""


def run(holds: str, does: str, streams: int) -> subprocess.CompletedProcess[bytes]:
    """An agent whose streams break off beside an intercept that `passes` or `swallows` the error."""
    return subprocess.run([sys.executable, "-c", PROGRAM, holds, does, str(streams)], capture_output=True, timeout=120)


@pytest.mark.parametrize("does", ["passes", "swallows"])
def test_an_intercept_that_holds_its_streams_does_no_harm(does: str) -> None:
    done = run("holds", does, 1_000)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("does", ["passes", "swallows"])
def test_relay_dies_of_one_that_does_not(does: str) -> None:
    # In ninety of ninety trials it died within as many streams.
    done = run("lets go", does, 10_000)
    crashed = done.returncode in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL)
    assert crashed, f"Relay seems to be mended; take the warning out of docs/adapters.md: {done!r}"
