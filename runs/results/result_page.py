"""One result in full: question and answer, attempts, calls, neighbours, and every step to the verdict."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.db.models import BooleanField, Count, ExpressionWrapper, Q, QuerySet, TextField
from django.db.models.functions import Cast, Left
from django.http import QueryDict
from django.urls import reverse

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.decision import Decision, VerdictCause
from evaluators.scoring.numbers import sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import thousands
from runs.costs import CostPair, result_costs
from runs.engine.plan import METRICS_KIND, case_tree, read_plan
from runs.filters.language import FilterError
from runs.filters.queries import (
    FROM_COMPARISON,
    FROM_LIST,
    CaseRow,
    Marks,
    ResultsQuery,
    hit_marks,
    in_state,
    is_read,
    matching_cases,
    ordered_cases,
)
from runs.lists import Key, Keyset, Sort
from runs.models.results import (
    OPEN_RESULT_STATUSES,
    REMOVED_HASH,
    Artifact,
    Attempt,
    CallStatus,
    ComparedOutput,
    EvaluatorScore,
    ModelCall,
    Result,
    ResultOutput,
    ResultStatus,
    Retry,
    ScoreState,
)
from runs.models.run_cases import LiveCases, execution_from, live_state, sorted_cases
from runs.models.runs import RESCORED, Run, RunStatus, removal_message
from runs.models.stored import read_executions
from runs.models.suites import Case
from runs.results.external_scores import ExternalScoreDoc, external_scores
from runs.results.result_state import (
    NO_STAGE,
    STAGES,
    ArtifactFile,
    Override,
    ReviewHistory,
    case_override,
    passed_words,
    result_cause,
    result_files,
    result_mark,
    result_override,
    result_url,
    review_history,
    row_mark,
)
from runs.results.result_tree import (
    FindingRow,
    ResultMetrics,
    TreeNode,
    outcomes_row,
    remarks,
    result_metrics,
    result_tree,
    walk_rows,
)
from runs.summary.cases import CaseSummary, summarise_case
from runs.summary.metrics import DimensionMean, MetricMean, dimension_means, metric_means
from runs.texts import MAX_SHOWN_LENGTH, DiffLine, Turns, conversation, cut_step, text_diff

RUNS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run of the case; `passed` says how many repetitions passed, "" for one repetition."""

    number: int
    url: str
    state: str
    score: float | None
    target: str
    is_this: bool
    passed: str
    override: Override | None


def case_history(run: Run, key: str) -> tuple[PastRun, ...]:
    """Return the case in up to twelve completed runs, oldest first, with this run."""
    runs = Run.objects.filter(suite=run.suite, results__case__key=key, number__lte=run.number)
    wanted = runs.filter(status=RunStatus.COMPLETED) | runs.filter(pk=run.pk)
    numbers = wanted.order_by("-number").values_list("number", flat=True).distinct()[:RUNS_SHOWN]
    rows = (
        Result.objects.filter(run__suite=run.suite, run__number__in=list(numbers), case__key=key)
        .order_by("run__number", "repetition")
        .values(
            *("run__number", "run__target_name", "run__snapshot__policy"),
            *("repetition", "status", "verdict", "score", "is_forced", "reviewed_verdict"),
        )
    )
    by_run: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_run[row["run__number"]].append(row)
    return tuple(_past(run, number, results) for number, results in by_run.items())


def _past(run: Run, number: int, results: Sequence[Mapping[str, Any]]) -> PastRun:
    policy = PolicySpec.model_validate(results[0]["run__snapshot__policy"])
    case = summarise_case("", [execution_from(row) for row in results], policy)
    place = {"slug": run.suite.slug, "number": number}
    return PastRun(
        number=number,
        url=reverse("runs:run", kwargs=place),
        state=live_state(results, policy),
        score=case.means.score,
        target=results[0]["run__target_name"],
        is_this=number == run.number,
        passed=passed_words(case),
        override=case_override(results, policy),
    )


@dataclass(frozen=True, slots=True)
class Repetition:
    """One repetition of the case in the run, with the state that counts."""

    number: int
    url: str
    state: str
    score: float | None
    outcomes: str
    latency_ms: int | None
    is_this: bool
    override: Override | None

    @property
    def word(self) -> str:
        """Return the word for the state."""
        return "errored" if self.state == "error" else self.state


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The case before or after this one; `repetition` is the one it leads to where that is worth saying."""

    key: str
    url: str
    repetition: int | None = None

    @property
    def name(self) -> str:
        """Return what a link to it is called."""
        return f"{self.key}, repetition {self.repetition}" if self.repetition else self.key


def list_repetitions(
    run: Run, result: Result, policy: PolicySpec
) -> tuple[tuple[Repetition, ...], str]:
    """Return every repetition of the same case in the run, and the state of the case; one query."""
    columns = ("repetition", "status", "verdict", "reviewed_verdict", "score", "is_forced")
    rows = list(
        run.results.filter(case=result.case)
        .order_by("repetition")
        .values(*columns, "outcome_marks", "latency_ms")
    )
    repetitions = tuple(
        Repetition(
            number=row["repetition"],
            url=result_url(run, result.case.key, row["repetition"]),
            state=row_mark(row, policy),
            score=row["score"],
            outcomes=row["outcome_marks"],
            latency_ms=row["latency_ms"],
            is_this=row["repetition"] == result.repetition,
            override=case_override([row], policy),
        )
        for row in rows
    )
    return repetitions, live_state(rows, policy)


FAILURES = ("fail", "error")
# Up to this many cases a list is read as a whole.
MAX_READ = 500
STATE_WORDS = {"pass": "passed", "fail": "failed", "error": "errored"}


@dataclass(frozen=True, slots=True)
class ResultsList:
    """The list that a result was opened from, and what stands beside the result in it.

    `query` continues the list in links, "" for the order of the suite; `label` says which of how many, "" where
    the result is no longer in the list or it is that of a comparison. A neighbour that failed is also the previous or
    next failure.
    """

    query: str
    label: str
    previous: Neighbour | None
    following: Neighbour | None
    previous_failure: Neighbour | None
    next_failure: Neighbour | None
    is_comparison: bool = False


def results_list(run: Run, result: Result, params: QueryDict) -> ResultsList:
    """Return the place of a result in the list that its address names; at most eight queries."""
    if params.get(FROM_LIST) == FROM_COMPARISON:
        # What stands beside it there takes both runs: the page asks for that when it is shown.
        return ResultsList(
            f"?{params.urlencode(safe=':,')}", "", None, None, None, None, is_comparison=True
        )
    if FROM_LIST not in params:
        return _list_in(run, result, run.cases.live(run), None)
    query = ResultsQuery.read(params)
    try:
        cases = in_state(matching_cases(run, query), query)
    except FilterError:
        return _list_in(run, result, run.cases.live(run), None)
    return _list_in(run, result, cases, query)


def _list_in(run: Run, result: Result, cases: LiveCases, query: ResultsQuery | None) -> ResultsList:
    text = query.list_query if query else ""
    sort = query.sort if query else Sort("case")
    found = (
        _read_place(run, result, cases, sort)
        if run.case_count <= MAX_READ or (query and (query.text or is_read(sort)))
        else _stored_place(run, result, cases, query)
    )
    if found is None:
        return ResultsList(text, "", None, None, None, None)
    near = _neighbours(run, [row for row in found.beside if row], text)
    previous, previous_failure, following, next_failure = (
        near[row[0]] if row else None for row in found.beside
    )
    word = STATE_WORDS.get(query.state, query.state) if query else ""
    if query and (query.flaky or query.tag or query.text):
        word = f"{word} matching".strip()
    return ResultsList(
        query=text,
        label=f"{thousands(found.ahead + 1)} of {thousands(found.total)} {word}".rstrip(),
        previous=previous,
        following=following,
        previous_failure=previous_failure,
        next_failure=next_failure,
    )


CaseState = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class ListPlace:
    """How many of a list are ahead of a result, and what is beside it.

    `beside` is the case before, the failure before, which may be the same, and those two behind.
    """

    beside: Sequence[CaseState | None]
    ahead: int
    total: int


def _read_place(run: Run, result: Result, cases: LiveCases, sort: Sort) -> ListPlace | None:
    """Return the place in an order that is read as a whole.

    By values such as those of an evaluator it must be. The cases that match a filter cost one look instead of seven,
    and a few hundred rows cost less than seven queries.
    """
    rows = ordered_cases(run, cases, sort)
    at = next((at for at, row in enumerate(rows) if row["case_id"] == result.case_id), None)
    if at is None:
        return None
    beside = [*_first_two(rows[:at][::-1]), *_first_two(rows[at + 1 :])]
    keys = dict(
        Case.objects.filter(pk__in=[row["case_id"] for row in beside if row]).values_list(
            "pk", "key"
        )
    )
    states = [
        None if row is None else (row["case_id"], keys[row["case_id"]], row["live_state"])
        for row in beside
    ]
    return ListPlace(states, at, len(rows))


def _first_two(rows: Sequence[CaseRow]) -> tuple[CaseRow | None, CaseRow | None]:
    """Return the first row and the first failure."""
    return next(iter(rows), None), next(
        (row for row in rows if row["live_state"] in FAILURES), None
    )


def _stored_place(
    run: Run, result: Result, cases: LiveCases, query: ResultsQuery | None
) -> ListPlace | None:
    """Return the place in an order by a column of the database."""
    sort = query.sort if query else Sort("case")
    column = "sort_value" if query else "position"
    keys = (
        Key(column, float if query else int, is_descending=sort.is_descending),
        *((Key("position", int),) if query else ()),
        Key("case_id", int),
    )
    # The same order backwards.
    backwards = Keyset(*(replace(key, is_descending=not key.is_descending) for key in keys))
    order, rows = Keyset(*keys), sorted_cases(cases, sort.name) if query else cases
    if query is None:
        here: Mapping[str, Any] | None = {"position": result.position, "case_id": result.case_id}
    else:
        found = rows.filter(case_id=result.case_id)
        here = found.values(*(key.column for key in keys)).first()
    if here is None:
        return None
    before, after = (each.behind(rows, order.place(here)) for each in (backwards, order))
    total = rows.count() if query else run.case_count
    return ListPlace([*_beside(before), *_beside(after)], before.count(), total)


def _beside(rows: LiveCases) -> tuple[CaseState | None, CaseState | None]:
    """Return the first case of rows and the first failure, each with its key and state."""
    columns = rows.values_list("case_id", "case__key", "live_state")
    first = columns.first()
    if first is None or first[2] in FAILURES:
        return first, first
    return first, columns.filter(live_state__in=FAILURES).first()


def _neighbours(run: Run, rows: Sequence[CaseState], query: str) -> Mapping[int, Neighbour]:
    """Return where cases lead to: the first repetition in the state of its case. One query."""
    first: dict[int, int] = {}
    fitting: dict[int, int] = {}
    states = {case: state for case, _, state in rows}
    results = run.results.filter(case__in=states).order_by("repetition")
    for case, *found, repetition in results.values_list(
        "case_id", "verdict", "status", "repetition"
    ):
        first.setdefault(case, repetition)
        if states[case] in found:
            fitting.setdefault(case, repetition)
    shown = first | fitting
    return {
        case: Neighbour(key, result_url(run, key, shown[case]) + query) for case, key, _ in rows
    }


Parts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CaseRepetitions:
    """A case over its repetitions; `state` is the one that the table of the run shows.

    The means leave out `errors` repetitions, and `left` are not executed yet. The target cost of `priced`
    repetitions is known.
    """

    state: str
    summary: CaseSummary
    errors: int
    left: int
    priced: int
    metrics: tuple[MetricMean, ...]
    dimensions: tuple[DimensionMean, ...]

    @property
    def verdict_words(self) -> str:
        """Say how many repetitions passed, and whether their verdicts differ."""
        passed = f"{self.summary.passed} of {self.summary.scored} passed"
        return f"{passed}: verdicts differ." if self.summary.is_flaky else f"{passed}."


def case_repetitions(
    run: Run, case: Case, policy: PolicySpec, state: str
) -> CaseRepetitions | None:
    """Return a case over its repetitions; None where each case runs once. Three queries."""
    if run.repetitions == 1:
        return None
    rows = list(read_executions(run, case=case.pk))
    scores = EvaluatorScore.objects.filter(
        result__run=run,
        result__case=case,
        kind__in=(METRICS_KIND, HYBRID_KIND),
        state=ScoreState.SCORED,
    ).order_by()
    parts = list(scores.values_list("position", "path", "details__metrics", "details__dimensions"))
    summary = summarise_case(case.key, rows, policy)
    return CaseRepetitions(
        state=state,
        summary=summary,
        errors=sum(row.status == "error" for row in rows),
        left=summary.executions - summary.ended,
        priced=sum(row.run_cost_usd is not None for row in rows),
        metrics=metric_means(_with(parts, 2)),
        dimensions=dimension_means(_with(parts, 3)),
    )


def _with(parts: Sequence[tuple[Any, ...]], column: int) -> Iterator[tuple[int, str, Parts]]:
    return ((row[0], row[1], row[column]) for row in parts if row[column])


HAS_CONTENT = ExpressionWrapper(Q(content__isnull=False), output_field=BooleanField())
# Generation and attempt.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt: its result, its cost, and the retry that asked for it.

    `cost_usd` is None where nothing is known; `retry` is None for the first attempts. One with an `id` and a kept
    outcome `can_count`; that which a person chose is current, `counted_by` them for `counted_reason`.
    """

    name: str
    is_current: bool
    state: str
    score: float | None
    reason: str
    cost_usd: Decimal | None
    calls: int
    at: datetime | None
    retry: Retry | None
    id: int | None = None
    can_count: bool = False
    counted_by: str = ""
    counted_reason: str = ""


def result_attempts(result: Result) -> tuple[AttemptRow, ...]:
    """Return all attempts of a result, newest first; empty when there was only one."""
    earlier = list(
        result.attempts.select_related("retry").defer("content").annotate(has_content=HAS_CONTENT)
    )
    if not earlier:
        return ()
    calls = _calls(result)
    # A retry replaced the last attempt of its generation and asked for the next generation.
    retries = {attempt.generation + 1: attempt.retry for attempt in earlier if attempt.retry}
    rows = [_earlier(attempt, calls, retries) for attempt in earlier]
    if any(attempt.is_counted for attempt in earlier):
        # Each has a row then, the newest too.
        return tuple(reversed(rows))
    return (_current(result, earlier, calls, retries), *reversed(rows))


def attempt_name(generation: int, attempt: int) -> str:
    """Name an attempt: `first run`, `retry 2, attempt 3`."""
    name = f"retry {generation - 1}" if generation > 1 else "first run"
    return f"{name}, attempt {attempt}" if attempt > 1 else name


def _calls(result: Result) -> Mapping[Place, int]:
    rows = result.model_calls.order_by().values_list("generation", "attempt")
    return {(row[0], row[1]): row[2] for row in rows.annotate(total=Count("pk"))}


def _earlier(
    attempt: Attempt, calls: Mapping[Place, int], retries: Mapping[int, Retry | None]
) -> AttemptRow:
    states = {"skipped": "cancelled"}
    return AttemptRow(
        name=attempt_name(attempt.generation, attempt.attempt),
        is_current=attempt.is_counted,
        state=attempt.verdict or states.get(attempt.status, attempt.status),
        score=attempt.score,
        reason=attempt.reason,
        cost_usd=sum_known((attempt.run_cost_usd, attempt.evaluation_cost_usd)),
        calls=calls.get((attempt.generation, attempt.attempt), 0),
        at=attempt.ended_at,
        retry=retries.get(attempt.generation),
        id=attempt.pk,
        can_count=vars(attempt)["has_content"] and not attempt.is_counted,
        counted_by=attempt.counted_by,
        counted_reason=attempt.counted_reason,
    )


def _current(
    result: Result,
    earlier: Sequence[Attempt],
    calls: Mapping[Place, int],
    retries: Mapping[int, Retry | None],
) -> AttemptRow:
    spent = sum_known((result.run_cost_usd, result.evaluation_cost_usd))
    before = sum_known(
        cost for attempt in earlier for cost in (attempt.run_cost_usd, attempt.evaluation_cost_usd)
    )
    return AttemptRow(
        name=attempt_name(result.generation, result.attempt),
        is_current=True,
        state=result_mark(result),
        score=result.score,
        reason=result.error or result.decided_by,
        cost_usd=None if spent is None else spent - (before or Decimal(0)),
        calls=calls.get((result.generation, result.attempt), 0),
        at=result.finished_at,
        retry=retries.get(result.generation),
    )


def one_file(run: Run, key: str, repetition: int, path: str) -> bytes:
    """Return the content of a file; raises Artifact.DoesNotExist."""
    left = Artifact.objects.filter(result__run=run, result__repetition=repetition)
    return bytes(
        left.select_related("content").get(result__case__key=key, path=path).content.content
    )


MAX_STEPS = 300


# What was being done when an error came.
STAGE_WORDS = {
    "target": "asking the target",
    "judge": "asking a judge",
    "parse": "reading a judge's reply",
    "script": "running a script",
    "config": "reading an evaluator's settings",
    "limits": "checking a limit",
    "evaluator": "scoring",
    "worker": "running on a worker",
}


@dataclass(frozen=True, slots=True)
class ShownBaseline:
    """The output of the baseline that a result is compared with; `url` is "" when the baseline's result is gone.

    `repetition` is None where the baseline ran each case once. Without an output `problem` says why.
    """

    number: int
    target: str
    repetition: int | None
    text: str
    problem: str
    url: str


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Everything that the page of a result shows."""

    run: Run
    case: Case
    result: Result
    policy: PolicySpec
    state: str
    is_open: bool
    stage: str
    cause: VerdictCause | None
    decision: Decision | None
    turns: Turns
    output_size: int
    diff: tuple[DiffLine, ...] | None
    output_text: str
    removal_message: str
    baseline: ShownBaseline | None
    outcomes: tuple[Mapping[str, Any], ...]
    outcomes_met: int
    tree: TreeNode
    outcomes_row: EvaluatorScore | None
    hits: tuple[FindingRow, ...]
    misses: tuple[FindingRow, ...]
    steps: tuple[Mapping[str, Any], ...] | None
    step_count: int
    tool_calls: int
    costs: CostPair
    repetitions: tuple[Repetition, ...]
    over: CaseRepetitions | None
    listed: ResultsList | None
    marks: Marks
    attempts: tuple[AttemptRow, ...]
    try_name: str
    last_retry: int
    history: tuple[PastRun, ...]
    scored_count: int
    files: tuple[ArtifactFile, ...]
    external_scores: Sequence[ExternalScoreDoc]
    override: Override | None
    reviews: ReviewHistory | None

    @property
    def earlier(self) -> Repetition | None:
        """Return the repetition before this one."""
        before = [row for row in self.repetitions if row.number < self.result.repetition]
        return before[-1] if before else None

    @property
    def later(self) -> Repetition | None:
        """Return the repetition after this one."""
        return next((row for row in self.repetitions if row.number > self.result.repetition), None)

    @property
    def details_message(self) -> str:
        """Say that what explains its scores was removed; "" where it was not, or a retry came after."""
        ended, removed_at = self.result.finished_at, self.run.details_removed_at
        if removed_at is None or (ended is not None and ended > removed_at):
            return ""
        return removal_message("Reasons and findings were", removed_at, self.run.details_removed_by)

    @property
    def stage_words(self) -> str:
        """Say what was being done when the error came."""
        return STAGE_WORDS.get(self.result.error_stage, "evaluating the result")

    @property
    def saved_message(self) -> str:
        """Say what of an error is saved: the output, and scores that need no rescoring."""
        if not self.has_answer:
            return "The target gave no output, so nothing is saved."
        if not self.scored_count:
            return "The output is saved."
        scores = "1 score" if self.scored_count == 1 else f"{self.scored_count} scores"
        return f"The output and {scores} are saved."

    @property
    def has_output(self) -> bool:
        """Tell whether the target answered with a text."""
        return bool(self.output_size)

    @property
    def has_answer(self) -> bool:
        """Tell whether the target answered with a text or a file."""
        return self.has_output or bool(self.files)

    @property
    def is_exact(self) -> bool:
        """Tell whether the output is the expected one, character for character."""
        return self.case.expected_output == self.output_text

    @property
    def expected_text(self) -> str:
        """Return the expected output, cut to the length that pages show."""
        return self.case.expected_output[:MAX_SHOWN_LENGTH]

    @property
    def missed_first(self) -> list[Mapping[str, Any]]:
        """Return the expected outcomes, missed ones first."""
        return sorted(self.outcomes, key=lambda outcome: bool(outcome["passed"]))

    @property
    def skipped_count(self) -> int:
        """Return how many evaluators did not run because a gate failed."""
        return sum(node.state == ScoreState.SKIPPED for node in self._leaves)

    @property
    def scored_leaves(self) -> int:
        """Return how many evaluators scored, without composites."""
        return sum(node.state == ScoreState.SCORED for node in self._leaves)

    @property
    def _leaves(self) -> list[TreeNode]:
        return [node for node in walk_rows(self.tree) if not node.children]

    @property
    def outcomes_words(self) -> str:
        """Say how many of the expected outcomes were met."""
        return f"{self.outcomes_met} of {len(self.outcomes)} met"

    @property
    def judged(self) -> tuple[ResultMetrics, ...]:
        """Return the metrics of each evaluator that scored metrics of 0 to 5."""
        return result_metrics(self.tree)

    @property
    def share_query(self) -> str:
        """Return the query of the form that shares this result."""
        run = f"{self.run.suite.slug}:{self.run.number}"
        result = {"case": self.case.key, "repetition": self.result.repetition}
        return urlencode({"kind": "result", "run": run, **result})

    @property
    def history_words(self) -> str:
        """Say in how many of the last runs the case passed."""
        if len(self.history) == 1:
            return "Later runs appear here."
        passed = sum(past.state == "pass" for past in self.history)
        return f"Passed in {passed} of {len(self.history)} runs"


def result_page(run: Run, key: str, repetition: int, params: QueryDict | None = None) -> ResultPage:
    """Return the page of one result; `params` name the list it was opened from, without them there is none.

    Raises Result.DoesNotExist.
    """
    result = run.results.select_related("case", "output").get(case__key=key, repetition=repetition)
    rows = {row.path: row for row in result.scores.all()}
    plan, case = read_plan(run.snapshot), result.case
    output = _output(result)
    decision = Decision.from_json(output.decision) if output.decision else None
    root = case_tree(plan.root, case.evaluators, append=case.evaluators_append)
    tree = result_tree(root, decision, rows, plan.policy)
    repetitions, case_state = list_repetitions(run, result, plan.policy)
    steps = output.trace
    outcomes = tuple(output.outcomes or ())
    attempts = result_attempts(result)
    return ResultPage(
        run=run,
        case=case,
        result=result,
        policy=plan.policy,
        state=result_mark(result),
        is_open=result.status in OPEN_RESULT_STATUSES,
        stage=STAGES.get(result.error_stage, NO_STAGE) if result.error else "",
        cause=result_cause(result, (output.decision or {}).get("cause")),
        decision=decision,
        turns=conversation(case, output),
        output_size=len(output.text),
        diff=_diff(case, output),
        output_text=output.text[:MAX_SHOWN_LENGTH],
        removal_message=output.removal_message,
        baseline=_shown_baseline(run, result, plan.baseline),
        outcomes=outcomes,
        outcomes_met=sum(bool(outcome["passed"]) for outcome in outcomes),
        tree=tree,
        outcomes_row=outcomes_row(rows),
        hits=remarks(tree, passed=True),
        misses=remarks(tree, passed=False),
        steps=None if steps is None else tuple(cut_step(step) for step in steps[:MAX_STEPS]),
        step_count=len(steps or ()),
        tool_calls=sum(step.get("type") == "tool" for step in steps or ()),
        costs=result_costs(run, result),
        repetitions=repetitions,
        over=case_repetitions(run, case, plan.policy, case_state),
        listed=None if params is None else results_list(run, result, params),
        marks=hit_marks(ResultsQuery.read(params).text if params and FROM_LIST in params else ""),
        attempts=attempts,
        try_name=next(
            (row.name for row in attempts if row.is_current),
            attempt_name(result.generation, result.attempt),
        ),
        last_retry=run.retries.values_list("pk", flat=True).first() or 0,
        history=case_history(run, key),
        scored_count=sum(row.state == ScoreState.SCORED for row in rows.values()),
        files=result_files(result),
        external_scores=external_scores(run, [result.pk])[result.pk],
        override=result_override(result, plan.policy),
        reviews=review_history(
            result,
            plan.policy.review_reviewers,
            (run.snapshot.get(RESCORED) or {}).get("run", 0),
        ),
    )


def _output(result: Result) -> ResultOutput:
    try:
        return result.output
    except ResultOutput.DoesNotExist:
        return ResultOutput(result=result)


def _shown_baseline(
    run: Run, result: Result, baseline: Mapping[str, Any] | None
) -> ShownBaseline | None:
    """Return what the result is compared with; two queries in a run that has a baseline."""
    row = ComparedOutput.objects.filter(result=result).first() if baseline else None
    if row is None or baseline is None:
        return None
    number, key = baseline["run"], result.case.key
    source = Run.objects.filter(
        suite=run.suite_id,
        number=number,
        results__case__key=key,
        results__repetition=row.repetition,
    )
    repetitions = source.values_list("repetitions", flat=True).first()
    place = [run.suite.slug, number, key, row.repetition]
    return ShownBaseline(
        number=number,
        target=baseline["target"],
        repetition=row.repetition if repetitions != 1 else None,
        text=row.text[:MAX_SHOWN_LENGTH],
        problem=row.problem,
        url="" if repetitions is None else reverse("runs:result", args=place),
    )


def _diff(case: Case, output: ResultOutput) -> tuple[DiffLine, ...] | None:
    if not case.expected_output or not output.text:
        return None
    return text_diff(case.expected_output, output.text)


def is_finished(run: Run, key: str, repetition: int) -> bool:
    """Tell whether a result has ended; raises Result.DoesNotExist."""
    status = run.results.values_list("status", flat=True).get(case__key=key, repetition=repetition)
    return ResultStatus(status) not in OPEN_RESULT_STATUSES


MAX_CALLS = 200
CALLS_AT_ONCE = 10
MAX_CALL_TEXT = 20_000
# Of a longer request or reply no more than its beginning is read, which cannot be laid out as JSON.
MAX_CALL_READ = 500_000


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call; request and reply are cut, its file has them whole."""

    pk: int
    purpose: str
    evaluator: str
    model: str
    status: str
    is_ok: bool
    http_status: int | None
    error: str
    occasion: str
    is_cached: bool
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    latency_ms: int | None
    created_at: datetime
    request: str
    reply: str
    is_cut: bool
    is_removed: bool


@dataclass(frozen=True, slots=True)
class ResultCalls:
    """The first calls of one result, oldest first, and their total number."""

    rows: tuple[CallRow, ...]
    total: int


def result_calls(run: Run, key: str, repetition: int) -> ResultCalls:
    """Return the calls of one execution, by its target and its judges."""
    calls = _result_calls(run, key, repetition)
    shown = calls.defer("request", "reply").annotate(
        request_read=Left(Cast("request", TextField()), MAX_CALL_READ),
        reply_read=Left(Cast("reply", TextField()), MAX_CALL_READ),
    )
    rows = shown[:MAX_CALLS].iterator(chunk_size=CALLS_AT_ONCE)
    return ResultCalls(tuple(_row(call) for call in rows), calls.count())


def one_call(run: Run, key: str, repetition: int, pk: int) -> dict[str, Any]:
    """Return one call of an execution with whole texts.

    Raises ModelCall.DoesNotExist, also when the texts were removed.
    """
    call = _result_calls(run, key, repetition).exclude(request_hash=REMOVED_HASH).get(pk=pk)
    return {
        "request": call.request,
        "reply": call.reply,
        "status": call.status,
        "http_status": call.http_status,
        "error": call.error,
        "model": call.model_name,
    }


def _result_calls(run: Run, key: str, repetition: int) -> QuerySet[ModelCall]:
    return ModelCall.objects.filter(run=run, result__case__key=key, result__repetition=repetition)


def _row(call: ModelCall) -> CallRow:
    texts: Mapping[str, str | None] = vars(call)
    request, reply = _laid_out(texts["request_read"]), _laid_out(texts["reply_read"])
    return CallRow(
        pk=call.pk,
        purpose=call.purpose,
        evaluator=call.evaluator_path,
        model=call.model_name,
        status=CallStatus(call.status).label,
        is_ok=call.status == CallStatus.OK,
        http_status=call.http_status,
        error=call.error,
        occasion=_occasion(call),
        is_cached=call.is_cached,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cost_usd=call.cost_usd,
        latency_ms=call.latency_ms,
        created_at=call.created_at,
        request=request[:MAX_CALL_TEXT],
        reply=reply[:MAX_CALL_TEXT],
        is_cut=max(len(request), len(reply)) > MAX_CALL_TEXT,
        is_removed=call.is_removed,
    )


def _occasion(call: ModelCall) -> str:
    """Say which of several calls of the same evaluator it was, and in which attempt."""
    named = (("sample", call.sample), ("round", call.round), ("repair", call.repair))
    parts = [
        f"{name} {number}" if name == "repair" else f"{name} {number + 1}"
        for name, number in named
        if number
    ]
    if call.generation > 1 or call.attempt > 1:
        parts.append(attempt_name(call.generation, call.attempt))
    return ", ".join(parts)


def _laid_out(stored: str | None) -> str:
    """Return a stored JSON value for reading: a text as it is, others over several lines."""
    if stored is None or len(stored) == MAX_CALL_READ:
        return stored or ""
    value = json.loads(stored)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
