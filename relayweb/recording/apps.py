from django.apps import AppConfig


class RecordingConfig(AppConfig):
    name = "relayweb.recording"
