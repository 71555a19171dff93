"""Django settings. What people may change is in conf.py and documented in docs/configuration.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
import django_stubs_ext

from relayweb import conf

django_stubs_ext.monkeypatch()  # lets ModelAdmin[Token] and its like be written for mypy

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = conf.secret_key()
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *conf.ALLOWED_HOSTS]
if conf.PUBLIC_URL:
    ALLOWED_HOSTS.append(urlsplit(conf.PUBLIC_URL).hostname or "")
    # A proxy that ends TLS passes the browser's https Origin on to us, who speak http.
    CSRF_TRUSTED_ORIGINS = [conf.PUBLIC_URL]
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = conf.PUBLIC_URL.startswith("https:")

INSTALLED_APPS = [
    "relayweb.apps.RelaywebConfig",
    "relayweb.access",
    "relayweb.recording",
    "relayweb.ingest",
    "relayweb.gateway",
    "relayweb.intercepts",
    "relayweb.live",
    "relayweb.api",
    "relayweb.ui",
    "django_htmx",
    "csp",
    "relayweb.ui.apps.RelayAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "relayweb.ui.compressed.CompressedStatic",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "relayweb.access.middleware.ViewerRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "relayweb.urls"
ASGI_APPLICATION = "relayweb.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "relayweb.ui.shell.context",
            ],
        },
    },
]

_SQLITE: dict[str, Any] = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": conf.HOME / "relayweb.sqlite3",
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "cached_statements": 512,
    },
    # A file, because the writer's thread has a connection of its own.
    "TEST": {"NAME": conf.HOME / "test.sqlite3"},
}


def _postgresql() -> dict[str, Any]:
    found: dict[str, Any] = dict(dj_database_url.parse(conf.DATABASE_URL))
    # Requests run in threads that come and go, so theirs are closed after each; the writer's and the hub's threads keep
    # one. With persistent ones a process held 39 connections for six clients.
    # A server that is gone without a word is noticed in seconds, not in the system's quarter of an hour.
    waiting = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10, "keepalives_interval": 5}
    found["OPTIONS"] = {"application_name": "relayweb", **waiting, **found.get("OPTIONS", {})}
    return found


DATABASES: dict[str, dict[str, Any]] = {"default": _postgresql() if conf.DATABASE_URL else _SQLITE}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The layer waits 5 s for a message at a time; a Redis that is gone without a word is given up after 10.
_REDIS = {"address": conf.REDIS_URL, "socket_connect_timeout": 2, "socket_timeout": 10}
_LAYER: dict[str, Any] = (
    {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [_REDIS]}}
    if conf.REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
)
# One for each event loop that listens: a layer refuses a second one.
CHANNEL_LAYERS = {"default": _LAYER, "rules": _LAYER}

LANGUAGE_CODE = "en-us"
USE_I18N = False
TIME_ZONE = "UTC"
DATETIME_FORMAT = "Y-m-d H:i"
USE_TZ = True

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_ALLOW_ALL_ORIGINS = False
# In a checkout files change under a running server, and would be sent cut to the length they had when it started.
WHITENOISE_AUTOREFRESH = (BASE_DIR / ".git").exists()

AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "access:login"
LOGIN_REDIRECT_URL = "ui:turns"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Not "no-referrer": browsers then send `Origin: null` with our own forms, which the CSRF check must refuse.
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:", "blob:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
    }
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": f"relayweb.logs.{'Json' if conf.LOG == 'json' else 'Line'}"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "relayweb": {"level": "INFO"},
        # Says of every 4xx what the access log says already.
        "django.request": {"level": "ERROR"},
        "django.server": {"handlers": [], "propagate": False},
    },
}
