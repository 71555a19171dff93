"""Requests, answers and rewrites of one scope, put together from its events. Read only when somebody opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from adapters import accumulators, json_patch, marks
from relayweb.recording.conventions import genai
from relayweb.recording.models import Event, Rewrite, Role, Scope, Status
from relayweb.recording.reading import chunks
from relayweb.recording.store import stored
from relayweb.recording.store.stored import Reader, member

Bodies = dict[str, Any]
Text = bytes | None


def _shown(uuid: UUID) -> tuple[Any, Any] | None:
    return Scope.objects.filter(uuid=uuid).values_list("start_seq", "end_seq").first()


def _text(reader: Reader, seq: int | None) -> Text:
    found = stored.event(seq)
    return None if found is None else reader.texts([found])[0]


Marks = list[tuple[str, bytes]]


def _marks(reader: Reader, uuids: Sequence[UUID]) -> dict[UUID, Marks]:
    """The marks under each of these calls and tools: name and text, in the order of their times, then of acceptance.

    Those of other scopes, under which a program may have written a log of any length, tell nothing of bodies.
    """
    telling = Scope.objects.filter(uuid__in=uuids, role__in=(Role.ATTEMPT, Role.TOOL)).values("uuid")
    under = list(Event.objects.filter(mark_of__in=telling, kind=Event.Kind.MARK).order_by("at_ns", "seq"))
    found: dict[UUID, Marks] = {}
    for event, text in zip(under, reader.texts(under), strict=True):
        name = stored.load(member(text, "name"))
        if event.mark_of is not None and isinstance(name, str):
            found.setdefault(event.mark_of, []).append((name, text))
    return found


def _told(found: Marks) -> list[genai.Event]:
    """What log records tell of a call."""
    telling = [(name, stored.load(member(text, "data"))) for name, text in found if genai.tells_call(name)]
    return [(name, genai.said_in(data)) for name, data in telling]


def request(uuid: UUID) -> dict[str, Text | list[Any]] | None:
    """What was asked of the provider, as JSON texts; None if there is no such scope.

    Returns:
        `request`: the provider's body (for scopes that are no llm call: their input), `app`: the body the app gave
        where an intercept changed it, else null, `headers`, and `escaped`: pointers of values Relay could not encode.
    """
    found = _request(uuid)
    if found is not None and not isinstance(found["app"], bytes | None):
        found["app"] = stored.dump(found["app"])
    return found


def _request(uuid: UUID) -> dict[str, Any] | None:
    """The same, with `app` as a value where it was made with a patch."""
    seqs = _shown(uuid)
    if seqs is None:
        return None
    reader = Reader()
    start = _text(reader, seqs[0])
    name = stored.load(member(start, "name"))
    if name == marks.ATTEMPT_BLOCKED:
        return {"request": member(start, "data", "request"), "app": None, "headers": None, "escaped": []}
    is_call = stored.load(member(start, "category")) == "llm"
    body = member(start, "data", "content") if is_call else None
    found: dict[str, Any] = {
        "request": body if body is not None else member(start, "data"),
        "app": None,
        "headers": member(start, "data", "headers") if is_call else None,
        "escaped": [],
    }
    under = _marks(reader, [uuid]).get(uuid, [])
    if told := _told(under):
        found["request"] = _asked(found["request"], told, is_call)
    for _, text in (mark for mark in under if mark[0] == marks.REQUEST):
        data = stored.members(member(text, "data") or b"{}")
        if "provider" in data:
            found["request"] = data["provider"]
        if "app" in data:
            found["app"] = data["app"]
        elif "app_patch" in data:
            app, problem = _patched(stored.load(body), stored.load(data["app_patch"]))
            found["app"] = None if problem else app
        found["escaped"] = stored.load(data.get("escaped")) or []
    return found


def _asked(body: Any, told: list[genai.Event], is_call: bool) -> Any:
    """A request with what log records tell of it, where it does not say that itself."""
    said = stored.load(body)
    if is_call and genai.lacks_messages(said):
        return stored.dump(genai.filled_request(said, genai.read_call({}, told)))
    given = None if is_call or said is not None else genai.of_tool(told)[0]
    return body if given is None else stored.dump(given)


def _answered(answer: Text, told: list[genai.Event], is_call: bool) -> Text:
    """An answer with what log records tell of it, where it does not say that itself."""
    said = stored.load(answer)
    if is_call and genai.lacks_answer(said) and (call := genai.read_call({}, told)).answers:
        return stored.dump(genai.filled_answer(said, call))
    output = None if is_call or said is not None else genai.of_tool(told)[1]
    return answer if output is None else stored.dump(output)


def response(uuid: UUID) -> dict[str, Text | bool] | None:
    """What came back, as JSON text; None if there is no such scope.

    Returns:
        `response`: the answer (for other scopes: their output), null where nothing was recorded. `partial`: it was put
        together from the chunks of a stream that broke off, or has no end or no answer in it. `failure`: what the
        provider answered to a failed attempt (`relay.attempt_failed`), else null.
    """
    return responses([uuid]).get(uuid)


def responses(uuids: Sequence[UUID]) -> dict[UUID, dict[str, Text | bool]]:
    """What came back of each of these scopes that is on record, as `response` tells it."""
    reader, found = Reader(), {}
    scopes = list(Scope.objects.filter(uuid__in=uuids))
    ends = list(Event.objects.filter(seq__in=[s.end_seq for s in scopes if s.end_seq is not None]))
    texts = dict(zip([event.seq for event in ends], reader.texts(ends), strict=True))
    under = _marks(reader, uuids)
    for scope in scopes:
        answer = member(None if scope.end_seq is None else texts.get(scope.end_seq), "data")
        if told := _told(under.get(scope.uuid, [])):
            answer = _answered(answer, told, scope.role == Role.ATTEMPT)
        made = _from_chunks(scope.uuid, scope.api_mode) if answer in (None, b"{}") else None
        found[scope.uuid] = {
            "response": answer if made is None else made,
            "partial": made is not None or (answer not in (None, b"null", b"{}") and _is_cut(scope)),
            "failure": next(
                (member(t, "data") for n, t in under.get(scope.uuid, ()) if n == marks.ATTEMPT_FAILED), None
            ),
        }
    return found


def _is_cut(scope: Scope) -> bool:
    """Whether the answer on record is what had come of a stream when it broke off."""
    unfinished = scope.flags & Scope.Flag.UNFINISHED_STREAM or scope.status not in (Status.OK, Status.RUNNING)
    return bool(scope.role == Role.ATTEMPT and scope.streaming and unfinished)


def _from_chunks(uuid: UUID, api_mode: str | None) -> Text:
    accumulator = accumulators.for_api_mode(api_mode or "")
    if accumulator is None:
        return None
    seen = False
    for chunk in chunks.contents(uuid):
        accumulator.observe(chunk)
        seen = True
    return stored.dump(accumulator.finalize()) if seen else None


def rewrites(uuid: UUID) -> dict[str, list[dict[str, Any]]] | None:
    """The request from stage to stage; None if there is no such scope.

    Returns:
        `stages`: first `{"name": "app", "body"}`, then one for each intercept with its patch and the body after it
        (in shadow mode the body as it stayed), last `{"name": "provider", "body"}`, or `"held"` for `"provider"` where
        the request was never sent: blocked, answered or failed by a rule. A patch that does not fit what was recorded
        gives `problem` and leaves the body as it was. `rewrites`: the marks' data, in order.
    """
    asked = _request(uuid)
    if asked is None:
        return None
    reader = Reader()
    ran = list(Rewrite.objects.filter(attempt_uuid=uuid).order_by("position", "seq"))
    events = {event.seq: event for event in Event.objects.filter(seq__in=[r.seq for r in ran])}
    texts = dict(zip(events, reader.texts(list(events.values())), strict=True))
    provider, app = stored.load(asked["request"]), asked["app"]
    body = provider if app is None else stored.load(app) if isinstance(app, bytes) else app
    stages: list[dict[str, Any]] = [{"name": "app", "body": body}]
    told: list[dict[str, Any]] = []
    for rewrite in ran:
        data = stored.load(member(texts.get(rewrite.seq), "data"))
        data = data if isinstance(data, dict) else {}
        told.append({**data, "attempt": str(uuid)})
        stage = {**data, "patch": data.get("patch") or []}
        if rewrite.mode != "shadow":
            body, problem = _patched(body, stage["patch"])
            if problem:
                stage["problem"] = problem
        stages.append({**stage, "body": body})
    stages.append({"name": "held" if _was_held(reader, uuid, ran) else "provider", "body": provider})
    return {"stages": stages, "rewrites": told}


def _was_held(reader: Reader, uuid: UUID, ran: Sequence[Rewrite]) -> bool:
    """Whether the request was never sent."""
    scope = Scope.objects.get(uuid=uuid)
    if scope.status == Status.BLOCKED:
        return True
    results = {rewrite.result for rewrite in ran if rewrite.mode != "shadow"}
    if results & {"block", "respond"}:
        return True
    raised = stored.load(member(_text(reader, scope.end_seq), "metadata", "exception.type"))
    return "fault" in results and (raised == "CallFault" or (raised == "CallCut" and not scope.chunk_count))


def _patched(body: Any, patch: Any) -> tuple[Any, str | None]:
    if not patch:
        return body, None
    try:
        return json_patch.apply(body, patch), None
    except (json_patch.PatchError, KeyError, TypeError) as error:
        return body, str(error)


def events(uuid: UUID, *, limit: int = 500, offset: int = 0) -> dict[str, Any] | None:
    """The ATOF events of a scope as JSON texts, its marks included (chunk marks are in `chunks`).

    Returns:
        `events`: texts in the order they were accepted; `seqs` and `flags` beside them; `next`: offset or None.
        None if there is no such scope.
    """
    if _shown(uuid) is None:
        return None
    page = list(stored.events_of(uuid)[offset : offset + limit + 1])
    more, page = len(page) > limit, page[:limit]
    return {
        "events": Reader().texts(page),
        "seqs": [event.seq for event in page],
        "flags": [[flag.name.lower() for flag in Event.Flag if event.flags & flag] for event in page],
        "next": offset + limit if more else None,
    }
