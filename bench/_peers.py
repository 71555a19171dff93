"""Other recorders of traces on the same workload: arize-phoenix and mlflow, where a virtual environment has them.

They get the spans that relayweb recorded, as OTLP protobuf with OpenTelemetry's GenAI names (chunk marks are no spans
and are left out, which spares them two thirds of the events). A span counts once its row is in their own SQLite file.
CPU is that of the server and everything it started.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sqlite3
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Row

_START, _TAKE = 120, 600  # seconds that a peer has to start, and to take everything
_TICK = os.sysconf("SC_CLK_TCK")
_IDS = frozenset(("traceId", "spanId", "parentSpanId"))


@dataclass(frozen=True)
class Peer:
    """A recorder as it is started; `{home}` and `{port}` are filled in."""

    module: str
    command: tuple[str, ...]
    environment: dict[str, str]
    headers: dict[str, str]
    ready: str
    """A path that answers 200 when it is up."""


PEERS = (
    Peer(
        "phoenix",
        ("-m", "phoenix.server.main", "serve"),
        {
            "PHOENIX_WORKING_DIR": "{home}",
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": "{port}",
            "PHOENIX_GRPC_PORT": "0",
        },
        {},
        "/healthz",
    ),
    Peer(
        "mlflow",
        # One worker: of several the first would answer while the others still start, and drop what came to them.
        (
            *("-m", "mlflow", "server", "--backend-store-uri", "sqlite:///{home}/mlflow.db"),
            *("--port", "{port}", "--workers", "1"),
        ),
        {},
        {"x-mlflow-experiment-id": "0"},
        "/health",
    ),
)


def installed(venv: Path) -> list[Peer]:
    """The peers of a virtual environment.

    Raises:
        ValueError: it has none of them.
    """
    found = [peer for peer in PEERS if _can_import(venv / "bin" / "python", peer.module)]
    if not found:
        raise ValueError(f"{venv}: neither {' nor '.join(peer.module for peer in PEERS)} can be imported there")
    return found


def measure(venv: Path, lines: Iterable[bytes], spans: int) -> list[Row]:
    """Each peer that is installed in `venv`, on trace requests in OTLP JSON, one a line, that hold so many spans.

    Raises:
        ValueError: the environment has none of them.
        RuntimeError: one did not start, or refused a request.
    """
    found = installed(venv)
    bodies = [_protobuf(line) for line in lines if line.strip()]
    return [row for peer in found for row in _measure(peer, venv / "bin" / "python", bodies, spans)]


def _can_import(python: Path, module: str) -> bool:
    try:
        return subprocess.run([str(python), "-c", f"import {module}"], capture_output=True).returncode == 0
    except OSError:
        return False


def _measure(peer: Peer, python: Path, bodies: list[bytes], spans: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, _started(peer, python, Path(folder)) as (pid, port):
        began, cpu = time.perf_counter(), _cpu(pid)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TAKE)
        for body in bodies:
            while (status := _post(connection, body, peer.headers)) in (429, 503):
                time.sleep(0.1)
            if status >= 300:
                raise RuntimeError(f"{peer.module} answered {status} to a trace request")
        while (taken := _count(Path(folder))) < spans:
            if time.perf_counter() - began > _TAKE:
                raise RuntimeError(f"{peer.module} had {taken} of {spans} spans after {_TAKE} s")
            time.sleep(0.05)
        seconds, cpu = time.perf_counter() - began, _cpu(pid) - cpu
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return [
        (f"{peer.module}: ingest until queryable", spans / seconds, "spans/s", ""),
        (f"{peer.module}: CPU of it", cpu / spans * 1_000, "ms/span", ""),
        (f"{peer.module}: disk, of the bytes it got", disk / sum(map(len, bodies)), "", ""),
    ]


@contextmanager
def _started(peer: Peer, python: Path, home: Path) -> Iterator[tuple[int, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {"home": str(home), "port": port}
    command = [str(python), *(part.format_map(values) for part in peer.command)]
    environment = {**os.environ, **{name: text.format_map(values) for name, text in peer.environment.items()}}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + _START
        while not _is_up(port, peer.ready):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{peer.module} did not start: {' '.join(command)}")
            time.sleep(0.2)
        yield process.pid, port
    finally:
        for pid in reversed(_family(process.pid)):
            _end(pid)
        process.wait(30)


def _is_up(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _post(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> int:
    connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf", **headers})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def _count(home: Path) -> int:
    """The rows of its table of spans."""
    for path in home.rglob("*.db"):
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as database:
                return int(database.execute("SELECT COUNT(*) FROM spans").fetchone()[0])
        except sqlite3.OperationalError:  # another file, or it is being made
            continue
    return 0


def _protobuf(line: bytes) -> bytes:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ParseDict(_with_base64_ids(json.loads(line)), ExportTraceServiceRequest())
    return bytes(request.SerializeToString())


def _with_base64_ids(value: Any) -> Any:
    """OTLP writes ids in hex where protobuf's own JSON has base64."""
    if isinstance(value, list):
        return [_with_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: b64encode(bytes.fromhex(item)).decode() if name in _IDS else _with_base64_ids(item)
        for name, item in value.items()
    }


# Processes ----------------------------------------------------------------------------------------------------------


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _family(pid: int) -> list[int]:
    """A process and those it started, parents first."""
    parents = {int(path.name): int(stat[1]) for path in Path("/proc").glob("[0-9]*") if (stat := _stat(int(path.name)))}
    family = [pid]
    for each in family:
        family += [child for child, parent in parents.items() if parent == each]
    return family


def _cpu(pid: int) -> float:
    """Seconds of a process and those it started, the ended ones included."""
    return sum(sum(map(int, stat[11:15])) for each in _family(pid) if (stat := _stat(each))) / _TICK


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 15)
