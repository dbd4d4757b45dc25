"""One-time links: to log in without a password and to set the first or a new one.

A link stops working when it is used, when it expires (`PASSWORD_RESET_TIMEOUT`), and when the
password, the e-mail address or the state of the account changes.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.urls import reverse
from django.utils.encoding import force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode


class LinkTokens(PasswordResetTokenGenerator):
    """Sign tokens that the next login of their user, whatever its way, makes void."""

    def __init__(self, purpose: str) -> None:
        """Make tokens for one purpose; those of another are refused."""
        super().__init__()
        self.key_salt = f"evalsite.access.links.{purpose}"

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        return f"{super()._make_hash_value(user, timestamp)}{user.is_active}"


LOGIN_TOKENS = LinkTokens("login")
PASSWORD_TOKENS = LinkTokens("password")


def login_path(user: User) -> str:
    """Return the path of a page that logs the user in once."""
    return reverse("access:login-once", args=[_encoded(user), LOGIN_TOKENS.make_token(user)])


def password_path(user: User) -> str:
    """Return the path of a page where the user sets a password and is logged in, once."""
    return reverse("access:password-set", args=[_encoded(user), PASSWORD_TOKENS.make_token(user)])


def address_of(path: str, site: str = "") -> str:
    """Return a path as an address that can be sent to somebody."""
    site = site or settings.SITE_URL or f"http://127.0.0.1:{settings.PORT}"
    return f"{site.rstrip('/')}{path}"


def user_of_link(user_code: str, token: str, tokens: LinkTokens) -> User | None:
    """Return whom an unused link belongs to; None for any other link."""
    try:
        user = User.objects.get(pk=int(force_str(urlsafe_base64_decode(user_code))), is_active=True)
    except (ValueError, OverflowError, User.DoesNotExist):
        return None
    return user if tokens.check_token(user, token) else None


def _encoded(user: User) -> str:
    return urlsafe_base64_encode(str(user.pk).encode())
