"""One-time login links: how the first person gets in, and how anyone gets back in from a terminal."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.utils import timezone

from relayweb.access.models import LoginLink

LIFETIME = timedelta(minutes=30)


def create(username: str = "admin", role: str = "admin") -> str:
    """Make a link for a person and return its path, `/login/<secret>/`. A new person gets the role.

    Args:
        username: a person's name; created when missing.
        role: the group a new person joins: "viewer", "operator" or "admin".

    Raises:
        Group.DoesNotExist: the role is none of these.
    """
    secret = secrets.token_urlsafe(32)
    with transaction.atomic():
        user = _person(username, role)
        LoginLink.objects.filter(expires_at__lt=timezone.now()).delete()
        LoginLink.objects.create(user=user, digest=_digest(secret), expires_at=timezone.now() + LIFETIME)
    return f"/login/{secret}/"


def redeem(secret: str) -> User | None:
    """The person a link is for, once; None when it is unknown, used or too old."""
    now = timezone.now()
    with transaction.atomic():
        good = LoginLink.objects.filter(digest=_digest(secret), used_at=None, expires_at__gt=now, user__is_active=True)
        link = good.select_related("user").first()
        # The update decides: of two clicks at the same moment one comes in.
        if link is None or not LoginLink.objects.filter(pk=link.pk, used_at=None).update(used_at=now):
            return None
    return link.user


def role_of(username: str) -> str | None:
    """The groups a person is in, as one word where it is one; None for somebody new."""
    person = User.objects.filter(username=username).first()
    if person is None:
        return None
    return ", ".join(person.groups.order_by("name").values_list("name", flat=True)) or "without a role"


def anyone_has_logged_in() -> bool:
    """Whether a person has come in before, so that the first start is told from later ones."""
    return User.objects.filter(last_login__isnull=False).exists()


def _person(username: str, role: str) -> User:
    user, created = User.objects.get_or_create(
        username=username, defaults={"is_staff": role != "viewer", "is_superuser": role == "admin"}
    )
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
        user.groups.add(Group.objects.get(name=role))
    return user


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
