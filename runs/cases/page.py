"""One case in full: what is asked, what is expected and what the last runs found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.cases.queries import SUITE_ORDER
from runs.lists import read_integer
from runs.models.results import Result
from runs.models.run_cases import execution_from, live_state
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case, Suite
from runs.results.case_rows import (
    RepetitionMark,
    mark_of_row,
    passed_words,
    people_of_row,
    result_address,
)
from runs.results.overrides import Override, override_of_case
from runs.suites.queries import Branch, branches
from runs.summary.cases import summarise_case
from runs.target_kinds._outputs import messages_as_json, output_from_json, trace_as_json
from runs.texts import cut_step, cut_turns

RUNS_SHOWN = 12
MAX_MARKS = 8
MAX_STEPS = 300


@dataclass(frozen=True, slots=True)
class CaseRun:
    """What one completed run found of a case: its verdict and mean score (SCORING §8).

    `unshown` of its repetitions have no mark of their own; `passed` says how many of them `passes`
    and whether they differ, "" of one.
    """

    number: int
    state: str
    score: float | None
    repetitions: tuple[RepetitionMark, ...]
    unshown: int
    passed: str
    passes: int
    scored: int
    is_flaky: bool
    spread: float | None
    override: Override | None


@dataclass(frozen=True, slots=True)
class RecordedTurns:
    """The output stored with a case, as a conversation, its steps and the names of its files."""

    turns: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    cut_characters: int
    cut_steps: int
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CasePage:
    """One revision of a case with its neighbours and what the last completed runs found."""

    case: Case
    revisions: Sequence[tuple[int, bool]]
    previous: str | None
    following: str | None
    runs: Sequence[CaseRun]
    evaluators: Branch | None
    recorded: RecordedTurns | None

    @property
    def now(self) -> int | None:
        """Return the current revision, None for a case that was taken out of the suite."""
        return next((number for number, is_current in self.revisions if is_current), None)

    @property
    def own_note(self) -> str:
        """Say what the case's own evaluators do to the suite's."""
        return "beside the suite's" if self.case.evaluators_append else "in place of the suite's"

    @property
    def repeated(self) -> Sequence[CaseRun]:
        """Return the last runs that carried the case out more than once, newest first."""
        return [run for run in reversed(self.runs) if len(run.repetitions) > 1]

    @property
    def runs_text(self) -> str:
        """Say in words what the marks of the last runs show."""
        passed = sum(run.state == "pass" for run in self.runs)
        return f"#{self.runs[0].number} to #{self.runs[-1].number}. Pass in {passed} of {len(self.runs)}."


def case_revisions(slug: str, key: str, revision: str) -> QuerySet[Case]:
    """Return the asked revision of a case; when none is named the current one, or the last it had."""
    cases = Case.objects.filter(suite__slug=slug, key=key).select_related("suite")
    if revision.isdigit():
        number = read_integer(revision)
        return cases.none() if number is None else cases.filter(revision=number)
    return cases.order_by("-is_current", "-revision")[:1]


def case_place(case: Case) -> int:
    """Return the place of a current case in the suite's order, from 1."""
    current = case.suite.cases.filter(is_current=True)
    before = Q(position__lt=case.position) | Q(position=case.position, pk__lt=case.pk)
    return current.filter(before).count() + 1


def runs_with(suite: Suite, keys: Sequence[str]) -> int:
    """Return how many runs have results of any revision of one of the cases."""
    cases = Case.objects.filter(suite=suite, key__in=keys).values("pk")
    return suite.runs.filter(
        Exists(Result.objects.filter(run=OuterRef("pk"), case__in=cases))
    ).count()


def case_page(case: Case) -> CasePage:
    """Return everything the page of a case shows."""
    suite = case.suite
    current = suite.cases.filter(is_current=True).exclude(key=case.key)
    before = Q(position__lt=case.position) | Q(position=case.position, pk__lt=case.pk)
    earlier = current.filter(before).order_by("-position", "-id")
    revisions = suite.cases.filter(key=case.key).order_by("-revision")
    return CasePage(
        case=case,
        revisions=list(revisions.values_list("revision", "is_current")),
        previous=earlier.values_list("key", flat=True).first(),
        following=SUITE_ORDER.behind(current, SUITE_ORDER.place(case))
        .values_list("key", flat=True)
        .first(),
        runs=_case_runs(case),
        evaluators=branches(EvaluatorSpec.model_validate(case.evaluators), scale=suite.scale)
        if case.evaluators
        else None,
        recorded=_recorded(case.recorded_output),
    )


def saved_by(case: Case) -> str:
    """Return who made the current revision of a case, as far as the last version tells; "" if it does not."""
    both = case.suite.versions.select_related("author").order_by("-number")[:2]
    has = [
        any(
            one["key"] == case.key and one["revision"] == case.revision
            for one in version.content["cases"]
        )
        for version in both
    ]
    author = both[0].author if has[:1] == [True] and not any(has[1:]) else None
    return author.get_username() if author else ""


def done_to(page: CasePage, asked: Mapping[str, str]) -> Mapping[str, int]:
    """Return what was just done to the case and can be undone: it was `made`, or changed from `before`.

    Nothing once the case has changed since, so that an old address offers no undoing of later work.
    """
    now, numbers = page.now, {number for number, _ in page.revisions}
    if now != page.case.revision:
        return {}
    if asked.get("made") == str(now) and len(numbers) == 1:
        return {"made": now}
    before = next((n for n in numbers if asked.get("before") == str(n)), None)
    return {"before": before} if before and before != now else {}


def _recorded(stored: Mapping[str, Any] | None) -> RecordedTurns | None:
    if stored is None:
        return None
    # Its files may name those of a version; here their names are enough.
    output = output_from_json({**stored, "files": None})
    answer = [{"role": "assistant", "content": output.text}]
    shown = cut_turns(messages_as_json(output) or answer)
    steps = trace_as_json(output) or ()
    return RecordedTurns(
        turns=shown.messages,
        steps=[cut_step(step) for step in steps[:MAX_STEPS]],
        cut_characters=shown.cut_characters,
        cut_steps=max(0, len(steps) - MAX_STEPS),
        files=sorted(stored.get("files") or ()),
    )


def _case_runs(case: Case) -> Sequence[CaseRun]:
    """Return what the last completed runs found of the case, oldest first."""
    ran = Run.objects.filter(suite=case.suite, status=RunStatus.COMPLETED)
    with_case = Result.objects.filter(run=OuterRef("pk"), case__key=case.key)
    newest = ran.filter(Exists(with_case)).order_by("-number")
    policies = dict(newest.values_list("pk", "snapshot__policy")[:RUNS_SHOWN])
    results = Result.objects.filter(run__in=policies, case__key=case.key)
    rows = results.order_by("run__number", "repetition").values(
        *(
            "run_id",
            "run__number",
            "repetition",
            "status",
            "verdict",
            "reviewed_verdict",
            "score",
            "is_forced",
        )
    )
    return [
        _case_run(case, list(group), PolicySpec.model_validate(policies[run]))
        for run, group in groupby(rows, key=itemgetter("run_id"))
    ]


def _case_run(case: Case, rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> CaseRun:
    number = rows[0]["run__number"]
    found = summarise_case(case.key, [execution_from(row) for row in rows], policy)
    return CaseRun(
        number=number,
        state=live_state(rows, policy),
        score=found.means.score,
        repetitions=tuple(
            RepetitionMark(
                row["repetition"],
                result_address(case.suite.slug, number, case.key, row["repetition"]),
                mark_of_row(row, policy),
                row["score"],
                people_of_row(row),
            )
            for row in rows[:MAX_MARKS]
        ),
        unshown=max(0, len(rows) - MAX_MARKS),
        passed=passed_words(found),
        passes=found.passed,
        scored=found.scored,
        is_flaky=found.is_flaky,
        spread=found.spread,
        override=override_of_case(rows, policy),
    )
