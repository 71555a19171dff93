from django.apps import AppConfig
from django.contrib.admin import apps as admin


class UiConfig(AppConfig):
    name = "relayweb.ui"
    default = True


class RelayAdminConfig(admin.AdminConfig):
    default = False
    default_site = "relayweb.ui.site.RelaySite"
