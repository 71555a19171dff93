"""The live list of turns, the peek beside it, and the lists of sessions."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


@login_required
def turns(request: HttpRequest) -> HttpResponse:
    return render(request, "turns/list.html")
