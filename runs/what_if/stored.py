"""Read the stored scores of a finished run, in a fixed number of queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Substr

from evaluators.kinds import all_kinds
from evaluators.scoring.types import DomainError
from runs.engine.plan import read_plan
from runs.models.removals import RemovalPart
from runs.models.results import EvaluatorScore, ResultOutput, ScoreState
from runs.models.runs import RecentValues, Run, RunStatus
from runs.models.stored import decode_leaf_scores
from runs.models.suites import Case
from runs.running.rules import Origins
from runs.what_if.asking import RuleChange, WhatIf, fixed_results, what_if
from runs.what_if.changes import RuleSet
from runs.what_if.deciding import (
    PartsRead,
    StoredCase,
    StoredResult,
    StoredRun,
    read_overall,
    rescore_parts,
)

CHUNK = 2000
PARTS_CHUNK = 200
MAX_MARKS = 200
MAX_CELL_LENGTH = 300
MAX_KEPT, MAX_KEPT_EXECUTIONS = 2, 40_000
RESULT_COLUMNS = (
    *("id", "case_id", "repetition", "status", "verdict", "score", "is_forced"),
    *("reviewed_verdict", "outcome_marks", "decided_by", "short_error"),
)


class DetailsRemovedError(DomainError):
    """Everything but the figures of the run was removed."""

    code = "details_removed"


class RunNotEndedError(DomainError):
    """The run is still running."""

    code = "run_not_ended"


@dataclass(slots=True)
class KeptRun:
    """A stored run, and after its first question also the results that keep their verdict."""

    stored: StoredRun
    fixed: frozenset[int] | None = None


# Moving a slider sends many requests about one run.
KEPT: RecentValues[KeptRun] = RecentValues(MAX_KEPT)


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """A change of rules with the data to answer it; `fixed` results keep their verdict."""

    rule_change: RuleChange
    stored: StoredRun
    parts: Mapping[str, PartsRead]
    fixed: frozenset[int]

    def answer(self) -> WhatIf:
        """Return the run before and after."""
        return what_if(self.rule_change, self.stored, parts=self.parts, fixed=self.fixed)


def ask(run: Run, after: RuleSet, *, origins: Origins = None) -> WhatIfQuestion:
    """Read everything that is needed to apply other rules to a finished run.

    Raises RunNotEndedError for an active run, DetailsRemovedError for one without what explains its
    scores, DomainError for invalid rules.
    """
    if run.is_active:
        raise RunNotEndedError(f"Run {run} is still running. Its scores are complete when it ends.")
    if run.lacks_details:
        raise DetailsRemovedError(
            f"{run.removal_message} Run {run} cannot be scored by other rules any more."
        )
    if run.removal is not None and run.removal.part == RemovalPart.DETAILS:
        raise DetailsRemovedError(
            f"Everything but figures of run {run} is being removed. It cannot be scored by other rules any more."
        )
    kept = _kept(run)
    plain = kept.stored
    rule_change = RuleChange(
        RuleSet.of_plan(read_plan(run.snapshot)), after, plain.cases, all_kinds(), origins=origins
    )
    stored = _with_overalls(run, rule_change, plain)
    if kept.fixed is None:
        kept.fixed = fixed_results(rule_change, stored)
    return WhatIfQuestion(rule_change, stored, _parts(run, rule_change), kept.fixed)


def _kept(run: Run) -> KeptRun:
    """Return the stored run; three queries, none where the same results were just asked about."""
    if run.execution_count > MAX_KEPT_EXECUTIONS:
        return KeptRun(_stored(run))
    version = run.pk, run.results_version, run.status
    return KEPT.get(version, lambda: KeptRun(_stored(run)))


def _stored(run: Run) -> StoredRun:
    leaf_scores = decode_leaf_scores(run.pk, run.leaf_scores)
    results = _results(run)
    ran = Case.objects.filter(pk__in=run.cases.order_by().values("case_id")).order_by()
    # As text, for most cases have as many outcomes as others and no own evaluators: each text is read once.
    rows = ran.annotate(
        expected=Cast("expected_outcomes", TextField()), own=Cast("evaluators", TextField())
    ).values_list("pk", "key", "expected", "own", "evaluators_append")
    count = cache(lambda expected: len(json.loads(expected) or ()))
    read = cache(lambda own: json.loads(own) if own else None)
    known = {
        pk: StoredCase(key, count(expected), read(own), append)
        for pk, key, expected, own, append in rows
    }
    # In the order of the suite, as results are.
    cases = {result.case: known[result.case] for result in results}
    is_completed = run.status == RunStatus.COMPLETED
    columns = {path: place for place, path in enumerate(leaf_scores.scores)}
    by_result = zip(*leaf_scores.scores.values(), strict=True)
    scores = dict(zip(leaf_scores.results, by_result, strict=False))
    return StoredRun(results, cases, columns, scores, is_completed=is_completed)


def _results(run: Run) -> list[StoredResult]:
    rows = (
        run.results.annotate(short_error=Substr("error", 1, MAX_CELL_LENGTH))
        .order_by("position", "repetition", "id")
        .values_list(*RESULT_COLUMNS)
    )
    results = [StoredResult._make(row) for row in rows.iterator(chunk_size=CHUNK)]
    maybe_cut = [result.id for result in results if len(result.marks) >= MAX_MARKS]
    if not maybe_cut:
        return results
    outputs = ResultOutput.objects.filter(pk__in=maybe_cut).values_list("pk", "outcomes")
    marks = {
        pk: "".join("01"[outcome["passed"]] for outcome in outcomes or ())
        for pk, outcomes in outputs
    }
    return [result._replace(marks=marks.get(result.id, result.marks)) for result in results]


def _parts(run: Run, rule_change: RuleChange) -> Mapping[str, PartsRead]:
    """Return the new scores of evaluators with changed settings; one query, none without such evaluators."""
    changes = rule_change.rescored.values()
    if not changes:
        return {}
    rows = EvaluatorScore.objects.filter(
        result__run_id=run.pk,
        path__in={change.origin for change in changes},
        state=ScoreState.SCORED,
    ).order_by()
    parts: Iterator[tuple[str, int, Mapping[str, Any]]] = rows.values_list(
        "path", "result_id", "details"
    ).iterator(chunk_size=PARTS_CHUNK)
    return rescore_parts(changes, rule_change.kinds, parts)


def _with_overalls(run: Run, rule_change: RuleChange, stored: StoredRun) -> StoredRun:
    """Add the overall scores of judges where they decide; one query, none otherwise."""
    if not rule_change.takes_overall:
        return stored
    rows = EvaluatorScore.objects.filter(result__run_id=run.pk, state=ScoreState.SCORED).order_by()
    paths = rule_change.overall_paths
    rows = rows.filter(path__in=paths) if paths else rows.filter(details__has_key="judge_overall")
    overalls: dict[str, dict[int, float]] = {}
    scores = rows.values_list("path", "result_id", "details__judge_overall")
    for path, result, judged in scores.iterator(chunk_size=CHUNK):
        if (overall := read_overall(judged)) is not None:
            overalls.setdefault(path, {})[result] = overall
    return replace(stored, overalls=overalls)
