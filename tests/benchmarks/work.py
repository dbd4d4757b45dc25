"""Do one piece of work in a fresh process and database, and write what it took as one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command

LEAF: dict[str, Any] = {"weight": 1.0, "required": False, "required_below": None, "negate": False}
CONTAINS = {"kind": "text_check", "config": {"operator": "contains", "value": "refund"}}
JUDGE = {"kind": "llm_judge", "config": {"prompt": "Is the answer right and kind?"}}
WARM_UP_CASES = 4


def prepare(name: str, *, count: int, concurrency: int, base_url: str) -> dict[str, Any]:
    """Store a suite with so many cases, and return how a run of it is started."""
    from evaluators.models import Evaluator, LanguageModel
    from runs.models import Case, Suite, Target

    root = Evaluator.objects.create(name="all", kind="composite", config={})
    model = None
    if base_url:
        model = LanguageModel.objects.create(
            slug=name, name=name, model_id="mock", base_url=base_url, concurrency=concurrency
        )
    Evaluator.objects.create(parent=root, name="check", **LEAF, **(JUDGE if model else CONTAINS))
    suite = Suite.objects.create(slug=name, title=name, root=root, judge=model)
    Case.objects.bulk_create(
        Case(
            suite=suite,
            key=f"C-{number:05}",
            position=number,
            input=[{"role": "user", "content": f"Question {number}: where is my refund?"}],
            content_hash=f"{number:064}",
            recorded_output=None if model else {"output": f"Your refund {number} is on its way."},
        )
        for number in range(count)
    )
    target = Target.objects.create(name=name, kind="chat" if model else "recorded", model=model)
    return {"suite": suite, "target": target, "started_by": None, "concurrency": concurrency}


def carry_out(order: dict[str, Any]) -> None:
    """Start a run and work it off; raises SystemExit unless every case passed."""
    from runs import services
    from runs.execution.running import work_on_run
    from runs.models import Run

    run = services.start_run(**order)
    work_on_run(run.pk)
    ended = Run.objects.only("status", "pass_count", "execution_count").get(pk=run.pk)
    if ended.status != "completed" or ended.pass_count != ended.execution_count:
        raise SystemExit(f"{ended.pass_count} of {ended.execution_count} passed: {ended.status}")


def main() -> None:
    """Warm up as a worker that is up is warm, then measure one run from its start to its finish."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("concurrency", type=int)
    parser.add_argument("base_url", nargs="?", default="")
    chosen = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    django.setup()
    call_command("migrate", verbosity=0)
    shared = {"concurrency": chosen.concurrency, "base_url": chosen.base_url}
    carry_out(prepare("warm-up", count=WARM_UP_CASES, **shared))
    order = prepare("measured", count=chosen.count, **shared)

    wall, cpu = time.perf_counter(), time.process_time()
    carry_out(order)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    folder = Path(os.environ["EVALSITE_DATA_DIR"])
    figures = {
        "wall_s": wall,
        "cpu_s": cpu,
        "process_cpu_s": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "disk_mb": sum(part.stat().st_size for part in folder.iterdir()) / 2**20,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
