"""Plan to judge the stored outputs of a finished run again: by which rules, and which scores are kept.

For every result and evaluator it decides whether the stored score is kept or judged anew; nothing is stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from evaluators.kinds import all_kinds
from evaluators.kinds._base import Kind
from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted, thousands
from runs.engine.kept_scores import (
    Call,
    JudgedTree,
    KeptScores,
    ask_again,
    case_question,
    keep_scores,
)
from runs.engine.plan import (
    JUDGED_AGAIN,
    OUTCOMES_PATH,
    Plan,
    baseline_paths,
    case_tree,
    content_hash,
    read_plan,
)
from runs.filters.language import FilterError
from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.models.database import among
from runs.models.results import ENDED_RESULT_STATUSES, Result
from runs.models.runs import Run
from runs.models.stored import decode_leaf_scores
from runs.models.suites import Case, Suite, SuiteDraft
from runs.running.baselines import NO_BASELINE, BaselineOutputs, no_baseline_text
from runs.running.retrying import HAS_OUTPUT
from runs.running.rules import RunRules, apply_rules
from runs.running.services import DEFAULT_CONCURRENCY, freeze
from runs.specs.suites import SuiteSpec
from runs.suites.drafts import InvalidDraftError, find_problems
from runs.suites.files import find_version
from runs.suites.services import stored_cases

MAX_NAMED = 5
# Reasons to leave results out.
NO_OUTPUT = "no output is stored"
NOT_RUN = "the run has no such case"
NOT_THERE = "the case is not in this version of the suite"
OTHER_INPUT = "the input of the case is another now, so the stored output answers another question"
NOTHING_CHOSEN = "No result is chosen. Change the cases or the filter."
# The reason to judge what stands but has no score.
NO_SCORE = "no score in the source"
# As NO_BASELINE, why an evaluator that compares outputs with a baseline's gives no score of the whole run.
IS_BASELINE = "the run is the baseline itself"


class CannotJudgeAgainError(DomainError):
    """The outputs of a run cannot be judged again."""

    code = "cannot_judge_again"


@dataclass(frozen=True, slots=True)
class JudgingRequest:
    """What judges stored outputs: the suite as it is now, one of its `version`s, or a member's `draft`.

    `judge` replaces the judge of the source, `baseline` the run that it was compared with. Of the source's cases only
    those with `keys` that the `query` lists are judged, None for all. `rules` are changes for this run. With
    `asks_again` judges are also asked where their question is the same. Without a `concurrency` it is what the judge
    allows.
    """

    version: int | None = None
    draft: SuiteDraft | None = None
    judge: LanguageModel | None = None
    baseline: Run | None = None
    keys: Collection[str] | None = None
    query: ResultsQuery | None = None
    rules: RunRules = field(default_factory=RunRules)
    asks_again: bool = False
    concurrency: int | None = None
    budget_usd: Decimal | None = None
    max_minutes: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class JudgingRules:
    """The rules of a choice: a version of the suite, or a draft of it, with its cases and files."""

    number: int
    spec: SuiteSpec
    cases: Sequence[Case]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ResultToJudge:
    """A result of the source that is judged again; `kept` has the old path of each score that is kept."""

    source: int
    case: int
    position: int
    repetition: int
    run_cost_usd: Decimal | None
    kept: Mapping[str, str]


@dataclass(slots=True)
class EvaluatorPlan:
    """What becomes of one evaluator: how many scores are kept, and why how many others are judged.

    For the reasons in `unscored` nothing can be compared, so there will be no score.
    """

    path: str
    kept: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    unscored: set[str] = field(default_factory=set)
    calls: int = 0

    @property
    def label(self) -> str:
        """Return its name for pages."""
        name = self.path.rpartition("/")[2]
        return "expected outcomes" if self.path == OUTCOMES_PATH else name or "the whole"

    @property
    def reasons(self) -> str:
        """Say why how many scores are new, "" for none: "29 judged: another judge", "3 scored: new" without calls."""
        done = "judged" if self.calls else "scored"
        parts = (
            f"{thousands(count)} {'not scored' if why in self.unscored else done}: {why}"
            for why, count in self.judged.most_common()
        )
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """Which results of a run are judged again, `total` being all that were chosen, and which scores are kept.

    The results are in the order of the suite.
    `left_out` has the keys of cases by reason, one for each result.
    """

    source: Run
    plan: Plan
    changed: Sequence[Mapping[str, Any]]
    results: Sequence[ResultToJudge]
    total: int
    left_out: Mapping[str, Sequence[str]]
    evaluators: Sequence[EvaluatorPlan]
    calls: Counter[Call]
    concurrency: int

    @property
    def case_count(self) -> int:
        """Return how many cases the new run has."""
        return len({result.case for result in self.results})

    @property
    def left_out_texts(self) -> list[str]:
        """Say which results are left out and why, a sentence for each reason."""
        return [_left_out_text(keys, self.total, why) for why, keys in self.left_out.items()]

    @property
    def warnings(self) -> list[str]:
        """Say which evaluators will have no score for want of a baseline."""
        lacking = {
            why: [evaluator.path for evaluator in self.evaluators if evaluator.judged[why]]
            for why in (NO_BASELINE, IS_BASELINE)
        }
        texts = (
            no_baseline_text(paths, is_itself=why == IS_BASELINE) for why, paths in lacking.items()
        )
        return [text for text in texts if text]


def _left_out_text(keys: Sequence[str], total: int, why: str) -> str:
    names = list(dict.fromkeys(keys))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    verb = "is" if len(keys) == 1 else "are"
    return (
        f"{thousands(len(keys))} of {counted(total, 'result')} {verb} left out, because {why}: "
        f"{', '.join(names[:MAX_NAMED])}{more}."
    )


def plan_judging(source: Run, request: JudgingRequest, by: User | None) -> JudgingPlan:
    """Return which results of a run would be judged again, and which scores kept; nothing is stored.

    Raises CannotJudgeAgainError for a run that cannot be judged again, and DomainError with the reason for rules
    that cannot score.
    """
    check_source(source)
    rules = _rules(source.suite, request)
    before = read_plan(source.snapshot)
    judge = request.judge or _judge(source.suite, source.suite_version, before.judge, rules.spec)
    applied = apply_rules(rules.spec, request.rules)
    results, left_out, total = _sort_out(source, request, rules)
    cases = {case.pk: case for case in rules.cases}
    used = [cases[pk] for pk in dict.fromkeys(row.case for row in results)]
    plan = freeze(
        source.suite,
        judge,
        used,
        applied,
        by,
        target=before.target,
        files=rules.files,
        baseline=request.baseline,
        usual_baseline=before.baseline,
    )
    plan = replace(plan, suite={**plan.suite, "version": rules.number})
    planned, evaluators, calls = Decisions(
        source, before, plan, results, asks_again=request.asks_again
    ).decide(results)
    allowed = judge.concurrency if judge is not None else DEFAULT_CONCURRENCY
    return JudgingPlan(
        source=source,
        plan=plan,
        changed=applied.changed,
        results=planned,
        total=total,
        left_out=left_out,
        evaluators=evaluators,
        calls=calls,
        concurrency=request.concurrency or allowed,
    )


def check_source(source: Run) -> None:
    """Raise CannotJudgeAgainError for a run whose outputs cannot be judged again."""
    if source.suite.archived_at is not None:
        raise CannotJudgeAgainError(f"{source.suite.title} is archived. Restore it first.")
    if source.measures_judge:
        raise CannotJudgeAgainError(
            f"Run {source} only measures the judge of run #{source.snapshot[JUDGED_AGAIN]['run']}. "
            "Judge the outputs of that run again."
        )
    if source.is_active:
        raise CannotJudgeAgainError(
            f"Run {source} is still running. Judge its outputs again when it has ended."
        )
    if source.removal_id is not None:
        raise CannotJudgeAgainError(
            f"Data of run {source} are being removed, so its outputs cannot be judged again."
        )


def _rules(suite: Suite, request: JudgingRequest) -> JudgingRules:
    """Return the rules of the choice; raises InvalidDraftError, UnknownVersionError, CannotRestoreError."""
    number = request.version or suite.version
    spec = None
    if request.draft is not None:
        if problems := find_problems(suite, request.draft.content):
            raise InvalidDraftError(tuple(problems))
        number = request.draft.base_version
        spec = SuiteSpec.model_validate(request.draft.content)
    if number == suite.version:
        cases = list(suite.cases.filter(is_current=True).order_by("position", "id"))
        files = dict(suite.files.values_list("path", "content_id"))
        return JudgingRules(number, spec or suite.spec, cases, files)
    stored = find_version(suite, number).spec
    cases = stored_cases(suite, number, stored)
    return JudgingRules(number, spec or stored.plain(), cases, stored.files)


def _judge(suite: Suite, version: int, ran_with: str, spec: SuiteSpec) -> LanguageModel | None:
    """Return the judge: that of the source, unless the suite has got another since then."""
    earlier = suite.versions.filter(number=version).first()
    is_same = earlier is None or earlier.spec.judge == spec.judge
    slug = (ran_with if is_same else "") or spec.judge
    judge = LanguageModel.objects.filter(slug=slug).first() if slug else None
    if slug and judge is None:
        raise CannotJudgeAgainError(
            f"The language model {slug!r} that judged does not exist any more. Choose another judge."
        )
    return judge


@dataclass(frozen=True, slots=True)
class SourceResult:
    """A result of the source with its case then (`ran`) and in the rules; with `is_same` they differ in nothing."""

    source: int
    ran: int
    case: int
    position: int
    repetition: int
    run_cost_usd: Decimal | None
    is_same: bool


def _chosen(source: Run, request: JudgingRequest) -> QuerySet[Result]:
    """Return the results that the request is about; raises CannotJudgeAgainError for a filter nobody can read."""
    chosen = source.results.order_by("position", "repetition", "id")
    if request.keys is not None:
        chosen = chosen.filter(case__key__in=among(request.keys, "text"))
    if request.query is not None:
        try:
            listed = in_state(matching_cases(source, request.query), request.query)
        except FilterError as error:
            raise CannotJudgeAgainError(f"The filter cannot be read. {error}") from error
        chosen = chosen.filter(case__in=listed.order_by().values("case_id"))
    return chosen


def _sort_out(
    source: Run, request: JudgingRequest, rules: JudgingRules
) -> tuple[list[SourceResult], dict[str, list[str]], int]:
    """Return the results that can be judged, those left out by reason, and how many were chosen."""
    chosen = _chosen(source, request)
    columns = ("pk", "case_id", "case__key", "repetition", "run_cost_usd")
    found = list(chosen.values_list(*columns))
    usable = chosen.filter(HAS_OUTPUT, status__in=ENDED_RESULT_STATUSES)
    with_output = set(usable.values_list("pk", flat=True))
    places = {case.key: (place, case) for place, case in enumerate(rules.cases)}
    compared = _compare_cases(source, rules)
    rows, left_out = [], defaultdict(list)
    for pk, ran, key, repetition, usd in found:
        if key not in places:
            left_out[NOT_THERE].append(key)
        elif pk not in with_output:
            left_out[NO_OUTPUT].append(key)
        elif (is_same := compared.get(ran, True)) is None:
            left_out[OTHER_INPUT].append(key)
        else:
            position, case = places[key]
            rows.append(SourceResult(pk, ran, case.pk, position, repetition, usd, is_same))
    if request.keys:
        known = source.results.filter(case__key__in=among(request.keys, "text")).order_by()
        unknown = set(request.keys).difference(known.values_list("case__key", flat=True))
        if unknown:
            left_out[NOT_RUN] = sorted(unknown)
    total = len(rows) + sum(len(keys) for keys in left_out.values())
    rows.sort(key=lambda row: (row.position, row.repetition))
    if not rows:
        why = " ".join(_left_out_text(keys, total, why) for why, keys in left_out.items())
        raise CannotJudgeAgainError(
            f"Run {source} has no output that can be judged again. {why or NOTHING_CHOSEN}"
        )
    return rows, dict(left_out), total


def _compare_cases(source: Run, rules: JudgingRules) -> dict[int, bool | None]:
    """Compare the revisions that ran with those of the rules, by id of those that ran; the same are left out.

    True: evaluators see the same. False: they see something else. None: the input is another.
    """
    files: Mapping[str, str] = source.snapshot.get("files") or {}
    ran = set(source.results.order_by().values_list("case_id", flat=True).distinct())
    if files == rules.files:
        ran -= {case.pk for case in rules.cases}
    before = Case.objects.in_bulk(list(ran))
    now = {case.key: case.pk for case in rules.cases}
    after = Case.objects.in_bulk([now[case.key] for case in before.values() if case.key in now])
    compared: dict[int, bool | None] = {}
    for pk, case in before.items():
        if case.key not in now:
            continue
        old, new = case.facts, after[now[case.key]].facts
        is_same_input = case_question(old, files) == case_question(new, rules.files)
        compared[pk] = replace(old, input=()) == replace(new, input=()) if is_same_input else None
    return compared


class Decisions:
    """Decides for each result which scores are kept; equal ones are decided once.

    With `asks_again` these are only scores for which no judge is asked.
    """

    def __init__(
        self,
        source: Run,
        before: Plan,
        after: Plan,
        results: Sequence[SourceResult],
        *,
        asks_again: bool = False,
    ) -> None:
        """Read the scores and the trees of the source."""
        self.before, self.after, self.asks_again = before, after, asks_again
        self.kinds: Mapping[str, Kind] = all_kinds()
        # The scores of an imported run are another tool's.
        self.is_ours = not source.imported_from
        scores = decode_leaf_scores(source.pk, source.leaf_scores)
        self.paths = tuple(scores.scores)
        columns = zip(*scores.scores.values(), strict=True)
        self.scored = {
            pk: tuple(score is not None and score is not False for score in row)
            for pk, row in zip(scores.results, columns, strict=False)
        }
        ids = {pk for row in results for pk in (row.ran, row.case)}
        light = Case.objects.only("key", "evaluators", "evaluators_append", "expected_outcomes")
        self.cases = light.in_bulk(list(ids))
        # By case, why its output cannot be compared with a baseline's; other cases are left out.
        self.lacks = self._lacks(source, {row.case for row in results})
        self.trees: dict[Any, tuple[JudgedTree, KeptScores]] = {}

    def decide(
        self, results: Sequence[SourceResult]
    ) -> tuple[list[ResultToJudge], list[EvaluatorPlan], Counter[Call]]:
        """Return the results with their scores that are kept, what becomes of each evaluator, and the calls."""
        known: dict[Any, tuple[Mapping[str, str], Mapping[str, str], Counter[Call]]] = {}
        times: Counter[Any] = Counter()
        planned = []
        for row in results:
            place = self._place(row)
            scored = self.scored.get(row.source, ())
            key = (place, scored)
            if key not in known:
                known[key] = self._decide(row, place, scored)
            times[key] += 1
            planned.append(
                ResultToJudge(
                    *(row.source, row.case, row.position, row.repetition, row.run_cost_usd),
                    kept=known[key][0],
                )
            )
        evaluators: dict[str, EvaluatorPlan] = {}
        calls: Counter[Call] = Counter()
        for key, count in times.items():
            (*_, lack), _ = key
            _, reasons, asked = known[key]
            for path, reason in reasons.items():
                evaluator = evaluators.setdefault(path, EvaluatorPlan(path))
                if not reason:
                    evaluator.kept += count
                    continue
                evaluator.judged[reason] += count
                if reason == lack:
                    evaluator.unscored.add(reason)
            for call, number in asked.items():
                calls[call] += number * count
        for (path, _), number in calls.items():
            evaluators[path].calls += number
        return planned, list(evaluators.values()), calls

    def _place(self, row: SourceResult) -> Any:
        """Return what the trees of a result follow from, hashable."""
        old, new = self.cases[row.ran], self.cases[row.case]
        own = [[case.evaluators, case.evaluators_append] for case in (old, new) if case.evaluators]
        return (
            content_hash([bool(old.evaluators), *own]) if own else "",
            bool(new.expected_outcomes),
            row.is_same,
            self.lacks.get(row.case, ""),
        )

    def _lacks(self, source: Run, cases: Collection[int]) -> Mapping[int, str]:
        baseline = self.after.baseline
        if baseline is None:
            return dict.fromkeys(cases, NO_BASELINE)
        number = baseline["run"]
        if number == source.number:
            return dict.fromkeys(cases, IS_BASELINE)
        keys = {pk: self.cases[pk].key for pk in cases}
        outputs = BaselineOutputs(source.suite_id, number, keys, self.after.files)
        return {pk: problem for pk in cases if (problem := outputs.problem(pk))}

    def _decide(
        self, row: SourceResult, place: Any, scored: Sequence[bool]
    ) -> tuple[Mapping[str, str], Mapping[str, str], Counter[Call]]:
        """Return the scores that are kept, by path why not ("" for those that are), and the calls."""
        if place not in self.trees:
            old, new = self.cases[row.ran], self.cases[row.case]
            before, after = self._tree(self.before, old), self._tree(self.after, new)
            taken = keep_scores(
                before, after, self.kinds, is_same_case=row.is_same, is_ours=self.is_ours
            )
            if self.asks_again:
                taken = ask_again(taken, after, self.kinds)
            self.trees[place] = after, taken
        tree, taken = self.trees[place]
        has_score = {path for path, is_there in zip(self.paths, scored, strict=False) if is_there}
        kept = taken.standing(has_score)
        lack = self.lacks.get(row.case, "")
        lacking = baseline_paths(tree.root, self.kinds) if lack else []
        reasons = {**taken.reasons, **dict.fromkeys(lacking, lack)}
        reasons = {
            path: "" if path in kept else reasons.get(path, NO_SCORE) for path in taken.paths
        }
        return kept, reasons, tree.calls(self.kinds, {*kept, *lacking})

    @staticmethod
    def _tree(plan: Plan, case: Case) -> JudgedTree:
        root = case_tree(plan.root, case.evaluators, append=case.evaluators_append)
        return JudgedTree(plan, root, bool(case.expected_outcomes))
