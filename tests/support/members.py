"""Make users with a role and clients logged in as them."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.test import Client

from evalsite.access.sessions import SessionStore, mark_confirmed

BACKEND = "django.contrib.auth.backends.ModelBackend"
PASSWORD = "correct horse battery staple"  # for tests only


def make_member(role: str = "viewer", username: str = "", *, password: str = PASSWORD) -> User:
    """Make a user with a role ("" for none), named after it."""
    member = User.objects.create_user(username or role or "nobody", password=password)
    if role:
        member.groups.add(Group.objects.get(name=role))
    return member


def make_client(member: User) -> Client:
    """Make a client with a session of the member, without a real login.

    Thousands of tests need one, and logging in is tested separately.
    """
    session = SessionStore()
    session[SESSION_KEY] = str(member.pk)
    session[BACKEND_SESSION_KEY] = BACKEND
    session[HASH_SESSION_KEY] = member.get_session_auth_hash()
    mark_confirmed(session)
    session.create()
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    return client
