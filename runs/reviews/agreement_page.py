"""The page of agreement: the figures of every judge, the matrix and cases of one, and better bands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import MISSING, down, interval
from evaluators.templatetags.marks import VERDICT_WORDS
from runs.formats.tables import csv_text
from runs.lists import Control, NumberedPage, numbered_page
from runs.models.results import Result
from runs.models.reviews import Review
from runs.models.suites import Suite, SuiteDraft
from runs.reviews.agreement import Bands, JudgeAgreement, Rate, SuggestedBands
from runs.reviews.judge_agreement import (
    EVALUATOR,
    METRIC,
    OUTCOMES,
    VERDICT,
    AgreementQuery,
    CountedRun,
    DecisionsQuery,
    JudgedResult,
    JudgeFigures,
    SuiteAgreement,
    VerdictCoverage,
    counted_runs,
    coverage,
    coverage_sentences,
    mixture_text,
    scope_text,
    suite_agreement,
)
from runs.reviews.services import BANDS

MINUS = "−"
KAPPA_DIGITS = 2


def kappa_text(agreement: JudgeAgreement) -> str:
    """Format kappa with its interval: `0.75 (0.51 to 0.92)`."""
    return coefficient_text(agreement.kappa, agreement.low, agreement.high)


def coefficient_text(value: float | None, low: float | None, high: float | None) -> str:
    """Format a coefficient of −1 to 1 with its interval."""
    if value is None:
        return MISSING
    if low is None or high is None:
        return signed(value)
    return f"{signed(value)} ({signed(low)} to {signed(high)})"


def rate_interval(rate: Rate) -> str:
    """Format the interval of a rate: `71.2% to 88.9%`."""
    if rate.low is None or rate.high is None:
        return MISSING
    return interval((rate.low, rate.high))


def signed(value: float, digits: int = KAPPA_DIGITS) -> str:
    """Format a number with a real minus sign."""
    text = down(abs(value), digits)
    return f"{MINUS}{text}" if value < 0 and float(text) else text


@dataclass(frozen=True, slots=True)
class AgreementCell:
    """A cell of the matrix: its number of decisions, and the address that lists their cases."""

    count: int
    words: str
    id: str
    address: str
    is_same: bool
    is_on: bool


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """A row of the matrix: a category of the machine, with a cell for each category of reviewers."""

    machine: str
    word: str
    cells: Sequence[AgreementCell]


def matrix_rows(agreement: JudgeAgreement, query: AgreementQuery) -> Iterator[AgreementRow]:
    """Yield the rows, the highest category first."""
    names = agreement.categories
    for machine in reversed(range(len(names))):
        cells = []
        for person in reversed(range(len(names))):
            pair = names[machine], names[person]
            is_on = (query.machine, query.person) == pair
            address = query.address(
                machine="" if is_on else pair[0], person="" if is_on else pair[1]
            )
            words = f"automatic {category_label(pair[0]).lower()}, human {category_label(pair[1]).lower()}"
            count = agreement.matrix[machine][person]
            cell_id = f"cell-{machine}-{person}"
            cells.append(AgreementCell(count, words, cell_id, address, machine == person, is_on))
        yield AgreementRow(names[machine], category_label(names[machine]), cells)


def category_label(category: str) -> str:
    """Return the name of a verdict, mark or label."""
    return VERDICT_WORDS.get(category) or {"met": "Met", "missed": "Missed"}.get(category, category)


ON_A_PAGE = 50


@dataclass(frozen=True, slots=True)
class ReviewedRow:
    """One reviewed execution: both verdicts, its score (0 to 1 or None), who decided, and their notes.

    `times` is how many of its decisions are listed, for an execution has several outcomes.
    """

    judged: JudgedResult
    title: str
    reviewers: str
    note: str
    times: int = 1

    @property
    def is_same(self) -> bool:
        """Tell whether machine and reviewers agree."""
        return self.judged.pair.machine == self.judged.pair.person


@dataclass(frozen=True, slots=True)
class ReviewedCases:
    """One page of the reviewed executions that match."""

    rows: Sequence[ReviewedRow]
    pages: NumberedPage[JudgedResult]


def case_table(figures: JudgeFigures, query: AgreementQuery) -> ReviewedCases:
    """Return the executions of a cell, else all of one judge; two queries where there is any."""
    places = {name: place for place, name in enumerate(figures.agreement.categories)}
    matching = [
        entry
        for entry in figures.judged
        if query.machine in ("", entry.pair.machine) and query.person in ("", entry.pair.person)
    ]
    matching.sort(key=lambda entry: -abs(places[entry.pair.machine] - places[entry.pair.person]))
    times = Counter(entry.result for entry in matching)
    first: dict[int, JudgedResult] = {}
    for entry in matching:
        first.setdefault(entry.result, entry)
    every = list(first.values())
    pages = numbered_page(every, query, ON_A_PAGE)
    return ReviewedCases(_rows(pages.rows, times), pages)


def _rows(shown: Sequence[JudgedResult], times: Mapping[int, int]) -> list[ReviewedRow]:
    ids = [entry.result for entry in shown]
    if not ids:
        return []
    titles = dict(Result.objects.filter(pk__in=ids).values_list("pk", "case__title"))
    reviewers: dict[int, list[str]] = {}
    notes: dict[int, list[str]] = {}
    reviews = Review.objects.standing().filter(result__in=ids).select_related("reviewer")
    for review in reviews.order_by("id"):
        reviewers.setdefault(review.result_id, []).append(review.signature)
        if review.note:
            notes.setdefault(review.result_id, []).append(review.note)
    return [
        ReviewedRow(
            entry,
            titles.get(entry.result, ""),
            ", ".join(reviewers.get(entry.result, ())),
            "\n".join(notes.get(entry.result, ())),
            times[entry.result],
        )
        for entry in shown
    ]


@dataclass(frozen=True, slots=True)
class BandsPanel:
    """Better bands, and the thresholds in the reader's draft as `kept`: pass and borderline, 0 to 1.

    Without a draft they are the suite's; None for readers who cannot change it. `is_other` tells whether the draft has
    thresholds that are neither the suite's nor the suggested ones. `run` is the number of the run for the what-if, 0
    for none.
    """

    suggestion: SuggestedBands
    kept: tuple[float, float] | None
    is_other: bool
    is_in_draft: bool
    run: int

    @property
    def hidden(self) -> Iterator[tuple[str, str]]:
        """Yield what the form sends: the suggested thresholds, and those that they replace."""
        for prefix, bands in (("", _bands(self.suggestion.best)), ("from_", self.kept or ())):
            for name, threshold in zip(BANDS, bands, strict=False):
                yield f"{prefix}{name}", repr(threshold)


def bands_panel(
    suite: Suite, suggestion: SuggestedBands | None, run: int, reader: User
) -> BandsPanel | None:
    """Return the panel, None without a suggestion."""
    if suggestion is None:
        return None
    if not reader.has_perm("runs.change_suite") or suite.archived_at:
        return BandsPanel(suggestion, None, is_other=False, is_in_draft=False, run=run)
    draft = SuiteDraft.objects.filter(suite=suite, author=reader).first()
    present, best = _bands(suite.policy), _bands(suggestion.best)
    kept = _bands(draft.policy) if draft else present
    return BandsPanel(suggestion, kept, kept not in (present, best), kept == best, run)


def _bands(thresholds: PolicySpec | Bands) -> tuple[float, float]:
    return thresholds.pass_threshold, thresholds.borderline_threshold


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One judge in the list: its figures in words, and the address that shows its matrix."""

    label: str
    kind: str
    agreement: JudgeAgreement
    address: str
    is_on: bool

    @property
    def kappa(self) -> str:
        """Return kappa with its interval."""
        return kappa_text(self.agreement)

    @property
    def share_interval(self) -> str:
        """Return the interval of the agreement."""
        return rate_interval(self.agreement.agreement)


AGREEMENT_COLUMNS = (
    *("judge", "kind", "decisions", "agreement", "agreement_low", "agreement_high"),
    *("kappa", "kappa_low", "kappa_high", "stricter", "more_lenient"),
)


def agreement_csv(judges: Sequence[JudgeRow]) -> str:
    """Return the figures of each judge as CSV, shares from 0 to 1."""
    return csv_text(
        AGREEMENT_COLUMNS,
        (
            (
                *(row.label, row.kind, figures.n),
                *(figures.agreement.share, figures.agreement.low, figures.agreement.high),
                *(figures.kappa, figures.low, figures.high, figures.stricter, figures.kinder),
            )
            for row in judges
            for figures in (row.agreement,)
        ),
    )


def scope_controls(query: DecisionsQuery, choices: Sequence[CountedRun]) -> list[Control]:
    """Return the fields that choose which runs count; the judge only where there are several."""
    versions = sorted({run.version for run in choices}, reverse=True)
    since = ((version, f"Since v{version}") for version in versions)
    runs = ((run.number, f"#{run.number}, v{run.version}") for run in choices)
    judges = sorted({run.judge for run in choices if run.judge})
    names = zip(judges, judges, strict=True)
    shown = [
        query.select("since", "Versions", since, "All versions"),
        query.select("run", "Run", runs, "All runs"),
    ]
    if len(judges) > 1 or query.judge:
        shown.append(query.select("judge", "Judge", names, "All judges"))
    return shown


@dataclass(frozen=True, slots=True)
class AgreementPage:
    """The whole page; `columns` are the categories of reviewers, `over` says which runs count."""

    query: AgreementQuery
    judges: Sequence[JudgeRow]
    chosen: JudgeRow
    columns: Sequence[tuple[str, str]]
    matrix: Sequence[AgreementRow]
    cases: ReviewedCases
    covered: Sequence[VerdictCoverage]
    words: Sequence[str]
    bands: BandsPanel | None
    choices: Sequence[CountedRun]
    over: str
    mixed: str
    unread: int
    scale: int

    @property
    def is_empty(self) -> bool:
        """Tell whether there is no decision in any run."""
        return not self.choices

    @property
    def has_verdicts(self) -> bool:
        """Tell whether the categories are verdicts, which have marks."""
        return self.query.by in (VERDICT, EVALUATOR)

    @property
    def positive(self) -> str:
        """Return the label of the true-positive rate."""
        top = self.chosen.agreement.categories[-1]
        words = {"pass": "Agreed on passes", "met": "Agreed on met outcomes"}
        return words.get(top, f"Agreed on {top}s")

    @property
    def negative(self) -> str:
        """Return the label of the true-negative rate."""
        top = self.chosen.agreement.categories[-1]
        words = {
            "pass": "Agreed on not passed",
            "met": "Agreed on missed outcomes",
        }
        return words.get(top, f"Agreed on below {top}")

    @property
    def positive_interval(self) -> str:
        """Return the interval of the true-positive rate."""
        return rate_interval(self.chosen.agreement.true_positive)

    @property
    def negative_interval(self) -> str:
        """Return the interval of the true-negative rate."""
        return rate_interval(self.chosen.agreement.true_negative)

    @property
    def asked(self) -> str:
        """Name the cell whose cases are listed."""
        sides = (("Automatic", self.query.machine), ("human", self.query.person))
        words = ", ".join(
            f"{who} {category_label(category).lower()}" for who, category in sides if category
        )
        return words[:1].upper() + words[1:]

    @property
    def all_address(self) -> str:
        """Return the address that lists every case of the chosen judge."""
        return self.query.address(machine="", person="")

    @property
    def controls(self) -> list[Control]:
        """Return the fields of the filter."""
        return scope_controls(self.query, self.choices)

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return the hidden fields of the filter."""
        return self.query.hidden("since", "run", "judge", "machine", "person")


def agreement_page(suite: Suite, query: AgreementQuery, reader: User) -> AgreementPage:
    """Return the page of a suite; the number of queries does not grow with runs, results or decisions."""
    suite_figures = suite_agreement(suite, query.span)
    judges = list(_judges(suite_figures, query))
    chosen = next((row for row in judges if row.is_on), judges[0])
    figures = query.figures(suite_figures)
    agreement = figures.agreement
    choices = counted_runs(suite)
    over = [run for run in choices if run.pk in suite_figures.runs]
    covered = coverage(suite_figures.runs)
    return AgreementPage(
        query=query,
        judges=judges,
        chosen=chosen,
        columns=[(name, category_label(name)) for name in agreement.categories[::-1]],
        matrix=list(matrix_rows(agreement, query)),
        cases=case_table(figures, query),
        covered=covered,
        words=list(coverage_sentences(covered, agreement.picked)),
        bands=bands_panel(
            suite, suite_figures.bands, max((run.number for run in over), default=0), reader
        ),
        choices=choices,
        over=scope_text(suite_figures.verdicts.agreement.n, over),
        mixed=mixture_text(over),
        unread=suite_figures.unread,
        scale=suite.scale,
    )


def _judges(agreement: SuiteAgreement, query: AgreementQuery) -> Iterator[JudgeRow]:
    shown = query.figures(agreement)

    def row(by: str, figures: JudgeFigures, label: str, kind: str) -> JudgeRow:
        address = query.address(by=by, evaluator=figures.path, machine="", person="")
        return JudgeRow(label, kind, figures.agreement, address, figures is shown)

    yield row(VERDICT, agreement.verdicts, "Verdict", "whole result")
    for entry in agreement.evaluators:
        yield row(EVALUATOR, entry, entry.path, "verdict of its score")
    if agreement.outcomes.agreement.n or query.by == OUTCOMES:
        yield row(OUTCOMES, agreement.outcomes, "Expected outcomes", "each outcome met or missed")
    for key, entry in agreement.metrics.items():
        yield row(METRIC, entry, key, "metric, labels 0 to 5")
