"""Who may read by the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rest_framework.permissions import BasePermission

# The views import the permissions.
if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView

VIEW = "runs.view_run"


class Grant(Protocol):
    """What a token lets its bearer do."""

    def allows(self, permission: str) -> bool:
        """Tell whether it holds a permission."""
        ...


class MayView(BasePermission):
    """Whoever may see runs may read them; a token has to allow it as well as its owner's role."""

    message = "Your role may not see runs. An admin can give you another."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether both allow it."""
        grant: Grant | None = request.auth  # type: ignore[assignment]  # the site's authentication gives it
        is_granted = grant is None or grant.allows(VIEW)
        return request.user.is_authenticated and is_granted and request.user.has_perm(VIEW)
