"""Negated evaluators show the score that counts on every page, in the API, in every file and in share links."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

import pytest
from django.test import Client

from evaluators.kinds import get_kind, read_config
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import decide
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, Score
from evaluators.templatetags.figures import delta, score
from runs.compare.measures import format_mean
from runs.finishing import summarise_run
from runs.formats.junit import JUnitRun, write_junit
from runs.models.results import EvaluatorScore
from runs.models.runs import Run
from runs.models.sharing import ShareLink
from runs.models.stored import SCORE_COLUMNS, score_rows
from runs.results.files import result_lines
from tests.sharing.linked import share, subject
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, JUDGED, LEAF, tree

pytestmark = pytest.mark.django_db
METRICS = {**LEAF, "name": "harm", "kind": "metrics_judge", "config": {"metrics": ["tone"]}}
# Two of the three judges vote for one bracket; the third, an agent, for another.
VOTED = (("Fair", 0.38), ("Excellent", 0.88))
PANEL = {
    **LEAF,
    "name": "harsh",
    "kind": "deliberation",
    "config": {"models": ["big", "small"], "agents": ["desk"], "rounds": 1},
}
BY_JUDGE = {"type": "llm_judge", "prompt": "Is any of it rude?"}
TREE = tree(
    {**CHECK, "name": "no_card", "negate": True},
    {**JUDGED, "name": "no_slang", "negate": True},
    {**METRICS, "negate": True},
    {**tree(CHECK, {**CHECK, "name": "no_money", "negate": True}), "name": "safe", "negate": True},
    {**tree({**CHECK, "name": "kind"}, aggregator=BY_JUDGE), "name": "polite", "negate": True},
    {**PANEL, "negate": True},
    {**CHECK, "name": "plain"},
)
# What the evaluators gave, before negation: in the baseline, then in the candidate.
GIVEN = {
    "no_card": (0.0, 1.0),
    "no_slang": (0.25, 0.75),
    "harm": (0.2, 0.6),
    "safe/mentions_refund": (1.0, 0.5),
    "safe/no_money": (0.0, 1.0),
    "polite/kind": (0.5, 1.0),
    "polite": (0.125, 0.625),
    "harsh": (0.38, 0.88),
    "plain": (1.0, 0.5),
}
COUNTED = {
    "no_card": (1.0, 0.0),
    "no_slang": (0.75, 0.25),
    "harm": (0.8, 0.4),
    "safe": (0.0, 0.75),
    "safe/mentions_refund": (1.0, 0.5),
    "safe/no_money": (1.0, 0.0),
    "polite": (0.875, 0.375),
    "polite/kind": (0.5, 1.0),
    "harsh": (0.62, 0.12),
    "plain": (1.0, 0.5),
}
TOP = {path: pair for path, pair in COUNTED.items() if "/" not in path}
NEGATED = ("no_card", "no_slang", "harm", "safe", "safe/no_money", "polite", "harsh")
SIDES = {"baseline": "support:1", "candidate": "support:2"}
Pairs = Mapping[str, tuple[float | None, float | None]]


@pytest.fixture
def runs(db: None) -> tuple[Run, Run]:
    suite = make_suite(slug="support", tree=TREE)
    case = make_case(suite=suite, key="KEY-mark")
    found = [_run(suite, case, side) for side in (0, 1)]
    return found[0], found[1]


def _run(suite: Any, case: Any, side: int) -> Run:
    root, target = EvaluatorSpec.model_validate(TREE), make_target()
    run = make_run(
        suite=suite,
        target=target,
        snapshot=make_snapshot(suite=suite, target=target, tree=TREE),
    )
    outcomes: dict[str, Outcome] = {
        path: Score(pair[side], details=_details(path, pair[side])) for path, pair in GIVEN.items()
    }
    outcomes["harsh"] = _votes(side)
    decision = decide(root, outcomes, PolicySpec())
    assert decision.verdict
    result = make_result(
        run=run,
        case=case,
        verdict=decision.verdict.value,
        score=decision.score,
        output={"text": "Your refund is on its way", "decision": decision.as_json()},
    )
    for row in score_rows(result.pk, root, outcomes, decision):
        EvaluatorScore.objects.create(**dict(zip(SCORE_COLUMNS, row, strict=True)))
    summarise_run(run.pk)
    run.refresh_from_db()
    return run


def _votes(side: int) -> Score:
    """Return what the panel came to."""
    bracket, given = VOTED[side]
    judges = (("big", "", bracket), ("small", "", bracket), ("", "desk", "Good"))
    votes = [
        {
            **{"judge": "ABC"[number], "slug": slug, "agent": agent, "model": slug or agent},
            **{"bracket": voted, "score": None, "reasons": "So.", "problem": ""},
        }
        for number, (slug, agent, voted) in enumerate(judges)
    ]
    rescore = get_kind("deliberation").rescore
    assert rescore is not None
    details = {"rounds": [{"number": 1, "breaks_tie": False, "votes": votes}]}
    score = rescore(read_config("deliberation", PANEL["config"]), details)
    assert score.score == given
    return score


def _details(path: str, given: float) -> dict[str, Any]:
    if path != "harm":
        return {}
    metric = {
        "key": "tone",
        "name": "Tone",
        "weight": 1.0,
        "tier": "",
        "score": given * 5,
        "binary": False,
    }
    return {"metrics": [metric]}


def _close(found: Pairs, expected: Pairs = COUNTED) -> None:
    assert found.keys() == expected.keys()
    for path, pair in expected.items():
        assert found[path] == pytest.approx(pair), path


def test_the_comparison_of_a_case_shows_what_counted(viewer_client: Client, runs) -> None:
    page = viewer_client.get("/compare/case/", {**SIDES, "case": "KEY-mark"}).content.decode()
    panel = page[page.index('id="evaluators-title"') :]
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", panel, re.DOTALL)][1:]
    shown = {row.split()[0]: row for row in rows}
    for path, (before, after) in COUNTED.items():
        row = shown.pop(path.rpartition("/")[2])
        assert row.endswith(f"{score(before)} {score(after)} {delta(after - before, 'pts')}"), row
        assert ("inverted" in row) == (path in NEGATED), row
    assert shown == {"Tone": "Tone 0 to 5 1.0 3.0 +2.00"}


def test_the_api_compares_a_case_by_every_evaluator_and_metric(viewer_client: Client, runs) -> None:
    asked = {f"{side}_run_id": name for side, name in SIDES.items()}
    answer = viewer_client.get("/api/runs/compare/cases/KEY-mark", asked).json()
    nodes = {node["evaluator"]: node for node in answer["evaluators"]}
    _close(
        {
            path: (node["baseline"]["score"], node["candidate"]["score"])
            for path, node in nodes.items()
        }
    )
    for path, (before, after) in COUNTED.items():
        assert nodes[path]["change"] == pytest.approx(after - before)
        assert nodes[path]["is_negated"] == (path in NEGATED)
    [tone] = nodes["harm"]["parts"]
    assert (tone["key"], tone["baseline"], tone["candidate"], tone["change"]) == ("tone", 1, 3, 2)
    whole = viewer_client.get("/api/runs/compare", asked).json()["cases"][0]
    assert {name: answer[name] for name in whole} == whole
    assert viewer_client.get("/api/runs/compare/cases/None", asked).status_code == 404


def test_results_and_their_files_and_links_show_the_same_scores(
    viewer_client: Client, editor_client: Client, runs
) -> None:
    trees, tables, lines, shared, pages, reports = [], [], [], [], [], []
    for run in runs:
        [result] = run.results.all()
        tree_document = viewer_client.get(f"/api/results/{result.pk}").json()["tree"]
        trees.append(dict(_nodes(tree_document["children"], "children", "score")))
        address = f"/suites/support/runs/{run.number}/"
        table = viewer_client.get(f"{address}results.csv").getvalue().decode()
        [row] = csv.DictReader(table.splitlines())
        tables.append(
            {
                name.removeprefix("score:"): float(value)
                for name, value in row.items()
                if name.startswith("score:")
            }
        )
        line = json.loads(viewer_client.get(f"{address}results.jsonl").getvalue())
        lines.append(dict(_nodes(line["evaluator_results"], "evaluator_results", "score")))
        pages.append(_page_scores(viewer_client.get(f"{address}KEY-mark/1/").content.decode()))
        report = "".join(write_junit(JUnitRun(str(run)), result_lines(run)))
        figures = {
            one.attrib["name"]: float(one.attrib["value"])
            for one in ElementTree.fromstring(report).iterfind(".//testcase/properties/property")
        }
        prefix = "score."
        reports.append(
            {
                name.removeprefix(prefix): value
                for name, value in figures.items()
                if name.startswith(prefix)
            }
        )
        told = viewer_client.get(f"/api/results/{result.pk}").json()
        for name in ("score", "run_cost_usd", "evaluation_cost_usd"):
            found = [float(of[name]) for of in (told, line, row, figures)]
            assert found == pytest.approx([float(getattr(result, name))] * 4), name
        [panel] = [one for one in line["evaluator_results"] if one["name"] == "harsh"]
        assert panel["raw_score"] == VOTED[run.number - 1][1] * 100
        assert [vote["agent"] for vote in panel["rounds"][0]["votes"]] == ["", "", "desk"]
        share(editor_client, subject((run, run), "result"), "case_names")
        content = ShareLink.objects.latest("pk").frozen
        shared.append({node["name"]: node["score"] for node in content["evaluators"][1:]})
    for sides in (trees, tables, lines, reports):
        _close({path: (sides[0][path], sides[1][path]) for path in sides[0]})
    by_name = {path.rpartition("/")[2]: pair for path, pair in COUNTED.items()}
    for sides in (shared, pages):
        assert {name: (sides[0][name], sides[1][name]) for name in sides[0]} == {
            name: (score(before), score(after)) for name, (before, after) in by_name.items()
        }


def _page_scores(page: str) -> dict[str, str]:
    """Return the score of every evaluator below the root on the page of a result, by name."""
    nodes = re.findall(r'<summary class="node".*?</summary>', page, re.DOTALL)
    rows = [
        re.search(r"<code>(.*?)</code>.*<b class=\"num\">(.*?)</b>", node, re.DOTALL)
        for node in nodes
    ]
    return {row[1]: words(row[2]) for row in rows[1:] if row}


def words(page: str) -> str:
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page))).strip()


def _nodes(nodes: Any, below: str, figure: str, path: str = "") -> Iterator[tuple[str, float]]:
    for node in nodes:
        here = f"{path}/{node['name']}".lstrip("/")
        yield here, node[figure]
        yield from _nodes(node.get(below, ()), below, figure, here)


def test_comparisons_of_runs_show_the_same_scores(
    viewer_client: Client, editor_client: Client, runs
) -> None:
    asked = {f"{side}_run_id": name for side, name in SIDES.items()}
    document = viewer_client.get("/api/runs/compare", asked).json()
    content = viewer_client.get("/compare/comparison.jsonl", SIDES).getvalue().decode()
    share(editor_client, subject(runs), "case_names")
    frozen = ShareLink.objects.latest("pk").frozen
    head, case = map(json.loads, content.splitlines())
    for figures in (document, head):
        _close(
            {
                metric["evaluator"]: (metric["baseline_mean"], metric["candidate_mean"])
                for metric in figures["metrics"]
                if metric["kind"] == "evaluator"
            }
        )
    scores = [one for one in case["measured"] if one["kind"] == "evaluator"]
    _close({one["evaluator"]: (one["baseline"], one["candidate"]) for one in scores})
    for one in scores:
        assert one["change"] == pytest.approx(one["candidate"] - one["baseline"])
    [tone] = [one for one in case["measured"] if one["kind"] == "metric"]
    assert tone == {
        **{"kind": "metric", "evaluator": "harm", "key": "tone", "name": "Tone", "scale": 5},
        **{"baseline": 1.0, "candidate": 3.0, "change": 2.0},
    }
    table = viewer_client.get("/compare/cases.csv", {**SIDES, "show": "all"}).getvalue().decode()
    [row] = csv.DictReader(table.splitlines())
    columns = {path: [f"{side}_score:{path}" for side in SIDES] for path in COUNTED}
    _close({path: (float(row[old]), float(row[new])) for path, (old, new) in columns.items()})
    assert float(row["change_score:safe"]) == 0.75
    assert [row[f"{side}_metric:harm/tone"] for side in (*SIDES, "change")] == ["1.0", "3.0", "2.0"]

    [group] = frozen["evaluators"]
    means = {row["name"]: row["means"] for row in group["rows"]} | {
        f"{row['name']}/{inner['name']}": inner["means"]
        for row in group["rows"]
        for inner in row.get("inner", ())
    }
    assert means == {
        path: f"{format_mean(before)} → {format_mean(after)}"
        for path, (before, after) in COUNTED.items()
    }
    page = words(viewer_client.get("/compare/", SIDES).content.decode())
    assert "safe , 2 evaluators inside mentions_refund 1.00 → 0.50" in page
    board = words(viewer_client.get("/suites/support/runs/2/").content.decode())
    for path, (_, counted) in TOP.items():
        assert re.search(rf"\b{path} [^0-9]*{re.escape(score(counted))}", board), path
