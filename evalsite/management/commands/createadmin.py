"""Make somebody admin, with a password or with a link that logs in once."""

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

from evalsite.access.members import address_of, login_path, make_admin
from runs.cli.answering import AnsweringCommand
from runs.cli.names import COULD_NOT

MAX_NAME_LENGTH = 150
EPILOG = """\
The password is asked for at a terminal, read from the first line of a file with --password-file
(- is standard input), or left out with --link. Safe to repeat: somebody who is there already
becomes admin, is let in again where the account was deactivated, and gets the new password.

exit codes:
  0  NAME is an admin
  2  the command line was not understood
  3  nothing was changed: the name or the password cannot be used

examples:
  evalsite createadmin ada
  evalsite createadmin ada --link
  head -c 18 /dev/urandom | base64 | tee password | evalsite createadmin ada --password-file -
"""


class Command(AnsweringCommand):
    """Make the first admin, or another one, from a shell on the server."""

    help = "Make somebody admin of this site. A new name becomes a new member."
    epilog = EPILOG
    action = "That"
    begins_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take name and password."""
        parser.add_argument("username", metavar="NAME", help="User name, for logging in.")
        parser.add_argument("--email", default="", metavar="ADDRESS", help="E-mail, if any.")
        group = parser.add_mutually_exclusive_group()
        group.add_argument(
            "--password-file", metavar="FILE", help="Read the password from a file; - is stdin."
        )
        group.add_argument(
            "--link", action="store_true", help="Print a link that logs in once, set no password."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Check everything, then change it at once."""
        name = str(options["username"]).strip()
        _check_name(name)
        password = None if options["link"] else _password(name, options["password_file"])
        member, is_new = make_admin(name, email=options["email"], password=password)
        self.stderr.write(f"{member.username} {'was added and ' if is_new else ''}is an admin.")
        if options["link"]:
            self.stdout.write(address_of(login_path(member)))


def _check_name(name: str) -> None:
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError as error:
        raise _refusal(f"{name!r} cannot be a user name: {error.messages[0]}") from error
    if len(name) > MAX_NAME_LENGTH:
        raise _refusal(f"A user name has at most {MAX_NAME_LENGTH} characters.")


def _password(name: str, file: str | None) -> str:
    """Return a password that may be used; raises CommandError."""
    password = _asked(name) if file is None else _read(file)
    try:
        validate_password(password, User(username=name))
    except ValidationError as error:
        raise _refusal(f"The password cannot be used: {' '.join(error.messages)}") from error
    return password


def _read(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise _refusal(f"--password-file {file} cannot be read: {reason}.") from error
    line = text.partition("\n")[0].removesuffix("\r")
    if not line:
        raise _refusal(f"--password-file {file}: the first line holds no password.")
    return line


def _asked(name: str) -> str:
    if not sys.stdin.isatty():
        raise _refusal(
            "There is no terminal to ask for a password at. Give --password-file FILE (- is standard "
            "input), or --link for a link that logs in once."
        )
    password = getpass.getpass(f"Password for {name}: ")
    if getpass.getpass("Once more: ") != password:
        raise _refusal("The two passwords differ.")
    return password


def _refusal(reason: str) -> CommandError:
    return CommandError(reason, returncode=COULD_NOT)
