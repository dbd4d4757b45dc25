"""Forms of a suite as a whole: begin one, and edit in a draft what is said of it and its policy."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.utils.text import slugify

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.drafting import Describe, SetJudge, SetPolicy
from runs.drafting.content import policy_of
from runs.drafting.describing import LONGEST_DESCRIPTION, LONGEST_TITLE
from runs.forms.percents import as_share, percent_field, plain, shown_percent
from runs.forms.review_rules import REVIEW_CHOICES, REVIEW_SHARES, ReviewRulesForm
from runs.models import CaseGate, FinalScore, OnUnscored, Suite, SuiteDraft
from runs.profiles import all_profiles, profile_named
from runs.services.drafts import change_draft
from runs.services.suites import create_suite

EMPTY = "empty"
SCALES = (
    (1, "0 to 1, as 0.74"),
    (5, "0 to 5"),
    (10, "0 to 10"),
    (100, "0 to 100"),
)
# Shares from 0 to 1 that the form takes in percent or points of 100.
IN_PERCENT = (
    *("fallback_threshold", "max_pass_rate_drop", "max_avg_score_drop"),
    *REVIEW_SHARES,
)
AS_THEY_ARE = (
    *("case_gate", "final_score", "on_unscored", "count_reviews"),
    *REVIEW_CHOICES,
)


def _starts() -> list[tuple[str, str]]:
    presets = [(one.name, f"{one.label}: {one.says}") for one in all_profiles()]
    return [*presets, (EMPTY, "Empty: no evaluators yet, the thresholds of Verdicts.")]


class TagsField(forms.CharField):
    """Tags with commas between them."""

    def __init__(self, **options: Any) -> None:
        """Say how tags are written."""
        super().__init__(required=False, help_text="With commas between them", **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the tags on one line."""
        return ", ".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        """Return the tags, each once."""
        found = (tag.strip() for tag in str(value or "").split(","))
        return list(dict.fromkeys(tag for tag in found if tag))


class JudgeField(forms.ModelChoiceField[LanguageModel]):
    """The language model that judges where an evaluator names no other."""

    def __init__(self) -> None:
        """Offer every language model, and none."""
        super().__init__(
            LanguageModel.objects.all(),
            required=False,
            to_field_name="slug",
            empty_label="None",
            label="Judge",
            help_text="The language model that judges where an evaluator names no other",
        )


class NewSuiteForm(forms.Form):
    """A suite to begin with: what it is called and which system it starts from."""

    title = forms.CharField(max_length=LONGEST_TITLE)
    slug = forms.SlugField(
        max_length=80,
        required=False,
        label="Short name",
        help_text="For addresses and the command line; made of the title when left empty. It stays "
        "as it is later.",
    )
    start = forms.ChoiceField(
        label="Start from",
        choices=_starts,
        initial="verdicts",
        widget=forms.RadioSelect,
        help_text="Thresholds and evaluators; every value can be changed afterwards",
    )
    judge = JudgeField()
    description = forms.CharField(
        required=False, max_length=LONGEST_DESCRIPTION, widget=forms.Textarea(attrs={"rows": 3})
    )
    tags = TagsField()

    def clean(self) -> dict[str, Any]:
        """Make the short name of the title where none was given, and refuse one that is taken."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if "slug" in found and "title" in found:
            found["slug"] = found["slug"] or slugify(found["title"])[:80].strip("-")
            if not found["slug"]:
                self.add_error("slug", "Write one: the title has no letters that an address holds.")
            elif Suite.objects.filter(slug=found["slug"]).exists():
                self.add_error("slug", f"There is a suite “{found['slug']}” already.")
        return found

    def create(self, by: User) -> Suite | None:
        """Create the suite; None, with the reason among the errors, when somebody was quicker."""
        found = self.cleaned_data
        try:
            return create_suite(
                slug=found["slug"],
                title=found["title"],
                by=by,
                description=found["description"].strip(),
                tags=found["tags"],
                judge=found["judge"],
                profile=None if found["start"] == EMPTY else profile_named(found["start"]),
            )
        except DomainError as refusal:
            self.add_error("slug", str(refusal))
            return None


class SuiteSettingsForm(ReviewRulesForm):
    """What is said of a suite, and those parts of its policy that stand by themselves, in a draft."""

    stamp = forms.CharField(widget=forms.HiddenInput)
    title = forms.CharField(max_length=LONGEST_TITLE)
    description = forms.CharField(
        required=False, max_length=LONGEST_DESCRIPTION, widget=forms.Textarea(attrs={"rows": 3})
    )
    tags = TagsField()
    judge = JudgeField()
    case_gate = forms.ChoiceField(
        choices=CaseGate.choices,
        help_text="What decides whether an execution passes: its final score by the bands, or its "
        "expected outcomes, all of them",
    )
    fallback_threshold = percent_field(
        "Without outcomes, pass from",
        "Overall score, 0 to 100: for cases without expected outcomes under that gate",
    )
    final_score = forms.ChoiceField(choices=FinalScore.choices)
    on_unscored = forms.ChoiceField(
        choices=OnUnscored.choices,
        label="Unscored evaluator",
        help_text="What becomes of a result when an evaluator could not score; gates and required ones "
        "make it errored in any case",
    )
    scale = forms.TypedChoiceField(
        choices=SCALES, coerce=int, help_text="How pages show scores; they are stored from 0 to 1"
    )
    count_reviews = forms.BooleanField(
        required=False,
        label="Reviewed verdicts count in gates, pass rates and comparisons",
        help_text="A decision of people then takes the place of the machine's verdict, also of an error, and every "
        "figure says with how many reviews. Scores stay as they are. Otherwise decisions are shown and not counted",
    )
    max_pass_rate_drop = percent_field(
        "Pass rate may drop by", "Points of 100, before a comparison calls it a regression"
    )
    max_avg_score_drop = percent_field("Mean score may drop by", "Points of 100")
    max_latency_increase_pct = percent_field("Mean latency may grow by", "Percent", most=100_000)

    def __init__(self, draft: SuiteDraft, *args: Any, **options: Any) -> None:
        """Fill the form with the draft."""
        content = draft.content
        policy = policy_of(content).as_json()
        initial = {name: content[name] for name in ("title", "description", "tags", "judge")}
        initial |= {name: policy[name] for name in (*AS_THEY_ARE, "scale")}
        initial |= {name: shown_percent(policy[name]) for name in IN_PERCENT}
        initial["max_latency_increase_pct"] = plain(policy["max_latency_increase_pct"])
        super().__init__(*args, **{"initial": initial | {"stamp": draft.stamp}} | options)
        self.draft = draft

    def keep(self) -> SuiteDraft | None:
        """Keep what was entered in the draft; None, with the reason among the errors, when refused."""
        found = self.cleaned_data
        policy = {name: found[name] for name in (*AS_THEY_ARE, "scale")}
        policy |= {name: as_share(found[name]) for name in IN_PERCENT}
        policy["max_latency_increase_pct"] = float(found["max_latency_increase_pct"])
        said = Describe(found["title"], found["description"], found["tags"])
        judge = SetJudge(found["judge"].slug if found["judge"] else "")
        try:
            return change_draft(self.draft, found["stamp"], said, judge, SetPolicy(policy))
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None
