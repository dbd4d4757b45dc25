"""The command `compare`: conclusion, tolerances, worst cases and exit codes."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from runs.management.commands.compare import Command
from runs.models.results import Result
from runs.models.runs import Run
from tests.support.factories import (
    TREE,
    digest,
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db

GOOD, BAD, SO_SO = ("pass", 0.9), ("fail", 0.2), ("borderline", 0.7)
WRONG = ("error", None)


@pytest.fixture
def suite():
    return make_suite(slug="support", cases=3)


def run_of(suite, *results, latency_ms=1000, repetitions=1, **columns):
    run = make_run(suite=suite, repetitions=repetitions, **columns)
    cases = list(suite.cases.filter(is_current=True))
    for case, (verdict, score) in zip(cases, results, strict=False):
        for repetition in range(1, repetitions + 1):
            facts = {"status": "error"} if verdict == "error" else {"verdict": verdict}
            make_result(
                run=run,
                case=case,
                score=score,
                latency_ms=latency_ms,
                repetition=repetition,
                **facts,
            )
    return run


def compare(*arguments) -> int:
    try:
        call_command("compare", *map(str, arguments))
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize(
    "given",
    [
        ["support#1"],
        ["support#1", "support#2", "--max-pass-rate-drops", "0.1"],
        ["support#1", "support#2", "--min-cases", "few"],
    ],
)
def test_wrong_usage_does_not_exit_like_an_inconclusive_comparison(given, capsys):
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["evalsite", "compare", *given])
    assert end.value.code == 3
    assert "usage: evalsite compare" in capsys.readouterr().err


def test_help_exits_with_0(capsys):
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["evalsite", "compare", "--help"])
    assert end.value.code == 0
    assert "3  not compared: wrong usage" in capsys.readouterr().out


def test_an_equal_run_is_no_regression(suite, capsys):
    for _ in range(2):
        run_of(suite, GOOD, GOOD, BAD)
    assert compare("support#1", "support#2") == 0
    output = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in output.splitlines()]
    assert "Pass rate 66.6% (2 of 3) 66.6% (2 of 3) ±0.0 pts" in rows
    assert "Mean score 66.6% (3 of 3) 66.6% (3 of 3) ±0.0 pts" in rows
    assert "Mean latency 1.0 s (3 of 3) 1.0 s (3 of 3) ±0.0%" in rows
    assert "Total cost $0.048 $0.048 ±0.0%" in rows
    assert (
        "Cases: 0 worse, 0 better, 3 unchanged, 0 without a verdict, 0 added, 0 removed" in output
    )
    assert "Evidence: 3 shared cases have a verdict on both sides; ten are needed" in output
    assert "All limits are met. There are too few shared cases" in output


def test_an_exceeded_tolerance_is_a_regression_with_the_worst_cases_first(suite, capsys):
    run_of(suite, GOOD, ("pass", 0.81), GOOD)
    run_of(suite, ("borderline", 0.7), BAD, ("pass", 0.84), latency_ms=1300)
    assert compare("support#1", "support#2") == 1
    output = capsys.readouterr().out
    assert "Regression: pass rate fell by 66.7 pts, from 100.0% to 33.3% (limit: no drop)" in output
    assert "mean latency grew by 30.0%" in output
    rows = [line.split()[0] for line in output.splitlines() if line.startswith("C-")]
    assert rows == ["C-002", "C-001", "C-003"]
    assert "C-002      pass 0.81  fail 0.20        -61.0 pts" in output


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--max-pass-rate-drop", "0.34", 0),
        ("--max-pass-rate-drop", "0.33", 1),
    ],
)
def test_tolerances_can_be_set_by_options(suite, option, value, code):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, GOOD, GOOD, ("borderline", 0.78))
    assert compare("support#1", "support#2", option, value) == code


def test_tolerances_are_read_in_their_units(suite):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, ("pass", 0.8), ("pass", 0.8), ("pass", 0.8), latency_ms=1400)
    assert compare("support#1", "support#2") == 1
    loose = ("--max-avg-score-drop", 10, "--max-latency-increase-pct", 40)
    assert compare("support#1", "support#2", *loose) == 0


def test_cases_that_swap_verdicts_are_no_regression(suite, capsys):
    run_of(suite, GOOD, BAD, GOOD)
    run_of(suite, BAD, GOOD, GOOD)
    assert compare("support#1", "support#2") == 0
    assert "Cases: 1 worse, 1 better, 1 unchanged" in capsys.readouterr().out


def test_an_error_is_distinguished_from_a_failure(suite, capsys):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, GOOD, GOOD, WRONG)
    assert compare("support#1", "support#2") == 1
    output = capsys.readouterr().out
    rows = [line.split() for line in output.splitlines()]
    assert ["Errors", "0", "1", "+1"] in rows
    assert ["C-003", "pass", "0.90", "no", "verdict", "–"] in rows


def test_the_list_of_worse_cases_matches_their_count(suite, capsys):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, ("fail", 0.2), GOOD, WRONG)
    compare("support#1", "support#2")
    output = capsys.readouterr().out
    worse, lost = output.split("Got worse")[1].split("Verdict lost")
    assert len(worse.strip().splitlines()) == 2
    assert "no verdict" in lost
    assert "Cases: 1 worse, 0 better, " in output
    assert "changes are exact" in output


def test_repetitions_are_folded_into_their_case(suite, capsys):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, GOOD, GOOD, GOOD, repetitions=2)
    assert compare("support#1", "support#2") == 0
    output = capsys.readouterr().out
    assert "Differs    repetitions: 1 and 2" in output
    assert "(6 of 6)" in output


def test_runs_of_other_cases_are_not_compared_unless_forced(suite, capsys):
    run_of(suite, GOOD, GOOD, GOOD)
    first = suite.cases.get(key="C-001")
    first.is_current = False
    first.save()
    make_case(suite=suite, key="C-001", revision=2, content_hash=digest("new"), position=1)
    run_of(suite, BAD, GOOD, GOOD)
    assert compare("support#1", "support#2") == 2
    output = capsys.readouterr().out
    assert "Differs    cases: 1 changed (“C-001”)" in output
    assert (
        "Inconclusive: the runs differ in cases, not only in their targets, so no change" in output
    )
    assert "can be attributed to the target. Pass rate fell by 33.3 pts" in output
    assert "Add --force to compare" in output
    assert compare("support#1", "support#2", "--force") == 1


def test_differences_of_judge_policy_and_evaluators_are_reported(suite, capsys):
    run_of(suite, GOOD, GOOD, GOOD)
    snapshot = make_snapshot(suite=suite, target=make_target())
    tone, refund = snapshot["evaluators"]["children"]
    snapshot["evaluators"] = {
        **snapshot["evaluators"],
        "children": [{**tone, "weight": 5.0}, {**refund, "name": "money"}],
    }
    snapshot["policy"]["pass_threshold"] = 0.9
    snapshot["policy"]["cases_pass_threshold"] = 0.1
    snapshot["judge"] = {"slug": "j", "name": "Juno", "base_url": "http://j/v1", "model_id": "j"}
    run_of(suite, GOOD, GOOD, GOOD, snapshot=snapshot)
    assert compare("support#1", "support#2") == 2
    output = capsys.readouterr().out
    assert "Differs    evaluators: “money” added, “refund” removed, “tone” changed" in output
    assert "Differs    policy: pass threshold 0.8 and 0.9" in output
    assert "Differs    judge: none and Juno" in output


@pytest.mark.parametrize(
    ("status", "is_forced", "code", "reason"),
    [
        (
            "stopped",
            False,
            2,
            ("support#2 was not completed (cancelled).", "Resume it, or add --force."),
        ),
        ("stopped", True, 0, ("No regression",)),
        ("running", True, 2, ("support#2 is still running,", "Compare it when it has finished.")),
    ],
)
def test_a_run_that_is_not_completed_is_inconclusive(
    suite, capsys, status, is_forced, code, reason
):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, GOOD, GOOD, GOOD, status=status)
    forced = ["--force"] * is_forced
    assert compare("support#1", "support#2", *forced) == code
    output = capsys.readouterr().out
    assert all(part in output for part in reason)


def test_too_few_shared_cases_are_inconclusive(suite, capsys):
    run_of(suite, WRONG, WRONG, WRONG)
    run_of(suite, GOOD, GOOD, GOOD)
    assert compare("support#1", "support#2") == 2
    assert "0 shared cases have a verdict on both sides, 1 are needed" in capsys.readouterr().out
    run_of(suite, GOOD, GOOD, GOOD)
    assert compare("support#2", "support#3", "--min-cases", 4) == 2


def test_runs_can_be_named_latest_and_baseline(suite):
    baseline = run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, BAD, BAD, BAD)
    run_of(suite, GOOD, GOOD, GOOD, status="running")
    suite.baseline_run = baseline
    suite.save()
    assert compare("support:baseline", "support:latest") == 1
    assert compare("support:latest", "support#1") == 0


def test_the_latest_run_is_never_one_that_was_scored_again(suite, capsys):
    first = run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, BAD, BAD, BAD)
    again = run_of(suite, GOOD, GOOD, GOOD)
    again.source_run = first
    again.save()
    assert compare("support#1", "support:latest") == 1
    assert compare("support#1", "support#3") == 0


REFUSED = [
    (("support", "support#1"), "'support' names no run. Write SUITE#NUMBER, SUITE:latest or"),
    (("support#9", "support#1"), "support has no run #9. The newest: support#1."),
    (("support:baseline", "support#1"), "support has no baseline run. The newest: support#1."),
    (("other#1", "support#1"), "There is no suite 'other'. There is: support."),
    (
        ("support#1", "support#1", "--max-avg-score-drop", "150"),
        "it must be points of 100, such as 5.",
    ),
    (("support#1", "support#1", "--max-pass-rate-drop", "nan"), "it must be a share from 0 to 1"),
    (("support#1", "support#1", "--json", "/nowhere/x"), "--json /nowhere/x cannot be written"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_invalid_comparisons_are_refused(suite, arguments, message):
    run_of(suite, GOOD, GOOD, GOOD)
    with pytest.raises(CommandError) as refusal:
        compare(*arguments)
    assert refusal.value.returncode == 3
    assert message in str(refusal.value)


def test_the_document_has_every_case_and_every_reason(suite, tmp_path):
    run_of(suite, GOOD, GOOD, GOOD)
    run_of(suite, BAD, SO_SO, WRONG)
    file = tmp_path / "c.json"
    assert compare("support#1", "support#2", "--json", file) == 1
    document = json.loads(file.read_text())
    assert (document["exit_code"], document["regression_detected"], document["is_comparable"]) == (
        1,
        True,
        True,
    )
    assert [reason["measure"] for reason in document["reasons"]] == ["pass rate", "mean score"]
    assert {one["case"]: (one["status"], one["has_flipped"]) for one in document["cases"]} == {
        "C-001": ("regression", True),
        "C-002": ("regression", True),
        "C-003": ("error", False),
    }
    errored = document["cases"][2]["candidate"]
    assert (errored["verdict"], errored["mean_score"], errored["state"]) == (None, None, "error")
    assert document["candidate"]["errors"] == 1
    assert document["verdict"]["state"] == "regression"
    assert document["conclusion"].startswith("Regression: pass rate fell by")
    assert document["tolerances"]["max_avg_score_drop"] == {"value": 5.0, "unit": "points of 100"}


def test_metrics_are_compared_on_their_own_scales_and_both_costs_are_shown(suite, tmp_path, capsys):
    for number in range(4, 13):
        make_case(suite=suite, key=f"C-{number:03}", position=number)
    tree = {**TREE, "children": [{**TREE["children"][0], "kind": "metrics_judge"}]}
    snapshot = make_snapshot(suite=suite, target=make_target(), tree=tree)
    for metric in (4.5, 3.0):
        run = run_of(suite, *[GOOD] * 12, snapshot=snapshot)
        for place, result in enumerate(run.results.order_by("position")):
            part = {"key": "tone", "name": "Tone", "score": metric + place % 2 * 0.5}
            made = make_score(result=result, path="tone", score=0.9 if place else None)
            made.kind, made.details = "metrics_judge", {"metrics": [part]}
            made.save()
            result.outcome_marks = "110" if metric > 4 else "100"
            result.save()
    file = tmp_path / "c.json"
    compare("support#1", "support#2", "--json", file)
    document, output = json.loads(file.read_text()), capsys.readouterr().out
    tone, whole = document["metrics"]
    assert (tone["kind"], tone["name"], tone["scale"], tone["cases"]) == ("metric", "Tone", 5, 11)
    assert (tone["mean"], tone["class"], tone["low"]) == (-1.5, "regressed", -1.5)
    assert tone["candidate_run"]["results"] == 11
    assert (whole["kind"], whole["evaluator"], whole["mean"]) == ("evaluator", "tone", 0.0)
    assert document["evidence"]["metrics_tested"] == 2
    assert "Tone (metric, of 5)" in output
    # Figures of single cases are reported only if ten cases have them.
    for place, result in enumerate(Result.objects.order_by("run", "position")):
        for path in ("own", "own/leaf", *["rare"] * (place % 12 < 9)):
            make_score(result=result, path=path, score=0.5)
    compare("support#1", "support#2", "--json", file)
    paths = [one["evaluator"] for one in json.loads(file.read_text())["metrics"]]
    assert paths == ["tone", "tone", "own", "own/leaf"]
    case = document["cases"][0]
    assert (case["baseline"]["outcomes_met"], case["candidate"]["outcomes_met"]) == (2, 1)
    assert float(case["candidate"]["run_cost_usd"]) == 0.012
    assert float(document["candidate"]["evaluation_cost_usd"]) == pytest.approx(0.048)
    assert document["candidate"]["p95_latency_ms"] == 1000


def test_the_conclusion_names_failed_gates_of_a_candidate_that_is_no_worse(suite, capsys):
    runs = [run_of(suite, GOOD, BAD, BAD, status="completed") for _ in range(2)]

    assert compare(*(f"support#{run.number}" for run in runs)) == 0

    output = capsys.readouterr().out
    document = (
        f"No regression, but both gates of #{runs[1].number} failed: mean score 43.3% of 80% needed"
    )
    assert f"{document}, pass rate 33.3% of 100% needed. All limits are met." in output
    assert "failed, 33.3% of 100% needed" in next(
        line for line in output.splitlines() if line.startswith("Pass rate gate")
    )
    assert output.index("No regression, but") < output.index("Evidence: ")


def test_a_run_without_judge_calls_has_no_evaluation_cost(suite, tmp_path, capsys):
    for _ in range(2):
        run_of(suite, GOOD).results.update(evaluation_cost_usd=None, run_cost_usd="0.5")
        Run.objects.update(evaluation_cost_usd=0)

    compare("support#1", "support#2", "--json", tmp_path / "told.json")

    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Judge cost $0 $0" in rows
    document = json.loads((tmp_path / "told.json").read_text())["candidate"]
    assert (document["evaluation_cost_usd"], float(document["total_cost_usd"])) == (
        "0.000000000",
        0.5,
    )


def test_a_cost_that_lacks_prices_is_marked_and_not_compared(suite, capsys):
    for _ in range(2):
        run = run_of(suite, GOOD, BAD)
    run.results.filter(verdict="fail").update(run_cost_usd=None)

    compare("support#1", "support#2")

    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Total cost $0.032 ≥ $0.020" in rows


def test_a_comment_for_a_pull_request_names_what_got_worse_and_calls_nobody(
    suite, tmp_path, settings
) -> None:
    settings.SITE_URL = "https://evals.example"
    run_of(suite, GOOD, GOOD, GOOD)
    odd = make_case(suite=suite, key="<b>@ann | `C-4`", position=9)
    for score in (GOOD, BAD):
        run = Run.objects.first() if score is GOOD else run_of(suite, GOOD, BAD, GOOD)
        make_result(run=run, case=odd, score=score[1], verdict=score[0])
    comment = tmp_path / "comment.md"
    assert compare("support#1", "support#2", "--force", "--markdown", comment) == 1
    lines = comment.read_text().splitlines()
    assert lines[0].startswith("### ❌ Regression: pass rate fell by")
    assert "| Pass rate | 100.0% (4 of 4) | 50.0% (2 of 4) | -50.0 pts |" in lines
    assert "| C-002 | pass 0.90 | fail 0.20 | -70.0 pts |" in lines
    assert "| \\<b\\>@\u200bann \\| \\`C-4\\` | pass 0.90 | fail 0.20 | -70.0 pts |" in lines
    assert lines[-1] == (
        "[Open the comparison](https://evals.example/compare/?baseline=support:1&candidate=support:2)"
    )
