"""Judge against people, as its page shows it: every judge's figures, one's matrix, its cases, better bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from runs.models import Suite
from runs.reports.agreement_bands import BandsPanel, bands_panel
from runs.reports.agreement_cases import CaseTable, case_table
from runs.reports.agreement_coverage import Covered, coverage, coverage_words
from runs.reports.agreement_matrix import MatrixRow, matrix_rows, word_of
from runs.reports.agreement_query import EVALUATOR, METRIC, OUTCOMES, VERDICT, AgreementQuery
from runs.reports.agreement_runs import CountedRun, counted_runs, mixed_words, over_words
from runs.reports.agreement_words import ends, kappa_words
from runs.reports.judge_agreement import JudgeFigures, SuiteAgreement, suite_agreement
from runs.reviewing import Agreement


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
    choices = counted_runs(suite)
    over = [run for run in choices if run.pk in found.runs]
    covered = coverage(found.runs)
    return AgreementPage(
        query=query,
        judges=judges,
        chosen=chosen,
        columns=[(name, word_of(name)) for name in agreement.categories[::-1]],
        matrix=list(matrix_rows(agreement, query)),
        cases=case_table(figures, query),
        covered=covered,
        words=coverage_words(covered, agreement.picked),
        bands=bands_panel(suite, found.bands, max((run.number for run in over), default=0), reader),
        choices=choices,
        over=over_words(found.verdicts.agreement.n, over),
        mixed=mixed_words(over),
        unread=found.unread,
        scale=suite.scale,
    )


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
