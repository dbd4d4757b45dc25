"""Load the examples and start their first runs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cli.answering import AnsweringCommand
from runs.files.importing import import_recorded_outputs, import_suite
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from runs.running.services import start_campaign

EXAMPLES = Path(settings.BASE_DIR) / "examples"
JUDGE_FACTS = {
    "send_trace_headers": True,
    "is_scripted": True,
    "concurrency": 8,
    "timeout_s": 20,
}


@dataclass(frozen=True, slots=True)
class DemoJudge:
    """A language model that the scripted judge answers for; prices are dollars for a million tokens."""

    slug: str
    name: str
    input_price: str
    output_price: str

    def columns(self) -> dict[str, Any]:
        """Return what a language model of it is made with, but for its address."""
        return {
            **JUDGE_FACTS,
            "name": self.name,
            "model_id": self.slug,
            "input_price_usd_per_mtok": Decimal(self.input_price),
            "output_price_usd_per_mtok": Decimal(self.output_price),
        }


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """A target: recorded outputs of a file, an agent of the scripted server, or a command."""

    name: str
    outputs: str = ""
    agent: str = ""
    command: str = ""

    def config(self, origin: str, folder: Path) -> dict[str, Any]:
        """Return the settings of an agent at the scripted server's origin, or of a command."""
        if self.command:
            return {"command": self.command, "folder": f"{folder.name}/agent", "timeout_s": 20}
        return {"url": f"{origin}/agents/{self.agent}", **AGENT}


@dataclass(frozen=True, slots=True)
class DemoSuite:
    """An example with what it is run against, each target once, oldest first, and targets that judge it.

    `campaign` names the runs that are started together.
    """

    slug: str
    targets: tuple[DemoTarget, ...] = ()
    judging: tuple[DemoTarget, ...] = ()
    campaign: str = ""
    repetitions: int = 1

    @property
    def folder(self) -> Path:
        """Return where its files are."""
        return EXAMPLES / self.slug


AGENT: dict[str, Any] = {
    "body": {"case": "{{case_id}}", "task": "{{input}}"},
    "output_path": "answer",
    "tool_calls_path": "steps",
    "files_path": "files",
    "input_tokens_path": "usage.input_tokens",
    "output_tokens_path": "usage.output_tokens",
    "cost_path": "cost_usd",
    "timeout_s": 20,
}
JUDGES = (
    DemoJudge("scripted-judge", "Scripted judge", "0.4", "1.6"),
    DemoJudge("scripted-judge-small", "Scripted judge, small", "0.1", "0.4"),
    DemoJudge("scripted-judge-large", "Scripted judge, large", "2.5", "10"),
)


def _recorded(name: str, *versions: str) -> tuple[DemoTarget, ...]:
    return tuple(DemoTarget(f"{name} {v}", outputs=f"outputs-{v}.jsonl") for v in versions)


# One for each profile, in the order of SCORING §10, then what needs no judge.
SUITES = (
    DemoSuite(
        "support-agent",
        _recorded("support-agent", "1.4.0", "1.5.0"),
        campaign="1.5.0 against 1.4.0",
    ),
    DemoSuite(
        "travel-desk",
        _recorded("travel-agent", "2.1", "2.2", "3.0"),
        campaign="Three releases compared",
    ),
    DemoSuite(
        "harbour-office",
        _recorded("office-assistant", "mini", "max"),
        judging=(DemoTarget("harbour reader", agent="reader"),),
        campaign="Small model or large one",
    ),
    DemoSuite(
        "repo-chores",
        (
            DemoTarget("chores 0.9", agent="chores-0.9"),
            DemoTarget("chores 1.0", agent="chores-1.0"),
        ),
        campaign="1.0 against 0.9",
        repetitions=3,
    ),
    DemoSuite("quick-check"),
    DemoSuite("returns-desk", (DemoTarget("returns desk", command="python3 desk.py"),)),
)


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

    help = "Load the example suites, one for each profile, their targets and judges, and run them once."
    epilog = EPILOG
    action = "The demo"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the address of the scripted judge."""
        parser.add_argument(
            "--judge-url", required=True, help="Base URL at which the scripted judge answers."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Load what is missing, point judges and agents at their address, start what has not run yet."""
        user = demo_admin()
        judge_url = options["judge_url"].rstrip("/")
        try:
            _set_up_judges(judge_url)
            loaded = [(one, _load_suite(one, user)) for one in SUITES]
            for one, _ in loaded:
                for target in (*one.targets, *one.judging):
                    _load_target(one, target, judge_url, user)
            _load_quick_model()
        except DomainError as error:
            raise CommandError(f"The examples could not be loaded: {error}") from error
        for one, suite in loaded:
            self._run(one, suite, user)

    def _run(self, one: DemoSuite, suite: Suite, user: User) -> None:
        """Start what has not run yet; where no program may run, say why and go on without it."""
        if not one.targets:
            return
        try:
            count = _start_once(one, suite, user)
        except DomainError as error:
            self.stderr.write(f"{suite.title}: not run. {error}")
            return
        told = (
            f"{counted(count, 'run')} started." if count else "was run before; nothing is started."
        )
        self.stderr.write(f"{suite.title}: {told}")


def demo_admin() -> User:
    """Return the member who owns the demo, made as admin on an empty site."""
    found = User.objects.filter(groups__name="admin", is_active=True).order_by("pk").first()
    if found is None:
        found, _ = User.objects.get_or_create(username="admin")
        found.groups.add(Group.objects.get(name="admin"))
    return found


def _set_up_judges(judge_url: str) -> None:
    # The server listens on a free port, so its address is a new one at every start.
    for judge in JUDGES:
        LanguageModel.objects.update_or_create(
            slug=judge.slug,
            defaults={"base_url": judge_url},
            create_defaults={**judge.columns(), "base_url": judge_url},
        )


def _load_suite(one: DemoSuite, user: User) -> Suite:
    """Return the suite of an example, imported unless it is here already; edits to it stay."""
    found = Suite.objects.filter(slug=one.slug).first()
    if found is not None:
        return found
    [suite] = read_suites(bundles_at([one.folder / "suite.yaml"])).suites
    return import_suite(suite.content, imported_by=user)


def _load_target(one: DemoSuite, target: DemoTarget, judge_url: str, user: User) -> None:
    """Make the target unless it is here; an agent of the scripted server is told its new address."""
    found = Target.objects.filter(name=target.name).first()
    config = {} if target.outputs else target.config(_origin(judge_url), one.folder)
    if found is None and target.outputs:
        lines = (one.folder / target.outputs).read_bytes()
        import_recorded_outputs(target_name=target.name, lines=lines, imported_by=user)
    elif found is None:
        kind = "command" if target.command else "http"
        Target.objects.create(name=target.name, kind=kind, config=config)
    elif target.agent and found.kind == "http":
        found.config = {**found.config, "url": config["url"]}
        found.save(update_fields=["config"])


def _origin(judge_url: str) -> str:
    parts = urlsplit(judge_url)
    return f"{parts.scheme}://{parts.netloc}"


def _start_once(one: DemoSuite, suite: Suite, user: User) -> int:
    """Start a run against every target that has none yet, together; return how many."""
    targets = [Target.objects.get(name=wanted.name) for wanted in one.targets]
    missing = [one for one in targets if not Run.objects.filter(suite=suite, target=one).exists()]
    if not missing:
        return 0
    runs = start_campaign(
        suite=suite,
        targets=missing,
        started_by=user,
        name=one.campaign,
        repetitions=one.repetitions,
        note="Demo",
    )
    return len(runs)


def _load_quick_model() -> None:
    """Set up a target for the suite for real models when a key for one is at hand."""
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
