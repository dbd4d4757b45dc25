"""The leaderboard of a campaign, and its cases against each target: ranks, figures, evidence and headline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django.db.models import Max
from django.urls import reverse
from django.utils.text import get_text_list

from evaluators.scoring.numbers import rounded
from evaluators.scoring.significance import Evidence, evidence, holm
from evaluators.templatetags.figures import counted, money, pct
from evaluators.templatetags.marks import VERDICT_WORDS
from runs import lists
from runs.charts.figures import Offer, dominators
from runs.charts.queries import COSTS
from runs.lists import Chip, ListQuery, Sort, cut_page, read_integer
from runs.models.results import ENDED_RESULT_STATUSES, Result
from runs.models.run_cases import RunCase
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case
from runs.results.runs import RunRow, run_row, score_intervals

# The columns of the leaderboard by name: their label, and whether more is better.
COLUMNS: Mapping[str, tuple[str, bool]] = {
    "rank": ("Rank", False),
    "target": ("Target", False),
    "state": ("State", False),
    "rate": ("Pass rate", True),
    "score": ("Mean score", True),
    "verdicts": ("Verdicts", True),
    "latency": ("Mean latency", False),
    "target_cost": ("Target cost", False),
    "evaluation_cost": ("Judge cost", False),
    "cost": ("Total cost", False),
    "passed_result": ("Cost per pass", False),
    "front": ("Pareto front", False),
}
DIFFER, ALL_FAILED, ERRORED = "differ", "failed", "errored"
SHOWN: Mapping[str, str] = {
    "": "All",
    DIFFER: "They differ",
    ALL_FAILED: "All failed",
    ERRORED: "Errored",
}


@dataclass(frozen=True, slots=True)
class CampaignQuery(ListQuery):
    """How a campaign is shown: sorted, by which cost, and which of its cases."""

    sort: Sort = lists.sort(COLUMNS, "rank")
    cost: str = lists.option(COSTS, "total")
    shown: str = lists.choice(SHOWN, name="cases")
    after: str = lists.after()

    @property
    def cost_label(self) -> str:
        """Return the label of the chosen cost."""
        return COSTS[self.cost]


Interval = tuple[float, float]
# Why a run has no rank, by its status.
WHY_UNRANKED: Mapping[str, str] = {
    RunStatus.QUEUED: "no rank yet: it is waiting",
    RunStatus.RUNNING: "no rank yet: it is still running",
    RunStatus.STOPPED: "no rank: cancelled, so it has no final figure",
    RunStatus.BUDGET_REACHED: "no rank: it reached its budget, so it has no final figure",
    RunStatus.FAILED: "no rank: the run failed, so it has no final figure",
    RunStatus.COMPLETED: "no rank: nothing was executed",
}
STATES = (*RunStatus.values,)
# The columns that highlight their best figure, and whether more is better.
COMPARED: Mapping[str, bool] = {
    "rate": True,
    "score": True,
    "latency": False,
    "target_cost": False,
    "evaluation_cost": False,
    "cost": False,
    "passed_result": False,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A completed run to rank: its pass rate over all results, and its mean score or None, both 0 to 1."""

    key: int
    rate: float
    score: float | None = None


def ranks(standings: Sequence[Standing]) -> Mapping[int, int]:
    """Return the rank of each run by its key, 1 for the best.

    The higher pass rate wins, then the higher mean score, both to 9 decimals. Runs that are equal in both
    share a rank, and the ranks after them are skipped. No score ranks below every score.
    """
    order = sorted((_sort_key(standing) for standing in standings), reverse=True)
    return {standing.key: order.index(_sort_key(standing)) + 1 for standing in standings}


def _sort_key(standing: Standing) -> tuple[float, float]:
    return rounded(standing.rate), -1.0 if standing.score is None else rounded(standing.score)


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One run. `rank` is None until it has a final figure; missing figures are None.

    `passed` of `counted` results passed, `scored` of them have a score. `figures` holds the sort
    values of the columns, `best` the columns in which the run is best. `against` is the evidence of a
    difference from the first run. `beaten_by` dominates the run by score and total cost, and `is_offer`
    tells whether it has both.
    """

    run: RunRow
    pk: int
    rank: int | None
    passed: int
    counted: int
    scored: int
    interval: Interval | None
    score_interval: Interval | None
    counts: Mapping[str, int]
    figures: Mapping[str, Any]
    is_offer: bool
    beaten_by: Offer | None = None
    best: frozenset[str] = field(default_factory=frozenset)
    against: Evidence | None = None

    def sorted_as(self, column: str) -> Any:
        """Return the sort value of a column; runs on the Pareto front sort first."""
        if column == "front":
            return (self.beaten_by is not None) if self.is_offer else None
        return self.figures[column]

    @property
    def why_unranked(self) -> str:
        """Say why the run has no rank, "" where it has one."""
        return "" if self.rank else WHY_UNRANKED[self.run.status]

    @property
    def evidence_words(self) -> str:
        """Say whether it differs from the first run, "" where they were not compared."""
        return evidence_words(self.against) if self.against else ""

    @property
    def latency_ms(self) -> float | None:
        """Return its mean latency."""
        latency: float | None = self.figures["latency"]
        return latency

    @property
    def passed_result_usd(self) -> Decimal | None:
        """Return the total cost per passed execution; None when none passed."""
        usd: Decimal | None = self.figures["passed_result"]
        return usd


def board(runs: Sequence[Run], against: Mapping[int, Evidence]) -> Sequence[BoardRow]:
    """Return the rows by rank, then the runs without a rank in the order of their start.

    `runs` come from `listed`; `against` holds the evidence of a difference from the first run.
    """
    rows = {run.pk: run_row(run) for run in runs}
    ranked = ranks([_standing(run, rows[run.pk]) for run in runs if _is_final(rows[run.pk])])
    figures = {run.pk: _figures(run, rows[run.pk], ranked.get(run.pk)) for run in runs}
    offers = [_offer(rows[pk], values) for pk, values in figures.items() if pk in ranked]
    beaten_by = dominators([offer for offer in offers if offer is not None])
    best = _best([figures[pk] for pk in ranked])
    intervals = score_intervals(runs)
    board_rows = [
        BoardRow(
            run=row,
            pk=run.pk,
            rank=ranked.get(run.pk),
            passed=(run.summary or {}).get("passed", run.pass_count),
            counted=run.execution_count if _is_final(row) else run.done_count,
            scored=run.score_count,
            interval=_interval(run),
            score_interval=intervals[run.pk],
            counts=_counts(run, row),
            figures=figures[run.pk],
            is_offer=row.number in beaten_by,
            beaten_by=beaten_by.get(row.number),
            best=frozenset(
                name
                for name, value in best.items()
                if run.pk in ranked and figures[run.pk][name] == value
            ),
            against=against.get(run.pk),
        )
        for run in runs
        for row in (rows[run.pk],)
    ]
    return sorted(board_rows, key=lambda row: (row.rank is None, row.rank or 0, row.run.number))


def sort_rows(rows: Sequence[BoardRow], query: CampaignQuery) -> Sequence[BoardRow]:
    """Sort rows, which come by rank, as the query asks; missing figures come last."""
    if query.sort == Sort("rank"):
        return rows
    known = [row for row in rows if row.sorted_as(query.sort.name) is not None]
    missing = [row for row in rows if row.sorted_as(query.sort.name) is None]
    known.sort(key=lambda row: row.sorted_as(query.sort.name), reverse=query.sort.is_descending)
    return [*known, *missing]


def leaders(rows: Sequence[BoardRow]) -> Sequence[BoardRow]:
    """Return the runs of rank 1."""
    return [row for row in rows if row.rank == 1]


def evidence_words(evidence: Evidence) -> str:
    """Say whether a run differs from the first."""
    if evidence.p is None:
        return f"{evidence.shared} shared cases are too few to tell it from rank 1"
    p = "p < 0.001" if evidence.p < 0.001 else f"p = {evidence.p:.3f}"
    over = f"{p} over {evidence.shared} shared cases"
    return f"behind rank 1, {over}" if evidence.is_clear else f"not clearly behind rank 1, {over}"


def _is_final(row: RunRow) -> bool:
    return row.status == RunStatus.COMPLETED and row.cases.share is not None


def _standing(run: Run, row: RunRow) -> Standing:
    return Standing(run.pk, row.cases.share or 0.0, row.metrics.share)


def _figures(run: Run, row: RunRow, rank: int | None) -> Mapping[str, Any]:
    """Return the sort value of each column."""
    summary: Mapping[str, Any] = run.summary or {}
    total = None if row.costs.is_partial else row.costs.total_usd
    passed = summary.get("passed", run.pass_count)
    return {
        "rank": rank,
        "target": row.target.casefold(),
        "state": (STATES.index(row.status), -(row.done / max(row.executions, 1))),
        "rate": row.cases.share,
        "score": row.metrics.share,
        "verdicts": summary.get("distribution", {}).get("pass", 0)
        if summary
        else row.counts["pass"],
        "latency": summary.get("means", {}).get("latency_ms"),
        "target_cost": None if row.costs.run.is_partial else row.costs.run.usd,
        "evaluation_cost": None if row.costs.evaluation.is_partial else row.costs.evaluation.usd,
        "cost": total,
        "passed_result": total / passed if total is not None and passed else None,
        "execution_cost": total / row.done if total is not None and row.done else None,
    }


def _offer(row: RunRow, figures: Mapping[str, Any]) -> Offer | None:
    """Return score and cost of a run; None where one of them is not known."""
    if figures["score"] is None or figures["execution_cost"] is None:
        return None
    return Offer(row.number, row.target, figures["score"], figures["execution_cost"])


def _best(figures: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the best figure of each column with two or more different figures."""
    best = {}
    for name, more_is_better in COMPARED.items():
        known = [row[name] for row in figures if row[name] is not None]
        if len(known) > 1 and len(set(known)) > 1:
            best[name] = max(known) if more_is_better else min(known)
    return best


def _interval(run: Run) -> Interval | None:
    ends = (run.summary or {}).get("interval")
    return (ends[0], ends[1]) if ends else None


def _counts(run: Run, row: RunRow) -> Mapping[str, int]:
    """Return the number of cases by state from the summary; before there is one, of results."""
    counts: Mapping[str, int] = (run.summary or {}).get("distribution", {})
    shown_as = {"not_run": "cancelled"}
    cases = {shown_as.get(name, name): count for name, count in counts.items() if name != "total"}
    return cases or row.counts


def headline(rows: Sequence[BoardRow]) -> str:
    """Return the campaign in a sentence or two; `rows` are by rank."""
    if not rows:
        return "No run of this campaign is left."
    first, active = leaders(rows), [row for row in rows if row.run.is_active]
    if not first:
        if active:
            return f"{_running(active, rows)}; no run has a final figure yet."
        return "No run was completed, so no run leads."
    ranked = [row for row in rows if row.rank is not None]
    if all(_has_only_errors(row) for row in ranked):
        of_which = "" if len(ranked) == len(rows) else " of the completed runs"
        none = f"o run leads: all results{of_which} have errors."
        return f"{_running(active, rows)}; n{none}" if active else f"N{none}"
    lead = _lead(first, "so far " if active else "")
    if active:
        return f"{_running(active, rows)}; {lead}."
    doubts = [row for row in rows if row.against is not None and not row.against.is_clear]
    return f"{lead}{_for_its_cost(first)}.{_gates(first)}{_doubt(doubts, first)}"


def _has_only_errors(row: BoardRow) -> bool:
    return not row.scored and {state for state, count in row.counts.items() if count} == {"error"}


def _lead(first: Sequence[BoardRow], when: str) -> str:
    row = first[0]
    rate = f"{pct(row.run.cases.share)} ({row.passed} of {counted(row.counted, 'result')})"
    if len(first) > 1:
        names = get_text_list([leader.run.target for leader in first], "and")
        return f"{when}{names} share the lead with {rate}"
    cost = row.passed_result_usd
    at = f" at {money(cost)} per pass" if cost is not None else ""
    return f"{when}{row.run.target} leads with {rate}{at}"


def _for_its_cost(first: Sequence[BoardRow]) -> str:
    if len(first) > 1:
        return ""
    row = first[0]
    if not row.is_offer:
        return "; its cost is only partly known" if row.passed_result_usd is None else ""
    if row.beaten_by:
        return f"; {row.beaten_by.name} scores as high or higher for the same cost or less"
    return "; no other run scores as high for less"


def _gates(first: Sequence[BoardRow]) -> str:
    """Say whether the leaders passed their gates, for the best of several can still be too bad."""
    if len(first) > 1:
        passed = sum(not _missed(row) for row in first)
        return f" {passed} of these {len(first)} passed both gates."
    missed = _missed(first[0])
    if not missed:
        return " It passed both gates."
    return f" It did not pass its {' and '.join(missed)} gate{'s' if len(missed) > 1 else ''}."


def _missed(row: BoardRow) -> list[str]:
    gates = (row.run.metrics, row.run.cases)
    return [gate.name.lower() for gate in gates if gate.state != "passed"]


def _doubt(doubts: Sequence[BoardRow], first: Sequence[BoardRow]) -> str:
    """Name the runs that the cases do not prove to be worse than the first."""
    if not doubts:
        return ""
    names = ", ".join(row.run.target for row in doubts)
    few = all(row.against is not None and row.against.is_too_little for row in doubts)
    why = "too few cases are shared" if few else "the difference is within the noise"
    verb = "is" if len(doubts) == 1 else "are"
    return f" {names} {verb} not clearly behind {'it' if len(first) == 1 else 'them'}: {why}."


def _running(active: Sequence[BoardRow], rows: Sequence[BoardRow]) -> str:
    verb = "is" if len(active) == 1 else "are"
    return f"{len(active)} of {counted(len(rows), 'run')} {verb} still running"


CHUNK = 5000
SCORED = ("pass", "borderline", "fail")
ENDED = (*SCORED, "error")

# The state of a case, and how many of its repetitions passed and were scored.
CaseOutcome = tuple[str, int, int]
CaseOutcomes = Mapping[int, CaseOutcome]


@dataclass(frozen=True, slots=True)
class CampaignCell:
    """One case against one target: its state, "" where the run lacks it, and its address.

    `passed` of `scored` repetitions passed, and `score` is their mean; `is_reviewed` tells whether reviewers
    decided any of them.
    """

    state: str
    label: str
    url: str
    passed: int = 0
    scored: int = 0
    score: float | None = None
    is_reviewed: bool = False


@dataclass(frozen=True, slots=True)
class CampaignMatrixRow:
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
    rows: Sequence[CampaignMatrixRow]
    chips: Sequence[Chip]
    total: int
    matching: int
    repetitions: int
    next_address: str


def outcomes_by_case(runs: Sequence[Run]) -> Mapping[int, CaseOutcomes]:
    """Return by case, in the order of the suite, its outcome in each run; one query.

    The runs of a campaign share cases, policy and repetitions.
    """
    cases = RunCase.objects.filter(run__in=[run.pk for run in runs]).live(*runs).order_by()
    columns = ("run_id", "case_id", "position", "live_state", "passed", "scored")
    places: dict[int, int] = {}
    outcomes: dict[int, dict[int, CaseOutcome]] = defaultdict(dict)
    # Thousands of cases have few different outcomes, so equal ones share an object.
    known: dict[CaseOutcome, CaseOutcome] = {}
    rows: Any = cases.values_list(*columns)
    for run, case, place, *counts in rows.iterator(CHUNK):
        places[case] = place
        outcome: CaseOutcome = tuple(counts)
        outcomes[case][run] = known.setdefault(outcome, outcome)
    return {
        case: outcomes[case] for case in sorted(outcomes, key=lambda case: (places[case], case))
    }


def _share(outcome: CaseOutcome | None) -> float | None:
    """Return the share of a case's scored repetitions that passed; None where it has no verdict."""
    if outcome is None or outcome[0] not in SCORED:
        return None
    return outcome[1] / outcome[2] if outcome[2] else None


def evidence_against(
    first: int, others: Sequence[int], cases: Mapping[int, CaseOutcomes]
) -> Mapping[int, Evidence]:
    """Return by run the evidence that its pass rate differs from that of the first (SCORING §9).

    It counts the cases with a verdict in both; each p is corrected by Holm's method.
    """
    counts: dict[int, Counter[float]] = {run: Counter() for run in others}
    for outcomes in cases.values():
        if (first_share := _share(outcomes.get(first))) is None:
            continue
        for run in others:
            if (share := _share(outcomes.get(run))) is not None:
                counts[run][first_share - share] += 1
    tests = [evidence(counts[run], seed=first * 1_000_003 + run) for run in others]
    return dict(zip(others, holm(tests), strict=True))


def matrix(
    runs: Sequence[Run], cases: Mapping[int, CaseOutcomes], query: CampaignQuery, slug: str
) -> Matrix:
    """Return 50 of the cases that match, with a cell for each run; four queries or five."""
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


def _kinds_of_all(cases: Mapping[int, CaseOutcomes], runs: int) -> Mapping[int, set[str]]:
    """Return by case the filters that show it."""
    known: dict[tuple[CaseOutcome, ...], set[str]] = {}
    found = {}
    for case, outcomes in cases.items():
        key = (*outcomes.values(),)
        if key not in known:
            known[key] = _kinds(outcomes, runs)
        found[case] = known[key]
    return found


def _kinds(outcomes: CaseOutcomes, runs: int) -> set[str]:
    """Return the filters that show a case."""
    ended = [state for state, *_ in outcomes.values() if state in ENDED]
    found = {""}
    if len(set(ended)) > 1:
        found.add(DIFFER)
    if len(ended) == runs and set(ended) == {"fail"}:
        found.add(ALL_FAILED)
    if "error" in ended:
        found.add(ERRORED)
    return found


def _rows(
    runs: Sequence[Run], shown: Mapping[int, CaseOutcomes], slug: str
) -> Sequence[CampaignMatrixRow]:
    cases = Case.objects.only("key", "title").in_bulk(list(shown))
    last_failures = _last_failures(runs, list(shown)) if runs and runs[0].repetitions > 1 else {}
    reviews = _reviewed_verdicts(runs, list(shown))
    scores = _scores(runs, list(shown))
    return [
        CampaignMatrixRow(
            key=cases[case].key,
            title=cases[case].title,
            cells=[
                _with_reviews(
                    replace(
                        _cell(
                            run,
                            cases[case].key,
                            outcomes.get(run.pk),
                            slug,
                            last_failures.get((run.pk, case)),
                        ),
                        score=scores.get((run.pk, case)),
                    ),
                    reviews.get((run.pk, case), ()),
                    run.repetitions,
                )
                for run in runs
            ],
            differs=DIFFER in _kinds(outcomes, len(runs)),
        )
        for case, outcomes in shown.items()
        if case in cases
    ]


def _last_failures(runs: Sequence[Run], cases: Sequence[int]) -> Mapping[tuple[int, int], int]:
    """Return by run and case the last repetition that did not pass, to which its cell links."""
    rows = Result.objects.filter(run__in=[run.pk for run in runs], case__in=cases)
    others = rows.exclude(verdict="pass").order_by().values("run_id", "case_id")
    found = others.annotate(last=Max("repetition"))
    return {(row["run_id"], row["case_id"]): row["last"] for row in found}


def _scores(runs: Sequence[Run], cases: Sequence[int]) -> Mapping[tuple[int, int], float | None]:
    """Return by run and case the mean score."""
    rows = RunCase.objects.filter(run__in=[run.pk for run in runs], case__in=cases)
    return {(run, case): score for run, case, score in rows.values_list("run", "case", "score")}


def _reviewed_verdicts(
    runs: Sequence[Run], cases: Sequence[int]
) -> Mapping[tuple[int, int], Sequence[tuple[str, str]]]:
    """Return by run and case the verdicts of machine and reviewers for each reviewed repetition."""
    rows: Any = Result.objects.filter(
        run__in=[run.pk for run in runs], case__in=cases, status__in=ENDED_RESULT_STATUSES
    ).exclude(reviewed_verdict="")
    verdicts: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    columns = ("run_id", "case_id", "verdict", "reviewed_verdict")
    for run, case, machine, reviewed in rows.order_by("repetition").values_list(*columns):
        verdicts[run, case].append((machine, reviewed))
    return verdicts


def _with_reviews(
    cell: CampaignCell, reviews: Sequence[tuple[str, str]], repetitions: int
) -> CampaignCell:
    """Return the cell with the reviews in its label."""
    if not cell.state or not reviews:
        return cell
    ((machine, reviewed), *_) = reviews
    if repetitions > 1:
        words = f"reviewers decided {len(reviews)} of {repetitions} repetitions"
    else:
        verdict = VERDICT_WORDS[machine or "error"].lower()
        words = f"automatic verdict {verdict}, reviewed as {VERDICT_WORDS[reviewed].lower()}"
    return replace(cell, label=f"{cell.label}; {words}", is_reviewed=True)


def _cell(
    run: Run, key: str, outcome: CaseOutcome | None, slug: str, repetition: int | None
) -> CampaignCell:
    if outcome is None:
        return CampaignCell("", f"{key} is not in this run", "")
    state, passed, scored = outcome
    place = {"slug": slug, "number": run.number, "key": key, "repetition": repetition or 1}
    label = f"{VERDICT_WORDS[state]}: {key} against {run.target_name}"
    return CampaignCell(state, label, reverse("runs:result", kwargs=place), passed, scored)
