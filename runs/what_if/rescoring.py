"""Score a finished run again under other rules, as a new run that costs nothing (SCORING §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import F

from evaluators.scoring.decision import Decision
from evaluators.scoring.score_tree import OutcomeResults, Rules
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import (
    DomainError,
    Finding,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Usage,
)
from evaluators.templatetags.figures import counted
from runs.engine.plan import OUTCOMES_PATH, read_plan
from runs.finishing import finish_run
from runs.models.database import copy_rows, database_now, insert_rows, update_rows
from runs.models.results import Artifact, ComparedOutput, Result, ResultOutput, ResultStatus
from runs.models.results import EvaluatorScore as ScoreRow
from runs.models.reviews import Review
from runs.models.run_cases import RunCase
from runs.models.runs import RESCORED, Run, RunStatus
from runs.models.search import ResultText
from runs.models.stored import SCORE_COLUMNS, metrics_score, read_outcome, score_rows
from runs.what_if.changes import LeafChange, RuleSet, ScoreSource
from runs.what_if.deciding import rescore
from runs.what_if.stored import WhatIfQuestion, ask

UNPAID = Usage()
# Beginnings of the warnings of the case gate.
GATE_WARNINGS = ("no outcomes produced", "expected outcomes could not be judged")


@dataclass(frozen=True, slots=True)
class RescoredResult:
    """A result under the new rules: its tree, the outcomes of evaluators by their new paths, and the decision."""

    root: EvaluatorSpec
    outcomes: Mapping[str, Outcome]
    decision: Decision


class Rescoring:
    """Decides the results of a run by the rules of a what-if, one at a time."""

    def __init__(self, question: WhatIfQuestion) -> None:
        self.question = question
        self.rules: dict[int, Rules] = {}

    def decide(
        self,
        case: int,
        expected: Sequence[str],
        rows: Iterable[ScoreRow],
        *,
        judged: Sequence[Mapping[str, Any]] = (),
        warnings: Sequence[str] = (),
    ) -> RescoredResult:
        """Return the result of a case under the new rules.

        `rows` are its stored scores, `judged` its judged outcomes. Of its `warnings`, those about the
        output stay. No score has a cost, since nothing is paid.
        """
        rule_change = self.question.rule_change
        group = rule_change.metric_group[case]
        rules = self.rules.get(id(group))
        if rules is None:
            rules = self.rules[id(group)] = Rules(group.trees.after, rule_change.after.policy)
        results = tuple(OutcomeResult(**outcome) for outcome in judged)
        by_path = {row.path: row for row in rows}
        known = dict(walk(group.trees.before))
        outcomes = {
            path: self._outcome(change, known, by_path.get(change.origin or path), results)
            for path, change in group.leaves.items()
        }
        outcomes_row = by_path.get(OUTCOMES_PATH)
        if outcomes_row is not None:
            outcomes[OUTCOMES_PATH] = _unpaid(read_outcome(outcomes_row, results or None))
        decision = rules.decide(
            {path: outcome for path, outcome in outcomes.items() if path != OUTCOMES_PATH},
            expected_outcomes=expected,
            outcome_results=self._results(results, outcomes, group.leaves) if expected else None,
        )
        kept = _output_warnings(warnings, known.values())
        decision = replace(decision, warnings=(*kept, *decision.warnings))
        return RescoredResult(group.trees.after, _skip_held(outcomes, decision), decision)

    def _outcome(
        self,
        change: LeafChange,
        known: Mapping[str, EvaluatorSpec],
        row: ScoreRow | None,
        results: tuple[OutcomeResult, ...],
    ) -> Outcome:
        if row is None:
            return Skipped()
        supplies = bool(row.details.get("supplies_outcomes"))
        kept = _unpaid(read_outcome(row, (results or None) if supplies else None))
        is_negated = change.node.negate != known[change.origin or ""].negate
        if not isinstance(kept, Score) or change.reach is not ScoreSource.RESCORED:
            return _negate(kept) if is_negated else kept
        kind = self.question.rule_change.kinds[change.node.kind]
        score = rescore(change, kind, row.details)
        if isinstance(score, str):
            raise AssertionError(f"{change.path} had all its parts before: {score}")
        warnings = tuple(dict.fromkeys((*kept.warnings, *score.warnings)))
        score = replace(score, outcomes=kept.outcomes, warnings=warnings)
        return _negate(score) if change.node.negate else score

    def _results(
        self,
        results: tuple[OutcomeResult, ...],
        outcomes: Mapping[str, Outcome],
        leaves: Mapping[str, LeafChange],
    ) -> OutcomeResults:
        """Return the judged outcomes, or why they could not be judged (SCORING §4.1)."""
        if results:
            return results
        kinds = self.question.rule_change.kinds
        supplying = [
            path
            for path, change in leaves.items()
            if change.node.kind in kinds and kinds[change.node.kind].supplies_outcomes
        ]
        suppliers = (outcomes.get(path) for path in (OUTCOMES_PATH, *supplying))
        return next((outcome for outcome in suppliers if isinstance(outcome, Unscored)), None)


def _skip_held(outcomes: Mapping[str, Outcome], decision: Decision) -> dict[str, Outcome]:
    """Replace the outcomes of evaluators behind a failed gate by Skipped, as a run does."""
    nodes = decision.nodes
    return {
        path: Skipped() if path in nodes and nodes[path].state == "skipped" else outcome
        for path, outcome in outcomes.items()
    }


def _output_warnings(warnings: Iterable[str], nodes: Iterable[EvaluatorSpec]) -> list[str]:
    """Return the warnings about the output, which come neither from an evaluator nor from a gate."""
    names = tuple(f"{node.name}{end}" for node in nodes for end in (": ", " could not be scored"))
    return [text for text in warnings if not text.startswith((*names, *GATE_WARNINGS))]


def _unpaid(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Skipped) else replace(outcome, usage=UNPAID)


def _negate(outcome: Outcome) -> Outcome:
    """Turn the hits of an evaluator into misses and its misses into hits."""
    if not isinstance(outcome, Score):
        return outcome
    findings = tuple(
        Finding(finding.text, not finding.passed, finding.evidence) for finding in outcome.findings
    )
    return replace(outcome, findings=findings)


BATCH_SIZE = 200
MAX_CELL_LENGTH = 300
RESULT = "result_id"
NOTHING_PAID = Decimal(0)
EXECUTED = (ResultStatus.SCORED, ResultStatus.ERROR)
OUTPUT_COLUMNS = (
    *("text", "messages", "trace", "usage", "outcomes", "decision", "removed_at", "removed_by"),
)
# The columns of a review, except its key and its result.
REVIEW_COLUMNS = tuple(
    field.attname for field in Review._meta.concrete_fields if field.attname not in ("id", RESULT)
)


class SourceGoneError(DomainError):
    """The run whose scores are needed does not exist any more."""

    code = "source_gone"


def complete_rescoring(run_id: int, *, in_background: bool = True) -> bool:
    """Write the missing results of a rescored run, and complete it. False if it has ended already.

    The run fails if its source is gone or cannot be read.
    """
    run = Run.objects.select_related("source_run").filter(id=run_id).first()
    if run is None or not run.is_active:
        return False
    try:
        question = read_question(run)
    except DomainError as error:
        finish_run(run_id, RunStatus.FAILED, reason=str(error), in_background=in_background)
        return False
    rescoring = Rescoring(question)
    for batch in _missing_batches(run):
        if not _write(run, rescoring, batch):
            return False
    return _complete(run_id, in_background=in_background)


def read_question(run: Run) -> WhatIfQuestion:
    """Return the question that a rescored run answers; raises SourceGoneError without its source."""
    if run.source_run is None:
        raise SourceGoneError(f"The run that {run} scores again is gone.")
    plan = read_plan(run.snapshot)
    origins = run.snapshot[RESCORED]["origins"]
    return ask(run.source_run, RuleSet.of_plan(plan), origins=origins)


def _missing_batches(run: Run) -> Iterator[list[int]]:
    """Yield batches of the source's results that the run does not have yet."""
    written = set(run.results.order_by().values_list("case_id", "repetition"))
    rows = Result.objects.filter(run_id=run.source_run_id or 0).order_by(
        "position", "repetition", "id"
    )
    missing = [
        pk
        for pk, *place in rows.values_list("id", "case_id", "repetition")
        if tuple(place) not in written
    ]
    for start in range(0, len(missing), BATCH_SIZE):
        yield missing[start : start + BATCH_SIZE]


def _write(run: Run, rescoring: Rescoring, ids: Sequence[int]) -> bool:
    """Write a batch of results; False if the run has ended."""
    sources = list(
        Result.objects.filter(id__in=ids)
        .select_related("case")
        .order_by("position", "repetition", "id")
    )
    rescored = _rescore(rescoring, sources)
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if not held.is_active:
            return False
        places = Result.objects.filter(run=run, case__in=[source.case_id for source in sources])
        written = set(places.order_by().values_list("case_id", "repetition"))
        sources = [row for row in sources if (row.case_id, row.repetition) not in written]
        pairs = [(row.pk, _result(run, row, rescored.get(row.pk))) for row in sources]
        Result.objects.bulk_create([new for _, new in pairs])
        new_ids = {old: new.pk for old, new in pairs}
        _copy(new_ids, rescored)
        _write_scores(new_ids, rescored)
        ResultText.objects.refresh(run.pk, new_ids.values())
        _count(run.pk, [new for _, new in pairs])
        _write_cases(held, sources)
    return True


def _write_cases(run: Run, sources: Sequence[Result]) -> None:
    """Write the cases of the batch that no earlier batch has written."""
    positions = {source.case_id: source.position for source in sources}
    written = set(run.cases.filter(case__in=positions).values_list("case_id", flat=True))
    RunCase.objects.add_open(run, (pair for pair in positions.items() if pair[0] not in written))
    RunCase.objects.refresh(run.pk, positions)


def _rescore(rescoring: Rescoring, sources: Sequence[Result]) -> dict[int, RescoredResult]:
    """Return the results under the new rules by source, without those that rules cannot change."""
    question = rescoring.question
    answered = {
        source.pk: source
        for source in sources
        if source.status in EXECUTED
        and source.pk not in question.fixed
        and question.stored.is_answered(source.pk)
    }
    rows: dict[int, list[Any]] = {pk: [] for pk in answered}
    # Tuples instead of models, since a result can have ten scores.
    scores = ScoreRow.objects.filter(result_id__in=answered).order_by("result_id", "position")
    for row in scores.values_list(*SCORE_COLUMNS, named=True):
        rows[row.result_id].append(row)
    judged = dict(ResultOutput.objects.filter(pk__in=answered).values_list("pk", "outcomes"))
    return {
        pk: rescoring.decide(
            source.case_id,
            source.case.expected_outcomes,
            rows[pk],
            judged=judged.get(pk) or (),
            warnings=source.warnings,
        )
        for pk, source in answered.items()
    }


def _result(run: Run, source: Result, rescored: RescoredResult | None) -> Result:
    """Return a result of the new run: the measurements of its source, a new decision, and no costs."""
    columns = {
        field.attname: getattr(source, field.attname)
        for field in Result._meta.concrete_fields
        if not field.primary_key
    }
    paid = NOTHING_PAID if source.status in EXECUTED else None
    columns |= {"run_id": run.pk, "attempt": 1, "generation": 1, "retry_paths": None}
    columns |= {"run_cost_usd": paid, "evaluation_cost_usd": paid}
    if rescored is not None:
        columns |= _decision_columns(rescored)
    return Result(**columns)


def _decision_columns(rescored: RescoredResult) -> dict[str, Any]:
    decision = rescored.decision
    is_scored = decision.status == "scored"
    reason = decision.error or "not scored"
    return {
        "status": ResultStatus.SCORED if is_scored else ResultStatus.ERROR,
        "verdict": decision.verdict.value if decision.verdict else "",
        "score": decision.score if is_scored else None,
        "metrics_score": metrics_score(rescored.outcomes) if is_scored else None,
        "decided_by": decision.decided_by[:MAX_CELL_LENGTH] if is_scored else "",
        "is_forced": decision.is_forced,
        "error": "" if is_scored else reason,
        "error_stage": "" if is_scored else _stage(rescored, reason),
        "warnings": list(decision.warnings),
    }


def _stage(rescored: RescoredResult, reason: str) -> str:
    path = rescored.decision.evaluator or OUTCOMES_PATH
    outcomes = rescored.outcomes
    unscored = {path: item for path, item in outcomes.items() if isinstance(item, Unscored)}
    cause = unscored.get(path) or next((o for o in unscored.values() if o.reason in reason), None)
    return cause.stage if cause else "evaluator"


def _copy(new_ids: Mapping[int, int], rescored: Mapping[int, RescoredResult]) -> None:
    """Copy outputs, files and reviews, and the scores of results without new ones, inside the database."""
    copy_rows(ResultOutput, OUTPUT_COLUMNS, new_ids.items(), key=(RESULT,))
    copy_rows(Artifact, ("path", "content_id"), new_ids.items(), key=(RESULT,))
    copy_rows(ComparedOutput, ("repetition", "text", "problem"), new_ids.items(), key=(RESULT,))
    copy_rows(Review, REVIEW_COLUMNS, new_ids.items(), key=(RESULT,))
    columns = [name for name in SCORE_COLUMNS if name != RESULT]
    unchanged = [pair for pair in new_ids.items() if pair[0] not in rescored]
    copy_rows(ScoreRow, columns, unchanged, key=(RESULT,))


def _write_scores(new_ids: Mapping[int, int], rescored: Mapping[int, RescoredResult]) -> None:
    results = [(new_ids[pk], result) for pk, result in rescored.items() if pk in new_ids]
    rows = (
        row
        for pk, result in results
        for row in score_rows(pk, result.root, result.outcomes, result.decision)
    )
    insert_rows(ScoreRow, SCORE_COLUMNS, rows)
    decisions = ((result.decision.as_json(), pk) for pk, result in results)
    update_rows(ResultOutput, ("decision",), decisions, key=(RESULT,))


def _count(run_id: int, results: Sequence[Result]) -> None:
    """Add the results to the run's counters, and record a heartbeat."""
    executed = [result for result in results if result.status in EXECUTED]
    verdicts = Counter(result.verdict for result in executed)
    scores = [result.score for result in executed if result.score is not None]
    Run.objects.filter(id=run_id).update(
        heartbeat_at=database_now(),
        done_count=F("done_count") + len(executed),
        pass_count=F("pass_count") + verdicts["pass"],
        borderline_count=F("borderline_count") + verdicts["borderline"],
        fail_count=F("fail_count") + verdicts["fail"],
        error_count=F("error_count") + sum(row.status == ResultStatus.ERROR for row in executed),
        score_sum=F("score_sum") + sum(scores),
        score_count=F("score_count") + len(scores),
    )


def _complete(run_id: int, *, in_background: bool) -> bool:
    """End the run as its source ended, without the results that its source lacks."""
    run = Run.objects.select_related("source_run").only("source_run__status").get(id=run_id)
    if run.source_run is None:
        return False
    left = run.results.exclude(status__in=EXECUTED).count()
    reason = f"{counted(left, 'result')} never ran in the original run" if left else ""
    was_completed = run.source_run.status == RunStatus.COMPLETED
    status = RunStatus.COMPLETED if was_completed else RunStatus.STOPPED
    return finish_run(run_id, status, reason=reason, in_background=in_background)
