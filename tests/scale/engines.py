"""PostgreSQL and Redis from the installed packages, for one test run: own ports, own folders, gone afterwards.

`python -m tests.scale.engines pytest …` runs a command with DATABASE_URL naming such a database; with `--pair` before
it, tests of journeys are served by two processes (tests/paired.py).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MEND = "install it (.ci/system-packages does, from Debian's packages)"


class Missing(Exception):
    """A server program is not installed."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Engine:
    """A server process that can be killed, paused and started again on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="relayweb-engine-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.user: str | None = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            names = {entry.pw_name for entry in pwd.getpwall()}
            self.user = "postgres" if "postgres" in names else "nobody"
            shutil.chown(self.folder, self.user)

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def call(self, command: list[str]) -> None:
        subprocess.run(command, user=self.user, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def start(self, wait: float = 60) -> None:
        """Start, and return once it answers. What is left of a killed predecessor may hold it up for a moment."""
        deadline = time.monotonic() + wait
        with (self.folder / "log").open("ab") as log:
            while time.monotonic() < deadline:
                if self.process is None or self.process.poll() is not None:
                    self.process = subprocess.Popen(
                        self.command(), user=self.user, cwd=self.folder, stdout=log, stderr=log
                    )
                if self.answers():
                    return
                time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # PostgreSQL: at once, though clients are connected
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Engine):
    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        program = str(found[-1]) if found else shutil.which("postgres")
        if program is None:
            raise Missing(f"PostgreSQL's server is not there: {MEND}")
        super().__init__()
        self.programs = Path(program).resolve().parent
        self.data = self.folder / "data"
        options = ["-U", "relayweb", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        self.call([str(self.programs / "initdb"), "-D", str(self.data), *options])
        self.made = 0

    def command(self) -> list[str]:
        # What a killed process wrote, the system still has: waiting for the disk would only test the disk.
        given = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"]
        options = [part for option in given for part in ("-c", option)]
        return [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, name: str) -> str:
        return f"postgres://relayweb@127.0.0.1:{self.port}/{name}"

    def create(self) -> str:
        """Make an empty database; returns its URL."""
        import psycopg

        self.made += 1
        name = f"test_{self.made}"
        with contextlib.closing(psycopg.connect(self.url("postgres"), autocommit=True)) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


class Redis(Engine):
    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise Missing(f"redis-server is not there: {MEND}")
        self.program = program
        super().__init__()

    def command(self) -> list[str]:
        given = {"port": self.port, "bind": "127.0.0.1", "save": "", "dir": self.folder, "databases": 256}
        return [self.program, *[part for name, value in given.items() for part in (f"--{name}", str(value))]]

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as found:
            found.sendall(b"PING\r\n")
            return found.recv(16).startswith(b"+PONG")
        return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


def main(command: list[str]) -> int:
    pair = command[0] == "--pair"
    env = dict(os.environ)
    with contextlib.ExitStack() as running:
        try:
            engines: list[Engine] = [database := Postgres(), *([Redis()] if pair else [])]
        except Missing as missing:
            print(f"not run on PostgreSQL: {missing}", file=sys.stderr)
            return int(bool(os.environ.get("CI")))
        for engine in engines:
            running.callback(engine.close)
            engine.start()
            if isinstance(engine, Redis):
                env |= {"RELAYWEB_TESTS_REDIS": engine.url, "RELAYWEB_TESTS_PAIR": "1"}
        env["DATABASE_URL"] = database.create()
        return subprocess.run(command[pair:], env=env).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
