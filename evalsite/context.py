"""Give every template what it may say about this installation."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def site(request: HttpRequest) -> dict[str, object]:
    """Return `is_demo`: whether the judge's replies are scripted."""
    return {"is_demo": settings.DEMO}
