"""What every command shares: its exit codes, the site it works on, and finding what its arguments name."""

from __future__ import annotations

import logging
import re
import sys
from argparse import Action, RawDescriptionHelpFormatter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
    SystemCheckError,
)
from django.core.management.sql import emit_post_migrate_signal
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.cli.terminal import not_text, print_line
from runs.models.runs import BASELINE, LATEST, Campaign, Run
from runs.models.suites import Suite, Target
from runs.specs.problems import UnreadableFileError, most_similar

MISUSED, FAILED = 2, 3
logger = logging.getLogger(__name__)


class HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Lists the command's own options first, without Django's, and keeps the line breaks of texts."""

    def add_usage(
        self, usage: str | None, actions: Iterable[Action], *args: Any, **kwargs: Any
    ) -> None:
        """Leave out the option that Django adds beside those it lets a command suppress."""
        super().add_usage(usage, _without_checks(actions), *args, **kwargs)

    def add_arguments(self, actions: Iterable[Action]) -> None:
        """Leave it out of the list, too."""
        super().add_arguments(_without_checks(actions))


def _without_checks(actions: Iterable[Action]) -> list[Action]:
    return [action for action in actions if "--skip-checks" not in action.option_strings]


class SiteCommand(BaseCommand):
    """A command that ends with exit code 3 and a sentence when it fails.

    `epilog` follows the options in the help; `action` begins the sentence "… failed". Wrong usage ends
    with `misuse_code`. A command that `creates_site` makes a missing SQLite database; others refuse.
    """

    # They still work, but hide the command's own options in the help.
    suppressed_base_arguments = {
        *("--version", "--verbosity", "--settings", "--pythonpath", "--traceback"),
        *("--no-color", "--force-color"),
    }
    epilog: ClassVar[str] = ""
    action: ClassVar[str] = "The command"
    creates_site: ClassVar[bool] = False
    misuse_code: ClassVar[int] = MISUSED
    is_parsed = False
    is_at_shell = False
    # The others would import every page.
    requires_system_checks = ("environment",)
    requires_migrations_checks = True

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        """Show exit codes and examples after the options; a command's own --version is that of a suite, not Django's."""
        options |= {
            "epilog": self.epilog,
            "formatter_class": HelpFormatter,
            "conflict_handler": "resolve",
        }
        return super().create_parser(prog_name, subcommand, **options)

    def run_from_argv(self, argv: list[str]) -> None:
        """End with the command's own exit code on wrong usage."""
        self.is_at_shell = True
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            if end.code == MISUSED and not self.is_parsed:
                sys.exit(self.misuse_code)
            raise

    def check_migrations(self) -> None:
        """Check that there is a site, or create one."""
        if not self.creates_site:
            check_site()
        elif message := create_site():
            self.stderr.write(message)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Turn every failure into one exit code and a message, which at the command line is printed as it is."""
        self.is_parsed = True
        try:
            return self._execute(*args, **options)
        except CommandError as error:
            if not self.is_at_shell or isinstance(error, SystemCheckError):
                raise
            # What it quotes of a file may be commands to a terminal.
            print_line(self.stderr, str(error))
            sys.exit(error.returncode)

    def _execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except SystemCheckError as error:
            error.returncode = FAILED
            raise
        except CommandError:
            raise
        except UnreadableFileError as error:
            reason = "\n".join(map(str, error.problems))
            raise CommandError(reason, returncode=FAILED) from error
        except DomainError as error:
            raise CommandError(str(error), returncode=FAILED) from error
        except UnicodeEncodeError as error:
            raise CommandError(not_text(error), returncode=FAILED) from error
        except (DatabaseError, InterfaceError) as error:
            reason = (
                f"The database {site_message()} could not be used: {error}. Check that it is the right "
                "one, that it answers, and that it is up to date: evalsite prepare."
            )
            raise CommandError(reason, returncode=FAILED) from error
        except Exception as error:
            logger.exception("The command failed")
            reason = f"{self.action} failed: {type(error).__name__}: {error}"
            raise CommandError(reason, returncode=FAILED) from error


# One of these tables has a row in every site.
FIRST_FILLED_TABLES = ("auth_user", "runs_suite")


def site_message() -> str:
    """Return the name of the database and the variable that sets it, without a password."""
    database = settings.DATABASES["default"]
    if _is_sqlite():
        variable = "DATABASE_URL" if settings.DATABASE_URL else "EVALSITE_DATA_DIR"
        return f"{database['NAME']} (by {variable})"
    host = database.get("HOST") or "this machine"
    return f"{database['NAME']} at {host} (by DATABASE_URL)"


def create_site() -> str:
    """Create the tables of an empty SQLite database; returns a message, "" if there was nothing to do.

    A database server and an existing site are prepared by `evalsite prepare` or `up`.
    """
    if not _is_sqlite() or (_has_file() and (_holds_a_site() or not _lacks_tables())):
        return ""
    migrate()
    return f"New site in {settings.DATA_DIR}: its database is {site_message()}."


def migrate() -> None:
    """Bring the tables up to date; a SQLite database gets its file and folder, for this user alone.

    Raises CommandError if there cannot be such a folder.
    """
    if _is_sqlite():
        # The folder is there already if it holds the generated keys; keys can be set by variables.
        path = Path(str(connection.settings_dict["NAME"]))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite would let everybody on this machine read it.
            path.touch(mode=0o600)
        except OSError as error:
            raise CommandError(
                f"The folder of the database {site_message()} cannot be created: {error.strerror}. "
                "Name a folder that this process may write to.",
                returncode=FAILED,
            ) from error
        if not connection.introspection.table_names():
            _create_tables()
            return
    call_command("migrate", interactive=False, verbosity=0)


def _create_tables() -> None:
    """Create the tables of an empty SQLite database from the models, and note all migrations as applied.

    The migrations take twenty times as long to make the same tables, and none of them adds data.
    """
    applied = MigrationLoader(None).disk_migrations
    recorded = MigrationRecorder.Migration
    tables: list[type[Model]] = [recorded, *apps.get_models()]
    with connection.schema_editor() as editor:
        for model in tables:
            if model._meta.can_migrate(connection):
                editor.create_model(model)
        recorded.objects.bulk_create(recorded(app=app, name=name) for app, name in applied)
    # Groups, permissions and content types.
    emit_post_migrate_signal(verbosity=0, interactive=False, db=connection.alias)


def check_site() -> None:
    """Raise CommandError if the SQLite database is missing: connecting would create an empty one."""
    if _is_sqlite() and not _has_file():
        raise CommandError(
            f"There is no site here: the database {site_message()} does not exist. Name the folder of "
            f"another site, EVALSITE_DATA_DIR={settings.DEMO_DATA_DIR} for the demo's, or start a new one: "
            "evalsite up.",
            returncode=FAILED,
        )


def _holds_a_site() -> bool:
    """Tell whether anything is stored; an interrupted first start leaves empty tables."""
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        for name in FIRST_FILLED_TABLES:
            if name in tables and cursor.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone():  # noqa: S608 - ours
                return True
    return False


def _lacks_tables() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _is_sqlite() -> bool:
    return connection.vendor == "sqlite"


def _has_file() -> bool:
    return Path(str(connection.settings_dict["NAME"])).exists()


# Written out, because reversing an address imports every page, which takes longer than a short run.
RUN_PATH = "/suites/{run.suite.slug}/runs/{run.number}/"
CAMPAIGN_PATH = "/campaigns/{campaign.pk}/"
MAX_NAMES = 40
MAX_RUNS = 5
# What is read of it takes several times as much.
MAX_FILE_BYTES = 1024 * 1024 * 1024
RUN_NAME = re.compile(
    rf"(?P<suite>[-\w]+)(?:[#:](?P<number>[0-9]{{1,18}})|:(?P<word>{LATEST}|{BASELINE}))"
)


class UnknownNameError(DomainError):
    """No object has the name."""

    code = "unknown_name"


def get_suite(slug: str) -> Suite:
    """Return the suite of that short name; raises UnknownNameError."""
    suites = Suite.objects.select_related("judge")
    suite = suites.filter(slug=slug).first()
    if suite is None:
        known = suites.filter(archived_at=None).order_by("slug").values_list("slug", flat=True)
        raise UnknownNameError(_unknown("suite", slug, known, "Import one: evalsite import."))
    return suite


def get_target(name: str) -> Target:
    """Return the target; raises UnknownNameError."""
    targets = Target.objects.select_related("model")
    target = targets.filter(name=name).first()
    if target is None:
        known = targets.filter(archived_at=None).order_by("name").values_list("name", flat=True)
        raise UnknownNameError(_unknown("target", name, known, "Add one in the browser."))
    return target


def get_run(word: str) -> Run:
    """Return the run of SUITE#N, as the API SUITE:N, SUITE:latest or SUITE:baseline; raises UnknownNameError."""
    parts = RUN_NAME.fullmatch(word)
    if parts is None:
        raise UnknownNameError(
            f"{word!r} names no run. Write SUITE#NUMBER, SUITE:latest or SUITE:baseline."
        )
    suite = get_suite(parts["suite"])
    runs = Run.objects.named(suite.slug, parts["number"] or parts["word"])
    run = runs.select_related("suite").defer("summary", "leaf_scores").first()
    if run is None:
        kinds = {LATEST: "finished run", BASELINE: "baseline run"}
        kind = kinds.get(parts["word"] or "", f"run #{parts['number']}")
        raise UnknownNameError(f"{suite.slug} has no {kind}. {_newest_runs(suite)}")
    return run


def get_model(slug: str) -> LanguageModel:
    """Return the language model; raises UnknownNameError."""
    model = LanguageModel.objects.filter(slug=slug).first()
    if model is None:
        known = LanguageModel.objects.order_by("slug").values_list("slug", flat=True)
        raise UnknownNameError(
            _unknown("language model", slug, known, "Add one: evalsite add_model.")
        )
    return model


def run_url(run: Run) -> str:
    """Return the address of the run's page."""
    return full_url(RUN_PATH.format(run=run))


def campaign_url(campaign: Campaign) -> str:
    """Return the address of the campaign's page."""
    return full_url(CAMPAIGN_PATH.format(campaign=campaign))


def full_url(path: str, site: str = "") -> str:
    """Return the full URL of a path on this site."""
    site = site or settings.SITE_URL or f"http://127.0.0.1:{settings.PORT}"
    return f"{site.rstrip('/')}{path}"


def read_file(path: Path, *, option: str = "") -> bytes:
    """Return the content of a file; raises CommandError, also for one that has no end."""
    name = f"{option} {path}".lstrip()
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            limit = f"{MAX_FILE_BYTES // 1024**2} MB"
            raise CommandError(f"{name} has more than {limit}. Split it.", returncode=FAILED)
        return content
    except OSError as error:
        reason = f"{name} cannot be read: {error.strerror}."
        raise CommandError(reason, returncode=FAILED) from error


def _newest_runs(suite: Suite) -> str:
    newest = suite.runs.order_by("-number").values_list("number", flat=True)[:MAX_RUNS]
    numbers = ", ".join(f"{suite.slug}#{number}" for number in newest)
    return f"The newest: {numbers}." if numbers else "It was never run."


def _unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> str:
    names = list(known)
    if not names:
        return f"There is no {kind} {name!r}, and no other {kind} either. {remedy}"
    shown, left = names[:MAX_NAMES], len(names) - MAX_NAMES
    rest = f" and {left} more" if left > 0 else ""
    verb = "is" if len(names) == 1 else "are"
    similar = most_similar(name, names)
    question = f" Did you mean {similar}?" if similar else ""
    return f"There is no {kind} {name!r}.{question} There {verb}: {', '.join(shown)}{rest}."
