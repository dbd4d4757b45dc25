"""Runs."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described, PolicySerializer
from runs.api.serializers.summaries import (
    FinalEvaluationSerializer,
    OverRepetitionsSerializer,
    SummarySerializer,
)
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
    reviews = parts.count("How many decisions of reviewers count in it.")


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
