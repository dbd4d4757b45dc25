"""The part of a suite's settings that says what people review, and how many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.forms import BoundField

from evaluators.scoring.policy import MOST_REVIEWERS, REVIEW_RULES
from runs.forms.percents import percent_field
from runs.reports.review_entered import Entered

REVIEW_SHARES = ("review_distance", "review_pass_sample", "review_fail_sample")
# Rules that are alike stand together.
GROUPS = (
    (
        "Close calls",
        (
            *("review_borderline", "review_near_threshold", "review_required"),
            *("review_one_missed", "review_disagreement"),
        ),
    ),
    ("Judges that differ", ("review_split_panel", "review_samples", "review_repetitions")),
    ("Answers to mistrust", ("review_verdict_like",)),
)
REVIEW_CHOICES = (*REVIEW_RULES, "review_blind", "review_reviewers")


def _rule(label: str, help_text: str = "") -> forms.BooleanField:
    return forms.BooleanField(required=False, label=label, help_text=help_text)


class ReviewRulesForm(forms.Form):
    """By which rules executions enter the review queue, and how they are decided there (SCORING §4.6)."""

    review_borderline = _rule("Borderline verdict", "Between the two bands of the score")
    review_disagreement = _rule(
        "Gate and score disagree",
        "Under the outcomes gate: passed below its score, or failed at it",
    )
    review_one_missed = _rule("All outcomes met but one", "Under the outcomes gate")
    review_split_panel = _rule("Panel split", "The judges of a deliberation voted differently")
    review_samples = _rule("A judge's samples differ", "On both sides of a threshold")
    review_repetitions = _rule("Repetitions differ", "Repetitions of a case with other verdicts")
    review_near_threshold = _rule("Score near a threshold", "On either side, as near as said here")
    review_required = _rule(
        "Requirement missed narrowly", "A required evaluator stayed just below its minimum"
    )
    review_verdict_like = _rule(
        "Answer reads like a verdict",
        "The output says something that a judge could take for its own",
    )
    review_distance = percent_field(
        "Near means within", "Points of 100 from a threshold or a minimum"
    )
    review_pass_sample = percent_field(
        "Passes drawn at random", "Percent of those that no rule brings in; they measure the judge"
    )
    review_fail_sample = percent_field(
        "Fails drawn at random", "Percent of those that no rule brings in"
    )
    review_reviewers = forms.IntegerField(
        min_value=1,
        max_value=MOST_REVIEWERS,
        label="Reviewers of each",
        help_text="When they differ, one more is asked; then the most frequent verdict counts, or "
        "the middle one",
    )
    review_blind = forms.BooleanField(
        required=False,
        label="Hide verdict and scores from reviewers until they have decided",
        help_text="In the queue and on the result's page. Lists of results, comparisons, files and the API "
        "show them to everybody",
    )

    @property
    def rule_groups(self) -> Sequence[tuple[str, Sequence[BoundField]]]:
        """Return the rules that are on or off, in groups of a name each."""
        return [(name, [self[rule] for rule in rules]) for name, rules in GROUPS]

    def say_what_entered(self, entered: Entered | None) -> None:
        """Add to each rule what it brought in by the run that is told of."""
        if entered is None:
            return
        for name in REVIEW_RULES:
            field: Any = self.fields[name]
            field.help_text = f"{field.help_text}. {entered.words(name)}"
