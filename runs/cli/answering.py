"""What the commands share: help that is read as it is written, and one exit code for what went wrong."""

from __future__ import annotations

import logging
import sys
from argparse import RawDescriptionHelpFormatter
from typing import Any, ClassVar

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
    SystemCheckError,
)
from django.db import DatabaseError, InterfaceError

from evaluators.scoring.types import DomainError
from runs.cli.names import COULD_NOT, check_site, create_site, site_message
from runs.specs.problems import UnreadableFileError

MISUSED = 2
logger = logging.getLogger(__name__)


class HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """The command's own options first, and texts as they are written."""


class AnsweringCommand(BaseCommand):
    """A command that ends with exit code 3 and a sentence whenever it could not do what it is for.

    `epilog` stands under the options; `action` completes the sentence "… could not be carried out".
    A command line that was not understood ends with `misuse_code`. One that `begins_site` makes a new SQLite database where there is none, the others refuse.
    """

    # They still work; a newcomer looks for the command's own.
    suppressed_base_arguments = {
        *("--version", "--verbosity", "--settings", "--pythonpath", "--traceback"),
        *("--no-color", "--force-color", "--skip-checks"),
    }
    epilog: ClassVar[str] = ""
    action: ClassVar[str] = "The command"
    begins_site: ClassVar[bool] = False
    misuse_code: ClassVar[int] = MISUSED
    is_understood = False
    requires_migrations_checks = True

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        """Explain exit codes and give examples under the options."""
        options |= {"epilog": self.epilog, "formatter_class": HelpFormatter}
        return super().create_parser(prog_name, subcommand, **options)

    def run_from_argv(self, argv: list[str]) -> None:
        """Answer a command line that was not understood with the command's code for it."""
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            if end.code == MISUSED and not self.is_understood:
                sys.exit(self.misuse_code)
            raise

    def check_migrations(self) -> None:
        """See before the work that there is a site, or begin one."""
        if not self.begins_site:
            check_site()
        elif told := create_site():
            self.stderr.write(told)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Answer everything that kept the command from its end with one exit code."""
        self.is_understood = True
        try:
            return super().execute(*args, **options)
        except SystemCheckError as error:
            error.returncode = COULD_NOT
            raise
        except CommandError:
            raise
        except UnreadableFileError as error:
            reason = "\n".join(map(str, error.problems))
            raise CommandError(reason, returncode=COULD_NOT) from error
        except DomainError as error:
            raise CommandError(str(error), returncode=COULD_NOT) from error
        except (DatabaseError, InterfaceError) as error:
            reason = (
                f"The database {site_message()} could not be used: {error}. See that it is the one you "
                "mean, that it answers, and that it is up to date: evalsite prepare."
            )
            raise CommandError(reason, returncode=COULD_NOT) from error
        except Exception as error:
            logger.exception("The command broke off")
            reason = f"{self.action} could not be carried out: {type(error).__name__}: {error}"
            raise CommandError(reason, returncode=COULD_NOT) from error
