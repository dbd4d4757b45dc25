"""A result as a document: one case and one repetition, for lists and the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from evaluators.scoring.numbers import combined_cost, rounded
from runs.costs import CostPair, booked_usd, read_result_costs
from runs.documents import Document, Dollars, TextOrNone, VerdictOrNone
from runs.models.results import OPEN_RESULT_STATUSES, Result, ResultStatus
from runs.models.runs import Run
from runs.results.external_scores import ExternalScoreDoc
from runs.results.result_page import ResultPage, result_page
from runs.results.result_state import cause_text, result_url
from runs.results.result_tree import ResultMetrics, TreeNode
from runs.suites.documents import CaseDetailDoc
from runs.texts import MAX_SHOWN_LENGTH

EvaluatorState = Literal["scored", "unscored", "skipped", "open"]
# The beginning of a long text.
Shortened = Annotated[str, BeforeValidator(lambda text: text[:MAX_SHOWN_LENGTH])]


class ResultDoc(Document):
    """One case and one repetition, as lists show it."""

    id: int
    """Its id."""
    run_id: int
    """The id of its run."""
    case: str
    """The key of its case."""
    case_revision: int
    """The revision of the case that was executed."""
    title: str
    """The title of the case."""
    tags: list[str]
    """The tags of the case."""
    repetition: int
    """Which repetition of the case it is, from 1."""
    url: str
    """The path of its page."""
    status: ResultStatus
    """The status of the work."""
    verdict: VerdictOrNone
    """Its verdict; null without one."""
    reviewed_verdict: VerdictOrNone
    """The verdict of reviewers; null without one."""
    score: float | None
    """The final score, 0 to 1; null without one, never 0."""
    decided_by: TextOrNone
    """The rule and the numbers that decided."""
    outcomes_met: int | None
    """How many expected outcomes were met."""
    outcomes_total: int | None
    """Of how many; null where none were judged."""
    error: TextOrNone
    """Why it errored; null where it did not."""
    error_stage: TextOrNone
    """Where it errored."""
    warnings: list[str]
    """Warnings for its reader."""
    attempt: int
    """How often it was tried in its generation; 0 before the first attempt."""
    generation: int
    """How often it was requested, from 1."""
    started_at: datetime | None
    """When work on it began."""
    finished_at: datetime | None
    """When it ended."""
    latency_ms: int | None
    """How long the target took, milliseconds."""
    input_tokens: int | None
    """The target's input tokens."""
    output_tokens: int | None
    """The target's output tokens."""
    run_cost_usd: Dollars | None
    """What the target cost, US dollars; null where nothing is known."""
    evaluation_cost_usd: Dollars | None
    """What the judges cost, US dollars; null where nothing is known."""
    total_cost_usd: Dollars | None
    """What is known of both costs, US dollars; null where nothing is known."""


class OutputDoc(Document):
    """The answer of the target."""

    text: str
    """The answer, cut after 20,000 characters."""
    characters: int
    """How long the whole answer is."""
    is_cut: bool
    """Whether there is more; /output gives the whole answer."""
    removed_at: datetime | None = None
    """When the answer was removed; its text is empty since."""
    removed_by: str | None = None
    """Who removed it: a member, or "retention" for the rule of the suite or the site."""


class WholeOutputDoc(Document):
    """The whole answer of the target."""

    text: str
    """The answer."""
    characters: int
    """How long it is."""


class FindingDoc(Document):
    """A hit or a miss of an evaluator."""

    text: str
    """What was looked for."""
    passed: bool
    """Whether it was found."""
    evidence: str = ""
    """Where it was found; empty where that is not known."""


class EvaluationDoc(Document):
    """What an evaluator recorded, before a negation."""

    path: str
    """Its place in the tree."""
    raw_score: float | None
    """Its score on its own scale."""
    scale: float
    """The maximum of that scale."""
    reasoning: Shortened
    """Why, cut after 20,000 characters."""
    findings: list[FindingDoc]
    """Its hits and misses."""
    warnings: list[str]
    """Warnings for its reader."""
    details: dict[str, Any]
    """The parts its kind makes the score of."""
    latency_ms: int | None
    """How long it took, milliseconds."""
    input_tokens: int | None
    """Input tokens."""
    output_tokens: int | None
    """Output tokens."""
    cost_usd: Dollars | None
    """What it cost, US dollars; null where nothing is known."""


class NodeDoc(Document):
    """An evaluator in the tree that led to the verdict."""

    name: str
    """Its name."""
    path: str
    """Its place in the tree; empty for the root."""
    kind: str
    """Its kind."""
    label: str
    """Its kind in words."""
    weight: float
    """Its weight among its siblings."""
    is_negated: bool
    """Whether its score counts as 1 minus the score."""
    pass_mark: float | None
    """The score from which on it is shown as good, 0 to 1; null without one."""
    reaches_mark: bool | None
    """Whether its score is at or above the pass mark; null without either."""
    state: EvaluatorState
    """Whether it scored."""
    score: float | None
    """Its score as it counts, 0 to 1; null without one."""
    verdict: VerdictOrNone
    """The verdict that follows from its score; null without one."""
    note: str
    """Why there is no score; empty with one."""
    arithmetic: str
    """How its score follows from its children."""
    is_decisive: bool
    """Whether it is on the path that decided the verdict."""
    evaluation: EvaluationDoc | None
    """What it recorded; null where it recorded nothing."""
    children: list[NodeDoc]
    """The evaluators under it."""

    @classmethod
    def make(cls, node: TreeNode) -> NodeDoc:
        """Describe an evaluator and everything under it."""
        return cls(
            name=node.name,
            path=node.path,
            kind=node.kind,
            label=node.label,
            weight=node.weight,
            is_negated=node.is_negated,
            pass_mark=node.pass_mark,
            reaches_mark=node.reaches_mark,
            state=node.state,
            score=None if node.score is None else rounded(node.score),
            verdict=node.verdict,
            note=node.note,
            arithmetic=node.arithmetic,
            is_decisive=node.is_decisive,
            evaluation=node.row,
            children=[cls.make(child) for child in node.children],
        )


class TraceStepDoc(Document):
    """A step on the way to the verdict."""

    text: str
    """What was found."""
    path: str | None
    """The evaluator it is about."""
    passed: bool | None
    """Whether the step was passed; null where nothing was tested."""


class FlipDoc(Document):
    """The smallest change that would lead to another verdict."""

    text: str
    """The change in words."""
    path: str | None
    """The evaluator whose score would have to rise."""
    from_score: float | None
    """Its score, 0 to 1."""
    to_score: float | None
    """The score it would need, 0 to 1."""
    verdict: VerdictOrNone
    """The verdict that would be reached."""
    outcomes: list[str]
    """The expected outcomes that are still missed."""


class OutcomeDoc(Document):
    """An expected outcome."""

    text: str
    """What was expected."""
    passed: bool
    """Whether it was met."""
    justification: str | None = None
    """Why; null where no reason was given."""


class MetricScoreDoc(Document):
    """The score of a metric."""

    name: str
    """Its name."""
    tier: TextOrNone
    """Its tier; null without one."""
    score: float
    """0 to 5."""
    is_binary: bool
    """Whether it is only 0 or 5."""
    share: float
    """Its share of the weights, 0 to 1."""


class EvaluatorMetricsDoc(Document):
    """The metrics that one evaluator scored."""

    path: str
    """The evaluator's place in the tree."""
    score: float
    """The evaluator's score, 0 to 1."""
    metrics: list[MetricScoreDoc]
    """Each metric, tier by tier."""

    @classmethod
    def make(cls, judged: ResultMetrics) -> EvaluatorMetricsDoc:
        """Describe the metrics of one evaluator."""
        metrics = [
            MetricScoreDoc(
                name=bar.name,
                tier=tier.name,
                score=bar.score,
                is_binary=bar.binary,
                share=bar.share,
            )
            for tier in judged.tiers
            for bar in tier.bars
        ]
        return cls(path=judged.path, score=rounded(judged.score), metrics=metrics)


class CallCostDoc(Document):
    """The calls of the target, or of the evaluation, of one result."""

    usd: Dollars | None
    """What they cost, US dollars; null where nothing is known."""
    calls: int
    """How many there were."""
    failed: int
    """How many failed."""
    answers: int
    """How many were answered."""
    priced: int
    """How many answers have a known price."""
    input_tokens: int | None
    """Input tokens."""
    output_tokens: int | None
    """Output tokens."""
    is_partial: bool
    """Whether more was spent than is known."""


class CallCostsDoc(Document):
    """The two costs of a result."""

    run: CallCostDoc
    """The target's."""
    evaluation: CallCostDoc
    """The evaluation's."""


class AttemptDoc(Document):
    """One attempt at a result."""

    name: str
    """Which attempt."""
    is_current: bool
    """Whether it is the one that counts."""
    state: str
    """Its verdict, or its status without one."""
    score: float | None
    """Its score, 0 to 1; null without one."""
    reason: str
    """Its error, otherwise what decided."""
    cost_usd: Dollars | None
    """What it cost, US dollars; null where nothing is known."""
    calls: int
    """How many calls it made."""
    at: datetime | None
    """When it ended."""
    id: int | None
    """Its id, to let it count; null for the newest while it counts."""
    can_count: bool
    """Whether it can be chosen: its output and scores are stored, and it does not count."""
    counted_by: str
    """Who chose that it counts; empty for an attempt that was not chosen."""
    counted_reason: str
    """Why."""


class ReviewDoc(Document):
    """The decision of one reviewer on a result."""

    by: str
    """Who decided."""
    imported_by: str
    """Who imported it from a file; empty for a decision made here."""
    at: datetime | None
    """When."""
    verdict: VerdictOrNone
    """The decision."""
    machine_verdict: VerdictOrNone = Field(validation_alias="machine")
    """The verdict of the evaluators at that time."""
    note: str
    """Why."""
    tags: list[str]
    """Causes of failure."""
    outcome_marks: str = Field(validation_alias="marks")
    """One character for each expected outcome: 1 met, 0 missed, - not marked; empty without marks."""
    metric_labels: dict[str, int] = Field(validation_alias="labels")
    """The reviewer's score of each metric, 0 to 5, by its key."""
    counts: Annotated[bool, BeforeValidator(lambda state: not state)] = Field(
        validation_alias="state"
    )
    """Whether it counts: it was not withdrawn and is about the present output."""


class FileDoc(Document):
    """A file that the target left."""

    path: str
    """Its path."""
    bytes: int = Field(validation_alias="size")
    """Its size, bytes."""


class ResultDetailDoc(ResultDoc):
    """A result in full."""

    is_open: bool
    """True while it is running."""
    case_content: CaseDetailDoc
    """The case in the revision that was executed."""
    output: OutputDoc | None
    """The answer; null without one."""
    conversation: list[dict[str, Any]]
    """Question and answer as messages, long texts cut."""
    steps: list[dict[str, Any]] | None
    """The first 300 steps that the target reported; null where it reported none."""
    step_count: int
    """How many steps there are."""
    cause: TextOrNone
    """Why it has its verdict, in a sentence, and what would change it; null while it is open."""
    rule: str | None
    """The rule that decided, in one word."""
    trace: list[TraceStepDoc]
    """The steps to the verdict."""
    flip: FlipDoc | None
    """What would have changed the verdict."""
    tree: NodeDoc
    """The evaluators and their scores."""
    outcomes: list[OutcomeDoc]
    """The expected outcomes as they were judged."""
    outcomes_judge: EvaluationDoc | None
    """The evaluation that judged the outcomes."""
    metrics: list[EvaluatorMetricsDoc]
    """The metrics of 0 to 5."""
    costs: CallCostsDoc
    """What it cost over all its attempts."""
    attempts: list[AttemptDoc]
    """Its attempts, newest first; empty with one."""
    external_scores: list[ExternalScoreDoc]
    """The scores of other tools, by source and name; they never count in the verdict."""
    reviews: list[ReviewDoc]
    """The decisions of reviewers, newest first."""
    files: list[FileDoc]
    """The files that the target left."""


def result_documents(run: Run, results: Sequence[Result]) -> list[ResultDoc]:
    """Describe results whose cases were read with them; one query."""
    costs = read_result_costs(run, results)
    return [ResultDoc(**_fields(run, result, costs[result.pk])) for result in results]


def result_detail_document(run: Run, result: Result) -> ResultDetailDoc:
    """Describe a result in full; texts are cut to 20,000 characters."""
    page = result_page(run, result.case.key, result.repetition)
    decision, history = page.decision, page.reviews
    decisions = [*history.standing, *history.past] if history else []
    return ResultDetailDoc(
        **_fields(run, page.result, page.costs),
        is_open=page.result.status in OPEN_RESULT_STATUSES,
        case_content=page.case,
        output=_output(page),
        conversation=[dict(turn) for turn in page.turns.messages],
        steps=None if page.steps is None else [dict(step) for step in page.steps],
        step_count=page.step_count,
        cause=cause_text(page.cause, page.result, page.policy),
        rule=decision.rule if decision else None,
        trace=decision.trace if decision else [],
        flip=decision.flip if decision else None,
        tree=NodeDoc.make(page.tree),
        outcomes=page.outcomes,
        outcomes_judge=page.outcomes_row,
        metrics=[EvaluatorMetricsDoc.make(judged) for judged in page.judged],
        costs=page.costs,
        attempts=page.attempts,
        external_scores=page.external_scores,
        reviews=sorted(decisions, key=attrgetter("at"), reverse=True),
        files=page.files,
    )


def _fields(run: Run, result: Result, costs: CostPair) -> dict[str, Any]:
    marks = result.outcome_marks
    has_score = result.status == ResultStatus.SCORED and result.score is not None
    run_usd, evaluation_usd = booked_usd(result, costs)
    columns = (
        *("repetition", "status", "verdict", "reviewed_verdict", "decided_by", "error"),
        *("error_stage", "warnings", "attempt", "generation", "started_at", "finished_at"),
        *("latency_ms", "input_tokens", "output_tokens"),
    )
    return {
        **{column: getattr(result, column) for column in columns},
        "id": result.pk,
        "run_id": run.pk,
        "case": result.case.key,
        "case_revision": result.case.revision,
        "title": result.case.title,
        "tags": result.case.tags,
        "url": result_url(run, result.case.key, result.repetition),
        "score": rounded(result.score) if has_score and result.score is not None else None,
        "outcomes_met": marks.count("1") if marks else None,
        "outcomes_total": len(marks) if marks else None,
        "run_cost_usd": run_usd,
        "evaluation_cost_usd": evaluation_usd,
        "total_cost_usd": combined_cost(run_usd, evaluation_usd),
    }


def _output(page: ResultPage) -> OutputDoc | None:
    if page.removal_message:
        stored = page.result.output
        by, at = stored.removed_by, stored.removed_at
        return OutputDoc(text="", characters=0, is_cut=False, removed_at=at, removed_by=by)
    if not page.has_answer:
        return None
    return OutputDoc(
        text=page.output_text,
        characters=page.output_size,
        is_cut=page.output_size > MAX_SHOWN_LENGTH,
    )
