"""The command `createadmin`: an admin with a password or a login link."""

from __future__ import annotations

import getpass
import io
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from evalsite.access.roles import Role, highest_role
from evaluators.models import AuditEntry

pytestmark = pytest.mark.django_db

GOOD = "tent-pole-42"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def createadmin(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("createadmin", *arguments, stdout=out, stderr=err)
    return out.getvalue().strip(), err.getvalue().strip()


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as refusal:
        createadmin(*arguments)
    assert refusal.value.returncode == 3
    return str(refusal.value)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{GOOD}\nnot this\n")
    return path


def test_a_new_name_becomes_an_admin_with_a_password_from_a_file(
    client: Client, password_file: Path
) -> None:
    message = createadmin(
        "ada", "--email", "ada@example.com", "--password-file", str(password_file)
    )
    assert message == ("", "ada was added and is an admin.")
    member = User.objects.get()
    assert (highest_role(member), member.email) == (Role.ADMIN, "ada@example.com")
    client.post("/login/", {"username": "ada", "password": GOOD})
    assert client.get("/members/").status_code == 200
    entry = AuditEntry.objects.get(object_type="user")
    assert (entry.actor_name, entry.action) == ("command line", "member.made_admin")


def test_the_password_can_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{GOOD}\r\n"))
    createadmin("ada", "--password-file", "-")
    assert User.objects.get().check_password(GOOD)


def test_the_terminal_asks_for_the_password_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [GOOD, GOOD]
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda _: answers.pop())
    createadmin("ada")
    assert User.objects.get().check_password(GOOD)
    answers += [GOOD, "other-tent-43"]
    assert refused("ada") == "The two passwords differ."


def test_a_link_logs_in_once(client: Client) -> None:
    link, message = createadmin("ada", "--link")
    assert message == "ada was added and is an admin."
    path = link.removeprefix("http://127.0.0.1:8000")
    assert client.post(path).status_code == 302
    assert client.get("/members/").status_code == 200
    assert not User.objects.get().has_usable_password()


def test_repeating_the_command_changes_only_the_password(password_file: Path) -> None:
    createadmin("ada", "--password-file", str(password_file))
    password_file.write_text("other-tent-43")
    _, message = createadmin("ADA", "--password-file", str(password_file))
    assert message == "ada is an admin."
    assert User.objects.get().check_password("other-tent-43")
    createadmin("ada", "--link")
    assert User.objects.get().check_password("other-tent-43")


def test_a_deactivated_member_is_reactivated_as_admin(viewer: User) -> None:
    viewer.is_active = False
    viewer.save()
    createadmin(viewer.username, "--link")
    viewer = User.objects.get()
    assert (viewer.is_active, highest_role(viewer)) == (True, Role.ADMIN)
    assert viewer.groups.count() == 1


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("a b", GOOD, "'a b' cannot be a user name"),
        ("a" * 151, GOOD, "A user name has at most 150 characters."),
        ("ada", "12345678", "The password cannot be used: This password is too common."),
        ("ada", "\nlater", "the first line is empty."),
    ],
)
def test_unusable_values_change_nothing(
    tmp_path: Path, name: str, password: str, reason: str
) -> None:
    (tmp_path / "password").write_text(password)
    assert reason in refused(name, "--password-file", str(tmp_path / "password"))
    assert not User.objects.exists()


def test_without_a_terminal_the_message_names_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "Use --password-file FILE (- is standard input), or --link" in refused("ada")
    assert "cannot be read: No such file" in refused("ada", "--password-file", "/nowhere")
