"""An agent in a process of its own, under the rules of a server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adapters import intercepts, relay_llm, relay_runtime
from adapters.relay_runtime import SESSION_COORDINATOR
from tests.served import Served


@pytest.fixture(autouse=True)
def no_rules_left() -> Iterator[None]:
    before = intercepts.swap(intercepts.RuleSet())
    yield
    intercepts.swap(before)
    relay_runtime.reset_for_tests()


def put(served: Served, *configs: dict[str, Any]) -> None:
    done = served.run("intercepts", "import", "-", stdin=json.dumps({"intercepts": configs}).encode())
    assert done.returncode == 0, done.stderr.decode()


def soon(is_so: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def test_a_rule_saved_at_the_server_rewrites_the_next_call_of_the_agent(serve: Callable[..., Served]) -> None:
    served = serve()
    follower = intercepts.follow(served.url, served.token("read"), interval=0.2)
    lease = SESSION_COORDINATOR.acquire_conversation(session_id="s1", platform="test")
    lease.host.retain_managed_execution("test")
    turn = SESSION_COORDINATOR.begin_turn(lease, turn_id="t1", task_id="k1")
    seen: list[Any] = []

    def ask() -> Any:
        request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "temperature": 1}
        arguments = {"name": "p", "model_name": "gpt-4o", "metadata": {"api_mode": "chat_completions"}}
        relay_llm.execute_current(request, lambda sent: seen.append(sent["temperature"]) or {}, **arguments)
        return seen[-1]

    try:
        assert follower.error is None and ask() == 1
        rule = {
            "key": "cool",
            "match": {"model": "gpt-*"},
            "action": {"type": "set_parameters", "parameters": {"temperature": 0}},
        }
        put(served, rule)
        soon(lambda: ask() == 0)
        served.stop()
        soon(lambda: follower.error is not None)
        assert ask() == 0
    finally:
        follower.close()
        SESSION_COORDINATOR.end_turn(turn, outcome="success")
