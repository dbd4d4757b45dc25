"""The run that a new run is compared with: which it is, and what it answered, copied when the new run starts.

The copies belong to the new run, so that reruns, removals and another baseline never change what its outputs were
compared with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import EvaluatorSpec
from runs.engine.kept_scores import case_question
from runs.engine.plan import MEASURES_JUDGE, Plan, baseline_paths, case_tree
from runs.models.database import among, insert_rows
from runs.models.results import ENDED_RESULT_STATUSES, ComparedOutput, Result, ResultOutput
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.suites import Case, Suite
from runs.running.checks import CannotStartError
from runs.running.retrying import HAS_OUTPUT

BATCH = 200
COLUMNS = ("result_id", "repetition", "text", "problem")
# Why no output of a run can be compared.
NO_BASELINE = "no baseline to compare with"


def find_baseline(
    suite: Suite,
    trees: Collection[EvaluatorSpec],
    named: Run | None = None,
    usual: Mapping[str, Any] | None = None,
) -> Mapping[str, Any] | None:
    """Return the baseline of a new run for its plan: the named run, else the usual one, else the suite's.

    None without one, and if no evaluator of the trees needs one. Raises CannotStartError for a named run that cannot
    be it.
    """
    kinds = all_kinds()
    is_needed = any(baseline_paths(tree, kinds) for tree in trees)
    if named is not None:
        _check(suite, named, is_needed=is_needed)
    elif not is_needed or usual is not None:
        return usual if is_needed else None
    run = (
        named
        or Run.objects.filter(pk=suite.baseline_run_id or 0).only("number", "target_name").first()
    )
    return None if run is None else {"run": run.number, "target": run.target_name}


MAX_CHOICES = 50


def baseline_choices(suite: Suite, usual: Mapping[str, Any] | None = None) -> list[tuple[str, str]]:
    """Return the newest runs that can be the baseline of another, for a select.

    The empty choice is the `usual` one, as a snapshot has it, else the suite's.
    """
    ended = suite.runs.exclude(status__in=ACTIVE_RUN_STATUSES)
    runs = ended.filter(outputs_removed_at=None).exclude(snapshot__has_key=MEASURES_JUDGE)
    rows = runs.order_by("-number").values_list("number", "target_name", "note")[:MAX_CHOICES]
    empty = f"As before, #{usual['run']}" if usual else "None yet"
    if not usual and (own := suite.baseline_number):
        empty = f"The suite's, #{own}"
    return [
        ("", empty),
        *(
            (str(number), ", ".join(filter(None, (f"#{number}", target, note))))
            for number, target, note in rows
        ),
    ]


def baseline_run(suite: Suite, number: str) -> Run | None:
    """Return the run that was chosen, None for the empty choice."""
    runs = suite.runs.defer("summary", "leaf_scores")
    return runs.filter(number=number).first() if number else None


def no_baseline_text(paths: Sequence[str], *, is_itself: bool = False) -> str:
    """Say which evaluators have no baseline, or with `is_itself` none but the run itself; "" for none of them."""
    if not paths:
        return ""
    have, they_get = ("has", "it gets") if len(paths) == 1 else ("have", "they get")
    other, remedy = "", "Make a completed run the baseline of the suite, or name one."
    if is_itself:
        other, remedy = "other than the run itself ", "Name another run."
    return f"{', '.join(paths)} {have} no baseline {other}to compare outputs with, so {they_get} no score. {remedy}"


def _check(suite: Suite, named: Run, *, is_needed: bool) -> None:
    problem = ""
    if named.suite_id != suite.pk:
        problem = f"it is a run of {named.suite.slug}. Name a run of {suite.slug}"
    elif not is_needed:
        problem = "no evaluator compares outputs with another run's. Add one of kind Pairwise, or name no baseline"
    elif named.is_active:
        problem = "it is still running. Wait until it has ended, or name another"
    elif named.measures_judge:
        problem = "it only measures the judge. Name the run whose outputs it judged"
    elif named.lacks_outputs:
        problem = "its outputs were removed. Name another run"
    if problem:
        raise CannotStartError(f"Run {named} cannot be the baseline: {problem}.")


def copy_baseline_outputs(run: Run, plan: Plan) -> None:
    """Copy what the baseline answered for the waiting results of a run; those that have a copy already keep it."""
    if plan.baseline is None:
        return
    number = plan.baseline["run"]
    lacking = run.results.filter(compared_with=None).order_by("position", "repetition", "id")
    rows = list(lacking.values_list("pk", "case_id", "repetition"))
    cases = Case.objects.in_bulk({case for _, case, _ in rows})
    kinds = all_kinds()
    trees = {
        pk: case_tree(plan.root, case.evaluators, append=case.evaluators_append)
        for pk, case in cases.items()
        if case.evaluators
    }
    is_usual = bool(baseline_paths(plan.root, kinds))
    keys = {
        pk: case.key
        for pk, case in cases.items()
        if (bool(baseline_paths(trees[pk], kinds)) if pk in trees else is_usual)
    }
    rows = [row for row in rows if row[1] in keys]
    # Its own outputs, judged again.
    itself = run.source_run_id if run.is_judged_again else None
    answers = BaselineOutputs(run.suite_id, number, keys, plan.files, itself=itself)
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        for part in ResultOutput.objects.batches(answers.sources(some), "text"):
            insert_rows(ComparedOutput, COLUMNS, answers.copies(some[: len(part)]))
            some = some[len(part) :]


class BaselineOutputs:
    """The outputs of a baseline that can be compared with those of cases, whose keys are given by id.

    `itself` is the id of the run whose outputs they are, if they exist already.
    """

    def __init__(
        self,
        suite_id: int,
        number: int,
        keys: Mapping[int, str],
        files: Mapping[str, str],
        *,
        itself: int | None = None,
    ) -> None:
        """Read what the baseline ran, without the outputs."""
        runs = Run.objects.defer("summary", "leaf_scores")
        baseline = runs.filter(suite=suite_id, number=number).first()
        self.name, self.is_there = f"run #{number}", baseline is not None
        self.is_itself = baseline is not None and baseline.pk == itself
        self.keys = keys
        self.usable: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.ran: dict[str, int] = {}
        if baseline is None:
            return
        mine = baseline.results.filter(case__key__in=among(keys.values(), "text"))
        self.ran = dict(mine.order_by().values_list("case__key", "case_id"))
        answered = mine.filter(HAS_OUTPUT, status__in=ENDED_RESULT_STATUSES)
        for key, repetition, pk in answered.order_by("repetition").values_list(
            "case__key", "repetition", "pk"
        ):
            self.usable[key].append((repetition, pk))
        self.other_input = _other_inputs(
            keys, self.ran, files, baseline.snapshot.get("files") or {}
        )

    def problem(self, case: int) -> str:
        """Return why the output of a case can be compared with none, "" if it can."""
        key = self.keys[case]
        problem = ""
        if not self.is_there:
            problem = f"the baseline, {self.name}, was deleted"
        elif self.is_itself:
            problem = f"the output is that of the baseline, {self.name}, itself"
        elif key not in self.ran:
            problem = f"the baseline, {self.name}, has no such case"
        elif key not in self.usable:
            problem = f"the baseline, {self.name}, has no output for the case"
        elif key in self.other_input:
            problem = (
                f"the input of the case is another now, so the output of the baseline, {self.name}, answers "
                "another question"
            )
        return problem

    def sources(self, rows: Sequence[tuple[int, int, int]]) -> list[int]:
        """Return for results by id, case and repetition those of the baseline whose outputs are copied, 0 for none."""
        return [self._find(case, repetition)[1] for _, case, repetition in rows]

    def copies(self, rows: Sequence[tuple[int, int, int]]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of ComparedOutput for results by id, case and repetition."""
        found = {pk: self._find(case, repetition) for pk, case, repetition in rows}
        sources = [source for _, source, _ in found.values() if source]
        outputs = Result.objects.filter(pk__in=sources).order_by()
        texts = dict(outputs.values_list("pk", "output__text"))
        for pk, (repetition, source, problem) in found.items():
            yield pk, repetition, texts.get(source, ""), problem

    def _find(self, case: int, repetition: int) -> tuple[int, int, str]:
        """Return repetition and id of the baseline's result, or 0 as id and why there is none."""
        if problem := self.problem(case):
            return repetition, 0, problem
        usable = self.usable[self.keys[case]]
        return *usable[(repetition - 1) % len(usable)], ""


def _other_inputs(
    keys: Mapping[int, str],
    ran: Mapping[str, int],
    now: Mapping[str, str],
    then: Mapping[str, str],
) -> set[str]:
    """Return the keys of the cases whose input, or a file in it, is another than in the baseline."""
    changed = {
        key: (pk, ran[key])
        for pk, key in keys.items()
        if key in ran and (ran[key] != pk or now != then)
    }
    cases = Case.objects.in_bulk({pk for pair in changed.values() for pk in pair})
    return {
        key
        for key, (pk, before) in changed.items()
        if case_question(cases[before].facts, then) != case_question(cases[pk].facts, now)
    }
