from __future__ import annotations

import re
from collections.abc import Callable

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from relayweb.recording import kernels
from tests.recording.streams import scope, uid
from tests.served import Served


def test_prometheus_reads_what_each_part_counts(serve: Callable[..., Served]) -> None:
    served = serve()
    ingest, gateway, read = (served.token(scope) for scope in ("ingest", "gateway", "read"))
    one = scope("start", uid(), None, 1)
    served.send([one, one], ingest)
    body = {"model": "demo", "messages": [{"role": "user", "content": "secret plans"}]}
    assert httpx2.post(f"{served.url}/gw/t/{gateway}/demo/v1/chat/completions", json=body).status_code == 200
    answer = served.get("/metrics", authorization=f"Bearer {read}")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["relayweb_duplicates_total",] == 1 and found["relayweb_events_total",] >= 1
    assert (
        found["relayweb_answers_total", "doors", "2xx"] == 1 and found["relayweb_answers_total", "gateway", "2xx"] == 1
    )
    assert found["relayweb_up",] == found["relayweb_ready",] == 1
    assert found["relayweb_compiled",] == kernels.COMPILED
    assert found["relayweb_gateway_unrecorded_total", "calls"] == 0
    assert found["process_resident_memory_bytes",] > 1e7
    for cache in ("scopes", "contents", "streams", "indexed_contents"):
        assert 0 <= found["relayweb_cache_entries", cache] <= found["relayweb_cache_limit", cache]
    assert found["relayweb_cache_entries", "scopes"] >= 5  # the sent one; session, turn, call and attempt of the other
    assert not re.search(r"secret plans|rw_", answer.text)


def test_counters_are_for_those_who_may_read(serve: Callable[..., Served]) -> None:
    served = serve()
    refused = served.get("/metrics")
    assert refused.status_code == 401 and "relayweb token create --scope read" in refused.text
    assert served.get("/metrics", authorization=f"Bearer {served.token('ingest')}").status_code == 401
