"""Take the scores that other tools gave to results of a run; they are shown beside ours and never count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models.database import among, database_now, insert_rows
from runs.models.results import ExternalScore
from runs.models.runs import Run
from runs.running.pushing import UnusablePushesError, unknown_place
from runs.specs.external_scores import COLUMNS, MAX_NAMES, GivenScore

MAX_SCORES = 1_000


class UnusableScoresError(UnusablePushesError):
    """Some scores cannot be used, so none was stored."""

    code, thing, field = "unusable_scores", "Score", "scores"


class NoMoreScoresError(DomainError):
    """The texts of a run were removed, and new ones would come back."""

    code = "no_more_scores"


@dataclass(slots=True)
class ScoresSummary:
    """How many scores are new, how many replaced another, and how many were there already."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0


def push_scores(run: Run, given: Sequence[GivenScore], *, by: User | None) -> ScoresSummary:
    """Store the scores beside those of the run; safe to repeat, in any order, also once the run is over.

    A score of the same result, source and name is replaced. Raises UnusableScoresError for cases that the run does
    not have, values outside their range, a score twice in the batch, and too many different scores for one run, and
    NoMoreScoresError; then nothing has changed.
    """
    problems = {place: text for place, score in enumerate(given) if (text := score.problem())}
    if problems:
        raise UnusableScoresError(problems)
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if held.lacks_details:
            raise NoMoreScoresError(f"The details of run {run} were removed. It takes no scores.")
        cases = among({score.case for score in given}, "text")
        rows = run.results.filter(case__key__in=cases).order_by()
        results = {
            (key, repetition): pk
            for pk, key, repetition in rows.values_list("pk", "case__key", "repetition")
        }
        if unknown := _unknown(run, given, results):
            raise UnusableScoresError(unknown)
        summary = _store(given, results)
        names = {*held.external_names, *(score.full_name for score in given)}
        if len(names) > MAX_NAMES:
            place = len(given) - 1
            reason = (
                f"Run {run} would have {len(names)} different scores; {MAX_NAMES} is the limit."
            )
            raise UnusableScoresError({place: reason})
        Run.objects.filter(pk=run.pk).update(external_names=sorted(names))
        if summary.added or summary.changed:
            AuditEntry.objects.record(
                "score",
                by=by,
                object_type="run",
                object_id=run.pk,
                object_name=f"{run.suite.slug} #{run.number}",
                after={
                    "scores": sorted({score.full_name for score in given}),
                    "added": summary.added,
                    "changed": summary.changed,
                },
            )
    return summary


def _unknown(
    run: Run, given: Sequence[GivenScore], results: Mapping[tuple[str, int], int]
) -> dict[int, str]:
    """Return the problems of scores by their place: no such result, or the same score as an earlier one."""
    known = {case for case, _ in results}
    seen: set[tuple[str, int, str, str]] = set()
    problems = {}
    for place, score in enumerate(given):
        key = (score.case, score.repetition, score.source, score.name)
        if (score.case, score.repetition) not in results:
            problems[place] = unknown_place(run, score.case, score.repetition, known)
        elif key in seen:
            problems[place] = "An earlier score of the batch has the same result, source and name."
        seen.add(key)
    return problems


def _store(given: Sequence[GivenScore], results: Mapping[tuple[str, int], int]) -> ScoresSummary:
    stored = ExternalScore.objects.filter(result__in=among(results.values())).order_by()
    before = {(row.result_id, row.source, row.name): row for row in stored}
    summary, now = ScoresSummary(), database_now()
    rows, replaced = list[tuple[Any, ...]](), list[int]()
    for score in given:
        pk = results[score.case, score.repetition]
        earlier = before.get((pk, score.source, score.name))
        if earlier and tuple(getattr(earlier, column) for column in COLUMNS) == score.values:
            summary.unchanged += 1
            continue
        if earlier:
            replaced.append(earlier.pk)
        summary.added += earlier is None
        summary.changed += earlier is not None
        rows.append((pk, now, *score.row.values()))
    # The run is locked. An upsert would be sent as arrays, in which the driver escapes each quote in Python.
    ExternalScore.objects.filter(pk__in=among(replaced)).delete()
    if rows:
        columns = ("result_id", "pushed_at", *given[0].row)
        insert_rows(ExternalScore, columns, rows)
    return summary
