"""A scripted provider on loopback. A script says, per model, what to answer; everything it got is kept raw."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CUT = object()
"""In a script: break the connection off, without the end of the chunked body."""
HANG = object()
"""In a script: say nothing more until the client hangs up."""


@dataclass
class Script:
    """An answer: `body` in one piece with a length, or `pieces` (bytes, seconds to wait, CUT, HANG) chunked."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    pieces: list[Any] = field(default_factory=list)


@dataclass
class Received:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    at: float

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k.lower() == name), None)


def sse(*items: Any, done: bool = False) -> list[bytes]:
    """Pieces of an event stream: a dict is data, a pair is name and data."""
    pieces = []
    for item in items:
        name, data = item if isinstance(item, tuple) else (None, item)
        head = f"event: {name}\n".encode() if name else b""
        pieces.append(head + b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n")
    return [*pieces, b"data: [DONE]\n\n"] if done else pieces


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def chat_stream(*words: str) -> list[bytes]:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    last = {**chat_chunk({}), "choices": [], "usage": usage}
    return sse(*[chat_chunk({"content": w}) for w in words], chat_chunk({}, "stop"), last, done=True)


def chat_body(text: str = "ok", **message: Any) -> bytes:
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    body = {"usage": usage, "id": "r1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(body, indent=1).encode()


def message_body(text: str = "ok") -> bytes:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    return json.dumps(body).encode()


def message_stream(*words: str) -> list[bytes]:
    message = {**json.loads(message_body()), "content": [], "stop_reason": None}
    deltas = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": w}} for w in words]
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    return sse(*[(e["type"], e) for e in events])


def response_body(text: str = "ok", id: str = "resp_1") -> bytes:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    body = {
        "id": id,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5,
        },
    }
    return json.dumps(body).encode()


def response_stream(*words: str) -> list[bytes]:
    done = json.loads(response_body("".join(words)))
    running = {**done, "status": "in_progress", "output": [], "usage": None}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {**done["output"][0], "content": [], "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": running},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "part": part},
        *[{"type": "response.output_text.delta", **at, "delta": w, "logprobs": []} for w in words],
        {"type": "response.output_text.done", **at, "text": "".join(words), "logprobs": []},
        {"type": "response.output_item.done", "output_index": 0, "item": done["output"][0]},
        {"type": "response.completed", "response": done},
    ]
    return sse(*[(e["type"], {**e, "sequence_number": i}) for i, e in enumerate(events)])


class Provider:
    """`scripts[model]` says what to answer; `fail[model] = n` answers 503 n times before."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.fail: dict[str, int] = defaultdict(int)
        self.requests: list[Received] = []
        self.hung_up: dict[str, float] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                received = Received(self.command, self.path, list(self.headers.items()), body, time.monotonic())
                outer.requests.append(received)
                try:
                    model = json.loads(body).get("model", "")
                except (ValueError, AttributeError, RecursionError):
                    model = ""
                if outer.fail[model] > 0:
                    outer.fail[model] -= 1
                    error = b'{"error": {"message": "try again", "type": "server_error"}}'
                    self.answer(Script(503, {"retry-after": "0", "content-type": "application/json"}, error), model)
                else:
                    self.answer(outer.scripts.get(model) or outer.default(self.path, body), model)

            do_GET = do_POST = do_DELETE = do_PATCH = handle_any

            def answer(self, script: Script, model: str) -> None:
                self.send_response(script.status)
                for name, value in script.headers.items():
                    self.send_header(name, value)
                if script.body is not None:
                    self.send_header("content-length", str(len(script.body)))
                    self.end_headers()
                    self.wfile.write(script.body)
                    return
                self.send_header("transfer-encoding", "chunked")
                if script.pieces[:1] == [HANG]:
                    self.hang(model)
                    return
                self.end_headers()
                try:
                    for piece in script.pieces:
                        if piece is CUT:
                            self.cut()
                            return
                        if piece is HANG:
                            self.hang(model)
                            return
                        if isinstance(piece, float):
                            time.sleep(piece)
                        else:
                            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                            self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    outer.hung_up[model] = time.monotonic()
                    self.close_connection = True

            def cut(self) -> None:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

            def hang(self, model: str) -> None:
                self.wfile.flush()
                select.select([self.connection], [], [], 30)
                outer.hung_up[model] = time.monotonic()
                self.close_connection = True

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that hangs up is part of the script

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def default(self, path: str, body: bytes) -> Script:
        streaming = b'"stream":true' in body.replace(b" ", b"")
        buffered, streamed = {
            "chat/completions": (chat_body(), chat_stream("A", "B", "C", "D")),
            "responses": (response_body(), response_stream("A", "B", "C", "D")),
            "messages": (message_body(), message_stream("A", "B", "C", "D")),
        }.get(path.partition("?")[0].removeprefix("/v1/"), (b'{"object": "list", "data": []}', []))
        if streaming:
            return Script(headers={"content-type": "text/event-stream"}, pieces=streamed)
        return Script(headers={"content-type": "application/json", "x-request-id": "req_1"}, body=buffered)

    def of(self, model: str) -> list[Received]:
        """What was asked of this model, in order."""
        return [r for r in list(self.requests) if f'"{model}"'.encode() in r.body]

    def waits_for_hang_up(self, model: str, seconds: float = 5) -> float:
        """When the connection of this model's call was closed by the other side."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if model in self.hung_up:
                return self.hung_up[model]
            time.sleep(0.002)
        raise AssertionError(f"the provider call of {model} was not closed within {seconds} s")

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
