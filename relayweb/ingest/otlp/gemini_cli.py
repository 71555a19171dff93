"""The log records of Gemini CLI, and of Qwen Code, which was made from it: docs/cli/telemetry.md of theirs, in 2026."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from relayweb.ingest.otlp.pieces import OK, Piece, Turn, failed, is_false, number
from relayweb.ingest.otlp.reading import Reading
from relayweb.recording.conventions import answer_texts, tool_calls
from relayweb.recording.conventions.attributes import parsed, string, without_none
from relayweb.recording.conventions.chat import Call, finish_word, tell_usage, tool_call
from relayweb.recording.projection.joining import GEMINI_CLI, QWEN_CODE

_AGENTS = {"gemini_cli": GEMINI_CLI, "qwen-code": QWEN_CODE}
_FINISH = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}


def piece(name: str, attributes: dict[str, Any], identity: UUID, at_ns: int) -> Piece | None:
    """What a log record tells of a turn; None of other records. `identity`: of the record."""
    agent, _, kind = name.partition(".")
    session, prompt = string(attributes.get("session.id")), string(attributes.get("prompt_id"))
    if agent not in _AGENTS or session is None or at_ns == 0:
        return None
    turn = Turn(agent, _AGENTS[agent], session, prompt)
    home = turn.named("prompt", prompt) if prompt else None
    if kind == "user_prompt" and home is not None:
        return turn.begun(home, at_ns, attributes.get("prompt"))
    if kind not in ("api_response", "api_error", "tool_call"):
        return None if home is None else Piece(home)
    reading = _tool(attributes) if kind == "tool_call" else _call(attributes)
    if kind != "tool_call":  # Qwen Code calls whoever it is told to
        reading.start_metadata["provider"] = "gemini" if agent == "gemini_cli" else turn.profile
    outcome = OK
    if kind == "api_error" or (kind == "tool_call" and is_false(attributes.get("success"))):
        status = number(attributes.get("status_code"))
        told = string(attributes.get("error")) or string(attributes.get("error.message"))
        outcome = failed(told, attributes.get("error_type"), None if status is None else int(status))
    uuid = UUID(int=identity.int ^ (2 << 64))
    ends_turn = outcome if kind == "api_error" else OK
    return turn.held(uuid, at_ns, attributes.get("duration_ms"), reading, outcome, ends_turn)


def _call(attributes: dict[str, Any]) -> Reading:
    reading = Reading(name="gemini.generate_content")
    model = attributes.get("model")
    reading.tell(
        Call(
            model=model,
            answers=_answers(attributes),
            answered=without_none({"model": model}),
            usage=_usage(attributes),
        )
    )
    return reading


def _usage(attributes: dict[str, Any]) -> dict[str, Any] | None:
    def count(name: str) -> float | None:
        return number(attributes.get(f"{name}_token_count"))

    asked, answered, thought = count("input"), count("output"), count("thoughts")
    if asked is not None:  # Gemini counts beside it what tools of its own put into the prompt,
        asked += count("tool") or 0
    if answered is not None:  # and beside the answer what was thought
        answered += thought or 0
    total = count("total") or None
    return tell_usage(asked, answered, total=total, cached=count("cached_content"), reasoning=thought)


def _answers(attributes: dict[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    told = attributes.get("response_text")
    body = parsed(told)
    message: dict[str, Any] = {"role": "assistant", "content": told if isinstance(told, str) else None}
    if not isinstance(body, str) and body is not None:  # the whole answer, or the pieces of its stream
        said, thought = answer_texts(body)
        calls = [tool_call(call.id, call.name, call.arguments) for call in tool_calls(body)]
        if said or thought or calls:
            message["content"] = said or None
            message |= {"reasoning_content": thought} if thought else {}
            message |= {"tool_calls": calls} if calls else {}
    reasons = attributes.get("finish_reasons")
    reason = reasons[0] if isinstance(reasons, list) and reasons else None
    finish = _FINISH.get(str(reason), finish_word(reason))
    return [(message, finish)] if finish or len(message) > 2 or message["content"] is not None else []


def _tool(attributes: dict[str, Any]) -> Reading:
    profile = without_none({"tool_call_id": string(attributes.get("call_id"))})
    given = parsed(attributes.get("function_args"))
    return Reading("tool", string(attributes.get("function_name")), given, start_profile=profile, end_profile=profile)
