"""Execute one run in a fresh process and database, and write its measurements as one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time

import django
from django.core.management import call_command

WARM_UP_CASES = 4


def main() -> None:
    """Warm up, then measure one run from start to finish."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("at_once", type=int)
    parser.add_argument("base_url", nargs="?", default="")
    parser.add_argument("--again", action="store_true", help="judge outputs that are stored again")
    chosen = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    django.setup()
    from runs.execution.run_worker import freeze_loaded_objects
    from tests.benchmarks import suites

    freeze_loaded_objects()
    call_command("migrate", verbosity=0)
    shared = {"at_once": chosen.at_once, "base_url": chosen.base_url}
    for number in range(2):
        suites.execute_run(suites.store(f"warm-up-{number}", cases=WARM_UP_CASES, **shared))
    order = suites.store("measured", cases=chosen.count, asks_target=not chosen.again, **shared)
    if chosen.again:
        suites.execute_run(order)

    wall, cpu = time.perf_counter(), time.process_time()
    (suites.judge_again if chosen.again else suites.execute_run)(order)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    figures = {
        "wall_s": wall,
        "cpu_s": cpu,
        "process_cpu_s": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
