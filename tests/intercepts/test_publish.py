from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
import time

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, transaction

from adapters import intercepts, rules
from adapters.actions.base import Facts
from relayweb.intercepts import publish
from relayweb.intercepts.models import InterceptConfig, Publication

pytestmark = pytest.mark.django_db(transaction=True)


def in_force() -> list[tuple[str, int | None]]:
    return [(rule.key, rule.revision) for rule in intercepts.current().rules]


def test_a_saved_config_is_in_force_in_this_process_at_once(value):
    InterceptConfig.publish(value, "ann")
    assert in_force() == [("cooler", 1)]
    InterceptConfig.publish({**value, "title": "Cooler"}, "ann")
    assert in_force() == [("cooler", 2)]


def test_a_change_that_is_rolled_back_never_comes_in_force(value):
    with pytest.raises(RuntimeError), transaction.atomic():
        InterceptConfig.publish(value, "ann")
        raise RuntimeError
    assert in_force() == []


def test_disabled_and_deleted_configs_are_not_in_force(value):
    config = InterceptConfig.publish(value, "ann")
    InterceptConfig.publish({**value, "enabled": False}, "ann")
    assert in_force() == []
    InterceptConfig.publish(value, "ann")
    config.withdraw("ann")
    assert in_force() == []


def test_a_change_made_by_another_process_comes_in_force_within_a_second(value):
    publish.start()
    # What another process does: it writes the rows and does not reach into this one.
    InterceptConfig.objects.create(**value, revision=1)
    Publication.bump()
    deadline = time.monotonic() + 2 * publish.POLL
    while not in_force() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert in_force() == [("cooler", 1)]


def test_starting_twice_keeps_one_watcher_and_closing_twice_leaves_none(value):
    publish.start()
    publish.start()
    assert [t.name for t in threading.enumerate()].count("relayweb-rules") == 1
    publish.close()
    publish.close()
    assert "relayweb-rules" not in [t.name for t in threading.enumerate()]


def test_a_stored_config_that_no_longer_parses_is_reported_and_the_others_are_in_force(value):
    InterceptConfig.publish(value, "ann")
    InterceptConfig.objects.create(**{**value, "key": "old", "action": {"type": "of_another_version"}})
    Publication.bump()
    publish.refresh()
    assert in_force() == [("cooler", 1)]
    assert "action.type" in publish.unusable()["old"]


def test_the_document_holds_enabled_configs_with_their_revision_and_its_etag_changes_with_them(value):
    InterceptConfig.publish(value, "ann")
    InterceptConfig.publish({**value, "key": "off", "enabled": False}, "ann")
    first = publish.ruleset_document()
    assert first["rules"] == [{**value, "revision": 1}]
    assert publish.ruleset_document() == first
    InterceptConfig.publish({**value, "priority": 5}, "ann")
    assert publish.ruleset_document()["etag"] != first["etag"]
    assert intercepts.current().etag == publish.ruleset_document()["etag"]


def test_every_call_runs_under_exactly_one_rule_set_while_configs_are_saved(value):
    InterceptConfig.publish(value, "ann")
    seen: list[list[int | None]] = []
    stop = threading.Event()

    def calls() -> None:
        while not stop.is_set():
            entries, _body, _decision = intercepts.preview(
                intercepts.current(), {"model": "m", "messages": []}, api_mode="chat_completions"
            )
            seen.append([entry["revision"] for entry in entries])

    callers = [threading.Thread(target=calls) for _ in range(3)]
    for caller in callers:
        caller.start()
    for number in range(60):
        action = {"type": "set_parameters", "parameters": {"temperature": number / 100}}
        InterceptConfig.publish({**value, "action": action}, "ann")
    stop.set()
    for caller in callers:
        caller.join()
    assert seen and all(len(revisions) == 1 for revisions in seen)
    assert len({revisions[0] for revisions in seen}) > 1


BROKEN = {"type": "json_patch", "patch": [{"op": "remove", "path": "/not/there"}]}


def fail_often() -> None:
    for _ in range(6):
        rules.run(intercepts.current(), {"model": "m", "messages": []}, Facts())


def test_a_rule_that_keeps_failing_open_is_disabled_with_the_reason_in_its_history(value):
    publish.start()
    InterceptConfig.publish({**value, "action": BROKEN}, "ann")
    fail_often()
    publish.stop_failing()
    config = InterceptConfig.objects.get()
    assert (config.enabled, config.revision, in_force()) == (False, 2, [])
    assert "failures in a row" in config.stopped
    InterceptConfig.publish(value, "ann")
    assert InterceptConfig.objects.get().stopped == "" and in_force() == [("cooler", 3)]


def test_a_rule_that_keeps_failing_closed_goes_on_blocking_and_is_marked(value):
    publish.start()
    InterceptConfig.publish({**value, "action": BROKEN, "on_error": "closed"}, "ann")
    fail_often()
    publish.stop_failing()
    config = InterceptConfig.objects.get()
    assert config.enabled and config.stopped and in_force() == [("cooler", 1)]
    outcome = rules.run(intercepts.current(), {"model": "m", "messages": []}, Facts())
    assert outcome.decision is not None


def test_a_rule_that_was_mended_before_anybody_looked_stays_in_force(value):
    publish.start()
    InterceptConfig.publish({**value, "action": BROKEN}, "ann")
    fail_often()
    InterceptConfig.publish(value, "ann")
    publish.stop_failing()
    assert in_force() == [("cooler", 2)]


class Layer:
    """A channel layer between processes, as far as rules use one."""

    def __init__(self) -> None:
        self.joined: list[str] = []
        self.sent: list[tuple[str, dict]] = []
        self.away = False

    async def new_channel(self, prefix: str) -> str:
        return f"{prefix}.1"

    async def group_add(self, group: str, channel: str) -> None:
        if self.away:
            raise ConnectionError("away")
        self.inbox: asyncio.Queue[dict] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.joined.append(group)

    async def receive(self, channel: str) -> dict:
        return await self.inbox.get()

    async def group_send(self, group: str, message: dict) -> None:
        self.sent.append((group, message))

    def deliver(self) -> None:
        self.loop.call_soon_threadsafe(self.inbox.put_nowait, {"type": "rules.changed"})


@pytest.fixture
def layer(monkeypatch) -> Layer:
    made = Layer()
    monkeypatch.setattr(publish, "get_channel_layer", lambda _: made)
    return made


def until(condition, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def test_a_message_from_another_process_is_heard_before_the_next_look(value, layer, monkeypatch):
    monkeypatch.setattr(publish, "POLL", 30.0)
    publish.start()
    until(lambda: layer.joined)
    InterceptConfig.objects.create(**value, revision=1)
    Publication.bump()
    layer.deliver()
    until(lambda: in_force() == [("cooler", 1)])


def test_closing_does_not_wait_for_a_message(layer, monkeypatch):
    monkeypatch.setattr(publish, "POLL", 30.0)
    publish.start()
    until(lambda: layer.joined)
    began = time.monotonic()
    publish.close()
    assert time.monotonic() - began < 2
    assert "relayweb-rules" not in [t.name for t in threading.enumerate()]


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_rules_travel_through_redis(value, monkeypatch, tmp_path):
    core = pytest.importorskip("channels_redis.core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    redis = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setattr(publish, "POLL", 30.0)
        monkeypatch.setattr(
            publish, "get_channel_layer", lambda _: core.RedisChannelLayer(hosts=[f"redis://127.0.0.1:{port}"])
        )
        until(lambda: answers(port))
        publish.start()
        time.sleep(1)  # until it listens
        InterceptConfig.objects.create(**value, revision=1)
        Publication.bump()
        # What another process does after its transaction.
        async_to_sync(publish.get_channel_layer("rules").group_send)(publish.GROUP, {"type": "rules.changed"})
        until(lambda: in_force() == [("cooler", 1)])
        publish.close()
    finally:
        redis.terminate()
        redis.wait(10)


def test_a_change_here_is_told_to_the_other_processes(value, layer):
    InterceptConfig.publish(value, "ann")
    assert layer.sent == [(publish.GROUP, {"type": "rules.changed"})]


def test_without_the_channel_layer_changes_are_still_found_and_saves_still_succeed(value, layer, monkeypatch, caplog):
    monkeypatch.setattr(publish, "POLL", 0.05)
    layer.away = True
    publish.start()
    InterceptConfig.objects.create(**value, revision=1)
    Publication.bump()
    until(lambda: in_force() == [("cooler", 1)])
    assert "the channel layer is away" in caplog.text


def test_the_last_rules_stay_in_force_while_the_database_is_away(value, monkeypatch, caplog):
    monkeypatch.setattr(publish, "POLL", 0.05)
    publish.start()
    InterceptConfig.publish(value, "ann")

    def away() -> int:
        raise OperationalError("gone")

    monkeypatch.setattr(Publication, "current", away)
    until(lambda: "the rules could not be read" in caplog.text)
    assert in_force() == [("cooler", 1)]
