"""The judge of a run measured: drawn results are judged some more times, at a cost that is not the run's."""

from __future__ import annotations

import csv
import json
from decimal import Decimal

import pytest
from django.urls import reverse

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.compare.comparison import build_comparison
from runs.compare.documents import comparison_document
from runs.compare.rules import Tolerances
from runs.costs import run_costs
from runs.execution.run_worker import work_on_run
from runs.formats.results_writing import write_results
from runs.home.sidebar import LONG_RUN, ended_runs
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.results.documents import run_detail_document
from runs.results.files import junit_run, result_lines, results_csv
from runs.results.report import run_report
from runs.results.runs import cases_gate, conclude, metrics_gate, run_row, with_list_columns
from runs.running.judging_again import judge_again
from runs.running.judging_estimate import estimate_judging
from runs.running.judging_plan import CannotJudgeAgainError, JudgingRequest
from runs.running.measuring import MeasuringRequest, measure_judge, plan_measuring
from runs.running.retrying import NothingToRetryError, retry_results
from runs.running.services import start_run
from runs.suites.services import make_baseline
from runs.summary.judge_spread import JUDGE_SPREAD, JudgeSpread
from tests.support.factories import make_case, make_model, make_suite, make_target, make_user
from tests.support.members import make_client
from tests.support.model_server import Behaviour, ModelServer, good
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)
PRICES = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
# What one judge call of the server costs at these prices.
CALL_USD = Decimal("0.2")
CASES = 4


def judged_run(server: ModelServer, *, cases: int = CASES, repetitions: int = 1) -> Run:
    judge = make_model(slug="judge", base_url=server.base_url, concurrency=1, **PRICES)
    suite = make_suite(tree=tree(JUDGED, CHECK), judge=judge)
    for number in range(cases):
        output = {"output": f"a refund {number}", "cost_usd": "0.25"}
        facts = {"expected_output": "refund", "recorded_output": output}
        make_case(suite=suite, key=f"C-{number}", position=number, **facts)
    run = start_run(suite=suite, target=make_target(), started_by=None, repetitions=repetitions)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.status == "completed"
    return run


def opinion(score: float) -> Behaviour:
    return good({"reasoning": "as it is", "hits": [], "misses": [], "score": score})


@pytest.mark.each_database
def test_drawn_results_are_judged_again_and_the_run_itself_pays_nothing(
    model_server: ModelServer,
) -> None:
    model_server.behave(then=opinion(1))
    source, mira = judged_run(model_server), make_user(name="mira")
    before = run_costs(source), source.leaf_scores
    request = MeasuringRequest(results=3, times=2, budget_usd=Decimal(9), seed="s")
    estimate = estimate_judging(plan_measuring(source, request, mira))
    assert (estimate.results, estimate.total, estimate.calls) == (3, 4, 6)
    assert estimate.cost_usd == 6 * CALL_USD
    assert [(row.path, row.kept) for row in estimate.evaluators] == [
        ("right", 0),
        ("mentions_refund", 6),
    ]

    requests = len(model_server.chats)
    run = measure_judge(source, request, by=mira, form_key="k")
    assert measure_judge(source, request, by=mira, form_key="k") == run
    # The results are judged one after the other: the first twice otherwise, the second once, the third never.
    model_server.behave(*map(opinion, (0, 0, 0, 1, 1, 1)), then=opinion(1))
    work_on_run(run.pk)
    run.refresh_from_db()
    assert len(model_server.chats) - requests == 6
    assert (run.status, run.source_run, run.execution_count) == ("completed", source, 6)
    assert set(run.model_calls.values_list("purpose", flat=True)) == {"measurement"}
    assert set(source.model_calls.values_list("purpose", flat=True)) == {"evaluation"}
    costs = run_costs(run)
    assert (costs.run.usd, costs.evaluation.usd) == (0, 6 * CALL_USD)
    source.refresh_from_db()
    assert (run_costs(source), source.leaf_scores) == before
    assert not ReviewItem.objects.filter(run=run).exists()
    assert run.target is not None
    assert Run.objects.named(source.suite.slug, "latest").get() == source
    audited = AuditEntry.objects.get(object_id=str(run.pk), action="start").after
    assert audited is not None
    assert audited["measures_judge_of"] == f"{source.suite.slug} #1"

    assert run.summary is not None
    spread = JudgeSpread.from_json(run.summary[JUDGE_SPREAD])
    assert (spread.drawn, spread.eligible, spread.times) == (3, 4, 2)
    [right] = spread.evaluators
    # Pairs apart: 2 of 3, 2 of 3 and none of 3. Squares: 2/3 + 2/3 + 0 of 6 degrees of freedom.
    assert right.path == "right"
    assert (right.results, right.judgings) == (3, 9)
    assert right.flips == pytest.approx(4 / 9)
    assert right.deviation == pytest.approx((4 / 3 / 6) ** 0.5)
    whole = spread.whole
    assert whole is not None
    # The check counts half of the score, so that of the whole varies half as much.
    assert whole.deviation == pytest.approx(right.deviation / 2)
    assert whole.flips == pytest.approx(4 / 9)


def test_the_page_prices_it_and_run_api_files_and_comparison_tell_what_it_found(
    model_server: ModelServer,
) -> None:
    model_server.behave(then=opinion(1))
    source, mira = judged_run(model_server, repetitions=2), make_user(name="mira")
    client, place = make_client(mira), (source.suite.slug, source.number)
    here = reverse("runs:run-measure-judge", args=place)
    run_page = reverse("runs:run", args=place)
    assert f'href="{here}"' in client.get(run_page).content.decode()
    page = client.get(here).content.decode()
    assert "Judge 8 results 3 more times" in page
    filled = {"results": "8", "times": "2", "form_key": "k"}
    estimate = client.post(f"{here}?estimate=1", filled).content.decode()
    assert "<strong>$3.20</strong>" in estimate
    assert "<dd>8 of 8</dd>" in estimate
    assert client.post(here, filled | {"times": "51"}).status_code == 422
    refused = client.post(here, filled | {"budget": "0"})
    assert refused.status_code == 422
    assert "The budget must be more than $0." in refused.content.decode()
    assert Run.objects.count() == 1

    # Each output three times: the judge turns one of three, and the two outputs of a case differ as much.
    model_server.behave(*map(opinion, (0, 1) * 8), then=opinion(1))
    assert client.post(here, filled).status_code == 302
    run = Run.objects.get(source_run=source)
    # Twice the estimate, where no budget is given.
    assert run.budget_usd == Decimal("6.4")
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.done_count == 16

    shown = client.get(run_page).content.decode()
    measuring_place = source.suite.slug, run.number
    measuring = reverse("runs:run", args=measuring_place)
    assert "8 of 8 results, judged" in " ".join(shown.split())
    assert f'Measured by <a href="{measuring}">run #2</a>' in " ".join(shown.split())
    head = " ".join(client.get(measuring).content.decode().split())
    assert "measures the judge of" in head
    assert "8 of 8 results drawn, judged 2 more times" in head
    # It has figures of the judge in place of gates, and nothing that would choose among its judgings.
    assert run.fail_count
    assert "<h2>Verdicts that changed</h2>" in head
    for absent in (
        'class="gate"',
        f"Rescore {run.fail_count} failed",
        "Rescore selected",
        "Judge again",
        "Run again",
        "Make baseline",
    ):
        assert absent not in head
    with pytest.raises(DomainError, match="only measures the judge"):
        make_baseline(run, by=mira)
    first = run.results.select_related("case")[0]
    shown_result = (*measuring_place, first.case.key, first.repetition)
    result_page = client.get(reverse("runs:result", args=shown_result)).content.decode()
    assert "Rescore" not in result_page
    with pytest.raises(NothingToRetryError, match="only its errors can be rescored"):
        retry_results(run, asked_by=mira, which="failed")
    what_if = client.get(
        reverse("runs:suite-evaluators", args=place[:1]), {"run": str(run.number)}
    ).content.decode()
    assert "Judge its outputs again" not in what_if
    assert run.started_at is not None
    Run.objects.filter(pk=run.pk).update(finished_at=run.started_at + 2 * LONG_RUN)
    assert list(ended_runs(mira, [run.pk])) == []
    assert "measures the judge of" in client.get(reverse("runs:run-list")).content.decode()

    # Its gates are never judged, wherever they are shown.
    shown_run = run_detail_document(with_list_columns(Run.objects.filter(pk=run.pk)).get())
    assert {shown_run.gates.metrics.state, shown_run.gates.cases.state} == {"open"}
    assert shown_run.summary is not None
    assert shown_run.summary.metrics_gate.so_far is not None
    assert shown_run.summary.metrics_gate.passed is None
    assert (shown_run.summary.metrics_passed, shown_run.summary.cases_passed) == (None, None)
    assert (shown_run.exit_code, shown_run.conclusion) == (
        0,
        "Completed: the run measures the judge and has no gates.",
    )

    # Not even while they are computed again, or while it runs.
    for status in ("completed", "running"):
        for found in (Run.objects.get(pk=run.pk), with_list_columns(Run.objects.all())[0]):
            found.status, found.summary = status, None
            gates = metrics_gate(found, run.policy), cases_gate(found, run.policy)
            assert {gate.state for gate in gates} == {"open"}
    properties = junit_run(run, conclude(run), url="").properties
    assert not {"metrics_gate", "cases_gate"} & properties.keys()

    report = run_report(run, "")
    assert "8 of 8 results of #1, judged 2 more times" in report
    assert "Pass rate" not in report
    for text in (report, run_report(source, "")):
        assert "Judge asked again" in text
        assert "would change 66.6% of verdicts (95% CI " in text

    document = client.get(reverse("runs:run-summary-file", args=place)).json()
    spread = document["judge_spread"]
    assert (spread["basis"], spread["measured_by"], spread["times"]) == ("measurement", 2, 2)
    [right] = spread["evaluators"]
    assert (right["results"], right["judgings"], right["repeated"]) == (8, 24, 4)
    # Pairs apart: (0, 1, 1) two of three.
    assert right["flips"] == pytest.approx(2 / 3)
    assert right["judge_variance"] == pytest.approx(2 / 3 / 2)
    assert (right["target_variance"], right["judge_share"]) == (0, 1)
    assert spread["whole"]["deviation"] == pytest.approx((1 / 12) ** 0.5)

    # Its files have the judgings of each result: those of the measurement and the one that stood.
    lines = [json.loads(line) for line in write_results(result_lines(source))]
    assert {json.dumps(line["judge_spread"]) for line in lines} == {
        json.dumps({"judgings": 3, "flips": 0.666666667, "deviation": 0.288675135})
    }
    rows = list(csv.DictReader("".join(results_csv(source)).splitlines()))
    assert {(row["judge_judgings"], row["judge_flips"]) for row in rows} == {("3", "0.666666667")}
    assert "judge_spread" not in "".join(write_results(result_lines(run)))

    # The next run is better by less than the judge alone moves the mean: its first result has a miss.
    model_server.behave(opinion(0), then=opinion(1))
    target = source.target
    assert target is not None
    again = start_run(suite=source.suite, target=target, started_by=None, repetitions=2)
    work_on_run(again.pk)
    asked = {"baseline": f"{place[0]}:1", "candidate": f"{place[0]}:{again.number}"}
    compared = " ".join(client.get(reverse("runs:compare"), asked).content.decode().split())
    assert "is inside the judge's own spread" in compared.replace("&#x27;", "'")
    stored = build_comparison(source, Run.objects.get(pk=again.pk), Tolerances())
    [score, rate] = comparison_document(stored).judge_noise
    assert (score.figure, score.change, score.is_inside) == ("mean score", -0.0625, True)
    assert score.band == pytest.approx(1.959964 * (2 * (1 / 12) / 8) ** 0.5, abs=1e-5)
    assert (rate.change, rate.measured_by) == (-0.125, (2,))

    suite_page = client.get(reverse("runs:suite", args=(place[0],))).content.decode()
    assert f'<a href="{measuring}#run-judge-spread">66.6% of verdicts</a>' in " ".join(
        suite_page.split()
    )

    with pytest.raises(CannotJudgeAgainError, match="only measures the judge of run #1"):
        judge_again([run], JudgingRequest(), by=None)
    with pytest.raises(CannotJudgeAgainError, match="only measures the judge"):
        measure_judge(run, MeasuringRequest(), by=None)
    with pytest.raises(CannotJudgeAgainError, match="1 to 20 more times, not 21"):
        measure_judge(source, MeasuringRequest(times=21), by=None)
    # It remains a measurement when its source is gone.
    Run.objects.filter(pk=run.pk).update(source_run=None)
    assert run_row(with_list_columns(Run.objects.filter(pk=run.pk)).get()).measures_judge


@pytest.mark.each_database
def test_a_run_with_samples_tells_the_spread_of_one_sample_without_any_call(
    model_server: ModelServer,
) -> None:
    judge = make_model(slug="judge", base_url=model_server.base_url, concurrency=1)
    sampled = {**JUDGED, "negate": True, "config": {"prompt": "Is it wrong?", "samples": 3}}
    suite = make_suite(tree=tree(sampled, CHECK), judge=judge)
    for number in range(2):
        make_case(suite=suite, key=f"C-{number}", recorded_output={"output": "a refund"})
    model_server.behave(*map(opinion, (0, 0, 1)), then=opinion(0))
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.summary is not None
    spread = JudgeSpread.from_json(run.summary[JUDGE_SPREAD])
    assert (spread.basis, spread.eligible) == ("samples", 2)
    # The median of C-0 turns in 7 of 27 drawings, and with it the verdict; that of C-1 never.
    whole = spread.whole
    assert whole is not None
    assert (whole.results, whole.judgings) == (2, 6)
    assert whole.flips == pytest.approx(7 / 27 * 20 / 27, abs=0.1)
    assert whole.flips
    [right] = spread.evaluators
    assert (right.results, right.judgings, right.flips) == (2, 6, pytest.approx(1 / 3))
    assert right.deviation == pytest.approx((2 / 3 / 4) ** 0.5)
    page = make_client(make_user(name="mira")).get(reverse("runs:run", args=(suite.slug, 1)))
    shown = " ".join(page.content.decode().split())
    assert "From the samples of 2 results" in shown
    assert "6 samples of 2 results" in shown
    assert "(bootstrap, Efron 1979)" in shown
    health = make_client(make_user(name="noor")).get(reverse("runs:suite", args=(suite.slug,)))
    by_samples = f'by the samples of 2 results of <a href="{reverse("runs:run", args=(suite.slug, 1))}">run #1</a>'
    assert by_samples in " ".join(health.content.decode().split())
    lines = [json.loads(line) for line in write_results(result_lines(run))]
    # As they count, inverted.
    [evaluator, check] = lines[0]["evaluator_results"]
    assert (evaluator["samples"], evaluator["sample_spread"]) == ([1, 1, 0], 1)
    assert "samples" not in check
    rows = list(csv.DictReader("".join(results_csv(run)).splitlines()))
    assert [row["sample_spread:right"] for row in rows] == ["1.0", "0.0"]

    # A comparison warns by them too; the same evaluators and judge stand for the run beside it.
    model_server.behave(*map(opinion, (1, 1, 0)), then=opinion(0))
    target = run.target
    assert target is not None
    again = start_run(suite=suite, target=target, started_by=None)
    work_on_run(again.pk)
    compared = build_comparison(run, Run.objects.get(pk=again.pk), Tolerances())
    [score, _] = comparison_document(compared).judge_noise
    assert (score.change, score.measured_by) == (-0.25, ())
    assert score.is_inside
