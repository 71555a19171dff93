"""One server and one scripted provider for all tests of the gateway over HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from relayweb.gateway.app import Gateway as Application
from relayweb.gateway.upstreams import Target
from tests.gateway.provider import Provider
from tests.paired import Site


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
async def gateway() -> AsyncIterator[Application]:
    """The application itself, in the test's event loop."""
    application = Application()
    yield application
    await application.close()


@pytest.fixture
def target(provider: Provider) -> Target:
    return Target("mock", provider.url, "chat_completions")


class Gateway(Site):
    """A served installation with the upstream `mock` and a token."""

    key: str = ""
    read_key: str = ""

    def api(self, path: str) -> Any:
        answer = self.get(f"/api/v1/{path}", authorization=f"Bearer {self.read_key}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def turn_of(self, session: str, ready: Callable[[dict[str, Any]], bool], seconds: float = 10) -> dict[str, Any]:
        """The newest turn of a session, with its tree, once it is `ready`."""
        deadline = time.monotonic() + seconds
        turns: list[dict[str, Any]] = []
        while time.monotonic() < deadline:
            turns = [t for t in self.api("turns?limit=100")["turns"] if t["session_id"] == session]
            if turns and ready(turns[0]):
                turn: dict[str, Any] = self.api(f"turns/{turns[0]['uuid']}")
                return turn
            time.sleep(0.05)
        raise AssertionError(f"no such turn of {session}: {turns}")


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Gateway]:
    served = Gateway(tmp_path_factory.mktemp("home"), RELAYWEB_MAX_BODY="2000000")
    done = served.run("upstream", "set", "mock", "--base-url", provider.url + "/v1", "--api-mode", "chat_completions")
    assert done.returncode == 0, done.stderr
    served.run("upstream", "set", "claude", "--base-url", provider.url, "--api-mode", "anthropic_messages")
    served.run("upstream", "set", "down", "--base-url", "http://127.0.0.1:9/v1", "--api-mode", "chat_completions")
    served.key, served.read_key = served.token("gateway"), served.token("read")
    served.start()
    yield served
    served.stop()
