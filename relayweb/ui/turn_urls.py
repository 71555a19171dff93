"""Routes of the turn page; included by relayweb.ui.urls in the same namespace."""

from django.urls import URLPattern, path

from relayweb.ui import downloads, hints, turn_views

urlpatterns: list[URLPattern] = [
    path("turns/<uuid:turn>/", turn_views.page, name="turn"),
    path("turns/<uuid:turn>/frame/", turn_views.frame, name="turn-frame"),
    path("turns/<uuid:turn>/chunks/", turn_views.chunks, name="turn-chunks"),
    path("turns/<uuid:turn>/spans/", turn_views.spans, name="turn-spans"),
    path("turns/<uuid:turn>/transcript/", turn_views.transcript, name="turn-transcript"),
    path("turns/<uuid:turn>/hints/", hints.hints, name="turn-hints"),
    path("turns/<uuid:turn>/download/<str:form>/", downloads.turn, name="turn-download"),
    path("turns/<uuid:turn>/scopes/<str:scope>/", turn_views.inspect, name="turn-scope"),
    path("turns/<uuid:turn>/scopes/<str:scope>/value/", turn_views.value, name="turn-value"),
    path("turns/<uuid:turn>/scopes/<str:scope>/again/<str:form>/", turn_views.again, name="turn-again"),
    path("turns/<uuid:turn>/scopes/<str:scope>/chunks/", turn_views.chunk_table, name="turn-chunk-table"),
]
