"""The page of several judges on one suite: which one to use, and the figures of each by evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from django.utils.text import get_text_list

from evaluators.scoring.significance import MIN_CASES
from evaluators.templatetags.figures import MISSING, counted, money, p_value, pct
from runs.formats.tables import csv_text
from runs.lists import Control
from runs.models.suites import Suite
from runs.reviews.agreement import FEWEST, JudgeAgreement
from runs.reviews.agreement_page import kappa_text, rate_interval, signed
from runs.reviews.judge_choice import (
    CLEAR,
    TOO_FEW,
    JudgeChoice,
    JudgingFigures,
    MeanDifference,
    choose_judge,
    measure_between,
    measure_judging,
)
from runs.reviews.judges import (
    JudgedOutputs,
    JudgedSubject,
    JudgesQuery,
    Judging,
    JudgingCost,
    judged_outputs,
)

BIAS_DIGITS = 3


def bias_text(bias: MeanDifference) -> str:
    """Format a mean difference of scores with its interval: `−0.041 (−0.060 to −0.022)`."""
    if bias.mean is None:
        return MISSING
    text = signed(bias.mean, BIAS_DIGITS)
    if bias.low is None or bias.high is None:
        return text
    return f"{text} ({signed(bias.low, BIAS_DIGITS)} to {signed(bias.high, BIAS_DIGITS)})"


@dataclass(frozen=True, slots=True)
class JudgingRow:
    """One judging in the list: who judged in which run, and its figures for the chosen evaluator."""

    judging: Judging
    models: str
    figures: JudgingFigures
    cost: JudgingCost

    @property
    def label(self) -> str:
        """Return the models with the run, which tells judgings by one model apart."""
        return f"{self.models} (#{self.judging.number})"

    @property
    def agreement(self) -> JudgeAgreement:
        """Return its agreement with people."""
        return self.figures.people

    @property
    def share_interval(self) -> str:
        """Return the interval of the agreement."""
        return rate_interval(self.figures.people.agreement)

    @property
    def kappa(self) -> str:
        """Return kappa with its interval."""
        return kappa_text(self.figures.people)

    @property
    def bias(self) -> str:
        """Return the bias with its interval."""
        return bias_text(self.figures.bias)


@dataclass(frozen=True, slots=True)
class JudgeCell:
    """A judging and an evaluator in the table of both.

    `figures` are None where it gave no score of its own, because it kept those of before or had no such evaluator.
    """

    figures: JudgingFigures | None
    is_kept: bool

    @property
    def interval(self) -> str:
        """Return the interval of the agreement with people."""
        return rate_interval(self.figures.people.agreement) if self.figures else ""

    @property
    def bias(self) -> str:
        """Return the bias with its interval."""
        return bias_text(self.figures.bias) if self.figures else ""


@dataclass(frozen=True, slots=True)
class JudgedEvaluatorRow:
    """An evaluator with a cell for each judging, and the address that shows it."""

    label: str
    address: str
    cells: Sequence[JudgeCell]
    is_on: bool


@dataclass(frozen=True, slots=True)
class BetweenRow:
    """Two judgings and how far they agree."""

    first: str
    second: str
    agreement: JudgeAgreement

    @property
    def share_interval(self) -> str:
        """Return the interval of the agreement."""
        return rate_interval(self.agreement.agreement)

    @property
    def kappa(self) -> str:
        """Return kappa with its interval."""
        return kappa_text(self.agreement)


@dataclass(frozen=True, slots=True)
class JudgesPage:
    """The whole page of the judgings of one run's outputs."""

    query: JudgesQuery
    found: JudgedOutputs
    label: str
    conclusion: str
    choice: JudgeChoice
    judges: Sequence[JudgingRow]
    columns: Sequence[Judging]
    evaluators: Sequence[JudgedEvaluatorRow]
    between: Sequence[BetweenRow]

    @property
    def controls(self) -> list[Control]:
        """Return the fields of the filter."""
        sources = sorted(self.found.sources, reverse=True)
        runs = ((number, f"Outputs of #{number}") for number in sources)
        return [self.query.select("run", "Outputs", runs, "Judged last")]

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return the hidden fields of the filter."""
        return self.query.hidden("run")


def judges_page(suite: Suite, query: JudgesQuery) -> JudgesPage | None:
    """Return the page of a suite, None where no outputs were judged again; the number of queries does not grow."""
    found = judged_outputs(suite, query.run)
    if found is None:
        return None
    shown = found.subject(query.evaluator)
    judges = list(judging_rows(found, shown, suite.pk))
    labels = {row.judging.number: row.label for row in judges}
    choice = judge_choice(shown, suite.pk)
    return JudgesPage(
        query=query,
        found=found,
        label=shown.path or "Verdict",
        conclusion=conclusion_text(choice, judges),
        choice=choice,
        judges=judges,
        columns=found.judgings,
        evaluators=[
            JudgedEvaluatorRow(
                subject.path or "Verdict",
                query.address(evaluator=subject.path),
                list(_cells(found, subject, suite.pk)),
                subject is shown,
            )
            for subject in found.subjects
        ],
        between=[
            BetweenRow(labels[first], labels[second], agreement)
            for first, second, agreement in pairs_of_judgings(shown, suite.pk)
        ],
    )


def judge_choice(subject: JudgedSubject, seed: int) -> JudgeChoice:
    """Say which judging of a subject to use."""
    costs = {key: cost.usd_per_result for key, cost in subject.costs.items()}
    return choose_judge(subject.outputs, subject.keys, costs, seed=seed)


def _all_figures(
    found: JudgedOutputs, subject: JudgedSubject, seed: int
) -> Iterator[JudgingFigures | None]:
    """Yield the figures of every judging, None for one that has no opinion of its own."""
    keys = subject.keys
    for judging in found.judgings:
        is_there = judging.number in keys
        yield (
            measure_judging(subject.outputs, judging.number, keys[0], seed=seed)
            if is_there
            else None
        )


def _cells(found: JudgedOutputs, subject: JudgedSubject, seed: int) -> Iterator[JudgeCell]:
    figures = _all_figures(found, subject, seed)
    for judging, measured in zip(found.judgings, figures, strict=True):
        yield JudgeCell(measured, judging.number in subject.kept)


def judging_rows(found: JudgedOutputs, subject: JudgedSubject, seed: int) -> Iterator[JudgingRow]:
    """Yield the judgings of a subject that have opinions of their own, the first one first."""
    figures = _all_figures(found, subject, seed)
    for judging, measured in zip(found.judgings, figures, strict=True):
        if measured is not None:
            models = subject.models.get(judging.number) or judging.judge or "no model"
            cost = subject.costs.get(judging.number, JudgingCost())
            yield JudgingRow(judging, models, measured, cost)


def pairs_of_judgings(
    subject: JudgedSubject, seed: int
) -> Iterator[tuple[int, int, JudgeAgreement]]:
    """Yield each pair of judgings by the numbers of their runs, and how far they agree."""
    for first, second in combinations(subject.keys, 2):
        yield first, second, measure_between(subject.outputs, first, second, seed=seed)


def conclusion_text(choice: JudgeChoice, rows: Sequence[JudgingRow]) -> str:
    """Say in one sentence which judge to use and on what evidence, or that the evidence does not suffice."""
    by_number: Mapping[int, JudgingRow] = {row.judging.number: row for row in rows}
    if len(rows) < 2:
        return "Only one judge scored this, so there is nothing to choose."
    if choice.state == TOO_FEW or choice.best is None:
        needed = (
            f"and {FEWEST} are needed"
            if choice.decided < FEWEST
            else f"but of fewer than {MIN_CASES} cases"
        )
        return (
            f"The evidence does not suffice: people decided {counted(choice.decided, 'result')} that every judge "
            f"scored, {needed}."
        )
    best = by_number[choice.best]
    few = ""
    if choice.left_out:
        names = get_text_list([by_number[key].label for key in choice.left_out], "and")
        them = "it" if len(choice.left_out) == 1 else "them"
        few = f" Too few of these results were scored by {names} to compare {them}."
    share = pct(choice.right[choice.best] / choice.decided)
    p = p_value(choice.p)
    if choice.state == CLEAR:
        return (
            f"Use {best.label}: it agrees with people on {share} of {counted(choice.decided, 'result')}, more than "
            f"every other judge ({p}).{few}"
        )
    names = get_text_list([by_number[key].label for key in choice.alike], "and")
    text = (
        f"The evidence does not suffice to tell {names} apart on {counted(choice.decided, 'result')} that people "
        f"decided ({p})"
    )
    if choice.cheapest is None:
        return f"{text}.{few}"
    cheapest = by_number[choice.cheapest]
    return f"{text}; {cheapest.label} costs least, {money(cheapest.cost.usd_per_result)} a result.{few}"


JUDGES_COLUMNS = (
    *("evaluator", "run", "judge", "results", "of", "decided", "agreement", "agreement_low"),
    *("agreement_high", "kappa", "kappa_low", "kappa_high", "stricter", "more_lenient"),
    *("bias", "bias_low", "bias_high", "bias_results", "usd_per_result", "ms_per_result"),
)


def judges_csv(suite: Suite, query: JudgesQuery) -> str:
    """Return the figures of every judging by evaluator as CSV, shares and scores from 0 to 1."""
    found = judged_outputs(suite, query.run)
    return csv_text(JUDGES_COLUMNS, _csv_rows(found, suite.pk) if found else ())


def _csv_rows(found: JudgedOutputs, seed: int) -> Iterator[Sequence[object]]:
    for subject in found.subjects:
        for row in judging_rows(found, subject, seed):
            people, bias, cost = row.figures.people, row.figures.bias, row.cost
            rate = people.agreement
            yield (
                *(subject.path or "verdict", row.judging.number, row.models),
                *(row.figures.n, row.figures.of, people.n, rate.share, rate.low, rate.high),
                *(people.kappa, people.low, people.high, people.stricter, people.kinder),
                *(bias.mean, bias.low, bias.high, bias.n, cost.usd_per_result, cost.ms_per_result),
            )
