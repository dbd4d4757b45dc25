"""What a suite says, whatever its form: plain values, nothing stored yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.specs.problems import Problem


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """One case of a suite file.

    `input` holds turns of role and content, with `blocks` where a content names files of the suite. `evaluators` is a root composite that replaces the
    suite's tree, or whose children join it when `evaluators_append` is on. `recorded_output` has
    the form of a recorded line.
    """

    key: str
    input: tuple[Mapping[str, Any], ...]
    title: str = ""
    tags: tuple[str, ...] = ()
    expected_output: str = ""
    expected_outcomes: tuple[str, ...] = ()
    criteria: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    evaluators: EvaluatorSpec | None = None
    evaluators_append: bool = False
    recorded_output: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where a file names a language model, and whether that is the judge of the suite."""

    file: str
    line: int
    is_suite_judge: bool = False


@dataclass(frozen=True, slots=True)
class SuiteSpec:
    """A whole suite.

    `judge` is the slug of a language model or "". `files` are those that evaluators refer to, by
    path. `metadata` keeps what the file says and the product does not use; `warnings` names it.
    `read_with` are the other files whose cases it took in. `model_places` tells by case, "" for the
    suite, and slug where language models are named.
    """

    slug: str
    title: str
    root: EvaluatorSpec
    cases: tuple[CaseSpec, ...]
    description: str = ""
    tags: tuple[str, ...] = ()
    judge: str = ""
    policy: PolicySpec = field(default_factory=PolicySpec)
    files: Mapping[str, bytes] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    read_with: tuple[str, ...] = field(default=(), compare=False)
    model_places: Mapping[tuple[str, str], tuple[ModelPlace, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """One recorded output: the case it belongs to and what was answered, in the form of the file."""

    key: str
    output: Mapping[str, Any]
    line: int = 0
