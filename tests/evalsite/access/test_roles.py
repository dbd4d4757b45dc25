"""Roles and the permissions that come with them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from django.contrib.auth.models import Group, Permission, User

from evalsite.access.roles import MEANINGS, Role, highest_role, role_permissions
from tests.support.members import make_member

pytestmark = pytest.mark.django_db


def held(group: str) -> set[str]:
    rows = Group.objects.get(name=group).permissions.select_related("content_type")
    return {f"{row.content_type.app_label}.{row.codename}" for row in rows}


@pytest.mark.parametrize("role", list(Role))
def test_a_group_holds_exactly_the_permissions_of_its_role(role: Role) -> None:
    assert held(role.value) == set(role_permissions(role))


def test_every_role_includes_the_one_before() -> None:
    sizes = [set(role_permissions(role)) for role in Role]
    assert all(less < more for less, more in pairwise(sizes))
    assert set(MEANINGS) == set(Role)


def test_the_highest_role_counts() -> None:
    member = make_member("viewer")
    member.groups.add(Group.objects.get(name="editor"))
    assert highest_role(member) == Role.EDITOR


def test_a_user_without_a_group_has_no_role_and_a_superuser_is_admin() -> None:
    assert highest_role(make_member("", "nobody")) is None
    assert highest_role(User.objects.create_superuser("root")) == Role.ADMIN


def test_extra_permissions_of_a_group_are_removed() -> None:
    from django.core.management import call_command

    Group.objects.get(name="viewer").permissions.add(Permission.objects.get(codename="change_user"))
    call_command("migrate", verbosity=0)
    assert held("viewer") == {"runs.view_run"}
