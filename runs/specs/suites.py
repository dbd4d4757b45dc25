"""The content of a suite: one shape for files, versions, drafts, snapshots and the API.

A field added to SuiteFields is read, written, stored, versioned, edited, compared and shown by the API
without further code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, SkipValidation, model_validator
from typing_extensions import TypedDict

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Spec
from runs.specs.problems import Problem


class CaseSpec(Spec):
    """One case of a suite.

    `input` are turns with role and content, and with `blocks` if the content includes files of the suite.
    `evaluators` is a root composite that replaces the suite's tree; with `evaluators_append` its children
    join that tree. `recorded_output` has the form of a line of recorded outputs.
    """

    key: str
    input: tuple[dict[str, Any], ...]
    title: str = ""
    tags: tuple[str, ...] = ()
    expected_output: str = ""
    expected_outcomes: tuple[str, ...] = ()
    criteria: str = ""
    metadata: dict[str, Any] = {}
    evaluators: EvaluatorSpec | None = None
    evaluators_append: bool = False
    recorded_output: dict[str, Any] | None = None

    def columns(self) -> dict[str, Any]:
        """Return what a revision stores and hashes: everything except the key."""
        return self.model_dump(mode="json", exclude={"key"})


MAX_CASE_TAG_LENGTH, MAX_SUITE_TAG_LENGTH = 200, 60
MAX_CASE_TAGS = 100
# Messages, and expected outcomes, of a case: its form has a row for each.
MAX_CASE_ROWS = 3_000
CASE_LISTS = {
    "tags": ("tags", MAX_CASE_TAGS),
    "input": ("messages", MAX_CASE_ROWS),
    "expected_outcomes": ("expected outcomes", MAX_CASE_ROWS),
}


def too_many(name: str, entries: Sequence[Any]) -> str:
    """Return how many entries a list of a case has and how many it may have, "" if it may have them."""
    noun, most = CASE_LISTS[name]
    return f"has {len(entries):,} {noun}; {most:,} is the limit" if len(entries) > most else ""


# A year.
MAX_MINUTES = 525_600
MINUTE_MS = 60_000


class SuiteFields(Spec):
    """The fields of a suite besides policy and evaluators; files, drafts, versions and the API follow them."""

    title: str = ""
    """Its title."""
    description: str = ""
    """What it is for."""
    tags: tuple[str, ...] = ()
    """Its tags."""
    judge: str = ""
    """The short name of the language model that judges."""
    max_minutes: int | None = Field(None, ge=1, le=MAX_MINUTES)
    """How long a run of it may take before it is ended, minutes; null for the longest time of the site."""


def suite_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return these fields of a stored suite; one that is younger than what is stored has its default."""
    fields = SuiteFields.model_fields.items()
    return {name: content.get(name, field.default) for name, field in fields}


# The fields with one text, and those with several.
TEXTS = tuple(name for name, field in SuiteFields.model_fields.items() if field.annotation is str)
LISTS = ("tags",)


class SuiteSpec(SuiteFields):
    """The content of a suite without its cases."""

    policy: PolicySpec = PolicySpec()
    evaluators: EvaluatorSpec

    @model_validator(mode="before")
    @classmethod
    def _take_defaults(cls, values: Any) -> Any:
        """Replace None by the default: earlier versions lack fields that were added later."""
        if isinstance(values, Mapping):
            return {name: value for name, value in values.items() if value is not None}
        return values

    def plain(self) -> SuiteSpec:
        """Return only these fields, without those that versions, drafts and files add."""
        return SuiteSpec.model_validate(self.model_dump(include=set(SuiteSpec.model_fields)))


class CaseRevision(TypedDict):
    """A case as a version refers to it; `hash` is the hash of its columns."""

    key: str
    revision: int
    hash: str


class VersionSpec(SuiteSpec):
    """What a version stores: cases by revision, files by hash, and the `metadata` of the suite's file."""

    metadata: dict[str, Any] = {}
    files: dict[str, str] = {}
    # Written by Evalsite itself, and thousands of them, so they are not validated at each reading.
    cases: SkipValidation[list[CaseRevision]] = []


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where a file names a language model, and whether that is the suite's judge."""

    file: str
    line: int
    is_suite_judge: bool = False


class SuiteWithCases(SuiteSpec):
    """A whole suite, as in a file.

    `files` are those that evaluators refer to, by path. `metadata` are the file's unused keys. The last
    three fields describe how the file was read: `warnings` name unused keys, `read_with` are other files
    whose cases were included, and `model_places` are the places that name a language model, by case ("" for
    the suite) and slug.
    """

    slug: str
    cases: tuple[CaseSpec, ...] = ()
    files: dict[str, bytes] = {}
    metadata: dict[str, Any] = {}
    warnings: tuple[Problem, ...] = Field(default=(), exclude=True)
    read_with: tuple[str, ...] = Field(default=(), exclude=True)
    model_places: dict[tuple[str, str], tuple[ModelPlace, ...]] = Field(
        default={}, exclude=True, repr=False
    )

    def __eq__(self, other: object) -> bool:
        """Compare the content of the suites, not how they were read."""
        return isinstance(other, SuiteWithCases) and all(
            getattr(self, name) == getattr(other, name)
            for name, field in SuiteWithCases.model_fields.items()
            if not field.exclude
        )

    __hash__ = None  # type: ignore[assignment]  # like every class with mappings
