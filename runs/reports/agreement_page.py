"""Judge against people, as its page shows it: every judge's figures, one's matrix, its cases, better bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from evaluators.scoring.policy import Policy
from evaluators.templatetags.figures import MISSING, counted, down, interval
from evaluators.templatetags.marks import VERDICT_WORDS
from runs.models import Run, Suite, SuiteDraft
from runs.reports.agreement_cases import CaseTable, case_table
from runs.reports.agreement_coverage import Covered, coverage, coverage_words
from runs.reports.agreement_query import EVALUATOR, METRIC, OUTCOMES, VERDICT, AgreementQuery
from runs.reports.judge_agreement import JudgeFigures, SuiteAgreement, suite_agreement
from runs.reviewing import Agreement, Rate, Suggestion
from runs.services.drafts import draft_of, is_stored

MINUS = "−"
KAPPA_DIGITS = 2


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One judge in the list: its figures in words, and the address that shows its matrix."""

    label: str
    kind: str
    agreement: Agreement
    address: str
    is_on: bool

    @property
    def kappa(self) -> str:
        """Return kappa with its interval."""
        return kappa_words(self.agreement)

    @property
    def share_interval(self) -> str:
        """Return the interval of the agreement."""
        return ends(self.agreement.agreement)


@dataclass(frozen=True, slots=True)
class Cell:
    """How many decisions are in one cell, and the address that lists their cases."""

    count: int
    words: str
    id: str
    address: str
    is_same: bool
    is_on: bool


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What the machine said, and the cells of what people said of it."""

    machine: str
    word: str
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class BandsPanel:
    """Better bands, and what the reader's draft has: `other` are its thresholds where they are not the suite's."""

    suggestion: Suggestion
    stamp: str
    other: tuple[float, float] | None
    is_in_draft: bool
    run: int


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A run with decisions: what one may ask for."""

    pk: int
    number: int
    version: int
    judge: str


@dataclass(frozen=True, slots=True)
class AgreementPage:
    """The whole page. `columns` are what people said, as the matrix is read; `over` says which runs count."""

    query: AgreementQuery
    judges: Sequence[JudgeRow]
    chosen: JudgeRow
    columns: Sequence[tuple[str, str]]
    matrix: Sequence[MatrixRow]
    cases: CaseTable
    covered: Sequence[Covered]
    words: Sequence[str]
    bands: BandsPanel | None
    choices: Sequence[CountedRun]
    over: str
    mixed: str
    unread: int
    scale: int

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was decided yet, in whatever run."""
        return not self.choices

    @property
    def has_verdicts(self) -> bool:
        """Tell whether both sides gave verdicts, which have marks of their own."""
        return self.query.by in (VERDICT, EVALUATOR)

    @property
    def positive(self) -> str:
        """Return what the true positives are called: of what people passed, how much the machine passed."""
        top = self.chosen.agreement.categories[-1]
        words = {"pass": "Of what people passed, passed", "met": "Of what people found met, met"}
        return words.get(top, f"Of people's {top}s, {top}")

    @property
    def negative(self) -> str:
        """Return what the true negatives are called."""
        top = self.chosen.agreement.categories[-1]
        words = {
            "pass": "Of what people did not pass, not passed",
            "met": "Of what people found missed, missed",
        }
        return words.get(top, f"Of what people put below {top}, below {top}")

    @property
    def positive_interval(self) -> str:
        """Return the interval of the true-positive rate."""
        return ends(self.chosen.agreement.true_positive)

    @property
    def negative_interval(self) -> str:
        """Return the interval of the true-negative rate."""
        return ends(self.chosen.agreement.true_negative)

    @property
    def asked(self) -> str:
        """Say which cell's cases are listed."""
        sides = (("Machine", self.query.machine), ("people", self.query.person))
        words = ", ".join(f"{who} {word_of(said).lower()}" for who, said in sides if said)
        return words[:1].upper() + words[1:]

    @property
    def all_address(self) -> str:
        """Return the address that lists every case of the chosen judge."""
        return self.query.with_(machine="", person="").address

    @property
    def pass_to(self) -> str:
        """Return the suggested pass threshold as a form sends it."""
        return repr(self.bands.suggestion.best.pass_threshold) if self.bands else ""

    @property
    def borderline_to(self) -> str:
        """Return the suggested borderline threshold as a form sends it."""
        return repr(self.bands.suggestion.best.borderline_threshold) if self.bands else ""

    @property
    def versions(self) -> list[int]:
        """Return the versions to begin with, the newest first."""
        return sorted({run.version for run in self.choices}, reverse=True)

    @property
    def judge_names(self) -> list[str]:
        """Return the judges to choose from."""
        return sorted({run.judge for run in self.choices if run.judge})


def agreement_page(suite: Suite, query: AgreementQuery, reader: User) -> AgreementPage:
    """Return the page of a suite; the number of queries does not grow with runs, results or decisions."""
    found = suite_agreement(suite, query.span)
    judges = list(_judges(found, query))
    chosen = next((row for row in judges if row.is_on), judges[0])
    figures = query.figures(found)
    agreement = figures.agreement
    choices = _choices(suite)
    counted_runs = [run for run in choices if run.pk in found.runs]
    covered = coverage(found.runs)
    return AgreementPage(
        query=query,
        judges=judges,
        chosen=chosen,
        columns=[(name, word_of(name)) for name in agreement.categories[::-1]],
        matrix=list(_matrix(agreement, query)),
        cases=case_table(figures, query),
        covered=covered,
        words=coverage_words(covered, agreement.picked),
        bands=_bands(suite, found, counted_runs, reader),
        choices=choices,
        over=_over(found, counted_runs),
        mixed=_mixed(counted_runs),
        unread=found.unread,
        scale=suite.scale,
    )


def word_of(category: str) -> str:
    """Return what a verdict, mark or label is called."""
    return VERDICT_WORDS.get(category) or {"met": "Met", "missed": "Missed"}.get(category, category)


def kappa_words(agreement: Agreement) -> str:
    """Spell kappa with its interval: `0.75 (0.51 to 0.92)`."""
    if agreement.kappa is None:
        return MISSING
    if agreement.low is None or agreement.high is None:
        return _signed(agreement.kappa)
    low, high = _signed(agreement.low), _signed(agreement.high)
    return f"{_signed(agreement.kappa)} ({low} to {high})"


def ends(rate: Rate) -> str:
    """Spell the interval of a rate: `71.2% to 88.9%`."""
    known = rate.low is not None and rate.high is not None
    return interval((rate.low, rate.high)) if known else MISSING  # type: ignore[arg-type]


def _signed(value: float) -> str:
    text = down(abs(value), KAPPA_DIGITS)
    return f"{MINUS}{text}" if value < 0 and float(text) else text


def _judges(found: SuiteAgreement, query: AgreementQuery) -> Iterator[JudgeRow]:
    shown = query.figures(found)

    def row(by: str, figures: JudgeFigures, label: str, kind: str) -> JudgeRow:
        asked = query.with_(by=by, evaluator=figures.path, machine="", person="")
        return JudgeRow(label, kind, figures.agreement, asked.address, figures is shown)

    yield row(VERDICT, found.verdicts, "Verdict", "the whole execution")
    for one in found.evaluators:
        yield row(EVALUATOR, one, one.path, "evaluator, by the band of its score")
    if found.outcomes.agreement.n or query.by == OUTCOMES:
        yield row(OUTCOMES, found.outcomes, "Expected outcomes", "each one met or missed")
    for key, one in found.metrics.items():
        yield row(METRIC, one, key, "metric, labels 0 to 5")


def _matrix(agreement: Agreement, query: AgreementQuery) -> Iterator[MatrixRow]:
    """Yield the rows with the highest category first, as people read them."""
    names = agreement.categories
    for machine in reversed(range(len(names))):
        cells = []
        for person in reversed(range(len(names))):
            pair = names[machine], names[person]
            is_on = (query.machine, query.person) == pair
            asked = query.with_(machine="" if is_on else pair[0], person="" if is_on else pair[1])
            words = f"machine {word_of(pair[0]).lower()}, people {word_of(pair[1]).lower()}"
            count = agreement.matrix[machine][person]
            cell_id = f"cell-{machine}-{person}"
            cells.append(Cell(count, words, cell_id, asked.address, machine == person, is_on))
        yield MatrixRow(names[machine], word_of(names[machine]), cells)


def _bands(
    suite: Suite, found: SuiteAgreement, runs: Sequence[CountedRun], reader: User
) -> BandsPanel | None:
    if found.bands is None:
        return None
    best = (found.bands.best.pass_threshold, found.bands.best.borderline_threshold)
    run = max((run.number for run in runs), default=0)
    if not reader.has_perm("runs.change_suite") or suite.archived_at:
        return BandsPanel(found.bands, "", None, is_in_draft=False, run=run)
    draft = draft_of(suite, reader)
    kept = bands_of(draft)
    present = (suite.pass_threshold, suite.borderline_threshold)
    other = kept if is_stored(draft) and kept != present and kept != best else None
    return BandsPanel(found.bands, draft.stamp, other, kept == best, run)


def bands_of(draft: SuiteDraft) -> tuple[float, float]:
    """Return the thresholds of a draft, pass and borderline, 0 to 1."""
    policy = Policy.from_json(draft.content["policy"])
    return policy.pass_threshold, policy.borderline_threshold


def _choices(suite: Suite) -> list[CountedRun]:
    """Return the runs with a decision that is settled, the newest first."""
    runs = Run.objects.filter(suite=suite, results__review_item__closed_at__isnull=False)
    rows = runs.order_by("-number").values_list("pk", "number", "suite_version", "judge_name")
    return [CountedRun(*row) for row in rows.distinct()]


def _over(found: SuiteAgreement, runs: Sequence[CountedRun]) -> str:
    """Say over how many decisions, runs and versions the figures are."""
    versions = sorted({run.version for run in runs})
    if not versions:
        return "No decision"
    which = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]} to v{versions[-1]}"
    decisions = counted(found.verdicts.agreement.n, "execution decided,executions decided")
    return f"{decisions}, {counted(len(runs), 'run')}, {which}"


def _mixed(runs: Sequence[CountedRun]) -> str:
    """Say what is counted together though it may be different judges, "" where nothing is."""
    versions, judges = {run.version for run in runs}, {run.judge for run in runs}
    if len(judges) > 1:
        return f"{counted(len(judges), 'judge')} are counted together. Another model judges otherwise: choose one."
    if len(versions) > 1:
        return (
            f"{counted(len(versions), 'version')} of the suite are counted together. Where a judge's prompt was "
            "changed in between, older decisions are about another judge: choose since which version."
        )
    return ""
