"""Evaluate a finished run under other rules, and write the time as one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import django
from django.core.management import call_command

LEAVES = 10
TIMES = 7
BANDS = {"pass_threshold": 0.55, "borderline_threshold": 0.45}


def main() -> None:
    """Store a run with this many results of ten scores each, evaluate it under other rules, and score it again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    count = parser.parse_args().count
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    django.setup()
    call_command("migrate", verbosity=0)
    run_id = store(count)
    figures: dict[str, Any] = measure(run_id)
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(figures) + "\n")


def store(count: int) -> int:
    """Return a completed run of so many cases, half of whose scores lie about the bands."""
    from runs.execution.run_worker import work_on_run
    from runs.models.runs import Run
    from runs.models.stored import pack_leaf_scores
    from runs.models.suites import Case, Suite, Target
    from runs.running.services import start_run
    from runs.specs.suites import SuiteSpec
    from tests.benchmarks.suites import CONTAINS, LEAF

    leaves = [{"name": f"leaf {number}", **LEAF, **CONTAINS} for number in range(LEAVES)]
    root = {"name": "all", "kind": "composite", "children": leaves}
    suite = Suite(slug="asked")
    suite.write(SuiteSpec.model_validate({"title": "asked", "evaluators": root}))
    Case.objects.bulk_create(
        Case(
            suite=suite,
            key=f"C-{number:05}",
            position=number,
            input=[{"role": "user", "content": "Where is my refund?"}],
            content_hash=f"{number:064}",
            recorded_output={"output": f"Your refund {number} is on its way."},
        )
        for number in range(count)
    )
    target = Target.objects.create(name="asked", kind="recorded")
    run = start_run(suite=suite, target=target, started_by=None, concurrency=8)
    work_on_run(run.pk)
    scatter(run.pk)
    Run.objects.filter(pk=run.pk).update(leaf_scores=pack_leaf_scores(run.pk))
    return run.pk


def scatter(run_id: int) -> None:
    """Give every leaf another score, and every result the verdict and score that follow."""
    from evaluators.scoring.score_tree import Rules
    from evaluators.scoring.types import Score as Said
    from runs.engine.plan import read_plan
    from runs.models.database import update_rows
    from runs.models.results import EvaluatorScore, Result
    from runs.models.runs import Run

    plan = read_plan(Run.objects.get(pk=run_id).snapshot)
    rules, chance = Rules(plan.root, plan.policy), random.Random(7)
    leaves = (
        EvaluatorScore.objects.filter(result__run=run_id).exclude(path="").order_by("result_id")
    )
    said: dict[int, dict[str, Said]] = {}
    rows = []
    for pk, result, path in leaves.values_list("pk", "result_id", "path"):
        score = round(chance.random(), 3)
        said.setdefault(result, {})[path] = Said(score)
        rows.append((score, pk))
    update_rows(EvaluatorScore, ("score",), rows, key=("id",))
    decided = ((pk, rules.decide(outcomes)) for pk, outcomes in said.items())
    update_rows(
        Result,
        ("verdict", "score", "decided_by", "is_forced"),
        ((str(one.verdict), one.score, one.decided_by, False, pk) for pk, one in decided),
        key=("id",),
    )


def measure(run_id: int) -> dict[str, float]:
    """Return the seconds of the first question, of later ones, and of a new run made of the scores."""
    from runs.engine.plan import read_plan
    from runs.models.runs import Run
    from runs.tasks import rescore_run as complete_run
    from runs.what_if.changes import RuleSet
    from runs.what_if.page import answer_what_if
    from runs.what_if.services import rescore_run

    plan = read_plan(Run.objects.get(pk=run_id).snapshot)
    children = tuple(
        child.replace(weight=1.0 + number % 3) for number, child in enumerate(plan.root.children)
    )
    rules = RuleSet(plan.policy.replace(**BANDS), plan.root.replace(children=children))

    def ask() -> None:
        found = answer_what_if(Run.objects.defer("leaf_scores").get(pk=run_id), rules)
        if not (found.flips and found.is_exact and not found.fixed):
            raise SystemExit(f"{len(found.flips)} flips, {found.fixed} fixed, {found.stale}")

    def make() -> None:
        run = rescore_run(Run.objects.get(pk=run_id), rules, by=None)
        if not complete_run(run.pk) and Run.objects.get(pk=run.pk).status != "completed":
            raise SystemExit("the run was not made")

    first, later = seconds(ask), [seconds(ask) for _ in range(TIMES)]
    panel = panel_of(Run.objects.get(pk=run_id).suite)
    panel()
    shown = [seconds(panel) for _ in range(TIMES)]
    made = seconds(make)
    return {
        "panel_s": median(wall for wall, _ in shown),
        "panel_cpu_s": median(cpu for _, cpu in shown),
        "first_s": first[0],
        "later_s": median(wall for wall, _ in later),
        "later_cpu_s": median(cpu for _, cpu in later),
        "made_s": made[0],
        "made_cpu_s": made[1],
    }


def panel_of(suite: Any) -> Callable[[], None]:
    """Return what asks for the panel beside the editor as a page does while a slider moves."""
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    from runs.suites.drafts import get_draft

    editor = User.objects.create_superuser("editor")
    client = Client(SERVER_NAME="localhost")
    client.force_login(editor)
    sent = {name: str(value) for name, value in BANDS.items()}
    sent["stamp"] = get_draft(suite, editor).stamp
    address = reverse("runs:what-if", args=[suite.slug])

    def panel() -> None:
        answer = client.post(address, sent, headers={"HX-Request": "true"}, secure=True)
        if answer.status_code != 200 or b"would flip" not in answer.content:
            raise SystemExit(f"the panel was not shown: {answer.status_code}")

    return panel


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Return how long the work takes, on the clock and of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
