"""The app of the site itself: it registers the checks of the environment."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import register

from evalsite.checks import check_environment, check_sandbox


class EvalsiteConfig(AppConfig):
    """Register the checks once all apps are loaded."""

    name = "evalsite"

    def ready(self) -> None:
        """Register the checks."""
        register(check_environment, "environment")
        # Separate workers run the programs, in processes that may be shut in differently.
        if settings.IS_EMBEDDED:
            register(check_sandbox, "environment")
