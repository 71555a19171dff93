from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from relayweb.access import links, views
from relayweb.access.models import LoginLink
from relayweb.access.throttle import Throttle

pytestmark = pytest.mark.django_db


def test_a_link_logs_in_once(client: Client) -> None:
    path = links.create()
    answer = client.get(path)
    assert (answer.status_code, answer.url) == (302, "/")
    assert client.session["_auth_user_id"] == str(User.objects.get(username="admin").pk)
    again = Client().get(path)
    assert again.status_code == 403
    assert b"used before" in again.content


def test_a_preview_of_a_link_does_not_use_it_up(client: Client) -> None:
    path = links.create()
    assert Client().head(path).status_code == 405
    assert client.get(path).status_code == 302


def test_an_old_link_is_refused_and_forgotten(client: Client) -> None:
    path = links.create()
    LoginLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.get(path).status_code == 403
    links.create()
    assert LoginLink.objects.count() == 1


def test_a_made_up_link_is_refused(client: Client) -> None:
    assert client.get("/login/abc/").status_code == 403


def test_a_link_is_stored_as_a_digest() -> None:
    secret = links.create().split("/")[2]
    assert secret not in str(LoginLink.objects.values_list()[0])


def test_a_person_who_was_shut_out_stays_out(client: Client) -> None:
    path = links.create()
    User.objects.update(is_active=False)
    assert client.get(path).status_code == 403


@pytest.mark.parametrize(("role", "staff"), [("viewer", False), ("operator", True), ("admin", True)])
def test_a_new_person_gets_the_role_asked_for(role: str, staff: bool) -> None:
    links.create("ada", role)
    ada = User.objects.get(username="ada")
    assert [group.name for group in ada.groups.all()] == [role]
    assert (ada.is_staff, ada.has_usable_password()) == (staff, False)


def test_a_link_does_not_change_the_role_of_a_person() -> None:
    links.create("ada", "viewer")
    links.create("ada", "admin")
    assert list(User.objects.get(username="ada").groups.values_list("name", flat=True)) == ["viewer"]


def test_the_login_page_takes_a_password_and_tells_of_links(client: Client) -> None:
    ada = User.objects.create_user("ada", password="correct horse")
    ada.groups.add(Group.objects.get(name="viewer"))
    page = client.get("/login/")
    assert b"relayweb login" in page.content
    wrong = client.post("/login/", {"username": "ada", "password": "wrong"})
    assert wrong.status_code == 200
    right = client.post("/login/?next=/sessions/", {"username": "ada", "password": "correct horse"})
    assert (right.status_code, right.url) == (302, "/sessions/")


def test_logging_in_leads_to_no_other_site(client: Client) -> None:
    User.objects.create_user("ada", password="correct horse")
    answer = client.post("/login/?next=https://evil.example/", {"username": "ada", "password": "correct horse"})
    assert answer.url == "/"


def test_logging_out_needs_a_post(client: Client) -> None:
    client.get(links.create())
    assert client.get(reverse("access:logout")).status_code == 405
    assert client.post(reverse("access:logout")).status_code == 302
    assert "_auth_user_id" not in client.session


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch, settings: Any) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
    monkeypatch.setattr(views, "_throttle", Throttle())
    person = User.objects.create_user("ada", password="correct horse")
    person.groups.add(Group.objects.get(name="viewer"))
    return person


def guess(password: str, name: str = "ada", **more: str) -> HttpResponse:
    return Client(**more).post("/login/", {"username": name, "password": password})


def test_guessing_is_slowed_down_and_a_held_back_guess_is_not_compared(ada: User, client: Client) -> None:
    assert [guess(f"wrong {n}").status_code for n in range(10)] == [200] * 10
    held_back = guess("correct horse")
    assert held_back.status_code == 429 and 0 < int(held_back["Retry-After"]) <= 900
    assert b"Too many wrong passwords" in held_back.content and b"relayweb login" in held_back.content
    for spelling in (" ADA", "\uff41da", "A\uff24\uff41"):  # the form reads full-width letters as plain ones
        assert guess("correct horse", name=spelling).status_code == 429
    # The link is no password, and the way in that is left.
    assert client.get(links.create("ada")).status_code == 302


def test_one_address_cannot_try_many_names(ada: User) -> None:
    for n in range(50):
        assert guess("wrong", name=f"person {n}", REMOTE_ADDR="192.0.2.1").status_code == 200
    assert guess("wrong", name="another", REMOTE_ADDR="192.0.2.1").status_code == 429
    assert guess("correct horse", REMOTE_ADDR="192.0.2.2").status_code == 302


def test_the_admin_has_no_way_in_of_its_own(client: Client) -> None:
    answer = client.post("/admin/login/?next=/admin/", {"username": "ada", "password": "x"})
    assert answer.status_code == 302 and answer.url.startswith("/login/")


@pytest.mark.parametrize("charset", ["utf-7", "utf-16"])
def test_a_form_in_another_encoding_is_refused_and_is_no_fault_of_ours(charset: str) -> None:
    kind = f"application/x-www-form-urlencoded; charset={charset}"
    strict = Client(enforce_csrf_checks=True, raise_request_exception=False)
    strict.cookies["csrftoken"] = "a" * 32
    answer = strict.post("/login/", b"username=ada", content_type=kind)
    assert answer.status_code in (400, 403)
    assert b"<html" in answer.content
