"""What a share link holds: a comparison, a run or a result, each value with the detail level from which it leaves.

The level of a field whose value is a document or a list of documents is the least level of everything
in it. A field without a level keeps its value at home.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runs.compare.documents import ComparisonDoc
from runs.documents import CASE_NAMES, FIGURES, OUTPUTS, TRACES, Document
from runs.results.documents import RunDetailDoc
from runs.sharing.whitelist import shape

Figure = Annotated[str, FIGURES]
Name = Annotated[str, CASE_NAMES]
Count = Annotated[int, FIGURES]
Number = Annotated[float | None, FIGURES]
YesNo = Annotated[bool, FIGURES]
Remark = Annotated[str, OUTPUTS]


class TextDoc(Document):
    """The beginning of a text."""

    text: Remark
    size: Annotated[int, OUTPUTS]
    shown: Annotated[int, OUTPUTS]
    is_cut: Annotated[bool, OUTPUTS]


class TurnDoc(Document):
    """A message of the question."""

    role: Remark
    content: TextDoc


class FoundDoc(Document):
    """A hit or a miss of an evaluator."""

    passed: Annotated[bool, OUTPUTS]
    text: Remark
    evidence: Remark


class JudgedOutcomeDoc(Document):
    """An expected outcome; whether it was met is a figure, what it says is not."""

    passed: YesNo
    text: Remark
    justification: Remark


class StepDoc(Document):
    """A step of the target."""

    type: Annotated[str, TRACES]
    name: Annotated[str, TRACES]
    started_ms: Annotated[float | None, TRACES] = None
    duration_ms: Annotated[float | None, TRACES] = None
    input_tokens: Annotated[int | None, TRACES] = None
    output_tokens: Annotated[int | None, TRACES] = None
    input: Annotated[TextDoc | None, TRACES] = None
    output: Annotated[TextDoc | None, TRACES] = None
    error: Annotated[TextDoc | None, TRACES] = None


class QuestionDoc(Document):
    """The question of a case, and what a good answer is."""

    question: list[TurnDoc] = []
    question_count: Annotated[int, OUTPUTS] = 0
    expected: TextDoc | None = None


class ResponseDoc(Document):
    """What evaluators found in an answer, and the steps to it."""

    remarks: list[FoundDoc] = []
    remark_count: Annotated[int, OUTPUTS] = 0
    steps: list[StepDoc] = []
    step_count: Annotated[int, TRACES] = 0


class AnswerDoc(ResponseDoc):
    """The answer of one run to a case, of the repetition that went worst."""

    run: Annotated[int, OUTPUTS]
    repetition: Annotated[int, OUTPUTS]
    repetitions: Annotated[int, OUTPUTS]
    state: Remark
    output: TextDoc
    error: Remark
    outcomes: Annotated[list[JudgedOutcomeDoc], OUTPUTS]


class SharedCaseDoc(QuestionDoc):
    """A case by its place in the list, which says nothing of its name."""

    place: Count
    key: Name
    title: Name
    answers: list[AnswerDoc] = []


class VerdictDoc(Document):
    """The verdict in a word and a sentence."""

    state: Figure
    word: Figure
    headline: Figure = ""
    tone: Figure
    sentence: Figure


class RuleDoc(Document):
    """A rule or a limit by name."""

    name: Figure
    value: Figure


class StateCountsDoc(Document):
    """How many there are in each state."""

    passed: Count = Field(alias="pass")
    borderline: Count
    fail: Count
    error: Count
    running: Count
    waiting: Count
    cancelled: Count


class SharedGateDoc(Document):
    """A gate with its name."""

    name: Figure
    share: Number
    limit: Number
    state: Figure
    note: Figure


class SharedMetricDoc(Document):
    """The mean of a metric."""

    name: Figure
    tier: Figure
    mean: Number
    binary: YesNo
    judged: Count


class HeadlineFigureDoc(Document):
    """A figure of the headline with notes of n of N."""

    name: Figure
    value: Figure
    notes: Annotated[list[str], FIGURES]


class SharedDoc(Document):
    """What every shared document begins with."""

    version: Count
    kind: Figure
    depth: Figure
    made_at: Figure
    heading: Figure
    verdict: VerdictDoc
    facts: Annotated[list[str], FIGURES]
    suites: Annotated[list[str], CASE_NAMES]
    policy: list[RuleDoc]


class CaseListDoc(SharedDoc):
    """How many cases there are, are listed, and are listed with texts."""

    case_count: Count
    shown_count: Count
    text_count: Count


class SharedSideDoc(Document):
    """One of two runs."""

    role: Figure
    number: Count
    target: Figure
    status: Figure
    counts: StateCountsDoc
    gates: list[SharedGateDoc]


class ChangeFigureDoc(Document):
    """How a figure of the headline changed, with its limit."""

    name: Figure
    change: Figure
    before: Figure
    after: Figure
    note: Figure
    limit: Figure
    state: Figure
    tone: Figure
    said: Annotated[list[str], FIGURES]


class SharedDifferenceDoc(Document):
    """A difference besides the targets; its text may quote a prompt."""

    what: Figure
    spoils: YesNo
    text: Remark


class BarDoc(Document):
    """A bar from zero with its interval, as percentages of the width."""

    x: Figure = ""
    width: Figure = ""
    bar_tone: Figure = ""
    low: Figure = ""
    high: Figure = ""


class MeasuredRowDoc(BarDoc):
    """A figure that evaluators measured."""

    name: Figure
    path: Name
    means: Figure
    change: Figure
    tone: Figure
    said: Figure
    note: Figure


class EvaluatorRowDoc(MeasuredRowDoc):
    """The score of an evaluator, whose name a person gave."""

    name: Name


class MetricGroupDoc(Document):
    """The metrics, or the dimensions, of the shared cases."""

    title: Figure
    scale: Figure
    axis: Figure
    rows: list[MeasuredRowDoc]


class EvaluatorGroupDoc(Document):
    """The evaluators of the shared cases."""

    title: Figure
    scale: Figure
    axis: Figure
    rows: list[EvaluatorRowDoc]


class ChangeCountDoc(Document):
    """How many cases changed in one way."""

    label: Figure
    count: Count
    icon: Figure
    tone: Figure


class CellDoc(Document):
    """How many cases went from one verdict to another."""

    count: Count
    tone: Figure
    is_same: YesNo


class MatrixRowDoc(Document):
    """The cases of one verdict in the baseline, by their verdict in the candidate."""

    verdict: Figure
    cells: list[CellDoc]


class ComparedCaseDoc(SharedCaseDoc, BarDoc):
    """A case of both runs and what changed between them."""

    label: Figure
    icon: Figure
    tone: Figure
    before: Figure
    after: Figure
    before_people: Figure
    after_people: Figure
    only: Figure
    before_score: Figure
    after_score: Figure
    change: Figure
    met: Figure
    cost: Figure
    latency: Figure


class SharedComparison(CaseListDoc):
    """Two runs compared."""

    sides: list[SharedSideDoc]
    measures: list[ChangeFigureDoc]
    tolerance: Figure
    evidence: Figure
    differences: list[SharedDifferenceDoc]
    is_comparable: YesNo
    only_shared: YesNo
    unfinished: Annotated[list[str], FIGURES]
    metrics: list[MetricGroupDoc]
    evaluators: list[EvaluatorGroupDoc]
    changes: list[ChangeCountDoc]
    matrix: list[MatrixRowDoc]
    flips: Count
    shared: Count
    out_of_grid: Count
    figures: ComparisonDoc
    cases: list[ComparedCaseDoc]


class RunCaseRowDoc(SharedCaseDoc):
    """A case of the run over its repetitions."""

    state: Figure
    score: Figure
    passed: Count
    executions: Count
    latency: Figure
    cost: Figure
    people: Figure


class SharedRun(CaseListDoc):
    """One run; its gates, metrics and dimensions are among its figures."""

    counts: StateCountsDoc
    measures: list[HeadlineFigureDoc]
    figures: RunDetailDoc
    cases: list[RunCaseRowDoc]


class SharedEvaluatorDoc(Document):
    """An evaluator of the tree that led to the verdict."""

    depth: Count
    name: Name
    kind: Figure
    icon: Figure
    weight: Figure
    state: Figure
    score: Figure
    verdict: Figure
    is_decisive: YesNo
    note: Remark
    reasoning: Remark


class SmallestChangeDoc(Document):
    """The smallest change to another verdict."""

    text: Remark
    is_small: Annotated[bool, OUTPUTS]


class RuleStepDoc(Document):
    """A step on the way to the verdict."""

    text: Remark
    path: Annotated[str | None, OUTPUTS]
    passed: Annotated[bool | None, OUTPUTS]


class SharedResult(SharedDoc, QuestionDoc, ResponseDoc):
    """One result."""

    measures: list[HeadlineFigureDoc]
    key: Name
    title: Name
    decided_by: Name
    stage: Figure
    error: Remark
    warnings: Annotated[list[str], OUTPUTS]
    metrics: list[SharedMetricDoc]
    evaluators: list[SharedEvaluatorDoc]
    smallest_change: SmallestChangeDoc | None = None
    rules: list[RuleStepDoc] = []
    rule_count: Annotated[int, OUTPUTS] = 0
    outcomes_met: Count
    outcomes: list[JudgedOutcomeDoc]


KINDS: dict[str, type[SharedDoc]] = {
    "comparison": SharedComparison,
    "run": SharedRun,
    "result": SharedResult,
}
SHAPES = {kind: shape(model) for kind, model in KINDS.items()}
