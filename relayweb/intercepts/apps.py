from django.apps import AppConfig


class InterceptsConfig(AppConfig):
    name = "relayweb.intercepts"
