"""Forms of a suite as a whole: create one, edit its settings, resolve a conflict, restore a version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.forms import BoundField
from django.utils.text import slugify

from evaluators.detours import ADD_MODEL
from evaluators.models import LanguageModel
from evaluators.reading.json import is_storable
from evaluators.scoring.policy import MAX_REVIEWERS, REVIEW_RULES
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import duration
from runs.models.suites import (
    CaseGate,
    FinalScore,
    JudgeOutcomes,
    OnUnscored,
    Suite,
    SuiteDraft,
    SuiteVersion,
)
from runs.requests import as_share, percent_field, plain, shown_percent
from runs.specs.profiles import all_profiles, get_profile
from runs.specs.suites import MAX_MINUTES, MINUTE_MS, SuiteFields, suite_fields
from runs.suites.differences import (
    AGGREGATOR,
    ARRANGEMENT,
    CONFIG,
    ChangedBy,
    DifferingValue,
    MergeSide,
)
from runs.suites.drafts import Conflict, change_draft, rebase_draft
from runs.suites.edits import (
    MAX_DESCRIPTION_LENGTH,
    MAX_TITLE_LENGTH,
    Describe,
    SetPolicy,
)
from runs.suites.queries import QueueCounts
from runs.suites.services import create_suite, restore_version

REVIEW_SHARES = ("review_distance", "review_pass_sample", "review_fail_sample")
# Similar rules are shown together.
GROUPS = (
    (
        "Close calls",
        (
            *("review_borderline", "review_near_threshold", "review_required"),
            *("review_one_missed", "review_disagreement"),
        ),
    ),
    ("Disagreement", ("review_split_panel", "review_samples", "review_repetitions")),
    ("Suspicious answers", ("review_verdict_like",)),
)
REVIEW_CHOICES = (*REVIEW_RULES, "review_blind", "review_reviewers")


def _rule(label: str, help_text: str = "") -> forms.BooleanField:
    return forms.BooleanField(required=False, label=label, help_text=help_text)


class ReviewRulesForm(forms.Form):
    """The rules that send results to the review queue, and how they are decided there (SCORING §4.6)."""

    review_borderline = _rule("Borderline verdict", "Scores between the two thresholds")
    review_disagreement = _rule(
        "Gate and score disagree",
        "Under the outcomes gate: passed below its score, or failed at it",
    )
    review_one_missed = _rule("All outcomes met but one", "Under the outcomes gate")
    review_split_panel = _rule("Panel split", "The judges of a deliberation voted differently")
    review_samples = _rule("A judge's samples differ", "On both sides of a threshold")
    review_repetitions = _rule(
        "Repetitions differ", "Repetitions of a case have different verdicts"
    )
    review_near_threshold = _rule(
        "Score near a threshold", "On either side, within the distance below"
    )
    review_required = _rule(
        "Requirement missed narrowly", "A required evaluator scored just below its minimum"
    )
    review_verdict_like = _rule(
        "Answer reads like a verdict",
        "A judge could mistake part of the output for its own verdict",
    )
    review_distance = percent_field(
        "Close means within", "Points of 100 from a threshold or a minimum"
    )
    review_pass_sample = percent_field(
        "Passes", "Percent of the remaining passes, to check the judge"
    )
    review_fail_sample = percent_field("Fails", "Percent of the remaining fails")
    review_reviewers = forms.IntegerField(
        min_value=1,
        max_value=MAX_REVIEWERS,
        label="Reviewers per result",
        help_text="If they differ, one more is asked; then the most frequent verdict counts, or "
        "the middle one",
    )
    review_blind = forms.BooleanField(
        required=False,
        label="Hide verdict and scores from reviewers until they have decided",
        help_text="In the queue and on the result's page. Lists of results, comparisons, files and the API "
        "show them to every member",
    )

    @property
    def rule_groups(self) -> Sequence[tuple[str, Sequence[BoundField]]]:
        """Return the fields of the rules, in named groups."""
        return [(name, [self[rule] for rule in rules]) for name, rules in GROUPS]

    def say_what_entered(self, entered: QueueCounts | None) -> None:
        """Add to each rule's help how many results it sent to review in that run."""
        if entered is None:
            return
        for name in REVIEW_RULES:
            field: Any = self.fields[name]
            field.help_text = f"{field.help_text}. {entered.words(name)}".removesuffix(". ")


EMPTY = "empty"
SCALES = (
    (1, "0 to 1, as 0.74"),
    (5, "0 to 5"),
    (10, "0 to 10"),
    (100, "0 to 100"),
)
# Shares from 0 to 1 that the form shows in percent or points of 100.
IN_PERCENT = (
    *("fallback_threshold", "max_pass_rate_drop", "max_avg_score_drop"),
    *REVIEW_SHARES,
)
UNCONVERTED = (
    *("case_gate", "final_score", "on_unscored", "judge_outcomes", "count_reviews"),
    *REVIEW_CHOICES,
)


def _starts() -> list[tuple[str, str]]:
    presets = [(profile.name, f"{profile.label}: {profile.summary}") for profile in all_profiles()]
    return [*presets, (EMPTY, "Empty: no evaluators yet, the thresholds of Verdicts.")]


class TagsField(forms.CharField):
    """Tags, separated by commas."""

    def __init__(self, **options: Any) -> None:
        """Make the field optional."""
        super().__init__(required=False, help_text="Separated by commas", **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the tags on one line."""
        return ", ".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        """Return the tags, each once; raises ValidationError for one that no database stores."""
        if not is_storable(value):
            raise forms.ValidationError("A tag has a character that cannot be stored: NUL.")
        found = (tag.strip() for tag in str(value or "").split(","))
        return list(dict.fromkeys(tag for tag in found if tag))


class JudgeField(forms.ModelChoiceField):  # type: ignore[type-arg]  # not generic at run time
    """The language model that judges where an evaluator names no other."""

    def __init__(self) -> None:
        """Offer every language model, and none."""
        self.adds = ADD_MODEL
        super().__init__(
            LanguageModel.objects.all(),
            required=False,
            initial=LanguageModel.find_only,
            to_field_name="slug",
            empty_label="None",
            label="Judge",
            help_text="The language model that judges if an evaluator names no other",
        )


class SuiteNameForm(forms.Form):
    """The title and short name of a new suite."""

    title = forms.CharField(max_length=MAX_TITLE_LENGTH)
    slug = forms.SlugField(
        max_length=80,
        required=False,
        label="Short name",
        help_text="For addresses and the command line. If empty, it follows from the title. It cannot "
        "be changed later.",
    )

    def clean(self) -> dict[str, Any]:
        """Make the short name from the title if it is empty, and refuse one that is taken."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if "slug" in found and "title" in found:
            found["slug"] = found["slug"] or slugify(found["title"])[:80].strip("-")
            if not found["slug"]:
                self.add_error(
                    "slug", "Enter one. The title has no letters that an address can contain."
                )
            elif Suite.objects.filter(slug=found["slug"]).exists():
                self.add_error("slug", f"There is already a suite “{found['slug']}”.")
        return found


class NewSuiteForm(SuiteNameForm):
    """A new suite: its name and the profile it starts from."""

    start = forms.ChoiceField(
        label="Start from",
        choices=_starts,
        initial="verdicts",
        widget=forms.RadioSelect,
        help_text="Thresholds and evaluators; you can change every value later",
    )
    judge = JudgeField()
    description = forms.CharField(
        required=False, max_length=MAX_DESCRIPTION_LENGTH, widget=forms.Textarea(attrs={"rows": 3})
    )
    tags = TagsField()

    def create(self, by: User) -> Suite | None:
        """Create the suite; None, with the reason among the errors, if somebody took the name first."""
        found = self.cleaned_data
        try:
            return create_suite(
                slug=found["slug"],
                title=found["title"],
                by=by,
                description=found["description"].strip(),
                tags=found["tags"],
                judge=found["judge"],
                profile=None if found["start"] == EMPTY else get_profile(found["start"]),
            )
        except DomainError as refusal:
            self.add_error("slug", str(refusal))
            return None


class SuiteSettingsForm(ReviewRulesForm):
    """The texts of a suite and the policy settings that belong to no evaluator, in a draft."""

    stamp = forms.CharField(widget=forms.HiddenInput)
    title = forms.CharField(max_length=MAX_TITLE_LENGTH)
    description = forms.CharField(
        required=False, max_length=MAX_DESCRIPTION_LENGTH, widget=forms.Textarea(attrs={"rows": 3})
    )
    tags = TagsField()
    judge = JudgeField()
    case_gate = forms.ChoiceField(
        choices=CaseGate.choices,
        help_text="What decides whether a result passes: its final score, by the thresholds, or "
        "all of its expected outcomes",
    )
    fallback_threshold = percent_field(
        "Pass score for cases without outcomes",
        "Overall score, 0 to 100, if the case gate is expected outcomes",
    )
    final_score = forms.ChoiceField(choices=FinalScore.choices)
    on_unscored = forms.ChoiceField(
        choices=OnUnscored.choices,
        label="If an evaluator can't score",
        help_text="If a gate or a required evaluator can't score, the result is always an error",
    )
    judge_outcomes = forms.ChoiceField(
        choices=JudgeOutcomes.choices,
        label="Judge expected outcomes",
        help_text="If the score decides, expected outcomes are shown but not counted. Judging them costs "
        "one call per result. If outcomes decide, they are always judged",
    )
    max_minutes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_MINUTES,
        label="Longest time of a run",
    )
    scale = forms.TypedChoiceField(
        choices=SCALES, coerce=int, help_text="How pages show scores; they are stored from 0 to 1"
    )
    count_reviews = forms.BooleanField(
        required=False,
        label="Let human reviews override verdicts",
        help_text="Decisions then count in gates, pass rates and comparisons, even over an error, and every "
        "figure says how many it contains. Scores do not change. Otherwise decisions are only shown",
    )
    max_pass_rate_drop = percent_field(
        "Largest drop in pass rate", "Points of 100. A larger drop is a regression"
    )
    max_avg_score_drop = percent_field("Largest drop in mean score", "Points of 100")
    max_latency_increase_pct = percent_field(
        "Largest rise in mean latency", "Percent", maximum=100_000
    )

    def __init__(self, draft: SuiteDraft, *args: Any, **options: Any) -> None:
        """Fill the form with the draft."""
        content = draft.content
        policy = content["policy"]
        initial = suite_fields(content)
        initial |= {name: policy[name] for name in (*UNCONVERTED, "scale")}
        initial |= {name: shown_percent(policy[name]) for name in IN_PERCENT}
        initial["max_latency_increase_pct"] = plain(policy["max_latency_increase_pct"])
        super().__init__(*args, **{"initial": initial | {"stamp": draft.stamp}} | options)
        usual = settings.MAX_RUN_MINUTES
        self.fields["max_minutes"].help_text = (
            "Minutes; then a run ends, keeps its results and can be resumed. Empty for "
            f"{f'{duration(usual * MINUTE_MS)}, as on the whole site' if usual else 'no limit'}."
        )
        self.draft = draft

    def keep(self) -> SuiteDraft | None:
        """Save the form in the draft; None, with the reason among the errors, if that is refused."""
        found = self.cleaned_data
        policy = {name: found[name] for name in (*UNCONVERTED, "scale")}
        policy |= {name: as_share(found[name]) for name in IN_PERCENT}
        policy["max_latency_increase_pct"] = float(found["max_latency_increase_pct"])
        texts = {name: found[name] for name in SuiteFields.model_fields if name in found}
        texts["judge"] = found["judge"].slug if found["judge"] else ""
        try:
            return change_draft(self.draft, found["stamp"], Describe(**texts), SetPolicy(policy))
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None


class RestoreForm(forms.Form):
    """A note for the restored version; `seen` is the suite's version when the page was opened."""

    note = forms.CharField(
        max_length=200,
        required=False,
        help_text="One line, added after “Restored version N”.",
    )
    seen = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, suite: Suite, *args: Any, **options: Any) -> None:
        """Remember the suite's version."""
        super().__init__(*args, **{"initial": {"seen": suite.version}} | options)
        self.suite = suite

    def clean_seen(self) -> int:
        """Refuse a form that was opened before the suite changed."""
        seen: int = self.cleaned_data["seen"]
        if seen != self.suite.version:
            raise forms.ValidationError(
                f"Version {self.suite.version} was saved since this page was opened. Look at what "
                "restoring would change now, and press again."
            )
        return seen

    def restore(self, number: int, by: User) -> SuiteVersion | None:
        """Restore the version; None, with the reason among the errors, if that is refused."""
        if not self.is_valid():
            return None
        try:
            return restore_version(self.suite, number, by=by, note=self.cleaned_data["note"])
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None


WORDS: Mapping[ChangedBy | None, str] = {
    ChangedBy.MINE: "only yours",
    ChangedBy.THEIRS: "only theirs",
    ChangedBy.SAME: "both, the same",
    ChangedBy.BOTH: "both",
    None: "with the arrangement",
}


@dataclass(frozen=True, slots=True)
class ConflictValueRow:
    """One changed value as text; `choice` is the field that decides where both sides changed it."""

    name: str
    base: str
    theirs: str
    mine: str
    who: str
    choice: BoundField | None


class ConflictForm(forms.Form):
    """One choice for every value that both sides changed; a value that one side changed needs none."""

    stamp = forms.CharField(widget=forms.HiddenInput)
    version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, conflict: Conflict, *args: Any, **options: Any) -> None:
        """Make a field for each value to decide."""
        initial = {"stamp": conflict.draft.stamp, "version": conflict.version}
        super().__init__(*args, **{"initial": initial} | options)
        self.conflict = conflict
        self._names = {value.key: f"choice-{place}" for place, value in enumerate(conflict.values)}
        for value in conflict.open:
            self.fields[self._names[value.key]] = forms.ChoiceField(
                label=_label(value),
                choices=(
                    (MergeSide.THEIRS.value, "Take theirs"),
                    (MergeSide.MINE.value, "Keep mine"),
                ),
                widget=forms.RadioSelect,
                error_messages={"required": "Choose which to keep."},
            )

    def rows(self) -> list[ConflictValueRow]:
        """Return every changed value, in the order of the suite."""
        return [
            ConflictValueRow(
                name=_label(value),
                base=format_value(value.base),
                theirs=format_value(value.theirs),
                mine=format_value(value.mine),
                who=WORDS[value.who],
                choice=self[self._names[value.key]] if value.is_open else None,
            )
            for value in self.conflict.values
        ]

    def resolve(self) -> SuiteDraft | None:
        """Bring the draft up to their version; None, with the reason among the errors, if that is refused."""
        found = self.cleaned_data
        choices = {
            key: found[name] for key, name in self._names.items() if found.get(name) is not None
        }
        try:
            return rebase_draft(
                self.conflict.draft, found["stamp"], version=found["version"], choices=choices
            )
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None


def format_value(value: Any) -> str:
    """Return a value for comparison on a page: texts unchanged, lists and facts one per line, the rest as JSON."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value or "(empty)"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value) or "(none)"
    if isinstance(value, dict):
        return "\n".join(f"{_words(name)}: {format_value(part)}" for name, part in value.items())
    return json.dumps(value, ensure_ascii=False)


def _label(value: DifferingValue) -> str:
    if value.evaluator is not None:
        return f"Evaluator {value.evaluator}" if value.evaluator else "The whole suite"
    return "Evaluators and their order" if value.key == ARRANGEMENT else _words(value.name)


def _words(name: str) -> str:
    return name.removeprefix(AGGREGATOR).removeprefix(CONFIG).replace("_", " ")
