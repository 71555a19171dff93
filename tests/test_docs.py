"""What the documents promise by name exists."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from relayweb.ui.snippets import ways
from tests.served import PROJECT, Served

CONFIGURATION = (PROJECT / "docs/configuration.md").read_text()


def names_in_code() -> set[str]:
    found = set()
    for file in (PROJECT / "relayweb").rglob("*.py"):
        found |= set(re.findall(r'"(RELAYWEB_[A-Z_]+|DATABASE_URL|REDIS_URL)"', file.read_text()))
    return found


def test_every_environment_variable_is_documented_and_every_documented_one_exists() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)`", CONFIGURATION, re.MULTILINE))
    assert documented == names_in_code()


@pytest.mark.parametrize(
    "document", ["README.md", "docs/configuration.md", "docs/operations.md", "docs/security.md", "CHANGELOG.md"]
)
def test_links_to_files_lead_somewhere(document: str) -> None:
    text = (PROJECT / document).read_text()
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    folder = (PROJECT / document).parent
    assert [target for target in targets if not (folder / target).exists()] == []


def test_lock_files_hold_no_addresses() -> None:
    locks = [file for pattern in ("*.lock", "*lock.json", "requirements*.txt") for file in PROJECT.glob(pattern)]
    assert [file.name for file in locks if "://" in file.read_text()] == []


def readme_exporter(served: Served, token: str) -> str:
    (code,) = (block for block in python_blocks() if "AtofExporter" in block)
    assert "ws://127.0.0.1:8000/" in code
    return f"TOKEN = {token!r}\n" + code.replace("ws://127.0.0.1:8000", served.url.replace("http", "ws"))


def start_page_exporter(served: Served, token: str) -> str:
    (sink,) = (way for way in ways(served.url, {"ingest": token}) if way.id == "sink")
    return next(snippet.text for snippet in sink.snippets if snippet.label == "python")


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("shown", [readme_exporter, start_page_exporter])
def test_the_exporter_people_copy_sends_events(
    serve: Callable[..., Served], shown: Callable[[Served, str], str]
) -> None:
    served = serve()
    code = shown(served, served.token("ingest"))
    code += "\nimport nemo_relay, time\nwith nemo_relay.scope.scope('a turn', nemo_relay.ScopeType.Agent):\n    pass\n"
    code += "nemo_relay.subscribers.flush()\ntime.sleep(1)\nexporter.shutdown()\n"
    subprocess.run([sys.executable, "-c", code], env=served.env, check=True, timeout=60)
    deadline = time.monotonic() + 10
    while served.get("/healthz").json()["writer"]["seq"] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_adapters_snippet_of_the_readme_records_its_turn(serve: Callable[..., Served]) -> None:
    served = serve()
    (code,) = (block for block in python_blocks() if "record_to" in block)
    assert "http://127.0.0.1:8000" in code
    code = f"TOKEN = {served.token('ingest')!r}\n" + code.replace("http://127.0.0.1:8000", served.url)
    provider = f"{served.url}/gw/t/{served.token('gateway')}/demo/v1"
    env = {**served.env, "OPENAI_BASE_URL": provider, "OPENAI_API_KEY": "none"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
    exported = served.run("export", "--format", "atof").stdout.decode()
    assert '"first steps"' in exported and "Say hello." in exported
