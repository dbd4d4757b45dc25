"""Make users with a role and clients logged in as them."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client

PASSWORD = "correct horse battery staple"  # for tests only


def make_member(role: str = "viewer", username: str = "", *, password: str = PASSWORD) -> User:
    """Make a user with a role ("" for none), named after it."""
    member = User.objects.create_user(username or role or "nobody", password=password)
    if role:
        member.groups.add(Group.objects.get(name=role))
    return member


def make_client(member: User) -> Client:
    """Make a client that is logged in."""
    client = Client()
    client.force_login(member)
    return client
