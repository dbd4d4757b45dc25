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

FigureText = Annotated[str, FIGURES]
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
    """A step of the target; `depth` counts the steps that it is part of.

    A link from before steps had costs is a snapshot like any other: its steps stay without one.
    """

    depth: Annotated[int, TRACES] = 0
    type: Annotated[str, TRACES]
    name: Annotated[str, TRACES]
    started_ms: Annotated[float | None, TRACES] = None
    duration_ms: Annotated[float | None, TRACES] = None
    input_tokens: Annotated[int | None, TRACES] = None
    output_tokens: Annotated[int | None, TRACES] = None
    cost: Annotated[str, TRACES] = ""
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
    outcome_count: Annotated[int, OUTPUTS] = 0


class SharedCaseDoc(QuestionDoc):
    """A case. Its place in the order of the suite is a figure; its key and title are names."""

    place: Count
    key: Name
    title: Name
    answers: list[AnswerDoc] = []


class VerdictDoc(Document):
    """The verdict, as a word and as a sentence."""

    state: FigureText
    word: FigureText
    headline: FigureText = ""
    tone: FigureText
    sentence: FigureText


class RuleDoc(Document):
    """A rule or a limit: its name and its value."""

    name: FigureText
    value: FigureText


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

    name: FigureText
    share: Number
    limit: Number
    state: FigureText
    note: FigureText


class SharedMetricDoc(Document):
    """The mean of a metric."""

    name: FigureText
    tier: FigureText
    mean: Number
    binary: YesNo
    judged: Count


class HeadlineFigureDoc(Document):
    """A figure of the headline, with notes such as n of N."""

    name: FigureText
    value: FigureText
    notes: Annotated[list[str], FIGURES]


class SharedReplyDoc(Document):
    """A comment, or a reply to one: its text as Markdown, "" for one that was deleted."""

    id: Count
    author: FigureText
    written_on: FigureText
    text: FigureText
    is_resolved: YesNo


class SharedCommentDoc(SharedReplyDoc):
    """A thread of comments. Its maker chose to share it, whatever the detail level."""

    replies: list[SharedReplyDoc] = []


class SharedDoc(Document):
    """The fields that every shared document begins with; `older_comments` counts those that were left out."""

    version: Count
    kind: FigureText
    depth: FigureText
    made_at: FigureText
    heading: FigureText
    verdict: VerdictDoc
    facts: Annotated[list[str], FIGURES]
    suites: Annotated[list[str], CASE_NAMES]
    policy: list[RuleDoc]
    comments: list[SharedCommentDoc] = []
    older_comments: Count = 0


class CaseListDoc(SharedDoc):
    """The number of all cases, of those listed, and of those listed with texts."""

    case_count: Count
    shown_count: Count
    text_count: Count


class SharedSideDoc(Document):
    """One of two runs."""

    role: FigureText
    number: Count
    target: FigureText
    status: FigureText
    counts: StateCountsDoc
    gates: list[SharedGateDoc]


class ChangeFigureDoc(Document):
    """A change in a figure of the headline, with its limit."""

    name: FigureText
    change: FigureText
    before: FigureText
    after: FigureText
    note: FigureText
    limit: FigureText
    state: FigureText
    tone: FigureText
    notes: Annotated[list[str], FIGURES]
    method: Annotated[list[str], FIGURES]


class SharedDifferenceDoc(Document):
    """A difference besides the targets; its text may quote a prompt."""

    what: FigureText
    spoils: YesNo
    text: Remark


class BarDoc(Document):
    """A bar from zero with its interval, as percentages of the width."""

    x: FigureText = ""
    width: FigureText = ""
    bar_tone: FigureText = ""
    low: FigureText = ""
    high: FigureText = ""


class MeasuredRowDoc(BarDoc):
    """A measured figure of both runs."""

    name: FigureText
    path: Name
    means: FigureText
    change: FigureText
    tone: FigureText
    interval: FigureText
    note: FigureText
    mark: FigureText = ""
    mark_tone: FigureText = ""


class InnerRowDoc(MeasuredRowDoc):
    """The score of an evaluator; members choose its name."""

    name: Name


class EvaluatorRowDoc(InnerRowDoc):
    """A top-level evaluator with those inside it."""

    inner: list[InnerRowDoc] = []


class MetricGroupDoc(Document):
    """The metrics, or the dimensions, of the shared cases."""

    title: FigureText
    scale: FigureText
    axis: FigureText
    rows: list[MeasuredRowDoc]


class EvaluatorGroupDoc(Document):
    """The evaluators of the shared cases."""

    title: FigureText
    scale: FigureText
    axis: FigureText
    rows: list[EvaluatorRowDoc]


class ChangeCountDoc(Document):
    """The number of cases with one kind of change."""

    label: FigureText
    count: Count
    icon: FigureText
    tone: FigureText


class CellDoc(Document):
    """The number of cases that went from one verdict to another."""

    count: Count
    tone: FigureText
    is_same: YesNo


class MatrixRowDoc(Document):
    """The cases of one verdict in the baseline, by their verdict in the candidate."""

    verdict: FigureText
    cells: list[CellDoc]


class ComparedCaseDoc(SharedCaseDoc, BarDoc):
    """A case of both runs with the changes between them."""

    label: FigureText
    icon: FigureText
    tone: FigureText
    before: FigureText
    after: FigureText
    before_people: FigureText
    after_people: FigureText
    only: FigureText
    before_score: FigureText
    after_score: FigureText
    change: FigureText
    met: FigureText
    cost: FigureText
    latency: FigureText


class SharedComparison(CaseListDoc):
    """Two runs compared."""

    sides: list[SharedSideDoc]
    measures: list[ChangeFigureDoc]
    tolerance: FigureText
    evidence: FigureText
    differences: list[SharedDifferenceDoc]
    comparability: FigureText
    only_shared: YesNo
    has_repetitions: YesNo
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

    state: FigureText
    score: FigureText
    passed: Count
    results: Count
    latency: FigureText
    cost: FigureText
    people: FigureText


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
    kind: FigureText
    icon: FigureText
    weight: FigureText
    state: FigureText
    score: FigureText
    pass_mark: FigureText = ""
    reaches_mark: Annotated[bool | None, FIGURES] = None
    verdict: FigureText
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
    cause: Remark
    stage: FigureText
    error: Remark
    warnings: Annotated[list[str], OUTPUTS]
    metrics: list[SharedMetricDoc]
    evaluators: list[SharedEvaluatorDoc]
    smallest_change: SmallestChangeDoc | None = None
    rules: list[RuleStepDoc] = []
    rule_count: Annotated[int, OUTPUTS] = 0
    outcomes_met: Count
    outcomes: list[JudgedOutcomeDoc]
    outcome_count: Count = 0


KINDS: dict[str, type[SharedDoc]] = {
    "comparison": SharedComparison,
    "run": SharedRun,
    "result": SharedResult,
}
WHITELISTS = {kind: build_whitelist(model) for kind, model in KINDS.items()}
