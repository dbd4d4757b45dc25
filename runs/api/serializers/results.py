"""Results."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described
from runs.api.serializers.suites import WholeCaseSerializer
from runs.models import ResultStatus


class ResultSerializer(Described):
    """One execution of a case as lists show it."""

    id = parts.count("Its id.")
    run_id = parts.count("The id of its run.")
    case = parts.words("The key of its case.")
    case_revision = parts.count("The revision of the case it carried out.")
    title = parts.words("The title of the case.")
    tags = parts.names("The tags of the case.")
    repetition = parts.count("Which repetition of the case it is, from 1.")
    url = parts.words("The path of its page.")
    status = serializers.ChoiceField(choices=ResultStatus.values, help_text="How far the work is.")
    verdict = parts.verdict("What was decided")
    reviewed_verdict = parts.verdict("What reviewers decided")
    score = parts.share("The final score")
    decided_by = parts.words_or_none("The rule and the numbers that decided.")
    outcomes_met = parts.count_or_none("How many expected outcomes were met.")
    outcomes_total = parts.count_or_none("Of how many; null where none were judged.")
    error = parts.words_or_none("Why it errored; null where it did not.")
    error_stage = parts.words_or_none("Where it errored.")
    warnings = parts.names("What its reader should know.")
    attempt = parts.count("How often it was tried since it was last asked for; 0 before the first.")
    generation = parts.count("How often it was asked for, from 1.")
    started_at = parts.time_or_none("When work on it began.")
    finished_at = parts.time_or_none("When it ended.")
    latency_ms = parts.count_or_none("How long the target took, milliseconds.")
    input_tokens = parts.count_or_none("The target's tokens in.")
    output_tokens = parts.count_or_none("The target's tokens out.")
    run_cost_usd = parts.dollars("What the target cost")
    evaluation_cost_usd = parts.dollars("What the judges cost")
    total_cost_usd = parts.dollars("What is known of both")


class OutputSerializer(Described):
    """What the target answered."""

    text = parts.words("The answer, cut after 20,000 characters.")
    characters = parts.count("How long the whole answer is.")
    is_cut = parts.flag("Whether there is more; /output gives the whole.")


class WholeOutputSerializer(Described):
    """The whole answer of the target."""

    text = parts.words("The answer, whole.")
    characters = parts.count("How long it is.")


class FindingSerializer(Described):
    """A hit or a miss."""

    text = parts.words("What was looked for.")
    passed = parts.flag("Whether it was found.")
    evidence = parts.words("Where; empty where that was not told.")


class SaidSerializer(Described):
    """What an evaluator said, before it was negated."""

    path = parts.words("Its place in the tree.")
    raw_score = parts.number("Its score on its own scale.")
    scale = serializers.FloatField(help_text="What that is out of.")
    reasoning = parts.words("Why, cut after 20,000 characters.")
    findings = FindingSerializer(many=True, help_text="Its hits and misses.")
    warnings = parts.names("What its reader should know.")
    details = parts.mapping("The parts that its kind makes the score of.")
    latency_ms = parts.count_or_none("How long it took, milliseconds.")
    input_tokens = parts.count_or_none("Tokens in.")
    output_tokens = parts.count_or_none("Tokens out.")
    cost_usd = parts.dollars("What it cost")


class NodeSerializer(Described):
    """An evaluator in the tree that led to the verdict."""

    name = parts.words("Its name.")
    path = parts.words("Its place in the tree; empty for the root.")
    kind = parts.words("Its kind.")
    label = parts.words("Its kind in words.")  # type: ignore[assignment]  # fields are taken out of the class
    weight = serializers.FloatField(help_text="What it weighs beside its siblings.")
    is_negated = parts.flag("Whether its score counts the other way round.")
    state = serializers.ChoiceField(choices=parts.STATES, help_text="Whether it scored.")
    score = parts.share("Its score as it counts")
    verdict = parts.verdict("What its score comes to")
    note = parts.words("Why there is no score; empty with one.")
    arithmetic = parts.words("How its score is made of those under it.")
    is_decisive = parts.flag("Whether the verdict came through it.")
    said = SaidSerializer(allow_null=True, help_text="What it said; null where it did not.")
    children = serializers.SerializerMethodField(help_text="The evaluators under it.")

    @extend_schema_field({"type": "array", "items": {"$ref": "#/components/schemas/Node"}})
    def get_children(self, node: Any) -> Any:
        """Return those under it, which are like it."""
        return node["children"]


class TraceStepSerializer(Described):
    """A step on the way to the verdict."""

    text = parts.words("What was found.")
    path = parts.words_or_none("The evaluator it is about.")
    passed = serializers.BooleanField(allow_null=True, help_text="Null where nothing was tested.")


class FlipSerializer(Described):
    """The smallest change that would reach another verdict."""

    text = parts.words("The change in words.")
    path = parts.words_or_none("The evaluator whose score would have to rise.")
    from_score = parts.share("Its score")
    to_score = parts.share("What it would have to be")
    verdict = parts.verdict("What would be reached")
    outcomes = parts.names("The expected outcomes that are still missed.")


class OutcomeSerializer(Described):
    """An expected outcome."""

    text = parts.words("What was expected.")
    passed = parts.flag("Whether it was met.")
    justification = serializers.CharField(required=False, help_text="Why.")


class MetricSerializer(Described):
    """A metric."""

    name = parts.words("Its name.")
    tier = parts.words_or_none("Its tier; null without one.")
    score = serializers.FloatField(help_text="0 to 5.")
    is_binary = parts.flag("Whether it is 0 or 5 alone.")
    share = serializers.FloatField(help_text="Its share of the weights, 0 to 1.")


class JudgedMetricsSerializer(Described):
    """The metrics that one evaluator scored."""

    path = parts.words("The evaluator's place in the tree.")
    score = serializers.FloatField(help_text="What they come to, 0 to 1.")
    metrics = MetricSerializer(many=True, help_text="Each of them, tier by tier.")


class CallPurseSerializer(Described):
    """The calls paid from one purse."""

    usd = parts.dollars("What they cost")
    calls = parts.count("How many there were.")
    failed = parts.count("How many failed.")
    answers = parts.count("How many were answered.")
    priced = parts.count("How many answers have a known price.")
    input_tokens = parts.count_or_none("Tokens in.")
    output_tokens = parts.count_or_none("Tokens out.")
    is_partial = parts.flag("Whether more was spent than is known.")


class CallPursesSerializer(Described):
    """The two purses of a result."""

    run = CallPurseSerializer(help_text="The target's.")
    evaluation = CallPurseSerializer(help_text="The judges'.")


class AttemptSerializer(Described):
    """What a try came to."""

    name = parts.words("Which try.")
    is_current = parts.flag("Whether it is the one that counts.")
    state = parts.words("A verdict, or how far the work was.")
    score = parts.share("Its score")
    reason = parts.words("Its error, else what decided.")
    cost_usd = parts.dollars("What it cost")
    calls = parts.count("How many calls it made.")
    at = parts.time_or_none("When it ended.")


class ReviewSerializer(Described):
    """What a person decided of the result."""

    by = parts.words("Who decided.")
    at = parts.time_or_none("When.")
    verdict = parts.verdict("The decision")
    machine_verdict = parts.verdict("What the machine had said then")
    note = parts.words("Why.")
    tags = parts.names("Causes of failure.")
    outcome_marks = parts.words(
        "One character per expected outcome: 1 met, 0 missed, - not marked; empty without marks."
    )
    metric_labels = parts.mapping("What each metric was given, 0 to 5, by its key.")
    counts = parts.flag("Whether it stands: not withdrawn, and of the present output.")


class FileSerializer(Described):
    """A file that the target left."""

    path = parts.words("Its path.")
    bytes = parts.count("Its size, bytes.")


class WholeResultSerializer(ResultSerializer):
    """A result in full."""

    is_open = parts.flag("Whether work on it goes on.")
    case_content = WholeCaseSerializer(help_text="The case in the revision it carried out.")
    output = OutputSerializer(allow_null=True, help_text="The answer; null without one.")
    conversation = serializers.ListField(
        child=serializers.DictField(), help_text="Question and answer as messages, long texts cut."
    )
    steps = serializers.ListField(
        child=serializers.DictField(),
        allow_null=True,
        help_text="The first 300 steps that the target reported; null where it reported none.",
    )
    step_count = parts.count("How many steps there are.")
    rule = parts.words_or_none("The rule that decided, in one word.")
    trace = TraceStepSerializer(many=True, help_text="The way to the verdict.")
    flip = FlipSerializer(allow_null=True, help_text="What would have changed it.")
    tree = NodeSerializer(help_text="The evaluators with what each came to.")
    outcomes = OutcomeSerializer(many=True, help_text="The expected outcomes as they were judged.")
    outcomes_judge = SaidSerializer(allow_null=True, help_text="What judged the outcomes.")
    metrics = JudgedMetricsSerializer(many=True, help_text="The metrics of 0 to 5.")
    purses = CallPursesSerializer(help_text="What it cost over all its tries.")
    attempts = AttemptSerializer(many=True, help_text="Its tries, newest first; empty with one.")
    reviews = ReviewSerializer(many=True, help_text="What people decided, newest first.")
    files = FileSerializer(many=True, help_text="The files that the target left.")
