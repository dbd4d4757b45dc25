"""Load the examples and start their first runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs import services
from runs.formats.bundles import bundles_at
from runs.formats.suite_files import read_suites
from runs.management.answering import AnsweringCommand
from runs.models import Run, Suite, Target

EXAMPLES = Path(settings.BASE_DIR) / "examples"
SUPPORT_AGENT = EXAMPLES / "support-agent"
QUICK_CHECK = EXAMPLES / "quick-check"
RETURNS_DESK = EXAMPLES / "returns-desk"
VERSIONS = ("1.4.0", "1.5.0")
JUDGE = {
    "name": "Scripted judge",
    "model_id": "scripted-judge",
    "send_trace_headers": True,
    "is_scripted": True,
    "concurrency": 8,
    "timeout_s": 20,
    "input_price_usd_per_mtok": "0.4",
    "output_price_usd_per_mtok": "1.6",
}
AGENT = {"command": "python3 desk.py", "folder": "returns-desk/agent", "timeout_s": 20}
OPENAI_URL = "https://api.openai.com/v1"
QUICK_MODEL = "gpt-4.1-mini"


EPILOG = """\
scripts/demo starts the scripted judge, does this and serves the site.

exit codes:
  0  the examples are here, and were run or are being run
  3  they could not be loaded

example:
  evalsite demo --judge-url http://127.0.0.1:9000/v1
"""


class Command(AnsweringCommand):
    """Fill a site with the examples; safe to repeat, nothing is loaded or run twice."""

    help = "Load the example suites, their recorded targets and judge, and run them once."
    epilog = EPILOG
    deed = "The demo"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the address of the scripted judge."""
        parser.add_argument(
            "--judge-url", required=True, help="Base URL at which the scripted judge answers."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Load what is missing, point the judge at its address and start what has not run yet."""
        user = demo_admin()
        try:
            suite = self._load_support_agent(user, judge_url=options["judge_url"])
            started = [
                self._start_once(suite, Target.objects.get(name=_target_name(version)), user)
                for version in VERSIONS
            ]
            self._load_quick_check(user)
            desk = _load_suite(RETURNS_DESK, user)
        except DomainError as error:
            raise CommandError(f"The examples could not be loaded: {error}") from error
        self._tell(suite, sum(started))
        self._run_returns_desk(desk, user)

    def _tell(self, suite: Suite, count: int) -> None:
        told = (
            f"{counted(count, 'run')} started." if count else "was run before; nothing is started."
        )
        self.stderr.write(f"{suite.title}: {told}")

    def _run_returns_desk(self, desk: Suite, user: User) -> None:
        """Run the agent that is a program; where no program may run, say why and go on without it."""
        agent, _ = Target.objects.get_or_create(
            name="returns desk", defaults={"kind": "command", "config": AGENT}
        )
        try:
            self._tell(desk, int(self._start_once(desk, agent, user)))
        except DomainError as error:
            self.stderr.write(f"{desk.title}: not run. {error}")

    def _load_support_agent(self, user: User, *, judge_url: str) -> Suite:
        # The judge listens on a free port, so its address is a new one at every start.
        LanguageModel.objects.update_or_create(
            slug="scripted-judge",
            defaults={"base_url": judge_url.rstrip("/")},
            create_defaults={**JUDGE, "base_url": judge_url.rstrip("/")},
        )
        suite = _load_suite(SUPPORT_AGENT, user)
        for version in VERSIONS:
            if not Target.objects.filter(name=_target_name(version)).exists():
                services.import_recorded_outputs(
                    target_name=_target_name(version),
                    lines=(SUPPORT_AGENT / f"outputs-{version}.jsonl").read_bytes(),
                    imported_by=user,
                )
        return suite

    def _start_once(self, suite: Suite, target: Target, user: User) -> bool:
        if Run.objects.filter(suite=suite, target=target).exists():
            return False
        services.start_run(suite=suite, target=target, started_by=user, note="Demo")
        return True

    def _load_quick_check(self, user: User) -> None:
        """Load the suite for real models, with a target when a key for one is at hand."""
        _load_suite(QUICK_CHECK, user)
        if "OPENAI_API_KEY" not in settings.MODEL_KEYS:
            return
        model, _ = LanguageModel.objects.get_or_create(
            slug="openai",
            defaults={
                "name": QUICK_MODEL,
                "model_id": QUICK_MODEL,
                "base_url": settings.OPENAI_BASE_URL or OPENAI_URL,
                "key_variable": "OPENAI_API_KEY",
            },
        )
        Target.objects.get_or_create(name=QUICK_MODEL, defaults={"kind": "chat", "model": model})


def demo_admin() -> User:
    """Return the member who owns the demo, made as admin on an empty site."""
    found = User.objects.filter(groups__name="admin", is_active=True).order_by("pk").first()
    if found is None:
        found, _ = User.objects.get_or_create(username="admin")
        found.groups.add(Group.objects.get(name="admin"))
    return found


def _load_suite(folder: Path, user: User) -> Suite:
    """Return the suite of an example, imported unless it is here already; edits to it stay."""
    found = Suite.objects.filter(slug=folder.name).first()
    if found is not None:
        return found
    [suite] = read_suites(bundles_at([folder / "suite.yaml"])).suites
    return services.import_suite(suite.content, imported_by=user)


def _target_name(version: str) -> str:
    return f"support-agent {version}"
