"""The app that updates the groups of the roles after every migration."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.db.models import Q
from django.db.models.signals import post_migrate

from evalsite.access.roles import Role, role_permissions


class AccessConfig(AppConfig):
    """Create the roles after migrations."""

    name = "evalsite.access"
    label = "access"

    def ready(self) -> None:
        """Wait for the migrations of `runs`, the last app whose permissions the roles hold, and for logins."""
        # Models are not loaded yet when this module is.
        from evalsite.access.logins import audit_logins

        audit_logins()
        post_migrate.connect(
            create_roles, sender=apps.get_app_config("runs"), dispatch_uid="access.create_roles"
        )


def create_roles(using: str, **signal: Any) -> None:
    """Make the groups and give each exactly the permissions of its role."""
    groups = apps.get_model("auth", "Group").objects.using(using)
    permissions = apps.get_model("auth", "Permission").objects.using(using)
    for role in Role:
        group, _ = groups.get_or_create(name=role.value)
        wanted = Q(pk__in=())
        for name in role_permissions(role):
            app, codename = name.split(".")
            wanted |= Q(content_type__app_label=app, codename=codename)
        group.permissions.set(permissions.filter(wanted))
