from __future__ import annotations

import pytest

from runs import services
from runs.execution.running import work_on_run
from runs.models import Result, RunStatus
from tests.factories import make_case, make_suite, make_target

pytestmark = pytest.mark.django_db(transaction=True)

LEAF = {"weight": 1.0, "required": False, "required_below": None, "negate": False, "children": []}
CHECK = {
    **LEAF,
    "name": "mentions_refund",
    "kind": "text_check",
    "config": {"operator": "contains", "value": "refund"},
}


def tree(*children, aggregator=None):
    config = {"aggregator": aggregator or {"type": "weighted_average"}}
    return {**LEAF, "name": "all", "kind": "composite", "config": config, "children": children}


def test_a_recorded_target_is_run_to_the_end():
    suite = make_suite(tree=tree(CHECK))
    make_case(suite=suite, key="good", recorded_output={"output": "You get a refund."})
    make_case(suite=suite, key="bad", recorded_output={"output": "No."})
    make_case(suite=suite, key="gone")
    run = services.start_run(suite=suite, target=make_target(), started_by=None)

    work_on_run(run.pk)

    run.refresh_from_db()
    assert run.status == RunStatus.COMPLETED
    assert (run.done_count, run.pass_count, run.fail_count, run.error_count) == (3, 1, 1, 1)
    good, bad, gone = Result.objects.filter(run=run)
    assert (good.verdict, good.score, bad.verdict, bad.score) == ("pass", 1.0, "fail", 0.0)
    assert gone.status == "error"
    assert gone.error == (
        f"Nothing recorded: no recorded output for case gone in target {run.target_name}"
    )
    assert [score.path for score in good.scores.all()] == ["", "mentions_refund"]
    assert good.output.text == "You get a refund."
