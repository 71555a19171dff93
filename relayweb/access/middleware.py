"""Every page needs a person who may view. The API does its own asking, because programs come with tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_cache_control

from relayweb.access.permissions import may_view


class ViewerRequiredMiddleware(LoginRequiredMiddleware):
    def process_view(
        self, request: HttpRequest, view_func: Callable[..., Any], view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        if request.path.startswith("/api/") or not getattr(view_func, "login_required", True):
            return None
        answer = super().process_view(request, view_func, view_args, view_kwargs)
        if answer is None and not may_view(request.user):
            raise PermissionDenied
        return answer

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """What one person may see is kept by no cache on the way to others, also where a page does not say so."""
        if not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_cache=True)
        return response
