"""Create an admin, with a password or with a one-time login link."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from evalsite.access.members import login_path, make_admin
from runs.cli.command import FAILED, SiteCommand, full_url

MAX_NAME_LENGTH = 150
EPILOG = """\
The command asks for the password at the terminal, reads it from the first line of --password-file
(- is standard input), or sets none with --link. Safe to repeat: an existing member becomes admin,
is reactivated if necessary, and gets the new password.

exit codes:
  0  NAME is an admin
  2  wrong usage
  3  nothing was changed: the name or the password cannot be used

examples:
  evalsite createadmin ada
  evalsite createadmin ada --link
  head -c 18 /dev/urandom | base64 | tee password | evalsite createadmin ada --password-file -
"""


class Command(SiteCommand):
    """Make the first admin, or another one."""

    help = "Create an admin, or make an existing member an admin."
    epilog = EPILOG
    action = "Creating the admin"
    creates_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take name and password."""
        parser.add_argument("username", metavar="NAME", help="User name, for logging in.")
        parser.add_argument("--email", default="", metavar="ADDRESS", help="Email, if any.")
        group = parser.add_mutually_exclusive_group()
        group.add_argument(
            "--password-file", metavar="FILE", help="Read the password from a file; - is stdin."
        )
        group.add_argument(
            "--link", action="store_true", help="Print a one-time login link and set no password."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Check name and password, then make the admin."""
        name = str(options["username"]).strip()
        _check_name(name)
        password = None if options["link"] else _password(name, options["password_file"])
        member, is_new = make_admin(name, email=options["email"], password=password)
        self.stderr.write(f"{member.username} {'was added and ' if is_new else ''}is an admin.")
        if options["link"]:
            self.stdout.write(full_url(login_path(member)))


def _check_name(name: str) -> None:
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError as error:
        raise _refusal(f"{name!r} cannot be a user name: {error.messages[0]}") from error
    if len(name) > MAX_NAME_LENGTH:
        raise _refusal(f"A user name has at most {MAX_NAME_LENGTH} characters.")


def _password(name: str, file: str | None) -> str:
    """Return a valid password; raises CommandError."""
    password = _ask_password(name) if file is None else _read_password(file)
    try:
        validate_password(password, User(username=name))
    except ValidationError as error:
        raise _refusal(f"The password cannot be used: {' '.join(error.messages)}") from error
    return password


def _read_password(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _refusal(f"--password-file {file} cannot be read: {reason}.") from error
    line = text.partition("\n")[0].removesuffix("\r")
    if not line:
        raise _refusal(f"--password-file {file}: the first line is empty.")
    return line


def _ask_password(name: str) -> str:
    if not sys.stdin.isatty():
        raise _refusal(
            "There is no terminal to ask for a password. Use --password-file FILE (- is standard "
            "input), or --link for a one-time login link."
        )
    password = getpass.getpass(f"Password for {name}: ")
    if getpass.getpass("Password again: ") != password:
        raise _refusal("The two passwords differ.")
    return password


def _refusal(reason: str) -> CommandError:
    return CommandError(reason, returncode=FAILED)
