"""Check the configuration of this site: its variables, keys, folders, database, provider and sandbox."""

from __future__ import annotations

from typing import Any

from django.core.checks import Tags, register
from django.core.management.base import CommandParser
from django.core.management.commands import check

from evalsite.checks import check_provider, check_sandbox
from runs.cli.command import HelpFormatter, SiteCommand

PROVIDER, SANDBOX = "provider", "sandbox"
CONFIGURATION = ("environment", Tags.caches, Tags.database)
EPILOG = """\
exit codes:
  0  nothing is wrong, or there are only warnings
  1  something is wrong, or at least as severe as --fail-level

examples:
  evalsite check
  evalsite check --deploy --fail-level WARNING
"""


class Command(check.Command):
    """Leaves out what only a developer can change: that imports every page."""

    help = (
        "Check the configuration of this site: its variables, keys, folders, database, provider of sign-ins "
        "and sandbox."
    )
    suppressed_base_arguments = SiteCommand.suppressed_base_arguments

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the option that checks the code too."""
        super().add_arguments(parser)
        parser.epilog, parser.formatter_class = EPILOG, HelpFormatter
        parser.add_argument("--all", action="store_true", help="Check models, pages and API too.")

    def handle(self, *app_labels: Any, **options: Any) -> None:
        """Check the configuration unless something else is asked for."""
        if not (options["all"] or options["tags"] or app_labels):
            # Other commands do without: a provider that is down must not keep the site from starting.
            register(check_provider, PROVIDER)
            register(check_sandbox, SANDBOX)
            options["tags"] = [
                *CONFIGURATION,
                *(PROVIDER, SANDBOX),
                *([Tags.security] if options["deploy"] else []),
            ]
        super().handle(*app_labels, **options)
