"""Import results: a file becomes finished runs, one for each target it names."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count, islice
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from evaluators.kinds._base import Output
from evaluators.models import AuditEntry
from evaluators.scoring.numbers import sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import (
    EvaluatorSpec,
)
from evaluators.scoring.types import (
    DomainError,
    Usage,
)
from runs.engine.plan import (
    Plan,
    TargetPlan,
    case_tree,
    cases_hash,
    content_hash,
)
from runs.files.importing import check_slug, import_content
from runs.files.result_decisions import (
    MAX_CELL_LENGTH,
    ImportedDecision,
    common_tree,
    decide_result,
    evaluator_tree,
    is_forced,
    tree_shape,
)
from runs.finishing import finish_run
from runs.formats.results_reading import ReadResult, read_results
from runs.formats.results_writing import ResultLine, walk_lines
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
    """Store the scores that other tools gave the results, and name them on the run."""
    given = [(result.pk, score) for result, (read, *_) in pairs for score in read.external_scores]
    now = database_now()
    ExternalScore.objects.bulk_create(
        (ExternalScore(result_id=pk, pushed_at=now, **score.row) for pk, score in given),
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
    conversation = _conversation(read)
    return (
        *(
            result.pk,
            line.output or "",
            messages_as_json(conversation),
            trace_as_json(conversation),
        ),
        *(usage_as_json(usage), outcomes or None, decision),
    )


def _conversation(read: ReadResult) -> Output:
    """Return the turns and tool calls of a line, none where they are not in a form that we know."""
    try:
        conversation = read_conversation(read.messages)
    except ValueError:
        return Output("")
    return Output("", messages=conversation.messages, trace=conversation.steps)


def _count(run: Run, results: Sequence[Result]) -> None:
    verdicts = Counter(result.verdict for result in results)
    scores = [result.score for result in results if result.score is not None]
    run.pass_count, run.fail_count = verdicts["pass"], verdicts["fail"]
    run.borderline_count = verdicts["borderline"]
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
        default = target_name or PurePosixPath(file).stem
        for name, results in _by_target(read.results, default).items():
            runs.append(_import_run(held, name, results, origin=origin, by=imported_by))
    notes = [str(note) for note in read.notes]
    if is_new:
        notes.append(
            "The file has the scores of its evaluators but not their settings, so the new suite has the "
            "default judge. Import its suite file under the same name to run it again."
        )
    return ImportedResults(held, tuple(runs), tuple(notes))


def _by_target(results: Sequence[ReadResult], default: str) -> Mapping[str, Sequence[ReadResult]]:
    by_target: dict[str, list[ReadResult]] = {}
    for entry in results:
        by_target.setdefault(entry.result.target or default, []).append(entry)
    return by_target


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
    taken: dict[str, set[int]] = defaultdict(set)
    # All below the counted one are taken, so that many results of one case are counted once.
    counted: dict[str, int] = defaultdict(int)
    numbered = []
    for entry in results:
        key, number = entry.result.eval_id, entry.result.repetition
        if number < 1 or number in taken[key]:
            number = counted[key] = next(n for n in count(counted[key] + 1) if n not in taken[key])
        taken[key].add(number)
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
