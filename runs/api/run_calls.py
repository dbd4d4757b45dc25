"""The calls that start runs, stop, resume and retry them, and push outputs into them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.models import LanguageModel
from runs.api.bodies import (
    ChooseAttemptBody,
    JudgeAgainBody,
    MeasureJudgeBody,
    PushOutputsBody,
    PushScoresBody,
    ResumeBody,
    RetryBody,
    RulesBody,
    RunChoicesBody,
    StartJudgingBody,
    StartRunsBody,
    UnusableBodyError,
    pointer,
)
from runs.api.params import ListRequest, get_run
from runs.api.queries import BY_EXECUTION, get_result
from runs.api.schema import RESULT, RUN, reads, writes
from runs.documents import Document, Dollars
from runs.filters.queries import ResultsQuery
from runs.lists import ListQuery
from runs.models.results import Result, ResultStatus
from runs.models.runs import Run
from runs.models.suites import Suite, SuiteDraft, Target
from runs.results.documents import RunDetailDoc, RunDoc, run_detail_document, run_document
from runs.results.result_documents import ResultDetailDoc, result_detail_document
from runs.running.attempts import choose_attempt
from runs.running.estimate import CaseChoice, EstimateRequest, estimate
from runs.running.external_scores import push_scores
from runs.running.judging_again import judge_again
from runs.running.judging_estimate import estimate_judging
from runs.running.judging_plan import JudgingRequest, plan_judging
from runs.running.measuring import MeasuringRequest, measure_judge, plan_measuring
from runs.running.pushing import Push, close_run, push_outputs
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.running.rules import RunRules, apply_rules
from runs.running.services import start_campaign, suggested_concurrency
from runs.specs.external_scores import GivenScore

MAY_START = "runs.start_run"
AWAITED_CASE = [f"case__{name}" for name in ("key", "title", "tags", "input", "metadata")]


class StartedRunsDoc(Document):
    """The runs that were started."""

    campaign: int | None
    """The id of the campaign that several runs became; null for one."""
    runs: list[RunDoc]
    """The runs, in the order of the targets."""


@writes(
    "Start runs", StartedRunsDoc, body=StartRunsBody, permission=MAY_START, tag="runs", status=201
)
def start_runs(request: Request, body: StartRunsBody) -> StartedRunsDoc:
    """Start a run of a suite against each target, all or none; several are a campaign.

    What decides the runs is frozen now: evaluators, policy, models and prices. Against a target of the kind
    “Pushed outputs” the run waits for the outputs that you push.
    """
    suite, targets, judge, baseline = _named(body)
    runs = start_campaign(
        suite=suite,
        targets=targets,
        started_by=_member(request),
        name=body.campaign,
        repetitions=body.repetitions,
        concurrency=body.concurrency,
        budget_usd=body.budget_usd,
        max_minutes=body.max_minutes,
        note=body.note,
        tags=body.tags,
        case_keys=body.cases,
        judge=judge,
        rules=_rules(body.rules),
        version=body.version,
        baseline=baseline,
    )
    documents = [run_document(get_run(str(run.pk))) for run in runs]
    return StartedRunsDoc(campaign=runs[0].campaign_id, runs=documents)


class EstimateDoc(Document):
    """What runs would cost and how long they would take, from past runs; null without any."""

    runs: int
    """How many runs."""
    results: int = Field(validation_alias="executions")
    """How many results all of them have."""
    target_calls: int
    """How many of them ask a target."""
    judge_calls: int
    """How many calls of judges, at most."""
    target_cost_usd: Dollars | None = Field(validation_alias="run_usd")
    """What the targets would cost, US dollars."""
    judge_cost_usd: Dollars | None = Field(validation_alias="evaluation_usd")
    """What the judges would cost, US dollars."""
    total_cost_usd: Dollars | None = Field(validation_alias="total_usd")
    """Both, US dollars."""
    duration_ms: float | None
    """How long they would take, milliseconds."""
    basis: str
    """The past runs behind it; "" for none."""
    warnings: list[str]
    """Warnings, such as a judge of the target's model family."""


@writes("Estimate runs", EstimateDoc, body=RunChoicesBody, permission=MAY_START, tag="runs")
def estimate_runs(request: Request, body: RunChoicesBody) -> EstimateDoc:
    """Estimate cost and time of runs without starting them."""
    suite, targets, judge, baseline = _named(body)
    applied = apply_rules(suite.spec, _rules(body.rules))
    choice = CaseChoice(body.tags or (), body.cases)
    current = suite.cases.filter(is_current=True).order_by()
    outcomes_of_cases = list(choice.of(current).values_list("expected_outcomes", flat=True))
    found = estimate(
        EstimateRequest(
            suite=suite,
            root=applied.root,
            policy=applied.policy,
            targets=targets,
            cases=len(outcomes_of_cases),
            with_outcomes=sum(map(bool, outcomes_of_cases)),
            repetitions=body.repetitions,
            concurrency=body.concurrency or suggested_concurrency(targets[0], judge),
            judge=judge or suite.judge,
            budget_usd=body.budget_usd,
            choice=choice,
            baseline=baseline,
        )
    )
    return EstimateDoc.model_validate(found)


class EvaluatorEstimateDoc(Document):
    """What becomes of the scores of one evaluator."""

    evaluator: str = Field(validation_alias="path")
    """Its path."""
    kept: int
    """How many scores are kept at no cost."""
    judged: dict[str, int]
    """How many are judged anew, by the reason."""
    judge_calls: int = Field(validation_alias="calls")
    """How many calls of judges that takes, at most."""


class JudgingEstimateDoc(Document):
    """What judging the outputs of one run again would do and cost."""

    text: str
    """What is kept, what is asked and what that costs, in a sentence."""
    results: int
    """How many results are judged."""
    chosen: int = Field(validation_alias="total")
    """Of how many that were chosen."""
    left_out: list[str]
    """Why the others are not, a sentence for each reason."""
    warnings: list[str]
    """Evaluators that will have no score, and the remedy."""
    scores: int
    """How many scores there will be."""
    kept: int
    """How many of them are kept at no cost."""
    evaluators: list[EvaluatorEstimateDoc]
    """The same by evaluator."""
    judge_calls: int = Field(validation_alias="calls")
    """How many calls of judges, at most."""
    judge_cost_usd: Dollars | None = Field(validation_alias="cost_usd")
    """What they would cost, US dollars; null if the run does not tell."""
    duration_ms: float | None
    """How long they would take, milliseconds."""
    basis: str
    """What the estimate rests on; "" for nothing."""
    reason: str
    """Why the cost is not known; "" if it is."""


class JudgingEstimatesDoc(Document):
    """What judging again would do, for each run."""

    runs: list[JudgingEstimateDoc]
    """The runs, in the order of the request."""


@writes(
    "Judge stored outputs again",
    StartedRunsDoc,
    body=StartJudgingBody,
    permission=MAY_START,
    tag="runs",
    status=201,
)
def judge_runs_again(request: Request, body: StartJudgingBody) -> StartedRunsDoc:
    """Judge the outputs of finished runs again, without asking their target: by another version, judge or draft.

    Each becomes a new run that names its source. An evaluator whose question is the same keeps its scores at no
    cost. Decisions of reviewers stay with the old scores.
    """
    sources, judging = _judging(request, body)
    judging = replace(judging, max_minutes=body.max_minutes, note=body.note)
    runs = judge_again(sources, judging, by=_member(request))
    documents = [run_document(get_run(str(run.pk))) for run in runs]
    return StartedRunsDoc(campaign=runs[0].campaign_id, runs=documents)


@writes(
    "Estimate judging again",
    JudgingEstimatesDoc,
    body=JudgeAgainBody,
    permission=MAY_START,
    tag="runs",
)
def estimate_judging_again(request: Request, body: JudgeAgainBody) -> JudgingEstimatesDoc:
    """Say which scores would be kept, which judged, and what that would cost; nothing is started."""
    sources, judging = _judging(request, body)
    plans = [plan_judging(source, judging, _member(request)) for source in sources]
    return JudgingEstimatesDoc.model_validate({"runs": [estimate_judging(plan) for plan in plans]})


def _judging(request: Request, body: JudgeAgainBody) -> tuple[list[Run], JudgingRequest]:
    """Return the runs and what judges them; raises UnusableBodyError for what is unknown or contradicts itself."""
    errors: dict[str, list[str]] = {}
    sources = []
    for place, name in enumerate(body.outputs_of):
        try:
            sources.append(get_run(name))
        except NotFound as error:
            errors[pointer("outputs_of", place)] = [str(error.detail)]
    judge, draft = _judge(body.judge, errors), None
    baseline = _baseline(body.baseline, errors)
    if body.draft and body.version is not None:
        errors[pointer("version")] = [
            "A draft has the version that it is based on; name one of both."
        ]
    elif body.draft and sources:
        draft = SuiteDraft.objects.filter(suite=sources[0].suite, author=_member(request)).first()
        if draft is None:
            errors[pointer("draft")] = [f"You have no draft of {sources[0].suite.slug}."]
    if errors:
        raise UnusableBodyError(errors)
    return sources, JudgingRequest(
        version=body.version,
        draft=draft,
        judge=judge,
        baseline=baseline,
        keys=body.cases,
        query=ResultsQuery(text=body.filter) if body.filter else None,
        rules=_rules(body.rules),
        asks_again=body.ask_again,
        concurrency=body.concurrency,
        budget_usd=body.budget_usd,
    )


@writes(
    "Measure the judge of a run",
    RunDoc,
    body=MeasureJudgeBody,
    permission=MAY_START,
    path=[RUN],
    tag="runs",
    status=201,
)
def measure_run_judge(request: Request, body: MeasureJudgeBody, run: str) -> RunDoc:
    """Judge some results of a finished run more times, to say how far its judge differs from itself.

    The measurement is a run of its own with its own cost. Its figures are the `judge_spread` of the run.
    """
    asked = MeasuringRequest(body.results, body.times, body.budget_usd)
    started = measure_judge(get_run(run), asked, by=_member(request))
    return run_document(get_run(str(started.pk)))


@writes(
    "Estimate measuring the judge",
    JudgingEstimateDoc,
    body=MeasureJudgeBody,
    permission=MAY_START,
    path=[RUN],
    tag="runs",
)
def estimate_measuring(request: Request, body: MeasureJudgeBody, run: str) -> JudgingEstimateDoc:
    """Say what a measurement would ask and cost; nothing is started, and another draw may cost a little more."""
    asked = MeasuringRequest(body.results, body.times, body.budget_usd)
    plan = plan_measuring(get_run(run), asked, _member(request))
    return JudgingEstimateDoc.model_validate(estimate_judging(plan))


@writes("Stop a run", RunDetailDoc, permission=MAY_START, path=[RUN], tag="runs")
def stop(request: Request, run: str) -> RunDetailDoc:
    """End an active run; results that are finished stay. It can be resumed."""
    stop_run(get_run(run), stopped_by=_member(request))
    return run_detail_document(get_run(run))


class RequeuedDoc(Document):
    """How many results wait again."""

    results: int
    """How many."""


@writes(
    "Resume a run",
    RequeuedDoc,
    body=ResumeBody,
    permission=MAY_START,
    path=[RUN],
    tag="runs",
)
def resume(request: Request, body: ResumeBody, run: str) -> RequeuedDoc:
    """Resume a run that ended early: what is left is executed."""
    count = resume_run(get_run(run), resumed_by=_member(request), budget_usd=body.budget_usd)
    return RequeuedDoc(results=count)


@writes(
    "Rerun or rescore results",
    RequeuedDoc,
    body=RetryBody,
    permission=MAY_START,
    path=[RUN],
    tag="runs",
)
def retry(request: Request, body: RetryBody, run: str) -> RequeuedDoc:
    """Rerun results in place, or rescore their outputs; earlier results are kept as attempts."""
    count = retry_results(
        get_run(run),
        asked_by=_member(request),
        which=body.which,
        result_ids=body.results,
        keep_output=body.keep_output,
        paths=body.evaluators,
        budget_usd=body.budget_usd,
    )
    return RequeuedDoc(results=count)


@writes(
    "Choose the attempt that counts",
    ResultDetailDoc,
    body=ChooseAttemptBody,
    permission=MAY_START,
    path=[RESULT],
    tag="results",
)
def choose_result_attempt(
    request: Request, body: ChooseAttemptBody, result: int
) -> ResultDetailDoc:
    """Let another attempt at a result count, for a reason that stands in the audit; the run's figures follow."""
    found = get_result(result)
    attempt = found.attempts.select_related("result").filter(pk=body.attempt).first()
    if attempt is None:
        raise UnusableBodyError({pointer("attempt"): ["The result has no such attempt."]})
    choose_attempt(attempt, by=_member(request), reason=body.reason)
    found = get_result(result)
    return result_detail_document(found.run, found)


class AwaitedDoc(Document):
    """A result that waits for an output, with what the agent needs to know, and nothing that is expected."""

    case: str
    """The key of its case."""
    repetition: int
    """Which repetition."""
    title: str
    """The title of the case."""
    tags: list[str]
    """The tags of the case."""
    input: list[dict[str, Any]]
    """The messages to the agent, each with role and content."""
    metadata: dict[str, Any]
    """The metadata of the case."""

    @classmethod
    def make(cls, result: Result) -> AwaitedDoc:
        """Describe a result that was read with its case."""
        case = result.case
        return cls(
            case=case.key,
            repetition=result.repetition,
            title=case.title,
            tags=case.tags,
            input=case.input,
            metadata=case.metadata,
        )


@dataclass(frozen=True, slots=True)
class AwaitedQuery(ListQuery):
    """Which results that wait for an output are listed: all of the run."""


@reads("Awaited outputs", AwaitedDoc, lists=AwaitedQuery, path=[RUN], tag="runs")
def awaited(request: Request, run: str) -> Response:
    """List the results that wait for an output, in the order of the suite; none once the run is over."""
    params, found = ListRequest.read(request, AwaitedQuery), get_run(run)
    waiting = found.results.filter(status=ResultStatus.PENDING, awaits_output=True)
    rows = waiting.select_related("case").only("repetition", "position", "run_id", *AWAITED_CASE)
    return params.page(rows, BY_EXECUTION, lambda rows: [AwaitedDoc.make(row) for row in rows])


class RefusedPushDoc(Document):
    """An output that does not count."""

    place: int
    """Its place in the batch, from 0."""
    reason: str
    """Why it does not count."""


class PushedDoc(Document):
    """How many outputs of one batch were taken."""

    accepted: int
    """How many will be scored."""
    repeated: int
    """How many had been pushed before, so that nothing changed."""
    awaited: int
    """How many results of the run still wait for an output."""
    refused: list[RefusedPushDoc]
    """Those for results that are being scored, have a score, or got another output earlier in the batch."""


@writes(
    "Push outputs",
    PushedDoc,
    body=PushOutputsBody,
    permission=MAY_START,
    path=[RUN],
    tag="runs",
)
def outputs(request: Request, body: PushOutputsBody, run: str) -> PushedDoc:
    """Push outputs into a run that waits for them: in any order, in batches, safe to repeat.

    Each is scored as it comes, and the last one completes the run. One that cannot be read, or belongs to no
    case of the run, refuses the batch.
    """
    pushes = [Push(one.case, one.model_extra or {}, one.repetition) for one in body.outputs]
    return PushedDoc.model_validate(push_outputs(get_run(run), pushes))


class PushedScoresDoc(Document):
    """What became of the scores of one batch."""

    added: int
    """How many are new."""
    changed: int
    """How many replaced another of the same result, source and name."""
    unchanged: int
    """How many were there already."""


@writes(
    "Push scores of other tools",
    PushedScoresDoc,
    body=PushScoresBody,
    permission=MAY_START,
    path=[RUN],
    tag="runs",
)
def scores(request: Request, body: PushScoresBody, run: str) -> PushedScoresDoc:
    """Store scores that other tools gave to results, beside ours; they never count in a verdict.

    A score of the same result, source and name is replaced, so this is safe to repeat. A rerun that replaces an
    output removes its scores. One that cannot be read, or belongs to no case of the run, refuses the batch.
    """
    given = [
        GivenScore(**score.model_dump(exclude={"range"}), low=score.range[0], high=score.range[1])
        for score in body.scores
    ]
    return PushedScoresDoc.model_validate(push_scores(get_run(run), given, by=_member(request)))


class ClosedDoc(Document):
    """How many results got no output."""

    missing: int
    """How many results became errors because no output was pushed."""


@writes("Close a run for outputs", ClosedDoc, permission=MAY_START, path=[RUN], tag="runs")
def close(request: Request, run: str) -> ClosedDoc:
    """End the waiting for outputs: results without one become errors, and the run completes."""
    return ClosedDoc(missing=close_run(get_run(run), by=_member(request)))


def _member(request: Request) -> Any:
    return request.user


def _rules(body: RulesBody) -> RunRules:
    return RunRules(**dict(body))


def _judge(slug: str | None, errors: dict[str, list[str]]) -> LanguageModel | None:
    """Return the language model that judges, and note an unknown one."""
    judge = LanguageModel.objects.filter(slug=slug).first() if slug else None
    if slug and judge is None:
        errors[pointer("judge")] = [f"There is no language model {slug!r}."]
    return judge


def _baseline(name: str | None, errors: dict[str, list[str]]) -> Run | None:
    """Return the run that is named as the baseline; note in `errors` that there is none of the name."""
    if name is None:
        return None
    try:
        return get_run(name)
    except NotFound as error:
        errors[pointer("baseline")] = [str(error.detail)]
        return None


def _named(
    body: RunChoicesBody,
) -> tuple[Suite, list[Target], LanguageModel | None, Run | None]:
    """Return suite, targets, judge and baseline; raises UnusableBodyError for a name that is unknown."""
    errors: dict[str, list[str]] = {}
    suite = Suite.objects.select_related("judge").filter(slug=body.suite).first()
    if suite is None:
        errors[pointer("suite")] = [f"There is no suite {body.suite!r}."]
    by_name = {
        row.name: row
        for row in Target.objects.select_related("model").filter(name__in=body.targets)
    }
    for place, name in enumerate(body.targets):
        if name not in by_name:
            errors[pointer("targets", place)] = [f"There is no target {name!r}."]
    judge, baseline = _judge(body.judge, errors), _baseline(body.baseline, errors)
    if suite is None or errors:
        raise UnusableBodyError(errors)
    return suite, [by_name[name] for name in body.targets], judge, baseline
