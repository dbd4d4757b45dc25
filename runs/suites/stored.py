"""What is stored of a suite, as the values a suite file is made of, and a case as the columns of its row."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.models.suites import Case, FileContent, Suite, SuiteVersion
from runs.specs.content import CaseSpec, SuiteSpec

BATCH = 500


class UnknownVersionError(DomainError):
    """A suite has no such version, or none that was kept."""

    code = "unknown_version"


def stored_content(
    suite: Suite, *, version: int | None = None, only: Container[str] | None = None
) -> SuiteSpec:
    """Return the suite as it was at a version, the current one unless another is named.

    Importing it again changes nothing. With `only`, it has no other cases than those of these keys.
    Raises UnknownVersionError naming those there are.
    """
    number = suite.version if version is None else version
    found = suite.versions.filter(number=number).first()
    if found is None:
        raise UnknownVersionError(_unknown(suite, number))
    kept = found.content
    return SuiteSpec(
        slug=suite.slug,
        title=kept["title"],
        description=kept["description"],
        tags=tuple(kept["tags"]),
        judge=kept["judge"],
        policy=PolicySpec.model_validate(kept["policy"]),
        root=EvaluatorSpec.model_validate(kept["evaluators"]),
        cases=tuple(_cases(found, only)),
        files=_files(kept["files"]),
        metadata=kept["metadata"],
    )


def _cases(version: SuiteVersion, only: Container[str] | None) -> Iterator[CaseSpec]:
    """Yield the cases in the order of the version, each in the revision it had."""
    kept = version.content["cases"]
    wanted = [
        (case["key"], case["revision"]) for case in kept if only is None or case["key"] in only
    ]
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        rows = Case.objects.filter(suite_id=version.suite_id, key__in={key for key, _ in batch})
        found = {(row.key, row.revision): row for row in rows}
        yield from (case_content(found[part]) for part in batch)


def case_content(row: Case) -> CaseSpec:
    """Return a stored revision as what a suite file says of it."""
    return CaseSpec(
        key=row.key,
        title=row.title,
        tags=tuple(row.tags),
        input=tuple(row.input),
        expected_output=row.expected_output,
        expected_outcomes=tuple(row.expected_outcomes),
        criteria=row.criteria,
        metadata=row.metadata,
        evaluators=EvaluatorSpec.model_validate(row.evaluators) if row.evaluators else None,
        evaluators_append=row.evaluators_append,
        recorded_output=row.recorded_output,
    )


def files_of(suite: Suite) -> dict[str, bytes]:
    """Return the files of a suite as it is now, by path."""
    return _files(dict(suite.files.values_list("path", "content_id")))


def _files(hashes: Mapping[str, str]) -> dict[str, bytes]:
    rows: Any = FileContent.objects.filter(pk__in=set(hashes.values()))
    contents = {row.sha256: bytes(row.content) for row in rows}
    return {path: contents[digest] for path, digest in sorted(hashes.items())}


def _unknown(suite: Suite, number: int) -> str:
    kept = [str(n) for n in suite.versions.order_by("number").values_list("number", flat=True)]
    if not kept:
        return f"{suite.slug} has no version that was kept, so there is nothing to export."
    there_are = f"there is {kept[0]}" if len(kept) == 1 else f"there are {', '.join(kept)}"
    return f"{suite.slug} has no version {number}; {there_are}."


def columns_of(case: CaseSpec) -> dict[str, Any]:
    """Return what a revision stores of a case, and what its hash is made of: all but key and place."""
    return {
        "title": case.title,
        "tags": list(case.tags),
        "input": [dict(turn) for turn in case.input],
        "expected_output": case.expected_output,
        "expected_outcomes": list(case.expected_outcomes),
        "criteria": case.criteria,
        "metadata": dict(case.metadata),
        "evaluators": case.evaluators.as_json() if case.evaluators else None,
        "evaluators_append": case.evaluators_append,
        "recorded_output": None if case.recorded_output is None else dict(case.recorded_output),
    }
