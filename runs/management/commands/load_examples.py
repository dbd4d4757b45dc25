"""Load the examples and start their first runs."""

from __future__ import annotations

import select
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from evaluators.models import LanguageModel
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cli.command import SiteCommand
from runs.engine.plan import PAIRWISE_KIND
from runs.files.importing import import_recorded_outputs, import_suite
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite, SuiteDraft, Target
from runs.reviews.alignment.planning import AlignmentRequest
from runs.reviews.alignment.services import start_alignment
from runs.reviews.files import import_reviews
from runs.running.judging_again import judge_again
from runs.running.judging_plan import JudgingRequest
from runs.running.measuring import MeasuringRequest, measure_judge
from runs.running.rules import RunRules
from runs.running.services import start_campaign
from runs.suites.edits import begin_draft

EXAMPLES = Path(settings.BASE_DIR) / "examples"
JUDGE_FACTS = {
    "send_trace_headers": True,
    "is_scripted": True,
    "concurrency": 8,
    "timeout_s": 20,
}


@dataclass(frozen=True, slots=True)
class DemoJudge:
    """A language model of the scripted judge; prices are US dollars per million tokens."""

    slug: str
    name: str
    input_price: str
    output_price: str

    def columns(self) -> dict[str, Any]:
        """Return the columns of its language model, except the address."""
        return {
            **JUDGE_FACTS,
            "name": self.name,
            "model_id": self.slug,
            "input_price_usd_per_mtok": Decimal(self.input_price),
            "output_price_usd_per_mtok": Decimal(self.output_price),
        }


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """A target: a file of recorded outputs, an agent of the scripted server, or a command."""

    name: str
    outputs: str = ""
    agent: str = ""
    command: str = ""

    def config(self, origin: str, folder: Path) -> dict[str, Any]:
        """Return the config of an agent at the scripted server's origin, or of a command."""
        if self.command:
            return {"command": self.command, "folder": f"{folder.name}/agent", "timeout_s": 20}
        return {"url": f"{origin}/agents/{self.agent}", **AGENT}


@dataclass(frozen=True, slots=True)
class DemoSuite:
    """An example suite with its targets, oldest first, and the targets that judge it.

    `campaign` is the name of its campaign.
    """

    slug: str
    targets: tuple[DemoTarget, ...] = ()
    judging: tuple[DemoTarget, ...] = ()
    campaign: str = ""
    repetitions: int = 1

    @property
    def folder(self) -> Path:
        """Return the folder of its files."""
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
# One that is stricter than the others, one that differs from itself, and one that prefers the first of two answers.
STRICT, MOODY = "scripted-judge-strict", "scripted-judge-moody"
HASTY = "scripted-judge-hasty"
SAMPLES = 3
JUDGES = (
    DemoJudge("scripted-judge", "Scripted judge", "0.4", "1.6"),
    DemoJudge("scripted-judge-small", "Scripted judge, small", "0.1", "0.4"),
    DemoJudge("scripted-judge-large", "Scripted judge, large", "2.5", "10"),
    DemoJudge(STRICT, "Scripted judge, strict", "0.8", "3.2"),
    DemoJudge(MOODY, "Scripted judge, moody", "0.2", "0.8"),
    DemoJudge(HASTY, "Scripted judge, hasty", "0.1", "0.4"),
)


def _recorded(name: str, *versions: str) -> tuple[DemoTarget, ...]:
    return tuple(DemoTarget(f"{name} {v}", outputs=f"outputs-{v}.jsonl") for v in versions)


# One for each profile, then those that need no judge.
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
`evalsite demo` starts the scripted judge, loads the examples and serves the site.

exit codes:
  0  the examples are loaded, and their runs are started
  3  the examples could not be loaded

example:
  evalsite load_examples --judge-url http://127.0.0.1:9000/v1
"""


class Command(SiteCommand):
    """Fill a site with the examples; safe to repeat, nothing is loaded or run twice."""

    help = "Load the example suites, one for each profile, their targets and judges, and run them once."
    epilog = EPILOG
    action = "Loading the examples"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the address of the scripted judge."""
        parser.add_argument(
            "--follow-ups",
            action="store_true",
            help="Then wait for runs, import reviews, judge one again by two other judges, measure one of them, compare "
            "two runs pair by pair, and align a judge; ends with its input.",
        )
        parser.add_argument(
            "--judge-url", required=True, help="Base URL at which the scripted judge answers."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Load missing examples, update the addresses of judges and agents, and start missing runs."""
        user = demo_admin()
        judge_url = options["judge_url"].rstrip("/")
        try:
            _set_up_judges(judge_url)
            loaded = [(example, _load_suite(example, user)) for example in SUITES]
            for example, _ in loaded:
                for target in (*example.targets, *example.judging):
                    _load_target(example, target, judge_url, user)
            _load_quick_model()
        except DomainError as error:
            raise CommandError(f"The examples could not be loaded: {error}") from error
        for example, suite in loaded:
            outcome = _start_runs(example, suite, user)
            if outcome and options["verbosity"]:
                self.stderr.write(f"{suite.title}: {outcome}")
        if options["follow_ups"]:
            follow_up(Run.objects.filter(suite__slug=SUITES[0].slug), user)
            compare_releases(Run.objects.filter(suite__slug=SUITES[1].slug), user)
            align(Run.objects.filter(suite__slug=SUITES[1].slug), user)


def _start_runs(example: DemoSuite, suite: Suite, user: User) -> str:
    """Start the missing runs of an example, and return a message; a refusal, as without scripts, is only that."""
    if not example.targets:
        return ""
    try:
        count = _start_missing(example, suite, user)
    except DomainError as error:
        return f"not run. {error}"
    return f"{counted(count, 'run')} started." if count else "already run; nothing started."


def follow_up(runs: QuerySet[Run], user: User) -> None:
    """Let people decide on the newest run, two judges judge its outputs again, the moody one twice, and measure it.

    Last, the moody one gives three samples for each score. Workers execute these runs. Nothing is done a second time.
    """
    source = runs.filter(source_run=None).order_by("-number").first()
    if source is None or runs.exclude(source_run=None).exists() or not _completes(source):
        return
    reviews = EXAMPLES / source.suite.slug / "reviews.csv"
    import_reviews(reviews.read_bytes(), file=reviews.name, by=user, leaves_out=True)
    judgings = []
    for slug in (STRICT, MOODY, MOODY):
        request = JudgingRequest(judge=LanguageModel.objects.get(slug=slug), note="Demo")
        judgings += judge_again([source], request, by=user)
        if not _completes(judgings[-1]):
            return
    measure_judge(judgings[1], MeasuringRequest(), by=user)
    moody = LanguageModel.objects.get(slug=MOODY)
    sampled = JudgingRequest(judge=moody, rules=RunRules(samples=SAMPLES), note="Demo")
    judge_again([source], sampled, by=user)


def compare_releases(runs: QuerySet[Run], user: User) -> None:
    """Compare the outputs of the newest run with those of the oldest pair by pair, by a careful and a hasty judge.

    Workers execute the run. Nothing is done a second time.
    """
    asked = list(runs.filter(source_run=None).order_by("number"))
    if len(asked) < 2 or runs.exclude(source_run=None).exists():
        return
    first, last = asked[0], asked[-1]
    if not (_completes(first) and _completes(last)):
        return
    suite = last.suite
    content = begin_draft(suite.spec)
    pairwise = [
        {
            **EvaluatorSpec(name=name, kind=PAIRWISE_KIND, weight=0.0, config=config).as_json(),
            "id": name,
        }
        for name, config in (("better", {}), ("better_hasty", {"model": HASTY}))
    ]
    content["evaluators"]["children"] = [*content["evaluators"]["children"], *pairwise]
    draft = SuiteDraft(suite=suite, author=user, base_version=suite.version, content=content)
    judge_again([last], JudgingRequest(draft=draft, baseline=first, note="Demo"), by=user)


def align(runs: QuerySet[Run], user: User) -> None:
    """Let people decide on the oldest run, and a large model write instructions with which its judge agrees better."""
    source = runs.order_by("number").first()
    if source is None or source.suite.jobs.exists() or not _completes(source):
        return
    reviews = EXAMPLES / source.suite.slug / "reviews.csv"
    import_reviews(reviews.read_bytes(), file=reviews.name, by=user, leaves_out=True)
    writer = LanguageModel.objects.get(slug="scripted-judge-large")
    start_alignment(source.suite, AlignmentRequest("metrics", writer, seed="demo"), by=user)


def _completes(run: Run) -> bool:
    """Wait until a run has ended, and tell whether it was completed; what waits for it ends with its input."""
    while run.is_active and not _input_ends():
        run.refresh_from_db()
    return run.status == RunStatus.COMPLETED


def _input_ends() -> bool:
    """Wait a second, and tell whether standard input ended meanwhile."""
    return bool(select.select([sys.stdin], [], [], 1)[0])


def demo_admin() -> User:
    """Return the admin who owns the demo, made on an empty site."""
    admin = User.objects.filter(groups__name="admin", is_active=True).order_by("pk").first()
    if admin is None:
        existing = User.objects.filter(username="admin").first()
        admin = existing or User.objects.create_user("admin")
        admin.groups.add(Group.objects.get(name="admin"))
    return admin


def _set_up_judges(judge_url: str) -> None:
    # The server listens on a free port, so its address changes with every start.
    for judge in JUDGES:
        LanguageModel.objects.update_or_create(
            slug=judge.slug,
            defaults={"base_url": judge_url},
            create_defaults={**judge.columns(), "base_url": judge_url},
        )


def _load_suite(example: DemoSuite, user: User) -> Suite:
    """Return the suite of an example, imported if it is missing; an existing one is not changed."""
    existing = Suite.objects.filter(slug=example.slug).first()
    if existing is not None:
        return existing
    [suite] = read_suites(bundles_at([example.folder / "suite.yaml"])).suites
    return import_suite(suite.content, imported_by=user)


def _load_target(example: DemoSuite, target: DemoTarget, judge_url: str, user: User) -> None:
    """Make the target if it is missing, or update the address of an agent of the scripted server."""
    existing = Target.objects.filter(name=target.name).first()
    config = {} if target.outputs else target.config(_origin(judge_url), example.folder)
    if existing is None and target.outputs:
        lines = (example.folder / target.outputs).read_bytes()
        import_recorded_outputs(target_name=target.name, lines=lines, imported_by=user)
    elif existing is None:
        kind = "command" if target.command else "http"
        Target.objects.create(name=target.name, kind=kind, config=config)
    elif target.agent and existing.kind == "http":
        existing.config = {**existing.config, "url": config["url"]}
        existing.save(update_fields=["config"])


def _origin(judge_url: str) -> str:
    parts = urlsplit(judge_url)
    return f"{parts.scheme}://{parts.netloc}"


def _start_missing(example: DemoSuite, suite: Suite, user: User) -> int:
    """Start a campaign against the targets without a run, and return the number of runs."""
    targets = [Target.objects.get(name=target.name) for target in example.targets]
    has_run = set(Run.objects.filter(suite=suite).values_list("target_id", flat=True))
    missing = [target for target in targets if target.pk not in has_run]
    if not missing:
        return 0
    runs = start_campaign(
        suite=suite,
        targets=missing,
        started_by=user,
        name=example.campaign,
        repetitions=example.repetitions,
        note="Demo",
    )
    return len(runs)


def _load_quick_model() -> None:
    """Add a target with a real model if the environment has a key for one."""
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
