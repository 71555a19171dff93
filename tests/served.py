"""relayweb as people run it: its commands and its server as processes of their own, on a fresh home."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2

PROJECT = Path(__file__).resolve().parent.parent


_databases: dict[Path, str] = {}


def database_of(home: Path, server: str) -> str:
    """On PostgreSQL each home has a database of its own, made when first asked for and gone after the tests."""
    if home not in _databases:
        import psycopg

        name = f"relayweb_served_{os.getpid()}_{len(_databases)}"
        with contextlib.closing(psycopg.connect(server, autocommit=True)) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        _databases[home] = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        atexit.register(_drop, name, server)
    return _databases[home]


def _drop(name: str, server: str) -> None:
    import psycopg

    with contextlib.closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Served:
    """One installation. `start()` serves it on a free port; `run()` calls its commands."""

    command = [sys.executable, "-m", "relayweb", "serve", "--port", "0"]
    ready = rb"relayweb is at (https?://[^\s,]+)"

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        # Cookies and caches of the tests' own settings stay out of it.
        inherited = {k: v for k, v in os.environ.items() if k not in ("DJANGO_SETTINGS_MODULE", "COLUMNS")}
        if inherited.get("DATABASE_URL") and "DATABASE_URL" not in env:
            env["DATABASE_URL"] = database_of(home, inherited["DATABASE_URL"])
        self.env = {**inherited, "RELAYWEB_HOME": str(home), "PYTHONPATH": str(PROJECT), **env}
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.log = home / "serve.log"

    def run(self, *args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "relayweb", *args]
        return subprocess.run(command, env=self.env, input=stdin, capture_output=True, timeout=120)

    def token(self, scope: str) -> str:
        done = self.run("token", "create", "--scope", scope)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().split()[-1]

    def start(self, *args: str, wait: float = 30) -> Served:
        """Serve, and return when the server says where it is."""
        with self.log.open("ab") as log:
            began = log.tell()
            self.process = subprocess.Popen([*self.command, *args], env=self.env, stdout=log, stderr=log, cwd=PROJECT)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(self.ready, self.log.read_bytes()[began:]):
                self.url = found[1].decode()
                return self
            time.sleep(0.02)
        raise AssertionError(f"the server did not start: {self.log.read_text()[-2000:]}")

    def stop(self, sig: int = signal.SIGTERM, wait: float = 20) -> int | None:
        """Tell the server to stop; returns its exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def memory_mb(self) -> int:
        """What its processes hold of the machine's memory."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    def kill(self) -> Served:
        """End the server's process at once; returns the one that was killed, to be started again at its port."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        return self

    def restart(self, wait: float = 60) -> None:
        """Start at the port it had."""
        self.start("--port", str(self.port), wait=wait)

    def get(self, path: str, **headers: str) -> httpx2.Response:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        return httpx2.get(self.url + path, headers=named, timeout=30)

    def send(self, events: list[dict], token: str) -> dict:
        """POST events as lines; returns the answer."""
        lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        headers = {"authorization": f"Bearer {token}"}
        answer = httpx2.post(self.url + "/ingest/atof", content=lines, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()


class OnUvicorn(Served):
    """The same behind uvicorn."""

    command = [sys.executable, "-m", "uvicorn", "relayweb.asgi:application", "--port", "0", "--lifespan", "on"]
    command += ["--no-access-log", "--ws-ping-interval", "1e9", "--timeout-graceful-shutdown", "8"]
    ready = rb"running on (http://\S+)"
