"""What runs came to."""

from __future__ import annotations

from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described


class GateResultSerializer(Described):
    """A gate of the summary."""

    share = parts.share("The figure of a completed run")
    so_far = parts.share("The figure over what has ended")
    threshold = serializers.FloatField(help_text="What it has to reach, 0 to 1.")
    passed = serializers.BooleanField(allow_null=True, help_text="Null until it is judged.")
    counted = parts.count("How many executions went in.")
    total = parts.count("Of how many.")


class MeansSerializer(Described):
    """Means and sums over the executions that have a value."""

    score = parts.share("The mean score")
    scored = parts.count("How many executions have a score.")
    latency_ms = parts.number("The mean latency, milliseconds.")
    metrics = parts.mapping("The mean of each metric, 0 to 5.", child=serializers.FloatField())
    dimensions = parts.mapping(
        "The mean of each dimension, 0 to 10.", child=serializers.FloatField()
    )
    input_tokens = parts.count_or_none("The target's tokens in.")
    output_tokens = parts.count_or_none("The target's tokens out.")
    run_cost_usd = parts.dollars("What the target cost")
    evaluation_cost_usd = parts.dollars("What the judges cost")
    evaluation_input_tokens = parts.count_or_none("The judges' tokens in.")
    evaluation_output_tokens = parts.count_or_none("The judges' tokens out.")


def _interval(text: str) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.FloatField(), min_length=2, max_length=2, allow_null=True, help_text=text
    )


class MetricMeanSerializer(Described):
    """The mean of a metric over the executions it was judged in."""

    path = parts.words("The evaluator's place in the tree.")
    key = parts.words("Its key.")
    name = parts.words("Its name.")
    tier = parts.words("Its tier; empty without one.")
    weight = serializers.FloatField(help_text="Its share of the evaluator's score, 0 to 1.")
    binary = parts.flag("Whether it is 0 or 5 alone.")
    mean = serializers.FloatField(help_text="The mean, 0 to 5.")
    judged = parts.count("How many executions it is of.")


class SideMeanSerializer(Described):
    """The mean of one side of a dimension."""

    mean = parts.number("The mean, 0 to 10; null without any.")
    counted = parts.count("How many executions it is of.")


class DimensionMeanSerializer(Described):
    """The mean of a dimension of a hybrid judge."""

    path = parts.words("The evaluator's place in the tree.")
    key = parts.words("Its key.")
    name = parts.words("Its name.")
    deterministic = SideMeanSerializer(help_text="What the checks give.")
    judge = SideMeanSerializer(help_text="What the judge gives.")
    final = SideMeanSerializer(help_text="What both together give.")


class SummarySerializer(Described):
    """A run in numbers; the names that end in _pct and the two thresholds beside them are percent."""

    executions = parts.count("How many executions there are.")
    ended = parts.count("How many have ended.")
    passed = parts.count("How many passed.")
    errors = parts.count("How many errored.")  # type: ignore[assignment]  # fields are taken out of the class
    metrics_gate = GateResultSerializer(help_text="The mean score against its threshold.")
    cases_gate = GateResultSerializer(help_text="The pass rate against its threshold.")
    interval = _interval("The 95% interval of the pass rate, 0 to 1.")
    score_interval = _interval("The 95% interval of the mean score, 0 to 1.")
    distribution = parts.mapping(
        "How many cases there are of each state, and in total.", child=serializers.IntegerField()
    )
    shares = parts.mapping("The same as shares of all, 0 to 1.", child=serializers.FloatField())
    means = MeansSerializer(help_text="Means and sums.")
    flaky = parts.count("Cases whose repetitions differ in their verdicts.")
    all_passed = parts.count("Cases all of whose repetitions passed.")
    any_passed = parts.count("Cases any of whose repetitions passed.")
    reviews = parts.count("How many decisions of reviewers count.")
    settled = parts.count("Cases all of whose repetitions have ended.")
    comparable = parts.count("Cases with two verdicts or more.")
    spread = parts.share("The mean of highest minus lowest score of a case")
    spread_cases = parts.count("How many cases that mean is of.")
    timed = parts.count("How many executions have a latency.")
    latency_p50_ms = parts.number("The median latency, milliseconds.")
    latency_p95_ms = parts.number("95 of 100 executions are as fast or faster, milliseconds.")
    weighted_metrics_score_pct = parts.number("The mean score, percent.")
    metrics_pass_threshold = parts.number("What it has to reach, percent.")
    metrics_passed = serializers.BooleanField(allow_null=True, help_text="Whether it does.")
    cases_pass_rate_pct = parts.number("The pass rate, percent.")
    cases_pass_threshold = parts.number("What it has to reach, percent.")
    cases_passed = serializers.BooleanField(allow_null=True, help_text="Whether it does.")
    metrics = MetricMeanSerializer(many=True, help_text="The mean of each metric.")
    dimensions = DimensionMeanSerializer(many=True, help_text="The mean of each dimension.")


class OverRepetitionsSerializer(Described):
    """What several repetitions of each case came to."""

    all_k_passed = parts.count("Cases all of whose repetitions passed.")
    any_k_passed = parts.count("Cases any of whose repetitions passed.")
    finished_cases = parts.count("Of how many.")
    flaky = parts.count("Cases whose repetitions differ in their verdicts.")
    comparable_cases = parts.count("Of how many.")
    mean_spread = parts.share("The mean of highest minus lowest score of a case")
    spread_cases = parts.count("How many cases that mean is of.")


class FinalEvaluationSerializer(Described):
    """What hybrid judges gave on the whole."""

    final_score = parts.number("The mean final score, 0 to 10.")
    final_dimensions = parts.mapping(
        "The mean of each dimension, 0 to 10.", child=serializers.FloatField()
    )
    scored_executions = parts.count("How many executions they are of.")
