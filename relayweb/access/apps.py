from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccessConfig(AppConfig):
    name = "relayweb.access"

    def ready(self) -> None:
        from relayweb.access.permissions import give_groups_their_permissions

        # Sent once for each app: the last one wins, when every permission exists.
        post_migrate.connect(give_groups_their_permissions, dispatch_uid="relayweb.access.groups")
