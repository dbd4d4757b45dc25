"""A suite whose judge people disagree with, and a model server that writes and follows instructions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from aiohttp import web

from evaluators.kinds import prompt_versions
from evaluators.model_calls.models import model_spec
from evaluators.models import LanguageModel
from evaluators.scoring.tree import EvaluatorSpec
from runs.engine.plan import Plan, TargetPlan
from runs.models.jobs import ModelJob
from runs.models.results import Result
from runs.models.reviews import Review
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.reviews.alignment.rules import PeopleDecision
from runs.reviews.alignment.specs import AlignmentOutcome, AlignmentSpec, Candidate, HeldOutOpinion
from runs.reviews.services import ask_for_reviews, store_consensus
from tests.support.factories import (
    make_call,
    make_case,
    make_model,
    make_result,
    make_run,
    make_score,
    make_suite,
    make_user,
)
from tests.support.model_server import USAGE, Request, completion
from tests.support.trees import JUDGED, tree

TODAY = "A good answer is long."
KIND, SHORT = "A good answer is kind, of any length.", "A good answer is short."
# 100 tokens in and 20 out, as the model server reports them.
PRICES = {
    "input_price_usd_per_mtok": Decimal(10),
    "cached_price_usd_per_mtok": Decimal(10),
    "output_price_usd_per_mtok": Decimal(50),
}
CALL_USD = Decimal("0.002")
PEOPLE = ["pass", "fail"] * 15


def answer(number: int, said: str) -> str:
    return f"Answer number {number:02} is {'kind' if said == 'pass' else 'rude'}."


def make_decided_suite(
    address: str = "http://127.0.0.1:9/v1", people: Sequence[str] = PEOPLE, **columns: Any
) -> tuple[Suite, Run]:
    """Return a suite with a run whose judge failed every answer, and on which people decided."""
    judge = columns.get("judge") or make_model(slug="mock", name="Mock", base_url=address, **PRICES)
    own = tree({**JUDGED, "name": "tone", "config": {"prompt": TODAY}})
    suite = make_suite(**{"slug": "support", "judge": judge, "tree": own, **columns})
    run = make_run(suite=suite, snapshot=snapshot(suite, judge))
    ann = make_user(role="reviewer")
    for number, said in enumerate(people):
        case = make_case(suite=suite, key=f"C-{number:02}", position=number)
        text = {"text": answer(number, said), "messages": [], "usage": {}}
        result = make_result(run=run, case=case, verdict="fail", score=0.1, output=text)
        make_score(result=result, path="tone", score=0.1, reasoning=f"Number {number} is short.")
        make_call(result=result, model_name="Mock", input_tokens=100, output_tokens=20)
    ask_for_reviews(run, run.results.all(), by=ann)
    results = run.results.order_by("position")
    # A decision by the service takes longer than everything else here.
    Review.objects.bulk_create(
        Review(
            result=result,
            reviewer=ann,
            verdict=said,
            note=f"Note {number}.",
            machine_verdict="fail",
            machine_score=0.1,
        )
        for number, (result, said) in enumerate(zip(results, people, strict=True))
    )
    store_consensus(run, results, by=ann)
    return suite, run


def snapshot(suite: Suite, judge: LanguageModel) -> dict[str, Any]:
    return Plan(
        suite={"slug": suite.slug, "title": suite.title, "version": suite.version},
        policy=suite.policy,
        root=suite.spec.evaluators,
        target=TargetPlan("agent", "recorded"),
        judge=judge.slug,
        models={judge.slug: model_spec(judge).as_json()},
        prompts=prompt_versions(),
    ).as_json()


def is_writing(request: Request) -> bool:
    return "candidates" in (request.schema or {}).get("properties", {})


def writes(
    *texts: str, then: Mapping[str, Any] | None = None, usage: Mapping[str, Any] = USAGE
) -> Any:
    """Write these instructions, and judge by them: kindness where they ask for it, else nothing is good."""
    reply = then or {"candidates": [{"reason": "People like it.", "text": text} for text in texts]}

    async def behave(request: Request) -> web.StreamResponse:
        if is_writing(request):
            return completion(json.dumps(reply), "writer", usage=usage)
        is_good = KIND in request.text and " is kind." in request.text
        opinion = {"reasoning": "Read.", "hits": [], "misses": [], "score": 0.9 if is_good else 0.1}
        return completion(json.dumps(opinion), "mock")

    return behave


def texts_of(results: Sequence[int]) -> list[str]:
    rows = Result.objects.filter(pk__in=results).order_by("pk")
    return list(rows.values_list("output__text", flat=True))


def make_alignment(suite: Suite, run: Run | None = None, **columns: Any) -> ModelJob:
    """Return an alignment of an evaluator of a suite; with a run it has judged its results by one candidate."""
    results = list(run.results.order_by("pk")) if run else []
    held_out = [PeopleDecision(row.pk, row.case.key, "pass", "fail") for row in results]
    spec = AlignmentSpec(
        path="tone",
        setting="prompt",
        written=TODAY,
        version=1,
        node=EvaluatorSpec(name="tone", kind="llm_judge", config={"prompt": TODAY}),
        policy=suite.policy,
        judge="mock",
        candidates=1,
        seed="s",
        seen=(),
        shown=(),
        held_out=tuple(held_out),
        scores={row.pk: 0.1 for row in results},
    )
    good, bad = HeldOutOpinion(score=0.9, verdict="pass"), HeldOutOpinion(score=0.1, verdict="fail")
    outcome = AlignmentOutcome(
        candidates=(Candidate(text=KIND, reason="People like it."),),
        opinions={
            0: {row.pk: bad for row in results},
            1: {row.pk: good for row in results},
        },
    )
    facts = {"request": spec.as_json(), "outcome": outcome.as_json() if run else None}
    facts |= {"model_name": "Mock", "subject": "tone", "planned_calls": 1 + len(results)}
    facts |= {"state": "done" if run else "waiting", "budget_usd": Decimal(1)}
    return ModelJob.objects.create(suite=suite, purpose="alignment", **facts | columns)
