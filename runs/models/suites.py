"""What is evaluated: suites with their versions, files, cases and drafts, and the targets."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Max
from django.db.models.functions import Cast
from django.utils.functional import cached_property

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts, Message
from evaluators.kinds._judging import named_models
from evaluators.kinds._prompts import reference_path
from evaluators.models import LanguageModel
from evaluators.scoring.policy import PolicySpec
from runs.engine.plan import content_hash
from runs.specs.suites import CaseSpec, SuiteSpec, VersionSpec

FILES_A_STATEMENT = 100


class CaseGate(models.TextChoices):
    """What decides the verdict of one result (SCORING §4.3)."""

    SCORE = "score", "Score"
    EXPECTED_OUTCOMES = "expected_outcomes", "Expected outcomes"


class FinalScore(models.TextChoices):
    """Where the final score comes from (SCORING §4.4)."""

    AGGREGATE = "aggregate", "Aggregate of the evaluators"
    JUDGE_OVERALL = "judge_overall", "The hybrid judge's overall score"


class OnUnscored(models.TextChoices):
    """How a result is decided when one of its evaluators could not score (SCORING §4.1)."""

    ERROR = "error", "Mark the result as an error"
    EXCLUDE = "exclude", "Leave the evaluator out and reweight the rest"
    ZERO = "zero", "Count it as 0"


class JudgeOutcomes(models.TextChoices):
    """Whether expected outcomes are judged although the score decides (SCORING §5)."""

    AUTO = "auto", "If an evaluator asks a judge"
    ALWAYS = "always", "Always"
    NEVER = "never", "Only if they decide"


# The choices of a policy with the words of pages for them.
POLICY_CHOICES: Mapping[str, type[models.TextChoices]] = {
    "case_gate": CaseGate,
    "final_score": FinalScore,
    "on_unscored": OnUnscored,
    "judge_outcomes": JudgeOutcomes,
}


class SuiteManager(models.Manager["Suite"]):
    """The suites of the site, without those that are being deleted."""

    def get_queryset(self) -> models.QuerySet[Suite]:
        """Leave out suites that are being deleted."""
        return super().get_queryset().filter(is_deleted=False)


class Suite(models.Model):
    """Named cases with an evaluator tree and a policy.

    `content` is a SuiteSpec. The columns of COLUMNS and the judge repeat the values that lists filter and
    sort by. Only `write` sets them. A suite with `is_deleted` is gone for everybody but the worker that
    deletes its rows; its slug is free. `last_deleted_run` is the highest number of a deleted run.
    """

    COLUMNS = ("title", "description", "tags")

    slug = models.SlugField(max_length=80, unique=True)
    title = models.CharField(max_length=200)
    description = models.TextField(blank=True, default="")
    tags = models.JSONField(default=list, blank=True)
    judge = models.ForeignKey(
        LanguageModel, on_delete=models.PROTECT, null=True, blank=True, related_name="suites"
    )
    content = models.JSONField()
    version = models.PositiveIntegerField(default=1)
    baseline_run = models.ForeignKey(
        "runs.Run", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    archived_at = models.DateTimeField(null=True, blank=True)
    is_deleted = models.BooleanField(default=False)
    last_deleted_run = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = SuiteManager()
    including_deleted = models.Manager["Suite"]()

    class Meta:
        """List suites by title."""

        ordering = ("title", "id")

    def __str__(self) -> str:
        """Return the title."""
        return self.title

    @property
    def baseline_number(self) -> int | None:
        """Return the number of the baseline run without reading the run, None without one."""
        if self.baseline_run_id is None:
            return None
        return Suite.objects.values_list("baseline_run__number", flat=True).get(pk=self.pk)

    @cached_property
    def number_of_cases(self) -> int:
        """Return the number of current cases; one query."""
        return self.cases.filter(is_current=True).count()

    @cached_property
    def number_of_runs(self) -> int:
        """Return the number of runs; one query."""
        return self.runs.count()

    @property
    def max_minutes(self) -> int | None:
        """Return how many minutes a run may take if it has no limit of its own, None for any number."""
        return self.content.get("max_minutes") or settings.MAX_RUN_MINUTES or None

    def next_run_number(self) -> int:
        """Return the number of the next run: numbers of deleted runs are not given again.

        The caller holds the suite.
        """
        suites = Suite.including_deleted.filter(pk=self.pk)
        numbers = suites.aggregate(last=Max("runs__number"), deleted=Max("last_deleted_run"))
        return max(numbers["last"] or 0, numbers["deleted"] or 0) + 1

    @property
    def spec(self) -> SuiteSpec:
        """Return the content as a spec."""
        return SuiteSpec.model_validate(self.content)

    @property
    def policy(self) -> PolicySpec:
        """Return only the policy, which is faster than reading the whole spec."""
        return PolicySpec.model_validate(self.content["policy"])

    @property
    def scale(self) -> int:
        """Return the scale that pages show scores on."""
        return int(self.content["policy"]["scale"])

    @property
    def version_stamp(self) -> str:
        """Return what differs whenever the suite was saved; one query."""
        current = self.versions.filter(number=self.version).order_by()
        return current.values_list("content_hash", flat=True).first() or ""

    def tag_counts(self) -> Sequence[tuple[str, int]]:
        """Return the tags of the current cases by name, with the number of cases for each."""
        tags = self.cases.filter(is_current=True).order_by()
        listed = tags.annotate(listed=Cast("tags", models.TextField())).values("listed")
        counts: Counter[str] = Counter()
        for names, count in listed.annotate(n=models.Count("pk")).values_list("listed", "n"):
            counts.update(dict.fromkeys(json.loads(names), count))
        return sorted(counts.items())

    def write(self, spec: SuiteSpec) -> None:
        """Store the spec of a new or existing suite, and the language models that its evaluators name."""
        self.content = spec.plain().as_json()
        for name in self.COLUMNS:
            setattr(self, name, self.content[name])
        self.judge = LanguageModel.objects.filter(slug=spec.judge).first() if spec.judge else None
        self.save()
        named = {(use.path, use.name) for use in named_models(spec.evaluators, all_kinds())}
        known = LanguageModel.objects.in_bulk({slug for _, slug in named}, field_name="slug")
        self.model_uses.all().delete()
        ModelUse.objects.bulk_create(
            ModelUse(suite=self, model=known[slug], evaluator=path or spec.evaluators.name)
            for path, slug in sorted(named)
            if slug in known
        )


class ModelUse(models.Model):
    """An evaluator of a suite that names a language model, which therefore cannot be deleted."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="model_uses")
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="uses")
    evaluator = models.CharField(max_length=500)

    class Meta:
        """Named as `LanguageModel.users` shows it."""

        verbose_name = "evaluator"
        ordering = ("suite", "evaluator")

    def __str__(self) -> str:
        """Return the path of the evaluator."""
        return self.evaluator


class FileContentQuerySet(models.QuerySet["FileContent"]):
    """Contents of files."""

    def store(self, contents: Iterable[bytes]) -> list[str]:
        """Store contents that are not stored yet and return the hash of each, in order.

        They cannot be deleted until the transaction ends, by when something has to refer to them.
        """
        hashed = [(hashlib.sha256(content).hexdigest(), content) for content in contents]
        # An update locks a row that is there, and inserts one that is just being deleted. All writers
        # have the same order; otherwise two with the same rows could deadlock.
        rows = (
            FileContent(sha256=sha, size=len(content), content=content)
            for sha, content in sorted(dict(hashed).items())
        )
        self.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["sha256"],
            update_fields=["size"],
            batch_size=FILES_A_STATEMENT,
        )
        return [sha for sha, _ in hashed]


class FileContent(models.Model):
    """The bytes of a file, stored once for every place that refers to them."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    size = models.PositiveBigIntegerField()
    content = models.BinaryField()

    objects = FileContentQuerySet.as_manager()

    def __str__(self) -> str:
        """Return the beginning of the hash."""
        return self.sha256[:12]


class SuiteFile(models.Model):
    """A file the suite refers to: a prompt, a script, a content block."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(max_length=300)
    content = models.ForeignKey(FileContent, on_delete=models.PROTECT, related_name="+")

    class Meta:
        """One file a path."""

        constraints = (
            models.UniqueConstraint(fields=("suite", "path"), name="suite_file_one_a_path"),
        )

    def __str__(self) -> str:
        """Return the path."""
        return self.path


class SuiteVersion(models.Model):
    """One version of a suite: policy, tree, files by hash and cases by revision.

    A version that `gathers` has only edits of cases; further edits by its author may join it.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    note = models.CharField(max_length=300, blank=True, default="")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    content_hash = models.CharField(max_length=64)
    content = models.JSONField()
    gathers = models.BooleanField(default=False)

    class Meta:
        """Newest first."""

        ordering = ("-number",)
        constraints = (
            models.UniqueConstraint(fields=("suite", "number"), name="suite_version_unique"),
        )

    def __str__(self) -> str:
        """Return the version as pages show it."""
        return f"v{self.number}"

    @property
    def spec(self) -> VersionSpec:
        """Return the content as a spec."""
        return VersionSpec.model_validate(self.content)


HEAVY_CASE_COLUMNS = (
    *("input", "expected_output", "expected_outcomes", "criteria", "metadata", "recorded_output"),
)


class Case(models.Model):
    """One revision of one case; results point at the revision they ran.

    `evaluators` is a tree in the snapshot's form that replaces the suite's, or joins its root's
    children when `evaluators_append` is on. `recorded_output` is what the `recorded` target gives.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="cases")
    key = models.CharField(max_length=200)
    revision = models.PositiveIntegerField(default=1)
    is_current = models.BooleanField(default=True)
    position = models.PositiveIntegerField(default=0)
    title = models.CharField(max_length=300, blank=True, default="")
    tags = models.JSONField(default=list, blank=True)
    content_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    evaluators_append = models.BooleanField(default=False)
    input = models.JSONField(default=list)
    expected_output = models.TextField(blank=True, default="")
    expected_outcomes = models.JSONField(default=list, blank=True)
    criteria = models.TextField(blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
    evaluators = models.JSONField(null=True, blank=True)
    recorded_output = models.JSONField(null=True, blank=True)

    class Meta:
        """In the order of the suite."""

        ordering = ("position", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("suite", "key", "revision"), name="case_revision_unique"
            ),
            models.UniqueConstraint(
                fields=("suite", "key"),
                condition=models.Q(is_current=True),
                name="case_one_current_revision",
            ),
        )
        indexes = (
            models.Index(fields=("suite", "is_current", "position"), name="case_current_in_order"),
        )

    def __str__(self) -> str:
        """Return the key."""
        return self.key

    @property
    def spec(self) -> CaseSpec:
        """Return the revision as a spec."""
        return CaseSpec.model_validate(
            {name: getattr(self, name) for name in CaseSpec.model_fields}
        )

    @property
    def facts(self) -> CaseFacts:
        """Return the facts that evaluators and targets may know."""
        return CaseFacts(
            key=self.key,
            input=tuple(
                Message(turn["role"], turn["content"], tuple(_files_in(turn)))
                for turn in self.input
            ),
            expected_output=self.expected_output,
            expected_outcomes=tuple(self.expected_outcomes),
            criteria=self.criteria,
            metadata=self.metadata,
        )


def _files_in(turn: Mapping[str, Any]) -> Iterator[str]:
    blocks = turn.get("blocks", ())
    yield from (reference_path(block["value"]) for block in blocks if block["type"] == "file")


STAMP_DIGITS = 12


class SuiteDraft(models.Model):
    """A member's unsaved edits of a suite; `runs.suites.edits` defines `content`.

    `base_version` is the version that it is based on. `revision` counts the changes, so that forms of
    an earlier state are recognised.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="drafts")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="suite_drafts"
    )
    base_version = models.PositiveIntegerField()
    content = models.JSONField()
    revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """One draft of a suite for each person, latest first."""

        ordering = ("-updated_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("suite", "author"), name="suite_draft_one_a_person"),
        )

    def __str__(self) -> str:
        """Return the suite's title and whose draft it is."""
        return f"{self.suite} by {self.author}"

    @property
    def policy(self) -> PolicySpec:
        """Return the policy that it would give the suite."""
        return PolicySpec.model_validate(self.content["policy"])

    @property
    def stamp(self) -> str:
        """Return the stamp that forms of this state carry; it changes with every change.

        The stamp of a draft that is not stored yet is made from its content, the only thing it has.
        """
        if self._state.adding:
            return f"new-{content_hash(self.content)[:STAMP_DIGITS]}"
        return f"{self.pk}-{self.revision}"


class Target(models.Model):
    """The system under test. The target's kind validates `config`.

    `encrypted_secrets` are the values of its secret headers by name. Only execution decrypts them.
    """

    name = models.CharField(max_length=120, unique=True)
    description = models.TextField(blank=True, default="")
    kind = models.CharField(max_length=50)
    config = models.JSONField(default=dict, blank=True)
    encrypted_secrets = models.JSONField(default=dict, blank=True)
    model = models.ForeignKey(
        LanguageModel, on_delete=models.PROTECT, null=True, blank=True, related_name="targets"
    )
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """List targets by name."""

        ordering = ("name", "id")

    def __str__(self) -> str:
        """Return the name."""
        return self.name


class RecordedOutput(models.Model):
    """One uploaded output of a `recorded` target, for the case of that key."""

    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="recorded_outputs")
    case_key = models.CharField(max_length=200)
    output = models.JSONField()

    class Meta:
        """One output a case."""

        constraints = (
            models.UniqueConstraint(fields=("target", "case_key"), name="recorded_one_a_case"),
        )

    def __str__(self) -> str:
        """Return the case's key."""
        return self.case_key
