"""Ask for drafted cases, stop the drafting, keep what a person changes in them, and store those that are wanted."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Substr

from evaluators.kinds._base import JudgeQuestion
from evaluators.model_calls.judge import CHARACTERS_A_TOKEN, PendingQuestion
from evaluators.model_calls.models import Prices, model_prices
from evaluators.models import COMMAND_LINE, ZERO_USD, AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.preview import check_unchanged
from runs.cases.services import DRAFTED, FROM, put_cases
from runs.costs import CAP_TIMES, budget_problem
from runs.drafting.material import (
    PART_LENGTH,
    Part,
    SourceText,
    check_length,
    cut_documents,
    gather,
    plan_batches,
)
from runs.drafting.preview import Proposal
from runs.drafting.questions import MAX_METADATA, TOKENS_A_CASE, batch_question
from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.models.jobs import ModelJob
from runs.models.results import CallPurpose, Result, ResultStatus, VerdictChoice
from runs.models.runs import Run
from runs.models.search import conversation_text
from runs.models.suites import Case, Suite
from runs.queue import queue_job
from runs.results.result_state import result_cause
from runs.suites.services import lock_editable_suite

MAX_COUNT, USUAL_COUNT = 100, 20
MAX_DESCRIPTION_LENGTH = 20_000
MAX_RESULTS = MAX_CASES = 60
MAX_EXISTING, CASES_LOOKED_AT, MAX_SUITE_TAGS = 60, 200, 20
DESCRIPTION, DOCUMENTS, CASES, RESULTS = "description", "documents", "cases", "results"


class CannotDraftError(DomainError):
    """Cases cannot be drafted from this, or not with this model; the message says why."""

    code = "cannot_draft"


class NotDraftedError(DomainError):
    """Drafted cases cannot be stored as they are; the message says why."""

    code = "not_drafted"


@dataclass(frozen=True, slots=True)
class DraftingRequest:
    """What a model drafts cases from, and how many.

    `source` is one of the four kinds; the description counts with each. Of a run, the results of `case_ids` are
    read, or those that the query matches, and only the failed ones if `only_failed`.
    """

    model: LanguageModel
    source: str = DESCRIPTION
    description: str = ""
    count: int = USUAL_COUNT
    documents: Sequence[SourceText] = ()
    keys: Sequence[str] = ()
    run: Run | None = None
    case_ids: Collection[int] | None = None
    query: ResultsQuery | None = None
    only_failed: bool = True
    budget_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class DraftingPlan:
    """What would be asked: the request of the job, and what its calls cost; None without known prices.

    `budget_usd` is where it stops: at the budget it was given, or else at `CAP_TIMES` the cost; None for nowhere.
    """

    suite: Suite
    model: LanguageModel
    asked: Mapping[str, Any]
    run: Run | None
    budget_usd: Decimal | None
    cost_usd: Decimal | None

    @property
    def calls(self) -> int:
        """Return how many questions are asked if none is repeated."""
        return len(self.asked["batches"])


def plan_drafting(suite: Suite, request: DraftingRequest) -> DraftingPlan:
    """Return what would be asked, and store nothing; raises CannotDraftError and UnreadableFileError."""
    if not 1 <= request.count <= MAX_COUNT:
        raise CannotDraftError(
            f"{request.count} cases cannot be drafted at once; draft 1 to {MAX_COUNT}."
        )
    prices = model_prices(request.model)
    if request.budget_usd is not None and prices is None:
        raise CannotDraftError(
            f"There are no prices for {request.model.name}, so a budget cannot limit its cost. Enter them "
            "under Language models, or draft without a budget."
        )
    parts, text = _material(suite, request)
    try:
        batches = plan_batches([len(part.text) for part in parts], request.count)
    except ValueError as error:
        raise CannotDraftError(
            f"The material is cut in {len(parts)} parts, and each gets at least one case. Draft {len(parts)} cases or "
            "more, or choose less material."
        ) from error
    asked = {
        "source": request.source,
        "from": text,
        "description": request.description.strip(),
        "count": request.count,
        "parts": [{"label": part.label, "text": part.text} for part in parts],
        "batches": [[batch.part, batch.wanted] for batch in batches],
        **_suite_facts(suite),
    }
    budget, cost = request.budget_usd, None
    if prices is not None:
        calls = [
            call_usd(batch_question(asked, part=part, wanted=wanted, titles=()), wanted, prices)
            for part, wanted in asked["batches"]
        ]
        cost = sum(calls, ZERO_USD)
        if budget is not None and (problem := budget_problem(budget, calls[0], "cases")):
            raise CannotDraftError(problem)
        if budget is None and cost:
            budget = CAP_TIMES * cost
    return DraftingPlan(suite, request.model, asked, request.run, budget, cost)


def call_usd(question: JudgeQuestion, wanted: int, prices: Prices) -> Decimal:
    """Return about what a question for so many cases costs."""
    messages, _ = PendingQuestion(question).messages()
    characters = sum(len(message["content"]) for message in messages)
    sent, received = characters // CHARACTERS_A_TOKEN + 1, wanted * TOKENS_A_CASE
    usd = prices.cost_usd(input_tokens=sent, output_tokens=received, cached_tokens=None)
    return usd or ZERO_USD


def _material(suite: Suite, request: DraftingRequest) -> tuple[list[Part], str]:
    """Return the parts of the material, and what it is in words."""
    if request.source == DOCUMENTS:
        if not request.documents:
            raise CannotDraftError("Choose at least one document.")
        check_length(request.documents)
        names = ", ".join(document.name for document in request.documents)
        return cut_documents(request.documents), names
    if request.source == CASES:
        chosen = suite.cases.filter(is_current=True)
        if request.keys:
            chosen = chosen.filter(key__in=request.keys)
        cases = list(chosen.order_by("position", "id")[:MAX_CASES])
        if not cases:
            raise CannotDraftError("The suite has none of these cases.")
        text = f"{counted(len(cases), 'case')} of {suite.slug}"
        return gather([SourceText(case.key, _case_text(case)) for case in cases], "case"), text
    if request.source == RESULTS:
        return _results(request)
    if not request.description.strip():
        raise CannotDraftError("Describe the agent and what to test.")
    return [Part("", "")], "a description"


def _results(request: DraftingRequest) -> tuple[list[Part], str]:
    run = request.run
    if run is None:
        raise CannotDraftError("Choose a run.")
    results = run.results.filter(output__isnull=False, output__removed_at=None)
    results = results.filter(status=ResultStatus.SCORED)
    if request.only_failed:
        results = results.filter(verdict=VerdictChoice.FAIL)
    if request.case_ids is not None:
        results = results.filter(case__in=request.case_ids)
    elif request.query is not None:
        matching = in_state(matching_cases(run, request.query), request.query)
        results = results.filter(case__in=matching.order_by().values("case_id"))
    worst = results.select_related("case", "output").order_by("score", "position", "id")
    # Answers may be long, and their conversations and traces longer.
    light = worst.defer("output__text", "output__messages", "output__trace")
    rows: list[Any] = [*light.annotate(answer=Substr("output__text", 1, PART_LENGTH))[:MAX_RESULTS]]
    count = len(rows) if len(rows) < MAX_RESULTS else results.count()
    failed = [row for row in rows if row.verdict == VerdictChoice.FAIL]
    noun = "failed result" if request.only_failed or len(failed) == len(rows) > 0 else "result"
    if not rows:
        raise CannotDraftError(f"Run {run} has no {noun} with a stored output among these.")
    of = f"the worst {len(rows)} of " if count > len(rows) else ""
    text = f"{of}{counted(count, noun)} of {run.suite.slug}#{run.number}"
    sources = [SourceText(row.case.key, _result_text(row, row.answer)) for row in rows]
    return gather(sources, "result"), text


def _case_text(case: Case) -> str:
    return _listed(
        ("Case", case.key),
        ("Input", conversation_text(case.input)),
        ("Expected output", case.expected_output),
        ("Expected outcomes", "; ".join(map(str, case.expected_outcomes))),
    )


def _result_text(result: Result, answer: str) -> str:
    cause = result_cause(result, (result.output.decision or {}).get("cause"))
    return _listed(
        ("Case", result.case.key),
        ("Input", conversation_text(result.case.input)),
        ("Expected output", result.case.expected_output),
        ("Expected outcomes", "; ".join(map(str, result.case.expected_outcomes))),
        ("The agent answered", answer),
        ("Why it failed", str(cause) if cause else ""),
    )


def _listed(*facts: tuple[str, str]) -> str:
    return "\n".join(f"{name}: {text.strip()}" for name, text in facts if text.strip())


def _suite_facts(suite: Suite) -> dict[str, Any]:
    """Return what tells the model how the suite's cases look: titles, tags, conversations, metadata."""
    current = suite.cases.filter(is_current=True).order_by("-position", "-id")
    cases = list(current.only("suite", "key", "title", "input", "metadata")[:CASES_LOOKED_AT])
    named = [case.title or conversation_text(case.input) for case in reversed(cases[:MAX_EXISTING])]
    names = Counter(
        name
        for case in cases
        for name, value in case.metadata.items()
        if isinstance(value, str) and name not in (DRAFTED, FROM)
    )
    tags = sorted(suite.tag_counts(), key=lambda pair: -pair[1])
    return {
        "existing": [" ".join(name.split()) for name in named if name.strip()],
        "tags": [tag for tag, _ in tags[:MAX_SUITE_TAGS]],
        "has_conversations": any(_is_conversation(case.input) for case in cases),
        "metadata": [name for name, n in names.most_common(MAX_METADATA) if 2 * n > len(cases)],
    }


def _is_conversation(turns: Sequence[Mapping[str, Any]]) -> bool:
    return any(turn.get("role") == "assistant" for turn in turns)


def start_drafting(
    suite: Suite,
    request: DraftingRequest,
    *,
    by: User | None,
    form_key: str = "",
    in_background: bool = True,
) -> ModelJob:
    """Have a model draft cases and return the job; a form that is sent twice starts one. Raises DomainError."""
    with transaction.atomic():
        held = lock_editable_suite(suite)
        drafting = ModelJob.objects.filter(suite=held, purpose=CallPurpose.DRAFTING)
        if form_key and (earlier := drafting.filter(asked_by=by, form_key=form_key).first()):
            return earlier
        plan = plan_drafting(held, request)
        job = ModelJob.objects.create(
            suite=held,
            purpose=CallPurpose.DRAFTING,
            # Several may be under way, each for who asked.
            subject=uuid.uuid4().hex,
            request=dict(plan.asked),
            model=plan.model,
            model_name=plan.model.name,
            planned_calls=plan.calls,
            budget_usd=plan.budget_usd,
            asked_by=by,
            form_key=form_key,
        )
        if plan.run is not None:
            job.sources.add(plan.run)
        _audit(
            job, "draft", by, model=plan.model.slug, source=plan.asked["from"], cases=request.count
        )
        if in_background:
            transaction.on_commit(partial(queue_job, job.pk))
    return job


def stop_drafting(job: ModelJob, *, by: User) -> bool:
    """End a drafting; the cases that are there stay. False when it has ended already."""
    with transaction.atomic():
        if not job.stop(by):
            return False
        _audit(job, "stop_draft", by, model=job.model_name)
    return True


def discard_drafts(job: ModelJob, *, by: User | None) -> None:
    """Remove the drafted cases of a job with the texts that they were drafted from; its cost stays booked."""
    with transaction.atomic():
        ModelJob.objects.filter(pk=job.pk).forget_texts()
        _audit(job, "delete_draft", by, model=job.model_name)


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person keeps of drafted cases: the rows by number, the fields, and the cells that were changed."""

    taken: Collection[int]
    fields: Collection[str]
    cells: Mapping[int, Mapping[str, Any]]


def keep_choices(job: ModelJob, choices: Choices) -> Proposal:
    """Store what a person chose and changed in drafted cases, and return them; nothing happens once they are stored."""
    with transaction.atomic():
        held = (
            ModelJob.objects.select_for_update(of=("self",)).select_related("suite").get(pk=job.pk)
        )
        outcome = dict(held.outcome or {})
        if outcome.get("stored") is None and held.outcome is not None:
            outcome["fields"] = sorted(choices.fields)
            outcome["rows"] = [
                {**row, **choices.cells.get(number, {}), "taken": number in choices.taken}
                for number, row in enumerate(outcome["rows"])
            ]
            held.outcome = outcome
            held.save(update_fields=["outcome"])
    return Proposal(held)


def store_drafted(job: ModelJob, *, seen: str, by: User | None) -> Mapping[str, int]:
    """Store the chosen cases in one version and return the counts; a second call does nothing.

    `seen` is the `version_stamp` of the suite for which its duplicates were shown, "" for any. Raises NotDraftedError,
    SuiteChangedError, SuiteArchivedError and InvalidCaseError.
    """
    with transaction.atomic():
        suite = lock_editable_suite(job.suite)
        held = ModelJob.objects.select_for_update(of=("self",)).get(pk=job.pk)
        held.suite = suite
        if held.outcome is None:
            raise NotDraftedError("There are no drafted cases any more.")
        if (stored := held.outcome.get("stored")) is not None:
            return dict(stored)
        check_unchanged(suite, seen)
        proposal = Proposal(held)
        cases = proposal.chosen_cases()
        if problems := [row for row in proposal.rows if row.is_taken and row.problems]:
            first = problems[0]
            raise NotDraftedError(
                f"{counted(len(problems), 'ticked case')} cannot be stored. {first.key or f'Row {first.number + 1}'}: "
                f"{first.problems[0]} Correct or untick them."
            )
        if not cases:
            raise NotDraftedError("Tick at least one case.")
        note = f"{counted(len(cases), 'case')} drafted by {held.model_name} from {held.request['from']}"
        done = put_cases(suite, cases, by=by, note=note[:300])
        counts = {
            "added": done.added,
            "version": done.version,
            "left": len(proposal.rows) - len(cases),
        }
        held.outcome = {**held.outcome, "stored": counts}
        held.save(update_fields=["outcome"])
    return counts


def _audit(job: ModelJob, action: str, by: User | None, **facts: Any) -> None:
    AuditEntry.objects.record(
        action,
        by=by,
        nobody=COMMAND_LINE,
        object_type="suite",
        object_id=job.suite_id,
        object_name=job.suite.title,
        after=facts,
    )
