from django.contrib import admin
from django.urls import include, path

from relayweb.metrics import metrics

urlpatterns = [
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("", include("relayweb.access.urls")),
    path("", include("relayweb.api.urls")),
    path("", include("relayweb.ui.urls")),
]

handler400 = "relayweb.access.views.bad_request"
