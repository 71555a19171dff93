"""/metrics: what this process counts, for Prometheus. Read like the API, by a token or a login."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from relayweb import health
from relayweb.access import log, tokens
from relayweb.api.auth import MEND, reader
from relayweb.live.hub import hub
from relayweb.recording import kernels
from relayweb.recording.store.recent import named

_EVENTS = {
    "events": "Events recorded.",
    "duplicates": "Events that were on record already.",
    "rejected": "Events that could not be taken.",
    "dropped": "Events of this process that found no room.",
    "refused": "Batches sent away because the record was full.",
    "interrupted": "Scopes that fell silent.",
}


class Counted(Collector):
    """The counters of the parts as they stand."""

    def collect(self) -> Iterator[Metric]:
        state = health.state()
        writer, gateway = state["writer"], state["gateway"]
        yield GaugeMetricFamily("relayweb_up", "1 when events are recorded, 0 when degraded.", state["status"] == "ok")
        yield GaugeMetricFamily("relayweb_ready", "1 between start and stop.", state["ready"])
        yield GaugeMetricFamily("relayweb_compiled", "1 when the recorder's loops are compiled.", kernels.COMPILED)
        for name, told in _EVENTS.items():
            yield CounterMetricFamily(f"relayweb_{name}", told, writer[name])
        yield CounterMetricFamily("relayweb_commits", "Transactions of the writer.", writer["batches"])
        yield CounterMetricFamily("relayweb_database_errors", "Transactions that failed.", writer["errors"])
        yield GaugeMetricFamily("relayweb_queued_bytes", "Bytes waiting for the writer.", writer["queued_bytes"])
        yield GaugeMetricFamily("relayweb_sequence", "Number of the newest event committed here.", writer["seq"])
        opened = GaugeMetricFamily("relayweb_gateway_open", "What is open at the gateway.", labels=["what"])
        lost = CounterMetricFamily("relayweb_gateway_unrecorded", "What went through unrecorded.", labels=["what"])
        for name, value in gateway.items():
            family = lost if name.startswith("lost_") else opened
            family.add_metric([name.removeprefix("lost_")], value)
        yield from (opened, lost)
        topics = list(hub().topics.values())
        entries = GaugeMetricFamily("relayweb_cache_entries", "What is kept in memory.", labels=["cache"])
        limits = GaugeMetricFamily("relayweb_cache_limit", "What is kept at most.", labels=["cache"])
        for name, recent in sorted(named.items()):
            entries.add_metric([name], len(recent))
            limits.add_metric([name], recent.size)
        yield from (entries, limits)
        yield GaugeMetricFamily("relayweb_viewers", "Live sockets.", sum(len(topic.viewers) for topic in topics))
        yield CounterMetricFamily("relayweb_live_pulls", "Reads of the record for live sockets.", hub().pulls)
        answers = CounterMetricFamily("relayweb_answers", "Answers given.", labels=["part", "status"])
        for (part, status), value in list(log.answers.items()):
            answers.add_metric([part, status], value)
        yield answers


registry = CollectorRegistry()
registry.register(Counted())
ProcessCollector(registry=registry)


@login_not_required
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus's text format."""
    try:
        allowed = reader(request)
    except tokens.NotNow as error:
        return HttpResponse(f"{error}\n", "text/plain", error.status, headers={"Retry-After": error.retry_after})
    if not allowed:
        return HttpResponse(f"{MEND}\n", "text/plain", 401, headers={"WWW-Authenticate": "Bearer"})
    return HttpResponse(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
