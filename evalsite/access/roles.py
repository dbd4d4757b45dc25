"""The four roles, as groups that hold permissions, and the scopes of API tokens, which limit them further.

Each role includes the permissions of the one before; scopes do not include each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import TextChoices

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class Role(TextChoices):
    """A role, from the least to the most powerful."""

    VIEWER = "viewer", "Viewer"
    REVIEWER = "reviewer", "Reviewer"
    EDITOR = "editor", "Editor"
    ADMIN = "admin", "Admin"


MEANINGS = {
    Role.VIEWER: "sees suites, runs and results",
    Role.REVIEWER: "also decides borderline results",
    Role.EDITOR: "also changes suites and targets, starts and deletes runs, shares and reads the audit",
    Role.ADMIN: "also changes language models with their keys, members and all share links, and runs scripts",
}
# What stands for all roles where a variable names roles.
EVERYBODY = "all"
ADDED_PERMISSIONS = {
    Role.VIEWER: ("runs.view_run",),
    Role.REVIEWER: ("runs.review_result",),
    Role.EDITOR: (
        "runs.start_run",
        "runs.delete_run",
        "runs.change_suite",
        "runs.change_target",
        "runs.share",
        "evaluators.view_auditentry",
    ),
    Role.ADMIN: (
        "evaluators.change_languagemodel",
        "auth.change_user",
        "runs.change_sharelink",
        "runs.run_scripts",
    ),
}


class Scope(TextChoices):
    """What an API token may do, as far as its owner may."""

    READ = "read", "Read"
    RUN = "run", "Run"
    EDIT = "edit", "Edit"
    REVIEW = "review", "Review"


SCOPE_MEANINGS = {
    Scope.READ: "reads suites, runs, results and comparisons",
    Scope.RUN: "starts, stops, resumes and retries runs, and pushes outputs into them",
    Scope.EDIT: "changes suites, cases, baselines, targets and language models, makes share links, reads the audit",
    Scope.REVIEW: "decides borderline results",
}
SCOPE_PERMISSIONS = {
    Scope.READ: ("runs.view_run",),
    Scope.RUN: ("runs.start_run",),
    Scope.EDIT: (
        "runs.delete_run",
        "runs.change_suite",
        "runs.change_target",
        "runs.share",
        "runs.change_sharelink",
        "runs.run_scripts",
        "auth.change_user",
        "evaluators.view_auditentry",
        "evaluators.change_languagemodel",
    ),
    Scope.REVIEW: ("runs.review_result",),
}


def role_scopes(role: Role | None) -> list[Scope]:
    """Return the scopes that allow a member with this role anything; none without a role."""
    if role is None:
        return []
    granted = set(role_permissions(role))
    return [scope for scope in Scope if granted.intersection(SCOPE_PERMISSIONS[scope])]


def role_permissions(role: Role) -> list[str]:
    """Return the permission strings of a role, including those of lesser roles."""
    roles = list(Role)
    return [name for lesser in roles[: roles.index(role) + 1] for name in ADDED_PERMISSIONS[lesser]]


def highest_role(user: User) -> Role | None:
    """Return the highest role of a user; a superuser is an admin, a user without a group has none."""
    if user.is_superuser:
        return Role.ADMIN
    names = {group.name for group in user.groups.all()}
    return next((role for role in reversed(Role) if role.value in names), None)
