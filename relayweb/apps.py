from django.apps import AppConfig


class RelaywebConfig(AppConfig):
    name = "relayweb"
    label = "relayweb"
