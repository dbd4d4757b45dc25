"""Start runs and campaigns: check them, freeze everything that decides them, and queue them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.kinds import prompt_versions, rules_versions
from evaluators.kinds.hybrid_judge.opinions import check_final_score
from evaluators.model_calls.models import model_spec
from evaluators.models import COMMAND_LINE, AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import thousands
from runs.costs import ZERO_BUDGET
from runs.engine.plan import (
    ASKED,
    BASELINE,
    CHANGED,
    Plan,
    TargetPlan,
    cases_hash,
    content_hash,
    judge_name,
)
from runs.models.database import database_now, insert_rows
from runs.models.results import Result
from runs.models.run_cases import RunCase
from runs.models.runs import ACTIVE_RUN_STATUSES, OWNER_COLUMNS, Campaign, Run
from runs.models.suites import Case, Suite, Target
from runs.queue import queue_workers
from runs.running.baselines import copy_baseline_outputs, find_baseline
from runs.running.checks import (
    CannotStartError,
    check_agents,
    check_models,
    check_recorded,
    check_scripts,
    check_settings,
    check_trees,
    chosen_cases,
    target_kind,
)
from runs.running.retrying import RunNotActiveError, stop_run
from runs.running.rules import AppliedRules, RunRules, apply_rules
from runs.specs.suites import MAX_MINUTES
from runs.suites.services import SuiteChangedError, lock_suite

MAX_JUDGE_NAME_LENGTH = 120


def make_plan(
    suite: Suite,
    target: Target,
    judge: LanguageModel | None,
    cases: Sequence[Case],
    rule: AppliedRules,
    started_by: User | None,
    baseline: Run | None = None,
) -> Plan:
    """Return everything to freeze; raises DomainError when the run is not possible."""
    check_settings(target)
    files = dict(suite.files.values_list("path", "content_id"))
    return freeze(
        suite, judge, cases, rule, started_by, target=target, files=files, baseline=baseline
    )


def freeze(
    suite: Suite,
    judge: LanguageModel | None,
    cases: Sequence[Case],
    rule: AppliedRules,
    started_by: User | None,
    *,
    target: Target | TargetPlan,
    files: Mapping[str, str],
    baseline: Run | None = None,
    usual_baseline: Mapping[str, Any] | None = None,
) -> Plan:
    """Return everything to freeze, for a version of a suite with its files.

    A target that is frozen already is not asked. The baseline is the named run, else the usual one. Raises DomainError
    when the run is not possible.
    """
    root, policy = rule.root, rule.policy
    asked = target if isinstance(target, Target) else None
    trees = check_trees(root, cases)
    for tree in trees.values():
        check_final_score(tree, policy)
    agents = check_agents(trees.values())
    check_scripts(trees.values(), target_kind(asked) if asked else None, started_by)
    models = check_models(trees, cases, asked, judge, policy, agents=agents)
    return Plan(
        suite={"slug": suite.slug, "title": suite.title, "version": suite.version},
        policy=policy,
        root=root,
        target=target if isinstance(target, TargetPlan) else _target_plan(target),
        judge=judge.slug if judge else "",
        models={model.slug: model_spec(model).as_json() for model in models},
        files=files,
        prompts=prompt_versions(),
        rules=rules_versions(),
        cases_hash=cases_hash([case.content_hash for case in cases]),
        agents={agent.name: replace(_target_plan(agent), id=agent.pk) for agent in agents},
        baseline=find_baseline(suite, trees.values(), baseline, usual_baseline),
    )


def _target_plan(target: Target) -> TargetPlan:
    slug = target.model.slug if target.model else ""
    return TargetPlan(target.name, target.kind, target.config, slug)


def judges_text(plan: Plan) -> str:
    """Return the judge's name; a list of agents that is too long is cut between names."""
    names = judge_name(plan)
    if len(names) <= MAX_JUDGE_NAME_LENGTH:
        return names
    whole, _, _ = names[: MAX_JUDGE_NAME_LENGTH - len(", …")].rpartition(", ")
    return f"{whole}, …" if whole else names[:MAX_JUDGE_NAME_LENGTH]


DEFAULT_CONCURRENCY = 8
MAX_CONCURRENCY = 200
MAX_REPETITIONS = 100
# All that are started together are stored in one transaction, during which others wait to write on SQLite.
MAX_EXECUTIONS = 100_000
# The page of a campaign shows each of its runs, and all of them are stored in one transaction.
MAX_CAMPAIGN_RUNS = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may do: executions of each case, calls in flight, dollars for target and judges, minutes.

    None for the minutes is the longest time of the suite, or else of the site.
    """

    repetitions: int = 1
    concurrency: int = DEFAULT_CONCURRENCY
    budget_usd: Decimal | None = None
    max_minutes: int | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values, naming field and value."""
        if not 1 <= self.repetitions <= MAX_REPETITIONS:
            raise CannotStartError(
                f"Repetitions is {self.repetitions}; it goes from 1 to {MAX_REPETITIONS}."
            )
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise CannotStartError(
                f"Concurrency is {self.concurrency}; it goes from 1 to {MAX_CONCURRENCY}."
            )
        if self.budget_usd is not None and self.budget_usd <= 0:
            raise CannotStartError(ZERO_BUDGET)
        if self.max_minutes is not None and not 1 <= self.max_minutes <= MAX_MINUTES:
            raise CannotStartError(
                f"The longest time is {self.max_minutes} minutes; it goes from 1 to {MAX_MINUTES}."
            )


def check_size(executions: int) -> None:
    """Refuse to start more results together than the site stores at once."""
    if executions > MAX_EXECUTIONS:
        raise CannotStartError(
            f"That would be {thousands(executions)} results; up to {thousands(MAX_EXECUTIONS)} are started together. "
            "Choose fewer cases, repetitions or targets."
        )


def start_run(
    *,
    suite: Suite,
    target: Target,
    started_by: User | None,
    repetitions: int = 1,
    concurrency: int | None = None,
    budget_usd: Decimal | None = None,
    max_minutes: int | None = None,
    note: str = "",
    case_keys: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    judge: LanguageModel | None = None,
    campaign: Campaign | None = None,
    rules: RunRules | None = None,
    version: int | None = None,
    baseline: Run | None = None,
    owner_id: str = "",
    form_key: str = "",
) -> Run:
    """Create a run with its frozen snapshot and its waiting results, and queue it on commit.

    Without a judge the suite's is used. `rules` are changes for this run; the snapshot stores them under
    "changed", and the choice of cases under "asked". `version` is the version of the suite that the user
    saw; the start is refused if it is another now. Evaluators that compare outputs with a baseline use those of the
    `baseline`, without one those of the suite's baseline. `owner_id` is the name of a process that executes the
    run alone: it claims under the run's owner id and sends the run's heartbeat.
    The audit log stores the `form_key`, so that no form starts anything twice.
    Raises DomainError with the reason.
    """
    judge = judge or suite.judge
    at_once = suggested_concurrency(target, judge) if concurrency is None else concurrency
    limits = Limits(repetitions, at_once, budget_usd, max_minutes)
    with transaction.atomic():
        suite = lock_suite(suite)
        _check_version(suite, version)
        cases = chosen_cases(suite, case_keys, tags)
        rule = apply_rules(suite.spec, rules or RunRules())
        check_recorded(target, cases)
        plan = make_plan(suite, target, judge, cases, rule, started_by, baseline)
        check_budget(plan, budget_usd)
        choices = _choices(case_keys, tags, rules, baseline)
        snapshot = plan.as_json() | ({CHANGED: list(rule.changed)} if rule.changed else {})
        snapshot |= {ASKED: choices} if choices else {}
        count = len(cases) * limits.repetitions
        run = create_run(suite, target, plan, limits, len(cases), count, snapshot)
        run.note, run.campaign, run.created_by = note[:300], campaign, started_by
        run.save(update_fields=("note", "campaign", "created_by"))
        awaits = target_kind(target).awaits
        values = (
            (case.pk, position, repetition, awaits)
            for position, case in enumerate(cases)
            for repetition in range(1, run.repetitions + 1)
        )
        columns = ("case_id", "position", "repetition", "awaits_output")
        create_results(run, [case.pk for case in cases], columns, values)
        copy_baseline_outputs(run, plan)
        if owner_id:
            run.assign_to(owner_id, now=database_now())
            run.save(update_fields=OWNER_COLUMNS)
        else:
            transaction.on_commit(partial(queue_workers, run))
        audit_start(run, suite, started_by, form_key)
    return run


def check_start(
    *,
    suite: Suite,
    targets: Sequence[Target],
    cases: Sequence[Case],
    started_by: User | None,
    judge: LanguageModel | None,
    budget_usd: Decimal | None,
    rule: AppliedRules,
    baseline: Run | None = None,
) -> None:
    """Raise the DomainError that start_run would raise for one of the targets; start nothing.

    One case of each kind suffices; whether outputs are recorded for the cases is not checked.
    """
    for target in targets:
        plan = make_plan(suite, target, judge or suite.judge, cases, rule, started_by, baseline)
        check_budget(plan, budget_usd)


def _check_version(suite: Suite, version: int | None) -> None:
    if version is not None and version != suite.version:
        raise SuiteChangedError(
            f"{suite.title} has changed: it is at version {suite.version} now, and this form was opened "
            f"at version {version}. Nothing was started. Check the form and start again."
        )


def _choices(
    keys: Sequence[str] | None,
    tags: Sequence[str] | None,
    rules: RunRules | None,
    baseline: Run | None,
) -> dict[str, Any]:
    """Return the choices needed to repeat the run; the keys of cases are in the results."""
    choices: dict[str, Any] = {} if tags is None else {"tags": list(tags)}
    if keys is not None:
        choices["cases"] = "chosen"
    if rules is not None and rules.samples is not None:
        choices["samples"] = rules.samples
    if baseline is not None:
        choices[BASELINE] = baseline.number
    return choices


def check_budget(plan: Plan, budget_usd: Decimal | None) -> None:
    """Refuse a budget that calls without a price would never reach."""
    if budget_usd is None:
        return
    for facts in plan.models.values():
        if facts["prices"] is None:
            raise CannotStartError(
                f"There are no prices for {facts['name']}, so a budget cannot limit its cost. Enter them "
                "under Language models, or start without a budget."
            )


def audit_start(
    run: Run, suite: Suite, started_by: User | None, form_key: str, **more: str
) -> None:
    """Record the start of a run; `more` are facts that only some runs have."""
    nobody = COMMAND_LINE if run.owner_id else ""
    facts = {"target": run.target_name, "results": run.execution_count, "note": run.note, **more}
    if changed := run.snapshot.get(CHANGED):
        facts["changed"] = changed
    AuditEntry.objects.record(
        "start",
        by=started_by,
        nobody=nobody,
        object_type="run",
        object_id=run.pk,
        object_name=f"{suite.slug} #{run.number}",
        after=facts | ({"form": form_key} if form_key else {}),
    )


def suggested_concurrency(target: Target, judge: LanguageModel | None) -> int:
    """Return the concurrency that the target and its models allow."""
    limits = [model.concurrency for model in (target.model, judge) if model is not None]
    if isinstance(own := target.config.get("concurrency"), int):
        limits.append(own)
    return min(limits, default=DEFAULT_CONCURRENCY)


def create_run(
    suite: Suite,
    target: Target | None,
    plan: Plan,
    limits: Limits,
    case_count: int,
    execution_count: int,
    snapshot: Mapping[str, Any],
) -> Run:
    """Create the row of a run; the caller holds the suite and creates the results.

    Raises CannotStartError for too many.
    """
    check_size(execution_count)
    return Run.objects.create(
        suite=suite,
        number=suite.next_run_number(),
        target=target,
        target_name=plan.target.name,
        judge_name=judges_text(plan),
        is_scripted=any(model["is_scripted"] for model in plan.models.values()),
        suite_version=plan.suite["version"],
        repetitions=limits.repetitions,
        concurrency=limits.concurrency,
        budget_usd=limits.budget_usd,
        max_minutes=limits.max_minutes or suite.max_minutes,
        case_count=case_count,
        execution_count=execution_count,
        snapshot_hash=content_hash(snapshot),
        snapshot=snapshot,
    )


def create_results(
    run: Run,
    cases: Iterable[int],
    names: Sequence[str],
    values: Iterable[Sequence[Any]],
    *,
    paid: Mapping[int, Sequence[Decimal | None]] | None = None,
) -> None:
    """Create the waiting results of a run, with these columns of each, and the states of its cases, named by id.

    `paid` is that of `RunCase.objects.add_open`.
    """
    fields = [field for field in Result._meta.concrete_fields if not field.primary_key]
    columns = [field.attname for field in fields]
    row = [None if field.null else field.get_default() for field in fields]
    row[columns.index("run_id")] = run.pk
    places = [columns.index(name) for name in names]

    def rows() -> Iterator[list[Any]]:
        for own in values:
            for place, value in zip(places, own, strict=True):
                row[place] = value
            yield row

    insert_rows(Result, columns, rows())
    RunCase.objects.add_open(run, ((case, place) for place, case in enumerate(cases)), paid)


# A form that is sent again after this many starts by the same user counts as a new one.
STARTS_REMEMBERED = 200
MAX_NAME_LENGTH = 200


class NoTargetError(DomainError):
    """No target was named."""

    code = "no_target"


class CampaignNotActiveError(DomainError):
    """All runs of the campaign are over already."""

    code = "campaign_not_active"


def start_campaign(
    *,
    suite: Suite,
    targets: Sequence[Target],
    started_by: User | None,
    name: str = "",
    form_key: str = "",
    **choices: Any,
) -> list[Run]:
    """Start a run for each target, all or none; several runs are a campaign.

    `choices` are those of start_run. `form_key` is unique for every form that is shown: a form that is
    sent twice returns the runs of the first time. Raises DomainError with the reason.
    """
    chosen = list({target.pk: target for target in targets}.values())
    if not chosen:
        raise NoTargetError("No target is named. Choose at least one.")
    if len(chosen) > MAX_CAMPAIGN_RUNS:
        raise CannotStartError(
            f"That would be {thousands(len(chosen))} runs; up to {MAX_CAMPAIGN_RUNS} are started together. "
            "Choose fewer targets."
        )
    with transaction.atomic():
        # A form that is sent twice at the same time waits here and then finds the first one's runs.
        lock_suite(suite)
        if found := started_before(form_key, started_by):
            return found
        campaign = None
        if len(chosen) > 1:
            campaign = Campaign.objects.create(
                suite=suite, name=name.strip()[:MAX_NAME_LENGTH], created_by=started_by
            )
        runs: list[Run] = []
        for target in chosen:
            runs.append(
                start_run(
                    suite=suite,
                    target=target,
                    started_by=started_by,
                    campaign=campaign,
                    form_key=form_key,
                    **choices,
                )
            )
            # The run of each target has as many results.
            check_size(runs[0].execution_count * len(chosen))
        return runs


def stop_campaign(campaign: Campaign, *, stopped_by: User | None) -> int:
    """End every active run, keep what is finished, and return how many were ended.

    Raises CampaignNotActiveError when all are over already.
    """
    stopped = 0
    with transaction.atomic():
        active = campaign.runs.filter(status__in=ACTIVE_RUN_STATUSES).order_by("pk")
        for run in active.defer("snapshot", "summary", "leaf_scores"):
            try:
                stop_run(run, stopped_by=stopped_by)
            except RunNotActiveError:
                # It has just ended by itself.
                continue
            stopped += 1
    if not stopped:
        raise CampaignNotActiveError("All runs have already ended.")
    return stopped


def rename_campaign(campaign: Campaign, name: str, *, renamed_by: User) -> None:
    """Give a campaign another name, "" for none."""
    before, campaign.name = campaign.name, name.strip()[:MAX_NAME_LENGTH]
    if before == campaign.name:
        return
    with transaction.atomic():
        campaign.save(update_fields=("name",))
        AuditEntry.objects.record(
            "rename",
            by=renamed_by,
            object_type="campaign",
            object_id=campaign.pk,
            object_name=campaign.name,
            before={"name": before},
            after={"name": campaign.name},
        )


def started_before(form_key: str, user: User | None) -> list[Run]:
    """Return the runs that the same form has started before."""
    if not form_key:
        return []
    starts = AuditEntry.objects.filter(actor=user, action="start", object_type="run")
    lately = starts.order_by("-id").values_list("object_id", "after")[:STARTS_REMEMBERED]
    numbers = [int(pk) for pk, after in lately if (after or {}).get("form") == form_key]
    return list(Run.objects.select_related("suite").filter(pk__in=numbers).order_by("pk"))
