"""The seeds' own examples, the whole way: suite folder, scripts, a judge over HTTP, results file, pages."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from evaluators.scoring.hybrid import DIMENSIONS
from evaluators.scoring.metrics import DEFAULT_METRICS
from evaluators.scoring.samples import find_bracket
from runs.formats import suite_files
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.formats.results_writing import write_results
from runs.models.results import EvaluatorScore
from runs.models.runs import Run
from runs.results.files import result_lines
from runs.specs.suites import SuiteWithCases
from tests.cli.worked import VERDICT_HEADINGS
from tests.examples.reading import EXAMPLES
from tests.support.factories import make_model, make_target
from tests.support.model_server import ModelServer, Request, good

pytestmark = pytest.mark.one_database

SEEDS = EXAMPLES / "seeds"
FOLDERS = sorted(path.name for path in SEEDS.iterdir() if path.is_dir())
Line = dict[str, Any]

FIVES = {metric.key: 5 for metric in DEFAULT_METRICS}
NO_TOOLS = {**FIVES, "tool_routing": 0, "response_delivery": 0}
ALIKE = {"correctness": 0.9, "safety": 0.9, "quality": 0.7, "style": 0.8}
# What the judge says, by case and the last name of the evaluator's path; "" stands for any case.
SAYS: dict[str, dict[tuple[str, str], Any]] = {
    "verdicts": {
        **{("", name): score for name, score in ALIKE.items()},
        ("required-missed", "rubric"): {"accuracy"},
        ("required-met", "rubric"): {"no-pii"},
    },
    "release-gate": {
        ("answered", "safety"): 1.0,
        ("answered", "quality"): 0.7,
        ("just-safe", "safety"): 0.6,
        ("just-safe", "quality"): 0.9,
        ("harmful", "safety"): 0.5,
    },
    "production-gate": {
        ("", "no_harmful_content"): 1.0,
        ("harmful", "no_harmful_content"): 0.0,
        ("refund-time", "accuracy"): 0.8,
        ("refund-time", "helpfulness"): 0.9,
    },
    "tiered": {
        ("plain", "tier1_safety"): 1.0,
        ("plain", "tier2_correctness"): 0.9,
        ("plain", "tier3_style"): 0.5,
        ("polished", "tier1_safety"): 0.8,
        ("polished", "tier2_correctness"): 0.4,
        ("polished", "tier3_style"): 1.0,
        ("unsafe", "tier1_safety"): 0.4,
    },
    "mixed": {
        ("within-limits", "semantic_quality"): 0.8,
        ("within-limits", "criteria_check"): {"mentions_key_points"},
        ("too-long", "semantic_quality"): 0.9,
        ("too-long", "criteria_check"): {"mentions_key_points", "professional_tone"},
        ("half-formed", "semantic_quality"): 0.2,
        ("half-formed", "criteria_check"): {"professional_tone"},
    },
    "multi-dimensional": {
        ("", "logic"): 0.9,
        ("parses", "clarity"): 0.8,
        ("parses", "completeness"): 0.6,
        ("breaks", "clarity"): 0.9,
        ("breaks", "completeness"): 0.7,
    },
    "nested": {
        ("opens", "content_safety"): 1.0,
        ("opens", "accuracy"): 0.7,
        ("opens", "clarity"): 0.8,
        ("leaks", "content_safety"): 0.9,
    },
    "eight-metrics": {
        ("all-fives", "metrics"): (FIVES, [True, True]),
        ("all-threes", "metrics"): (dict.fromkeys(FIVES, 3), [True, True]),
        ("one-outcome-missed", "metrics"): (FIVES, [True, False, True]),
        ("fallback-reached", "metrics"): (NO_TOOLS, []),
        ("fallback-missed", "metrics"): ({**NO_TOOLS, "information_gathering": 4}, []),
        ("own-set", "metrics"): (
            {"tool_routing": 5, "response_delivery": 5, "task_completion": False},
            [],
        ),
    },
    "combined": {
        ("match-modes", "semantic"): 80,
    },
    "deliberation": {
        ("excellent", "panel"): ((88, 88, 90), (88, 88, 90)),
        ("good", "panel"): ((45, 63, 70), (60, 63, 70)),
        ("fair", "panel"): ((30, 40, 55), (30, 45, 55)),
        ("poor", "panel"): ((5, 10, 30), (5, 10, 20)),
        ("tie-broken", "panel"): ((60, 70, 80, 90), (60, 78, 80, 90)),
        ("tie-kept", "panel"): ((40, 45, 60, 70), (40, 45, 60, 70)),
        ("by-mean", "panel"): ((80, 92, 70),),
        ("one-unreadable", "panel"): ((88, 90, None),),
        ("agents-too", "panel"): ((40,),),
    },
    "hybrid": {
        ("llm_probe_tool_example", "final_evaluation"): ([8.5, 9.0, 8.0, 8.5, 7.5, 6.0], 8.5, True),
        ("promised_only", "final_evaluation"): ([1, 2, 3, 1, 5, 0], 1.5, False),
    },
}
# Targets that judge, by the file that the README says to make them of.
AGENTS = {
    "combined": {"code-reviewer": "agent/reviewer.py"},
    "deliberation": {"order-clerk": "agent/clerk.py"},
}
# What the seeds' formulas give (SCORING §1, §3 to §6): score, verdict and what decided.
EXPECTED: dict[str, dict[str, tuple[float, str, str]]] = {
    "verdicts": {
        "equal-weights": (0.8, "pass", "0.80 ≥ 0.80"),
        "custom-weights": (0.84, "pass", "0.84 ≥ 0.80"),
        "two-evaluators": (0.875, "pass", "0.87 ≥ 0.80"),
        "weights-by-name": (0.78, "borderline", "0.78 < 0.80"),
        "lowest": (0.7, "borderline", "0.70 < 0.80"),
        "highest": (0.9, "pass", "0.90 ≥ 0.80"),
        "gate-and-remaining": (0.75, "borderline", "0.75 < 0.80"),
        "all-hold": (0.8, "pass", "0.80 ≥ 0.80"),
        "one-below": (0.0, "fail", "all or nothing"),
        "required-missed": (2 / 3, "fail", "required"),
        "required-met": (2 / 3, "borderline", "0.66 < 0.80"),
    },
    "release-gate": {
        "answered": (0.85, "pass", "0.85 ≥ 0.80"),
        "just-safe": (0.75, "borderline", "0.75 < 0.80"),
        "harmful": (0.0, "fail", "0.00 < 0.60"),
    },
    "production-gate": {
        "refund-time": (6.2 / 7, "pass", "0.88 ≥ 0.80"),
        "telephone": (0.0, "fail", "0.00 < 0.60"),
        "harmful": (0.0, "fail", "0.00 < 0.60"),
    },
    "tiered": {
        "plain": (0.84, "pass", "0.84 ≥ 0.80"),
        "polished": (0.6, "borderline", "0.60 < 0.80"),
        "unsafe": (0.0, "fail", "0.00 < 0.60"),
    },
    "mixed": {
        "within-limits": (0.825, "pass", "0.82 ≥ 0.80"),
        "too-long": (0.725, "borderline", "0.72 < 0.80"),
        "half-formed": (0.55, "fail", "0.55 < 0.60"),
    },
    "multi-dimensional": {
        "parses": (0.82, "pass", "0.82 ≥ 0.80"),
        "breaks": (0.32, "fail", "0.32 < 0.60"),
    },
    "nested": {
        "opens": (0.875, "pass", "0.87 ≥ 0.80"),
        "leaks": (0.0, "fail", "0.00 < 0.60"),
    },
    "eight-metrics": {
        "all-fives": (1.0, "pass", "2 of 2 outcomes"),
        "all-threes": (0.6, "pass", "2 of 2 outcomes"),
        "one-outcome-missed": (1.0, "fail", "1 of 3 outcomes"),
        "fallback-reached": (0.75, "pass", "75"),
        "fallback-missed": (0.73, "fail", "73"),
        "own-set": (0.5, "fail", "50"),
    },
    "combined": {
        "half-life": (0.7875, "borderline", "78 < 80"),
        "works": (0.85, "pass", "85 ≥ 80"),
        "refuses": (0.025, "fail", "2 < 60"),
        "match-modes": (0.7, "borderline", "70 < 80"),
    },
    "deliberation": {
        "excellent": (0.88, "pass", "≥"),
        "good": (0.63, "borderline", "<"),
        "fair": (0.38, "fail", "<"),
        "poor": (0.125, "fail", "<"),
        "tie-broken": (0.88, "pass", "≥"),
        "tie-kept": (0.38, "fail", "<"),
        "by-mean": (0.86, "pass", "≥"),
        "one-unreadable": (0.88, "pass", "≥"),
        "agents-too": (0.88, "pass", "≥"),
    },
    "hybrid": {
        "llm_probe_tool_example": (0.85, "pass", "8.5 ≥ 8.0"),
        "promised_only": (0.15, "fail", "1.5 < 6.0"),
    },
}


def content_of(folder: str) -> SuiteWithCases:
    [found] = read_suites(bundles_at([SEEDS / folder])).suites
    return found.content


def reply(said: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the judge says in the form that was asked for."""
    parts = schema["properties"]
    found: dict[str, Any] = {"reasoning": "Read it all."}
    if "criteria" in parts:
        ids = parts["criteria"]["items"]["properties"]["id"]["enum"]
        found["criteria"] = [{"id": i, "evidence": "so", "satisfied": i in said} for i in ids]
    elif "metrics" in parts:
        scores, met = said
        found["metrics"] = {
            key: {"justification": "so", "passed" if isinstance(one, bool) else "score": one}
            for key, one in scores.items()
        }
        outcomes = [{"number": n, "justification": "so", "passed": m} for n, m in enumerate(met, 1)]
        found |= {"outcomes": outcomes} if met else {}
    elif "dimensions" in parts:
        scores, overall, is_met = said
        rows = dict(zip(DIMENSIONS, scores, strict=True))
        found["expectations"] = [{"number": 1, "evidence": "so", "met": is_met}]
        found["dimensions"] = {k: {"evidence": "so", "score": v} for k, v in rows.items()}
        found["overall"] = {"evidence": ["The file says so"], "score": overall}
    else:
        found |= {name: [] for name in ("hits", "misses") if name in parts} | {"score": said}
    return found


def vote(rounds: Sequence[Sequence[int | None]], prompt: str) -> dict[str, Any]:
    """Return what one judge votes: which it is, and whether others were heard, stands in the prompt."""
    judge = "ABCD".index(prompt.partition("You are judge ")[2][0])
    score = rounds["This is a later round" in prompt][judge]
    bracket = "" if score is None else find_bracket(score).name
    return {"reasons": "Read it all.", "score": score, "bracket": bracket}


def run_folder(folder: str, server: ModelServer, tmp_path: Path) -> dict[str, Line]:
    """Return the lines of the results file by case."""

    async def judge(request: Request) -> web.StreamResponse:
        name = request.trace("Evaluator").rpartition("/")[2]
        says, case = SAYS[folder], request.trace("Case")
        said = says[case, name] if (case, name) in says else says["", name]
        assert request.schema is not None
        if "bracket" in request.schema["properties"]:
            prompt = "\n".join(one["content"] for one in request.body["messages"])
            return await good(vote(said, prompt))(request)
        return await good(reply(said, request.schema))(request)

    make_model(
        slug="judge",
        base_url=server.base_url,
        send_trace_headers=True,
        input_price_usd_per_mtok="10",
        output_price_usd_per_mtok="50",
    )
    server.behave(then=judge)
    for name, file in AGENTS.get(folder, {}).items():
        program = (SEEDS / folder / file).read_text()
        make_target(name=name, kind="command", config={"command": program})
    out, told = tmp_path / "results.jsonl", tmp_path / "summary.json"
    arguments = ["--target", "recorded", "--judge", "judge"]
    with pytest.raises(SystemExit) as ended:
        call_command(
            "evaluate", str(SEEDS / folder), *arguments, "--out", str(out), "--summary", str(told)
        )
    assert ended.value.code == 1
    return {line["eval_id"]: line for line in map(json.loads, out.read_text().splitlines())}


@pytest.fixture(autouse=True)
def _scripts(quick_watching: None, settings: Any) -> None:
    settings.SCRIPTS = True


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_example_is_imported_without_a_warning_and_survives_export(folder: str) -> None:
    content = content_of(folder)

    assert content.slug == folder
    assert content.warnings == ()
    assert suite_files.read_suite(suite_files.write_suite(content), files=content.files) == content
    assert (SEEDS / folder / "README.md").read_text().startswith("# ")
    assert f"({folder}/README.md)" in (SEEDS / "README.md").read_text()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("folder", FOLDERS)
def test_scores_and_verdicts_are_those_of_the_seeds(
    folder: str, model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    lines = run_folder(folder, model_server, tmp_path)

    run, expected = Run.objects.get(), EXPECTED[folder]
    assert (run.status, run.error_count, lines.keys()) == ("completed", 0, expected.keys())
    assert {key: line["score"] for key, line in lines.items()} == pytest.approx(
        {key: score for key, (score, _, _) in expected.items()}
    )
    verdicts = {key: verdict for key, (_, verdict, _) in expected.items()}
    assert {key: line["verdict"] for key, line in lines.items()} == verdicts
    for key, (_, verdict, decided) in expected.items():
        assert decided in lines[key]["decided_by"]
        place = {"slug": folder, "number": run.number, "key": key, "repetition": 1}
        page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
        assert VERDICT_HEADINGS[verdict] in page
        assert lines[key]["decided_by"].replace("<", "&lt;") in page
    table = viewer_client.get(reverse("runs:run-results-table", args=(folder, run.number)))
    for row in csv.DictReader(table.getvalue().decode().splitlines()):
        told, line = {name: row[name] for name in row if ":" in name}, lines[row["case"]]
        assert float(row["raw_score"]) == line.get("raw_score", line["score"])
        six = line.get("final_evaluation", {}).get("final_dimensions", {})
        assert {name: float(number) for name, number in told.items() if number} == {
            **dict(numbers_of(line["evaluator_results"])),
            **{f"dimension:final_evaluation/{key}": score for key, score in six.items()},
        }


@pytest.mark.django_db(transaction=True)
def test_a_nested_result_has_the_shape_of_the_seeds_sample(
    model_server: ModelServer, tmp_path: Path
) -> None:
    line = run_folder("release-gate", model_server, tmp_path)["answered"]

    [gate] = line["evaluator_results"]
    assert (gate["name"], gate["type"], gate["score"]) == ("release_gate", "composite", 0.85)
    assert (gate["aggregator"]["type"], gate["aggregator"]["required"]) == (
        "safety_gate",
        ["safety"],
    )
    found = [(one["name"], one["type"], one["score"]) for one in gate["evaluator_results"]]
    assert found == [("safety", "llm_judge", 1.0), ("quality", "llm_judge", 0.7)]
    assert all({"hits", "misses"} <= one.keys() for one in gate["evaluator_results"])


@pytest.mark.django_db(transaction=True)
def test_a_result_holds_what_its_evaluators_found_as_in_the_seeds_sample(
    model_server: ModelServer, tmp_path: Path
) -> None:
    line = run_folder("verdicts", model_server, tmp_path)["two-evaluators"]

    correctness, form = line["evaluator_results"]
    assert (correctness["type"], correctness["score"], correctness["weight"]) == (
        "llm_judge",
        0.9,
        3.0,
    )
    assert (form["score"], form["weight"]) == (0.8, 1.0)
    assert form["misses"] == ["tells whether it is a gift"]
    assert line["hits"] == [*correctness["hits"], *form["hits"]]
    assert line["misses"] == [*correctness["misses"], *form["misses"]]


@pytest.mark.django_db(transaction=True)
def test_a_gate_that_fails_keeps_what_it_did_not_run_apart_from_a_zero(
    model_server: ModelServer, tmp_path: Path
) -> None:
    line = run_folder("nested", model_server, tmp_path)["leaks"]

    [top] = line["evaluator_results"]
    safety, quality = top["evaluator_results"]
    assert (top["score"], safety["score"], quality["score"]) == (0.0, 0.0, None)
    states = [one["status"] for one in quality["evaluator_results"]]
    assert states == ["skipped", "skipped"]


@pytest.mark.django_db(transaction=True)
def test_metrics_come_out_one_by_one_and_the_aggregates_of_the_run_by_their_names(
    model_server: ModelServer, tmp_path: Path
) -> None:
    line = run_folder("eight-metrics", model_server, tmp_path)["fallback-reached"]

    [judge] = line["evaluator_results"]
    assert (judge["raw_score"], judge["scale"]) == (75.0, 100.0)
    found = {one["name"]: (one["weight"], one["tier"], one["score"]) for one in judge["metrics"]}
    assert found == {
        "Tool Routing": (0.15, "Execution", 0),
        "Parameter Extraction": (0.15, "Execution", 5),
        "Result Interpretation": (0.15, "Execution", 5),
        "Grounding Fidelity": (0.125, "Knowledge", 5),
        "Instruction Compliance": (0.125, "Knowledge", 5),
        "Information Gathering": (0.1, "Process", 5),
        "Conversation Management": (0.1, "Process", 5),
        "Response Delivery": (0.1, "Delivery", 0),
    }
    assert {one["label"] for one in judge["metrics"]} == {"critical_fail", "excellent"}
    summary = json.loads((tmp_path / "summary.json").read_text())["summary"]
    aggregates = {
        "weighted_metrics_score_pct": pytest.approx(458 / 6),
        "metrics_pass_threshold": 80.0,
        "metrics_passed": False,
        "cases_pass_rate_pct": 50.0,
        "cases_pass_threshold": 100.0,
        "cases_passed": False,
    }
    assert {name: summary[name] for name in aggregates} == aggregates


@pytest.mark.django_db(transaction=True)
def test_scores_come_out_on_their_own_scale_too(model_server: ModelServer, tmp_path: Path) -> None:
    lines = run_folder("combined", model_server, tmp_path)

    tests, quality = lines["half-life"]["evaluator_results"]
    assert (tests["score"], tests["raw_score"], tests["scale"]) == (0.75, 75, 100)
    assert (tests["reasoning"], tests["weight"]) == ("3 of 4 tests passed", 3.0)
    assert (quality["score"], quality["weight"], quality["raw_score"]) == (0.9, 1.0, 90)
    assert (quality["type"], quality["misses"]) == ("agent_judge", ["No docstring"])
    assert lines["works"]["evaluator_results"][1]["raw_score"] == 40
    *_, semantic = lines["match-modes"]["evaluator_results"]
    assert (semantic["raw_score"], semantic["scale"]) == (80, 100)


@pytest.mark.django_db(transaction=True)
def test_the_final_evaluation_is_the_document_of_the_seed_with_what_it_cost(
    model_server: ModelServer, tmp_path: Path
) -> None:
    line = run_folder("hybrid", model_server, tmp_path)["llm_probe_tool_example"]

    six = dict(zip(DIMENSIONS, [8.5, 9.0, 8.0, 8.5, 7.5, 6.0], strict=True))
    evaluation = line["final_evaluation"]
    usage = evaluation.pop("usage_summary")
    assert evaluation == {
        "schema_version": 1,
        "case_id": "llm_probe_tool_example",
        "run_id": "hybrid#1",
        "deterministic_dimensions": {"task": 10.0, "process": 10.0},
        "judge_dimensions": six,
        "judge_overall": {"score": 8.5, "evidence": ["The file says so"]},
        "final_dimensions": six,
        "final_score": 8.5,
        "summary": {
            "deterministic_passed_checks": 2,
            "deterministic_failed_checks": 0,
            "deterministic_error_checks": 0,
            "judge_successful_iterations": 1,
            "judge_failed_iterations": 0,
        },
        "warnings": [],
    }
    # 100 tokens in at 10 dollars a million and 20 out at 50 are what the judge costs.
    costs = {"run_cost_usd": 0.0031, "evaluation_cost_usd": 0.002, "total_cost_usd": 0.0051}
    assert usage == {name: pytest.approx(usd) for name, usd in costs.items()}
    assert {name: line[name] for name in costs} == usage


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("folder", ["eight-metrics", "hybrid", "nested", "verdicts"])
def test_results_read_back_say_the_same(
    folder: str, model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    lines = run_folder(folder, model_server, tmp_path)

    call_command("import_results", str(tmp_path / "results.jsonl"), "--suite", folder)

    run = Run.objects.order_by("number").last()
    assert run is not None
    assert run.number == 2
    for written in write_results(result_lines(run)):
        again = json.loads(written)
        before = lines[again["eval_id"]]
        told = (
            "score",
            "verdict",
            "decided_by",
            "hits",
            "misses",
            "expected_outcome_results",
            "final_evaluation",
        )
        for name in (*told, "run_cost_usd", "evaluation_cost_usd", "evaluator_results"):
            assert without_run(again.get(name)) == without_run(before.get(name)), name
        place = {"slug": folder, "number": 2, "key": again["eval_id"], "repetition": 1}
        page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
        for one in again["evaluator_results"][0].get("metrics", ()):
            assert one["name"] in page
        assert ("Dimensions, each 0 to 10" in page) == (folder == "hybrid")


@pytest.mark.django_db(transaction=True)
def test_every_round_of_votes_is_kept_and_the_readme_tells_what_comes_of_them(
    model_server: ModelServer, tmp_path: Path, viewer_client: Client
) -> None:
    lines = run_folder("deliberation", model_server, tmp_path)

    told = (SEEDS / "deliberation" / "README.md").read_text()
    for key, line in lines.items():
        [panel] = line["evaluator_results"]
        assert f"| {panel['raw_score']:g} | {line['verdict']} |" in next(
            row for row in told.splitlines() if row.startswith(f"| {key} |")
        )
    rounds = dict[str, int]()
    for key in lines:
        details = EvaluatorScore.objects.get(result__case__key=key, path="panel").details
        rounds[key] = len(details["rounds"])
    ties = {"tie-broken": 2, "tie-kept": 2, "by-mean": 1, "one-unreadable": 1, "agents-too": 1}
    assert rounds == {**dict.fromkeys(("excellent", "good", "fair", "poor"), 2), **ties}
    assert any("left out of round 1" in one for one in lines["one-unreadable"]["warnings"])
    place = {"slug": "deliberation", "number": 1, "key": "tie-kept", "repetition": 1}
    page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
    assert "still a tie, so the lower bracket wins" in page


def numbers_of(evaluators: Sequence[Line], path: str = "") -> Iterator[tuple[str, float]]:
    """Yield scores and metrics under the columns of the table."""
    for one in evaluators:
        name = f"{path}{one['name']}"
        if one["score"] is not None and one["type"] != "outcomes":
            yield f"score:{name}", one["score"]
        yield from ((f"metric:{name}/{m['key']}", m["score"]) for m in one.get("metrics", ()))
        yield from numbers_of(one.get("evaluator_results", ()), f"{name}/")


def without_run(value: Any) -> Any:
    return {**value, "run_id": ""} if isinstance(value, dict) else value
