"""Suites, their versions and their cases as documents."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from evaluators.scoring.numbers import percent
from evaluators.scoring.policy import PolicySpec
from runs.documents import Document, TextOrNone
from runs.models.suites import CaseGate, FinalScore, JudgeOutcomes, OnUnscored, Suite, SuiteVersion
from runs.specs.suites import SuiteFields, suite_fields


class PolicyDoc(Document):
    """The rules that turn scores into verdicts and decide the gates of runs."""

    pass_band: float
    """A result with at least this score passes, 0 to 1."""
    borderline_band: float
    """A result with at least this score is borderline, 0 to 1."""
    case_gate: CaseGate
    """What decides the verdict of a result."""
    final_score: FinalScore
    """Where the final score comes from."""
    on_unscored: OnUnscored
    """What happens to a result when one of its evaluators could not score."""
    judge_outcomes: JudgeOutcomes
    """Where expected outcomes are judged although the score decides."""
    pass_threshold: float
    """The score a result without expected outcomes must reach, points of 100."""
    metrics_pass_threshold: float
    """The mean score a run must reach, percent."""
    cases_pass_threshold: float
    """The share of a run's results that must pass, percent."""
    max_pass_rate_drop: float
    """How far the pass rate may fall, a share from 0 to 1."""
    max_avg_score_drop: float
    """How far the mean score may fall, points of 100."""
    max_latency_increase_pct: float
    """How far the mean latency may grow, percent."""
    count_reviews: bool
    """Whether reviewers' decisions replace verdicts."""
    scale: int
    """The scale of scores on pages: 1, 5, 10 or 100. In the API scores are 0 to 1."""

    @classmethod
    def make(cls, policy: PolicySpec) -> PolicyDoc:
        """Describe a policy in the units of the settings form."""
        return cls(
            pass_band=policy.pass_threshold,
            borderline_band=policy.borderline_threshold,
            case_gate=CaseGate(policy.case_gate),
            final_score=FinalScore(policy.final_score),
            on_unscored=OnUnscored(policy.on_unscored),
            judge_outcomes=JudgeOutcomes(policy.judge_outcomes),
            pass_threshold=percent(policy.fallback_threshold),
            metrics_pass_threshold=percent(policy.metrics_pass_threshold),
            cases_pass_threshold=percent(policy.cases_pass_threshold),
            max_pass_rate_drop=policy.max_pass_rate_drop,
            max_avg_score_drop=percent(policy.max_avg_score_drop),
            max_latency_increase_pct=policy.max_latency_increase_pct,
            count_reviews=policy.count_reviews,
            scale=policy.scale,
        )


class SuiteDoc(Document, SuiteFields):
    """A suite as lists show it."""

    slug: str
    """Its name in addresses."""
    version: int
    """Its current version."""
    judge: TextOrNone  # type: ignore[assignment]  # "" in a spec
    """The short name of the judge, a language model; null without one."""
    case_count: int
    """How many current cases it has."""
    run_count: int
    """How many runs it has."""
    baseline_run_id: int | None
    """The id of the run that other runs are compared with."""
    baseline_run: str | None
    """The name of that run, as support-agent:12."""
    archived_at: datetime | None
    """When it was archived; null while it is not."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it last changed."""

    @classmethod
    def make(cls, suite: Suite) -> SuiteDoc:
        """Describe a suite of `with_counts`."""
        counts: Any = suite
        baseline = suite.baseline_run
        return cls(
            slug=suite.slug,
            **suite_fields(suite.content),
            version=suite.version,
            case_count=counts.case_count,
            run_count=counts.run_count,
            baseline_run_id=suite.baseline_run_id,
            baseline_run=f"{suite.slug}:{baseline.number}" if baseline else None,
            archived_at=suite.archived_at,
            created_at=suite.created_at,
            updated_at=suite.updated_at,
        )


class SuiteDetailDoc(SuiteDoc):
    """A suite with its policy and evaluators."""

    policy: PolicyDoc
    """The policy of its next run."""
    evaluators: dict[str, Any]
    """The evaluators as a tree: name, kind, weight, required, required_below, negate, pass_mark (where
    set), config, children."""
    files: list[str]
    """The paths of the files it refers to."""

    @classmethod
    def make(cls, suite: Suite) -> SuiteDetailDoc:
        """Describe a suite of `with_counts`; one query."""
        return cls(
            **dict(SuiteDoc.make(suite)),
            policy=PolicyDoc.make(suite.policy),
            evaluators=suite.content["evaluators"],
            files=sorted(suite.files.values_list("path", flat=True)),
        )


class VersionDoc(Document):
    """A version of a suite as lists show it."""

    number: int
    """Its number, from 1."""
    is_current: bool
    """Whether the suite is at this version."""
    note: str
    """The note of its author."""
    author: str | None
    """Who created it; null if unknown."""
    created_at: datetime
    """When it was created."""
    content_hash: str
    """The same for the same content."""

    @classmethod
    def make(cls, version: SuiteVersion) -> VersionDoc:
        """Describe a version that was read with its suite and author."""
        return cls(
            number=version.number,
            is_current=version.number == version.suite.version,
            note=version.note,
            author=version.author.get_username() if version.author else None,
            created_at=version.created_at,
            content_hash=version.content_hash,
        )


class VersionCaseDoc(Document):
    """Which revision of a case a version holds."""

    key: str
    """The key of the case."""
    revision: int
    """Its revision."""


class VersionDetailDoc(VersionDoc, SuiteFields):
    """A suite as it was at a version."""

    judge: TextOrNone  # type: ignore[assignment]  # "" in a spec
    """The short name of its judge; null without one."""
    metadata: dict[str, Any]
    """The other keys of the suite's file."""
    policy: PolicyDoc
    """Its policy."""
    evaluators: dict[str, Any]
    """Its evaluators, as a tree."""
    files: list[str]
    """The paths of its files."""
    cases: list[VersionCaseDoc]
    """Its cases in order."""

    @classmethod
    def make(cls, version: SuiteVersion) -> VersionDetailDoc:
        """Describe a version in full."""
        spec = version.spec
        return cls(
            **dict(VersionDoc.make(version)),
            **{name: getattr(spec, name) for name in SuiteFields.model_fields},
            metadata=spec.metadata,
            policy=PolicyDoc.make(spec.policy),
            evaluators=spec.evaluators.as_json(),
            files=sorted(spec.files),
            cases=spec.cases,
        )


class CaseDoc(Document):
    """A case as lists show it."""

    key: str
    """Its key, unique in the suite."""
    revision: int
    """Its revision, from 1."""
    is_current: bool
    """Whether new runs use this revision."""
    position: int
    """Its place in the suite."""
    title: str
    """Its title."""
    tags: list[str]
    """Its tags."""
    created_at: datetime
    """When this revision was created."""


class CaseDetailDoc(CaseDoc):
    """A revision of a case in full."""

    input: list[dict[str, Any]]
    """The messages to the target, each with role and content."""
    expected_output: str
    """A good answer; empty without one."""
    expected_outcomes: list[Any]
    """What a good answer must achieve, one by one."""
    criteria: str
    """How to judge the answer; empty without any."""
    metadata: dict[str, Any]
    """Its metadata."""
    evaluators: dict[str, Any] | None
    """Its own evaluators, as a tree; null without."""
    evaluators_append: bool
    """Whether its own evaluators join the suite's instead of replacing them."""
    recorded_output: Any
    """The answer a recorded target gives; null without one."""
