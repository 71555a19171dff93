"""People of each role, for tests that look at pages."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client

from relayweb.access.permissions import give_groups_their_permissions


def signed_in(role: str, name: str = "") -> Client:
    """A browser signed in as a new person of a role: "viewer", "operator" or "admin"."""
    give_groups_their_permissions()
    person = get_user_model().objects.create_user(name or f"{role}-1", is_staff=role != "viewer")
    person.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(person)
    return client
