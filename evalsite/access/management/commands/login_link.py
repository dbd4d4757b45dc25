"""Print a link that logs somebody in once."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from evalsite.access.links import login_path
from evalsite.access.roles import Role


class Command(BaseCommand):
    """Print a one-time login link; on an empty site the user is made, as admin."""

    help = "Print a link that logs somebody in once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the user's name and the address of the site."""
        parser.add_argument("username", nargs="?", default="admin")
        parser.add_argument(
            "--first", action="store_true", help="Print nothing when somebody has logged in before."
        )
        parser.add_argument("--url", default="", help="Address of the site; default EVALSITE_URL.")

    def handle(self, *args: Any, **options: Any) -> str:
        """Return the link."""
        if options["first"] and User.objects.filter(last_login__isnull=False).exists():
            return ""
        user = self._user(options["username"])
        address = options["url"] or settings.SITE_URL or f"http://127.0.0.1:{settings.PORT}"
        return address.rstrip("/") + login_path(user)

    def _user(self, username: str) -> User:
        found = User.objects.filter(username=username).first()
        if found is None and not User.objects.exists():
            found = User.objects.create_user(username)
            found.groups.add(Group.objects.get(name=Role.ADMIN.value))
        if found is None:
            raise CommandError(f"There is no member named {username}. Name an existing one.")
        if not found.is_active:
            raise CommandError(f"{username} is deactivated. An admin can reactivate the account.")
        return found
