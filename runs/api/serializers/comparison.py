"""Two runs compared."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described
from runs.api.serializers.runs import GatesSerializer
from runs.models import RunStatus

CHANGES = ["regressed", "improved", "no clear change", "too few cases"]
CASES = ["regression", "improvement", "unchanged", "error", "added", "removed"]
CONCLUSIONS = ["regression", "no regression", "inconclusive"]


class SideSerializer(Described):
    """One of the two runs by its own figures."""

    suite = parts.words("The slug of its suite.")
    suite_title = parts.words("The title of its suite.")
    run = parts.count("Its number in the suite.")
    target = parts.words("What was asked.")
    judge = parts.words("What judged; empty without a judge.")
    suite_version = parts.count("The version of the suite it carried out.")
    repetitions = parts.count("How often each case was carried out.")
    status = serializers.ChoiceField(choices=RunStatus.values, help_text="How far the work is.")
    cases = parts.count("How many cases the figures are of.")
    executions = parts.count("How many executions they are of.")
    passed = parts.count("How many passed.")
    scored = parts.count("How many have a score.")
    timed = parts.count("How many have a latency.")
    errors = parts.count("How many errored.")  # type: ignore[assignment]  # fields are taken out of the class
    reviews = parts.count("How many decisions of reviewers count.")
    pass_rate = parts.share("Passed of executions, errors being not passed")
    mean_score = parts.share("The mean score")
    mean_latency_ms = parts.number("The mean latency, milliseconds.")
    p95_latency_ms = parts.number("95 of 100 are as fast or faster, milliseconds.")
    run_cost_usd = parts.dollars("What the target cost")
    evaluation_cost_usd = parts.dollars("What the judges cost")
    total_cost_usd = parts.dollars("What is known of both")
    gates = GatesSerializer(help_text="Its two gates, over all its cases.")


class ConclusionSerializer(Described):
    """What came out, in words."""

    state = serializers.ChoiceField(choices=CONCLUSIONS, help_text="What came out.")
    sentence = parts.words("It in full.")
    limits = parts.words("Which tolerances are exceeded.")
    evidence = parts.words("What the shared cases show.")
    kind = parts.words("What kind of obstacle kept it from a conclusion; empty without one.")
    obstacle = parts.words("That obstacle in words; empty without one.")
    gates = parts.words(
        "Which gates the candidate failed, or was not judged by; empty where it passed both."
    )


class DifferenceSerializer(Described):
    """Something that differs beside the targets."""

    what = parts.words("What it is.")
    text = parts.words("How it differs.")
    spoils = parts.flag("Whether verdicts can differ for it.")


class ToleranceSerializer(Described):
    """How much worse the candidate may be in one figure; reaching it is allowed."""

    value = serializers.FloatField(help_text="The number, in this unit.")
    unit = parts.words("The unit.")


class TolerancesSerializer(Described):
    """The tolerances that were applied, each with its unit."""

    max_pass_rate_drop = ToleranceSerializer(help_text="A share from 0 to 1.")
    max_avg_score_drop = ToleranceSerializer(help_text="Points of 100.")
    max_latency_increase_pct = ToleranceSerializer(help_text="Percent.")


class ReasonSerializer(Described):
    """A tolerance that was exceeded; shares from 0 to 1, milliseconds and percent for latency."""

    measure = parts.words("The figure.")
    baseline = serializers.FloatField(help_text="What it was.")
    candidate = serializers.FloatField(help_text="What it is.")
    change = serializers.FloatField(help_text="How it changed; percent for latency.")
    limit = serializers.FloatField(help_text="What was allowed; percent for latency.")
    text = parts.words("All of it in words.")


class PairedSerializer(Described):
    """What the shared cases say of a figure, candidate minus baseline."""

    cases = parts.count("How many cases it is of.")
    mean = parts.number("The mean difference; null without a case.")
    low = parts.number("The lower end of its 95% interval.")
    high = parts.number("The upper end of its 95% interval.")
    p = parts.number(
        "How likely chance alone does it, raised by Holm's rule, for pass rate and mean score as one"
        " family and for what was measured as another; null below ten cases."
    )
    smallest = parts.number("The least change that so many cases show with 80% power.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields with the one whose name is a word of the language."""
        told = serializers.ChoiceField(choices=CHANGES, help_text="What that comes to.")
        return {**super().get_fields(), "class": told}


class EvidenceSerializer(Described):
    """What the shared cases prove, and how it was tested."""

    pass_rate = PairedSerializer(help_text="Of the share of passes, 0 to 1.")
    mean_score = PairedSerializer(help_text="Of the score, 0 to 1.")
    pass_rate_test = parts.words("How the pass rate was tested.")
    other_test = parts.words("How the rest was tested.")
    interval = parts.words("What kind the intervals are.")
    level = serializers.FloatField(help_text="Below which p a change counts as proven.")
    resamples = parts.count("How often the cases were drawn again.")
    seed = parts.count("What makes the drawing repeatable.")
    correction = parts.words("Whose rule allows for testing several figures.")
    metrics_tested = parts.count(
        "For how many metrics, dimensions and evaluators Holm's rule raised theirs."
    )


class OwnMeanSerializer(Described):
    """A run's own mean."""

    mean = parts.number("The mean; null without any.")
    executions = parts.count("How many executions it is of.")


class MeasuredSerializer(PairedSerializer):
    """What the shared cases say of something that an evaluator measured, on its own scale."""

    kind = parts.words("Whether it is an evaluator's score, a metric or a dimension.")
    evaluator = parts.words("The evaluator's place in the tree.")
    key = parts.words("The metric or dimension; empty for a score.")
    name = parts.words("Its name.")
    scale = parts.count("What it is at most.")
    baseline_mean = parts.number("The mean of the baseline's shared cases.")
    candidate_mean = parts.number("The mean of the candidate's shared cases.")
    interval_excludes_zero = parts.flag("Whether the interval lies on one side of 0.")
    baseline_run = OwnMeanSerializer(help_text="Over all of the baseline.")
    candidate_run = OwnMeanSerializer(help_text="Over all of the candidate.")


class CaseSideSerializer(Described):
    """A case as one run left it."""

    verdict = parts.verdict("Its verdict")
    state = parts.words("Its verdict, or why it has none.")
    machine_verdict = parts.verdict("Where people decided, its verdict without that")
    reviewed_verdict = parts.verdict("Where people decided, its verdict with that")
    mean_score = parts.share("The mean score of its repetitions")
    passed = parts.count("How many repetitions passed.")
    scored = parts.count("How many have a verdict.")
    executions = parts.count("How many there are.")
    flaky = parts.flag("Whether its repetitions differ in their verdicts.")
    outcomes = parts.count("How many expected outcomes were judged.")
    outcomes_met = parts.count("How many were met in every repetition.")
    latency_ms = parts.number("The mean latency, milliseconds.")
    run_cost_usd = parts.dollars("What the target cost")
    evaluation_cost_usd = parts.dollars("What the judges cost")
    total_cost_usd = parts.dollars("What is known of both")


class CaseChangeSerializer(Described):
    """How one case changed."""

    case = parts.words("Its key.")
    title = parts.words("Its title.")
    status = serializers.ChoiceField(choices=CASES, help_text="How it changed.")
    has_flipped = parts.flag("Whether it went from pass to not-pass or back.")
    score_change = parts.number("Candidate minus baseline, −1 to 1; null without both.")
    baseline = CaseSideSerializer(allow_null=True, help_text="Null where it was added.")
    candidate = CaseSideSerializer(allow_null=True, help_text="Null where it was removed.")


class ComparisonSerializer(Described):
    """Two runs compared: a breach of tolerances and the evidence are two facts."""

    baseline_run_id = parts.count("The id of the run that the other is held against.")
    candidate_run_id = parts.count("The id of the run that is judged.")
    baseline = SideSerializer(help_text="The run that the other is held against.")
    candidate = SideSerializer(help_text="The run that is judged.")
    verdict = ConclusionSerializer(help_text="What came out, in words.")
    differences = DifferenceSerializer(many=True, help_text="What differs beside the targets.")
    is_comparable = parts.flag("Whether verdicts that differ can only differ for the target.")
    only_shared_cases = parts.flag("Whether the figures are of the cases that both have alone.")
    tolerances = TolerancesSerializer(help_text="The tolerances that were applied.")
    regression_detected = parts.flag("Whether any tolerance is exceeded.")
    reasons = ReasonSerializer(many=True, help_text="The tolerances that are exceeded.")
    pass_rate_change = parts.number("Candidate minus baseline, −1 to 1.")
    score_change = parts.number("Candidate minus baseline, −1 to 1.")
    latency_change_pct = parts.number("By how much the mean latency grew, percent.")
    cases_in_both = parts.count("How many cases both have.")
    shared_cases = parts.count("How many of them have a verdict on both sides.")
    evidence = EvidenceSerializer(help_text="What those show.")
    metrics = MeasuredSerializer(many=True, help_text="What evaluators measured.")
    cases = CaseChangeSerializer(many=True, help_text="Every case, the candidate's order first.")
