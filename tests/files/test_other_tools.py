"""Files of other tools on their way through the import: the suite first, then the results it got elsewhere."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from django.core.management import call_command

from runs.models.results import ResultOutput
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from tests.formats.tools.test_inspect_ai import log
from tests.formats.tools.test_promptfoo import ROWS

pytestmark = pytest.mark.django_db

CONFIG = {
    "description": "Shop",
    "prompts": [
        {"label": "plain", "raw": "0 {{question}}"},
        {"label": "warm", "raw": "1 {{question}}"},
    ],
    "providers": ["openai:x"],
    "tests": [
        {"description": "Opening hours", "vars": {"question": "When?"}},
        {"vars": {"question": "Fruits"}, "threshold": 0.5},
    ],
}


def test_a_promptfoo_user_brings_config_and_results_and_sees_the_same_verdicts(tmp_path, capsys):
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(CONFIG))
    results = {"results": {"version": 3, "results": ROWS}, "config": CONFIG}
    (tmp_path / "results.json").write_text(json.dumps(results))
    call_command("import", str(tmp_path))
    assert "results.json: is results of promptfoo and was left out" in capsys.readouterr().err
    call_command("import_results", str(tmp_path / "results.json"))
    [suite] = Suite.objects.all()
    [run] = Run.objects.all()
    assert (suite.slug, run.suite, run.target_name, run.status) == (
        "shop",
        suite,
        "big",
        "completed",
    )
    assert (run.pass_count, run.fail_count, run.error_count) == (2, 1, 1)
    assert Counter(run.results.values_list("case__key", "verdict")) == Counter(
        {
            ("opening-hours.plain", ""): 1,
            ("opening-hours.warm", "fail"): 1,
            ("fruits.plain", "pass"): 1,
            ("fruits.warm", "pass"): 1,
        }
    )
    assert Case.objects.filter(suite=suite, is_current=True).count() == 4


def test_two_logs_of_inspect_become_two_runs_of_one_suite(tmp_path):
    for name in ("first.eval", "second.json"):
        (tmp_path / name).write_bytes(log(name.partition(".")[2]))
        call_command("import_results", str(tmp_path / name))
    [suite] = Suite.objects.all()
    runs = list(Run.objects.order_by("number"))
    assert [(run.suite, run.repetitions, run.case_count) for run in runs] == [(suite, 2, 4)] * 2
    for run in runs:
        assert (run.pass_count, run.fail_count, run.error_count) == (1, 2, 2)
    output = ResultOutput.objects.get(
        result__run=runs[0], result__case__key="pe", result__repetition=1
    )
    assert [turn["role"] for turn in output.messages] == ["user", "assistant", "tool"]
    assert [(step["name"], step["input"]) for step in output.trace] == [("look", {"a": 1})]
