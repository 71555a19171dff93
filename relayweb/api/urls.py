from django.urls import path

from relayweb.api.views import api

urlpatterns = [path("api/v1/", api.urls)]
