"""The suite and the revisions of its cases that imported results belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Max

from evaluators.scoring.tree import Node
from runs.formats import CaseContent, Problem, SuiteContent, UnreadableFileError
from runs.formats._trees import default_children, root_of
from runs.formats.agentv import slug_of
from runs.formats.agentv_results import ReadResult
from runs.imports.suites import import_content
from runs.models import Case, Suite
from runs.plan import content_hash, tree_of_case

NO_INPUT = "The file of results does not tell what was asked."
LONGEST_TITLE = 200
MOST_NAMED = 100
REMEDY = "name the suite these results are of, or import its file first"
COPIED = (
    *("title", "tags", "input", "expected_output", "expected_outcomes", "criteria", "metadata"),
    "recorded_output",
)


class NotOfThisSuiteError(UnreadableFileError):
    """A file holds results of cases that the suite does not have."""

    code = "not_of_this_suite"


def check_cases(suite: Suite, results: Sequence[ReadResult], file: str) -> None:
    """Raise NotOfThisSuiteError with the first line of each case that the suite does not have."""
    known = set(suite.cases.filter(is_current=True).values_list("key", flat=True))
    strangers: dict[str, int] = {}
    for one in results:
        if one.result.eval_id not in known:
            strangers.setdefault(one.result.eval_id, one.line)
    if not strangers:
        return
    problems = [
        Problem(f"{suite.slug} has no case {key}; {REMEDY}", file, line, key)
        for key, line in islice(strangers.items(), MOST_NAMED)
    ]
    left = len(strangers) - MOST_NAMED
    if left > 0:
        problems.append(Problem(f"and {left} more that {suite.slug} does not have", file))
    raise NotOfThisSuiteError(problems)


def made_suite(named: str, results: Sequence[ReadResult], by: User | None) -> Suite:
    """Make a suite of the cases the lines tell of, with the judge that suites have by default."""
    cases: dict[str, CaseContent] = {}
    for one in results:
        key = one.result.eval_id
        if key not in cases:
            cases[key] = CaseContent(
                key=key,
                input=one.input or ({"role": "user", "content": NO_INPUT},),
                expected_output=one.expected_output,
                expected_outcomes=tuple(outcome.text for outcome in one.result.outcomes),
                criteria=one.criteria,
            )
    slug = slug_of(named) or "results"
    root = root_of(default_children())
    content = SuiteContent(
        slug=slug, title=named[:LONGEST_TITLE], root=root, cases=tuple(cases.values())
    )
    note = "Made of the cases that a file of results tells of"
    return import_content(content, imported_by=by, note=note).suite


def cases_run(
    suite: Suite, root: Node, current: Mapping[str, Case], scored: Sequence[tuple[str, Node]]
) -> list[Case]:
    """Return for every result the revision of its case that is scored by its tree.

    That is the current one, where the run's tree or the case's own is the result's; else an earlier
    revision with that tree, made where there is none. The suite itself does not change.
    """
    made: dict[tuple[str, str], Case] = {}
    latest = dict(
        suite.cases.filter(key__in=current).values_list("key").annotate(last=Max("revision"))
    )
    found = []
    for key, tree in scored:
        case = current[key]
        if tree_of_case(root, case.evaluators, append=case.evaluators_append) == tree:
            found.append(case)
            continue
        columns = {name: getattr(case, name) for name in COPIED}
        columns |= {"evaluators": tree.as_json(), "evaluators_append": False}
        digest = content_hash(columns)
        if (key, digest) not in made:
            made[key, digest] = _revision(suite, case, columns, digest, latest)
        found.append(made[key, digest])
    return found


def _revision(
    suite: Suite, case: Case, columns: Mapping[str, Any], digest: str, latest: dict[str, int]
) -> Case:
    earlier = suite.cases.filter(key=case.key, content_hash=digest).order_by("-revision").first()
    if earlier is not None:
        return earlier
    latest[case.key] += 1
    place = {"key": case.key, "position": case.position, "is_current": False}
    return Case.objects.create(
        suite=suite, revision=latest[case.key], content_hash=digest, **place, **columns
    )
