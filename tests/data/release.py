"""Stores the record of a release, for tests/test_migrations.py to upgrade: `python -m tests.data.release 0.1.0`.

Run it once, when the release is made, from its own checkout: it writes the database and its export beside this file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import zstandard

from tests.served import PROJECT, Served

FOLDER = Path(__file__).parent
CAPTURES = ("hermes-iot-basic", "hermes-iot-delegate", "hermes-iot-retry500", "langchain_agent", "py_streaming")
ACTION = {"type": "set_parameters", "parameters": {"temperature": 0}}


def main(release: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        served = Served(home, DATABASE_URL="")

        def run(*args: str, stdin: bytes | None = None) -> bytes:
            done = served.run(*args, stdin=stdin)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout

        run("import", *[str(PROJECT / f"tests/captures/{name}.jsonl.gz") for name in CAPTURES])
        run("token", "create", "--scope", "read", "--name", "dashboard")
        run("login")
        run("upstream", "set", "local", "--base-url", "http://127.0.0.1:9999/v1", "--api-mode", "chat_completions")
        rule = {"key": "cool", "match": {"model": "gpt-*"}, "action": ACTION}
        run("intercepts", "import", "-", stdin=json.dumps({"intercepts": [rule]}).encode())
        copy = Path(folder) / "copy.sqlite3"
        run("backup", str(copy))
        pack = zstandard.ZstdCompressor(level=19).compress
        (FOLDER / f"{release}.sqlite3.zst").write_bytes(pack(copy.read_bytes()))
        (FOLDER / f"{release}.jsonl.zst").write_bytes(pack(run("export")))


if __name__ == "__main__":
    main(*sys.argv[1:])
