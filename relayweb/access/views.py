"""Coming in and going out."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from relayweb.access import links


class Login(LoginView):
    """The page for people with a password; it tells the others how to get a link."""

    template_name = "access/login.html"
    redirect_authenticated_user = True


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
