"""Print a one-time login link for a member."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser

from evalsite.access.factors import remove_factors
from evalsite.access.members import login_path
from evalsite.access.roles import Role
from runs.cli.command import FAILED, SiteCommand, full_url

EPILOG = """\
The link opens a page with a button, so that a chat preview cannot use it up. It works for 24 hours
and becomes invalid with the next login of its user. It replaces only the password: members with a second
factor still need it. --remove-second-factor removes a lost one. The audit records this, and the
member sees a notice at the next login.

exit codes:
  0  the link is on standard output
  3  there is no such member, or the account is deactivated

examples:
  evalsite login_link
  evalsite login_link ada --url https://evals.example.com
  evalsite login_link ada --remove-second-factor
"""


class Command(SiteCommand):
    """Print a one-time login link; on an empty site, make the first admin."""

    help = "Print a one-time login link for a member. On an empty site it creates the first admin."
    epilog = EPILOG

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the user's name and the address of the site."""
        parser.add_argument(
            "username", nargs="?", default="admin", metavar="NAME", help="User name (admin)."
        )
        parser.add_argument(
            "--first", action="store_true", help="Print nothing if any member has logged in before."
        )
        parser.add_argument(
            "--remove-second-factor",
            action="store_true",
            help="Remove the user's authenticator app, passkeys and recovery codes first.",
        )
        parser.add_argument("--url", default="", help="Address of the site; default EVALSITE_URL.")

    def handle(self, *args: Any, **options: Any) -> str:
        """Return the link."""
        if options["first"] and User.objects.filter(last_login__isnull=False).exists():
            return ""
        username = options["username"]
        if options["first"] and User.objects.exists():
            # createadmin may have added one of another name.
            admins = User.objects.filter(groups__name=Role.ADMIN.value, is_active=True)
            first = admins.order_by("pk").first()
            if first is None:
                return ""
            username = first.username
        user = self._user(username)
        if options["remove_second_factor"] and remove_factors(user, by=None):
            self.stderr.write(f"{user.username} has no second factor now.")
        return full_url(login_path(user), options["url"])

    def _user(self, username: str) -> User:
        user = User.objects.filter(username=username).first()
        if user is None and not User.objects.exists():
            user = User.objects.create_user(username)
            user.groups.add(Group.objects.get(name=Role.ADMIN.value))
        if user is None:
            raise CommandError(
                f"There is no member named {username}. Name an existing one, or add one: "
                f"evalsite createadmin {username} --link",
                returncode=FAILED,
            )
        if not user.is_active:
            raise CommandError(
                f"{username} is deactivated. An admin can reactivate the account.",
                returncode=FAILED,
            )
        return user
