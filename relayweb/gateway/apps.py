from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save


class GatewayConfig(AppConfig):
    name = "relayweb.gateway"

    def ready(self) -> None:
        from relayweb.gateway.models import Upstream
        from relayweb.gateway.upstreams import directory

        def forget(**_: object) -> None:
            directory.forget()

        for signal in (post_save, post_delete):
            signal.connect(forget, sender=Upstream, dispatch_uid="relayweb.gateway.upstreams", weak=False)
