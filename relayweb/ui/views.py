"""Saved searches: keep the present one under a name, and let go of one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from relayweb.recording.reading.query_language import QueryError, parse
from relayweb.ui import search
from relayweb.ui.models import SavedView


@require_POST
def save(request: HttpRequest) -> HttpResponse:
    """Keep `q` under `name`; a name that is taken gets the new search."""
    name, q = " ".join(request.POST.get("name", "").split())[:60], request.POST.get("q", "").strip()
    try:
        parse(q)
    except QueryError as error:
        messages.error(request, f"Not saved: {error.message}")
        return redirect(reverse("ui:turns") + search.href(q))
    if name and q:
        SavedView.objects.update_or_create(owner_id=request.user.pk, name=name, defaults={"q": q})
        messages.success(request, f"Saved as {name}.")
    else:
        messages.error(request, "Not saved: a view needs a name and a search.")
    return redirect(reverse("ui:turns") + search.href(q))


@require_POST
def forget(request: HttpRequest, pk: int) -> HttpResponse:
    view = get_object_or_404(SavedView, pk=pk, owner=request.user)
    view.delete()
    messages.success(request, f"{view.name} is gone from your views.")
    return redirect(reverse("ui:turns") + search.href(request.POST.get("q", "")))
