"""One result in full: what was asked and answered, and every step from there to the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import Policy
from runs.models import (
    OPEN_RESULT_STATUSES,
    Case,
    Result,
    ResultOutput,
    ResultStatus,
    Run,
    Score,
    ScoreState,
)
from runs.plan import read_plan, tree_of_case
from runs.reports.case_history import PastRun, case_history
from runs.reports.case_repetitions import CaseRepetitions, case_repetitions
from runs.reports.conversation import LONGEST_SHOWN, Turns, conversation, cut_step
from runs.reports.overrides import Override, ReviewHistory, override_of, review_history
from runs.reports.result_attempts import AttemptRow, name_of_try, result_attempts
from runs.reports.result_files import LeftFile, result_files
from runs.reports.result_metrics import ResultMetrics, result_metrics
from runs.reports.result_neighbours import Neighbour, Repetition, mark_of, neighbour, repetitions_of
from runs.reports.result_purses import ResultPurses, result_purses
from runs.reports.result_tree import Remark, TreeNode, outcomes_row, remarks, result_tree
from runs.reports.text_diff import DiffLine, text_diff
from runs.rescoring.writing import RESCORED

MOST_STEPS = 300
STAGES = {
    "target": "The target gave no output",
    "judge": "A judge gave no readable reply",
    "parse": "A judge gave no readable reply",
    "script": "A script ended badly",
    "config": "An evaluator is set up wrongly",
    "limits": "A limit was reached",
    "evaluator": "An evaluator could not score",
    "worker": "The worker was lost",
}


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Everything a result's page shows."""

    run: Run
    case: Case
    result: Result
    policy: Policy
    state: str
    is_open: bool
    stage: str
    decision: Decision | None
    turns: Turns
    output_size: int
    diff: tuple[DiffLine, ...] | None
    output_text: str
    outcomes: tuple[Mapping[str, Any], ...]
    outcomes_met: int
    tree: TreeNode
    outcomes_row: Score | None
    hits: tuple[Remark, ...]
    misses: tuple[Remark, ...]
    steps: tuple[Mapping[str, Any], ...] | None
    step_count: int
    tool_calls: int
    purses: ResultPurses
    repetitions: tuple[Repetition, ...]
    over: CaseRepetitions | None
    previous: Neighbour | None
    following: Neighbour | None
    attempts: tuple[AttemptRow, ...]
    try_name: str
    last_retry: int
    history: tuple[PastRun, ...]
    scored_count: int
    files: tuple[LeftFile, ...]
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
    def has_output(self) -> bool:
        """Tell whether the target answered with a text."""
        return bool(self.output_size)

    @property
    def has_answer(self) -> bool:
        """Tell whether the target answered anything, be it a file alone."""
        return self.has_output or bool(self.files)

    @property
    def is_exact(self) -> bool:
        """Tell whether the output is the expected one, character for character."""
        return self.case.expected_output == self.output_text

    @property
    def expected_text(self) -> str:
        """Return the expected output as far as a page shows it."""
        return self.case.expected_output[:LONGEST_SHOWN]

    @property
    def outcomes_words(self) -> str:
        """Say how many of the expected outcomes were met."""
        return f"{self.outcomes_met} of {len(self.outcomes)} met"

    @property
    def judged(self) -> tuple[ResultMetrics, ...]:
        """Return the metrics of each evaluator that scored metrics of 0 to 5."""
        return result_metrics(self.tree)

    @property
    def history_words(self) -> str:
        """Say in how many of the last runs the case passed."""
        if len(self.history) == 1:
            return "It will be compared with later runs here."
        passed = sum(past.state == "pass" for past in self.history)
        ends = f"#{self.history[0].number} to #{self.history[-1].number}"
        return f"{ends}. Pass in {passed} of {len(self.history)}."


def result_page(run: Run, key: str, repetition: int) -> ResultPage:
    """Return the page of one execution; raises Result.DoesNotExist for one the run does not have."""
    result = run.results.select_related("case", "output").get(case__key=key, repetition=repetition)
    rows = {row.path: row for row in result.scores.all()}
    plan, case = read_plan(run.snapshot), result.case
    output = _output(result)
    decision = Decision.from_json(output.decision) if output.decision else None
    root = tree_of_case(plan.root, case.evaluators, append=case.evaluators_append)
    tree = result_tree(root, decision, rows, plan.policy)
    repetitions, case_state = repetitions_of(run, result, plan.policy)
    steps = output.trace
    outcomes = tuple(output.outcomes or ())
    return ResultPage(
        run=run,
        case=case,
        result=result,
        policy=plan.policy,
        state=mark_of(result),
        is_open=result.status in OPEN_RESULT_STATUSES,
        stage=STAGES.get(result.error_stage, "The result is errored") if result.error else "",
        decision=decision,
        turns=conversation(case, output),
        output_size=len(output.text),
        diff=_diff(case, output),
        output_text=output.text[:LONGEST_SHOWN],
        outcomes=outcomes,
        outcomes_met=sum(bool(outcome["passed"]) for outcome in outcomes),
        tree=tree,
        outcomes_row=outcomes_row(rows),
        hits=remarks(tree, passed=True),
        misses=remarks(tree, passed=False),
        steps=None if steps is None else tuple(cut_step(step) for step in steps[:MOST_STEPS]),
        step_count=len(steps or ()),
        tool_calls=sum(step.get("type") == "tool" for step in steps or ()),
        purses=result_purses(run, result),
        repetitions=repetitions,
        over=case_repetitions(run, case, plan.policy, case_state),
        previous=neighbour(run, result, back=True),
        following=neighbour(run, result, back=False),
        attempts=result_attempts(result),
        try_name=name_of_try(result.generation, result.attempt),
        last_retry=run.retries.values_list("pk", flat=True).first() or 0,
        history=case_history(run, key),
        scored_count=sum(row.state == ScoreState.SCORED for row in rows.values()),
        files=result_files(result),
        override=override_of(result, plan.policy),
        reviews=review_history(
            result,
            plan.policy.review_reviewers,
            (run.snapshot.get(RESCORED) or {}).get("run", 0),
        ),
    )


def whole_output(run: Run, key: str, repetition: int) -> str:
    """Return the whole text that the target answered; raises ResultOutput.DoesNotExist."""
    outputs = ResultOutput.objects.filter(result__run=run, result__repetition=repetition)
    return outputs.only("text").get(result__case__key=key).text


def _output(result: Result) -> ResultOutput:
    try:
        return result.output
    except ResultOutput.DoesNotExist:
        return ResultOutput(result=result)


def _diff(case: Case, output: ResultOutput) -> tuple[DiffLine, ...] | None:
    if not case.expected_output or not output.text:
        return None
    return text_diff(case.expected_output, output.text)


def is_finished(run: Run, key: str, repetition: int) -> bool:
    """Tell whether the work on one result is over; raises Result.DoesNotExist."""
    status = run.results.values_list("status", flat=True).get(case__key=key, repetition=repetition)
    return ResultStatus(status) not in OPEN_RESULT_STATUSES
