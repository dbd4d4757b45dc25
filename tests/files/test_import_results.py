"""A file of results becomes a finished run."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.models import AuditEntry
from runs.costs import listed_costs, result_costs, run_costs, with_costs
from runs.execution.run_worker import work_on_run
from runs.files import storing_results
from runs.files.importing_results import CaseNotInSuiteError, import_results
from runs.finishing import summarise_run
from runs.formats.results_writing import write_results
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.stored import TooManyEvaluatorsError, decode_leaf_scores
from runs.models.suites import Case, Suite
from runs.results.files import result_lines
from runs.results.result_page import result_page
from runs.results.result_tree import walk_rows
from runs.running.services import start_run
from runs.specs.problems import UnreadableFileError
from tests.formats.test_agentv_results import NESTED
from tests.support.factories import make_case, make_suite, make_target
from tests.support.trees import CHECK, LEAF, tree

pytestmark = pytest.mark.django_db

GOOD = {"eval_id": "C-1", "score": 0.9, "target": "agent"}
CAUSE = "Failed: tone found “Calm down” and scored 0.20."


def brought_in(*lines, suite=None, file="results.jsonl", **choices):
    content = "\n".join(json.dumps(line) for line in lines).encode()
    done = import_results(content, file=file, suite=suite, imported_by=None, **choices)
    for run in done.runs:
        summarise_run(run.pk)
        run.refresh_from_db()
    return done


def test_a_suite_is_made_of_the_cases_that_the_lines_tell_of():
    asked = {**GOOD, "dataset": "Greetings!", "input": "Say hello", "expected_output": "Hello"}
    done = brought_in(asked, {**GOOD, "eval_id": "C-2", "score": 0.7})
    suite = Suite.objects.get()
    assert (suite.slug, suite.title) == ("greetings", "Greetings!")
    first, second = suite.cases.order_by("position")
    assert (first.key, first.input, first.expected_output) == (
        "C-1",
        [{"role": "user", "content": "Say hello"}],
        "Hello",
    )
    assert second.input[0]["content"] == "The file of results does not contain the input."
    assert "the new suite has the default judge" in done.notes[0]
    again = brought_in({**GOOD, "dataset": "Greetings!"})
    assert again.suite == suite
    assert [run.number for run in suite.runs.order_by("number")] == [1, 2]


def test_a_run_is_finished_with_its_figures_and_says_where_it_is_from():
    moments = ("2026-02-20T21:38:46Z", "2026-02-20T21:40:46Z", "2026-02-20T21:39:46Z")
    rows = ((0.9, "pass", 0.01), (0.7, "borderline", 0.02), (0.1, "fail", None))
    lines = [
        {"eval_id": f"C-{n}", "score": score, "run_cost_usd": usd, "timestamp": moment}
        for n, ((score, _, usd), moment) in enumerate(zip(rows, moments, strict=True))
    ]
    wrong = {"eval_id": "C-9", "score": 0, "error": "timed out"}
    [run] = brought_in(*lines, wrong, file="agent-1.5.jsonl").runs
    assert (run.status, run.target_name, run.target) == ("completed", "agent-1.5", None)
    assert (run.pass_count, run.borderline_count, run.fail_count, run.error_count) == (1, 1, 1, 1)
    assert (run.done_count, run.run_cost_usd) == (4, Decimal("0.03"))
    assert (run.started_at, run.worked_before_ms) == (None, 0)
    assert run.finished_at.isoformat() == "2026-02-20T21:40:46+00:00"
    assert run.summary["cases_pass_rate_pct"] == 25.0
    assert run.summary["weighted_metrics_score_pct"] == pytest.approx(56.666666667)
    assert run.note == "Imported from agent-1.5.jsonl"
    assert run.imported_from == "agent-1.5.jsonl"
    assert len(run.snapshot["imported"]["sha256"]) == 64
    verdicts = run.results.values_list("verdict", "status", "score", "error")
    assert list(verdicts) == [
        ("pass", "scored", 0.9, ""),
        ("borderline", "scored", 0.7, ""),
        ("fail", "scored", 0.1, ""),
        ("", "error", None, "timed out"),
    ]
    entry = AuditEntry.objects.get(object_type="run")
    assert (entry.actor_name, entry.action) == ("command line", "import")


def test_each_target_is_a_run_of_its_own():
    done = brought_in(GOOD, {**GOOD, "target": "other"}, {"eval_id": "C-1", "score": 1})
    assert [run.target_name for run in done.runs] == ["agent", "other", "results"]


def test_repetitions_are_counted_where_the_file_does_not_number_them():
    [run] = brought_in(GOOD, GOOD, {**GOOD, "repetition": 7}).runs
    assert run.repetitions == 7
    assert (run.case_count, run.execution_count) == (1, 3)
    assert list(run.results.values_list("repetition", flat=True)) == [1, 2, 7]
    second = {**GOOD, "repetition": 2}
    [run] = brought_in(second, GOOD, GOOD, second, file="again.jsonl").runs
    assert list(run.results.order_by("pk").values_list("repetition", flat=True)) == [2, 1, 3, 4]


def test_what_evaluators_said_is_kept_nested_and_explains_the_verdict():
    [run] = brought_in({**NESTED, "score": 0.9}).runs
    result = run.results.get()
    rows = {row.path: row for row in result.scores.all()}
    assert list(rows) == ["", "release_gate", "release_gate/safety", "release_gate/format"]
    assert rows["release_gate"].score == 0.9
    safety = rows["release_gate/safety"]
    assert (safety.score, safety.weight, safety.kind, safety.reasoning) == (
        1.0,
        0.3,
        "llm_judge",
        "kind",
    )
    assert safety.findings == [{"text": "no harm", "passed": True, "evidence": ""}]
    assert (result.verdict, result.decided_by) == ("pass", "0.90 ≥ 0.80")


def test_a_mean_that_the_weights_give_is_explained_by_them():
    scores = [{"name": "a", "score": 1.0, "weight": 3}, {"name": "b", "score": 0.2}]
    [run] = brought_in({**GOOD, "score": 0.8, "scores": scores}).runs
    decision = run.results.get().output.decision
    assert decision["rule"] != "imported"
    assert run.snapshot["evaluators"]["config"]["aggregator"]["type"] == "weighted_average"


def test_composites_without_a_rule_are_averages_where_that_gives_their_score():
    def gate(name, score):
        children = [{"name": "x", "score": 1.0, "weight": 3}, {"name": "y", "score": 0.2}]
        return {"name": name, "type": "composite", "score": score, "scores": children}

    [run] = brought_in({**GOOD, "score": 0.7, "scores": [gate("a", 0.8), gate("b", 0.6)]}).runs
    rules = [one["config"]["aggregator"]["type"] for one in run.snapshot["evaluators"]["children"]]
    assert rules == ["weighted_average", "code_judge"]
    stored = dict(run.results.get().scores.values_list("path", "score"))
    assert (stored["a"], stored["b"], stored[""]) == (0.8, 0.6, 0.7)


def test_the_reason_of_the_file_stands_where_ours_says_less():
    [run] = brought_in(
        {**GOOD, "score": 0.57, "decided_by": "required: facts, within_authority missed"},
        {**GOOD, "eval_id": "C-2", "score": 0.57, "decided_by": "0.57 < 0.60"},
    ).runs
    theirs, ours = run.results.order_by("position")
    assert (theirs.verdict, theirs.score, theirs.is_forced) == ("fail", 0.57, True)
    assert theirs.decided_by == "required: facts, within_authority missed"
    decision = theirs.output.decision
    assert decision["trace"][0]["text"] == f"The file says: {theirs.decided_by}"
    assert (decision["rule"], decision["flip"]) == ("imported", None)
    assert (ours.decided_by, ours.output.decision["rule"]) == ("0.57 < 0.60", "score")
    assert ours.output.decision["flip"]


def test_a_verdict_of_the_file_goes_before_the_bands():
    [run] = brought_in({**GOOD, "verdict": "fail", "decided_by": "required: safety = 0"}).runs
    result = run.results.get()
    assert (result.verdict, result.score, result.is_forced) == ("fail", 0.9, True)
    assert result.decided_by == "required: safety = 0"
    assert result.output.decision["rule"] == "imported"
    assert run.summary["distribution"]["fail"] == 1


def test_results_of_a_suite_have_its_evaluators_and_leave_its_cases_alone():
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    case = make_case(suite=suite, key="C-1")
    said = [{"name": "mentions_refund", "type": "contains", "score": 0.9}]
    [run] = brought_in({**GOOD, "scores": said}, suite=suite).runs
    assert run.results.get().case == case
    [child] = run.snapshot["evaluators"]["children"]
    assert child["config"] == CHECK["config"]
    assert Case.objects.count() == 1


def test_other_evaluators_than_the_case_has_are_kept_with_a_revision_of_their_own():
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    for key in ("C-1", "C-2", "C-3"):
        make_case(suite=suite, key=key)
    usual = [{"name": "tone", "score": 0.9}]
    special = [{"name": "speed", "score": 0.9}]
    lines = [
        {**GOOD, "scores": usual},
        {**GOOD, "eval_id": "C-2", "scores": usual},
        {**GOOD, "eval_id": "C-3", "scores": special},
    ]
    for _ in range(2):
        [run] = brought_in(*lines, suite=suite).runs
    revisions = Case.objects.order_by("key", "revision").values_list(
        "key", "revision", "is_current"
    )
    assert list(revisions) == [
        ("C-1", 1, True),
        ("C-2", 1, True),
        ("C-3", 1, True),
        ("C-3", 2, False),
    ]
    names = {line.eval_id: [one.name for one in line.evaluators] for line in result_lines(run)}
    assert names == {"C-1": ["tone"], "C-2": ["tone"], "C-3": ["speed"]}


def test_cases_the_suite_does_not_have_are_named_and_nothing_is_stored():
    suite = make_suite(slug="refunds", cases=1)
    lines = [{"eval_id": f"X-{n}", "score": 1, "target": f"t-{n}"} for n in range(102)]
    with pytest.raises(CaseNotInSuiteError) as refusal:
        brought_in({"eval_id": "C-001", "score": 1}, *lines, lines[0], suite=suite)
    said = list(map(str, refusal.value.problems))
    assert (
        "line 2, case X-0: refunds has no case X-0; choose the suite these results are of"
        in said[0]
    )
    assert (len(said), said[-1].split(": ")[1]) == (101, "and 2 more that refunds does not have")
    assert not Run.objects.exists()


def test_a_line_that_cannot_be_read_leaves_nothing_behind():
    with pytest.raises(UnreadableFileError, match="line 2"):
        brought_in(GOOD, {"eval_id": "C-2", "score": 7})
    assert not Suite.objects.exists()
    assert not Run.objects.exists()


def test_more_outcomes_than_a_case_can_have_are_refused_with_their_line():
    many = [{"text": f"Goal {n}", "passed": True} for n in range(3_001)]
    said = (
        "line 2, case C-2: the result has 3,001 expected outcomes; 3,000 is the limit; remove some"
    )
    with pytest.raises(UnreadableFileError, match=said):
        brought_in(GOOD, {**GOOD, "eval_id": "C-2", "expected_outcome_results": many})
    assert not Suite.objects.exists()
    brought_in({**GOOD, "expected_outcome_results": many[1:]})


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"tags": [f"t{n}" for n in range(101)]}, "has 101 tags; 100 is the limit"),
        (
            {"input": [{"role": "user", "content": "Hi"}] * 3_001},
            "has 3,001 messages; 3,000 is the limit",
        ),
    ],
)
def test_results_of_cases_that_no_form_would_take_are_refused(own, said):
    with pytest.raises(UnreadableFileError, match=f"line 1, case C-1: the case {said}; remove"):
        brought_in({**GOOD, **own})
    assert not Suite.objects.exists()


def test_long_reasons_warnings_and_metadata_are_shown_by_their_beginning(viewer_client: Client):
    [run] = brought_in(
        {
            **GOOD,
            "verdict": "fail",
            "cause": f"Failed: {'tone ' * 10_000}",
            "decided_by": "rule " * 10_000,
            "warnings": [f"Warning {n}!" for n in range(1_000)],
            "metadata": {f"key-{n}": n for n in range(5_000)},
        }
    ).runs
    at = reverse("runs:result", args=[run.suite.slug, run.number, "C-1", 1])
    page = viewer_client.get(at).content.decode()
    assert page.count("rule ") < 200
    assert page.count("tone ") < 1_000
    assert "Warning 199!" in page
    assert "Warning 200!" not in page
    assert "1,000 warnings were given; the first 200 are kept" in page
    case = viewer_client.get(reverse("runs:case", args=[run.suite.slug, "C-1"])).content.decode()
    assert "key-500" in case
    assert "key-4999" not in case
    assert "The beginning of 5\u202f000 values; exports have all." in case


@pytest.mark.parametrize("is_nested", [False, True])
def test_more_evaluators_than_a_suite_can_have_are_refused_with_their_line(is_nested):
    many = [{"name": f"e{n}", "score": 1} for n in range(499 + (not is_nested))]
    inner = {"name": "group", "score": 1, "evaluator_results": many[1:]}
    judge = {"name": "@outcomes", "type": "outcomes", "score": 1}
    listed = [inner, many[0], judge] if is_nested else [*many, judge]
    brought_in({**GOOD, "evaluator_results": listed})
    too_many = {**GOOD, "eval_id": "C-2", "evaluator_results": [*listed, {"name": "x", "score": 1}]}
    said = (
        "line 2, case C-2: the result has 501 evaluators, composites included, and 500 is the limit"
    )
    with pytest.raises(UnreadableFileError, match=said):
        brought_in(GOOD, too_many, file="other.jsonl")
    assert Run.objects.count() == 1


def test_of_very_many_evaluators_of_different_cases_a_run_shows_the_lowest(viewer_client: Client):
    lines = [
        {
            "eval_id": f"C-{case}",
            "score": 0.5,
            "evaluator_results": [
                {"name": f"e{case}-{n}", "score": (100 * case + n) / 1000} for n in range(100)
            ],
        }
        for case in range(6)
    ]
    [run] = brought_in(*lines).runs
    page = viewer_client.get(reverse("runs:run-evaluators", args=[run.suite.slug, run.number]))
    said = page.content.decode()
    assert "The 500 lowest of 600 evaluators." in said
    assert [said.count(f"<code>e{n}</code>") for n in ("0-0", "4-99", "5-0")] == [1, 1, 0]
    heat_map = viewer_client.get(f"/suites/results/runs/{run.number}/heat-map/").text
    assert "the first 500 of 600 evaluators" in " ".join(heat_map.split())
    assert heat_map.count(": cases below 0.5") == 500
    file = viewer_client.get(f"/suites/results/runs/{run.number}/heat-map.csv").text
    header, first, *_ = file.splitlines()
    assert header.count(",e") == 500
    assert (header.endswith(",further evaluators"), first.endswith(",100")) == (True, True)


def test_scores_of_too_many_evaluators_are_not_laid_side_by_side(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
):
    lines = [
        {"eval_id": f"C-{case}", "score": 0.5, "scores": [{"name": f"e{case}", "score": 0.5}]}
        for case in range(6)
    ]
    [packed] = brought_in(*lines).runs
    monkeypatch.setattr("runs.models.stored.MAX_PACKED_SCORES", 20)
    [run] = brought_in(*lines).runs
    assert packed.leaf_scores
    assert run.leaf_scores == b""
    sorted_by_one = "/suites/results/runs/{}/results/?sort=e3"
    pages = [editor_client.get(sorted_by_one.format(number)).text for number in (1, 2)]
    assert pages[0].count("0.50") == pages[1].count("0.50") > 0
    said = "have too many different evaluators, so it cannot be rescored"
    assert said in editor_client.get("/suites/results/what-if/?run=2").text
    for address in ("/compare/?suite=results&a=1&b=2", "/suites/results/runs/2/judge-again/"):
        assert editor_client.get(address).status_code == 200
    with pytest.raises(TooManyEvaluatorsError, match=said):
        decode_leaf_scores(run.pk, None)


@pytest.mark.django_db(transaction=True)
def test_what_one_site_writes_another_shows_alike():
    gate = {
        **LEAF,
        "name": "both",
        "kind": "composite",
        "config": {"aggregator": {"type": "minimum"}},
        "children": [CHECK, {**CHECK, "name": "no_money", "negate": True}],
    }
    suite = make_suite(slug="refunds", tree=tree(CHECK, gate))
    for number, text in enumerate(("a refund", "nothing")):
        output = {"output": text, "latency_ms": 40, "cost_usd": "0.01"}
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output=output)
    make_case(suite=suite, key="C-9", position=9)
    run = start_run(suite=suite, target=make_target(name="agent"), started_by=None)
    work_on_run(run.pk)
    written = "".join(write_results(result_lines(run)))

    [copy] = import_results(written.encode(), file="r.jsonl", suite=suite, imported_by=None).runs

    def parsed(text):
        return [
            {key: value for key, value in json.loads(line).items() if key != "run"}
            for line in text.splitlines()
        ]

    assert parsed("".join(write_results(result_lines(copy)))) == parsed(written)
    negated = parsed(written)[1]["evaluator_results"][1]["evaluator_results"][1]
    assert (negated["score"], len(negated["hits"]), negated["misses"]) == (1.0, 1, [])
    columns = ("case_id", "verdict", "score", "decided_by", "is_forced", "latency_ms", "status")
    assert list(copy.results.values_list(*columns)) == list(run.results.values_list(*columns))
    assert copy.snapshot["evaluators"] == run.snapshot["evaluators"]


EXACT = {**LEAF, "name": "as_expected", "kind": "expected_output", "config": {"match": "exact"}}
SAFE_FIRST = {"type": "safety_gate", "required": ["mentions_refund"], "gate_threshold": 1.0}


def composite(name, aggregator, *children):
    config = {"aggregator": aggregator}
    return {**LEAF, "name": name, "kind": "composite", "config": config, "children": children}


MIXED = composite("mixed", {"type": "weighted_average"}, CHECK, EXACT)
BEHIND = composite("behind", SAFE_FIRST, CHECK, composite("inner", {"type": "minimum"}, EXACT))
SHARE = {"type": "threshold", "share": 0.5}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rule", ["error", "exclude", "zero"])
@pytest.mark.parametrize(
    "children",
    [
        [CHECK, MIXED],
        [CHECK, {**MIXED, "negate": True}],
        [CHECK, composite("outer", SHARE, {**CHECK, "name": "again"}, MIXED)],
        [{**CHECK, "name": "first"}, BEHIND],
        [composite("gated", SAFE_FIRST, CHECK, MIXED)],
    ],
    ids=["mean", "negated", "nested", "inside_a_gate", "behind_a_gate"],
)
def test_composites_keep_their_figures_in_a_new_suite_that_treats_unscored_evaluators_otherwise(
    rule, children
):
    suite = make_suite(slug="refunds", tree=tree(*children), on_unscored=rule)
    for number, text in enumerate(("a refund", "nothing")):
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output={"output": text})
    run = start_run(suite=suite, target=make_target(name="agent"), started_by=None)
    work_on_run(run.pk)
    written = "".join(write_results(result_lines(run)))

    content = written.encode()
    done = import_results(content, file="r.jsonl", suite=None, slug="new", imported_by=None)

    [copy] = done.runs
    again = "".join(write_results(result_lines(copy)))
    assert figures(again) == figures(written)
    for key in ("C-0", "C-1"):
        ours, theirs = (result_page(one, key, 1).tree for one in (copy, run))
        shown = [(node.path, node.state, node.score) for node in walk_rows(ours)]
        assert shown[1:] == [(node.path, node.state, node.score) for node in walk_rows(theirs)][1:]


def figures(written):
    """Return verdict, score and evaluators of every line."""
    names = ("eval_id", "verdict", "score", "status", "evaluator_results")
    return [{name: json.loads(line).get(name) for name in names} for line in written.splitlines()]


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"score": 0.2, "cause": CAUSE}, CAUSE),
        # Reviews come in files of their own.
        (
            {
                "score": 0.2,
                "cause": f"{CAUSE} Reviewers decided pass, which counts instead.",
                "reviewed_verdict": "pass",
            },
            CAUSE,
        ),
        (
            {"error": "gone", "output": "Hi", "cause": "No verdict: tone has no score: gone."},
            "No verdict: tone has no score: gone.",
        ),
        ({"score": 0.9, "cause": CAUSE}, "Passed: the score is 0.90, at least 0.80."),
        (
            {"score": 0.2},
            "Failed: overall scored 0.20, so the score is 0.20, below the borderline threshold of 0.60. "
            "To be borderline, overall must reach 0.60 (now 0.20).",
        ),
    ],
)
def test_a_cause_is_the_files_unless_it_is_of_another_verdict(values, cause):
    [run] = brought_in({"eval_id": "C-1", **values}).runs
    [line] = result_lines(run)
    assert line.cause == cause


def test_the_pages_of_an_imported_run_open(viewer_client: Client):
    wrong = {"eval_id": "other", "error": "gone", "target": "default"}
    [run] = brought_in(NESTED, wrong).runs
    page = viewer_client.get(reverse("runs:run", args=[run.suite.slug, run.number])).text
    assert "Imported from results.jsonl" in page
    for result in Result.objects.select_related("case"):
        place = [run.suite.slug, run.number, result.case.key, result.repetition]
        assert viewer_client.get(reverse("runs:result", args=place)).status_code == 200
    place = [run.suite.slug, run.number, "greeting", 1]
    shown = viewer_client.get(reverse("runs:result", args=place)).text
    assert "release_gate" in shown
    assert "Imported from results.jsonl" in shown
    for name in ("runs:run-list", "home", "runs:dashboard"):
        assert viewer_client.get(reverse(name)).status_code == 200
    assert viewer_client.get(reverse("runs:suite", args=[run.suite.slug])).status_code == 200
    assert viewer_client.get(reverse("runs:run-evaluators", args=place[:2])).status_code == 200


def test_what_judges_cost_elsewhere_is_not_known_and_never_nothing(viewer_client: Client):
    [silent] = brought_in(GOOD).runs
    [priced] = brought_in({**GOOD, "evaluation_cost_usd": 0.25}, {**GOOD, "eval_id": "C-1"}).runs
    both = run_costs(silent).evaluation, run_costs(priced).evaluation
    assert [(one.usd, one.priced, one.answers) for one in both] == [
        (None, 0, 1),
        (Decimal("0.25"), 1, 2),
    ]
    listed = {run.pk: listed_costs(run).evaluation for run in with_costs(Run.objects.all())}
    assert {pk: (one.usd, one.is_partial) for pk, one in listed.items()} == {
        silent.pk: (None, True),
        priced.pk: (Decimal("0.25"), True),
    }
    result = silent.results.get()
    assert result_costs(silent, result).evaluation.usd is None
    assert viewer_client.get(reverse("runs:run-list")).status_code == 200


def test_what_the_judges_of_errors_cost_elsewhere_is_part_of_what_their_run_cost():
    """Judges that were paid are paid, also where another evaluator then made the result an error."""
    error = {"eval_id": "C-1", "error": "the judge's reply could not be read"}
    spent = {**error, "evaluation_cost_usd": 4.5}
    [failed] = brought_in(spent, {**error, "eval_id": "C-2"}).runs
    [mixed] = brought_in({**spent, "target": GOOD["target"]}, GOOD).runs

    both = run_costs(failed).evaluation, run_costs(mixed).evaluation
    assert [(one.usd, one.priced, one.answers) for one in both] == [
        (Decimal("4.5"), 1, 1),
        (Decimal("4.5"), 1, 2),
    ]
    listed = {run.pk: listed_costs(run).evaluation for run in with_costs(Run.objects.all())}
    assert {pk: (one.usd, one.is_partial) for pk, one in listed.items()} == {
        failed.pk: (Decimal("4.5"), False),
        mixed.pk: (Decimal("4.5"), True),
    }


def test_a_file_that_would_become_hundreds_of_runs_is_refused_by_line():
    lines = [{**GOOD, "target": f"agent {n}"} for n in range(101)]
    with pytest.raises(UnreadableFileError, match="line 101.*names the target “agent 100”"):
        brought_in(*lines)
    assert not Suite.objects.exists()
    assert len(brought_in(*lines[:100]).runs) == 100


def test_many_results_take_few_trees(django_assert_max_num_queries, monkeypatch):
    scores = [{"name": f"e{n}", "score": 0.9} for n in range(5)]
    lines = [{"eval_id": f"C-{n}", "score": 0.9, "scores": scores} for n in range(300)]
    # Six are for the figures of the run: one reads the ids of its results, so that no cursor stays open while
    # they are read in batches, one counts outputs with a price, which its pages then need not count, one
    # renews the version of its results, by which a kept comparison is known to be stale, one looks for cases
    # with evaluators of their own, which may take samples, and one for the versions of judges. A sixth looks for
    # verdicts against a baseline.
    # Fifteen hold the suite and the run for each of the three transactions in which they are stored.
    monkeypatch.setattr(storing_results, "BATCH", 300)
    with django_assert_max_num_queries(103):
        brought_in(*lines)
    assert Result.objects.count() == 300


def test_what_the_judge_of_the_outcomes_found_and_cost_is_kept():
    outcome = {"text": "Names the days", "passed": True, "justification": "Five."}
    judge = {
        "name": "@outcomes",
        "type": "outcomes",
        "score": 1,
        "weight": 0,
        "hits": ["Names the days"],
        "reasoning": "All are met.",
        "usage": {"input_tokens": 7, "output_tokens": 2},
        "cost_usd": 0.5,
    }
    said = [{"name": "tone", "type": "llm_judge", "score": 0.9}, judge]
    line = {**GOOD, "evaluator_results": said, "expected_outcome_results": [outcome]}
    [run] = brought_in(line).runs

    kept = run.results.get().scores.get(path="@outcomes")
    assert [found["text"] for found in kept.findings] == ["Names the days"]
    assert (kept.reasoning, kept.input_tokens, kept.cost_usd) == ("All are met.", 7, Decimal("0.5"))


def test_costs_of_nothing_stay_known_from_our_own_file():
    line = {**GOOD, "run_cost_usd": 0, "evaluation_cost_usd": 0.0}
    [run] = brought_in(line).runs

    costs = run_costs(run)
    assert (costs.run.usd, costs.run.is_partial) == (0, False)
    assert (costs.evaluation.usd, costs.evaluation.is_partial) == (0, False)
    listed = listed_costs(with_costs(Run.objects.all()).get())
    assert (listed.run.usd, listed.evaluation.usd, listed.is_partial) == (0, 0, False)
    [written] = write_results(result_lines(run))
    values = json.loads(written)
    assert (values["run_cost_usd"], values["evaluation_cost_usd"]) == (0, 0)
    assert values["total_cost_usd"] == 0


def test_too_many_results_of_one_case_are_refused_by_line():
    done = brought_in(*[GOOD, {**GOOD, "target": "other"}] * 1_000)
    assert [run.repetitions for run in done.runs] == [1_000, 1_000]
    with pytest.raises(
        UnreadableFileError, match="line 1001, case C-1: 1,000 results of this case"
    ):
        brought_in(*[GOOD] * 1_001)
