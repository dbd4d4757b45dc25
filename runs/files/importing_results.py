"""Import results: a file becomes finished runs, one for each target it names."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.engine.plan import case_tree, content_hash
from runs.files.importing import check_slug, import_content
from runs.files.result_decisions import (
    common_tree,
    decide_result,
    evaluator_tree,
    tree_shape,
)
from runs.files.storing_results import Revision, Row, RunContent, store_runs
from runs.formats.results_reading import ReadResult, read_results
from runs.formats.results_writing import ResultLine
from runs.formats.suite_evaluators import default_children, make_root
from runs.formats.suite_files import make_slug
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.suites.services import lock_suite

NO_INPUT = "The file of results does not contain the input."
MAX_TITLE_LENGTH = 200
MAX_NAMED = MAX_TARGETS = 100
# The page of a result, and that of a case in a comparison, link to each repetition.
MAX_REPETITIONS = 1_000
REMEDY = "choose the suite these results are of, import its file first, or name a new suite"


class CaseNotInSuiteError(UnreadableFileError):
    """A file holds results of cases that the suite does not have."""

    code = "not_of_this_suite"


def check_cases(
    suite: Suite, current: Mapping[str, Case], results: Sequence[ReadResult], file: str
) -> None:
    """Raise CaseNotInSuiteError with the first line of each case that the suite does not have."""
    unknown: dict[str, int] = {}
    for result in results:
        if result.result.eval_id not in current:
            unknown.setdefault(result.result.eval_id, result.line)
    if not unknown:
        return
    problems = [
        Problem(f"{suite.slug} has no case {key}; {REMEDY}", file, line, key)
        for key, line in islice(unknown.items(), MAX_NAMED)
    ]
    left = len(unknown) - MAX_NAMED
    if left > 0:
        problems.append(Problem(f"and {left} more that {suite.slug} does not have", file))
    raise CaseNotInSuiteError(problems)


class SuiteExistsError(DomainError):
    """A new suite was to be made from results, but there is one of that name."""

    code = "suite_exists"


def new_suite(named: str, results: Sequence[ReadResult]) -> SuiteWithCases:
    """Return a suite of the cases of the lines, with the default judge."""
    cases: dict[str, CaseSpec] = {}
    for entry in results:
        key = entry.result.eval_id
        if key not in cases:
            cases[key] = CaseSpec(
                key=key,
                title=entry.title,
                tags=entry.tags,
                input=entry.input or ({"role": "user", "content": NO_INPUT},),
                expected_output=entry.expected_output,
                expected_outcomes=tuple(outcome.text for outcome in entry.result.outcomes),
                criteria=entry.criteria,
                metadata=dict(entry.metadata),
            )
    slug = make_slug(named) or "results"
    root = make_root(default_children())
    return SuiteWithCases(
        slug=slug, title=named[:MAX_TITLE_LENGTH], evaluators=root, cases=tuple(cases.values())
    )


@dataclass(frozen=True, slots=True)
class ImportedResults:
    """The imported runs, their suite, and notes about the file."""

    suite: Suite
    runs: tuple[Run, ...]
    notes: tuple[str, ...]


def import_results(
    content: bytes,
    *,
    file: str,
    suite: Suite | None,
    imported_by: User | None,
    target_name: str = "",
    slug: str = "",
) -> ImportedResults:
    """Store the results of a file as completed runs, one for each target; workers compute their figures.

    Without a suite they belong to the one the lines name, else to one with the file's name; if there is none,
    it is made from the cases of the lines. `slug` names a suite that is to be made in any case. `target_name`
    is for lines that name no target. Raises UnreadableFileError with line and reason, CaseNotInSuiteError with
    the missing cases, UnusableSlugError, SuiteExistsError for a `slug` that is taken, or TreeError; then nothing
    is stored. After ImportCutOffError no run is stored; a suite that was made for them stays.
    """
    if slug:
        check_slug(slug)
    read = read_results(content, file=file)
    named = slug or read.results[0].result.suite or PurePosixPath(file).stem
    existing = suite or Suite.objects.filter(slug=make_slug(named)).first()
    if slug and existing is not None:
        raise SuiteExistsError(
            f"There is already a suite {slug}; choose it as the suite of these results, or another new name."
        )
    notes = [str(note) for note in read.notes]
    if existing is None:
        made = new_suite(named, read.results)
        by_target = _by_target(read.results, file, target_name)
        first = {
            case.key: Case(key=case.key, position=place) for place, case in enumerate(made.cases)
        }
        decided = _decide(by_target, made.evaluators, made.policy, first)
        with transaction.atomic():
            note = "Created from the cases in a file of results"
            held = import_content(made, imported_by=imported_by, note=note, is_new=True).suite
            current = _current_cases(held)
        notes.append(
            "The file has the scores of its evaluators but not their settings, so the new suite has the "
            "default judge. Import its suite file under the same name to run it again."
        )
    else:
        with transaction.atomic():
            held = lock_suite(existing)
            current = _current_cases(held)
        check_cases(held, current, read.results, file)
        by_target = _by_target(read.results, file, target_name)
        decided = _decide(by_target, held.spec.evaluators, held.policy, current)
    origin = {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
    runs = store_runs(held, current, decided, origin=origin, by=imported_by)
    return ImportedResults(held, runs, tuple(notes))


def _by_target(
    results: Sequence[ReadResult], file: str, unnamed: str
) -> Mapping[str, Sequence[ReadResult]]:
    """Return the results by target; raises UnreadableFileError with the first line of one too many.

    That is a target, or a result of a case for one target.
    """
    by_target: dict[str, list[ReadResult]] = {}
    repeated = Counter[tuple[str, str]]()
    for entry in results:
        target = entry.result.target or unnamed or PurePosixPath(file).stem
        by_target.setdefault(target, []).append(entry)
        if len(by_target) > MAX_TARGETS:
            raise UnreadableFileError(
                [
                    Problem(
                        f"names the target “{target}”, but {MAX_TARGETS} others come before it and each gets "
                        "a run; split the file, or name the same target in all lines that one run answered",
                        file,
                        entry.line,
                    )
                ]
            )
        case = entry.result.eval_id
        repeated[target, case] += 1
        if repeated[target, case] > MAX_REPETITIONS:
            message = (
                f"{MAX_REPETITIONS:,} results of this case for the target “{target}” come before it, and that is "
                "the limit of a run; split the file, or give different cases different ids"
            )
            raise UnreadableFileError([Problem(message, file, entry.line, case)])
    return by_target


def _current_cases(suite: Suite) -> dict[str, Case]:
    """Return the current cases of a suite by key, with what decides how they are scored."""
    cases = suite.cases.filter(is_current=True)
    columns = ("suite", "key", "position", "content_hash", "evaluators", "evaluators_append")
    return {case.key: case for case in cases.only(*columns)}


def _decide(
    by_target: Mapping[str, Sequence[ReadResult]],
    own: EvaluatorSpec,
    policy: PolicySpec,
    current: Mapping[str, Case],
) -> list[RunContent]:
    """Decide the results of each target by the rules of the suite, or as in the file."""
    decided = []
    for target, results in by_target.items():
        numbered = _numbered(results)
        lines = [entry.result for entry, _ in numbered]
        root = common_tree(lines, own, policy)
        trees = _trees(lines, root, own, current, policy)
        scored = [
            decide_result(line, tree, policy) for line, tree in zip(lines, trees, strict=True)
        ]
        revisions = _scored_revisions(lines, trees, root, current)
        places = sorted(set(revisions), key=lambda which: (current[which.key].position, which))
        position = {revision: place for place, revision in enumerate(places)}
        rows = [
            Row(*entry, one, revision, position[revision])
            for entry, one, revision in zip(numbered, scored, revisions, strict=True)
        ]
        rows.sort(key=lambda row: row.position)
        decided.append(RunContent(target, root, policy, rows))
    return decided


def _scored_revisions(
    lines: Sequence[ResultLine],
    trees: Sequence[EvaluatorSpec],
    root: EvaluatorSpec,
    current: Mapping[str, Case],
) -> list[Revision]:
    """Return for every result the revision of its case that its tree scores."""
    hashes: dict[int, str] = {}
    revisions = []
    for line, tree in zip(lines, trees, strict=True):
        case = current[line.eval_id]
        if case_tree(root, case.evaluators, append=case.evaluators_append) == tree:
            revisions.append(Revision(case.key, ""))
            continue
        if id(tree) not in hashes:
            hashes[id(tree)] = content_hash(tree.as_json())
        revisions.append(Revision(case.key, hashes[id(tree)]))
    return revisions


def _trees(
    lines: Sequence[ResultLine],
    root: EvaluatorSpec,
    own: EvaluatorSpec,
    current: Mapping[str, Case],
    policy: PolicySpec,
) -> list[EvaluatorSpec]:
    """Return the tree of each result; results with the same evaluators share one."""
    groups: dict[tuple[Any, ...], list[ResultLine]] = {}
    places = []
    for line in lines:
        case = current[line.eval_id]
        place = (tree_shape(line.evaluators), case.pk if case.evaluators else 0)
        groups.setdefault(place, []).append(line)
        places.append(place)
    trees = {}
    for place, alike in groups.items():
        case = current[alike[0].eval_id]
        usual = case_tree(root, case.evaluators, append=case.evaluators_append)
        whole = case_tree(own, case.evaluators, append=case.evaluators_append)
        tree = evaluator_tree(alike, whole, policy) if place[0] else usual
        # Use one object for equal trees, so that its rules are compiled once.
        trees[place] = next((same for same in (root, usual) if same == tree), tree)
    return [trees[place] for place in places]


def _numbered(results: Sequence[ReadResult]) -> list[tuple[ReadResult, int]]:
    """Return the results with their repetitions: those of the file, else counted per case."""
    taken: dict[str, set[int]] = defaultdict(set)
    # All below the counted one are taken, so that many results of one case are counted once.
    counted: dict[str, int] = defaultdict(int)
    numbered = []
    for entry in results:
        key, number = entry.result.eval_id, entry.result.repetition
        if number < 1 or number in taken[key]:
            number = counted[key] = next(n for n in count(counted[key] + 1) if n not in taken[key])
        taken[key].add(number)
        numbered.append((entry, number))
    return numbered
