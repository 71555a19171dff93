"""`relayweb serve` from the first start to the last commit."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx2

from tests.served import PROJECT, Served


def mark() -> dict:
    event = {"kind": "mark", "atof_version": "0.1", "uuid": str(uuid4()), "parent_uuid": None, "name": "note"}
    return event | {"timestamp": "2026-01-01T00:00:00Z", "data": None, "metadata": None}


def test_the_first_start_tells_all_that_is_needed_and_later_ones_no_secret(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    first = served.log.read_text()
    ingest = next(word for word in first.split() if word.startswith("rw_ingest_"))
    assert served.send([mark()], ingest)["accepted"] == 1
    base = next(word.partition("=")[2] for word in first.split() if word.startswith("OPENAI_BASE_URL="))
    assert httpx2.post(base.replace("/openai/", "/demo/") + "/chat/completions", json={}).status_code != 401
    link = next(line.strip() for line in first.splitlines() if "/login/" in line)
    assert httpx2.get(link).headers["location"] == "/"
    assert served.stop() == 0

    served.log.write_text("")
    served.start()
    assert served.stop() == 0
    later = served.log.read_text()
    assert "/login/" not in later and "rw_" not in later
    assert "relayweb login" in later and "token create" in later


def test_a_second_start_is_quick_and_has_lost_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    token = served.token("ingest")
    events = [mark() for _ in range(200)]
    served.send(events, token)
    assert served.stop() == 0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    served.start()
    assert served.get("/healthz").json()["status"] == "ok"
    assert served.send(events, token)["duplicates"] == 200
    assert served.stop() == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of the processor's time, because tests share the machine; alone it is the same on the clock.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_commands_that_start_at_once_on_a_fresh_home_all_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "relayweb", "token", "create", "--scope", "read"]
    env = Served(tmp_path / "home").env
    running = [
        subprocess.Popen(command, env=env, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    done = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], done
    listed = Served(tmp_path / "home").run("token", "list").stdout.decode()
    assert len(listed.splitlines()) == 3


def test_stopping_under_load_loses_nothing_that_was_acknowledged(serve: Callable[..., Served]) -> None:
    served = serve()
    token = served.token("ingest")
    acknowledged: list[str] = []
    refused = threading.Event()

    def send() -> None:
        with httpx2.Client(base_url=served.url, headers={"authorization": f"Bearer {token}"}) as client:
            while True:
                events = [mark() for _ in range(20)]
                body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
                try:
                    answer = client.post("/ingest/atof", content=body)
                except httpx2.TransportError:
                    break
                if answer.status_code != 200:
                    assert answer.status_code == 503
                    break
                acknowledged.extend(event["uuid"] for event in events)
        refused.set()

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    time.sleep(1)
    process = served.process
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(15) == 0
    assert time.monotonic() - began < 15
    for sender in senders:
        sender.join()
    exported = {json.loads(line)["uuid"] for line in served.run("export", "--format", "atof").stdout.splitlines()}
    assert len(acknowledged) > 100
    assert set(acknowledged) <= exported


def test_a_stream_through_the_gateway_finishes_while_the_server_stops(serve: Callable[..., Served]) -> None:
    served = serve()
    url = f"{served.url}/gw/t/{served.token('gateway')}/demo/v1/chat/completions"
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "Say hello."}]}
    process = served.process
    with httpx2.stream("POST", url, json=body, timeout=20) as answer:
        pieces = answer.iter_bytes()
        received = next(pieces)
        process.send_signal(signal.SIGTERM)
        received += b"".join(pieces)
    assert received.rstrip().endswith(b"data: [DONE]")
    assert process.wait(15) == 0
    events = [json.loads(line) for line in served.run("export", "--format", "atof").stdout.splitlines()]
    calls = {e["scope_category"] for e in events if e["category"] == "llm"}
    assert calls == {"start", "end"}
    starts = {e["uuid"] for e in events if e.get("scope_category") == "start"}
    ends = {e["uuid"] for e in events if e.get("scope_category") == "end"}
    assert starts == ends, "everything that began is ended on record"


def test_health_is_open_to_all_and_tells_no_data(serve: Callable[..., Served]) -> None:
    served = serve()
    answer = served.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


def test_a_port_in_use_ends_with_a_plain_sentence(serve: Callable[..., Served]) -> None:
    served = serve()
    port = served.url.rsplit(":", 1)[1]
    done = served.run("serve", "--port", port)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith(f"CommandError: cannot listen at 127.0.0.1:{port}: ")


def test_a_database_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "relayweb.sqlite3").mkdir()
    done = Served(tmp_path).run("token", "list")
    assert done.returncode == 1
    told = done.stderr.decode()
    assert "the database cannot be used" in told and "Traceback" not in told


def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = Served(tmp_path / "file" / "home").run("token", "list")
    assert done.returncode == 1
    assert b"RELAYWEB_HOME" in done.stderr and b"Traceback" not in done.stderr


def test_behind_a_proxy_that_ends_tls_people_log_in_by_the_public_url(serve: Callable[..., Served]) -> None:
    served = serve(RELAYWEB_URL="https://relay.example")
    link = served.run("login").stdout.decode().strip()
    assert link.startswith("https://relay.example/login/")
    forwarded = {"host": "relay.example", "x-forwarded-proto": "https"}
    port = re.findall(r"listening at http://127.0.0.1:(\d+)", served.log.read_text())[0]
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=forwarded) as browser:
        answer = browser.get(link.removeprefix("https://relay.example"))
        assert answer.headers["location"] == "/" and "secure" in answer.headers["set-cookie"].lower()
        token = browser.get("/login/").cookies["csrftoken"]
        form = {"username": "a", "password": "b", "csrfmiddlewaretoken": token}
        cookie = {"cookie": f"csrftoken={token}"}
        ours = browser.post("/login/", data=form, headers={**cookie, "origin": "https://relay.example"})
        foreign = browser.post("/login/", data=form, headers={**cookie, "origin": "https://evil.example"})
    assert (ours.status_code, foreign.status_code) == (200, 403)


def test_static_files_are_served_without_a_build_and_to_no_other_origin(serve: Callable[..., Served]) -> None:
    served = serve()
    page = served.get("/login/").text
    sheets = re.findall(r'href="(/static/[^"]+\.css)"', page)
    assert sheets
    for sheet in sheets:
        answer = served.get(sheet)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/css")
        assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'none'" in served.get("/login/").headers["content-security-policy"]
