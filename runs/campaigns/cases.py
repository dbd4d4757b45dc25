"""The cases of a campaign: how each came out against each target, and what that says of two runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Max
from django.urls import reverse

from evaluators.templatetags.marks import VERDICT_WORDS
from runs.campaigns.board import ALL_FAILED, DIFFER, ERRORED, SHOWN, CampaignQuery
from runs.compare.evidence import Evidence, evidence, holm
from runs.lists import Chip, cut_page, read_integer
from runs.models.results import ENDED_RESULT_STATUSES, Result
from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.models.suites import Case

CHUNK = 5000
SCORED = ("pass", "borderline", "fail")
ENDED = (*SCORED, "error")

# The state of a case as pages name it, and how many of its scored repetitions passed of how many.
Outcome = tuple[str, int, int]
Outcomes = Mapping[int, Outcome]


@dataclass(frozen=True, slots=True)
class CampaignCell:
    """One case against one target: its state, "" where the run lacks it, and where it is shown.

    `passed` of `scored` repetitions passed; `is_reviewed` tells that people decided any of them.
    """

    state: str
    label: str
    url: str
    passed: int = 0
    scored: int = 0
    is_reviewed: bool = False


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A case with a cell for each run."""

    key: str
    title: str
    cells: Sequence[CampaignCell]
    differs: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """One page of the cases, in the order of the suite."""

    query: CampaignQuery
    runs: Sequence[Run]
    rows: Sequence[MatrixRow]
    chips: Sequence[Chip]
    total: int
    matching: int
    repetitions: int
    next_address: str


def outcomes_by_case(runs: Sequence[Run]) -> Mapping[int, Outcomes]:
    """Return for each case, in the order of the suite, how it came out in each run; one query.

    Runs that were started together share cases, policy and repetitions.
    """
    cases = RunCase.objects.filter(run__in=[run.pk for run in runs]).live().order_by()
    columns = ("run_id", "case_id", "position", "live_state", "passed", "scored")
    places: dict[int, int] = {}
    found: dict[int, dict[int, Outcome]] = defaultdict(dict)
    # Of thousands of cases few come out differently; those that come out alike share a value.
    known: dict[Outcome, Outcome] = {}
    rows: Any = cases.values_list(*columns)
    for run, case, place, *counts in rows.iterator(CHUNK):
        places[case] = place
        outcome: Outcome = tuple(counts)
        found[case][run] = known.setdefault(outcome, outcome)
    return {case: found[case] for case in sorted(found, key=lambda case: (places[case], case))}


def _share(outcome: Outcome | None) -> float | None:
    """Return the share of a case's scored repetitions that passed; None where it has no verdict."""
    if outcome is None or outcome[0] not in SCORED:
        return None
    return outcome[1] / outcome[2] if outcome[2] else None


def evidence_against(
    first: int, others: Sequence[int], cases: Mapping[int, Outcomes]
) -> Mapping[int, Evidence]:
    """Return for each other run whether its pass rate can be told from the first's (SCORING §9).

    Over the cases that both have a verdict for; p is raised by Holm's rule for as many comparisons.
    """
    counts: dict[int, Counter[float]] = {run: Counter() for run in others}
    for outcomes in cases.values():
        if (ours := _share(outcomes.get(first))) is None:
            continue
        for run in others:
            if (theirs := _share(outcomes.get(run))) is not None:
                counts[run][ours - theirs] += 1
    found = [evidence(counts[run], seed=first * 1_000_003 + run) for run in others]
    return dict(zip(others, holm(found), strict=True))


def matrix(
    runs: Sequence[Run], cases: Mapping[int, Outcomes], query: CampaignQuery, slug: str
) -> Matrix:
    """Return 50 of the cases that are asked for, a cell for each run; three queries or four."""
    kinds = _kinds_of_all(cases, len(runs))
    counts = Counter(kind for of_case in kinds.values() for kind in of_case)
    places = {case: place for place, case in enumerate(cases)}
    matching = [case for case in cases if query.shown in kinds[case]]
    after = read_integer(query.after)
    beyond = [case for case in matching if after is None or places[case] > after]
    page = cut_page(beyond, lambda case: str(places[case]))
    return Matrix(
        query=query,
        runs=runs,
        rows=_rows(runs, {case: cases[case] for case in page.rows}, slug),
        chips=[
            query.chip(label, counts[name], value=name, shown=name) for name, label in SHOWN.items()
        ],
        total=len(cases),
        matching=len(matching),
        repetitions=runs[0].repetitions if runs else 1,
        next_address=page.next_address(query),
    )


def _kinds_of_all(cases: Mapping[int, Outcomes], runs: int) -> Mapping[int, set[str]]:
    """Return by case which of the filters show it."""
    known: dict[tuple[Outcome, ...], set[str]] = {}
    found = {}
    for case, outcomes in cases.items():
        key = (*outcomes.values(),)
        if key not in known:
            known[key] = _kinds(outcomes, runs)
        found[case] = known[key]
    return found


def _kinds(outcomes: Outcomes, runs: int) -> set[str]:
    """Return which of the filters show a case."""
    ended = [state for state, *_ in outcomes.values() if state in ENDED]
    found = {""}
    if len(set(ended)) > 1:
        found.add(DIFFER)
    if len(ended) == runs and set(ended) == {"fail"}:
        found.add(ALL_FAILED)
    if "error" in ended:
        found.add(ERRORED)
    return found


def _rows(runs: Sequence[Run], shown: Mapping[int, Outcomes], slug: str) -> Sequence[MatrixRow]:
    cases = Case.objects.only("key", "title").in_bulk(list(shown))
    telling = _telling(runs, list(shown)) if runs and runs[0].repetitions > 1 else {}
    said = _said(runs, list(shown))
    return [
        MatrixRow(
            key=cases[case].key,
            title=cases[case].title,
            cells=[
                _with_people(
                    _cell(
                        run,
                        cases[case].key,
                        outcomes.get(run.pk),
                        slug,
                        telling.get((run.pk, case)),
                    ),
                    said.get((run.pk, case), ()),
                    run.repetitions,
                )
                for run in runs
            ],
            differs=DIFFER in _kinds(outcomes, len(runs)),
        )
        for case, outcomes in shown.items()
        if case in cases
    ]


def _telling(runs: Sequence[Run], cases: Sequence[int]) -> Mapping[tuple[int, int], int]:
    """Return by run and case the last repetition that did not pass; a page shows that one first."""
    rows = Result.objects.filter(run__in=[run.pk for run in runs], case__in=cases)
    others = rows.exclude(verdict="pass").order_by().values("run_id", "case_id")
    found = others.annotate(last=Max("repetition"))
    return {(row["run_id"], row["case_id"]): row["last"] for row in found}


def _said(
    runs: Sequence[Run], cases: Sequence[int]
) -> Mapping[tuple[int, int], Sequence[tuple[str, str]]]:
    """Return by run and case what the machine and what people say of each repetition that people decided."""
    rows: Any = Result.objects.filter(
        run__in=[run.pk for run in runs], case__in=cases, status__in=ENDED_RESULT_STATUSES
    ).exclude(reviewed_verdict="")
    found: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    columns = ("run_id", "case_id", "verdict", "reviewed_verdict")
    for run, case, *said in rows.order_by("repetition").values_list(*columns):
        found[run, case].append((said[0], said[1]))
    return found


def _with_people(
    cell: CampaignCell, said: Sequence[tuple[str, str]], repetitions: int
) -> CampaignCell:
    """Return the cell with what people say in its label."""
    if not cell.state or not said:
        return cell
    ((machine, people), *_) = said
    if repetitions > 1:
        words = f"people decided {len(said)} of {repetitions} repetitions"
    else:
        told = VERDICT_WORDS[machine or "error"].lower()
        words = f"the machine says {told}, people say {VERDICT_WORDS[people].lower()}"
    return replace(cell, label=f"{cell.label}; {words}", is_reviewed=True)


def _cell(
    run: Run, key: str, outcome: Outcome | None, slug: str, repetition: int | None
) -> CampaignCell:
    if outcome is None:
        return CampaignCell("", f"{key} is not in this run", "")
    state, passed, scored = outcome
    place = {"slug": slug, "number": run.number, "key": key, "repetition": repetition or 1}
    label = f"{VERDICT_WORDS[state]}: {key} against {run.target_name}"
    return CampaignCell(state, label, reverse("runs:result", kwargs=place), passed, scored)
