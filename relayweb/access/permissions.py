"""What people may do: three groups, each holding Django's own permissions.

viewer sees the record; operator may also change intercepts; admin may do everything.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractUser, AnonymousUser

GROUPS = ("viewer", "operator", "admin")

User = AbstractUser | AnonymousUser


def may_view(user: User) -> bool:
    """Whether a person may see pages, API and live sockets."""
    return user.is_active and user.has_perm("access.view_record")


def may_edit_intercepts(user: User) -> bool:
    """Whether a person may change intercepts and start demo turns."""
    return user.is_active and user.has_perm("access.edit_intercepts")


def give_groups_their_permissions(**_: Any) -> None:
    """Set what each group holds. Runs after every migration, because Django makes permissions then."""
    from django.contrib.auth.models import Group, Permission

    everything = Permission.objects.select_related("content_type")
    view = [p for p in everything if p.codename == "view_record"]
    intercepts = [p for p in everything if p.codename == "edit_intercepts" or p.content_type.app_label == "intercepts"]
    held = {"viewer": view, "operator": view + intercepts, "admin": list(everything)}
    for name, permissions in held.items():
        Group.objects.get_or_create(name=name)[0].permissions.set(permissions)
