"""Runs and campaigns."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described, PolicySerializer
from runs.models import RunStatus

GATE_STATES = ["passed", "failed", "open", "on_course", "at_risk", "out_of_reach"]


class GateSerializer(Described):
    """One of the two gates of a run."""

    share = parts.share("The figure: the mean score, or the share of executions that passed")
    threshold = serializers.FloatField(help_text="What it has to reach, 0 to 1.")
    state = serializers.ChoiceField(
        choices=GATE_STATES,
        help_text="Passed or failed once the run is completed; before, how it stands so far.",
    )
    note = parts.words("What the figure rests on, in words.")


class GatesSerializer(Described):
    """Both gates; they are judged apart."""

    metrics = GateSerializer(help_text="The mean score of all executions that have one.")
    cases = GateSerializer(help_text="The share of executions that passed; errors have not.")


class CountsSerializer(Described):
    """How many executions stand how."""

    borderline = parts.count("Borderline.")
    fail = parts.count("Failed.")  # type: ignore[assignment]  # fields are taken out of the class
    error = parts.count("Errored: without a score, which is never 0.")
    waiting = parts.count("Not carried out yet.")
    cancelled = parts.count("Never carried out.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields with the one whose name is a word of the language."""
        return {"pass": parts.count("Passed."), **super().get_fields()}


class RunSerializer(Described):
    """A run as lists show it."""

    id = parts.count("Its id.")
    name = parts.words("Its suite and number, as support-agent:12.")
    suite = parts.words("The slug of its suite.")
    number = parts.count("Its number in the suite.")
    url = parts.words("The path of its page.")
    target = parts.words("The name of what was asked.")
    judge = parts.words_or_none("The name of the model that judged; null without one.")
    is_scripted = parts.flag("Whether the judge's replies were written beforehand, as in the demo.")
    suite_version = parts.count("The version of the suite it carried out.")
    is_baseline = parts.flag("Whether other runs of the suite are held against it.")
    campaign = parts.count_or_none("The id of the campaign it was started in.")
    scored_again_from = parts.count_or_none("The number of the run whose stored scores these are.")
    note = parts.words("What was noted at its start.")
    repetitions = parts.count("How often each case is carried out.")
    status = serializers.ChoiceField(choices=RunStatus.values, help_text="How far the work is.")
    status_reason = parts.words("Why it ended early; empty otherwise.")
    created_at = parts.time("When it was made.")
    created_by = parts.words_or_none("Who started it.")
    started_at = parts.time_or_none("When work on it began.")
    finished_at = parts.time_or_none("When it ended.")
    cases = parts.count("How many cases it has.")
    executions = parts.count("How many executions it has: cases times repetitions.")
    done = parts.count("How many of them have ended, well or not.")
    counts = CountsSerializer(help_text="How many executions stand how.")
    gates = GatesSerializer(help_text="The two gates.")
    run_cost_usd = parts.dollars("What the target cost")
    evaluation_cost_usd = parts.dollars("What the judges cost")
    total_cost_usd = parts.dollars("What is known of both purses")
    costs_are_partial = parts.flag("Whether more was spent than is known.")


class PurseSerializer(Described):
    """What was paid from one purse."""

    usd = parts.dollars("What is known")
    answers = parts.count("How many answers were paid; 0 where every price is known.")
    priced = parts.count("How many of them have a known price.")
    input_tokens = parts.count_or_none("Tokens in, told where prices are missing.")
    output_tokens = parts.count_or_none("Tokens out, told where prices are missing.")
    is_partial = parts.flag("Whether more was spent than is known.")


class PursesSerializer(Described):
    """The two purses of a run."""

    run = PurseSerializer(help_text="The target's.")
    evaluation = PurseSerializer(help_text="The judges'.")


class ChangedSerializer(Described):
    """Something that was changed for one run alone."""

    evaluator = parts.words_or_none("The evaluator; null for the policy.")
    name = parts.words("The setting.")
    old = serializers.JSONField(help_text="What the suite has; may be null.")
    new = serializers.JSONField(help_text="What the run had; may be null.")


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


class WholeRunSerializer(RunSerializer):
    """A run in full."""

    concurrency = parts.count("How many executions were carried out at once, at most.")
    budget_usd = parts.dollars("What it was allowed to cost")
    policy = PolicySerializer(help_text="The policy it was frozen with.")
    changed = ChangedSerializer(many=True, help_text="What it did otherwise than its suite.")
    purses = PursesSerializer(help_text="The two purses with what they rest on.")
    summary = SummarySerializer(allow_null=True, help_text="What it came to; null until it ended.")
    over_repetitions = OverRepetitionsSerializer(
        allow_null=True, help_text="Null with one repetition."
    )
    final_evaluation = FinalEvaluationSerializer(
        allow_null=True, help_text="Null without a hybrid judge."
    )


class CampaignSerializer(Described):
    """A campaign as lists show it."""

    id = parts.count("Its id.")
    name = parts.words("Its name.")
    suite = parts.words("The slug of its suite.")
    headline = parts.words("Who leads, in a sentence.")
    targets = parts.names("Its targets, the best first.")
    is_active = parts.flag("Whether any of its runs goes on.")
    created_at = parts.time("When it was started.")
    created_by = parts.words_or_none("Who started it.")


class LineSerializer(Described):
    """One run of the leaderboard."""

    rank = parts.count_or_none("Its rank, from 1; null without one.")
    run = parts.count("The number of the run in its suite.")
    run_id = parts.count("The id of the run.")
    target = parts.words("What was asked.")
    status = serializers.ChoiceField(choices=RunStatus.values, help_text="How far the work is.")
    done = parts.count("How many executions have ended.")
    executions = parts.count("Of how many.")
    passed = parts.count("How many passed.")
    pass_rate = parts.share("The share that passed")
    pass_rate_low = parts.share("The lower end of its 95% interval")
    pass_rate_high = parts.share("The upper end of its 95% interval")
    cases_gate = serializers.ChoiceField(choices=GATE_STATES, help_text="The Cases gate.")
    mean_score = parts.share("The mean score")
    mean_score_low = parts.share("The lower end of its 95% interval")
    mean_score_high = parts.share("The upper end of its 95% interval")
    scored = parts.count("How many executions have a score.")
    metrics_gate = serializers.ChoiceField(choices=GATE_STATES, help_text="The Metrics gate.")
    pass_count = parts.count("Cases that passed.")
    borderline_count = parts.count("Cases that are borderline.")
    fail_count = parts.count("Cases that failed.")
    error_count = parts.count("Cases that errored.")
    mean_latency_ms = parts.number("The mean latency, milliseconds.")
    run_cost_usd = parts.dollars("What the target cost")
    evaluation_cost_usd = parts.dollars("What the judges cost")
    total_cost_usd = parts.dollars("What is known of both")
    cost_is_known_in_full = parts.flag("Whether no more was spent than is known.")
    cost_per_passed_case_usd = parts.dollars("What a passed case cost")
    pareto = serializers.ChoiceField(
        choices=["front", "dominated"],
        allow_null=True,
        help_text="Whether another run is both better and cheaper; null where that cannot be told.",
    )
    dominated_by_run = parts.count_or_none("The number of that run.")
    shared_cases = parts.count_or_none("How many cases it shares with the first.")
    p_value = parts.share("How likely chance alone makes such a difference from the first")
    told_from_first = serializers.BooleanField(
        allow_null=True, help_text="Whether the difference from the first is proven."
    )


class WholeCampaignSerializer(CampaignSerializer):
    """A campaign with its leaderboard."""

    leaderboard = LineSerializer(many=True, help_text="Its runs, the best first.")
