"""Which member somebody is whom the provider names, who is let in, and with which role; all of it in the audit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from evalsite.access.members import (
    ERASED,
    LastAdminError,
    change_role,
)
from evalsite.access.models import MemberIdentity, record_change
from evalsite.access.roles import Role
from evalsite.access.sessions import end_sessions
from evalsite.access.single_sign_on.identity import Identity
from evaluators.reading.combining import cut_marks
from evaluators.scoring.types import DomainError

MAX_NAME_LENGTH = 150
NOT_IN_NAMES = re.compile(r"[^\w.@+-]+")
# Somebody who signs in twice at once for the first time is added once.
TRIES = 3


class SignInRefusedError(DomainError):
    """Somebody whom the provider knows is not let in; `member` is who it would have been, if known."""

    code = "sign_in_refused"

    def __init__(self, message: str, member: User | None = None) -> None:
        """Take a sentence for the person."""
        super().__init__(message)
        self.member = member


@dataclass(frozen=True, slots=True)
class AdmittedMember:
    """A member who is let in, and what the member should be told about it."""

    member: User
    notice: str = ""


def granted_role(groups: Iterable[str]) -> Role | None:
    """Return the highest role that the groups give; everybody is at least a viewer where everybody is let in."""
    granted = {settings.OIDC_ROLES[group] for group in groups if group in settings.OIDC_ROLES}
    if settings.OIDC_ADMIT == "everybody":
        granted.add(Role.VIEWER.value)
    return next((role for role in reversed(Role) if role.value in granted), None)


def admit(identity: Identity) -> AdmittedMember:
    """Return the member of an identity: linked before, linked now by email, or added.

    Where groups decide about roles, the member's role follows them; nobody takes the role of the last admin.

    Raises:
        SignInRefusedError: the person is not let in; a role that no group gives any more is taken away
            all the same.

    """
    role = granted_role(identity.groups)
    member = _member(identity, role)
    if not member.is_active:
        raise SignInRefusedError(
            "Your account on this site is deactivated. An admin can reactivate it.", member
        )
    if not settings.OIDC_ROLES:
        return AdmittedMember(member)
    notice = _follow(member, role)
    if role is None:
        raise SignInRefusedError(f"{_without_group(identity)}{notice and f' {notice}'}", member)
    return AdmittedMember(member, notice)


def _member(identity: Identity, role: Role | None) -> User:
    for tries in count(1):
        try:
            with transaction.atomic():
                return linked_member(identity) or _invited(identity, role) or _new(identity, role)
        except IntegrityError:
            if tries == TRIES:
                raise
    raise AssertionError("unreachable")


def linked_member(identity: Identity) -> User | None:
    """Return the member whose account it is; None if it is nobody's yet."""
    accounts = MemberIdentity.objects.select_related("user")
    account = accounts.filter(issuer=identity.issuer, subject=identity.subject).first()
    return account.user if account else None


def _invited(identity: Identity, role: Role | None) -> User | None:
    """Link the one member with the verified email address; None if there is no such member."""
    if not identity.email:
        return None
    members = User.objects.filter(email__iexact=identity.email)
    found = [
        member
        for member in members.exclude(username__startswith=ERASED)
        if _is_same_address(member.email, identity.email)
    ]
    if not found:
        return None
    if len(found) > 1:
        raise SignInRefusedError(
            f"Several members have the email address {identity.email}. An admin has to change it for all but one."
        )
    member = found[0]
    if not member.is_active:
        return member
    if member.identities.filter(issuer=identity.issuer).exists():
        raise SignInRefusedError(
            f"{member.username} has your email address and is linked to another account at "
            f"{settings.OIDC_NAME}. An admin can end that link on the member's page.",
            member,
        )
    if settings.OIDC_ROLES and role is None:
        raise SignInRefusedError(_without_group(identity), member)
    _link(member, identity)
    return member


def _is_same_address(one: str, other: str) -> bool:
    """Compare two email addresses, ignoring the case of ASCII alone: databases also take a dotless i for an i."""
    return one.encode().lower() == other.encode().lower()


def _new(identity: Identity, role: Role | None) -> User:
    if settings.OIDC_ADMIT == "invited":
        raise SignInRefusedError(_not_invited(identity))
    if role is None:
        raise SignInRefusedError(_without_group(identity))
    member = User.objects.create_user(_free_name(identity), identity.email)
    member.groups.add(Group.objects.get(name=role.value))
    record_change(
        None,
        "member.added",
        member,
        after={"role": role.value, "email": identity.email},
        nobody=settings.OIDC_NAME,
    )
    _link(member, identity)
    return member


def _link(member: User, identity: Identity) -> None:
    MemberIdentity.objects.create(user=member, issuer=identity.issuer, subject=identity.subject)
    record_change(member, "member.linked", member, after={"provider": settings.OIDC_NAME})


def linked_since(member: User) -> datetime | None:
    """Return when the member was linked to an account at the provider; None if there is no link or no provider."""
    accounts = MemberIdentity.objects.filter(user=member) if settings.OIDC_ISSUER else None
    return accounts.values_list("linked_at", flat=True).first() if accounts is not None else None


@transaction.atomic
def unlink(member: User, *, actor: User) -> None:
    """Forget the member's accounts at providers and end all sessions; the next sign-in links by email again."""
    if MemberIdentity.objects.filter(user=member).delete()[0]:
        end_sessions(member)
        record_change(actor, "member.unlinked", member, before={"provider": settings.OIDC_NAME})


def _follow(member: User, role: Role | None) -> str:
    """Give the member the role; return why the last admin keeps another one, "" for anybody else."""
    try:
        with transaction.atomic():
            change_role(member, actor=None, role=role, nobody=settings.OIDC_NAME)
            if role is None:
                end_sessions(member)
    except LastAdminError:
        given = role.label.lower() if role else "no role"
        record_change(
            None,
            "member.role_kept",
            member,
            before={"role": Role.ADMIN.value},
            after={"role": Role.ADMIN.value, "groups give": given},
            nobody=settings.OIDC_NAME,
        )
        return (
            f"Your groups give you {given} here. You are the last admin, so you stay one until there is "
            "another."
        )
    return ""


def _free_name(identity: Identity) -> str:
    """Return a user name that nobody has: the one at the provider, with a number if necessary."""
    given = identity.name or identity.email.partition("@")[0]
    # A name of many accents takes very long to normalise.
    name = User.normalize_username(cut_marks(given))
    wanted = NOT_IN_NAMES.sub("-", name)
    wanted = wanted.strip("-")[:MAX_NAME_LENGTH] or "member"
    if not User.objects.filter(username__iexact=wanted).exists():
        return wanted
    stem = wanted[: MAX_NAME_LENGTH - 10]
    numbered = User.objects.filter(username__istartswith=f"{stem}-")
    taken = {name.lower() for name in numbered.values_list("username", flat=True)}
    return next(name for number in count(2) if (name := f"{stem}-{number}").lower() not in taken)


def _without_group(identity: Identity) -> str:
    if identity.groups:
        return "None of your groups may use this site."
    return (
        f"{settings.OIDC_NAME} names no group of yours (claim {settings.OIDC_GROUPS_CLAIM}), and only "
        "members of certain groups may use this site."
    )


def _not_invited(identity: Identity) -> str:
    if identity.email:
        return f"No member of this site has the email address {identity.email}. An admin can add you with it."
    return (
        f"{settings.OIDC_NAME} does not say that your email address is verified, so you cannot be found "
        "among the members of this site."
    )
