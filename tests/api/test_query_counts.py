"""No page and no answer asks the database once for each row it shows."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from relayweb.recording.reading import rhythm
from relayweb.ui import facets, statistics
from tests.people import signed_in
from tests.recording.recorded import FAILED, Talk, answer, chunk
from tests.recording.streams import mark

pytestmark = pytest.mark.django_db(transaction=True)
FEW, MANY = 4, 12


class Record:
    """Sessions, turns, calls, attempts, rewrites, tools, sub-agents: `count` of each in each other."""

    def __init__(self, client: Client, count: int) -> None:
        self.client = client
        for number in range(count):
            self.session = f"s-{count}-{number % 2}"
            talk = self.talk = Talk(self.session, start=count * 100_000 + number * 10_000)
            for k in range(count):
                said = answer("x")
                said["choices"][0]["message"]["tool_calls"] = [
                    {"id": f"t-{n}", "type": "function", "function": {"name": f"tool-{n}", "arguments": "{}"}}
                    for n in range(count)
                ]
                call = self.call = talk.call(10 + k * 200, 200 + k * 200)
                attempt = self.attempt = talk.attempt(call, 20 + k * 200, 190 + k * 200, status=FAILED, out=said)
                for position in range(count):
                    talk.attempt(call, 191 + k * 200, 192 + k * 200, status=FAILED)
                    data = {
                        "position": position,
                        "key": f"k{position}",
                        "mode": "enforce",
                        "result": "hit",
                        "patch": [],
                    }
                    talk.add(mark("relay.rewrite", attempt, talk.start + 20, data))
                    talk.add(chunk(attempt, position, talk.start + 40 + position))
                ran = {"metadata": {"tool_call_id": f"t-{k}"}, "profile": {"tool_call_id": f"t-{k}"}}
                talk.tool(f"tool-{k}", 200 + k * 200, 205 + k * 200, **ran)
            self._sub_agents(talk, count)
            talk.record()
        while rhythm.catch_up():
            pass

    def _sub_agents(self, talk: Talk, count: int) -> None:
        for k in range(count):
            metadata = {"nemo_relay_scope_role": "subagent", "session_id": f"agent-{k}"}
            agent = talk.around("agent", "agent", talk.turn, 500 + k, 600 + k, metadata=metadata, data={})
            turn = talk.around("relay.turn", "function", agent, 510 + k, 590 + k, data={})
            call = talk.around("relay.logical_llm_call", "function", turn, 520 + k, 580 + k, data={})
            talk.attempt(call, 530 + k, 570 + k)

    def paths(self) -> list[str]:
        turn, attempt, call = self.talk.turn, self.attempt, self.call
        tabs = ("overview", "request", "rewrites", "response", "chunks", "raw")
        api = ["turns", "turns?q=status:failed", f"turns/{turn}", "sessions", f"sessions/{self.session}"]
        api += [f"scopes/{attempt}{part}" for part in ("", "/request", "/response", "/chunks", "/rewrites", "/events")]
        return [
            *(f"/api/v1/{path}" for path in [*api, "ruleset", "health"]),
            "/",
            "/?q=role:primary",
            "/?q=intercept:k1",
            "/?q=stalls:>0",
            f"/turns/rows/?uuid={turn}",
            f"/turns/{turn}/peek/",
            *(
                f"/turns/{turn}/{part}"
                for part in ("", "frame/", f"chunks/?attempt={attempt}", "spans/", "transcript/")
            ),
            *(f"/turns/{turn}/scopes/{attempt}/?tab={tab}" for tab in tabs),
            f"/turns/{turn}/scopes/{call}/",
            "/sessions/",
            f"/sessions/{self.session}/",
            f"/compare/?a={turn}&b={turn}",
            f"/compare/?a={attempt}",
            f"/compare/?a={attempt}&b={attempt}",
            "/statistics/?q=since:2020-01-01",
        ]

    def counts(self) -> dict[str, int]:
        found = {}
        for path in self.paths():
            facets._context.cache_clear()
            statistics._figures.cache_clear()
            with CaptureQueriesContext(connection) as captured:
                response = self.client.get(path)
            assert response.status_code == 200, (path, response.status_code)
            found[path] = len(captured)
        return found


def test_no_page_and_no_answer_asks_once_for_each_row_it_shows(transactional_db: None) -> None:
    client = signed_in("viewer")
    few, many = Record(client, FEW).counts(), Record(client, MANY).counts()
    grown = {
        path: (before, after)
        for (path, after), before in zip(many.items(), few.values(), strict=True)
        if after > before + 4  # large values of the record may refer to others, which takes another look
    }
    assert not grown, "\n".join(f"{path}: {counts}" for path, counts in grown.items())
    assert max(many.values()) <= 60, many
