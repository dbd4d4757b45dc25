"""Start a run: check that it can be carried out, freeze everything that decides it, queue it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from runs.drafting.for_one_run import RunRules, ruled
from runs.models import Campaign, Case, Result, Run, RunOwner, Suite, Target
from runs.models.clock import database_now
from runs.models.rows import insert_rows
from runs.plan import ASKED, CHANGED, Plan, content_hash
from runs.services.choosing_cases import CannotStartError, chosen_cases
from runs.services.freezing import frozen_plan, judges_named
from runs.services.queueing import queue_hands
from runs.versions import parts_of

DEFAULT_CONCURRENCY = 8
MOST_CONCURRENCY = 200
MOST_REPETITIONS = 100


class SuiteChangedError(DomainError):
    """The suite is another version by now than the one that was looked at."""

    code = "suite_changed"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may do: executions of each case, calls in flight, dollars of both purses."""

    repetitions: int = 1
    concurrency: int = DEFAULT_CONCURRENCY
    budget_usd: Decimal | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be carried out, naming field and value."""
        if not 1 <= self.repetitions <= MOST_REPETITIONS:
            raise CannotStartError(
                f"Repetitions is {self.repetitions}; it goes from 1 to {MOST_REPETITIONS}."
            )
        if not 1 <= self.concurrency <= MOST_CONCURRENCY:
            raise CannotStartError(
                f"Concurrency is {self.concurrency}; it goes from 1 to {MOST_CONCURRENCY}."
            )
        if self.budget_usd is not None and self.budget_usd <= 0:
            raise CannotStartError(f"The budget is ${self.budget_usd}; it must be above 0.")


def start_run(  # noqa: PLR0913 - every choice of the start form
    *,
    suite: Suite,
    target: Target,
    started_by: User | None,
    repetitions: int = 1,
    concurrency: int | None = None,
    budget_usd: Decimal | None = None,
    note: str = "",
    case_keys: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    judge: LanguageModel | None = None,
    campaign: Campaign | None = None,
    rules: RunRules | None = None,
    version: int | None = None,
    owner_id: str = "",
    form_key: str = "",
) -> Run:
    """Create a run with its frozen snapshot and its waiting results, and queue it on commit.

    Without a judge the suite's is asked. `rules` are what this run does otherwise than the suite, which
    stays; the snapshot keeps them under "changed", and under "asked" which cases were asked for.
    `version` is the suite's that was looked at; another by now is refused. With `owner_id`, the name of a process, that process alone
    carries the run out: it claims under the id the run then has, and keeps the run's heartbeat.
    The audit log keeps the `form_key` of the form that asked, so that it starts nothing twice.
    Raises DomainError saying what is in the way.
    """
    judge = judge or suite.judge
    at_once = suggested_concurrency(target, judge) if concurrency is None else concurrency
    limits = Limits(repetitions, at_once, budget_usd)
    with transaction.atomic():
        suite = (
            Suite.objects.select_for_update(of=("self",))
            .select_related("root", "judge")
            .get(pk=suite.pk)
        )
        _check_version(suite, version)
        cases = chosen_cases(suite, case_keys, tags)
        rule = ruled(parts_of(suite), rules or RunRules())
        plan = frozen_plan(suite, target, judge, cases, rule, started_by)
        _check_budget(plan, budget_usd)
        asked = _asked(case_keys, tags, rules)
        snapshot = plan.as_json() | ({CHANGED: list(rule.changed)} if rule.changed else {})
        snapshot |= {ASKED: asked} if asked else {}
        run = _create_run(suite, target, plan, limits, count=len(cases), snapshot=snapshot)
        run.note, run.campaign, run.created_by = note[:300], campaign, started_by
        run.save(update_fields=("note", "campaign", "created_by"))
        _create_results(run, cases)
        if owner_id:
            _give_to(run, owner_id)
        else:
            transaction.on_commit(partial(queue_hands, run))
        _audit(run, suite, started_by, form_key)
    return run


def _check_version(suite: Suite, version: int | None) -> None:
    if version is not None and version != suite.version:
        raise SuiteChangedError(
            f"{suite.title} was changed meanwhile: it is version {suite.version} now, and this was made "
            f"for version {version}. Nothing was started. Look at it again and start then."
        )


def _asked(
    keys: Sequence[str] | None, tags: Sequence[str] | None, rules: RunRules | None
) -> dict[str, Any]:
    """Return what only the asking tells, for the run to be asked for again; keys stand in the results."""
    asked: dict[str, Any] = {} if tags is None else {"tags": list(tags)}
    if keys is not None:
        asked["cases"] = "chosen"
    if rules is not None and rules.samples is not None:
        asked["samples"] = rules.samples
    return asked


def _give_to(run: Run, owner_id: str) -> None:
    """Let a command-line process be the run's only hands."""
    longest = Run._meta.get_field("owner_id").max_length or len(owner_id)
    run.owner, run.heartbeat_at = RunOwner.COMMAND_LINE, database_now()
    # What names a process stands at the end; at its beginning is the host, which may be long.
    run.owner_id = owner_id[-longest:]
    run.save(update_fields=("owner", "owner_id", "heartbeat_at"))


def _check_budget(plan: Plan, budget_usd: Decimal | None) -> None:
    """Refuse a budget that calls without a price would never reach."""
    if budget_usd is None:
        return
    for facts in plan.models.values():
        if facts["prices"] is None:
            raise CannotStartError(
                f"Nobody knows what {facts['name']} costs, so a budget could not hold it. Enter its "
                "prices under Language models, or start without a budget."
            )


def _audit(run: Run, suite: Suite, started_by: User | None, form_key: str) -> None:
    nobody = "command line" if run.owner_id else ""
    facts = {"target": run.target_name, "executions": run.execution_count, "note": run.note}
    if changed := run.snapshot.get(CHANGED):
        facts["changed"] = changed
    AuditEntry.objects.create(
        actor=started_by,
        actor_name=started_by.get_username() if started_by else nobody,
        action="start",
        object_type="run",
        object_id=str(run.pk),
        object_name=f"{suite.slug} #{run.number}",
        after=facts | ({"form": form_key} if form_key else {}),
    )


def suggested_concurrency(target: Target, judge: LanguageModel | None) -> int:
    """Return how many executions at once the target and the models involved allow."""
    limits = [model.concurrency for model in (target.model, judge) if model is not None]
    if isinstance(own := target.config.get("concurrency"), int):
        limits.append(own)
    return min(limits, default=DEFAULT_CONCURRENCY)


def _create_run(
    suite: Suite,
    target: Target,
    plan: Plan,
    limits: Limits,
    *,
    count: int,
    snapshot: Mapping[str, Any],
) -> Run:
    last = Run.objects.filter(suite=suite).aggregate(last=Max("number"))["last"] or 0
    return Run.objects.create(
        suite=suite,
        number=last + 1,
        target=target,
        target_name=target.name,
        judge_name=judges_named(plan),
        is_scripted=any(model["is_scripted"] for model in plan.models.values()),
        suite_version=suite.version,
        repetitions=limits.repetitions,
        concurrency=limits.concurrency,
        budget_usd=limits.budget_usd,
        case_count=count,
        execution_count=count * limits.repetitions,
        snapshot_hash=content_hash(snapshot),
        snapshot=snapshot,
    )


def _create_results(run: Run, cases: Sequence[Case]) -> None:
    fields = [field for field in Result._meta.concrete_fields if not field.primary_key]
    columns = [field.attname for field in fields]
    row = [None if field.null else field.get_default() for field in fields]
    places = [columns.index(name) for name in ("run_id", "case_id", "position", "repetition")]

    def rows() -> Any:
        for position, case in enumerate(cases):
            for repetition in range(1, run.repetitions + 1):
                values = (run.pk, case.pk, position, repetition)
                for place, value in zip(places, values, strict=True):
                    row[place] = value
                yield row

    insert_rows(Result, columns, rows())
