"""An agent that records to a server and makes calls all the time: `python -m bench._calling URL TOKEN`.

Prints a line a call: when it began and how long it took, in µs of the monotonic clock. Ends when its input does.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time

from adapters import record_to, relay_llm, turn

PROVIDER_SECONDS = 0.004
PAUSE_SECONDS = 0.006


def main(url: str, token: str) -> None:
    assert record_to(url, token)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    def provider(request: object) -> dict[str, object]:
        time.sleep(PROVIDER_SECONDS)
        return {"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}

    threading.Thread(target=listen, daemon=True).start()
    for number in itertools.count():
        if ended.is_set():
            break
        with turn(session=f"calling-{number // 20}"):
            for call in range(5):
                request = {"model": "m", "messages": [{"role": "user", "content": f"call {number} {call} " * 20}]}
                metadata = {"api_request_id": f"{number}-{call}", "api_mode": "chat_completions"}
                began = time.monotonic_ns()
                relay_llm.execute_current(request, provider, name="bench", metadata=metadata)
                print(began // 1000, (time.monotonic_ns() - began) // 1000, flush=True)
                time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
