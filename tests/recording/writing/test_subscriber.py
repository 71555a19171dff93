from __future__ import annotations

import nemo_relay

from relayweb.recording.models import Scope
from relayweb.recording.writing import subscriber
from relayweb.recording.writing.writer import Writer


def test_what_relay_emits_in_this_process_is_recorded_once_until_detached(recording: Writer) -> None:
    subscriber.detach()
    subscriber.attach()
    subscriber.attach()
    with nemo_relay.scope.scope("agent", nemo_relay.ScopeType.Agent, metadata={"session_id": "s"}):
        nemo_relay.scope.event("note", data={"x": 1})
    nemo_relay.subscribers.flush()
    assert recording.flush_sync()
    row = Scope.objects.get(name="agent")
    assert (row.status, row.session_id, recording.counters()["events"]) == ("ok", "s", 3)
    subscriber.detach()
    with nemo_relay.scope.scope("later", nemo_relay.ScopeType.Agent):
        pass
    nemo_relay.subscribers.flush()
    assert recording.flush_sync() and not Scope.objects.filter(name="later").exists()
