"""Score a finished run again under other rules as a new run, at no cost (SCORING §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.db import connection, models, transaction
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
from runs.engine.plan import OUTCOMES_PATH, read_plan
from runs.finishing import finish_run
from runs.models.database import database_now, insert_rows, update_rows
from runs.models.results import Artifact, Result, ResultOutput, ResultStatus
from runs.models.results import EvaluatorScore as ScoreRow
from runs.models.reviews import Review
from runs.models.run_cases import RunCase
from runs.models.runs import RESCORED, Run, RunStatus
from runs.models.stored import SCORE_COLUMNS, read_outcome, score_rows
from runs.what_if.changes import LeafChange, Reach, RuleSet
from runs.what_if.deciding import rescored
from runs.what_if.stored import WhatIfQuestion, question

UNPAID = Usage()
# How warnings begin that the case gate gives.
OF_GATES = ("no outcomes produced", "expected outcomes could not be judged")


@dataclass(frozen=True, slots=True)
class Anew:
    """A result decided by the new rules: its tree, what the evaluators said by their new paths, the decision."""

    root: EvaluatorSpec
    outcomes: Mapping[str, Outcome]
    decision: Decision


class Rescoring:
    """The question to a run, ready to decide its results one by one."""

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
        warned: Sequence[str] = (),
    ) -> Anew:
        """Return the result of a case decided anew.

        `rows` are its scores, `judged` its expected outcomes as they were judged, `warned` its warnings,
        of which those about the output stay. Nothing is paid, so that no score of it has a cost.
        """
        rule_change = self.question.rule_change
        group = rule_change.metric_group[case]
        rules = self.rules.get(id(group))
        if rules is None:
            rules = self.rules[id(group)] = Rules(group.trees.after, rule_change.after.policy)
        results = tuple(OutcomeResult(**found) for found in judged)
        said = {row.path: row for row in rows}
        known = dict(walk(group.trees.before))
        outcomes = {
            path: self._outcome(change, known, said.get(change.origin or path), results)
            for path, change in group.leaves.items()
        }
        beside = said.get(OUTCOMES_PATH)
        if beside is not None:
            outcomes[OUTCOMES_PATH] = _unpaid(read_outcome(beside, results or None))
        decision = rules.decide(
            {path: one for path, one in outcomes.items() if path != OUTCOMES_PATH},
            expected_outcomes=expected,
            outcome_results=self._results(results, outcomes, group.leaves) if expected else None,
        )
        of_output = _of_output(warned, known.values())
        decision = replace(decision, warnings=(*of_output, *decision.warnings))
        return Anew(group.trees.after, _as_run(outcomes, decision), decision)

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
        turns = change.node.negate != known[change.origin or ""].negate
        if not isinstance(kept, Score) or change.reach is not Reach.RESCORED:
            return _negated(kept) if turns else kept
        kind = self.question.rule_change.kinds[change.node.kind]
        made = rescored(change, kind, row.details)
        if isinstance(made, str):
            raise AssertionError(f"{change.path} was found to have its parts: {made}")
        warnings = tuple(dict.fromkeys((*kept.warnings, *made.warnings)))
        found = replace(made, outcomes=kept.outcomes, warnings=warnings)
        return _negated(found) if change.node.negate else found

    def _results(
        self,
        results: tuple[OutcomeResult, ...],
        outcomes: Mapping[str, Outcome],
        leaves: Mapping[str, LeafChange],
    ) -> OutcomeResults:
        """Return what was found of the expected outcomes, or why nothing was (SCORING §4.1)."""
        if results:
            return results
        kinds = self.question.rule_change.kinds
        supplying = [
            path
            for path, change in leaves.items()
            if change.node.kind in kinds and kinds[change.node.kind].supplies_outcomes
        ]
        found = (outcomes.get(path) for path in (OUTCOMES_PATH, *supplying))
        return next((one for one in found if isinstance(one, Unscored)), None)


def _as_run(outcomes: Mapping[str, Outcome], decision: Decision) -> dict[str, Outcome]:
    """Return the outcomes as a run would keep them: of what a gate holds back there is no score."""
    nodes = decision.nodes
    return {
        path: Skipped() if path in nodes and nodes[path].state == "skipped" else one
        for path, one in outcomes.items()
    }


def _of_output(warned: Iterable[str], nodes: Iterable[EvaluatorSpec]) -> list[str]:
    """Return the warnings that no evaluator and no gate gave."""
    names = tuple(f"{node.name}{end}" for node in nodes for end in (": ", " could not be scored"))
    return [one for one in warned if not one.startswith((*names, *OF_GATES))]


def _unpaid(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Skipped) else replace(outcome, usage=UNPAID)


def _negated(outcome: Outcome) -> Outcome:
    """Return the outcome of an evaluator whose negation changed: what held is a miss now, and the other way."""
    if not isinstance(outcome, Score):
        return outcome
    findings = tuple(Finding(one.text, not one.passed, one.evidence) for one in outcome.findings)
    return replace(outcome, findings=findings)


BATCH_SIZE = 200
MAX_CELL_LENGTH = 300
RESULT = "result_id"
NOTHING_PAID = Decimal(0)
CARRIED_OUT = (ResultStatus.SCORED, ResultStatus.ERROR)
OUTPUT_COLUMNS = ("text", "messages", "trace", "usage", "outcomes", "decision")
# All that a review is but the result it stands at.
REVIEW_COLUMNS = tuple(
    field.attname for field in Review._meta.concrete_fields if field.attname not in ("id", RESULT)
)


class SourceGoneError(DomainError):
    """The run whose scores were to be used does not exist any more."""

    code = "source_gone"


def complete_rescoring(run_id: int, *, in_background: bool = True) -> bool:
    """Write what is left of a run that scores another's results again, and complete it.

    False when it is over already. A run whose source is gone or cannot be read ends as failed. Its
    figures are computed as `finish_run` does.
    """
    run = Run.objects.select_related("source_run").filter(id=run_id).first()
    if run is None or not run.is_active:
        return False
    try:
        found = question_of(run)
    except DomainError as error:
        finish_run(run_id, RunStatus.FAILED, reason=str(error), in_background=in_background)
        return False
    rescoring = Rescoring(found)
    for batch in _left(run):
        if not _write(run, rescoring, batch):
            return False
    return _complete(run_id, in_background=in_background)


def question_of(run: Run) -> WhatIfQuestion:
    """Return the question that a run of `source_run` answers; raises DomainError where its source is gone."""
    if run.source_run is None:
        raise SourceGoneError(f"The run that {run} scores again is gone.")
    plan = read_plan(run.snapshot)
    origins = run.snapshot[RESCORED]["origins"]
    return question(run.source_run, RuleSet.of_plan(plan), origins=origins)


def _left(run: Run) -> Iterator[list[int]]:
    """Yield the results of the source that the run does not have yet, in stretches."""
    made = set(run.results.order_by().values_list("case_id", "repetition"))
    rows = Result.objects.filter(run_id=run.source_run_id or 0).order_by(
        "position", "repetition", "id"
    )
    left = [
        pk
        for pk, *place in rows.values_list("id", "case_id", "repetition")
        if tuple(place) not in made
    ]
    for start in range(0, len(left), BATCH_SIZE):
        yield left[start : start + BATCH_SIZE]


def _write(run: Run, rescoring: Rescoring, ids: Sequence[int]) -> bool:
    """Write a stretch of results; False when the run is over."""
    sources = list(
        Result.objects.filter(id__in=ids)
        .select_related("case")
        .order_by("position", "repetition", "id")
    )
    anew = _decided(rescoring, sources)
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if not held.is_active:
            return False
        places = Result.objects.filter(run=run, case__in=[one.case_id for one in sources])
        made = set(places.order_by().values_list("case_id", "repetition"))
        sources = [one for one in sources if (one.case_id, one.repetition) not in made]
        pairs = [(one.pk, _result(run, one, anew.get(one.pk))) for one in sources]
        Result.objects.bulk_create([new for _, new in pairs])
        new_ids = {old: new.pk for old, new in pairs}
        _copy(new_ids, anew)
        _write_scores(new_ids, anew)
        _count(run.pk, [new for _, new in pairs])
        _write_cases(held, sources)
    return True


def _write_cases(run: Run, sources: Sequence[Result]) -> None:
    """Write the cases of the batch; one whose repetitions began in an earlier batch is there already."""
    positions = {source.case_id: source.position for source in sources}
    there = set(run.cases.filter(case__in=positions).values_list("case_id", flat=True))
    RunCase.objects.add_open(run, (pair for pair in positions.items() if pair[0] not in there))
    RunCase.objects.refresh(run.pk, positions)


def _decided(rescoring: Rescoring, sources: Sequence[Result]) -> dict[int, Anew]:
    """Return by source what the new rules decide; what they do not move is left out."""
    found = rescoring.question
    moved = {
        one.pk: one
        for one in sources
        if one.status in CARRIED_OUT
        and one.pk not in found.fixed
        and found.stored.is_answered(one.pk)
    }
    rows: dict[int, list[Any]] = {pk: [] for pk in moved}
    # Rows without the model around them: there are ten of each result.
    scores = ScoreRow.objects.filter(result_id__in=moved).order_by("result_id", "position")
    for row in scores.values_list(*SCORE_COLUMNS, named=True):
        rows[row.result_id].append(row)
    judged = dict(ResultOutput.objects.filter(pk__in=moved).values_list("pk", "outcomes"))
    return {
        pk: rescoring.decide(
            one.case_id,
            one.case.expected_outcomes,
            rows[pk],
            judged=judged.get(pk) or (),
            warned=one.warnings,
        )
        for pk, one in moved.items()
    }


def _result(run: Run, source: Result, anew: Anew | None) -> Result:
    """Return a result of the new run: what was measured stays, what was decided is new, nothing is paid."""
    columns = {
        field.attname: getattr(source, field.attname)
        for field in Result._meta.concrete_fields
        if not field.primary_key
    }
    paid = NOTHING_PAID if source.status in CARRIED_OUT else None
    columns |= {"run_id": run.pk, "attempt": 1, "generation": 1, "retry_paths": None}
    columns |= {"run_cost_usd": paid, "evaluation_cost_usd": paid}
    if anew is not None:
        columns |= _decision_columns(anew)
    return Result(**columns)


def _decision_columns(anew: Anew) -> dict[str, Any]:
    decision = anew.decision
    is_scored = decision.status == "scored"
    reason = decision.error or "not scored"
    said = anew.outcomes.values()
    metrics = (one.score for one in said if isinstance(one, Score) and "metrics" in one.details)
    return {
        "status": ResultStatus.SCORED if is_scored else ResultStatus.ERROR,
        "verdict": decision.verdict.value if decision.verdict else "",
        "score": decision.score if is_scored else None,
        "metrics_score": next(metrics, None) if is_scored else None,
        "decided_by": decision.decided_by[:MAX_CELL_LENGTH] if is_scored else "",
        "is_forced": decision.is_forced,
        "error": "" if is_scored else reason,
        "error_stage": "" if is_scored else _stage(anew, reason),
        "warnings": list(decision.warnings),
    }


def _stage(anew: Anew, reason: str) -> str:
    place = anew.decision.evaluator or OUTCOMES_PATH
    unscored = {path: one for path, one in anew.outcomes.items() if isinstance(one, Unscored)}
    found = unscored.get(place) or next((o for o in unscored.values() if o.reason in reason), None)
    return found.stage if found else "evaluator"


def _copy(new_ids: Mapping[int, int], anew: Mapping[int, Anew]) -> None:
    """Copy outputs, files and reviews inside the database, as texts may be long; scores where none is new."""
    _copied(ResultOutput, OUTPUT_COLUMNS, new_ids)
    _copied(Artifact, ("path", "content_id"), new_ids)
    _copied(Review, REVIEW_COLUMNS, new_ids)
    columns = [name for name in SCORE_COLUMNS if name != RESULT]
    _copied(ScoreRow, columns, {old: new for old, new in new_ids.items() if old not in anew})


def _copied(model: type[models.Model], columns: Sequence[str], new_ids: Mapping[int, int]) -> None:
    """Insert for every new result the rows that its source has; `new_ids` are by the source's."""
    if not new_ids:
        return
    quote = connection.ops.quote_name
    by_name = {field.attname: str(field.column) for field in model._meta.concrete_fields}
    names = [quote(by_name[name]) for name in columns]
    table, result = quote(model._meta.db_table), quote(RESULT)
    # The pairs are named one by one: a database that looked for them would go through whole runs.
    pairs = ", ".join(["(%s, %s)"] * len(new_ids))
    statement = (
        f"WITH pairs (source_id, new_id) AS (VALUES {pairs}) "  # noqa: S608 - names of columns
        f"INSERT INTO {table} ({result}, {', '.join(names)}) "
        f"SELECT pairs.new_id, {', '.join(f'old.{name}' for name in names)} "
        f"FROM pairs JOIN {table} old ON old.{result} = pairs.source_id"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [pk for pair in new_ids.items() for pk in pair])


def _write_scores(new_ids: Mapping[int, int], anew: Mapping[int, Anew]) -> None:
    made = [(new_ids[pk], one) for pk, one in anew.items() if pk in new_ids]
    rows = (row for pk, one in made for row in score_rows(pk, one.root, one.outcomes, one.decision))
    insert_rows(ScoreRow, SCORE_COLUMNS, rows)
    decisions = ((one.decision.as_json(), pk) for pk, one in made)
    update_rows(ResultOutput, ("decision",), decisions, key=(RESULT,))


def _count(run_id: int, results: Sequence[Result]) -> None:
    """Move the run's counters, and show that somebody is at it."""
    carried_out = [one for one in results if one.status in CARRIED_OUT]
    verdicts = Counter(one.verdict for one in carried_out)
    scores = [one.score for one in carried_out if one.score is not None]
    Run.objects.filter(id=run_id).update(
        heartbeat_at=database_now(),
        done_count=F("done_count") + len(carried_out),
        pass_count=F("pass_count") + verdicts["pass"],
        borderline_count=F("borderline_count") + verdicts["borderline"],
        fail_count=F("fail_count") + verdicts["fail"],
        error_count=F("error_count") + sum(one.status == ResultStatus.ERROR for one in carried_out),
        score_sum=F("score_sum") + sum(scores),
        score_count=F("score_count") + len(scores),
    )


def _complete(run_id: int, *, in_background: bool) -> bool:
    """End the run as its source ended: what that left out is left out here too."""
    run = Run.objects.select_related("source_run").only("source_run__status").get(id=run_id)
    if run.source_run is None:
        return False
    left = run.results.exclude(status__in=CARRIED_OUT).count()
    reason = f"{left} executions were left out of the run it is made of" if left else ""
    was_completed = run.source_run.status == RunStatus.COMPLETED
    status = RunStatus.COMPLETED if was_completed else RunStatus.STOPPED
    return finish_run(run_id, status, reason=reason, in_background=in_background)
