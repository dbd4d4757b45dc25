"""What the answers of the API look like: their fields, units, and what null means. They describe; documents make."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from evaluators.scoring.types import Verdict
from runs.models.results import ResultStatus
from runs.models.runs import RunStatus
from runs.models.suites import CaseGate, FinalScore, OnUnscored

VERDICTS = [verdict.value for verdict in Verdict]
STATES = ["scored", "unscored", "skipped", "open"]


@extend_schema_field({"type": "string", "format": "decimal", "examples": ["0.012400000"]})
class Dollars(serializers.CharField):
    """US dollars spelt out, so that no digit is lost."""


class Share(serializers.FloatField):
    """A number from 0 to 1."""


class Described(serializers.Serializer[Any]):
    """A part of an answer."""


def dollars_field(text: str, **options: Any) -> Dollars:
    """Return a field of dollars; null where no price is known."""
    return Dollars(
        allow_null=True, help_text=f"{text}, US dollars; null where none is known.", **options
    )


def share_field(text: str, **options: Any) -> Share:
    """Return a field of a number from 0 to 1, null where there is none."""
    return Share(allow_null=True, help_text=f"{text}, 0 to 1; null where there is none.", **options)


def verdict_field(text: str) -> serializers.ChoiceField:
    """Return a field of a verdict."""
    return serializers.ChoiceField(
        choices=VERDICTS, allow_null=True, help_text=f"{text}; null without one."
    )


def number_field(text: str) -> serializers.FloatField:
    """Return a field of a number that may be missing."""
    return serializers.FloatField(allow_null=True, help_text=text)


def count_field(text: str) -> serializers.IntegerField:
    """Return a field of a count."""
    return serializers.IntegerField(help_text=text)


def count_or_none_field(text: str) -> serializers.IntegerField:
    """Return a field of a count that may be missing."""
    return serializers.IntegerField(allow_null=True, help_text=text)


def text_field(text: str) -> serializers.CharField:
    """Return a field of words."""
    return serializers.CharField(help_text=text)


def text_or_none_field(text: str) -> serializers.CharField:
    """Return a field of words that may be missing."""
    return serializers.CharField(allow_null=True, help_text=text)


def flag_field(text: str) -> serializers.BooleanField:
    """Return a field of yes or no."""
    return serializers.BooleanField(help_text=text)


def time_field(text: str) -> serializers.DateTimeField:
    """Return a field of a time, ISO 8601 with its zone."""
    return serializers.DateTimeField(help_text=text)


def time_or_none_field(text: str) -> serializers.DateTimeField:
    """Return a field of a time that may be missing."""
    return serializers.DateTimeField(allow_null=True, help_text=text)


def names_field(text: str) -> serializers.ListField:
    """Return a field of a list of words."""
    return serializers.ListField(child=serializers.CharField(), help_text=text)


def mapping_field(text: str, **options: Any) -> serializers.DictField:
    """Return a field of free values by name."""
    return serializers.DictField(help_text=text, **options)


class PolicySerializer(Described):
    """What turns scores into verdicts and runs into passed or failed gates."""

    pass_band = serializers.FloatField(help_text="From this score on a result passes, 0 to 1.")
    borderline_band = serializers.FloatField(
        help_text="From this score on a result is borderline, 0 to 1."
    )
    case_gate = serializers.ChoiceField(
        choices=CaseGate.values, help_text="What decides the verdict of a result."
    )
    final_score = serializers.ChoiceField(
        choices=FinalScore.values, help_text="Where the final score comes from."
    )
    on_unscored = serializers.ChoiceField(
        choices=OnUnscored.values,
        help_text="What becomes of a result one of whose evaluators could not score.",
    )
    pass_threshold = serializers.FloatField(
        help_text="What the score has to reach without expected outcomes, points of 100."
    )
    metrics_pass_threshold = serializers.FloatField(
        help_text="What the mean score of a run has to reach, percent."
    )
    cases_pass_threshold = serializers.FloatField(
        help_text="What share of a run's executions has to pass, percent."
    )
    max_pass_rate_drop = serializers.FloatField(
        help_text="How far the pass rate may fall, a share from 0 to 1."
    )
    max_avg_score_drop = serializers.FloatField(
        help_text="How far the mean score may fall, points of 100."
    )
    max_latency_increase_pct = serializers.FloatField(
        help_text="How far the mean latency may grow, percent."
    )
    count_reviews = flag_field("Whether decisions of reviewers take the place of verdicts.")
    scale = count_field("What pages show scores out of: 1, 5, 10 or 100. Here they are 0 to 1.")


class GateResultSerializer(Described):
    """A gate of the summary."""

    share = share_field("The figure of a completed run")
    so_far = share_field("The figure over what has ended")
    threshold = serializers.FloatField(help_text="What it has to reach, 0 to 1.")
    passed = serializers.BooleanField(allow_null=True, help_text="Null until it is judged.")
    counted = count_field("How many executions went in.")
    total = count_field("Of how many.")


class MeansSerializer(Described):
    """Means and sums over the executions that have a value."""

    score = share_field("The mean score")
    scored = count_field("How many executions have a score.")
    latency_ms = number_field("The mean latency, milliseconds.")
    metrics = mapping_field("The mean of each metric, 0 to 5.", child=serializers.FloatField())
    dimensions = mapping_field(
        "The mean of each dimension, 0 to 10.", child=serializers.FloatField()
    )
    input_tokens = count_or_none_field("The target's tokens in.")
    output_tokens = count_or_none_field("The target's tokens out.")
    run_cost_usd = dollars_field("What the target cost")
    evaluation_cost_usd = dollars_field("What the judges cost")
    evaluation_input_tokens = count_or_none_field("The judges' tokens in.")
    evaluation_output_tokens = count_or_none_field("The judges' tokens out.")


def _interval(text: str) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.FloatField(), min_length=2, max_length=2, allow_null=True, help_text=text
    )


class MetricMeanSerializer(Described):
    """The mean of a metric over the executions it was judged in."""

    path = text_field("The evaluator's place in the tree.")
    key = text_field("Its key.")
    name = text_field("Its name.")
    tier = text_field("Its tier; empty without one.")
    weight = serializers.FloatField(help_text="Its share of the evaluator's score, 0 to 1.")
    binary = flag_field("Whether it is 0 or 5 alone.")
    mean = serializers.FloatField(help_text="The mean, 0 to 5.")
    judged = count_field("How many executions it is of.")


class SideMeanSerializer(Described):
    """The mean of one side of a dimension."""

    mean = number_field("The mean, 0 to 10; null without any.")
    counted = count_field("How many executions it is of.")


class DimensionMeanSerializer(Described):
    """The mean of a dimension of a hybrid judge."""

    path = text_field("The evaluator's place in the tree.")
    key = text_field("Its key.")
    name = text_field("Its name.")
    deterministic = SideMeanSerializer(help_text="What the checks give.")
    judge = SideMeanSerializer(help_text="What the judge gives.")
    final = SideMeanSerializer(help_text="What both together give.")


class SummarySerializer(Described):
    """A run in numbers; the names that end in _pct and the two thresholds beside them are percent."""

    executions = count_field("How many executions there are.")
    ended = count_field("How many have ended.")
    passed = count_field("How many passed.")
    errors = count_field("How many errored.")  # type: ignore[assignment]  # fields are taken out of the class
    metrics_gate = GateResultSerializer(help_text="The mean score against its threshold.")
    cases_gate = GateResultSerializer(help_text="The pass rate against its threshold.")
    interval = _interval("The 95% interval of the pass rate, 0 to 1.")
    score_interval = _interval("The 95% interval of the mean score, 0 to 1.")
    distribution = mapping_field(
        "How many cases there are of each state, and in total.", child=serializers.IntegerField()
    )
    shares = mapping_field("The same as shares of all, 0 to 1.", child=serializers.FloatField())
    means = MeansSerializer(help_text="Means and sums.")
    flaky = count_field("Cases whose repetitions differ in their verdicts.")
    all_passed = count_field("Cases all of whose repetitions passed.")
    any_passed = count_field("Cases any of whose repetitions passed.")
    reviews = count_field("How many decisions of reviewers count.")
    settled = count_field("Cases all of whose repetitions have ended.")
    comparable = count_field("Cases with two verdicts or more.")
    spread = share_field("The mean of highest minus lowest score of a case")
    spread_cases = count_field("How many cases that mean is of.")
    timed = count_field("How many executions have a latency.")
    latency_p50_ms = number_field("The median latency, milliseconds.")
    latency_p95_ms = number_field("95 of 100 executions are as fast or faster, milliseconds.")
    weighted_metrics_score_pct = number_field("The mean score, percent.")
    metrics_pass_threshold = number_field("What it has to reach, percent.")
    metrics_passed = serializers.BooleanField(allow_null=True, help_text="Whether it does.")
    cases_pass_rate_pct = number_field("The pass rate, percent.")
    cases_pass_threshold = number_field("What it has to reach, percent.")
    cases_passed = serializers.BooleanField(allow_null=True, help_text="Whether it does.")
    metrics = MetricMeanSerializer(many=True, help_text="The mean of each metric.")
    dimensions = DimensionMeanSerializer(many=True, help_text="The mean of each dimension.")


class OverRepetitionsSerializer(Described):
    """What several repetitions of each case came to."""

    all_k_passed = count_field("Cases all of whose repetitions passed.")
    any_k_passed = count_field("Cases any of whose repetitions passed.")
    finished_cases = count_field("Of how many.")
    flaky = count_field("Cases whose repetitions differ in their verdicts.")
    comparable_cases = count_field("Of how many.")
    mean_spread = share_field("The mean of highest minus lowest score of a case")
    spread_cases = count_field("How many cases that mean is of.")


class FinalEvaluationSerializer(Described):
    """What hybrid judges gave on the whole."""

    final_score = number_field("The mean final score, 0 to 10.")
    final_dimensions = mapping_field(
        "The mean of each dimension, 0 to 10.", child=serializers.FloatField()
    )
    scored_executions = count_field("How many executions they are of.")


GATE_STATES = ["passed", "failed", "open", "on_course", "at_risk", "out_of_reach"]


class GateSerializer(Described):
    """One of the two gates of a run."""

    share = share_field("The figure: the mean score, or the share of executions that passed")
    threshold = serializers.FloatField(help_text="What it has to reach, 0 to 1.")
    state = serializers.ChoiceField(
        choices=GATE_STATES,
        help_text="Passed or failed once the run is completed; before, how it stands so far.",
    )
    note = text_field("What the figure rests on, in words.")
    reviews = count_field("How many decisions of reviewers count in it.")


class GatesSerializer(Described):
    """Both gates; they are judged apart."""

    metrics = GateSerializer(help_text="The mean score of all executions that have one.")
    cases = GateSerializer(help_text="The share of executions that passed; errors have not.")


class CountsSerializer(Described):
    """How many executions stand how."""

    borderline = count_field("Borderline.")
    fail = count_field("Failed.")  # type: ignore[assignment]  # fields are taken out of the class
    error = count_field("Errored: without a score, which is never 0.")
    waiting = count_field("Not carried out yet.")
    cancelled = count_field("Never carried out.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields with the one whose name is a word of the language."""
        return {"pass": count_field("Passed."), **super().get_fields()}


class RunSerializer(Described):
    """A run as lists show it."""

    id = count_field("Its id.")
    name = text_field("Its suite and number, as support-agent:12.")
    suite = text_field("The slug of its suite.")
    number = count_field("Its number in the suite.")
    url = text_field("The path of its page.")
    target = text_field("The name of what was asked.")
    judge = text_or_none_field("The name of the model that judged; null without one.")
    is_scripted = flag_field("Whether the judge's replies were written beforehand, as in the demo.")
    suite_version = count_field("The version of the suite it carried out.")
    is_baseline = flag_field("Whether other runs of the suite are held against it.")
    campaign = count_or_none_field("The id of the campaign it was started in.")
    scored_again_from = count_or_none_field("The number of the run whose stored scores these are.")
    note = text_field("What was noted at its start.")
    repetitions = count_field("How often each case is carried out.")
    status = serializers.ChoiceField(choices=RunStatus.values, help_text="How far the work is.")
    status_reason = text_field("Why it ended early; empty otherwise.")
    created_at = time_field("When it was made.")
    created_by = text_or_none_field("Who started it.")
    started_at = time_or_none_field("When work on it began.")
    finished_at = time_or_none_field("When it ended.")
    cases = count_field("How many cases it has.")
    executions = count_field("How many executions it has: cases times repetitions.")
    done = count_field("How many of them have ended, well or not.")
    counts = CountsSerializer(help_text="How many executions stand how.")
    gates = GatesSerializer(help_text="The two gates.")
    run_cost_usd = dollars_field("What the target cost")
    evaluation_cost_usd = dollars_field("What the judges cost")
    total_cost_usd = dollars_field("What is known of both purses")
    costs_are_partial = flag_field("Whether more was spent than is known.")


class CostSerializer(Described):
    """What was paid from one purse."""

    usd = dollars_field("What is known")
    answers = count_field("How many answers were paid; 0 where every price is known.")
    priced = count_field("How many of them have a known price.")
    input_tokens = count_or_none_field("Tokens in, told where prices are missing.")
    output_tokens = count_or_none_field("Tokens out, told where prices are missing.")
    is_partial = flag_field("Whether more was spent than is known.")


class CostsSerializer(Described):
    """The two purses of a run."""

    run = CostSerializer(help_text="The target's.")
    evaluation = CostSerializer(help_text="The judges'.")


class ChangedSerializer(Described):
    """Something that was changed for one run alone."""

    evaluator = text_or_none_field("The evaluator; null for the policy.")
    name = text_field("The setting.")
    old = serializers.JSONField(help_text="What the suite has; may be null.")
    new = serializers.JSONField(help_text="What the run had; may be null.")


class WholeRunSerializer(RunSerializer):
    """A run in full."""

    concurrency = count_field("How many executions were carried out at once, at most.")
    budget_usd = dollars_field("What it was allowed to cost")
    policy = PolicySerializer(help_text="The policy it was frozen with.")
    changed = ChangedSerializer(many=True, help_text="What it did otherwise than its suite.")
    costs = CostsSerializer(help_text="The two purses with what they rest on.")
    summary = SummarySerializer(allow_null=True, help_text="What it came to; null until it ended.")
    over_repetitions = OverRepetitionsSerializer(
        allow_null=True, help_text="Null with one repetition."
    )
    final_evaluation = FinalEvaluationSerializer(
        allow_null=True, help_text="Null without a hybrid judge."
    )


TREE = (
    "The evaluators as a tree: name, kind, weight, required, required_below, negate, config, "
    "children; null where none are kept."
)


class SuiteSerializer(Described):
    """A suite as lists show it."""

    slug = text_field("Its name in addresses.")
    title = text_field("Its title.")
    description = text_field("What it is for.")
    tags = names_field("Its tags.")
    version = count_field("Its current version.")
    judge = text_or_none_field("The slug of the language model that judges; null without one.")
    cases = count_field("How many cases it has now.")
    runs = count_field("How many runs it has.")
    baseline_run_id = count_or_none_field("The id of the run that others are held against.")
    baseline_run = text_or_none_field("The name of that run, as support-agent:12.")
    archived_at = time_or_none_field("When it was archived; null while it is not.")
    created_at = time_field("When it was made.")
    updated_at = time_field("When it last changed.")


class WholeSuiteSerializer(SuiteSerializer):
    """A suite with its policy and evaluators."""

    policy = PolicySerializer(help_text="The policy that its next run has.")
    evaluators = mapping_field(TREE, allow_null=True)
    files = names_field("The paths of the files it refers to.")


class VersionSerializer(Described):
    """A version of a suite as lists show it."""

    number = count_field("Its number, from 1.")
    is_current = flag_field("Whether the suite is at this version.")
    note = text_field("What its author said of it.")
    author = text_or_none_field("Who made it; null where that is not known.")
    created_at = time_field("When it was made.")
    content_hash = text_field("The same for the same content.")


class CaseOfVersionSerializer(Described):
    """Which revision of a case a version holds."""

    key = text_field("The key of the case.")
    revision = count_field("Its revision.")


class WholeVersionSerializer(VersionSerializer):
    """What a suite was at a version."""

    title = text_field("The title then.")
    description = text_field("The description then.")
    tags = names_field("The tags then.")
    judge = text_or_none_field("The slug of the judge then; null without one.")
    metadata = mapping_field("What else the suite's file said.")
    policy = PolicySerializer(help_text="The policy then.")
    evaluators = mapping_field(TREE)
    files = names_field("The paths of its files.")
    cases = CaseOfVersionSerializer(many=True, help_text="Its cases in order.")


class CaseSerializer(Described):
    """A case as lists show it."""

    key = text_field("Its name in the suite.")
    revision = count_field("The revision, from 1.")
    is_current = flag_field("Whether new runs carry out this revision.")
    position = count_field("Its place in the suite.")
    title = text_field("Its title.")
    tags = names_field("Its tags.")
    created_at = time_field("When this revision was made.")


class WholeCaseSerializer(CaseSerializer):
    """A revision of a case in full."""

    input = serializers.ListField(
        child=serializers.DictField(), help_text="What is asked: messages with role and content."
    )
    expected_output = text_field("What a good answer is; empty without one.")
    expected_outcomes = serializers.ListField(help_text="What a good answer does, one by one.")
    criteria = text_field("How the answer is to be judged; empty without any.")
    metadata = mapping_field("What else the case holds.")
    evaluators = mapping_field("Evaluators of its own, as a tree; null without.", allow_null=True)
    evaluators_append = flag_field("Whether its own join the suite's instead of replacing them.")
    recorded_output = serializers.JSONField(
        help_text="The answer that a recorded target gives; null without one."
    )


class ResultSerializer(Described):
    """One execution of a case as lists show it."""

    id = count_field("Its id.")
    run_id = count_field("The id of its run.")
    case = text_field("The key of its case.")
    case_revision = count_field("The revision of the case it carried out.")
    title = text_field("The title of the case.")
    tags = names_field("The tags of the case.")
    repetition = count_field("Which repetition of the case it is, from 1.")
    url = text_field("The path of its page.")
    status = serializers.ChoiceField(choices=ResultStatus.values, help_text="How far the work is.")
    verdict = verdict_field("What was decided")
    reviewed_verdict = verdict_field("What reviewers decided")
    score = share_field("The final score")
    decided_by = text_or_none_field("The rule and the numbers that decided.")
    outcomes_met = count_or_none_field("How many expected outcomes were met.")
    outcomes_total = count_or_none_field("Of how many; null where none were judged.")
    error = text_or_none_field("Why it errored; null where it did not.")
    error_stage = text_or_none_field("Where it errored.")
    warnings = names_field("What its reader should know.")
    attempt = count_field("How often it was tried since it was last asked for; 0 before the first.")
    generation = count_field("How often it was asked for, from 1.")
    started_at = time_or_none_field("When work on it began.")
    finished_at = time_or_none_field("When it ended.")
    latency_ms = count_or_none_field("How long the target took, milliseconds.")
    input_tokens = count_or_none_field("The target's tokens in.")
    output_tokens = count_or_none_field("The target's tokens out.")
    run_cost_usd = dollars_field("What the target cost")
    evaluation_cost_usd = dollars_field("What the judges cost")
    total_cost_usd = dollars_field("What is known of both")


class OutputSerializer(Described):
    """What the target answered."""

    text = text_field("The answer, cut after 20,000 characters.")
    characters = count_field("How long the whole answer is.")
    is_cut = flag_field("Whether there is more; /output gives the whole.")


class WholeOutputSerializer(Described):
    """The whole answer of the target."""

    text = text_field("The answer, whole.")
    characters = count_field("How long it is.")


class FindingSerializer(Described):
    """A hit or a miss."""

    text = text_field("What was looked for.")
    passed = flag_field("Whether it was found.")
    evidence = text_field("Where; empty where that was not told.")


class SaidSerializer(Described):
    """What an evaluator said, before it was negated."""

    path = text_field("Its place in the tree.")
    raw_score = number_field("Its score on its own scale.")
    scale = serializers.FloatField(help_text="What that is out of.")
    reasoning = text_field("Why, cut after 20,000 characters.")
    findings = FindingSerializer(many=True, help_text="Its hits and misses.")
    warnings = names_field("What its reader should know.")
    details = mapping_field("The parts that its kind makes the score of.")
    latency_ms = count_or_none_field("How long it took, milliseconds.")
    input_tokens = count_or_none_field("Tokens in.")
    output_tokens = count_or_none_field("Tokens out.")
    cost_usd = dollars_field("What it cost")


class NodeSerializer(Described):
    """An evaluator in the tree that led to the verdict."""

    name = text_field("Its name.")
    path = text_field("Its place in the tree; empty for the root.")
    kind = text_field("Its kind.")
    label = text_field("Its kind in words.")  # type: ignore[assignment]  # fields are taken out of the class
    weight = serializers.FloatField(help_text="What it weighs beside its siblings.")
    is_negated = flag_field("Whether its score counts the other way round.")
    state = serializers.ChoiceField(choices=STATES, help_text="Whether it scored.")
    score = share_field("Its score as it counts")
    verdict = verdict_field("What its score comes to")
    note = text_field("Why there is no score; empty with one.")
    arithmetic = text_field("How its score is made of those under it.")
    is_decisive = flag_field("Whether the verdict came through it.")
    said = SaidSerializer(allow_null=True, help_text="What it said; null where it did not.")
    children = serializers.SerializerMethodField(help_text="The evaluators under it.")

    @extend_schema_field({"type": "array", "items": {"$ref": "#/components/schemas/Node"}})
    def get_children(self, node: Any) -> Any:
        """Return those under it, which are like it."""
        return node["children"]


class TraceStepSerializer(Described):
    """A step on the way to the verdict."""

    text = text_field("What was found.")
    path = text_or_none_field("The evaluator it is about.")
    passed = serializers.BooleanField(allow_null=True, help_text="Null where nothing was tested.")


class FlipSerializer(Described):
    """The smallest change that would reach another verdict."""

    text = text_field("The change in words.")
    path = text_or_none_field("The evaluator whose score would have to rise.")
    from_score = share_field("Its score")
    to_score = share_field("What it would have to be")
    verdict = verdict_field("What would be reached")
    outcomes = names_field("The expected outcomes that are still missed.")


class OutcomeSerializer(Described):
    """An expected outcome."""

    text = text_field("What was expected.")
    passed = flag_field("Whether it was met.")
    justification = serializers.CharField(required=False, help_text="Why.")


class MetricSerializer(Described):
    """A metric."""

    name = text_field("Its name.")
    tier = text_or_none_field("Its tier; null without one.")
    score = serializers.FloatField(help_text="0 to 5.")
    is_binary = flag_field("Whether it is 0 or 5 alone.")
    share = serializers.FloatField(help_text="Its share of the weights, 0 to 1.")


class JudgedMetricsSerializer(Described):
    """The metrics that one evaluator scored."""

    path = text_field("The evaluator's place in the tree.")
    score = serializers.FloatField(help_text="What they come to, 0 to 1.")
    metrics = MetricSerializer(many=True, help_text="Each of them, tier by tier.")


class CallCostSerializer(Described):
    """The calls paid from one purse."""

    usd = dollars_field("What they cost")
    calls = count_field("How many there were.")
    failed = count_field("How many failed.")
    answers = count_field("How many were answered.")
    priced = count_field("How many answers have a known price.")
    input_tokens = count_or_none_field("Tokens in.")
    output_tokens = count_or_none_field("Tokens out.")
    is_partial = flag_field("Whether more was spent than is known.")


class CallCostsSerializer(Described):
    """The two purses of a result."""

    run = CallCostSerializer(help_text="The target's.")
    evaluation = CallCostSerializer(help_text="The judges'.")


class AttemptSerializer(Described):
    """What a try came to."""

    name = text_field("Which try.")
    is_current = flag_field("Whether it is the one that counts.")
    state = text_field("A verdict, or how far the work was.")
    score = share_field("Its score")
    reason = text_field("Its error, else what decided.")
    cost_usd = dollars_field("What it cost")
    calls = count_field("How many calls it made.")
    at = time_or_none_field("When it ended.")


class ReviewSerializer(Described):
    """What a person decided of the result."""

    by = text_field("Who decided.")
    at = time_or_none_field("When.")
    verdict = verdict_field("The decision")
    machine_verdict = verdict_field("What the machine had said then")
    note = text_field("Why.")
    tags = names_field("Causes of failure.")
    outcome_marks = text_field(
        "One character per expected outcome: 1 met, 0 missed, - not marked; empty without marks."
    )
    metric_labels = mapping_field("What each metric was given, 0 to 5, by its key.")
    counts = flag_field("Whether it stands: not withdrawn, and of the present output.")


class FileSerializer(Described):
    """A file that the target left."""

    path = text_field("Its path.")
    bytes = count_field("Its size, bytes.")


class WholeResultSerializer(ResultSerializer):
    """A result in full."""

    is_open = flag_field("Whether work on it goes on.")
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
    step_count = count_field("How many steps there are.")
    rule = text_or_none_field("The rule that decided, in one word.")
    trace = TraceStepSerializer(many=True, help_text="The way to the verdict.")
    flip = FlipSerializer(allow_null=True, help_text="What would have changed it.")
    tree = NodeSerializer(help_text="The evaluators with what each came to.")
    outcomes = OutcomeSerializer(many=True, help_text="The expected outcomes as they were judged.")
    outcomes_judge = SaidSerializer(allow_null=True, help_text="What judged the outcomes.")
    metrics = JudgedMetricsSerializer(many=True, help_text="The metrics of 0 to 5.")
    costs = CallCostsSerializer(help_text="What it cost over all its tries.")
    attempts = AttemptSerializer(many=True, help_text="Its tries, newest first; empty with one.")
    reviews = ReviewSerializer(many=True, help_text="What people decided, newest first.")
    files = FileSerializer(many=True, help_text="The files that the target left.")


CHANGES = ["regressed", "improved", "no clear change", "too few cases"]
CASES = ["regression", "improvement", "unchanged", "error", "added", "removed"]
CONCLUSIONS = ["regression", "no regression", "inconclusive"]


class SideSerializer(Described):
    """One of the two runs by its own figures."""

    suite = text_field("The slug of its suite.")
    suite_title = text_field("The title of its suite.")
    run = count_field("Its number in the suite.")
    target = text_field("What was asked.")
    judge = text_field("What judged; empty without a judge.")
    suite_version = count_field("The version of the suite it carried out.")
    repetitions = count_field("How often each case was carried out.")
    status = serializers.ChoiceField(choices=RunStatus.values, help_text="How far the work is.")
    cases = count_field("How many cases the figures are of.")
    executions = count_field("How many executions they are of.")
    passed = count_field("How many passed.")
    scored = count_field("How many have a score.")
    timed = count_field("How many have a latency.")
    errors = count_field("How many errored.")  # type: ignore[assignment]  # fields are taken out of the class
    reviews = count_field("How many decisions of reviewers count.")
    pass_rate = share_field("Passed of executions, errors being not passed")
    mean_score = share_field("The mean score")
    mean_latency_ms = number_field("The mean latency, milliseconds.")
    p95_latency_ms = number_field("95 of 100 are as fast or faster, milliseconds.")
    run_cost_usd = dollars_field("What the target cost")
    evaluation_cost_usd = dollars_field("What the judges cost")
    total_cost_usd = dollars_field("What is known of both")
    gates = GatesSerializer(help_text="Its two gates, over all its cases.")


class ConclusionSerializer(Described):
    """What came out, in words."""

    state = serializers.ChoiceField(choices=CONCLUSIONS, help_text="What came out.")
    sentence = text_field("It in full.")
    limits = text_field("Which tolerances are exceeded.")
    evidence = text_field("What the shared cases show.")
    kind = text_field("What kind of obstacle kept it from a conclusion; empty without one.")
    obstacle = text_field("That obstacle in words; empty without one.")
    gates = text_field(
        "Which gates the candidate failed, or was not judged by; empty where it passed both."
    )


class DifferenceSerializer(Described):
    """Something that differs beside the targets."""

    what = text_field("What it is.")
    text = text_field("How it differs.")
    spoils = flag_field("Whether verdicts can differ for it.")


class ToleranceSerializer(Described):
    """How much worse the candidate may be in one figure; reaching it is allowed."""

    value = serializers.FloatField(help_text="The number, in this unit.")
    unit = text_field("The unit.")


class TolerancesSerializer(Described):
    """The tolerances that were applied, each with its unit."""

    max_pass_rate_drop = ToleranceSerializer(help_text="A share from 0 to 1.")
    max_avg_score_drop = ToleranceSerializer(help_text="Points of 100.")
    max_latency_increase_pct = ToleranceSerializer(help_text="Percent.")


class ReasonSerializer(Described):
    """A tolerance that was exceeded; shares from 0 to 1, milliseconds and percent for latency."""

    measure = text_field("The figure.")
    baseline = serializers.FloatField(help_text="What it was.")
    candidate = serializers.FloatField(help_text="What it is.")
    change = serializers.FloatField(help_text="How it changed; percent for latency.")
    limit = serializers.FloatField(help_text="What was allowed; percent for latency.")
    text = text_field("All of it in words.")


class PairedSerializer(Described):
    """What the shared cases say of a figure, candidate minus baseline."""

    cases = count_field("How many cases it is of.")
    mean = number_field("The mean difference; null without a case.")
    low = number_field("The lower end of its 95% interval.")
    high = number_field("The upper end of its 95% interval.")
    p = number_field(
        "How likely chance alone does it, raised by Holm's rule, for pass rate and mean score as one"
        " family and for what was measured as another; null below ten cases."
    )
    smallest = number_field("The least change that so many cases show with 80% power.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields with the one whose name is a word of the language."""
        told = serializers.ChoiceField(choices=CHANGES, help_text="What that comes to.")
        return {**super().get_fields(), "class": told}


class EvidenceSerializer(Described):
    """What the shared cases prove, and how it was tested."""

    pass_rate = PairedSerializer(help_text="Of the share of passes, 0 to 1.")
    mean_score = PairedSerializer(help_text="Of the score, 0 to 1.")
    pass_rate_test = text_field("How the pass rate was tested.")
    other_test = text_field("How the rest was tested.")
    interval = text_field("What kind the intervals are.")
    level = serializers.FloatField(help_text="Below which p a change counts as proven.")
    resamples = count_field("How often the cases were drawn again.")
    seed = count_field("What makes the drawing repeatable.")
    correction = text_field("Whose rule allows for testing several figures.")
    metrics_tested = count_field(
        "For how many metrics, dimensions and evaluators Holm's rule raised theirs."
    )


class OwnMeanSerializer(Described):
    """A run's own mean."""

    mean = number_field("The mean; null without any.")
    executions = count_field("How many executions it is of.")


class MeasuredSerializer(PairedSerializer):
    """What the shared cases say of something that an evaluator measured, on its own scale."""

    kind = text_field("Whether it is an evaluator's score, a metric or a dimension.")
    evaluator = text_field("The evaluator's place in the tree.")
    key = text_field("The metric or dimension; empty for a score.")
    name = text_field("Its name.")
    scale = count_field("What it is at most.")
    baseline_mean = number_field("The mean of the baseline's shared cases.")
    candidate_mean = number_field("The mean of the candidate's shared cases.")
    interval_excludes_zero = flag_field("Whether the interval lies on one side of 0.")
    baseline_run = OwnMeanSerializer(help_text="Over all of the baseline.")
    candidate_run = OwnMeanSerializer(help_text="Over all of the candidate.")


class CaseSideSerializer(Described):
    """A case as one run left it."""

    verdict = verdict_field("Its verdict")
    state = text_field("Its verdict, or why it has none.")
    machine_verdict = verdict_field("Where people decided, its verdict without that")
    reviewed_verdict = verdict_field("Where people decided, its verdict with that")
    mean_score = share_field("The mean score of its repetitions")
    passed = count_field("How many repetitions passed.")
    scored = count_field("How many have a verdict.")
    executions = count_field("How many there are.")
    flaky = flag_field("Whether its repetitions differ in their verdicts.")
    outcomes = count_field("How many expected outcomes were judged.")
    outcomes_met = count_field("How many were met in every repetition.")
    latency_ms = number_field("The mean latency, milliseconds.")
    run_cost_usd = dollars_field("What the target cost")
    evaluation_cost_usd = dollars_field("What the judges cost")
    total_cost_usd = dollars_field("What is known of both")


class CaseChangeSerializer(Described):
    """How one case changed."""

    case = text_field("Its key.")
    title = text_field("Its title.")
    status = serializers.ChoiceField(choices=CASES, help_text="How it changed.")
    has_flipped = flag_field("Whether it went from pass to not-pass or back.")
    score_change = number_field("Candidate minus baseline, −1 to 1; null without both.")
    baseline = CaseSideSerializer(allow_null=True, help_text="Null where it was added.")
    candidate = CaseSideSerializer(allow_null=True, help_text="Null where it was removed.")


class ComparisonSerializer(Described):
    """Two runs compared: a breach of tolerances and the evidence are two facts."""

    baseline_run_id = count_field("The id of the run that the other is held against.")
    candidate_run_id = count_field("The id of the run that is judged.")
    baseline = SideSerializer(help_text="The run that the other is held against.")
    candidate = SideSerializer(help_text="The run that is judged.")
    verdict = ConclusionSerializer(help_text="What came out, in words.")
    differences = DifferenceSerializer(many=True, help_text="What differs beside the targets.")
    is_comparable = flag_field("Whether verdicts that differ can only differ for the target.")
    only_shared_cases = flag_field("Whether the figures are of the cases that both have alone.")
    tolerances = TolerancesSerializer(help_text="The tolerances that were applied.")
    regression_detected = flag_field("Whether any tolerance is exceeded.")
    reasons = ReasonSerializer(many=True, help_text="The tolerances that are exceeded.")
    pass_rate_change = number_field("Candidate minus baseline, −1 to 1.")
    score_change = number_field("Candidate minus baseline, −1 to 1.")
    latency_change_pct = number_field("By how much the mean latency grew, percent.")
    cases_in_both = count_field("How many cases both have.")
    shared_cases = count_field("How many of them have a verdict on both sides.")
    evidence = EvidenceSerializer(help_text="What those show.")
    metrics = MeasuredSerializer(many=True, help_text="What evaluators measured.")
    cases = CaseChangeSerializer(many=True, help_text="Every case, the candidate's order first.")


class CampaignSerializer(Described):
    """A campaign as lists show it."""

    id = count_field("Its id.")
    name = text_field("Its name.")
    suite = text_field("The slug of its suite.")
    headline = text_field("Who leads, in a sentence.")
    targets = names_field("Its targets, the best first.")
    is_active = flag_field("Whether any of its runs goes on.")
    created_at = time_field("When it was started.")
    created_by = text_or_none_field("Who started it.")


class LineSerializer(Described):
    """One run of the leaderboard."""

    rank = count_or_none_field("Its rank, from 1; null without one.")
    run = count_field("The number of the run in its suite.")
    run_id = count_field("The id of the run.")
    target = text_field("What was asked.")
    status = serializers.ChoiceField(choices=RunStatus.values, help_text="How far the work is.")
    done = count_field("How many executions have ended.")
    executions = count_field("Of how many.")
    passed = count_field("How many passed.")
    pass_rate = share_field("The share that passed")
    pass_rate_low = share_field("The lower end of its 95% interval")
    pass_rate_high = share_field("The upper end of its 95% interval")
    cases_gate = serializers.ChoiceField(choices=GATE_STATES, help_text="The Cases gate.")
    reviews = count_field("How many decisions of reviewers count in the pass rate.")
    mean_score = share_field("The mean score")
    mean_score_low = share_field("The lower end of its 95% interval")
    mean_score_high = share_field("The upper end of its 95% interval")
    scored = count_field("How many executions have a score.")
    metrics_gate = serializers.ChoiceField(choices=GATE_STATES, help_text="The Metrics gate.")
    pass_count = count_field("Cases that passed.")
    borderline_count = count_field("Cases that are borderline.")
    fail_count = count_field("Cases that failed.")
    error_count = count_field("Cases that errored.")
    mean_latency_ms = number_field("The mean latency, milliseconds.")
    run_cost_usd = dollars_field("What the target cost")
    evaluation_cost_usd = dollars_field("What the judges cost")
    total_cost_usd = dollars_field("What is known of both")
    cost_is_known_in_full = flag_field("Whether no more was spent than is known.")
    cost_per_passed_case_usd = dollars_field("What a passed case cost")
    pareto = serializers.ChoiceField(
        choices=["front", "dominated"],
        allow_null=True,
        help_text="Whether another run is both better and cheaper; null where that cannot be told.",
    )
    dominated_by_run = count_or_none_field("The number of that run.")
    shared_cases = count_or_none_field("How many cases it shares with the first.")
    p_value = share_field("How likely chance alone makes such a difference from the first")
    told_from_first = serializers.BooleanField(
        allow_null=True, help_text="Whether the difference from the first is proven."
    )


class WholeCampaignSerializer(CampaignSerializer):
    """A campaign with its leaderboard."""

    leaderboard = LineSerializer(many=True, help_text="Its runs, the best first.")
