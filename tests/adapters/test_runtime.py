"""Runtimes, plugins, shutdown, exit (R107-R115)."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from adapters import coordinator, plugins, relay_llm, relay_runtime, relay_tools
from adapters.relay_runtime import SESSION_COORDINATOR
from tests.adapters.conftest import Conversation, Events, answer, body, call

C = SESSION_COORDINATOR


@pytest.fixture
def no_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ImportError("no wheel for this platform")

    monkeypatch.setattr(coordinator.importlib, "import_module", fail)


async def test_r107_without_relay_everything_goes_through(no_relay: None) -> None:
    lease = C.acquire_conversation(session_id="s")
    host = lease.host
    assert isinstance(host, relay_runtime.NoopRelayRuntime)
    assert host is relay_runtime.get_runtime()
    assert "no wheel" in host.reason
    host.retain_managed_execution("tests")
    assert host.managed_execution_enabled() is False
    turn = C.begin_turn(lease, turn_id="t", task_id="")
    request, arguments = body(), {"a": 1}
    assert relay_llm.execute_current(request, lambda r: r, **call("a")) is request
    assert relay_tools.execute("t", arguments, lambda a: "x")[1] is arguments
    assert relay_tools.rewritten_arguments("t", arguments) is arguments
    assert host.run_in_session("s", lambda: 1) == 1
    assert host.ensure_session("s") is host.get_session("s") is host.register_subagent("a", "s") is None
    assert host.emit_mark("s", "m") is False
    C.end_turn(turn, outcome="success")
    C.finalize_conversation(session_id="s")
    host.shutdown()


def test_r107_a_runtime_that_cannot_be_built_is_replaced_by_the_no_op_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("native library is broken")

    monkeypatch.setattr(coordinator, "RelayRuntime", broken)
    host = relay_runtime.get_runtime("p")
    assert isinstance(host, relay_runtime.NoopRelayRuntime)
    assert relay_runtime.get_runtime("p") is host


def test_r107_the_import_of_relay_may_fail_in_a_real_interpreter() -> None:
    code = """
import sys
sys.modules["nemo_relay"] = None
from adapters import relay_llm, relay_runtime, relay_tools, auxiliary_client
C = relay_runtime.SESSION_COORDINATOR
lease = C.acquire_conversation(session_id="s")
assert type(lease.host).__name__ == "NoopRelayRuntime", lease.host
turn = C.begin_turn(lease, turn_id="t")
request = {"model": "m"}
assert relay_llm.execute_current(request, lambda r: r, name="p") is request
C.end_turn(turn, outcome="success")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_r108_one_runtime_for_each_canonical_profile_path(tmp_path: Path, events: Events) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first = relay_runtime.get_runtime(str(tmp_path / "a"))
    assert relay_runtime.get_runtime(str(tmp_path / "link")) is first
    assert relay_runtime.get_runtime(str(tmp_path / "x" / ".." / "a")) is first
    second = relay_runtime.get_runtime("b")
    assert second is not first
    first.ensure_session("s")
    second.ensure_session("s")
    one, two = events.starts("relay.session")
    assert one["uuid"] != two["uuid"]
    assert one["propagation_root_uuid"] != two["propagation_root_uuid"]
    assert (one["metadata"]["profile"], two["metadata"]["profile"]) == ("a", "b")
    assert str(tmp_path) not in str(events.all())


ATOF = """
version = 1

[[components]]
kind = "observability"
enabled = true

[components.config]
version = 4

[components.config.atof]
enabled = true

[[components.config.atof.sinks]]
type = "file"
output_directory = "{folder}"
filename = "events.jsonl"
"""


@pytest.fixture
def plugins_toml(tmp_path: Path) -> Path:
    path = tmp_path / "plugins.toml"
    path.write_text(ATOF.format(folder=tmp_path))
    return path


def test_r109_without_a_file_of_the_host_no_plugin_is_activated(talk: Conversation) -> None:
    assert talk.host.plugins_active is False
    assert plugins.PLUGINS.active is False


def test_r109_the_first_host_decides_later_ones_join_the_last_one_closes(plugins_toml: Path, tmp_path: Path) -> None:
    first = relay_runtime.RelayRuntime(profile_key="a", plugins_toml=plugins_toml)
    second = relay_runtime.RelayRuntime(profile_key="b", plugins_toml=tmp_path / "another.toml")
    try:
        assert first.plugins_active and second.plugins_active
        first.ensure_session("s")
        first.shutdown()
        assert plugins.PLUGINS.active
        second.ensure_session("s2")
    finally:
        first.shutdown()
        second.shutdown()
    assert not plugins.PLUGINS.active
    recorded = (tmp_path / "events.jsonl").read_text()
    assert recorded.count('"relay.session"') == 4  # flushed before it was closed, ends included


def test_r109_a_configuration_of_someone_else_is_left_alone(
    plugins_toml: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import nemo_relay

    async def other() -> None:
        config = nemo_relay.plugin.PluginConfig()
        async with nemo_relay.plugin.activate(config, str(plugins_toml)) as activation:
            host = await asyncio.to_thread(relay_runtime.RelayRuntime, profile_key="a", plugins_toml=plugins_toml)
            assert host.plugins_active is False
            await asyncio.to_thread(host.shutdown)
            assert activation.is_active

    asyncio.run(other())
    assert "was not activated" in caplog.text


@pytest.mark.parametrize("content", [None, "not = [toml", "version = 1\n[[components]]\nkind = 7\n"])
def test_r110_a_bad_file_is_a_warning_and_calls_go_on(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture, events: Events
) -> None:
    path = tmp_path / "plugins.toml"
    if content is not None:
        path.write_text(content)
    host = relay_runtime.RelayRuntime(profile_key="default", plugins_toml=path)
    relay_runtime.install_runtime(host)
    assert host.plugins_active is False
    assert str(path) in caplog.text
    host.retain_managed_execution("tests")
    relay_llm.execute(body(), lambda r: answer(), session_id="s", **call("a"))
    assert len(events.attempts("end")) == 1


def test_r112_shutdown_closes_what_is_open_and_flushes(talk: Conversation, events: Events) -> None:
    talk.host.shutdown()
    names = [e["name"] for e in events.seen if e.get("scope_category") == "end"]  # seen, not flushed here
    assert names == ["relay.turn", "relay.session"]
    assert talk.host.wait_closed(0)
    talk.host.shutdown()


def test_r112_running_work_ends_before_the_session_closes(talk: Conversation, events: Events) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(request: Any) -> Any:
        started.set()
        assert go_on.wait(10)
        return answer()

    got: list[Any] = []
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=lambda: got.append(context.run(relay_llm.execute_current, body(), slow, **call("a")))
    )
    thread.start()
    assert started.wait(10)
    begun = time.perf_counter()
    talk.host.shutdown()
    assert time.perf_counter() - begun < 1  # it does not wait
    assert not talk.host.wait_closed(0.05)
    request = body()
    assert relay_llm.execute_current(request, lambda r: r, **call("late")) is request  # new work is refused
    go_on.set()
    thread.join()
    assert talk.host.wait_closed(10)
    assert got == [answer()]
    names = [e["name"] for e in events.all() if e.get("scope_category") == "end"]
    assert names.index("openai.chat_completions") < names.index("relay.session")


async def test_r112_shutdown_works_inside_a_running_loop(talk: Conversation, events: Events) -> None:
    talk.host.shutdown()
    assert len(events.ends("relay.session")) == 1


def test_r112_plugins_close_after_the_last_scope(
    plugins_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = relay_runtime.RelayRuntime(profile_key="a", plugins_toml=plugins_toml)
    order: list[str] = []
    real = host.relay.scope.pop

    def pop(*args: Any, **kwargs: Any) -> Any:
        order.append("pop")
        return real(*args, **kwargs)

    monkeypatch.setattr(host.relay.scope, "pop", pop)
    leave = plugins.PLUGINS.leave
    monkeypatch.setattr(plugins.PLUGINS, "leave", lambda *a: (order.append("close"), leave(*a))[0])
    host.ensure_session("s")
    host.shutdown()
    assert order == ["pop", "close"]


def test_r113_closing_a_session_does_not_flush(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[str] = []
    real = talk.host.relay.subscribers.flush
    monkeypatch.setattr(talk.host.relay.subscribers, "flush", lambda: (flushes.append("flush"), real())[0])
    talk.end()
    talk.host.close_session("session-1")
    assert flushes == []
    talk.host.shutdown()
    assert flushes == ["flush"]


def test_r114_after_shutdown_there_are_no_sessions(talk: Conversation) -> None:
    talk.host.shutdown()
    assert talk.host.ensure_session("new") is None
    assert talk.host.get_session("session-1") is None
    with pytest.raises(relay_runtime.RuntimeClosed):
        talk.host.run_in_session("session-1", lambda: None)
    talk.host.close_session("session-1")
    assert talk.host.emit_mark("session-1", "m") is False
    assert not talk.host.begin_operation()


EXIT = """
import time
import nemo_relay
from adapters import relay_llm, relay_runtime
C = relay_runtime.SESSION_COORDINATOR
def slow(event):
    time.sleep(0.0005)
nemo_relay.subscribers.register("slow", slow)
lease = C.acquire_conversation(session_id="s")
lease.host.retain_managed_execution("t")
turn = C.begin_turn(lease, turn_id="t")
for i in range(100):
    relay_llm.execute_current({"n": i}, lambda r: {"ok": 1}, name="p", metadata={"api_request_id": str(i)})
"""


@pytest.mark.parametrize("attempt", range(4))
def test_r115_the_interpreter_exits_without_a_crash(attempt: int) -> None:
    # Without a flush it dies of SIGSEGV nearly every time with this many events queued.
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_r115_everything_is_delivered_at_exit(tmp_path: Path) -> None:
    out = tmp_path / "events"
    code = f"""
import time
import nemo_relay
from adapters import relay_llm, relay_runtime
file = open({str(out)!r}, "w")
def write(event):
    time.sleep(0.0005)
    file.write(event.name + "\\n")
    file.flush()
nemo_relay.subscribers.register("slow", write)
C = relay_runtime.SESSION_COORDINATOR
lease = C.acquire_conversation(session_id="s")
lease.host.retain_managed_execution("t")
turn = C.begin_turn(lease, turn_id="t")
for i in range(100):
    relay_llm.execute_current({{"n": i}}, lambda r: {{"ok": 1}}, name="p", metadata={{"api_request_id": str(i)}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert out.read_text().split().count("p") == 200
    assert out.read_text().split()[-2:] == ["relay.turn", "relay.session"]


def test_r115_it_flushes_where_the_exit_allows_no_new_thread(
    talk: Conversation, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        talk.host._at_exit()
    assert [e["name"] for e in events.seen if e.get("scope_category") == "end"] == ["relay.turn", "relay.session"]


def test_r115_a_stuck_subscriber_does_not_hang_the_exit() -> None:
    code = """
import atexit, os, threading
import nemo_relay
from adapters import relay_runtime, runtime_host
atexit.register(os._exit, 7)  # runs after the runtime's own handler; the native library itself would wait for ever
runtime_host.FLUSH_TIMEOUT = 0.5
nemo_relay.subscribers.register("stuck", lambda event: threading.Event().wait(30))
relay_runtime.get_runtime().ensure_session("s")
"""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25)
    assert done.returncode == 7
    assert time.perf_counter() - started < 15
