"""A recorded request as lines that send it again: run, they send what was recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from relayweb.ui.inspect import jsonview
from relayweb.ui.inspect.again import FORMS, again

HARD = "it's \"quoted\" $HOME `id` \\ \nEND_OF_REQUEST\n'''\u2028 \U0001f600 {{7*7}} %s"
BODIES: dict[str, dict[str, Any]] = {
    "chat_completions": {
        "model": "m-1",
        "messages": [{"role": "user", "content": HARD}, {"role": "assistant", "content": None}],
        "temperature": 0.2,
        "a field of a proxy": {"deep": [1, True, None, HARD]},
    },
    "codex_responses": {"model": "m-2", "input": [{"role": "user", "content": HARD}], "stream": True, "user": "u"},
    "anthropic_messages": {"model": "m-3", "max_tokens": 9, "messages": [{"role": "user", "content": HARD}], "x": [[]]},
}
PATHS = {
    "chat_completions": "/v1/chat/completions",
    "codex_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}


@pytest.fixture
def provider() -> Iterator[tuple[str, list[tuple[str, Any, Any]]]]:
    """An address that remembers path, headers and body of what it is sent, and answers an empty object."""
    got: list[tuple[str, Any, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, self.headers, json.loads(body)))
            stream = got[-1][2].get("stream") is True
            answer = b"" if stream else b"{}"
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if stream else "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def run(form: str, text: str, address: str) -> None:
    variables = {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "a-key",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "a-key",
    }
    command = ["bash", "-c", text] if form == "curl" else [sys.executable, "-c", text]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("api_mode", BODIES)
def test_the_lines_send_what_was_recorded(provider: Any, api_mode: str, form: str) -> None:
    if form == "curl" and not (shutil.which("curl") and shutil.which("bash")):
        pytest.skip("needs curl and bash")
    if form == "python":
        pytest.importorskip("anthropic" if api_mode == "anthropic_messages" else "openai")
    address, got = provider
    text = again(BODIES[api_mode], api_mode, form)
    assert text is not None
    run(form, text, address)
    ((path, headers, body),) = got
    assert path == PATHS[api_mode]
    assert "a-key" in (headers["authorization"] or "") + (headers["x-api-key"] or "")
    assert body == BODIES[api_mode]


def test_numbers_keep_their_digits_and_half_characters_are_escaped() -> None:
    text = b'{"model": "m", "messages": [{"content": "half \\ud800"}], "seed": {"$int": "123456789012345678901234"}}'
    body = jsonview.read(text)
    for form in FORMS:
        lines = again(body, "chat_completions", form)
        assert lines is not None and "123456789012345678901234" in lines and "\\ud800" in lines.lower()
        lines.encode()
    assert '"123456789012345678901234"' not in str(again(body, "chat_completions", "python"))


@pytest.mark.parametrize(
    ("body", "api_mode"),
    [
        (None, "chat_completions"),
        ("words", "chat_completions"),
        ({"model": "m"}, "chat_completions"),
        ({"model": "m", "messages": [1]}, "bedrock_converse"),
        ({"model": "m", "messages": [1]}, None),
    ],
)
def test_what_cannot_be_sent_offers_no_lines(body: Any, api_mode: str | None) -> None:
    assert [again(body, api_mode, form) for form in FORMS] == [None, None]
