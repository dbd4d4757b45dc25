"""The documents behind share links, of a comparison, a run or a result, each field with its detail level.

The detail level of a field is the lowest level that shows its value. If the value is a document or a
list of documents, nothing in it is shown below that level. A value whose field has no level is never shared.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runs.compare.documents import ComparisonDoc
from runs.documents import CASE_NAMES, FIGURES, OUTPUTS, TRACES, Document
from runs.results.documents import RunDetailDoc
from runs.sharing.whitelist import build_whitelist

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


class SharedFindingDoc(Document):
    """A hit or a miss that an evaluator found."""

    passed: Annotated[bool, OUTPUTS]
    text: Remark
    evidence: Remark


class JudgedOutcomeDoc(Document):
    """An expected outcome. Whether it was met is a figure; its texts are not."""

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
    """The question of a case and its expected output."""

    question: list[TurnDoc] = []
    question_count: Annotated[int, OUTPUTS] = 0
    expected: TextDoc | None = None


class ResponseDoc(Document):
    """The findings of evaluators in an answer, and the steps that led to it."""

    remarks: list[SharedFindingDoc] = []
    remark_count: Annotated[int, OUTPUTS] = 0
    steps: list[StepDoc] = []
    step_count: Annotated[int, TRACES] = 0


class AnswerDoc(ResponseDoc):
    """The answer of a run to a case, from its worst repetition."""

    run: Annotated[int, OUTPUTS]
    repetition: Annotated[int, OUTPUTS]
    repetitions: Annotated[int, OUTPUTS]
    state: Remark
    output: TextDoc
    error: Remark
    outcomes: Annotated[list[JudgedOutcomeDoc], OUTPUTS]


class SharedCaseDoc(QuestionDoc):
    """A case. Its place in the list is a figure; its key and title are names."""

    place: Count
    key: Name
    title: Name
    answers: list[AnswerDoc] = []


class VerdictDoc(Document):
    """The verdict, as a word and as a sentence."""

    state: Figure
    word: Figure
    headline: Figure = ""
    tone: Figure
    sentence: Figure


class RuleDoc(Document):
    """A rule or a limit: its name and its value."""

    name: Figure
    value: Figure


class StateCountsDoc(Document):
    """The number of cases in each state."""

    passed: Count = Field(alias="pass")
    borderline: Count
    fail: Count
    error: Count
    running: Count
    waiting: Count
    cancelled: Count


class SharedGateDoc(Document):
    """A gate with its figure and limit."""

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
    """A figure of the headline, with notes such as n of N."""

    name: Figure
    value: Figure
    notes: Annotated[list[str], FIGURES]


class SharedDoc(Document):
    """The fields that every shared document begins with."""

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
    """The number of all cases, of those listed, and of those listed with texts."""

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
    """A change in a figure of the headline, with its limit."""

    name: Figure
    change: Figure
    before: Figure
    after: Figure
    note: Figure
    limit: Figure
    state: Figure
    tone: Figure
    notes: Annotated[list[str], FIGURES]


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
    """A measured figure of both runs."""

    name: Figure
    path: Name
    means: Figure
    change: Figure
    tone: Figure
    interval: Figure
    note: Figure


class EvaluatorRowDoc(MeasuredRowDoc):
    """The score of an evaluator; members choose its name."""

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
    """The number of cases with one kind of change."""

    label: Figure
    count: Count
    icon: Figure
    tone: Figure


class CellDoc(Document):
    """The number of cases that went from one verdict to another."""

    count: Count
    tone: Figure
    is_same: YesNo


class MatrixRowDoc(Document):
    """The cases of one verdict in the baseline, by their verdict in the candidate."""

    verdict: Figure
    cells: list[CellDoc]


class ComparedCaseDoc(SharedCaseDoc, BarDoc):
    """A case of both runs with the changes between them."""

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
    """A step in the decision of the verdict."""

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
WHITELISTS = {kind: build_whitelist(model) for kind, model in KINDS.items()}
