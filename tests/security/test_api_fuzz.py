"""Requests made up from the API's own description: never an error of ours, always what the description says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from relayweb.api.views import api as described
from tests.security.test_canary import events
from tests.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("home"))
    served.read = served.token("read")
    ingest = served.token("ingest")
    served.start()
    served.send(events("a session"), ingest)
    yield served
    served.stop()


api = schemathesis.openapi.from_dict(json.loads(json.dumps(described.get_openapi_schema(), default=str)))


@api.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_made_up_requests_get_the_answers_that_are_described(case: Any, served: Served) -> None:
    case.call_and_validate(
        base_url=served.url,
        headers={"authorization": f"Bearer {served.read}"},
        checks=[not_a_server_error, content_type_conformance, response_schema_conformance],
    )
