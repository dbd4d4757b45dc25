"""What is known of a run's judge: how far it differs from itself, and the versions of its model that answered.

How far it differs comes from the newest measurement of it, else from its samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evaluators.templatetags.figures import counted
from runs.documents import Document
from runs.engine.plan import MEASURES_JUDGE, OUTCOMES_PATH
from runs.finishing import JUDGE_VERSIONS
from runs.models.judgings import read_judged_again
from runs.models.runs import ACTIVE_RUN_STATUSES, HEAVY_RUN_COLUMNS, Run
from runs.summary.judge_spread import (
    MEASUREMENT,
    SAMPLES,
    JudgeSpread,
    SpreadFigures,
    measure_spread,
)

Interval = tuple[float, float] | None
Versions = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class RunSpread:
    """The spread of a run's judge, None while nobody knows it.

    `measured_by` is the number of the run that measured it, None for samples, and `measuring` that of one under way.
    """

    spread: JudgeSpread | None
    measured_by: int | None = None
    measuring: int | None = None

    @property
    def whole(self) -> SpreadFigures | None:
        """Return the figures of whole results, None where nobody knows them."""
        return None if self.spread is None else self.spread.whole

    @property
    def measured(self) -> SpreadFigures | None:
        """Return the figures of whole results that were drawn and judged again, None without any."""
        is_measured = self.spread is not None and self.spread.basis == MEASUREMENT
        return self.whole if is_measured else None

    @property
    def whole_is_drawn(self) -> bool:
        """Tell whether the figures of whole results come from their samples."""
        return self.whole is not None and self.measured is None

    @property
    def has_repetitions(self) -> bool:
        """Tell whether outputs were repeated, so that the part of the target in the spread is known too."""
        return any(figures.repeated for _, figures in self.rows)

    @property
    def rows(self) -> Sequence[tuple[str, SpreadFigures]]:
        """Return the figures by evaluator with its name; those of whole results come first, with none."""
        if self.spread is None:
            return ()
        whole = [("", self.whole)] if self.whole is not None else []
        return [*whole, *((_name(figures.path), figures) for figures in self.spread.evaluators)]


def run_spread(run: Run) -> RunSpread:
    """Return the spread of a run's judge; one query."""
    return read_spreads([run])[run.pk]


def read_spreads(runs: Iterable[Run]) -> Mapping[int, RunSpread]:
    """Return the spreads of runs by id; one query for all."""
    by_id = {run.pk: run for run in runs}
    measuring = Run.objects.filter(source_run__in=list(by_id), snapshot__has_key=MEASURES_JUDGE)
    light = measuring.defer(*(name for name in HEAVY_RUN_COLUMNS if name != "summary"))
    found = {
        pk: RunSpread(run.judge_spread, run.number if run.measures_judge else None)
        for pk, run in by_id.items()
    }
    for row in light.order_by("number"):
        pk = row.source_run_id or 0
        known = found[pk]
        if row.status in ACTIVE_RUN_STATUSES:
            found[pk] = RunSpread(known.spread, known.measured_by, row.number)
        elif (spread := row.judge_spread) is not None and spread.whole is not None:
            found[pk] = RunSpread(spread, row.number, known.measuring)
    return found


def result_spreads(run: Run) -> Mapping[int, SpreadFigures]:
    """Return how far the judgings of a result differ, by id, of those that the newest measurement judged again."""
    if run.measures_judge or not run.judge_name:
        return {}
    number = run_spread(run).measured_by
    if number is None:
        return {}
    found = read_judged_again(Run.objects.get(suite=run.suite_id, number=number))
    figures = (
        (pk, measure_spread("", [found.of_place(place)], seed=pk))
        for pk, place in found.stood.items()
    )
    return {pk: spread for pk, spread in figures if spread is not None}


def sampled_paths(run: Run) -> Collection[str]:
    """Return the paths of the evaluators that took several samples of a result, for a run with figures."""
    spread = run.judge_spread
    is_sampled = spread is not None and spread.basis == SAMPLES
    return [figures.path for figures in spread.evaluators] if spread and is_sampled else []


def _name(path: str) -> str:
    return "expected outcomes" if path == OUTCOMES_PATH else path.rpartition("/")[2]


class SpreadFiguresDoc(Document):
    """How far judgings of the same output differ, with 95% intervals."""

    path: str
    """The evaluator's place in the tree; empty for whole results."""
    cases: int
    """How many cases the figures are of."""
    results: int
    """How many results they are of: those with two judgings or more."""
    judgings: int
    """How many judgings these have together; of whole results by samples, how many samples."""
    flips: float | None
    """The share of verdicts that another judging would change, 0 to 1: pairs of judgings that differ."""
    flips_interval: Interval
    """Its interval, Wilson's with each case as one trial."""
    deviation: float | None
    """The standard deviation of one judging, on scores of 0 to 1."""
    deviation_interval: Interval
    """Its interval, from resampled cases; null where every judging agrees."""
    pass_deviation: float | None
    """The standard deviation of whether one judging passes, 1 or 0."""
    repeated: int
    """How many cases have several results, which tell judge and target apart."""
    judge_variance: float | None
    """The judge's part of the variance within a case; null without repetitions."""
    target_variance: float | None
    """The target's part of it; null without repetitions."""
    judge_share: float | None
    """The judge's share of both parts, 0 to 1; null without repetitions or variance."""
    judge_share_interval: Interval
    """Its interval, from resampled cases."""


class JudgeSpreadDoc(Document):
    """How far the judge of a run differs from itself."""

    basis: Literal["measurement", "samples"]
    """Whether results were drawn and judged again, or evaluators took several samples of every result."""
    measured_by: int | None
    """The number of the run that judged them again; null for samples."""
    drawn: int
    """How many results were drawn, each with the same probability."""
    eligible: int
    """Of how many."""
    times: int
    """How many more times each was judged; 0 for samples."""
    whole: SpreadFiguresDoc | None
    """Scores and verdicts of whole results. By samples: those of each evaluator drawn again, independently and by the
    rules of the run (bootstrap, Efron 1979); evaluators with one sample stay as they are. Null where outcomes decide."""
    evaluators: list[SpreadFiguresDoc]
    """The same for each evaluator that asks a judge."""

    @classmethod
    def make(cls, found: RunSpread) -> JudgeSpreadDoc | None:
        """Describe the spread of a run's judge, None while nobody knows it."""
        if found.spread is None:
            return None
        facts: dict[str, Any] = found.spread.as_json()
        return cls(measured_by=found.measured_by, **facts)


def run_versions(run: Run) -> Versions:
    """Return the versions of a run's judges by name, with their replies; none before the run has its figures."""
    return _versions((run.summary or {}).get(JUDGE_VERSIONS))


def version_warnings(run: Run) -> list[str]:
    """Say which judges of a run answered by several versions, and which by others than in the run before.

    That is the last earlier run of the suite with this judge; one query.
    """
    now = run_versions(run)
    warnings = [
        f"{name} answered by {counted(len(versions), 'version')} of its model: "
        + _listed(
            [
                f"{version} ({counted(count, 'reply,replies')})"
                for version, count in zip(_short(versions), versions.values(), strict=True)
            ]
        )
        + "."
        for name, versions in now.items()
        if len(versions) > 1
    ]
    if not now:
        return warnings
    earlier = Run.objects.filter(
        suite=run.suite_id,
        number__lt=run.number,
        judge_name=run.judge_name,
        summary__has_key=JUDGE_VERSIONS,
    )
    rows = earlier.order_by("-number").values_list("number", f"summary__{JUDGE_VERSIONS}")
    for number, versions in rows[:1]:
        warnings += change_warnings(_versions(versions), now, f"since run #{number}")
    return warnings


def change_warnings(before: Versions, after: Versions, since: str) -> list[str]:
    """Say which judges answered by a version that they did not answer by before."""
    warnings = []
    for name, versions in after.items():
        known = before.get(name, {})
        new = [version for version in versions if version not in known]
        gone = [version for version in known if version not in versions]
        if known and new:
            how = "in place of" if gone else "as well as"
            warnings.append(
                f"The model behind {name} changed {since}: {_listed(_short(new))} {how} "
                f"{_listed(_short(gone or known))}. Scores may differ for this alone."
            )
    return warnings


# A server may name another version in every reply.
MAX_NAMED = 10


def _listed(versions: Sequence[str]) -> str:
    """Return the first versions in words, with how many others there are."""
    more = len(versions) - MAX_NAMED
    return ", ".join(versions[:MAX_NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")


def _short(versions: Iterable[str]) -> list[str]:
    """Return versions without the model's name where the one before has the same."""
    texts, last = [], ""
    for version in versions:
        model, _, fingerprint = version.rpartition(" ")
        texts.append(fingerprint if model and model == last else version)
        last = model
    return texts


def _versions(stored: Any) -> Versions:
    return stored if isinstance(stored, dict) else {}
