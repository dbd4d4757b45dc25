"""Two runs side by side: what differs beside their targets, the figures of both, every case, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from runs.comparison import (
    CaseChange,
    Difference,
    RunComparison,
    Significance,
    Tolerances,
    compare_cases,
    compare_runs,
    differences,
    measured_pairs,
    shared_changes,
    significance,
)
from runs.models import Run
from runs.reports.comparison_measured import measured_of
from runs.reports.comparison_sides import Side, recorded, side_of

# Both runs' ids make one seed; the factor is a prime, so that no two pairs of runs share theirs.
SEED_STEP = 1_000_003


@dataclass(frozen=True)
class Compared:
    """The two runs compared; `in_both` is how many cases both have, `shared` how many of them have a verdict on both sides.

    The evidence is read and resampled when it is first asked for: filtering the cases takes none.
    """

    baseline: Side
    candidate: Side
    tolerances: Tolerances
    differences: tuple[Difference, ...]
    runs: RunComparison
    cases: tuple[CaseChange, ...]
    shared: int
    in_both: int
    is_of_shared_cases: bool = False

    @property
    def is_comparable(self) -> bool:
        """Tell whether verdicts that differ can only differ for the target."""
        return not any(one.spoils for one in self.differences)

    @cached_property
    def evidence(self) -> Significance:
        """Return what the shared cases say, seeded from both runs; eight queries at most."""
        shared = shared_changes(self.cases)
        sides = measured_of(self.baseline), measured_of(self.candidate)
        pairs = measured_pairs(*sides, [one.case for one in shared])
        seed = self.baseline.run.pk * SEED_STEP + self.candidate.run.pk
        return significance(shared, pairs, seed=seed)

    def title(self, case: str) -> str:
        """Return a case's title, the candidate's where it has the case."""
        return self.candidate.titles.get(case) or self.baseline.titles.get(case, "")


def compared(
    baseline: Run, candidate: Run, tolerances: Tolerances, *, only_shared: bool = False
) -> Compared:
    """Return the comparison; each run's own frozen policy makes its cases' verdicts. Two queries.

    With `only_shared` the figures of both are those of the cases whose keys both have. Raises
    UnreadableSnapshotError for a run of another version.
    """
    stored = recorded(baseline), recorded(candidate)
    in_both = {*stored[0].hashes} & {*stored[1].hashes}
    if only_shared:
        stored = stored[0].of(in_both), stored[1].of(in_both)
    before, after = side_of(baseline, stored[0]), side_of(candidate, stored[1])
    cases = compare_cases(before.cases, after.cases)
    return Compared(
        baseline=before,
        candidate=after,
        tolerances=tolerances,
        differences=differences(before.facts, after.facts),
        runs=compare_runs(before.figures, after.figures, tolerances),
        cases=cases,
        shared=len(shared_changes(cases)),
        in_both=len(in_both),
        is_of_shared_cases=only_shared,
    )
