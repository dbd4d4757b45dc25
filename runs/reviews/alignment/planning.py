"""Plan an alignment: which decisions there are, what the writer sees, what is held out, and what all of it costs."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from django.db.models import Avg, Count

from evaluators.kinds import all_kinds, get_kind, prompt_versions
from evaluators.kinds._base import JudgeQuestion, Kind, Output
from evaluators.kinds._prompts import prompt_text
from evaluators.model_calls.judge import CHARACTERS_A_TOKEN, PendingQuestion
from evaluators.model_calls.models import model_spec
from evaluators.models import ZERO_USD, LanguageModel
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.engine.kept_scores import JudgedTree, keep_scores
from runs.engine.plan import (
    Plan,
    TargetPlan,
    asked_judges,
    case_tree,
    judge_models,
    runs_script,
)
from runs.models.database import among
from runs.models.results import ANSWERED, EvaluatorScore, ModelCall, Result, ScoreState
from runs.models.reviews import Review
from runs.models.runs import Run
from runs.models.stored import kept_output
from runs.models.suites import Suite
from runs.reviews.alignment.rules import (
    MIN_DECISIONS,
    HeldOut,
    PeopleDecision,
    held_out_power,
    split_decisions,
)
from runs.reviews.alignment.specs import AlignmentSpec
from runs.reviews.alignment.writing import Example, writer_question
from runs.reviews.judge_agreement import RunScope, readable_plans, reviewed_results
from runs.suites.files import suite_files

USUAL_CANDIDATES, MAX_CANDIDATES = 3, 5
MAX_DISAGREEMENTS, MAX_AGREEMENTS = 24, 6
MAX_HELD_OUT = 500
# What a reply has besides the texts: reasons and JSON.
TOKENS_OF_A_REASON = 120
MIN_TOKENS_OF_A_TEXT = 200
NO_TARGET = TargetPlan("", "recorded")
# The setting for instructions beside those that a kind has by itself.
ADDITION = "instructions"


class CannotAlignError(DomainError):
    """The judge of an evaluator cannot be aligned; the message says why and what to do."""

    code = "cannot_align"


@dataclass(frozen=True, slots=True)
class AlignmentRequest:
    """Which evaluator is aligned, which model writes how many candidates, and what it may cost.

    The same `seed` holds out the same cases.
    """

    path: str
    writer: LanguageModel
    candidates: int = USUAL_CANDIDATES
    budget_usd: Decimal | None = None
    seed: str = field(default_factory=lambda: secrets.token_urlsafe(16))


@dataclass(frozen=True, slots=True)
class CallPrices:
    """About what a call costs: one of the writer, and one of the judge.

    The price of the judge is that of so many `known_calls`, and None where there is none.
    """

    writer_usd: Decimal
    judge_usd: Decimal | None
    known_calls: int


@dataclass(frozen=True, slots=True)
class AlignmentEstimate:
    """What an alignment asks: one call of the writer, and so many of the judge."""

    path: str
    writer_calls: int
    judge_calls: int
    prices: CallPrices

    @property
    def cost_usd(self) -> Decimal | None:
        """Return what all calls cost, None where nobody knows what one of the judge takes."""
        if self.prices.judge_usd is None:
            return None
        return self.writer_calls * self.prices.writer_usd + self.judge_calls * self.prices.judge_usd

    @property
    def reason(self) -> str:
        """Return why the cost is not known, "" where it is."""
        return "" if self.prices.known_calls else f"no call of {self.path} in the runs to go by"

    @property
    def basis(self) -> str:
        """Return which calls the estimate goes by."""
        if not self.prices.known_calls:
            return ""
        return f"from the tokens of {counted(self.prices.known_calls, 'call')} of {self.path}"

    @property
    def calls(self) -> int:
        """Return all calls, when nothing is repeated."""
        return self.writer_calls + self.judge_calls


@dataclass(frozen=True, slots=True)
class AlignmentPlan:
    """An alignment before it starts: its frozen request, what it can prove, and its price.

    `left_out` says which decisions do not count and why, a sentence for each reason.
    """

    spec: AlignmentSpec
    sources: Collection[int]
    power: HeldOut
    left_out: Sequence[str]
    estimate: AlignmentEstimate

    @property
    def disagreements(self) -> int:
        """Return how many of the results that the writer sees are disagreements."""
        shown = set(self.spec.shown)
        return sum(entry.is_disagreement for entry in self.spec.seen if entry.result in shown)


@dataclass(frozen=True, slots=True)
class AlignableEvaluator:
    """An evaluator that asks a judge, and why it cannot be aligned, "" where it can."""

    path: str
    kind: str
    problem: str


def alignable_evaluators(suite: Suite) -> list[AlignableEvaluator]:
    """Return the evaluators of a suite that ask a judge, in tree order."""
    kinds = all_kinds()
    return [
        AlignableEvaluator(path, node.kind, _problem(node, kinds))
        for path, node in walk(suite.spec.evaluators)
        if asked_judges(node, kinds)
    ]


def _problem(node: EvaluatorSpec, kinds: Mapping[str, Kind]) -> str:
    if node.is_composite:
        return "its judge reads the scores of other evaluators, not the answer alone."
    kind = kinds[node.kind]
    if not kind.config.prompt_fields:
        return f"{kind.label} has no instructions in free text. Change its settings instead."
    if runs_script(node, kinds):
        return "it also runs a program of the suite."
    if any(what != "model" for what, _ in asked_judges(node, kinds)):
        return "it asks an agent, and only language models can be aligned."
    if _setting(node) != ADDITION and not _setting_text(node):
        return (
            "it has no instructions of its own. Write some first, such as what a good answer does."
        )
    return ""


def _setting(node: EvaluatorSpec) -> str:
    return get_kind(node.kind).config.prompt_fields[0]


def _setting_text(node: EvaluatorSpec) -> str:
    return str(node.config.get(_setting(node)) or "").strip()


def plan_alignment(suite: Suite, request: AlignmentRequest) -> AlignmentPlan:
    """Return what an alignment would ask and could prove; nothing is stored.

    Raises CannotAlignError with the reason where it cannot begin.
    """
    node = _alignable(suite, request)
    evaluator = _Evaluator.read(suite, request.path, node)
    decided = _Decided.read(suite, evaluator)
    if len(decided.decisions) < MIN_DECISIONS:
        why = f" {' '.join(decided.left_out)}" if decided.left_out else ""
        raise CannotAlignError(
            f"{counted(len(decided.decisions), 'reviewed result')} can be judged by {request.path}, and {MIN_DECISIONS} "
            f"are needed.{why}"
        )
    seen, held_out = split_decisions(decided.decisions, request.seed)
    held_out = held_out[:MAX_HELD_OUT]
    shown = _shown(seen, request.seed)
    if not any(entry.is_disagreement for entry in shown):
        raise CannotAlignError(
            f"As far as is known, {request.path} agrees with people on every result that the writer may see, so "
            "there is nothing to learn from. Judge the outputs again by the instructions of today if they are new."
        )
    spec = AlignmentSpec(
        path=request.path,
        setting=_setting(node),
        written=str(node.config.get(_setting(node)) or ""),
        version=suite.version,
        node=evaluator.node,
        policy=suite.policy,
        judge=evaluator.plan.judge,
        candidates=request.candidates,
        seed=request.seed,
        seen=tuple(seen),
        shown=tuple(entry.result for entry in shown),
        held_out=tuple(held_out),
        scores={entry.result: decided.scores[entry.result] for entry in held_out if entry.machine},
    )
    return AlignmentPlan(
        spec=spec,
        sources=frozenset(decided.runs[entry.result] for entry in (*held_out, *shown)),
        power=held_out_power(held_out, request.candidates),
        left_out=decided.left_out,
        estimate=_estimate(spec, request, evaluator, set(decided.runs.values())),
    )


def _alignable(suite: Suite, request: AlignmentRequest) -> EvaluatorSpec:
    if suite.archived_at is not None:
        raise CannotAlignError(f"{suite.title} is archived. Restore it first.")
    if not 1 <= request.candidates <= MAX_CANDIDATES:
        raise CannotAlignError(
            f"1 to {MAX_CANDIDATES} candidates can be written, not {request.candidates}."
        )
    nodes = dict(walk(suite.spec.evaluators))
    if request.path not in nodes:
        paths = [each.path for each in alignable_evaluators(suite) if not each.problem]
        choices = f"These can be aligned: {', '.join(paths)}." if paths else "None can be aligned."
        raise CannotAlignError(f"{suite.slug} has no evaluator {request.path!r}. {choices}")
    node = nodes[request.path]
    kinds = all_kinds()
    if not asked_judges(node, kinds):
        raise CannotAlignError(f"{request.path} asks no judge.")
    if problem := _problem(node, kinds):
        raise CannotAlignError(f"{request.path} cannot be aligned: {problem}")
    return node


@dataclass(frozen=True, slots=True)
class _Evaluator:
    """The evaluator as it is now: its node with the text itself, the plan that asks it, and its judges."""

    path: str
    node: EvaluatorSpec
    plan: Plan
    judges: Sequence[LanguageModel]

    @classmethod
    def read(cls, suite: Suite, path: str, node: EvaluatorSpec) -> _Evaluator:
        spec, setting = suite.spec, _setting(node)
        slugs = judge_models(node.replace(children=()), all_kinds(), default=spec.judge)
        judges = list(LanguageModel.objects.filter(slug__in=slugs))
        if missing := sorted(slugs - {judge.slug for judge in judges}):
            problem = (
                f"there is no language model {missing[0]!r}" if missing[0] else "no judge is set"
            )
            raise CannotAlignError(f"{path} cannot be aligned: {problem}.")
        try:
            text = prompt_text(_setting_text(node), suite_files(suite))
        except ValueError as error:
            raise CannotAlignError(f"{path} cannot be aligned: {error}.") from error
        plan = Plan(
            suite={},
            policy=suite.policy,
            root=spec.evaluators,
            target=NO_TARGET,
            judge=spec.judge,
            models={judge.slug: model_spec(judge).as_json() for judge in judges},
            files=dict(suite.files.values_list("path", "content_id")),
            prompts=prompt_versions(),
        )
        own = node.replace(config={**node.config, setting: text})
        return cls(path, own, plan, judges)


NO_OUTPUT = "their outputs were removed"
OTHER_TREE = "their cases have other evaluators"


@dataclass(slots=True)
class _Decided:
    """The decisions that count: by result the run, and the score of today's instructions where it is stored."""

    decisions: list[PeopleDecision] = field(default_factory=list)
    runs: dict[int, int] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, suite: Suite, evaluator: _Evaluator) -> _Decided:
        rows = [row for row in reviewed_results(suite, RunScope()) if row.reviewed_verdict]
        plans = dict(readable_plans({row.run_id for row in rows}))
        rows = [row for row in rows if row.run_id in plans]
        has_output = set(
            Result.objects.filter(
                pk__in=among(row.pk for row in rows), output__isnull=False, output__removed_at=None
            ).values_list("pk", flat=True)
        )
        origins = _origins(rows, plans, evaluator)
        scores = _stored_scores(origins)
        found, lost = cls(), Counter[str]()
        for row in rows:
            if row.pk not in has_output:
                lost[NO_OUTPUT] += 1
            elif row.pk not in origins:
                lost[OTHER_TREE] += 1
            else:
                score, machine = scores.get(row.pk), ""
                if score is not None:
                    found.scores[row.pk] = counted_score = evaluator.node.counted_score(score)
                    machine = evaluator.plan.policy.verdict_for(counted_score).value
                found.runs[row.pk] = row.run_id
                found.decisions.append(
                    PeopleDecision(row.pk, row.case.key, row.reviewed_verdict, machine)
                )
        found.left_out = [
            f"{counted(count, 'decision')} {'does' if count == 1 else 'do'} not count, because {why}."
            for why, count in lost.items()
        ]
        return found


def _origins(
    rows: Sequence[Result], plans: Mapping[int, Plan], evaluator: _Evaluator
) -> dict[int, str]:
    """Return by result the path of the evaluator's score if today's question was asked, "" if another was.

    A result whose case is not scored by the evaluator is left out.
    """
    kinds, node = all_kinds(), dict(walk(evaluator.plan.root))[evaluator.path]
    imported = set(
        Run.objects.filter(pk__in=plans, snapshot__has_key="imported").values_list("pk", flat=True)
    )
    known: dict[tuple[int, int], str | None] = {}
    found: dict[int, str] = {}
    for row in rows:
        case = row.case
        place = row.run_id, case.pk if case.evaluators else 0
        if place not in known:
            roots = [
                case_tree(plan.root, case.evaluators, append=case.evaluators_append)
                for plan in (plans[row.run_id], evaluator.plan)
            ]
            before, after = (
                JudgedTree(plan, root)
                for plan, root in zip((plans[row.run_id], evaluator.plan), roots, strict=True)
            )
            kept = keep_scores(before, after, kinds, is_ours=row.run_id not in imported)
            is_same = dict(walk(roots[1])).get(evaluator.path) == node
            known[place] = kept.origins.get(evaluator.path, "") if is_same else None
        if (origin := known[place]) is not None:
            found[row.pk] = origin
    return found


def _stored_scores(origins: Mapping[int, str]) -> dict[int, float]:
    asked = {pk: path for pk, path in origins.items() if path}
    rows = EvaluatorScore.objects.filter(
        result__in=among(asked), path__in=set(asked.values()), state=ScoreState.SCORED
    )
    return {
        pk: score
        for pk, path, score in rows.values_list("result_id", "path", "score")
        if asked[pk] == path and score is not None
    }


def _shown(seen: Sequence[PeopleDecision], seed: str) -> list[PeopleDecision]:
    """Return what the writer sees: the disagreements, and some agreements that have to stay."""
    disagreements = [entry for entry in seen if entry.is_disagreement]
    agreements = [entry for entry in seen if entry.machine == entry.person]
    return [*disagreements[:MAX_DISAGREEMENTS], *agreements[:MAX_AGREEMENTS]]


def read_examples(spec: AlignmentSpec) -> list[Example]:
    """Return what the writer sees, without results that are gone since; five queries."""
    decisions = {entry.result: entry for entry in spec.seen if entry.result in set(spec.shown)}
    notes: dict[int, list[str]] = defaultdict(list)
    reviews = Review.objects.standing().filter(result__in=decisions).exclude(note="")
    for pk, note in reviews.order_by("id").values_list("result_id", "note"):
        notes[pk].append(note)
    scores = EvaluatorScore.objects.filter(result__in=decisions, path=spec.path)
    said = {
        pk: (score, text)
        for pk, score, text in scores.values_list("result_id", "score", "reasoning")
    }
    examples = []
    for row, output in read_outputs(decisions):
        score, reasoning = said.get(row.pk, (None, ""))
        score = None if score is None else spec.node.counted_score(score)
        examples.append(
            Example(decisions[row.pk], row.case.facts, output, score, reasoning, notes[row.pk])
        )
    return examples


def read_outputs(results: Collection[int]) -> Iterator[tuple[Result, Output]]:
    """Yield results with their case and run, and their stored output; those without one are left out."""
    rows = Result.objects.filter(pk__in=results, output__removed_at=None, output__isnull=False)
    rows = rows.select_related("case", "run", "output").prefetch_related("artifacts__content")
    for row in rows.defer("run__snapshot", "run__summary", "run__leaf_scores").order_by("id"):
        files = {file.path: bytes(file.content.content) for file in row.artifacts.all()}
        yield row, kept_output(row.output, files)


def _estimate(
    spec: AlignmentSpec, request: AlignmentRequest, evaluator: _Evaluator, runs: Collection[int]
) -> AlignmentEstimate:
    for model in {judge.slug: judge for judge in (request.writer, *evaluator.judges)}.values():
        if model_spec(model).prices is None:
            raise CannotAlignError(
                f"There are no prices for {model.name}, so a budget cannot limit its cost. Enter them under "
                "Language models; 0 where it costs nothing."
            )
    question = writer_question(spec, read_examples(spec), ())
    prices = call_prices(spec, question, request.writer, evaluator.judges, runs)
    # Each candidate is asked about each held-out result, today's instructions where their score is not known.
    unknown = sum(not entry.machine for entry in spec.held_out)
    judged = spec.candidates * len(spec.held_out) + unknown
    judge_calls = judged * len(asked_judges(spec.node, all_kinds()))
    return AlignmentEstimate(spec.path, 1, judge_calls, prices)


def call_prices(
    spec: AlignmentSpec,
    question: JudgeQuestion,
    writer: LanguageModel,
    judges: Iterable[LanguageModel],
    runs: Collection[int],
) -> CallPrices:
    """Return the price of the writer's call by its texts, and of the judge's by the mean of those in runs; one query."""
    calls = ModelCall.objects.filter(
        run__in=runs, evaluator_path=spec.path, status__in=ANSWERED, input_tokens__isnull=False
    )
    judged = calls.aggregate(n=Count("pk"), sent=Avg("input_tokens"), received=Avg("output_tokens"))
    judge_usd = None
    if judged["n"]:
        judge_usd = max(_price(judge, judged["sent"], judged["received"] or 0) for judge in judges)
    messages, _ = PendingQuestion(question).messages()
    sent = sum(len(message["content"]) for message in messages) // CHARACTERS_A_TOKEN
    text = max(MIN_TOKENS_OF_A_TEXT, 2 * len(spec.text) // CHARACTERS_A_TOKEN)
    writer_usd = _price(writer, sent, spec.candidates * (text + TOKENS_OF_A_REASON))
    return CallPrices(writer_usd, judge_usd, judged["n"])


def _price(model: LanguageModel, sent: float, received: float) -> Decimal:
    prices = model_spec(model).prices
    usd = prices and prices.cost_usd(
        input_tokens=round(sent), output_tokens=round(received), cached_tokens=None
    )
    return usd or ZERO_USD
