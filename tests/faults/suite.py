"""The run into which faults are injected: 100 questions to a model, each answer judged by another.

What is to come out is known of every case by its number alone, tokens and verdicts included, so
that a figure that went to the wrong result shows as much as one that is missing.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.model_server import ModelServer, Request, completion, filled

CASES = 100
# Of each model, over all workers; a worker keeps as many executions in flight.
AT_ONCE = 6
CALLS = 2 * CASES
SUITE, AGENT, JUDGE = "faults", "agent", "judge"
NUMBER = re.compile(r"(Question|Answer) (\d+)")


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens."""

    input_usd: Decimal
    output_usd: Decimal

    def of(self, usage: dict[str, int]) -> Decimal:
        """Return what a call costs."""
        cost = (
            usage["prompt_tokens"] * self.input_usd + usage["completion_tokens"] * self.output_usd
        )
        return cost / 1_000_000


PRICES = {
    AGENT: Price(Decimal("2.5"), Decimal("10")),
    JUDGE: Price(Decimal("0.15"), Decimal("0.6")),
}


def is_right(number: int) -> bool:
    """Tell whether the judge is content with an answer."""
    return number % 3 > 0


def usage_of(model_id: str, number: int) -> dict[str, int]:
    """Return the tokens of the call for a case; no two cases are alike."""
    if model_id == AGENT:
        return {"prompt_tokens": 100 + number, "completion_tokens": 20 + number % 7}
    return {"prompt_tokens": 900 + 2 * number, "completion_tokens": 60 + number % 11}


def number_of(request: Request) -> int:
    """Return which case a request is about; question and answer in it must be of the same."""
    [number] = {int(digits) for _, digits in NUMBER.findall(request.text)}
    return number


def charge(requests: Iterable[Request], model_id: str) -> Decimal:
    """Return what a provider charges for the answers of one of its models."""
    return sum(
        (
            PRICES[model_id].of(usage_of(model_id, number_of(request)))
            for request in requests
            if request.body["model"] == model_id
        ),
        Decimal(0),
    )


def serve(models: ModelServer) -> None:
    """Let the server be both models: silent until the test releases it, then 30 to 60 ms an answer."""
    models.on_model(AGENT, answer)
    models.on_model(JUDGE, judge)


async def answer(request: Request) -> web.StreamResponse:
    """Answer as the agent."""
    await request.hang()
    number = number_of(request)
    await asyncio.sleep(0.03 + number % 4 / 100)
    return completion(f"Answer {number}.", AGENT, usage=usage_of(AGENT, number))


async def judge(request: Request) -> web.StreamResponse:
    """Answer as the judge."""
    await request.hang()
    number = number_of(request)
    await asyncio.sleep(0.03 + number % 3 / 100)
    reply: dict[str, Any] = filled(request.schema or {})
    reply |= {"reasoning": f"I read answer {number}.", "score": float(is_right(number))}
    return completion(json.dumps(reply), JUDGE, usage=usage_of(JUDGE, number))


def store(base_url: str) -> None:
    """Store the suite and queue a run of it; for a process of the site."""
    from runs.models.suites import Case, Suite, Target
    from runs.specs.suites import SuiteSpec

    prompt = {"prompt": "Is the answer right? {{question}} {{candidate_answer}}"}
    leaf = {"name": "right", "kind": "llm_judge", "config": prompt}
    root = {"name": "all", "kind": "composite", "children": [leaf]}
    agent, judge = _store_model(AGENT, base_url), _store_model(JUDGE, base_url)
    suite = Suite(slug=SUITE)
    spec = {"title": "Faults", "judge": judge.slug, "evaluators": root}
    suite.write(SuiteSpec.model_validate(spec))
    Case.objects.bulk_create(
        Case(
            suite=suite,
            key=f"C-{number}",
            position=number,
            content_hash=f"{number:064}",
            input=[{"role": "user", "content": f"Question {number}: where is it?"}],
        )
        for number in range(CASES)
    )
    Target.objects.create(name=AGENT, kind="chat", model=agent)
    start()


def start() -> None:
    """Start a run, as the browser does; for a process of the site."""
    from runs.models.suites import Suite, Target
    from runs.running.services import start_run

    suite, target = Suite.objects.get(slug=SUITE), Target.objects.get(name=AGENT)
    start_run(suite=suite, target=target, started_by=None)


def start_runs_until(path: str, *, cases: int, repetitions: int, most: int) -> None:
    """Start runs of the first cases, `most` at once, until a file exists; for a process of the site."""
    from runs.models.runs import ACTIVE_RUN_STATUSES, Run
    from runs.models.suites import Suite, Target
    from runs.running.services import start_run

    suite, target = Suite.objects.get(slug=SUITE), Target.objects.get(name=AGENT)
    keys = [f"C-{number}" for number in range(cases)]
    while not Path(path).exists():
        if Run.objects.filter(status__in=ACTIVE_RUN_STATUSES).count() < most:
            start_run(
                suite=suite,
                target=target,
                started_by=None,
                repetitions=repetitions,
                case_keys=keys,
            )
        else:
            time.sleep(0.1)


def resume() -> None:
    """Go on with the run that was stopped; for a process of the site."""
    from runs.models.runs import Run
    from runs.running.retrying import resume_run

    resume_run(Run.objects.get(), resumed_by=None)


def _store_model(slug: str, base_url: str) -> Any:
    from evaluators.models import LanguageModel

    return LanguageModel.objects.create(
        slug=slug,
        name=slug,
        model_id=slug,
        base_url=base_url,
        concurrency=AT_ONCE,
        timeout_s=60,
        input_price_usd_per_mtok=PRICES[slug].input_usd,
        output_price_usd_per_mtok=PRICES[slug].output_usd,
    )
