"""The app of the site itself: it registers the checks of the environment."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register

from evalsite.checks import check_environment


class EvalsiteConfig(AppConfig):
    """Register the checks once all apps are loaded."""

    name = "evalsite"

    def ready(self) -> None:
        """Register the checks."""
        register(check_environment, "environment")
