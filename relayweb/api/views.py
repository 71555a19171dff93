"""The JSON API, `/api/v1/`: what pages show, for programs. Everything is read; nothing here writes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any
from uuid import UUID

import msgspec
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Query
from ninja.errors import AuthenticationError, HttpError, ValidationError

from relayweb import health as process_health
from relayweb.access import tokens
from relayweb.api import schemas
from relayweb.api.auth import MEND, reader
from relayweb.intercepts import publish
from relayweb.recording.events.json_text import dumps
from relayweb.recording.reading import bodies, chunks, queries
from relayweb.recording.reading.queries import CursorError, QueryError

log = logging.getLogger(__name__)


def _readers_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The schema is not a secret, but pages and API answer nobody without a login or a token."""

    @wraps(view)
    def guarded(request: HttpRequest, **more: Any) -> HttpResponse:
        try:
            return view(request, **more) if reader(request) else _nobody(request)
        except tokens.NotNow as error:
            return _not_now(request, error)

    return guarded


api = NinjaAPI(
    title="relayweb",
    version="1",
    description="What LLM agents sent and received. Made by relayweb; every list pages by `cursor`.",
    urls_namespace="api",
    openapi_url="openapi.json",
    docs_decorator=_readers_only,
    docs_url=None,  # the viewer that Django Ninja offers loads its scripts from elsewhere
    auth=reader,
)

Limit = Annotated[int, Query(ge=1, le=500, description="Rows of a page.")]
Offset = Annotated[int, Query(ge=0)]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]
Search = Annotated[str, Query(description='Like the search bar: status:failed model:gpt-* retries:>0 "text".')]

_PROBLEMS: dict[Any, Any] = {400: schemas.Problem, 401: schemas.Problem, 404: schemas.Problem, 429: schemas.Problem}


def _answer(content: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(dumps(content), content_type="application/json", status=status)


def _texts(found: dict[str, Any]) -> dict[str, Any]:
    """JSON texts of the record, put into an answer as they are."""
    return {
        key: msgspec.Raw(value)
        if isinstance(value, bytes)
        else [msgspec.Raw(v) if isinstance(v, bytes) else v for v in value]
        if isinstance(value, list)
        else value
        for key, value in found.items()
    }


def _found(content: Any, what: str, key: object) -> HttpResponse:
    if content is None:
        raise HttpError(404, f"There is no {what} {key}.")
    return _answer(content)


@api.get("turns", response={200: schemas.TurnPage, **_PROBLEMS})
def turns(request: HttpRequest, q: Search = "", limit: Limit = 50, cursor: Cursor = None) -> HttpResponse:
    """One page of turns, newest first."""
    return _answer(queries.turns(q, limit=limit, cursor=cursor))


@api.get("turns/{uuid}", response={200: schemas.TurnWithTree, **_PROBLEMS})
def turn(request: HttpRequest, uuid: UUID) -> HttpResponse:
    """One turn with the tree of its scopes, sub-agents included.

    Nodes nest up to 200 levels; deeper ones carry the flag `flattened`, and `depth` and `parent_uuid` place them.
    """
    return _found(queries.turn(uuid), "turn", uuid)


@api.get("sessions", response={200: schemas.SessionPage, **_PROBLEMS})
def sessions(request: HttpRequest, q: Search = "", limit: Limit = 50, cursor: Cursor = None) -> HttpResponse:
    """One page of sessions, the one with the newest turn first."""
    return _answer(queries.sessions(q, limit=limit, cursor=cursor))


@api.get("sessions/{path:session_id}", response={200: schemas.SessionWithTurns, **_PROBLEMS})
def session(request: HttpRequest, session_id: str, limit: Limit = 500, cursor: Cursor = None) -> HttpResponse:
    """One session with its turns, the oldest first."""
    return _found(queries.session(session_id, limit=limit, cursor=cursor), "session", session_id)


@api.get("scopes/{uuid}", response={200: schemas.Node, **_PROBLEMS})
def scope(request: HttpRequest, uuid: UUID) -> HttpResponse:
    """One scope, without children."""
    return _found(queries.scope(uuid), "scope", uuid)


@api.get("scopes/{uuid}/request", response={200: schemas.RequestBody, **_PROBLEMS})
def scope_request(request: HttpRequest, uuid: UUID) -> HttpResponse:
    """The provider's request as recorded; for other scopes their input."""
    found = bodies.request(uuid)
    return _found(found and _texts(found), "scope", uuid)


@api.get("scopes/{uuid}/response", response={200: schemas.ResponseBody, **_PROBLEMS})
def scope_response(request: HttpRequest, uuid: UUID) -> HttpResponse:
    """The provider's answer as recorded; for other scopes their output."""
    found = bodies.response(uuid)
    return _found(found and _texts(found), "scope", uuid)


@api.get("scopes/{uuid}/chunks", response={200: schemas.ChunkPage, **_PROBLEMS})
def scope_chunks(request: HttpRequest, uuid: UUID, offset: Offset = 0, limit: Limit = 500) -> HttpResponse:
    """The streamed chunks of an attempt, in the order of their index."""
    return _found(chunks.page(uuid, offset=offset, limit=limit, raw=True), "scope", uuid)


@api.get("scopes/{uuid}/rewrites", response={200: schemas.Rewrites, **_PROBLEMS})
def scope_rewrites(request: HttpRequest, uuid: UUID) -> HttpResponse:
    """What each intercept did to the request of an attempt, stage by stage."""
    return _found(bodies.rewrites(uuid), "scope", uuid)


@api.get("scopes/{uuid}/events", response={200: schemas.Events, **_PROBLEMS})
def scope_events(request: HttpRequest, uuid: UUID, offset: Offset = 0, limit: Limit = 500) -> HttpResponse:
    """The ATOF events behind a scope: start, end, the marks under it (chunk marks are under `chunks`)."""
    found = bodies.events(uuid, offset=offset, limit=limit)
    return _found(found and _texts(found), "scope", uuid)


@api.get("ruleset", response={200: schemas.Ruleset, **_PROBLEMS})
def ruleset(request: HttpRequest) -> HttpResponse:
    """The intercepts in force, in the order they run; 304 for a reader whose If-None-Match names them."""
    document = publish.ruleset_document()
    tag = f'"{document["etag"]}"'
    answer = HttpResponse(status=304) if request.headers.get("If-None-Match") == tag else _answer(document)
    answer["ETag"] = tag
    return answer


@api.get("health", response={200: schemas.Health, **_PROBLEMS})
def health(request: HttpRequest) -> HttpResponse:
    """Whether this process lives and records; `seq` is null while the database cannot be read."""
    try:
        seq: int | None = queries.latest_seq()
    except DatabaseError:
        seq = None
    return _answer({**process_health.state(), "seq": seq})


@api.exception_handler(QueryError)
def _bad_query(request: HttpRequest, error: QueryError) -> HttpResponse:
    return _answer({"error": error.message, "field": "q", **_without(error.as_dict(), "message")}, 400)


@api.exception_handler(CursorError)
def _bad_cursor(request: HttpRequest, error: CursorError) -> HttpResponse:
    return _answer({"error": str(error), "field": "cursor"}, 400)


@api.exception_handler(ValidationError)
def _bad_parameter(request: HttpRequest, error: ValidationError) -> HttpResponse:
    first = error.errors[0]
    place = str(first["loc"][-1])
    return _answer({"error": f"{place}: {first['msg']}", "field": place}, 400)


@api.exception_handler(AuthenticationError)
def _nobody(request: HttpRequest, error: AuthenticationError | None = None) -> HttpResponse:
    answer = _answer({"error": MEND}, 401)
    answer["WWW-Authenticate"] = 'Bearer realm="relayweb"'
    return answer


@api.exception_handler(tokens.NotNow)
def _not_now(request: HttpRequest, error: tokens.NotNow) -> HttpResponse:
    answer = _answer({"error": str(error)}, error.status)
    answer["Retry-After"] = str(error.retry_after)
    return answer


@api.exception_handler(HttpError)
def _refused(request: HttpRequest, error: HttpError) -> HttpResponse:
    return _answer({"error": str(error)}, error.status_code)


@api.exception_handler(Exception)
def _broken(request: HttpRequest, error: Exception) -> HttpResponse:
    log.exception("%s failed", request.path)
    told = f"{type(error).__name__} inside relayweb; its log says more. Nothing recorded is lost."
    return _answer({"error": told}, 500)


def _without(content: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in content.items() if k != key}
