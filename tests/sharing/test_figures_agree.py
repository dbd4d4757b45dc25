"""Pages and share links show the figures of the documents, rounded; the results add up to them.

That API, files and command line agree follows from their rendering one document each.
"""

from __future__ import annotations

import csv
import html
import json
import random
import re
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.core.management import call_command
from django.test import Client

from evaluators.templatetags.figures import money_parts
from runs.finishing import summarise_run
from runs.models.runs import Run
from runs.models.sharing import ShareLink
from tests.sharing.linked import share
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, LEAF, tree

pytestmark = pytest.mark.django_db
METRICS = {"tone": "Tone", "task_completion": "Task completion"}
JUDGES = tree(
    {**LEAF, "name": "quality", "kind": "metrics_judge", "config": {"metrics": [*METRICS]}},
    {**LEAF, "name": "whole", "kind": "hybrid_judge", "config": {}},
    CHECK,
)
SIDES = ("baseline", "candidate")
ASKED = {"baseline": "support:1", "candidate": "support:2"}
RUN = "/suites/support/runs/2/"
BILLIONTH = Decimal("0.000000001")


@pytest.fixture
def runs(db: None) -> tuple[Run, Run]:
    """Make two runs of 14 cases, twice each: one case was added, one removed, some executions errored."""
    suite = make_suite(slug="support", tree=JUDGES)
    chance, found = random.Random(20261), []
    keys = [f"C-{number:02}" for number in range(15)]
    cases = {key: make_case(suite=suite, key=key, position=n) for n, key in enumerate(keys)}
    for own, drop in ((keys[:-1], 0.0), (keys[1:], 0.1)):
        target = make_target()
        snapshot = make_snapshot(suite=suite, target=target, tree=JUDGES)
        run = make_run(suite=suite, target=target, snapshot=snapshot, repetitions=2)
        for key in own:
            for repetition in (1, 2):
                has_failed = bool(drop) and key in ("C-03", "C-04") and repetition == 1
                _execute(run, cases[key], repetition, chance, drop, has_failed=has_failed)
        assert summarise_run(run.pk)
        found.append(Run.objects.get(pk=run.pk))
    return found[0], found[1]


def _execute(
    run: Run, case: Any, repetition: int, chance: random.Random, drop: float, *, has_failed: bool
) -> None:
    facts: dict[str, Any] = {
        "latency_ms": chance.choice((None, *range(400, 4000, 437))),
        "run_cost_usd": Decimal(chance.randrange(1, 10**8)) * BILLIONTH,
        "evaluation_cost_usd": Decimal(chance.randrange(1, 10**7)) * BILLIONTH,
    }
    if has_failed:
        facts |= {"status": "error", "error": "HTTP 502", "error_stage": "target"}
        make_result(run=run, case=case, repetition=repetition, **facts)
        return
    score = max(0.0, min(1.0, chance.uniform(0.55, 1.0) - drop))
    verdict = "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"
    result = make_result(
        run=run, case=case, repetition=repetition, verdict=verdict, score=score, **facts
    )
    metrics = [
        {"key": key, "name": name, "tier": "", "weight": 1.0, "binary": False}
        | {"score": chance.choice((1, 2, 3, 4, 5))}
        for key, name in METRICS.items()
    ]
    final = chance.uniform(2, 10)
    sides = {"deterministic": None, "judge": final, "final": final}
    dimensions = [{"key": "care", "name": "Care", **sides}]
    whole = {"final_score": final, "final_dimensions": {"care": final}}
    make_score(result=result, path="", score=score, kind="composite")
    for path, kind, details in (
        ("quality", "metrics_judge", {"metrics": metrics}),
        ("whole", "hybrid_judge", {"dimensions": dimensions, "final_evaluation": whole}),
        ("mentions_refund", "text_check", {}),
    ):
        given = chance.random()
        make_score(result=result, path=path, score=given, kind=kind, details=details)


def exact(value: Any, factor: int = 1) -> Decimal:
    return Decimal(repr(value)).quantize(BILLIONTH) * factor


def down(value: Any, digits: int, factor: int = 1) -> str:
    """Round a score or a rate down (ux, Numbers)."""
    if value is None:
        return "–"
    return f"{exact(value, factor).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN):f}"


def rate(share: Any) -> str:
    return "–" if share is None else f"{down(share, 1, 100)}%"


def change(value: Any, digits: int = 1, factor: int = 100) -> str:
    """Round a change to the nearest and give it its sign."""
    if value is None:
        return "–"
    number = exact(value, factor).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    sign = "±" if number == 0 else "+" if number > 0 else "−"
    return f"{sign}{abs(number):f}"


def grown(before: Any, after: Any) -> str:
    """Spell by how much a latency or a cost grew, in percent."""
    if before is None or after is None or not Decimal(str(before)):
        return "–"
    return f"{change(float(Decimal(str(after)) / Decimal(str(before)) - 1))}%"


def dollars(cost: str) -> str:
    least = "0.001" if Decimal(cost) < 1 else "0.01"
    return f"${Decimal(cost).quantize(Decimal(least), ROUND_HALF_UP)}"


def span(ms: float) -> str:
    if ms < 999.5:
        return f"{Decimal(repr(ms)).quantize(Decimal(1), ROUND_HALF_UP)} ms"
    return f"{(Decimal(repr(ms)) / 1000).quantize(Decimal('0.1'), ROUND_HALF_UP)} s"


def chance_words(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def words(source: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", source)).split())


def rows_of(page: str) -> dict[str, str]:
    """Return by key what a page shows of each case."""
    rows = {}
    for row in re.findall(r"<tr>.*?</tr>", page, re.S):
        if found := re.search(r"<code>(C-\d+)</code>", row):
            rows[found[1]] = words(row)
    return rows


def lines_of(response: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.getvalue().decode().splitlines()]


def table_of(response: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(response.getvalue().decode().splitlines()))


def assert_within(part: Any, whole: Any) -> int:
    """Hold everything that a frozen document tells to the document, and return how many figures that are."""
    if isinstance(part, dict):
        return sum(assert_within(part[name], whole[name]) for name in part)
    if isinstance(part, list):
        return sum(assert_within(*pair) for pair in zip(part, whole, strict=True))
    assert part == whole
    return 1


def shown_of_comparison(told: dict[str, Any]) -> list[str]:
    """Return what a page must show of a comparison's exact values, the cases apart."""
    before, after = (told[side] for side in SIDES)
    said = told["evidence"]
    lines = [
        f"{change(told['pass_rate_change'])} pts {rate(before['pass_rate'])} → {rate(after['pass_rate'])}",
        f"{before['passed']} of {before['results']} → {after['passed']} of {after['results']} results",
        f"{change(told['score_change'])} pts {rate(before['mean_score'])} → {rate(after['mean_score'])}",
        f"{before['scored']} of {before['results']} → {after['scored']} of {after['results']} with a score",
        f"{change(told['latency_change_pct'], 1, 1)}% {span(before['mean_latency_ms'])} → {span(after['mean_latency_ms'])}",
        f"{before['timed']} of {before['results']} → {after['timed']} of {after['results']} with a latency",
        f"p95 {span(before['p95_latency_ms'])} → {span(after['p95_latency_ms'])}",
        f"{grown(before['total_cost_usd'], after['total_cost_usd'])} {dollars(before['total_cost_usd'])} → {dollars(after['total_cost_usd'])}",
        f"Target {dollars(before['run_cost_usd'])} → {dollars(after['run_cost_usd'])}",
        f"Judge {dollars(before['evaluation_cost_usd'])} → {dollars(after['evaluation_cost_usd'])}",
        told["verdict"]["limits"],
        told["verdict"]["evidence"],
        f"of {told['shared_cases']} cases",
    ]
    for name in ("pass_rate", "mean_score"):
        one = said[name]
        ends = f"{change(one['low'])} to {change(one['high'])} pts"
        lines += [
            f"({chance_words(one['p'])})",
            f"{name.replace('_', ' ').capitalize()} over {one['cases']} shared cases: "
            f"{change(one['mean'])} pts, 95% CI {ends}.",
            f"{one['cases']} shared cases can only show changes of {one['smallest'] * 100:.1f} pts or more",
        ]
    for one in told["metrics"]:
        ends = f"{change(one['low'], 2, 1)} to {change(one['high'], 2, 1)}"
        lines.append(
            f"{one['name']} {down(one['baseline_mean'], 2)} → {down(one['candidate_mean'], 2)} "
            f"95% CI {ends}, {chance_words(one['p'])}, n = {one['cases']} {change(one['mean'], 2, 1)}"
        )
    return lines


def shown_of_case(told: dict[str, Any]) -> list[str]:
    sides = [told[side] for side in SIDES if told[side]]
    if len(sides) == 1:
        return [down(sides[0]["mean_score"], 2), "only in #"]
    before, after = sides
    scores = f"{down(before['mean_score'], 2)} → {down(after['mean_score'], 2)}"
    costs = before["total_cost_usd"], after["total_cost_usd"]
    latencies = before["latency_ms"], after["latency_ms"]
    return [scores, f"{change(told['score_change'])} pts", f"{grown(*costs)} {grown(*latencies)}"]


def test_files_command_line_and_share_render_the_document_of_the_api(
    runs: tuple[Run, Run], editor_client: Client, tmp_path: Path
) -> None:
    told = compared_by_api(editor_client)
    assert {"added", "removed", "regression"} <= {one["status"] for one in told["cases"]}
    assert {one["kind"] for one in told["metrics"]} == {"metric", "dimension", "evaluator"}
    file = tmp_path / "comparison.json"
    with pytest.raises(SystemExit):
        call_command("compare", "support#1", "support#2", "--json", str(file))
    printed = json.loads(file.read_text())
    assert {name: printed[name] for name in printed if name in told} == told
    head, *cases = lines_of(editor_client.get("/compare/comparison.jsonl", ASKED | {"show": "all"}))
    del head["listed"]
    assert head | {"cases": told["cases"]} == told
    measured = {one["case"]: one.pop("measured") for one in cases}
    kinds = {one["kind"] for of_case in measured.values() for one in of_case}
    assert kinds == {"metric", "dimension", "evaluator"}
    assert {one["case"]: one for one in cases} == {one["case"]: one for one in told["cases"]}
    share(editor_client, {"kind": "comparison", **ASKED}, detail_level="case_names", looked="on")
    assert assert_within(ShareLink.objects.get().frozen["figures"], told) == 48


def test_a_comparison_is_shown_on_page_and_share_as_its_figures_are_rounded(
    runs: tuple[Run, Run], editor_client: Client, client: Client
) -> None:
    told = compared_by_api(editor_client)
    path = share(
        editor_client, {"kind": "comparison", **ASKED}, detail_level="case_names", looked="on"
    )
    pages = {
        "page": editor_client.get("/compare/", ASKED | {"show": "all"}).content.decode(),
        "share": client.get(path).content.decode(),
    }
    for name, page in pages.items():
        text, rows = words(page), rows_of(page)
        for line in shown_of_comparison(told):
            assert " ".join(line.split()) in text, (name, line)
        for one in told["cases"]:
            for figure in shown_of_case(one):
                assert figure in rows[one["case"]], (name, one["case"], figure)


def test_the_tolerances_of_an_address_hold_wherever_it_leads(
    runs: tuple[Run, Run], editor_client: Client, client: Client, tmp_path: Path
) -> None:
    limits = {"max_pass_rate_drop": "0.9", "max_avg_score_drop": "90"}
    told = compared_by_api(editor_client, **limits)
    assert (told["regression_detected"], told["reasons"]) == (False, [])
    assert told["tolerances"]["max_avg_score_drop"] == {"value": 90.0, "unit": "points of 100"}
    head = lines_of(editor_client.get("/compare/comparison.jsonl", ASKED | limits))[0]
    assert head["tolerances"] == told["tolerances"]
    assert head["verdict"] == told["verdict"]
    file = tmp_path / "told.json"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in limits.items()]
    with pytest.raises(SystemExit):
        call_command("compare", "support#1", "support#2", "--json", str(file), *options)
    assert json.loads(file.read_text())["tolerances"] == told["tolerances"]
    page = editor_client.get("/compare/", ASKED | limits).content.decode()
    found = re.search(r'href="(/shares/new/[^"]+)"', page)
    assert found
    asked = dict(parse_qsl(html.unescape(found[1]).partition("?")[2]))
    shared = client.get(share(editor_client, asked, looked="on")).content.decode()
    for text in (words(page), words(shared)):
        assert "All limits are met." in text
        assert "Limit: drop of 90 pts" in text
        assert "Over limit" not in text


def compared_by_api(client: Client, **more: str) -> dict[str, Any]:
    names = {f"{side}_run_id": word for side, word in ASKED.items()}
    document: dict[str, Any] = client.get("/api/runs/compare", names | more).json()
    return document


def test_the_results_of_a_run_add_up_to_what_page_document_and_share_show(
    runs: tuple[Run, Run], editor_client: Client, client: Client
) -> None:
    path = share(editor_client, {"kind": "run", "run": "support:2"}, looked="on")
    document = editor_client.get(f"{RUN}summary.json").json()
    rows = table_of(editor_client.get(f"{RUN}results.csv"))
    assert assert_within(ShareLink.objects.get().frozen["figures"], document) == 57
    assert (document["done"], len(rows)) == (28, 28)
    assert document["counts"]["error"] == sum(row["status"] == "error" for row in rows) == 2
    assert {row["score"] for row in rows if row["status"] == "error"} == {""}

    passed = sum(row["verdict"] == "pass" for row in rows)
    scores = [float(row["score"]) for row in rows if row["score"]]
    timed = [int(row["latency_ms"]) for row in rows if row["latency_ms"]]
    summary, gates = document["summary"], document["gates"]
    assert gates["cases"]["share"] == summary["cases_gate"]["so_far"] == passed / 28
    assert gates["metrics"]["share"] == summary["means"]["score"]
    assert summary["means"]["score"] == pytest.approx(fmean(scores), abs=1e-9)
    assert summary["means"]["latency_ms"] == fmean(timed)
    for cost in ("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"):
        assert Decimal(document[cost]) == sum(Decimal(row[cost]) for row in rows)
    for kind, means in (("metric:quality", "metrics"), ("dimension:whole", "dimensions")):
        for one in summary[means]:
            column = [float(row[f"{kind}/{one['key']}"]) for row in rows if row["score"]]
            mean, judged = mean_of(one)
            assert (mean, judged) == (pytest.approx(fmean(column), abs=1e-9), len(column))

    costs = money_parts(*(Decimal(document[f"{name}_cost_usd"]) for name in ("run", "evaluation")))
    shown = [
        *(rate(gates["cases"]["share"]), f"{passed} of 28 results passed"),
        *(rate(gates["metrics"]["share"]), "26 of 28 results scored"),
        *(span(fmean(timed)), f"{len(timed)} of 28 results timed"),
        *(dollars(document["total_cost_usd"]), "Target {} + judge {}".format(*costs)),
        *(f"{one['name']} {down(mean_of(one)[0], 1)}" for one in summary["metrics"]),
        f"Care – {down(mean_of(summary['dimensions'][0])[0], 1)}",
    ]
    for place, page in (("page", editor_client.get(RUN)), ("share", client.get(path))):
        text = words(page.content.decode())
        assert [figure for figure in shown if figure not in text] == [], place


def mean_of(one: dict[str, Any]) -> tuple[float, int]:
    """Return the mean of a metric or of a dimension, and of how many executions it is."""
    if "mean" in one:
        return one["mean"], one["judged"]
    return one["final"]["mean"], one["final"]["counted"]


@pytest.mark.parametrize("verdicts", [["pass", "error"], ["error"]], ids=["some", "all"])
def test_a_run_that_errors_decide_is_not_called_failed_on_its_share_link(
    verdicts: list[str], editor_client: Client, client: Client
) -> None:
    run = make_scored_run(verdicts=verdicts, suite=make_suite(slug="support"), summary=None)
    assert summarise_run(run.pk)

    path = share(editor_client, {"kind": "run", "run": "support:1"}, looked="on")
    shown = client.get(path).content.decode()
    page = editor_client.get("/suites/support/runs/1/").content.decode()

    for html_text in (shown, page):
        text = " ".join(re.sub(r"<[^>]+>", " ", html_text).split())
        assert "Not evaluated" in text
        assert "Too low" not in text


def test_a_cost_that_lacks_prices_has_no_mean_on_its_share_link(
    editor_client: Client, client: Client
) -> None:
    run = make_scored_run(verdicts=["pass", "fail"], suite=make_suite(slug="support"), summary=None)
    run.results.filter(verdict="fail").update(run_cost_usd=None)
    assert summarise_run(run.pk)

    path = share(editor_client, {"kind": "run", "run": "support:1"}, looked="on")
    text = " ".join(re.sub(r"<[^>]+>", " ", client.get(path).content.decode()).split())

    assert "Some answers have no known price" in text
    assert not re.search(r"\$[\d.]+ a result", text)
