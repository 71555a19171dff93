from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from tests.recording.streams import scope, uid
from tests.served import Served


def test_a_copy_taken_under_load_is_whole_and_comes_back(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve()
    token = served.token("ingest")
    sent: list[str] = []
    going = True

    def send() -> None:
        while going:
            one = uid()
            served.send([scope("start", one, None, 1, name="agent.turn", category="agent")], token)
            sent.append(one)

    sender = threading.Thread(target=send)
    sender.start()
    while len(sent) < 20:
        pass
    before = set(sent)
    copy = tmp_path / "copy.sqlite3"
    done = served.run("backup", str(copy))
    going = False
    sender.join()
    assert done.returncode == 0, done.stderr
    assert copy.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*"))

    refused = served.run("restore", str(copy))
    assert refused.returncode != 0 and b"is in use; stop the server" in refused.stderr
    served.stop()
    restored = served.run("restore", str(copy))
    assert restored.returncode == 0, restored.stderr
    assert b"kept as" in restored.stdout
    exported = served.run("export").stdout.decode()
    assert all(one in exported for one in before)
    assert served.run("check").returncode == 0
    served.start()
    assert served.send([scope("start", uid(), None, 1)], token)["accepted"] == 1


def test_a_copy_comes_back_on_another_machine(tmp_path: Path) -> None:
    here, there = Served(tmp_path / "here"), Served(tmp_path / "there")
    token = here.token("read")
    assert here.run("backup", str(tmp_path / "copy")).returncode == 0
    done = there.run("restore", str(tmp_path / "copy"))
    assert done.returncode == 0 and b"kept as" not in done.stdout
    assert token[-4:] in there.run("token", "list").stdout.decode()


def test_what_cannot_be_restored_is_told_and_changes_nothing(tmp_path: Path) -> None:
    home = Served(tmp_path / "home")
    token = home.token("read")
    (tmp_path / "text").write_text("no database")
    home.run("backup", str(tmp_path / "copy"))
    newer = sqlite3.connect(tmp_path / "copy")
    newer.execute(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('recording', '9999_future', '2030-01-01')"
    )
    newer.commit()
    newer.close()
    for path, reason in (("none", "there is no file"), ("text", "is no record"), ("copy", "recording.9999_future")):
        done = home.run("restore", str(tmp_path / path))
        assert done.returncode == 1 and reason in done.stderr.decode(), done.stderr
    assert token[-4:] in home.run("token", "list").stdout.decode()
    again = home.run("backup", str(tmp_path / "text"))
    assert again.returncode == 1 and b"exists already" in again.stderr
