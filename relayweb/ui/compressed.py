"""Our own scripts, styles and icons, sent compressed.

Only what lies under `STATIC_URL`: a page holds secrets beside what others wrote, and the length of such a text,
compressed, can betray them (BREACH).
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

TYPES = ("text/", "application/javascript", "application/json", "image/svg+xml")
_SMALL = 500  # bytes: below, compressing gains nothing

_compress = lru_cache(maxsize=256)(lambda content: gzip.compress(content, 6, mtime=0))


class CompressedStatic:
    """Middleware around WhiteNoise. Its answers have weak ETags, for the same file has another without compression."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(settings.STATIC_URL) or request.method != "GET":
            return self.get_response(request)
        if known := request.META.get("HTTP_IF_NONE_MATCH"):
            request.META["HTTP_IF_NONE_MATCH"] = known.removeprefix("W/")
        return _compressed(request, self.get_response(request))


def _compressed(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    kind = answer.headers.get("Content-Type", "")
    if (
        not isinstance(answer, StreamingHttpResponse)
        or answer.status_code != 200
        or not kind.startswith(TYPES)
        or answer.has_header("Content-Encoding")
    ):
        return answer
    patch_vary_headers(answer, ["Accept-Encoding"])
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return answer
    content = b"".join(answer.streaming_content)  # type: ignore[arg-type]
    answer.close()
    small = len(content) < _SMALL
    made = HttpResponse(content if small else _compress(content))
    for name, value in answer.headers.items():
        if name != "Content-Length":
            made.headers[name] = value
    if not small:
        made.headers["Content-Encoding"] = "gzip"
        if etag := made.headers.get("ETag"):
            made.headers["ETag"] = etag if etag.startswith("W/") else f"W/{etag}"
    made.headers["Content-Length"] = str(len(made.content))
    return made
