"""A run against its baseline: how often its outputs were better, as page, API and command line show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from django.urls import reverse

from evaluators.kinds.pairwise import INCONCLUSIVE, LOSS, TIE, WIN
from evaluators.scoring.intervals import SIGNIFICANCE
from evaluators.templatetags.figures import chance_words, counted, interval, pct, thousands
from runs.documents import CASE_NAMES, FIGURES, Document
from runs.engine.plan import BASELINE
from runs.filters.language import FieldComparison, Operator
from runs.models.runs import Run
from runs.summary.pairwise import PAIRWISE, PairwiseFigures

Interval = tuple[float, float] | None
# By the verdict: its plural, which names its figure, and the state in whose colour it is drawn.
PARTS = {
    WIN: ("wins", "pass"),
    TIE: ("ties", "borderline"),
    LOSS: ("losses", "fail"),
    INCONCLUSIVE: ("inconclusive", "error"),
}


@dataclass(frozen=True, slots=True)
class PairwisePart:
    """The results that came out alike; `query` is the filter that lists their cases."""

    count: int
    state: str
    word: str
    query: str
    start_pct: float
    width_pct: float


@dataclass(frozen=True, slots=True)
class PairwiseRow:
    """What one evaluator found over a run, and the parts of its bar."""

    figures: PairwiseFigures
    parts: Sequence[PairwisePart]

    @property
    def name(self) -> str:
        """Return its name."""
        return self.figures.path.rpartition("/")[2]

    @property
    def counts(self) -> str:
        """Return the parts in words: "24 wins, 6 ties"."""
        return ", ".join(f"{thousands(part.count)} {part.word}" for part in self.parts)

    @property
    def rate(self) -> str:
        """Return the win rate with its interval and of how many, "" without one."""
        figures = self.figures
        if figures.win_rate is None:
            return ""
        of = f"of {thousands(figures.decided)} decided of {counted(figures.results, 'result')}"
        return f"{pct(figures.win_rate)} ({interval(figures.interval)}), {of}"

    @property
    def text(self) -> str:
        """Say in a line what the evaluator found."""
        rate = f"win rate {self.rate}" if self.rate else "nothing decided"
        return f"{self.name}: {rate}; {self.counts or 'nothing compared'}"

    @property
    def chance(self) -> str:
        """Say whether wins and losses differ by more than chance."""
        figures = self.figures
        if figures.p is None:
            return "Too few cases to tell wins and losses from chance"
        return f"Wins against losses: {chance_words(figures.p, is_clear=figures.p < SIGNIFICANCE)}"

    @property
    def bias(self) -> str:
        """Say how often the judge preferred a place, "" where no judge was asked."""
        figures = self.figures
        if not figures.ordered:
            return ""
        of = f"{thousands(figures.leaning)} of {counted(figures.ordered, 'pair')}"
        if figures.place_p is None:
            return f"Position bias: the judge preferred a place in {of}"
        return (
            f"Position bias: in {of} the judge preferred a place, {pct(figures.first_share)} of these the first "
            f"({interval(figures.place_interval)}); {chance_words(figures.place_p, is_clear=self.is_biased)}"
        )

    @property
    def is_biased(self) -> bool:
        """Tell whether the judge prefers a place by more than chance."""
        return self.figures.place_p is not None and self.figures.place_p < SIGNIFICANCE


@dataclass(frozen=True, slots=True)
class RunPairwise:
    """A run against its baseline, the run of that number; a row for each evaluator."""

    number: int
    target: str
    rows: Sequence[PairwiseRow]
    compare_url: str


def run_pairwise(run: Run) -> RunPairwise | None:
    """Return a run against its baseline; None before it has figures, and for one that is compared with none."""
    baseline, stored = run.snapshot.get(BASELINE), (run.summary or {}).get(PAIRWISE)
    if not baseline or not stored:
        return None
    slug, number = run.suite.slug, baseline["run"]
    sides = {"baseline": f"{slug}:{number}", "candidate": f"{slug}:{run.number}"}
    return RunPairwise(
        number,
        baseline["target"],
        pairwise_rows(stored),
        reverse("runs:compare", query=sides),
    )


def pairwise_rows(stored: Iterable[Mapping[str, Any]]) -> list[PairwiseRow]:
    """Return a row for each evaluator by its figures, as a summary or a share link has them."""
    every = map(PairwiseFigures.from_json, stored)
    return [PairwiseRow(figures, _parts(figures)) for figures in every]


def _parts(figures: PairwiseFigures) -> list[PairwisePart]:
    counts = {verdict: getattr(figures, plural) for verdict, (plural, _) in PARTS.items()}
    total, before, parts = sum(counts.values()), 0, []
    for verdict, count in counts.items():
        if not count:
            continue
        plural, state = PARTS[verdict]
        name = f"pairwise.{figures.path}"
        parts.append(
            PairwisePart(
                count=count,
                state=state,
                word=verdict if count == 1 else plural,
                query=str(FieldComparison(name, Operator.EQUAL, (verdict,))),
                start_pct=before * 100 / total,
                width_pct=count * 100 / total,
            )
        )
        before += count
    return parts


class PairwiseDoc(Document):
    """What one evaluator found that compares the outputs of a run with its baseline's, with 95% intervals."""

    path: Annotated[str, CASE_NAMES]
    """The evaluator's place in the tree."""
    results: Annotated[int, FIGURES]
    """How many results it compared with the baseline's."""
    wins: Annotated[int, FIGURES]
    """How many were better in both orders."""
    ties: Annotated[int, FIGURES]
    """How many were neither better nor worse in both orders."""
    losses: Annotated[int, FIGURES]
    """How many were worse in both orders."""
    inconclusive: Annotated[int, FIGURES]
    """How many the judge saw differently in both orders; they count in no rate."""
    unscored: Annotated[int, FIGURES]
    """How many could not be compared, such as those whose case the baseline lacks."""
    cases: Annotated[int, FIGURES]
    """How many cases have a win, a tie or a loss."""
    win_rate: Annotated[float | None, FIGURES]
    """(wins + ties ÷ 2) ÷ (wins + ties + losses), 0 to 1; null without any."""
    interval: Annotated[Interval, FIGURES]
    """Its interval: Wilson's with one result a case, else from resampled cases."""
    p: Annotated[float | None, FIGURES]
    """The p of wins against losses, by an exact sign test or, with repetitions, sign flips; null under ten cases."""
    ordered: Annotated[int, FIGURES]
    """How many pairs the judge was asked about in both orders."""
    first: Annotated[int, FIGURES]
    """In how many of these it leaned to the first place."""
    second: Annotated[int, FIGURES]
    """In how many of these it leaned to the second place."""
    place_interval: Annotated[Interval, FIGURES]
    """Wilson's interval of the first place's share of both."""
    place_p: Annotated[float | None, FIGURES]
    """The p of an exact binomial test that both are alike; null where the judge never leaned."""


def pairwise_documents(found: RunPairwise | None) -> list[PairwiseDoc]:
    """Describe a run against its baseline; nothing for one that is compared with none."""
    return [] if found is None else [PairwiseDoc(**row.figures.as_json()) for row in found.rows]
