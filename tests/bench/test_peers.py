"""The measurement of peers, with a recorder in their place that stores nothing but the ids of spans."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import _peers

FAKE = """
import os, sqlite3, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
if sys.argv[1] == "-c":
    sys.exit("mlflow" in sys.argv[2])
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
database = sqlite3.connect(os.environ["PHOENIX_WORKING_DIR"] + "/phoenix.db")
database.execute("CREATE TABLE spans (id TEXT)")
class Door(BaseHTTPRequestHandler):
    busy = [True]
    def log_message(self, *_): pass
    def do_GET(self): self.answer(200)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.busy:
            return self.answer(self.busy.pop() and 503)
        request = ExportTraceServiceRequest.FromString(body)
        ids = [s.span_id.hex() for r in request.resource_spans for c in r.scope_spans for s in c.spans]
        database.executemany("INSERT INTO spans VALUES (?)", [(i,) for i in ids if len(i) == 16])
        database.commit()
        self.answer(200)
    def answer(self, status):
        self.send_response(status); self.send_header("content-length", "0"); self.end_headers()
HTTPServer(("127.0.0.1", int(os.environ["PHOENIX_PORT"])), Door).serve_forever()
"""


def venv(folder: Path, script: str) -> Path:
    (folder / "bin").mkdir()
    (folder / "fake.py").write_text(script)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "fake.py"} "$@"\n')
    python.chmod(0o755)
    return folder


def requests(spans: int) -> list[bytes]:
    found = [
        {"traceId": f"{n:032x}", "spanId": f"{n + 1:016x}", "name": "s", "startTimeUnixNano": "1"} for n in range(spans)
    ]
    return [json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode() for span in found]


def test_a_peer_of_the_environment_is_started_measured_and_ended(tmp_path: Path) -> None:
    rows = {name: value for name, value, _, _ in _peers.measure(venv(tmp_path, FAKE), requests(5), 5)}
    assert list(rows) == [
        "phoenix: ingest until queryable",
        "phoenix: CPU of it",
        "phoenix: disk, of the bytes it got",
    ]
    assert rows["phoenix: ingest until queryable"] > 0 and rows["phoenix: disk, of the bytes it got"] > 0


def test_an_environment_without_peers_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither phoenix nor mlflow"):
        _peers.measure(venv(tmp_path, "raise SystemExit(1)"), [], 0)
    with pytest.raises(ValueError, match="no_such_folder: neither"):
        _peers.installed(tmp_path / "no_such_folder")


def test_a_peer_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="phoenix did not start"):
        _peers.measure(venv(tmp_path, 'import sys; sys.exit(sys.argv[1:] != ["-c", "import phoenix"])'), [], 0)
