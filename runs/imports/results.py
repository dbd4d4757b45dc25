"""Results of a file become finished runs, one for each target the file names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from evaluators.models import AuditEntry, Evaluator
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from runs.formats.agentv import slug_of
from runs.formats.agentv_results import ReadResult, read_results
from runs.formats.results import ResultLine
from runs.imports._imported_cases import cases_run, check_cases, made_suite
from runs.imports._result_decisions import told
from runs.imports._result_rows import write_results
from runs.imports._result_trees import common_tree, shape_of, tree_of
from runs.models import Case, Run, RunStatus, Suite
from runs.models.clock import database_now
from runs.plan import Plan, TargetPlan, cases_hash, content_hash, tree_of_case

RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class ImportedResults:
    """The runs that were made, their suite, and what is to be said of the file."""

    suite: Suite
    is_new_suite: bool
    runs: tuple[Run, ...]
    notes: tuple[str, ...]


def import_results(
    content: bytes,
    *,
    file: str,
    suite: Suite | None,
    imported_by: User | None,
    target_name: str = "",
) -> ImportedResults:
    """Store the results of a file as completed runs without figures yet, one for each target.

    Without a suite they belong to the one the lines name, else to one of the file's name; where there
    is none, it is made of the cases the lines tell of. `target_name` stands for lines that name none.
    Raises UnreadableFileError with line and reason, NotOfThisSuiteError with the cases it lacks;
    in either case nothing is stored.
    """
    read = read_results(content, file=file)
    named = read.results[0].result.suite or PurePosixPath(file).stem
    origin = {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
    with transaction.atomic():
        found = suite or Suite.objects.filter(slug=slug_of(named)).first()
        is_new = found is None
        if found is None:
            found = made_suite(named, read.results, imported_by)
        held = Suite.objects.select_for_update(of=("self",)).select_related("root").get(pk=found.pk)
        check_cases(held, read.results, file)
        runs = []
        for name, results in _by_target(read.results, target_name or PurePosixPath(file).stem):
            runs.append(_import_run(held, name, results, origin=origin, by=imported_by))
    notes = [str(note) for note in read.notes]
    if is_new:
        notes.append(
            "The file tells what evaluators said, not how they are set up: the new suite has the "
            "usual judge. Import its suite file under the same name to run it again."
        )
    return ImportedResults(held, is_new, tuple(runs), tuple(notes))


def _by_target(
    results: Sequence[ReadResult], default: str
) -> Iterator[tuple[str, list[ReadResult]]]:
    names = dict.fromkeys(one.result.target or default for one in results)
    for name in names:
        yield name, [one for one in results if (one.result.target or default) == name]


def _import_run(
    suite: Suite,
    target: str,
    results: Sequence[ReadResult],
    *,
    origin: Mapping[str, str],
    by: User | None,
) -> Run:
    policy, own = suite.policy(), Evaluator.objects.tree(suite.root)
    numbered = _numbered(results)
    lines = [one.result for one, _ in numbered]
    root = common_tree(lines, own, policy)
    current = {case.key: case for case in suite.cases.filter(is_current=True)}
    trees = _trees(lines, root, own, current, policy)
    decided = [told(line, tree, policy) for line, tree in zip(lines, trees, strict=True)]
    cases = cases_run(
        suite, root, current, [(lines[n].eval_id, d.tree) for n, d in enumerate(decided)]
    )
    plan = Plan(
        suite={"slug": suite.slug, "title": suite.title, "version": suite.version},
        policy=policy,
        root=root,
        target=TargetPlan(target, RECORDED),
        cases_hash=cases_hash([case.content_hash for case in dict.fromkeys(cases)]),
    )
    run = _create_run(suite, plan, numbered, origin=origin, by=by)
    write_results(
        run, policy, [(*n, d, c) for n, d, c in zip(numbered, decided, cases, strict=True)]
    )
    _audit(run, suite, by, origin)
    return run


def _trees(
    lines: Sequence[ResultLine],
    root: Node,
    own: Node,
    current: Mapping[str, Case],
    policy: Policy,
) -> list[Node]:
    """Return the tree each result was scored by; those whose evaluators are alike share one."""
    groups: dict[tuple[Any, ...], list[ResultLine]] = {}
    places = []
    for line in lines:
        case = current[line.eval_id]
        place = (shape_of(line.evaluators), case.pk if case.evaluators else 0)
        groups.setdefault(place, []).append(line)
        places.append(place)
    trees = {}
    for place, alike in groups.items():
        case = current[alike[0].eval_id]
        usual = tree_of_case(root, case.evaluators, append=case.evaluators_append)
        whole = tree_of_case(own, case.evaluators, append=case.evaluators_append)
        tree = tree_of(alike, whole, policy) if place[0] else usual
        # Equal trees are one object: its rules are made ready once.
        trees[place] = next((same for same in (root, usual) if same == tree), tree)
    return [trees[place] for place in places]


def _numbered(results: Sequence[ReadResult]) -> list[tuple[ReadResult, int]]:
    """Return the results with their repetitions: as told, else counted case by case."""
    taken: dict[str, set[int]] = {}
    numbered = []
    for one in results:
        used = taken.setdefault(one.result.eval_id, set())
        number = one.result.repetition
        if number < 1 or number in used:
            number = next(n for n in range(1, len(used) + 2) if n not in used)
        used.add(number)
        numbered.append((one, number))
    return numbered


def _create_run(
    suite: Suite,
    plan: Plan,
    numbered: Sequence[tuple[ReadResult, int]],
    *,
    origin: Mapping[str, str],
    by: User | None,
) -> Run:
    last = Run.objects.filter(suite=suite).aggregate(last=Max("number"))["last"] or 0
    snapshot = plan.as_json() | {"imported": dict(origin)}
    moments = [one.finished_at for one, _ in numbered if one.finished_at]
    return Run.objects.create(
        suite=suite,
        number=last + 1,
        status=RunStatus.COMPLETED,
        target_name=plan.target.name,
        suite_version=suite.version,
        note=f"Imported from {origin['file']}"[:300],
        created_by=by,
        # No hands here ever began with it.
        started_at=None,
        finished_at=max(moments, default=database_now()),
        repetitions=max(number for _, number in numbered),
        case_count=len({one.result.eval_id for one, _ in numbered}),
        execution_count=len(numbered),
        done_count=len(numbered),
        snapshot_hash=content_hash(snapshot),
        snapshot=snapshot,
    )


def _audit(run: Run, suite: Suite, by: User | None, origin: Mapping[str, str]) -> None:
    AuditEntry.objects.create(
        actor=by,
        actor_name=by.get_username() if by else "command line",
        action="import",
        object_type="run",
        object_id=str(run.pk),
        object_name=f"{suite.slug} #{run.number}",
        after={"target": run.target_name, "executions": run.execution_count, **origin},
    )
