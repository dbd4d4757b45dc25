"""One comparison and one run read everywhere they are told: page, API, files, command line and share link.

What documents and files hold agrees to the last digit; what pages show is that, rounded by the rules
of the house, which are written down here anew.
"""

from __future__ import annotations

import csv
import html
import json
import random
import re
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.core.management import call_command
from django.test import Client

from runs.finishing import summarise_run
from runs.models.runs import Run
from runs.models.sharing import ShareLink
from tests.sharing.linked import share
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
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
    return f"${Decimal(cost).quantize(Decimal('0.01'), ROUND_HALF_UP)}"


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


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


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
        f"{before['passed']} of {before['executions']} → {after['passed']} of {after['executions']} executions",
        f"{change(told['score_change'])} pts {rate(before['mean_score'])} → {rate(after['mean_score'])}",
        f"{before['scored']} of {before['executions']} → {after['scored']} of {after['executions']} executions with a score",
        f"{change(told['latency_change_pct'], 1, 1)}% {span(before['mean_latency_ms'])} → {span(after['mean_latency_ms'])}",
        f"{before['timed']} of {before['executions']} → {after['timed']} of {after['executions']} executions with a latency",
        f"p95 {span(before['p95_latency_ms'])} → {span(after['p95_latency_ms'])}",
        f"{grown(before['total_cost_usd'], after['total_cost_usd'])} {dollars(before['total_cost_usd'])} → {dollars(after['total_cost_usd'])}",
        f"Run {dollars(before['run_cost_usd'])} → {dollars(after['run_cost_usd'])}",
        f"Evaluation {dollars(before['evaluation_cost_usd'])} → {dollars(after['evaluation_cost_usd'])}",
        told["verdict"]["limits"],
        told["verdict"]["evidence"],
        f"of {told['shared_cases']} cases",
    ]
    for one in (said["pass_rate"], said["mean_score"]):
        ends = f"{change(one['low'])} to {change(one['high'])} pts"
        lines += [
            f"{change(one['mean'])} over shared cases, 95% CI {ends}, {chance_words(one['p'])}, n = {one['cases']}",
            f"Smallest change that shows at 80% power: {one['smallest'] * 100:.1f} pts",
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


def test_a_comparison_has_the_same_figures_in_api_files_command_line_and_share(
    runs: tuple[Run, Run], editor_client: Client, tmp_path: Path
) -> None:
    told = compared_by_api(editor_client)
    assert {"added", "removed", "regression"} <= {one["status"] for one in told["cases"]}
    assert {one["kind"] for one in told["metrics"]} == {"metric", "dimension", "evaluator"}
    assert told["candidate"]["errors"] == 2

    file = tmp_path / "told.json"
    with pytest.raises(SystemExit):
        call_command("compare", "support#1", "support#2", "--json", str(file))
    printed = json.loads(file.read_text())
    assert {name: printed[name] for name in printed if name in told} == told

    every = ASKED | {"show": "all"}
    head, *cases = lines_of(editor_client.get("/compare/comparison.jsonl", every))
    by_key = {one["case"]: one for one in told["cases"]}
    assert {name: head[name] for name in told if name != "cases"} | {"cases": told["cases"]} == told
    assert {one["case"]: one for one in cases} == by_key

    table = table_of(editor_client.get("/compare/cases.csv", every))
    assert {row["case"] for row in table} == {*by_key}
    for row in table:
        one = by_key[row["case"]]
        assert row["score_change"] == cell(one["score_change"])
        for side in SIDES:
            held = {name: cell(value) for name, value in (one[side] or {}).items()}
            assert {name: row[f"{side}_{name}"] for name in held} == held

    share(editor_client, {"kind": "comparison", **ASKED}, depth="case_names", looked="on")
    assert assert_within(ShareLink.objects.get().frozen["figures"], told) == 26


def test_a_comparison_is_shown_on_page_and_share_as_its_figures_are_rounded(
    runs: tuple[Run, Run], editor_client: Client, client: Client
) -> None:
    told = compared_by_api(editor_client)
    path = share(editor_client, {"kind": "comparison", **ASKED}, depth="case_names", looked="on")
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
        assert "Every tolerance is kept." in text
        assert "Limit: drop of 90 pts" in text
        assert "Over limit" not in text


def compared_by_api(client: Client, **more: str) -> dict[str, Any]:
    """Return what the API tells of the comparison, without the ids, which no other place tells."""
    names = {f"{side}_run_id": word for side, word in ASKED.items()}
    told = client.get("/api/runs/compare", names | more).json()
    return {name: told[name] for name in told if name not in names}


@dataclass(frozen=True)
class Read:
    """One run as every place tells it: the API, its summary, both files of results, and the share link."""

    api: dict[str, Any]
    document: dict[str, Any]
    lines: list[dict[str, Any]]
    table: list[dict[str, str]]
    frozen: dict[str, Any]
    path: str

    @property
    def summaries(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.api["summary"], self.document["summary"]

    @property
    def passed(self) -> int:
        return sum(row["verdict"] == "pass" for row in self.table)

    @property
    def timed(self) -> list[int]:
        return [int(row["latency_ms"]) for row in self.table if row["latency_ms"]]


@pytest.fixture
def read(runs: tuple[Run, Run], editor_client: Client) -> Read:
    path = share(editor_client, {"kind": "run", "run": "support:2"}, looked="on")
    return Read(
        api=editor_client.get("/api/runs/support:2").json(),
        document=editor_client.get(f"{RUN}summary.json").json(),
        lines=lines_of(editor_client.get(f"{RUN}results.jsonl")),
        table=table_of(editor_client.get(f"{RUN}results.csv")),
        frozen=ShareLink.objects.get().frozen,
        path=path,
    )


def test_a_run_has_the_same_figures_on_page_api_files_and_share(
    read: Read, editor_client: Client, client: Client
) -> None:
    figures = read.frozen["figures"]
    done = {read.api["done"], read.document["done"], figures["done"], len(read.lines)}
    assert {*done, len(read.table)} == {28}
    errors = [row for row in read.table if row["status"] == "error"]
    told = read.api["counts"]["error"], read.document["errors"], figures["errors"]
    assert {*told, len(errors)} == {2}
    assert {row["score"] for row in errors} == {""}

    gates, shared = read.api["gates"], read.frozen["gates"]
    rates = {gates["cases"]["share"], figures["pass_rate"], shared[1]["share"]}
    rates |= {one["cases_gate"]["so_far"] for one in read.summaries}
    assert rates == {read.passed / len(read.table)}

    scores = [line["score"] for line in read.lines if line["score"] is not None]
    assert [float(row["score"]) for row in read.table if row["score"]] == pytest.approx(scores)
    means = {gates["metrics"]["share"], figures["mean_score"], shared[0]["share"]}
    means |= {one["metrics_gate"]["so_far"] for one in read.summaries}
    means |= {one["means"]["score"] for one in read.summaries}
    (mean_score,) = means
    assert mean_score == pytest.approx(fmean(scores), abs=1e-9)

    took = {figures["mean_latency_ms"], *(one["means"]["latency_ms"] for one in read.summaries)}
    assert took == {fmean(read.timed)}
    for cost in ("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"):
        paid = sum(Decimal(row[cost]) for row in read.table)
        assert {Decimal(read.api[cost]), Decimal(figures[cost])} == {paid}
        assert read.document[cost] == float(paid)

    hold_what_judges_measured(read)
    shown = shown_of_run(read)
    for place, page in (("page", editor_client.get(RUN)), ("share", client.get(read.path))):
        text = words(page.content.decode())
        assert [figure for figure in shown if figure not in text] == [], place


def hold_what_judges_measured(read: Read) -> None:
    summed, summary = read.summaries
    for kind, holder in (("metric:quality", "metrics"), ("dimension:whole", "dimensions")):
        assert summed[holder] == summary[holder]
        for one, frozen in zip(summed[holder], read.frozen[holder], strict=True):
            column = [float(row[f"{kind}/{one['key']}"]) for row in read.table if row["score"]]
            mean, counted = mean_of(one)
            assert (mean, counted) == (pytest.approx(fmean(column), abs=1e-9), len(column))
            assert frozen.get("mean", frozen.get("final")) == mean


def shown_of_run(read: Read) -> list[str]:
    """Return what a page must show of a run's exact values."""
    api, summary = read.api, read.summaries[0]
    gates = api["gates"]
    costs = f"Run {dollars(api['run_cost_usd'])} + evaluation {dollars(api['evaluation_cost_usd'])}"
    return [
        *(rate(gates["cases"]["share"]), f"{read.passed} of 28 executions passed"),
        *(rate(gates["metrics"]["share"]), "26 of 28 executions have a score"),
        *(span(fmean(read.timed)), f"{len(read.timed)} of 28 executions timed"),
        *(dollars(api["total_cost_usd"]), costs),
        *(f"{one['name']} {down(mean_of(one)[0], 1)}" for one in summary["metrics"]),
        f"Care – {down(mean_of(summary['dimensions'][0])[0], 1)}",
    ]


def mean_of(one: dict[str, Any]) -> tuple[float, int]:
    """Return the mean of a metric, or of a dimension as it counts, and of how many executions it is."""
    if "mean" in one:
        return one["mean"], one["judged"]
    return one["final"]["mean"], one["final"]["counted"]
