"""One server and one scripted provider for all tests of the gateway over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.provider import Provider
from tests.served import Served


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


class Gateway(Served):
    """A served installation with the upstream `mock` and a token."""

    key: str = ""

    def api(self, path: str) -> dict:
        token = self.__dict__.setdefault("_read", None) or self.__dict__.update(_read=self.token("read")) or self._read
        answer = self.get(f"/api/v1/{path}", authorization=f"Bearer {token}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Gateway]:
    served = Gateway(tmp_path_factory.mktemp("home"), RELAYWEB_MAX_BODY="2000000")
    done = served.run("upstream", "set", "mock", "--base-url", provider.url + "/v1", "--api-mode", "chat_completions")
    assert done.returncode == 0, done.stderr
    served.run("upstream", "set", "claude", "--base-url", provider.url, "--api-mode", "anthropic_messages")
    served.run("upstream", "set", "down", "--base-url", "http://127.0.0.1:9/v1", "--api-mode", "chat_completions")
    served.key = served.token("gateway")
    served.start()
    yield served
    served.stop()
