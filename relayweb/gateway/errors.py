"""Errors the gateway itself answers with, in the shape the client's SDK expects of its provider."""

from __future__ import annotations

import json

from relayweb.gateway.conversation import MESSAGES
from relayweb.gateway.headers import Headers

# OpenAI's and Anthropic's words for the type of an error, by status (their API references, "Errors").
_TYPES = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("invalid_request_error", "authentication_error"),
    403: ("invalid_request_error", "permission_error"),
    404: ("invalid_request_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_exceeded", "rate_limit_error"),
    529: ("server_error", "overloaded_error"),
}
_SERVER = ("server_error", "api_error")


class GatewayError(Exception):
    """A call the gateway answers itself.

    `code` is short and stable, `message` names what is wrong, where, and what to do; `retry` tells the SDK whether to
    try again (None: let it judge by the status), `retry_after` when, in seconds.
    """

    def __init__(
        self, status: int, code: str, message: str, *, retry: bool | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry = retry
        self.retry_after = retry_after

    def response(self, api_mode: str | None) -> tuple[int, Headers, bytes]:
        """Status, headers and body in the error format of the wire format."""
        openai, anthropic = _TYPES.get(self.status, _SERVER)
        body = (
            {"type": "error", "error": {"type": anthropic, "message": self.message}}
            if api_mode == MESSAGES
            else {"error": {"message": self.message, "type": openai, "param": None, "code": self.code}}
        )
        content = json.dumps(body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"x-relay-error", self.code.encode()),
        ]
        if self.retry is not None:
            headers.append((b"x-should-retry", b"true" if self.retry else b"false"))
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        return self.status, headers, content
