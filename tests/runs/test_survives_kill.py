from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator

import pytest

from tests.model_server import ModelServer, good
from tests.services.processes import wait_until
from tests.services.site import Site, running_site

CASES = 120
AT_ONCE = 6
BATCH = 50

START = """
from evaluators.models import Evaluator, LanguageModel
from runs import services
from runs.models import Case, Suite, Target
root = Evaluator.objects.create(name="all", kind="composite", config={{}})
Evaluator.objects.create(
    parent=root, name="right", kind="llm_judge", config={{"prompt": "Is it right?"}}
)
model = LanguageModel.objects.create(
    slug="mock", name="mock", model_id="mock", base_url="{base_url}", concurrency={at_once},
    input_price_usd_per_mtok=1, output_price_usd_per_mtok=2,
)
suite = Suite.objects.create(slug="kill", title="Kill", root=root, judge=model)
for n in range({cases}):
    Case.objects.create(
        suite=suite, key=f"C-{{n}}", position=n, content_hash=str(n),
        input=[{{"role": "user", "content": f"Question {{n}}"}}],
    )
target = Target.objects.create(name="agent", kind="chat", model=model)
services.start_run(suite=suite, target=target, started_by=None)
"""


@pytest.fixture
def site() -> Iterator[Site]:
    with running_site() as found:
        yield found


class Database:
    def __init__(self, site: Site) -> None:
        path = site.data_dir / "evalsite.sqlite3"
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)

    def one(self, query: str) -> tuple:
        return self.connection.execute(query).fetchone()


def test_a_killed_worker_is_respawned_and_the_run_ends_with_every_result_once(
    site: Site, model_server: ModelServer
):
    model_server.behave(then=good(seconds=0.05))
    code = START.format(base_url=model_server.base_url, at_once=AT_ONCE, cases=CASES)
    site.manage("shell", "--verbosity", "0", "-c", code)
    database = Database(site)

    for done in (15, 60):
        wait_until(lambda done=done: database.one("SELECT done_count FROM runs_run")[0] >= done)
        [worker] = site.web_workers()
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: database.one("SELECT status FROM runs_run")[0] == "completed")

    counted = "SELECT done_count, pass_count, error_count, execution_count FROM runs_run"
    assert database.one(counted) == (CASES, CASES, 0, CASES)
    statuses = "SELECT count(*), count(DISTINCT case_id), sum(status = 'scored') FROM runs_result"
    assert database.one(statuses) == (CASES, CASES, CASES)
    assert database.one("SELECT count(*) FROM runs_resultoutput") == (CASES,)
    assert database.one("SELECT count(*) FROM runs_score") == (2 * CASES,)
    calls = database.one("SELECT count(*) FROM runs_modelcall WHERE status = 'ok'")[0]
    repeated = len(model_server.chats) - 2 * CASES
    assert 2 * CASES <= calls <= len(model_server.chats)
    assert repeated <= 2 * (AT_ONCE + BATCH)
    ledger, run, results = database.one(
        "SELECT round((SELECT sum(cost_usd) FROM runs_modelcall), 9),"
        " round(run_cost_usd + evaluation_cost_usd, 9),"
        " round((SELECT sum(run_cost_usd + evaluation_cost_usd) FROM runs_result), 9)"
        " FROM runs_run"
    )
    assert ledger == run == results > 0
    lost = database.one("SELECT count(*) FROM runs_runevent WHERE kind = 'worker_lost'")[0]
    assert lost >= 1
