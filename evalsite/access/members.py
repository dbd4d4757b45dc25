"""Add, change and erase members, each action with an audit entry, and make one-time links; one admin always remains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from axes.models import AccessAttempt, AccessLog
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.db import IntegrityError, transaction
from django.db.models import Model, Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from evalsite.access.models import (
    ApiToken,
    MemberFactors,
    MemberIdentity,
    MemberSession,
    Passkey,
    RecoveryCode,
    record_change,
)
from evalsite.access.roles import Role, highest_role, role_permissions
from evalsite.access.sessions import end_sessions
from evalsite.access.tokens import revoke_tokens
from evaluators.models import COMMAND_LINE, AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from runs.comments.text import without_name
from runs.exports.services import remove_exports
from runs.models.comments import Comment, Mention
from runs.models.jobs import ModelJob
from runs.models.removals import Removal
from runs.models.results import Attempt, ResultOutput, Retry
from runs.models.reviews import Review, ReviewItem, ReviewSkip
from runs.models.runs import Run, RunEvent
from runs.models.saved_views import SavedView
from runs.models.sharing import ShareLink
from runs.models.suites import SuiteDraft
from runs.models.temporary import (
    CaseUpload,
    EvaluatorTrial,
    Export,
    ExportRequest,
    IdempotentRequest,
    ReviewUpload,
    TargetTrial,
)
from runs.requests import CHANGE_SUITE, MAY_REVIEW, RUN_SCRIPTS
from runs.sharing.comments import erase_author


class LinkTokens(PasswordResetTokenGenerator):
    """Sign tokens that become invalid with the next login of their user."""

    def __init__(self, purpose: str) -> None:
        """Make tokens for one purpose; tokens of another purpose are refused."""
        super().__init__()
        self.key_salt = f"evalsite.access.links.{purpose}"

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        # Django's own value leaves out the fractions of a second of the last login.
        moment = user.last_login.isoformat() if user.last_login else ""
        return f"{super()._make_hash_value(user, timestamp)}{user.is_active}{moment}"


LOGIN_TOKENS = LinkTokens("login")
PASSWORD_TOKENS = LinkTokens("password")


def login_path(user: User) -> str:
    """Return the path of a page that logs the user in once."""
    return reverse("access:login-once", args=[_encoded(user), LOGIN_TOKENS.make_token(user)])


def password_path(user: User) -> str:
    """Return the path of a page where the user sets a password and is logged in, once."""
    return reverse("access:password-set", args=[_encoded(user), PASSWORD_TOKENS.make_token(user)])


def find_link_user(user_code: str, token: str, tokens: LinkTokens) -> User | None:
    """Return the user of an unused link; None for an invalid or used link."""
    try:
        user = User.objects.get(pk=int(force_str(urlsafe_base64_decode(user_code))), is_active=True)
    except (ValueError, OverflowError, User.DoesNotExist):
        return None
    return user if tokens.check_token(user, token) else None


def use_link(user: User) -> bool:
    """Use up all links of a user that `find_link_user` returned; False if somebody was faster."""
    unused = User.objects.filter(
        pk=user.pk, last_login=user.last_login, password=user.password, is_active=True
    )
    return bool(unused.update(last_login=timezone.now()))


def _encoded(user: User) -> str:
    return urlsafe_base64_encode(str(user.pk).encode())


IS_ADMIN = Q(groups__name=Role.ADMIN.value) | Q(is_superuser=True)


class LastAdminError(DomainError):
    """The last active admin can neither lose the role nor be deactivated."""

    code = "last_admin"


class MemberNameTakenError(DomainError):
    """Another member has the name."""

    code = "name_taken"


# No user name has a space, so nobody can take such a name.
ERASED = "deleted member "


def members() -> QuerySet[User]:
    """Return all users with their groups, active ones first, ordered by name; no erased ones."""
    users = User.objects.exclude(username__startswith=ERASED).prefetch_related("groups")
    return users.order_by("-is_active", "username")


def admin_names() -> list[str]:
    """Return the names of the active admins."""
    admins = User.objects.filter(IS_ADMIN, is_active=True).distinct().order_by("username")
    return list(admins.values_list("username", flat=True))


@transaction.atomic
def add_member(*, actor: User, username: str, email: str, role: Role) -> User:
    """Add a member, who can log in only by a one-time link at first; raises MemberNameTakenError."""
    try:
        with transaction.atomic():
            member = User.objects.create_user(username, email)
    except IntegrityError as error:
        raise MemberNameTakenError(f"There is already a member named {username}.") from error
    member.groups.add(Group.objects.get(name=role.value))
    record_change(actor, "member.added", member, after={"role": role.value, "email": email})
    return member


@transaction.atomic
def make_admin(username: str, *, email: str = "", password: str | None = None) -> tuple[User, bool]:
    """Make somebody admin from a shell on the server, adding the member if there is none of that name.

    Returns the member and whether the member is new. Without a password a new member needs a login
    link, and an existing member keeps the password. Names ignore case.
    """
    member = User.objects.filter(username__iexact=username).order_by("pk").first()
    is_new = member is None
    if member is None:
        member = User.objects.create_user(username, email)
    member.is_active, member.email = True, email or member.email
    if password is not None:
        member.set_password(password)
    member.save()
    member.groups.set(_groups_with(member, Role.ADMIN))
    record_change(None, "member.made_admin", member)
    return member, is_new


@transaction.atomic
def change_role(
    member: User, *, actor: User | None, role: Role | None, nobody: str = COMMAND_LINE
) -> None:
    """Change the role of a member, or take it away; `nobody` is who did it if no member.

    Raises:
        LastAdminError: the member is the last active admin.

    """
    before = _held_role(member)
    if before == role:
        return
    if before == Role.ADMIN:
        refuse_without_other_admin(member)
    member.groups.set(_groups_with(member, role))
    if member.is_superuser:
        User.objects.filter(pk=member.pk).update(is_superuser=False)
    _end_own_work(member, role)
    record_change(
        actor,
        "member.role_changed",
        member,
        before={"role": before.value if before else None},
        after={"role": role.value if role else None},
        nobody=nobody,
    )


@transaction.atomic
def change_email(member: User, *, actor: User, email: str) -> None:
    """Change the email address of a member, by which the provider's account is found at the first sign-in."""
    before = User.objects.select_for_update(no_key=True).get(pk=member.pk).email
    if email != before:
        User.objects.filter(pk=member.pk).update(email=email)
        record_change(
            actor, "member.email_changed", member, before={"email": before}, after={"email": email}
        )


def runs_scripts(member: User) -> str:
    """Return why a member may run scripts: "role" or "own" (a personal permission); "" if not allowed."""
    if highest_role(member) == Role.ADMIN:
        return "role"
    return "own" if member.user_permissions.filter(pk=_script_permission().pk).exists() else ""


@transaction.atomic
def allow_scripts(member: User, *, actor: User, allowed: bool) -> None:
    """Allow or forbid a member to start runs that execute scripts; admins may by role."""
    permission = _script_permission()
    if member.user_permissions.filter(pk=permission.pk).exists() == allowed:
        return
    change = member.user_permissions.add if allowed else member.user_permissions.remove
    change(permission)
    record_change(
        actor, "member.scripts_allowed" if allowed else "member.scripts_forbidden", member
    )


@transaction.atomic
def deactivate(member: User, *, actor: User) -> None:
    """Lock a member out at once, end all sessions and revoke all tokens; others go on with the member's work.

    Raises:
        LastAdminError: the member is the last active admin.

    """
    if _held_role(member) == Role.ADMIN:
        refuse_without_other_admin(member)
    if User.objects.filter(pk=member.pk, is_active=True).update(is_active=False):
        end_sessions(member)
        revoke_tokens(member, now=timezone.now())
        _end_own_work(member, None)
        record_change(actor, "member.deactivated", member)


@transaction.atomic
def reactivate(member: User, *, actor: User) -> None:
    """Let a deactivated member log in again; earlier sessions and tokens stay over."""
    if User.objects.filter(pk=member.pk, is_active=False).update(is_active=True):
        # Those too that a request was making while the member was deactivated.
        end_sessions(member)
        revoke_tokens(member, now=timezone.now())
        record_change(actor, "member.reactivated", member)


# What belongs to a member alone, by the model and its field.
OWN_DATA: tuple[tuple[type[Model], str], ...] = (
    (ApiToken, "owner"),
    (MemberSession, "user"),
    (MemberFactors, "user"),
    (RecoveryCode, "user"),
    (Passkey, "user"),
    (MemberIdentity, "user"),
    (SuiteDraft, "author"),
    (CaseUpload, "owner"),
    (ReviewUpload, "owner"),
    (TargetTrial, "asked_by"),
    (EvaluatorTrial, "asked_by"),
    (ReviewSkip, "reviewer"),
    (ExportRequest, "owner"),
    (IdempotentRequest, "member"),
)
# Where the name of a member is copied to.
COPIED_NAMES: tuple[tuple[type[Model], str], ...] = (
    (AuditEntry, "actor_name"),
    (Retry, "asked_by_name"),
    (Attempt, "counted_by"),
    (Review, "imported_by"),
    (Removal, "asked_by_name"),
    (Run, "outputs_removed_by"),
    (Run, "details_removed_by"),
    (ResultOutput, "removed_by"),
    (MemberFactors, "removed_by"),
    (AccessAttempt, "username"),
    (AccessLog, "username"),
)


@dataclass(frozen=True, slots=True)
class PersonalData:
    """How much of a member is deleted, and how much stays under another name."""

    tokens: int
    drafts: int
    views: int
    uploads: int
    trials: int
    exports: int
    reviews: int
    comments: int
    runs: int
    entries: int


def personal_data(member: User) -> PersonalData:
    """Count what the site has of a member."""
    own = Counter(
        {
            model: model._default_manager.filter(**{field: member}).count()
            for model, field in OWN_DATA
        }
    )
    return PersonalData(
        tokens=own[ApiToken],
        drafts=own[SuiteDraft],
        views=SavedView.objects.filter(owner=member, is_shared=False).count(),
        uploads=own[CaseUpload] + own[ReviewUpload],
        trials=own[TargetTrial] + own[EvaluatorTrial],
        exports=own[ExportRequest],
        reviews=Review.objects.filter(reviewer=member).count(),
        comments=Comment.objects.filter(author=member, deleted_at=None).count(),
        runs=Run.objects.filter(created_by=member).count(),
        entries=AuditEntry.objects.filter(actor=member).count(),
    )


@transaction.atomic
def erase_member(member: User, *, actor: User | None) -> str:
    """Replace a member by a name without a person, delete what was theirs alone, and return the name.

    Decisions, runs and versions stay, under that name: figures of agreement count people. The audit
    loses name and email address too. Texts that the member wrote stay.

    Raises:
        LastAdminError: the member is the last active admin.

    """
    if _held_role(member) == Role.ADMIN:
        refuse_without_other_admin(member)
    # Waits for what the member is doing, and whatever the member begins to do fails: see AuditEntryManager.
    User.objects.select_for_update().get(pk=member.pk)
    name, email, erased = member.get_username(), member.email, f"{ERASED}{member.pk}"
    for model, field in OWN_DATA:
        model._default_manager.filter(**{field: member}).delete()
    ModelJob.objects.filter(asked_by=member).forget_texts()
    Mention.objects.filter(member=member).delete()
    # Others use the shared views.
    SavedView.objects.filter(owner=member, is_shared=False).delete()
    # Files of other members may name this one, and can be made again.
    remove_exports(Export.objects.all())
    _end_own_work(member, None)
    for model, field in COPIED_NAMES:
        model._base_manager.filter(**{field: name}).update(**{field: erased})
    _erase_texts(member, _without_person(name, email, erased), erased)
    member.groups.clear()
    member.user_permissions.clear()
    member.username, member.email, member.first_name, member.last_name = erased, "", "", ""
    member.is_active = member.is_staff = member.is_superuser = False
    member.last_login = None
    # Without the password every session of the member ends.
    member.set_unusable_password()
    member.save()
    # An admin who is erased by no other has the new name, too.
    record_change(member if actor == member else actor, "member.erased", member)
    return erased


def _erase_texts(member: User, erase: Callable[[Any], Any], erased: str) -> None:
    """Take the member's name out of the logs of runs, the ends of jobs, mentions, and the values of the audit."""
    for run in Run.including_deleted.filter(status_reason__contains=member.get_username()):
        Run.including_deleted.filter(pk=run.pk).update(status_reason=erase(run.status_reason))
    for job in ModelJob.objects.filter(reason__contains=member.get_username()):
        ModelJob.objects.filter(pk=job.pk).update(reason=erase(job.reason))
    for event in RunEvent.objects.filter(text__contains=member.get_username()):
        RunEvent.objects.filter(pk=event.pk).update(text=erase(event.text)[:500])
    for model in LanguageModel.objects.filter(last_test__isnull=False):
        LanguageModel.objects.filter(pk=model.pk).update(last_test=erase(model.last_test))
    for comment in Comment.objects.filter(text__contains=f"@{member.get_username()}"):
        text = without_name(comment.text, member.get_username(), erased)
        Comment.objects.filter(pk=comment.pk).update(text=text)
    for link in ShareLink.objects.filter(has_comments=True):
        erase_author(link, member, erased)
    about = AuditEntry.objects.filter(object_type__in=("user", "session"), object_id=str(member.pk))
    about.update(object_name=erased)
    if member.email:
        # Sign-ins that were refused before the account was linked.
        AuditEntry.objects.filter(object_name=member.email).update(object_name=erased)
    # From where a member logged in.
    about.filter(object_type="session").update(after=None)
    for entry in AuditEntry.objects.exclude(before=None, after=None).iterator(chunk_size=1_000):
        before, after = erase(entry.before), erase(entry.after)
        if (before, after) != (entry.before, entry.after):
            AuditEntry.objects.filter(pk=entry.pk).update(before=before, after=after)


def _without_person(name: str, email: str, erased: str) -> Callable[[Any], Any]:
    """Return a function that replaces a name, alone or after "by", and an address in any value."""
    # A dot may end the sentence, or be a part of another name.
    after_by = re.compile(rf"\bby {re.escape(name)}(?!\.*[\w@+-])")

    def erase(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: erase(part) for key, part in value.items()}
        if isinstance(value, list):
            return [erase(part) for part in value]
        if not isinstance(value, str):
            return value
        if value == name:
            return erased
        text = after_by.sub(f"by {erased}", value)
        return text.replace(email, erased) if email else text

    return erase


def end_other_sessions(member: User, this: str | None, *, actor: User) -> int:
    """End all sessions of a member but the one with the key `this`; return how many."""
    ended = end_sessions(member, but=this)
    if ended:
        record_change(actor, "member.sessions_ended", member, after={"sessions": str(ended)})
    return ended


@transaction.atomic
def change_password(form: SetPasswordForm[User], *, revokes_tokens: bool) -> None:
    """Store the password of a valid form, and revoke the member's tokens if wanted."""
    member = form.save(commit=False)
    # Nothing else is written: a member who was deactivated or erased meanwhile stays so.
    member.save(update_fields=["password"])
    revoked = revoke_tokens(member, now=timezone.now()) if revokes_tokens else 0
    record_change(member, "member.password_changed", member, after={"tokens revoked": str(revoked)})


def record_link(member: User, *, actor: User) -> None:
    """Record that somebody made a password link for the member."""
    record_change(actor, "member.link_made", member)


def refuse_without_other_admin(member: User) -> None:
    """Check that another active admin remains, under a lock: two admins cannot remove each other.

    Raises:
        LastAdminError: no other active admin exists.

    """
    Group.objects.select_for_update(no_key=True).get(name=Role.ADMIN.value)
    if not User.objects.filter(IS_ADMIN, is_active=True).exclude(pk=member.pk).exists():
        raise LastAdminError(
            f"{member.username} is the last active admin. Make another member an admin first."
        )


def _held_role(member: User) -> Role | None:
    """Return the role that a member has now, and hold the member: nobody else changes it in this transaction."""
    return highest_role(User.objects.select_for_update(no_key=True).get(pk=member.pk))


def _end_own_work(member: User, role: Role | None) -> None:
    """End what nobody but the member could go on with, as far as the role does not allow it any more.

    The queue keeps assigned results from all others, and nobody else sees what is drafted or can stop it.
    """
    allowed = role_permissions(role) if role else ()
    if MAY_REVIEW not in allowed:
        ReviewItem.objects.filter(reserved_by=member).update(reserved_by=None, reserved_until=None)
        ReviewItem.objects.filter(assigned_to=member).update(assigned_to=None)
    if CHANGE_SUITE not in allowed:
        ModelJob.objects.filter(asked_by=member).end_drafting()


def _script_permission() -> Permission:
    app, codename = RUN_SCRIPTS.split(".")
    return Permission.objects.get(content_type__app_label=app, codename=codename)


def _groups_with(member: User, role: Role | None) -> list[Group]:
    others = list(member.groups.exclude(name__in=Role.values))
    return [*others, Group.objects.get(name=role.value)] if role else others
