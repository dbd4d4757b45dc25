"""Campaigns and their leaderboards."""

from __future__ import annotations

from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described
from runs.api.serializers.runs import GATE_STATES
from runs.models import RunStatus


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
    reviews = parts.count("How many decisions of reviewers count in the pass rate.")
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
