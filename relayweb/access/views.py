"""Coming in and going out."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from relayweb.access import links
from relayweb.access.throttle import Throttle

WRONG_PASSWORDS = {"name": 10, "address": 50}
"""In a quarter of an hour, for one name and from one address. A link gets people in all the same."""
_QUARTER = 900.0
_throttle = Throttle("logins")


class Login(LoginView):
    """The page for people with a password; it tells the others how to get a link."""

    template_name = "access/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Compare a password, unless wrong ones came too often; a guess that is held back is not even compared."""
        wait = max(_throttle.wait(key, most, _QUARTER) for key, most in _guesses(request))
        if not wait:
            return super().post(request, *args, **kwargs)
        minutes = math.ceil(wait / 60)
        answer = render(request, "access/login.html", {"throttled_minutes": minutes}, status=429)
        answer["Retry-After"] = str(math.ceil(wait))
        return answer

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        for key, most in _guesses(self.request):
            _throttle.count(key, most, _QUARTER)
        return super().form_invalid(form)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's own page for this looks for the CSRF token in the form, which is what could not be read."""
    return HttpResponse(render_to_string("400.html"), status=400)


def _guesses(request: HttpRequest) -> list[tuple[tuple[str, str], int]]:
    # As the form reads it: full-width letters are the same name, and would be as many more guesses.
    name = unicodedata.normalize("NFKC", request.POST.get("username", "")[:1000]).strip().casefold()[:150]
    address = request.META.get("REMOTE_ADDR", "")
    return [((kind, value), WRONG_PASSWORDS[kind]) for kind, value in (("name", name), ("address", address))]


class Logout(LogoutView):
    next_page = "access:login"


@login_not_required
@never_cache
@require_GET
def login_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Log in the person a one-time link is for. HEAD, as link previews send it, does not use the link up."""
    person = links.redeem(secret)
    if person is None:
        return render(request, "access/login.html", {"link_failed": True}, status=403)
    login(request, person, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect(settings.LOGIN_REDIRECT_URL)
