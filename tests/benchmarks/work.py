"""Do one piece of work in a fresh database and write what it took as one line of JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

LEAF: dict[str, Any] = {"weight": 1.0, "required": False, "required_below": None, "negate": False}
CONTAINS = {"kind": "text_check", "config": {"operator": "contains", "value": "refund"}}
JUDGE = {"kind": "llm_judge", "config": {"prompt": "Is the answer right and kind?"}}


def make_run(*, count: int, concurrency: int, base_url: str) -> Any:
    """Store a suite with so many cases and start a run of it."""
    from evaluators.models import Evaluator, LanguageModel
    from runs import services
    from runs.models import Case, Suite, Target

    root = Evaluator.objects.create(name="all", kind="composite", config={})
    model = None
    if base_url:
        model = LanguageModel.objects.create(
            slug="mock", name="mock", model_id="mock", base_url=base_url, concurrency=concurrency
        )
    Evaluator.objects.create(parent=root, name="check", **LEAF, **(JUDGE if model else CONTAINS))
    suite = Suite.objects.create(slug="bench", title="Bench", root=root, judge=model)
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
    target = Target.objects.create(name="agent", kind="chat" if model else "recorded", model=model)
    return services.start_run, {
        "suite": suite,
        "target": target,
        "started_by": None,
        "concurrency": concurrency,
    }


def main(count: int, concurrency: int, base_url: str) -> None:
    """Carry the run out and write wall and CPU seconds of the run, and the peak memory."""
    django.setup()
    call_command("migrate", verbosity=0)
    start_run, order = make_run(count=count, concurrency=concurrency, base_url=base_url)
    from runs.execution.running import work_on_run
    from runs.models import Run

    wall, cpu = time.perf_counter(), time.process_time()
    run = start_run(**order)
    work_on_run(run.pk)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    ended = Run.objects.get(pk=run.pk)
    if (ended.status, ended.pass_count) != ("completed", count):
        raise SystemExit(f"the run ended {ended.status} with {ended.pass_count} of {count} passed")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = sum(part.stat().st_size for part in Path(os.environ["EVALSITE_DATA_DIR"]).iterdir())
    figures = {"wall_s": wall, "cpu_s": cpu, "peak_mb": peak, "disk_mb": size / 2**20}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
