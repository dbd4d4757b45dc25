"""Find what somebody named at a command line, and the site a command works on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.urls import reverse

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.suites import Suite, Target

MAX_NAMES = 40
MAX_RUNS = 5
MAX_NUMBER = 2**31 - 1
RUN_NAME = re.compile(r"(?P<suite>[-\w]+)(?:#(?P<number>[0-9]{1,18})|:(?P<word>latest|baseline))")


class UnknownNameError(DomainError):
    """Nothing has the name."""

    code = "unknown_name"


def suite_named(slug: str) -> Suite:
    """Return the suite of that short name; raises UnknownNameError."""
    suites = Suite.objects.select_related("judge")
    found = suites.filter(slug=slug).first()
    if found is None:
        known = suites.filter(archived_at=None).order_by("slug").values_list("slug", flat=True)
        raise UnknownNameError(_unknown("suite", slug, known, "Import one: evalsite import."))
    return found


def target_named(name: str) -> Target:
    """Return the target; raises UnknownNameError."""
    targets = Target.objects.select_related("model")
    found = targets.filter(name=name).first()
    if found is None:
        known = targets.filter(archived_at=None).order_by("name").values_list("name", flat=True)
        raise UnknownNameError(_unknown("target", name, known, "Add one in the browser."))
    return found


def run_named(word: str) -> Run:
    """Return the run that SUITE#N, SUITE:latest or SUITE:baseline names; raises UnknownNameError.

    The latest is the newest that is over, however it ended; one scored again is no new run of a target.
    """
    parts = RUN_NAME.fullmatch(word)
    if parts is None:
        raise UnknownNameError(
            f"{word!r} names no run. Write SUITE#NUMBER, SUITE:latest or SUITE:baseline."
        )
    suite = suite_named(parts["suite"])
    runs = Run.objects.select_related("suite").defer("summary", "leaf_scores").filter(suite=suite)
    if parts["number"]:
        found = runs.filter(number=min(int(parts["number"]), MAX_NUMBER)).first()
    elif parts["word"] == "latest":
        ended = runs.filter(source_run=None).exclude(status__in=ACTIVE_RUN_STATUSES)
        found = ended.order_by("-number").first()
    else:
        found = runs.filter(pk=suite.baseline_run_id or 0).first()
    if found is None:
        raise UnknownNameError(f"{suite.slug} has no {_of(parts)}. {_runs_of(suite)}")
    return found


def model_named(slug: str) -> LanguageModel:
    """Return the language model; raises UnknownNameError."""
    found = LanguageModel.objects.filter(slug=slug).first()
    if found is None:
        known = LanguageModel.objects.order_by("slug").values_list("slug", flat=True)
        raise UnknownNameError(
            _unknown("language model", slug, known, "Add one: evalsite add_model.")
        )
    return found


def run_url(run: Run) -> str:
    """Return where the run is looked at."""
    site = settings.SITE_URL or f"http://127.0.0.1:{settings.PORT}"
    path = reverse("runs:run", kwargs={"slug": run.suite.slug, "number": run.number})
    return f"{site.rstrip('/')}{path}"


def _of(parts: re.Match[str]) -> str:
    words = {"latest": "run that is over", "baseline": "baseline run"}
    return words.get(parts["word"] or "", f"run #{parts['number']}")


def _runs_of(suite: Suite) -> str:
    newest = suite.runs.order_by("-number").values_list("number", flat=True)[:MAX_RUNS]
    numbers = ", ".join(f"{suite.slug}#{number}" for number in newest)
    return f"The newest: {numbers}." if numbers else "It was never run."


def _unknown(what: str, name: str, known: Iterable[str], remedy: str) -> str:
    names = list(known)
    if not names:
        return f"There is no {what} {name!r}, and there is none at all. {remedy}"
    shown, left = names[:MAX_NAMES], len(names) - MAX_NAMES
    rest = f" and {left} more" if left > 0 else ""
    return f"There is no {what} {name!r}. There {_are(names)}: {', '.join(shown)}{rest}."


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


COULD_NOT = 3
# Where there is a site, one of these tables has a row.
FILLED_FIRST = ("auth_user", "runs_suite")


def site_message() -> str:
    """Return which database it is and what names it, without a password."""
    database = settings.DATABASES["default"]
    if _is_sqlite():
        named_by = "DATABASE_URL" if settings.DATABASE_URL else "EVALSITE_DATA_DIR"
        return f"{database['NAME']} (by {named_by})"
    host = database.get("HOST") or "this machine"
    return f"{database['NAME']} at {host} (by DATABASE_URL)"


def create_site() -> str:
    """Make the tables of a SQLite database that holds nothing yet; returns what to say, "" if nothing.

    A database server, and a site that exists already, are prepared by `evalsite prepare` or `up`.
    """
    if not _is_sqlite() or (_has_file() and (_holds_a_site() or not _lacks_tables())):
        return ""
    call_command("migrate", interactive=False, verbosity=0)
    return f"New site in {settings.DATA_DIR}: its database is {site_message()}."


def check_site() -> None:
    """Raise CommandError where there is no SQLite database: to connect would make an empty one."""
    if _is_sqlite() and not _has_file():
        raise CommandError(
            f"There is no site here: the database {site_message()} does not exist. Name the folder of "
            f"another site, EVALSITE_DATA_DIR=data/demo for the demo's, or begin one: evalsite up.",
            returncode=COULD_NOT,
        )


def _holds_a_site() -> bool:
    """Tell whether anything was stored; a begin that was interrupted left tables without a row."""
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        for name in FILLED_FIRST:
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
