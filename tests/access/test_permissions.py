from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import Client

from relayweb.access.permissions import may_edit_intercepts, may_view
from tests.people import signed_in

pytestmark = pytest.mark.django_db


def person(role: str | None) -> User:
    user = User.objects.create_user(f"a {role}")
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


@pytest.mark.parametrize(
    ("role", "view", "edit"),
    [(None, False, False), ("viewer", True, False), ("operator", True, True), ("admin", True, True)],
)
def test_each_role_may_do_its_part(role: str | None, view: bool, edit: bool) -> None:
    user = person(role)
    assert (may_view(user), may_edit_intercepts(user)) == (view, edit)


def test_nobody_in_particular_may_do_nothing() -> None:
    assert not may_view(AnonymousUser()) and not may_edit_intercepts(AnonymousUser())


def test_an_operator_may_change_intercepts_and_nobody_s_account() -> None:
    operator = person("operator")
    assert operator.has_perm("intercepts.change_interceptconfig")
    assert not operator.has_perm("auth.change_user")
    assert person("admin").has_perm("auth.change_user")


@pytest.mark.parametrize("path", ["/", "/sessions/", "/admin/", "/no/such/page"])
def test_pages_lead_strangers_to_the_login(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (302, 404)
    if answer.status_code == 302:
        assert "/login/" in answer.url


def test_a_person_without_a_role_sees_no_page(client: Client) -> None:
    client.force_login(person(None))
    assert client.get("/").status_code == 403


def test_the_api_does_its_own_asking(client: Client) -> None:
    assert client.get("/api/v1/turns").status_code == 401


@pytest.mark.parametrize("path", ["/", "/sessions/", "/statistics/", "/start/", "/api/v1/turns", "/metrics", "/no"])
def test_no_cache_on_the_way_keeps_what_one_person_may_see(path: str) -> None:
    said = signed_in("viewer").get(path)["Cache-Control"]
    assert "private" in said and ("no-cache" in said or "no-store" in said)
