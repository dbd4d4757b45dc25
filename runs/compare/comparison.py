"""A comparison of two runs: every case, how the figures changed, and the evidence (SCORING §9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial

from evaluators.scoring.types import DomainError
from runs.compare.evidence import (
    MeasuredRun,
    Significance,
    measured_pairs,
    shared_changes,
    significance,
)
from runs.compare.rules import (
    CaseChange,
    CaseSide,
    CaseSideFigures,
    Difference,
    RunComparison,
    RunFacts,
    Tolerances,
    compare_cases,
    compare_runs,
    differences,
)
from runs.compare.sides import (
    CaseNames,
    ComparisonSide,
    Execution,
    Executions,
    decide_cases,
    measured_scores,
    read_executions,
    scores_to_test,
)
from runs.filters.queries import matching_keys
from runs.models.results import Retry
from runs.models.runs import RecentValues, Run

# The ids of both runs make one seed; the factor is a prime, so that no two pairs share a seed.
SEED_STEP = 1_000_003


@dataclass(frozen=True)
class Comparison:
    """Two runs compared. Both have `in_both` cases; `shared` of these have a verdict on both sides.

    What is more than a list of cases is computed on first use; the evidence is read and resampled then.
    """

    baseline: ComparisonSide
    candidate: ComparisonSide
    tolerances: Tolerances
    names: Mapping[int, CaseNames]
    cases: tuple[CaseChange, ...]
    shared: int
    in_both: int
    is_of_shared_cases: bool = False
    _matching: dict[str, Set[str]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Return in what the runs differ, apart from their targets."""
        return differences(self._facts(self.baseline), self._facts(self.candidate))

    def _facts(self, side: ComparisonSide) -> RunFacts:
        hashes = {key: self._names(group).content_hash for key, group in side.groups.items()}
        return RunFacts(side.run.snapshot, side.run.repetitions, hashes)

    def _names(self, group: Sequence[Execution]) -> CaseNames:
        """Return the names of the revision of a case that ran."""
        return self.names[group[0][0]]

    @cached_property
    def runs(self) -> RunComparison:
        """Return how the figures of the runs changed, and which tolerances that exceeds."""
        return compare_runs(self.baseline.figures, self.candidate.figures, self.tolerances)

    @property
    def is_comparable(self) -> bool:
        """Tell whether verdicts can only differ because of the targets."""
        return not any(difference.spoils for difference in self.differences)

    @cached_property
    def is_of_same_outputs(self) -> bool:
        """Tell whether both runs judged the same outputs; few queries, none if neither judges stored ones."""
        return have_same_outputs(self.baseline.run, self.candidate.run)

    @property
    def has_repetitions(self) -> bool:
        """Tell whether either run executed its cases more than once."""
        return max(side.run.repetitions for side in (self.baseline, self.candidate)) > 1

    @cached_property
    def measured(self) -> tuple[MeasuredRun, MeasuredRun]:
        """Return what evaluators measured in both runs; at most eight queries."""
        return measured_scores(self.baseline), measured_scores(self.candidate)

    @cached_property
    def evidence(self) -> Significance:
        """Return the evidence of the shared cases, seeded by both runs; the queries of `measured`."""
        shared = shared_changes(self.cases)
        before, after = scores_to_test((self.baseline, self.candidate), self.measured)
        pairs = measured_pairs(before, after, [change.case for change in shared])
        return significance(shared, pairs, seed=self.seed)

    @property
    def seed(self) -> int:
        """Return the seed of every resampling of these two runs."""
        return self.baseline.run.pk * SEED_STEP + self.candidate.run.pk

    def case_figures(
        self, change: CaseChange
    ) -> tuple[CaseSideFigures | None, CaseSideFigures | None]:
        """Return the figures of a case in both runs."""
        return self.baseline.case_figures(change.case), self.candidate.case_figures(change.case)

    def matching_keys(self, text: str) -> Set[str]:
        """Return the keys of the cases that match a filter, which is answered once; raises FilterError."""
        if text not in self._matching:
            self._matching[text] = matching_keys([self.candidate.run], self.baseline.run, text)
        return self._matching[text]

    def title(self, case: str) -> str:
        """Return the title of a case, from the candidate where it has the case."""
        return self._names(self.candidate.groups.get(case) or self.baseline.groups[case]).title


def have_same_outputs(*runs: Run) -> bool:
    """Tell whether runs judged the same outputs: those of one of them, or of one source, which were not replaced."""
    if not any(run.is_judged_again for run in runs):
        return False
    origins = [_origin(run) for run in runs]
    if len({origin.pk for origin, _ in origins}) > 1:
        return False
    copied = [copied_at for _, copied_at in origins if copied_at is not None]
    reruns = Retry.objects.filter(run=origins[0][0], keeps_output=False, asked_at__gt=min(copied))
    if len(copied) == len(runs):
        reruns = reruns.filter(asked_at__lt=max(copied))
    return not reruns.exists()


def _origin(run: Run) -> tuple[Run, datetime | None]:
    """Return the run whose target gave the outputs of a run, and when they were copied from it, None for its own."""
    copied_at = None
    runs = Run.objects.defer("summary", "leaf_scores")
    while run.is_judged_again and (source := runs.filter(pk=run.source_run_id or 0).first()):
        run, copied_at = source, run.created_at
    return run, copied_at


class SameRunError(DomainError):
    """Both sides of a comparison are the same run."""

    code = "same_run"

    def __init__(self) -> None:
        """Say what would help."""
        super().__init__("Both sides are the same run. Choose two different runs.")


def build_comparison(
    baseline: Run, candidate: Run, tolerances: Tolerances, *, only_shared: bool = False
) -> Comparison:
    """Compare two runs; the policy frozen with each run decides its cases' verdicts.

    Three queries; none where the same results of runs that are over were just compared. With `only_shared` the
    figures count only the cases that both runs have. Raises UnreadableSnapshotError for a run of another version.
    """
    runs = baseline, candidate
    compare = partial(_compare_results, baseline, candidate, only_shared=only_shared)
    size = sum(run.execution_count for run in runs)
    # Claims, which do not change the version, change results of an active run.
    if size > MAX_KEPT_EXECUTIONS or any(run.is_active for run in runs):
        compared = compare()
    else:
        versions = tuple((run.pk, run.results_version) for run in runs)
        compared = COMPARED.get((*versions, only_shared), compare)
    before, after = map(ComparisonSide, runs, compared.groups, compared.cases)
    return Comparison(
        baseline=before,
        candidate=after,
        tolerances=tolerances,
        names=compared.names,
        cases=compared.changes,
        shared=len(shared_changes(compared.changes)),
        in_both=compared.in_both,
        is_of_shared_cases=only_shared,
    )


@dataclass(frozen=True, slots=True)
class ComparedResults:
    """What the results of two runs say: the executions and cases of each, and every change; `in_both` cases are shared."""

    names: Mapping[int, CaseNames]
    groups: Sequence[Executions]
    cases: Sequence[Mapping[str, CaseSide]]
    changes: tuple[CaseChange, ...]
    in_both: int


# The parts of a comparison's page, its filters and the steps through its cases ask about the same two runs. Of 20,000
# cases each they take 37 MB, so a process keeps no others.
COMPARED: RecentValues[ComparedResults] = RecentValues(1)
MAX_KEPT_EXECUTIONS = 40_000


def _compare_results(baseline: Run, candidate: Run, *, only_shared: bool) -> ComparedResults:
    names, (old, new) = read_executions(baseline, candidate)
    in_both = old.keys() & new.keys()
    if only_shared:
        old, new = (
            {key: group for key, group in groups.items() if key in in_both} for groups in (old, new)
        )
    before, after = decide_cases(baseline, old), decide_cases(candidate, new)
    changes = compare_cases(before, after)
    return ComparedResults(names, (old, new), (before, after), changes, len(in_both))


def comparison_heading(baseline: Run, candidate: Run) -> str:
    """Name both runs by their numbers: `#2 vs #1 (baseline)`."""
    return f"#{candidate.number} vs #{baseline.number} (baseline)"
