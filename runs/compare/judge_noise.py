"""Whether a difference between two runs lies inside the spread of their judges: chance that no case explains."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.templatetags.figures import delta
from runs.compare.comparison import Comparison
from runs.results.judge_spread import read_spreads
from runs.results.judge_versions import change_warnings, run_versions
from runs.summary.judge_spread import judge_band


@dataclass(frozen=True, slots=True)
class JudgeNoise:
    """The change of one figure, and how far chance of the judges alone moves it, at 95%.

    `measured_by` names the runs that measured the judges.
    """

    figure: str
    change: float
    band: float
    measured_by: tuple[int, ...]

    @property
    def is_inside(self) -> bool:
        """Tell whether the judges alone can make such a change."""
        return 0 < abs(self.change) <= self.band

    @property
    def text(self) -> str:
        """Say so in a sentence."""
        band = delta(self.band, "pts").removeprefix("+")
        where = "inside" if self.is_inside else "beyond"
        return (
            f"The {self.figure} changed by {delta(self.change, 'pts')}, which is {where} the judge's own spread: "
            f"asked again about the same outputs, it moves this difference by up to {band} (95%)."
        )


def judge_noise(comparison: Comparison) -> tuple[JudgeNoise, ...]:
    """Return the changes of mean score and pass rate beside the spread of the judges; one query.

    A judge that was measured in one run only stands for the other, if evaluators and judge are the same; otherwise
    the other moves nothing, so that the band is never too wide. Without any measurement there is nothing to return.
    """
    sides = comparison.baseline, comparison.candidate
    spreads = read_spreads(side.run for side in sides)
    known = [spreads[side.run.pk] for side in sides]
    if comparison.is_comparable:
        known = [
            own if own.measured else other for own, other in zip(known, known[::-1], strict=True)
        ]
    first, second = (found.measured for found in known)
    if first is None and second is None:
        return ()
    before, after = (side.figures for side in sides)
    figures = (
        (
            "mean score",
            comparison.runs.score_change,
            (first and first.deviation, sides[0].scored),
            (second and second.deviation, sides[1].scored),
        ),
        (
            "pass rate",
            comparison.runs.pass_rate_change,
            (first and first.pass_deviation, before.total),
            (second and second.pass_deviation, after.total),
        ),
    )
    numbers = (found.measured_by for found in known if found.measured)
    measured_by = tuple(dict.fromkeys(number for number in numbers if number is not None))
    return tuple(
        JudgeNoise(name, change, judge_band((old or 0.0, of), (new or 0.0, by)), measured_by)
        for name, change, (old, of), (new, by) in figures
        if change is not None and of and by
    )


def judge_changes(comparison: Comparison) -> list[str]:
    """Say which judges' models changed behind their names between the runs, as their replies tell."""
    before, after = comparison.baseline.run, comparison.candidate.run
    return change_warnings(run_versions(before), run_versions(after), f"since run #{before.number}")
