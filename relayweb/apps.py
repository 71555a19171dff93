from django.apps import AppConfig
from django.db.backends.signals import connection_created


class RelaywebConfig(AppConfig):
    name = "relayweb"
    label = "relayweb"

    def ready(self) -> None:
        from relayweb.database import prepare

        connection_created.connect(prepare)
