"""Import results: a file becomes finished runs, one for each target it names."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from evaluators.kinds import get_kind, kind_for_spelling, read_config
from evaluators.kinds._base import Output
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.models import AuditEntry
from evaluators.scoring.decision import (
    VERDICT_WORDS,
    CausePart,
    Decision,
    TraceStep,
    VerdictCause,
)
from evaluators.scoring.numbers import format_number, rounded, sum_known, weighted_mean
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import rules_for
from evaluators.scoring.tree import (
    COMPOSITE,
    ROOT_PATH,
    Aggregator,
    EvaluatorSpec,
    below,
    validate,
    walk,
)
from evaluators.scoring.types import (
    DomainError,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Usage,
    Verdict,
)
from runs.engine.plan import (
    DELIBERATION_KIND,
    OUTCOMES_PATH,
    Plan,
    TargetPlan,
    case_tree,
    cases_hash,
    content_hash,
)
from runs.files.importing import check_slug, import_content
from runs.finishing import finish_run
from runs.formats.results_reading import ReadResult, read_results
from runs.formats.results_writing import EvaluatorLine, ResultLine, walk_lines
from runs.formats.suite_evaluators import default_children, make_root
from runs.formats.suite_files import make_slug
from runs.models.database import database_now, insert_rows
from runs.models.results import (
    EvaluatorScore,
    ExternalScore,
    Result,
    ResultOutput,
    ResultStatus,
)
from runs.models.run_cases import RunCase
from runs.models.runs import Run, RunStatus
from runs.models.search import ResultText
from runs.models.stored import SCORE_COLUMNS, score_rows
from runs.models.suites import Case, Suite
from runs.specs.external_scores import COLUMNS
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.target_kinds._outputs import (
    messages_as_json,
    read_conversation,
    trace_as_json,
    usage_as_json,
)

NO_INPUT = "The file of results does not contain the input."
MAX_TITLE_LENGTH = 200
MAX_NAMED = 100
REMEDY = "choose the suite these results are of, import its file first, or name a new suite"
COPIED = (
    *("title", "tags", "input", "expected_output", "expected_outcomes", "criteria", "metadata"),
    "recorded_output",
)


class CaseNotInSuiteError(UnreadableFileError):
    """A file holds results of cases that the suite does not have."""

    code = "not_of_this_suite"


def check_cases(suite: Suite, results: Sequence[ReadResult], file: str) -> None:
    """Raise CaseNotInSuiteError with the first line of each case that the suite does not have."""
    known = set(suite.cases.filter(is_current=True).values_list("key", flat=True))
    unknown: dict[str, int] = {}
    for result in results:
        if result.result.eval_id not in known:
            unknown.setdefault(result.result.eval_id, result.line)
    if not unknown:
        return
    problems = [
        Problem(f"{suite.slug} has no case {key}; {REMEDY}", file, line, key)
        for key, line in islice(unknown.items(), MAX_NAMED)
    ]
    left = len(unknown) - MAX_NAMED
    if left > 0:
        problems.append(Problem(f"and {left} more that {suite.slug} does not have", file))
    raise CaseNotInSuiteError(problems)


class SuiteExistsError(DomainError):
    """A new suite was to be made from results, but there is one of that name."""

    code = "suite_exists"


def make_suite(named: str, results: Sequence[ReadResult], by: User | None) -> Suite:
    """Make a suite from the cases of the lines, with the default judge."""
    cases: dict[str, CaseSpec] = {}
    for entry in results:
        key = entry.result.eval_id
        if key not in cases:
            cases[key] = CaseSpec(
                key=key,
                title=entry.title,
                tags=entry.tags,
                input=entry.input or ({"role": "user", "content": NO_INPUT},),
                expected_output=entry.expected_output,
                expected_outcomes=tuple(outcome.text for outcome in entry.result.outcomes),
                criteria=entry.criteria,
                metadata=dict(entry.metadata),
            )
    slug = make_slug(named) or "results"
    root = make_root(default_children())
    content = SuiteWithCases(
        slug=slug, title=named[:MAX_TITLE_LENGTH], evaluators=root, cases=tuple(cases.values())
    )
    note = "Created from the cases in a file of results"
    return import_content(content, imported_by=by, note=note).suite


def scored_revisions(
    suite: Suite,
    root: EvaluatorSpec,
    current: Mapping[str, Case],
    scored: Sequence[tuple[str, EvaluatorSpec]],
) -> list[Case]:
    """Return, for every result, the revision of its case that is scored by the result's tree.

    That is the current revision if its tree matches; else an earlier one with that tree, which is made if
    there is none. The suite itself does not change.
    """
    made: dict[tuple[str, str], Case] = {}
    latest = dict(
        suite.cases.filter(key__in=current).values_list("key").annotate(last=Max("revision"))
    )
    cases = []
    for key, tree in scored:
        case = current[key]
        if case_tree(root, case.evaluators, append=case.evaluators_append) == tree:
            cases.append(case)
            continue
        columns = {name: getattr(case, name) for name in COPIED}
        columns |= {"evaluators": tree.as_json(), "evaluators_append": False}
        digest = content_hash(columns)
        if (key, digest) not in made:
            made[key, digest] = _revision(suite, case, columns, digest, latest)
        cases.append(made[key, digest])
    return cases


def _revision(
    suite: Suite, case: Case, columns: Mapping[str, Any], digest: str, latest: dict[str, int]
) -> Case:
    earlier = suite.cases.filter(key=case.key, content_hash=digest).order_by("-revision").first()
    if earlier is not None:
        return earlier
    latest[case.key] += 1
    place = {"key": case.key, "position": case.position, "is_current": False}
    return Case.objects.create(
        suite=suite, revision=latest[case.key], content_hash=digest, **place, **columns
    )


# A file's figure may differ from ours by this much, because others round.
NEAR = 1e-6


def evaluator_details(evaluator: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    """Return the metrics, final evaluation or votes of an evaluator; empty without any."""
    if evaluator.metrics:
        return _metrics_details(evaluator, supplies_outcomes=supplies_outcomes)
    if evaluator.final_evaluation:
        return _evaluation_details(evaluator.final_evaluation)
    return _vote_details(evaluator) if evaluator.rounds else {}


def _metrics_details(evaluator: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    scores = {metric["key"]: metric["score"] for metric in evaluator.metrics}
    # A mean of several samples hides the samples, and only whole scores can be rescored.
    is_one_sample = all(score == int(score) for score in scores.values())
    samples = [{key: int(score) for key, score in scores.items()}] if is_one_sample else []
    return {
        "reasoning": evaluator.reasoning,
        "supplies_outcomes": supplies_outcomes,
        "metrics": [dict(metric) for metric in evaluator.metrics],
        "samples": samples,
    }


def _evaluation_details(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    overall = evaluation["judge_overall"]
    return {
        "final_evaluation": dict(evaluation),
        "judge_overall": overall,
        "overall_scores": [overall["score"]],
        "evidence": overall["evidence"],
        "dimensions": [
            {
                "key": key,
                "name": key.replace("_", " ").capitalize(),
                "policy": "judge_only",
                "deterministic": evaluation["deterministic_dimensions"].get(key),
                "judge": evaluation["judge_dimensions"].get(key),
                "final": score,
            }
            for key, score in evaluation["final_dimensions"].items()
        ],
    }


def _vote_details(evaluator: EvaluatorLine) -> dict[str, Any]:
    """Return every vote, and their consensus if it equals the file's score."""
    votes = {"rounds": [dict(held) for held in evaluator.rounds]}
    own_score = (
        evaluator.score
        if evaluator.score is None or not evaluator.is_negated
        else 1.0 - evaluator.score
    )
    if own_score is None:
        return votes
    last = evaluator.rounds[-1]["votes"]
    slugs = [vote["slug"] for vote in last if not vote["agent"]]
    agents = [vote["agent"] for vote in last if vote["agent"]]
    models = {"models": slugs} if all(slugs) else {"judges": len(slugs)}
    panel = {"agents": agents, **models}
    asked = sum(not held["breaks_tie"] for held in evaluator.rounds)
    rescore = get_kind(DELIBERATION_KIND).rescore
    for way in ("midpoint", "mean"):
        settings = {**panel, "rounds": asked, "score_by": way}
        try:
            rescored = rescore(read_config(DELIBERATION_KIND, settings), votes) if rescore else None
        except DomainError:
            return votes
        if rescored is not None and abs(rescored.score - own_score) <= NEAR:
            return dict(rescored.details)
    return votes


IMPORTED = "imported"
# In our own results files, reasons of forced fails begin with these (SCORING §4.5, §8).
FORCING_WORDS = ("required: ", "gate: ", "all or nothing: ")
MAX_CELL_LENGTH = 300


@dataclass(frozen=True, slots=True)
class ImportedDecision:
    """One result with the tree that scored it, the outcomes of its evaluators, and the decision."""

    tree: EvaluatorSpec
    outcomes: Mapping[str, Outcome]
    decision: Decision


def decide_result(line: ResultLine, tree: EvaluatorSpec, policy: PolicySpec) -> ImportedDecision:
    """Return a result with its decision: by our rules if they agree with the file, else as in the file.

    Raises TreeError for evaluators that do not form a tree.
    """
    outcomes = line_outcomes(line, tree)
    expected = [outcome.text for outcome in line.outcomes]
    computed = rules_for(tree, policy).decide(
        outcomes, expected_outcomes=expected, outcome_results=line.outcomes or None
    )
    if line.outcomes and not any(map(_supplies_outcomes, outcomes.values())):
        outcomes[OUTCOMES_PATH] = _outcomes_score(line)
    if line.status == "error":
        step = TraceStep(f"The file says: {line.error}", passed=False)
        told_error = Decision(status="error", error=line.error, nodes=computed.nodes, trace=(step,))
        decision = replace(told_error, rule=IMPORTED, outcomes=computed.outcomes)
    else:
        decision = _as_in_file(line, computed, policy)
    return ImportedDecision(tree, outcomes, replace(decision, cause=_cause(line, decision)))


def _cause(line: ResultLine, decision: Decision) -> VerdictCause | None:
    """Return the file's cause, which may quote what the file does not contain, if it is of this verdict.

    Else, or if it is the same, return ours, which knows its evaluators.
    """
    start = f"{VERDICT_WORDS[decision.verdict]}: "
    if str(decision.cause) == line.cause or not line.cause.startswith(start):
        return decision.cause
    reason = CausePart(line.cause.removeprefix(start))
    return VerdictCause(VERDICT_WORDS[decision.verdict], (reason,))


def is_forced(line: ResultLine, decision: Decision, policy: PolicySpec) -> bool:
    """Tell whether a rule forced the fail regardless of the score, by our rules or by the file's reason."""
    if decision.verdict is not Verdict.FAIL:
        return False
    if decision.rule != IMPORTED:
        return decision.is_forced
    own = None if line.score is None else policy.verdict_for(line.score)
    return own is not Verdict.FAIL or line.decided_by.startswith(FORCING_WORDS)


def _as_in_file(line: ResultLine, decision: Decision, policy: PolicySpec) -> Decision:
    """Return our decision if the file agrees, else the file's decision with our trace.

    If the file gives another reason for the same verdict and score, the file is trusted: it may know more
    about its evaluators than it contains.
    """
    score = None if line.score is None else rounded(line.score)
    verdict = Verdict(line.verdict) if line.verdict else None
    if verdict is None and score is not None:
        verdict = decision.verdict or policy.verdict_for(score)
    is_same = decision.status == "scored" and decision.verdict == verdict
    if is_same and _is_near(decision.score, score):
        decision = decision if score is None else replace(decision, score=score)
        if line.decided_by in ("", decision.decided_by[:MAX_CELL_LENGTH]):
            return decision
        score = decision.score
    message = "" if score is None else f" at {format_number(score)}"
    cell = line.decided_by or f"imported: {verdict or 'no verdict'}{message}"
    step = TraceStep(f"The file says: {cell}", passed=verdict is Verdict.PASS)
    return replace(
        decision,
        status="scored",
        verdict=verdict,
        score=score,
        decided_by=cell,
        rule=IMPORTED,
        evaluator=None,
        error=None,
        flip=None,
        cause=None,
        trace=(step, *decision.trace),
    )


def _is_near(ours: float | None, theirs: float | None) -> bool:
    """Tell whether our score equals the file's, up to rounding; without a score in the file it does."""
    if ours is None or theirs is None:
        return theirs is None
    return abs(ours - theirs) <= NEAR


def line_outcomes(line: ResultLine, tree: EvaluatorSpec) -> dict[str, Outcome]:
    """Return the outcomes of leaves by path, and of composites whose rule is unknown."""
    lines_by_path = dict(walk_lines(line.evaluators))
    outcomes: dict[str, Outcome] = {}
    for path, node in walk(tree):
        if node.aggregator is not None and not node.aggregator.is_judging:
            continue
        evaluator = lines_by_path.get(path)
        if evaluator is not None:
            outcomes[path] = _outcome(evaluator, line.outcomes)
        elif path == ROOT_PATH and line.score is not None:
            outcomes[path] = Score(line.score)
    return outcomes


def _outcome(evaluator: EvaluatorLine, expected: tuple[OutcomeResult, ...]) -> Outcome:
    if evaluator.status == "skipped":
        return Skipped(evaluator.reasoning or "it was not run")
    if evaluator.score is None:
        details = evaluator_details(evaluator, supplies_outcomes=False)
        reason = evaluator.reasoning or "the file has no score of it"
        return Unscored(reason, details=details, usage=evaluator.usage)
    score = 1.0 - evaluator.score if evaluator.is_negated else evaluator.score
    return Score(
        score,
        raw_score=evaluator.raw_score,
        scale=evaluator.scale,
        reasoning=evaluator.reasoning,
        findings=evaluator.findings,
        details=evaluator_details(evaluator, supplies_outcomes=bool(expected)),
        usage=evaluator.usage,
    )


def _supplies_outcomes(outcome: Outcome) -> bool:
    return isinstance(outcome, Score) and bool(outcome.details.get("supplies_outcomes"))


def _outcomes_score(line: ResultLine) -> Score:
    """Return the outcomes as their judge's score, with the file's details of that judge."""
    share = sum(outcome.passed for outcome in line.outcomes) / len(line.outcomes)
    judge = line.outcomes_judge
    if judge is None:
        return Score(share, outcomes=line.outcomes)
    return Score(
        share,
        reasoning=judge.reasoning,
        findings=judge.findings,
        usage=judge.usage,
        outcomes=line.outcomes,
    )


# For a rule that is not in the file: the composite's score is used as it is.
AS_IN_FILE = {"type": "code_judge"}
USUAL = {"type": "weighted_average"}


def common_tree(
    lines: Sequence[ResultLine], own: EvaluatorSpec | None, policy: PolicySpec
) -> EvaluatorSpec:
    """Return the tree that scored most results of a file.

    Kinds and settings come from the suite's own tree where it has the same evaluators.
    """
    shapes = Counter(tree_shape(line.evaluators) for line in lines if line.evaluators)
    if not shapes:
        return own or _root((), AS_IN_FILE, None)
    shape = shapes.most_common(1)[0][0]
    alike = [line for line in lines if line.evaluators and tree_shape(line.evaluators) == shape]
    return evaluator_tree(alike, own, policy)


def evaluator_tree(
    lines: Sequence[ResultLine], own: EvaluatorSpec | None, policy: PolicySpec
) -> EvaluatorSpec:
    """Return the tree of results whose evaluators are alike.

    The outermost rule is the suite's, else the weighted average, where that gives every score of
    the file; else the scores are taken from the file.
    """
    known = dict(walk(own)) if own is not None else {}
    unruly = {path for line in lines for path in _unruly(line)}
    children = tuple(
        _node(evaluator, evaluator.name, known, unruly) for evaluator in lines[0].evaluators
    )
    rules = [dict(own.as_json()["config"]["aggregator"])] if own is not None else []
    for rule in (*rules, USUAL):
        tree = _root(children, rule, own)
        if _is_sound(tree) and all(_gives(tree, line, policy) for line in lines):
            return tree
    return _root(children, AS_IN_FILE, own)


def tree_shape(evaluators: Iterable[EvaluatorLine]) -> tuple[Any, ...]:
    """Return what makes trees alike: names, types, weights and nesting."""
    return tuple(
        (
            evaluator.name,
            evaluator.type,
            evaluator.weight,
            evaluator.is_negated,
            tree_shape(evaluator.children),
        )
        for evaluator in evaluators
    )


def _unruly(line: ResultLine) -> Iterator[str]:
    """Yield the composites without a rule whose score is not the weighted average of their children."""
    for path, evaluator in walk_lines(line.evaluators):
        if evaluator.score is None or evaluator.aggregator:
            continue
        scored = [child for child in evaluator.children if child.score is not None]
        average = weighted_mean(
            [child.score or 0.0 for child in scored], [child.weight for child in scored]
        )
        if (
            average is None
            or abs(average - evaluator.score) > NEAR
            or len(scored) < len(evaluator.children)
        ):
            yield path


def _node(
    evaluator: EvaluatorLine, path: str, known: Mapping[str, EvaluatorSpec], unruly: Collection[str]
) -> EvaluatorSpec:
    own = known.get(path)
    children = tuple(
        _node(child, below(path, child.name), known, unruly) for child in evaluator.children
    )
    is_composite = evaluator.aggregator is not None
    fits = (
        own is not None and own.is_composite == is_composite and own.negate == evaluator.is_negated
    )
    preset = dict(kind_for_spelling(evaluator.spelling)[1]) if evaluator.spelling else {}
    facts: dict[str, Any] = {
        "kind": evaluator.type,
        "negate": evaluator.is_negated,
        "config": preset,
    }
    if own is not None and fits:
        facts = {"kind": own.kind, "negate": own.negate, "config": own.config}
        facts |= {"required": own.required, "required_below": own.required_below}
    if is_composite:
        facts |= {
            "kind": COMPOSITE,
            "config": {"aggregator": _rule(evaluator, own if fits else None, path in unruly)},
        }
    return EvaluatorSpec(name=evaluator.name, weight=evaluator.weight, children=children, **facts)


def _rule(
    evaluator: EvaluatorLine, own: EvaluatorSpec | None, is_unruly: bool
) -> Mapping[str, Any]:
    """Return how a composite combines its children: by the file's rule, the suite's, or the default."""
    usual = None if is_unruly else USUAL
    own_rule = own.as_json()["config"]["aggregator"] if own else None
    for rule in (_readable(evaluator.aggregator), own_rule, usual):
        if (
            rule
            and evaluator.children
            and _is_sound(_root(_leaves(evaluator.children), rule, None))
        ):
            return dict(rule)
    return AS_IN_FILE


def _readable(rule: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a file's rule in our stored form, None if it is not one of ours."""
    try:
        settings = read_config(COMPOSITE, {"aggregator": rule}) if rule else None
    except InvalidConfigError:
        return None
    if settings is None:
        return None
    return Aggregator.model_validate(settings.model_dump(mode="json")["aggregator"]).as_json()


def _leaves(children: Sequence[EvaluatorLine]) -> tuple[EvaluatorSpec, ...]:
    return tuple(EvaluatorSpec(name=child.name, kind="", weight=child.weight) for child in children)


def _root(
    children: tuple[EvaluatorSpec, ...], rule: Mapping[str, Any], own: EvaluatorSpec | None
) -> EvaluatorSpec:
    name = own.name if own is not None else "suite"
    node = EvaluatorSpec(
        name=name, kind=COMPOSITE, config={"aggregator": dict(rule)}, children=children
    )
    return EvaluatorSpec.model_validate(node.as_json())


def _is_sound(tree: EvaluatorSpec) -> bool:
    try:
        validate(tree)
    except (DomainError, TypeError, ValueError, AttributeError):
        return False
    return True


def _gives(tree: EvaluatorSpec, line: ResultLine, policy: PolicySpec) -> bool:
    """Tell whether the rules of a tree give the score in the file."""
    if line.score is None or line.status == "error":
        return True
    root_result = rules_for(tree, policy).nodes(line_outcomes(line, tree))[ROOT_PATH]
    return root_result.score is not None and abs(root_result.score - line.score) <= NEAR


OUTPUT_COLUMNS = ("result_id", "text", "messages", "trace", "usage", "outcomes", "decision")
MAX_STAGE_LENGTH, MAX_MARKS = 30, 200
BATCH = 1_000
ZERO = Decimal(0)

Row = tuple[ReadResult, int, ImportedDecision, Case]


def write_results(run: Run, policy: PolicySpec, rows: Sequence[Row]) -> None:
    """Store the results of a run with everything in their lines, and set its counters."""
    cases = sorted({row[3] for row in rows}, key=lambda case: (case.position, case.pk))
    order = {case.pk: place for place, case in enumerate(cases)}
    results = Result.objects.bulk_create(
        (_result(run, policy, row, order[row[3].pk]) for row in rows), batch_size=BATCH
    )
    pairs = list(zip(results, rows, strict=True))
    answered = [pair for pair in pairs if _is_answered(pair[1][0].result)]
    insert_rows(ResultOutput, OUTPUT_COLUMNS, (_output(result, row) for result, row in answered))
    insert_rows(
        EvaluatorScore,
        SCORE_COLUMNS,
        (
            written
            for result, (_, _, scored, _) in pairs
            if scored.outcomes
            for written in score_rows(result.pk, scored.tree, scored.outcomes, scored.decision)
        ),
    )
    _store_external_scores(run, pairs)
    ResultText.objects.refresh(run.pk, [result.pk for result in results])
    _count(run, results)
    RunCase.objects.add_open(run, order.items())
    RunCase.objects.refresh(run.pk, order, policy=policy)


def _store_external_scores(run: Run, pairs: Sequence[tuple[Result, Row]]) -> None:
    """Store what other tools said of the results, and name it on the run."""
    given = [(result.pk, score) for result, (read, *_) in pairs for score in read.external_scores]
    now = database_now()
    ExternalScore.objects.bulk_create(
        (
            ExternalScore(
                result_id=pk,
                source=score.source,
                name=score.name,
                pushed_at=now,
                **dict(zip(COLUMNS, score.values, strict=True)),
            )
            for pk, score in given
        ),
        batch_size=BATCH,
    )
    run.external_names = sorted({score.full_name for _, score in given})


def _result(run: Run, policy: PolicySpec, row: Row, position: int) -> Result:
    read, number, scored, case = row
    line, decision = read.result, scored.decision
    is_scored = decision.status == "scored"
    return Result(
        run=run,
        case=case,
        position=position,
        repetition=number,
        status=ResultStatus.SCORED if is_scored else ResultStatus.ERROR,
        verdict=decision.verdict.value if decision.verdict else "",
        score=decision.score if is_scored else None,
        decided_by=decision.decided_by[:MAX_CELL_LENGTH] if is_scored else "",
        is_forced=is_forced(line, decision, policy),
        error=line.error,
        error_stage=_stage(line),
        outcome_marks="".join("01"[outcome.passed] for outcome in line.outcomes)[:MAX_MARKS],
        warnings=list(line.warnings),
        attempt=1,
        finished_at=read.finished_at or run.finished_at,
        latency_ms=line.usage.latency_ms,
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
        run_cost_usd=line.run_cost_usd,
        evaluation_cost_usd=_judged(line),
    )


def _stage(line: ResultLine) -> str:
    """Return where an error occurred; without it in the line: an evaluator if there is output, else the target."""
    if line.status != "error":
        return ""
    return line.error_stage[:MAX_STAGE_LENGTH] or ("evaluator" if line.output else "target")


def _is_answered(line: ResultLine) -> bool:
    """Tell whether there is an output, or evaluators that saw one."""
    return line.output is not None or bool(line.evaluators) or line.status != "error"


def _judged(line: ResultLine) -> Decimal | None:
    """Return the judges' cost: the line's, else the sum of its evaluators'."""
    if line.evaluation_cost_usd is not None:
        return line.evaluation_cost_usd
    leaves = [evaluator for _, evaluator in walk_lines(line.evaluators) if not evaluator.children]
    return sum_known(evaluator.usage.cost_usd for evaluator in leaves)


def _output(result: Result, row: Row) -> tuple[Any, ...]:
    read, _, scored, _ = row
    line = read.result
    usage = Usage(
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
        cost_usd=line.run_cost_usd,
        latency_ms=line.usage.latency_ms,
    )
    outcomes = [
        {"text": outcome.text, "passed": outcome.passed, "justification": outcome.justification}
        for outcome in line.outcomes
    ]
    decision = scored.decision.as_json()
    said = _conversation(read)
    return (
        *(result.pk, line.output or "", messages_as_json(said), trace_as_json(said)),
        *(usage_as_json(usage), outcomes or None, decision),
    )


def _conversation(read: ReadResult) -> Output:
    """Return the turns and tool calls of a line, none where they are not in a form that we know."""
    try:
        said = read_conversation(read.messages)
    except ValueError:
        return Output("")
    return Output("", messages=said.messages, trace=said.steps)


def _count(run: Run, results: Sequence[Result]) -> None:
    words = Counter(result.verdict for result in results)
    scores = [result.score for result in results if result.score is not None]
    run.pass_count, run.fail_count = words["pass"], words["fail"]
    run.borderline_count = words["borderline"]
    run.error_count = sum(result.status == ResultStatus.ERROR for result in results)
    run.score_sum, run.score_count = sum(scores), len(scores)
    run.run_cost_usd = sum((result.run_cost_usd or ZERO for result in results), ZERO)
    run.evaluation_cost_usd = sum((result.evaluation_cost_usd or ZERO for result in results), ZERO)
    run.save()


RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class ImportedResults:
    """The imported runs, their suite, and notes about the file."""

    suite: Suite
    runs: tuple[Run, ...]
    notes: tuple[str, ...]


def import_results(
    content: bytes,
    *,
    file: str,
    suite: Suite | None,
    imported_by: User | None,
    target_name: str = "",
    slug: str = "",
) -> ImportedResults:
    """Store the results of a file as completed runs, one for each target; workers compute their figures.

    Without a suite they belong to the one the lines name, else to one with the file's name; if there is none,
    it is made from the cases of the lines. `slug` names a suite that is to be made in any case. `target_name`
    is for lines that name no target. Raises UnreadableFileError with line and reason, CaseNotInSuiteError with
    the missing cases, UnusableSlugError, or SuiteExistsError for a `slug` that is taken; then nothing is stored.
    """
    if slug:
        check_slug(slug)
    read = read_results(content, file=file)
    named = slug or read.results[0].result.suite or PurePosixPath(file).stem
    origin = {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
    with transaction.atomic():
        existing = suite or Suite.objects.filter(slug=make_slug(named)).first()
        if slug and existing is not None:
            raise SuiteExistsError(
                f"There is already a suite {slug}; choose it as the suite of these results, or another new name."
            )
        is_new = existing is None
        if existing is None:
            existing = make_suite(named, read.results, imported_by)
        held = Suite.objects.select_for_update(no_key=True).get(pk=existing.pk)
        check_cases(held, read.results, file)
        runs = []
        for name, results in _by_target(read.results, target_name or PurePosixPath(file).stem):
            runs.append(_import_run(held, name, results, origin=origin, by=imported_by))
    notes = [str(note) for note in read.notes]
    if is_new:
        notes.append(
            "The file has the scores of its evaluators but not their settings, so the new suite has the "
            "default judge. Import its suite file under the same name to run it again."
        )
    return ImportedResults(held, tuple(runs), tuple(notes))


def _by_target(
    results: Sequence[ReadResult], default: str
) -> Iterator[tuple[str, list[ReadResult]]]:
    names = dict.fromkeys(entry.result.target or default for entry in results)
    for name in names:
        yield name, [entry for entry in results if (entry.result.target or default) == name]


def _import_run(
    suite: Suite,
    target: str,
    results: Sequence[ReadResult],
    *,
    origin: Mapping[str, str],
    by: User | None,
) -> Run:
    policy, own = suite.policy, suite.spec.evaluators
    numbered = _numbered(results)
    lines = [entry.result for entry, _ in numbered]
    root = common_tree(lines, own, policy)
    current = {case.key: case for case in suite.cases.filter(is_current=True)}
    trees = _trees(lines, root, own, current, policy)
    decided = [decide_result(line, tree, policy) for line, tree in zip(lines, trees, strict=True)]
    cases = scored_revisions(
        suite, root, current, [(lines[n].eval_id, d.tree) for n, d in enumerate(decided)]
    )
    plan = Plan(
        suite={"slug": suite.slug, "title": suite.title, "version": suite.version},
        policy=policy,
        root=root,
        target=TargetPlan(target, RECORDED),
        cases_hash=cases_hash([case.content_hash for case in dict.fromkeys(cases)]),
    )
    run = _create_run(suite, plan, numbered, origin=origin, by=by)
    write_results(
        run, policy, [(*n, d, c) for n, d, c in zip(numbered, decided, cases, strict=True)]
    )
    finish_run(run.pk, RunStatus.COMPLETED, finished_at=run.finished_at)
    run.status = RunStatus.COMPLETED
    _audit(run, suite, by, origin)
    return run


def _trees(
    lines: Sequence[ResultLine],
    root: EvaluatorSpec,
    own: EvaluatorSpec,
    current: Mapping[str, Case],
    policy: PolicySpec,
) -> list[EvaluatorSpec]:
    """Return the tree of each result; results with the same evaluators share one."""
    groups: dict[tuple[Any, ...], list[ResultLine]] = {}
    places = []
    for line in lines:
        case = current[line.eval_id]
        place = (tree_shape(line.evaluators), case.pk if case.evaluators else 0)
        groups.setdefault(place, []).append(line)
        places.append(place)
    trees = {}
    for place, alike in groups.items():
        case = current[alike[0].eval_id]
        usual = case_tree(root, case.evaluators, append=case.evaluators_append)
        whole = case_tree(own, case.evaluators, append=case.evaluators_append)
        tree = evaluator_tree(alike, whole, policy) if place[0] else usual
        # Use one object for equal trees, so that its rules are compiled once.
        trees[place] = next((same for same in (root, usual) if same == tree), tree)
    return [trees[place] for place in places]


def _numbered(results: Sequence[ReadResult]) -> list[tuple[ReadResult, int]]:
    """Return the results with their repetitions: those of the file, else counted per case."""
    taken: dict[str, set[int]] = {}
    numbered = []
    for entry in results:
        used = taken.setdefault(entry.result.eval_id, set())
        number = entry.result.repetition
        if number < 1 or number in used:
            number = next(n for n in range(1, len(used) + 2) if n not in used)
        used.add(number)
        numbered.append((entry, number))
    return numbered


def _create_run(
    suite: Suite,
    plan: Plan,
    numbered: Sequence[tuple[ReadResult, int]],
    *,
    origin: Mapping[str, str],
    by: User | None,
) -> Run:
    snapshot = plan.as_json() | {"imported": dict(origin)}
    moments = [entry.finished_at for entry, _ in numbered if entry.finished_at]
    return Run.objects.create(
        suite=suite,
        number=suite.next_run_number(),
        status=RunStatus.RUNNING,
        target_name=plan.target.name,
        suite_version=suite.version,
        note=f"Imported from {origin['file']}"[:300],
        created_by=by,
        # No worker here ever started it.
        started_at=None,
        finished_at=max(moments, default=database_now()),
        repetitions=max(number for _, number in numbered),
        case_count=len({entry.result.eval_id for entry, _ in numbered}),
        execution_count=len(numbered),
        done_count=len(numbered),
        snapshot_hash=content_hash(snapshot),
        snapshot=snapshot,
    )


def _audit(run: Run, suite: Suite, by: User | None, origin: Mapping[str, str]) -> None:
    AuditEntry.objects.record(
        "import",
        by=by,
        object_type="run",
        object_id=run.pk,
        object_name=f"{suite.slug} #{run.number}",
        after={"target": run.target_name, "results": run.execution_count, **origin},
    )
