"""Look at pages of runs with 20,000 results, and write times and queries as one line of JSON."""

from __future__ import annotations

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


def main() -> None:
    """Fill a fresh database, then time each page inside this process, without a network."""
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
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    figures: dict[str, Any] = {name: look(client, page) for name, page in PAGES.items()}
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
