from __future__ import annotations

import re
from pathlib import Path

import httpx2

from tests.served import Served


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    home = Served(tmp_path)
    raw = home.token("ingest")
    assert re.fullmatch(r"rw_ingest_[\w-]{43}", raw)
    home.run("token", "create", "--scope", "read", "--name", "my laptop")
    listed = home.run("token", "list").stdout.decode()
    assert "my laptop" in listed and raw not in listed and raw[-4:] in listed
    assert home.run("token", "revoke", "my laptop").returncode == 0
    assert "revoked" in home.run("token", "list").stdout.decode()
    nobody = home.run("token", "revoke", "my laptop")
    assert nobody.returncode == 1 and b"no active token 'my laptop'" in nobody.stderr


def test_a_wrong_scope_is_named_with_the_right_ones(tmp_path: Path) -> None:
    done = Served(tmp_path).run("token", "create", "--scope", "root")
    assert done.returncode != 0 and b"'root'" in done.stderr and b"gateway" in done.stderr


def test_the_home_is_its_owner_s_alone(tmp_path: Path) -> None:
    home = Served(tmp_path / "home")
    home.token("read")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    for file in (tmp_path / "home").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_a_link_made_by_a_command_works_in_the_running_server(serve) -> None:
    served = serve()
    link = served.run("login").stdout.decode().strip()
    assert link.startswith(served.url + "/login/")
    with httpx2.Client(timeout=30) as browser:
        assert browser.get(link).headers["location"] == "/"
        assert browser.get(served.url + "/").status_code == 200
    assert httpx2.get(served.url + "/").headers["location"].startswith("/login/")


def test_a_role_is_never_ignored_for_a_person_who_has_another(tmp_path: Path) -> None:
    home = Served(tmp_path)
    assert home.run("login", "--user", "ada", "--role", "viewer").returncode == 0
    refused = home.run("login", "--user", "ada", "--role", "operator")
    assert refused.returncode == 1 and b"'ada' is viewer already" in refused.stderr and not refused.stdout
    assert home.run("login", "--user", "ada").returncode == 0


def test_the_overview_lists_our_commands_and_none_of_djangos(tmp_path: Path) -> None:
    said = Served(tmp_path).run("--help").stdout.decode()
    assert "  serve " in said and "  export " in said and "dbshell" not in said
