"""Look at pages of runs with 20,000 results, and write times and queries as one line of JSON.

With `--copies`, the site has so many more runs of as many results; only PostgreSQL can copy them.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from statistics import median
from typing import Any

from django.core.management import call_command

from evalsite import load

RESULTS = 20_000
RUNS = 2
TIMES = 7
RUN = f"/suites/many/runs/{RUNS - 1}/"
PAGES = {
    "result table": RUN,
    "result table by cost": f"{RUN}?sort=cost",
    "result": f"{RUN}C-05000/1/",
    "case": "/suites/many/cases/C-05000/",
    "run list": "/runs/",
    "charts": "/suites/many/charts/",
    "form of a new run": "/suites/many/runs/new/",
    "comparison": f"/compare/?baseline=many:{RUNS - 1}&candidate=many:{RUNS}",
    "comparison in the API": (
        f"/api/runs/compare?baseline_run_id=many:{RUNS - 1}&candidate_run_id=many:{RUNS}"
    ),
}
# What else grows with the results of a site.
PAGES_OF_MANY_RUNS = PAGES | {
    "home": "/dashboard/",
    "suite": "/suites/many/",
    "evaluators of a run": f"{RUN}evaluators/",
    "result table by an evaluator": f"{RUN}?sort=evaluator.check",
    "result table, filtered": f"{RUN}?q=score+%3C+0.5+or+latency+%3E+1s",
    "result table, grouped": f"{RUN}?group=tag",
    "what-if": f"/suites/many/what-if/?run={RUNS}",
    "changes that match a filter": (
        f"/compare/?baseline=many:{RUNS - 1}&candidate=many:{RUNS}&q=check+changed"
    ),
    "six runs side by side": "/compare/many/?runs=" + ",".join(f"many:{n}" for n in range(1, 7)),
    "score against score": (
        f"/compare/pictures/scatter/?baseline=many:{RUNS - 1}&candidate=many:{RUNS}"
    ),
    "review queue": "/review/",
    "search": "/search/?q=refund",
}


def main() -> None:
    """Fill a fresh database, then time each page inside this process, without a network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--copies", type=int, default=0)
    copies = parser.parse_args().copies
    load()
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    from tests.benchmarks import suites

    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    order = suites.store("many", cases=RESULTS, at_once=8)
    for _ in range(RUNS):
        suites.execute_run(order)
    if copies:
        from tests.benchmarks.copies import copy_runs

        copy_runs(order["suite"], copies)
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    figures: dict[str, Any] = {
        name: look(client, page) for name, page in (PAGES_OF_MANY_RUNS if copies else PAGES).items()
    }
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(figures) + "\n")


def look(client: Any, page: str) -> tuple[float, int]:
    """Return the seconds a page takes, the middle of several, and how many queries it makes."""
    from django.db import connection

    queries: list[str] = []

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        queries.append(sql)
        return execute(sql, *rest)

    def once() -> float:
        queries.clear()
        started = time.perf_counter()
        answer = client.get(page, secure=True)
        took = time.perf_counter() - started
        if answer.status_code != 200:
            raise SystemExit(f"{page} answers {answer.status_code}")
        return took

    with connection.execute_wrapper(count):
        once()
        return median(once() for _ in range(TIMES)), len(queries)


if __name__ == "__main__":
    main()
