"""A pass mark colours and labels an evaluator's score everywhere, and changes no score and no verdict."""

from __future__ import annotations

import csv
import json

import pytest
from django.utils import timezone

from evaluators.scoring.tree import EvaluatorSpec, pass_marks
from runs.documents import DetailLevel
from runs.execution.run_worker import work_on_run
from runs.files.importing import import_suite
from runs.files.importing_results import import_results
from runs.filters.queries import run_vocabulary
from runs.formats.results_writing import write_results
from runs.formats.suite_files import read_suite, write_suite
from runs.formats.tools.promptfoo_writing import promptfoo_config
from runs.models.results import EvaluatorScore, Result
from runs.results.files import result_lines, results_csv
from runs.results.run_figures import evaluator_rows
from runs.running.services import start_run
from runs.sharing.frozen import shared_result
from runs.specs.problems import UnreadableFileError
from runs.suites.drafts import get_draft, save_draft
from runs.suites.edits import nodes_with_paths
from tests.support.factories import make_target

pytestmark = pytest.mark.django_db(transaction=True)

MARKED = """
name: refunds
evaluators:
  - {name: words, type: composite, pass_mark: 0.6, evaluators: [
      {name: refund, type: contains, value: refund, weight: 3},
      {name: silent, type: contains, value: card, negate: true, pass_mark: 1}]}
  - {name: short, type: contains, value: refund}
tests:
  - {id: C-1, input: Hi, output: a refund}
  - {id: C-2, input: Hi, output: a refund to your card}
  - {id: C-3, input: Hi, output: a card}
"""
UNMARKED = MARKED.replace("pass_mark: 0.6, ", "").replace(", pass_mark: 1", "")


def finished_run(suite, target):
    run = start_run(suite=suite, target=target, started_by=None)
    work_on_run(run.pk)
    run.refresh_from_db()
    return run


def decided(run):
    columns = "case__key", "status", "verdict", "score", "decided_by"
    return list(run.results.order_by("case__key").values_list(*columns))


def text_of(response):
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_a_mark_goes_from_the_file_through_a_draft_to_pages_api_and_export(editor_client, editor):
    suite = import_suite(read_suite(UNMARKED.encode()), imported_by=editor)
    plain_hash = suite.versions.get().content_hash
    assert "pass_mark" not in json.dumps(suite.content)
    target = make_target()
    plain = finished_run(suite, target)
    assert "pass_mark" not in json.dumps(plain.snapshot)

    # The form of one evaluator refuses what is no mark, keeps a mark, and takes it away again.
    draft = get_draft(suite, editor)
    ids = {path: node["id"] for path, node in nodes_with_paths(draft.content["evaluators"])}
    address = f"/suites/{suite.slug}/evaluators/{ids['words']}/"
    sent = {"name": "words", "weight": "1", "settings-type": "weighted_average"}
    for wrong in ("high", "1.5", "-1"):
        sent["stamp"] = get_draft(suite, editor).stamp
        refused = editor_client.post(address, {**sent, "pass_mark": wrong})
        assert refused.status_code == 422
        assert refused.context["form"].marks.errors["pass_mark"]
    for mark, kept in (("0.6", {"words": 0.6}), ("", {}), ("0.6", {"words": 0.6})):
        sent["stamp"] = get_draft(suite, editor).stamp
        assert editor_client.post(address, {**sent, "pass_mark": mark}).status_code == 302
        tree = get_draft(suite, editor).content["evaluators"]
        assert pass_marks(EvaluatorSpec.model_validate(tree)) == kept
    assert 'value="0.6"' in text_of(editor_client.get(address))
    assert "pass mark 0.60" in text_of(editor_client.get(f"/suites/{suite.slug}/evaluators/"))
    draft = get_draft(suite, editor)
    save_draft(draft, draft.stamp)
    suite.refresh_from_db()
    assert pass_marks(suite.spec.evaluators) == {"words": 0.6}
    assert "pass mark 0.60" in text_of(editor_client.get(f"/suites/{suite.slug}/versions/2/"))

    suite = import_suite(read_suite(MARKED.encode()), imported_by=editor)
    assert pass_marks(suite.spec.evaluators) == {"words": 0.6, "words/silent": 1.0}
    again = read_suite(write_suite(read_suite(MARKED.encode())))
    assert again.evaluators == suite.spec.evaluators
    assert plain_hash != suite.versions.get(number=suite.version).content_hash

    marked = finished_run(suite, target)
    assert decided(marked) == decided(plain)
    shares = {row.path: (row.reached, row.marked) for row in evaluator_rows(marked)}
    assert shares == {
        **{"words": (2, 3), "words/silent": (1, 3)},
        **{"words/refund": (0, 0), "short": (0, 0)},
    }
    run_page = text_of(editor_client.get(f"/suites/{suite.slug}/runs/{marked.number}/"))
    assert "2 of 3 (66.6%) reach the pass mark 0.60" in run_page
    table = text_of(
        editor_client.get(
            f"/suites/{suite.slug}/runs/{marked.number}/?columns=evaluator.words,evaluator.short"
        )
    )
    assert table.count("at or above the pass mark 0.60</span>") == 2
    assert table.count("below the pass mark 0.60</span>") == 1
    address = f"/suites/{suite.slug}/runs/{marked.number}/"
    groups = text_of(editor_client.get(f"{address}?group=verdict&columns=evaluator.words"))
    assert groups.count("below the pass mark 0.60</span>") == 1

    # A filter knows the mark.
    [listed] = editor_client.get(f"{address}?q=words+<+mark").context["table"].rows
    assert listed.key == "C-3"
    unmarked = text_of(editor_client.get(f"{address}?q=short+<+mark"))
    assert "short has no pass mark here. Write a score, such as 0.5." in unmarked
    assert run_vocabulary(marked).find("words").values == "0.5 or 50%, mark (0.6), none"

    result = Result.objects.get(run=marked, case__key="C-3")
    page = text_of(editor_client.get(f"/suites/{suite.slug}/runs/{marked.number}/C-3/1/"))
    assert "below the pass mark 0.60" in page
    (words, _) = editor_client.get(f"/api/results/{result.pk}").json()["tree"]["children"]
    assert (words["pass_mark"], words["reaches_mark"], words["verdict"]) == (0.6, False, "fail")

    lines = [json.loads(line) for line in write_results(result_lines(marked))]
    exported = [line["evaluator_results"][0] for line in lines]
    assert [(node["pass_mark"], node["reaches_mark"]) for node in exported] == [
        *((0.6, True), (0.6, True), (0.6, False))
    ]
    assert "pass_mark" not in "".join(write_results(result_lines(plain)))
    rows = list(csv.DictReader("".join(results_csv(marked)).splitlines()))
    assert [row["reaches_mark:words"] for row in rows] == ["yes", "yes", "no"]
    assert "reaches_mark:short" not in rows[0]
    assert "reaches_mark" not in "".join(results_csv(plain))

    # The file brings the marks back, also where the suite has others by now.
    suite = import_suite(read_suite(UNMARKED.encode()), imported_by=editor)
    content = "".join(write_results(result_lines(marked))).encode()
    back = import_results(content, file="a.jsonl", suite=suite, imported_by=editor).runs[0]
    assert pass_marks(EvaluatorSpec.model_validate(back.snapshot["evaluators"])) == {
        **{"words": 0.6, "words/silent": 1.0}
    }
    assert list(write_results(result_lines(back)))[2].count('"reaches_mark": false') == 2

    shared = shared_result(
        marked, "C-3", 1, detail_level=DetailLevel.FIGURES, now=timezone.now()
    ).evaluators
    assert [(node.pass_mark, node.reaches_mark) for node in shared] == [
        *(("", None), ("0.60", False), ("", None), ("1.00", False), ("", None))
    ]
    notes = "\n".join(map(str, promptfoo_config(read_suite(MARKED.encode())).notes))
    for name in ("words", "words/silent"):
        assert f"{name}: its pass mark was left out; a threshold there decides" in notes

    # A comparison shows the mark, and does not take it for a difference in the judging.
    sides = [f"{suite.slug}:{run.number}" for run in (plain, marked)]
    comparison = text_of(
        editor_client.get(
            f"/compare/?baseline={sides[0]}&candidate={sides[1]}&columns=evaluator.words&show=all"
        )
    )
    assert "words changed" not in comparison
    assert comparison.count("at or above the pass mark 0.60</span>") == 2
    assert "below its pass mark 0.60" in comparison


OWN = """
name: refunds
evaluators:
  - {name: short, type: contains, value: refund, pass_mark: 0.6}
tests:
  - {id: C-1, input: Hi, output: a refund}
  - {id: C-2, input: Hi, output: a card}
  - {id: C-3, input: Hi, output: a card, evaluators: [
      {name: short, type: contains, value: card, negate: true, pass_mark: 0.5}]}
  - {id: C-4, input: Hi, output: a card, evaluators: [{name: short, type: contains, value: card}]}
"""


@pytest.mark.each_database
def test_a_score_counts_by_the_mark_of_its_own_case_to_nine_decimals(editor):
    suite = import_suite(read_suite(OWN.encode()), imported_by=editor)
    run = finished_run(suite, make_target())

    def reached():
        [row] = evaluator_rows(run)
        return row.reached, row.marked, row.scored

    # C-1 reaches the suite's mark. C-3 is inverted and misses its own; C-4 has none.
    assert reached() == (1, 3, 4)
    scores = EvaluatorScore.objects.filter(result__run=run, path="short")
    for case, score, expected in (
        ("C-2", 0.6 - 1e-12, 2),
        ("C-2", 0.6 - 2e-9, 1),
        ("C-3", 0.5 + 1e-12, 2),
        ("C-3", 0.5 + 2e-9, 1),
    ):
        scores.filter(result__case__key=case).update(score=score)
        assert reached() == (expected, 3, 4)


@pytest.mark.parametrize("mark", ["high", "1.5", "-0.1", "true"])
def test_a_file_with_a_wrong_mark_is_refused_at_the_evaluator(mark):
    with pytest.raises(UnreadableFileError) as refusal:
        read_suite(MARKED.replace("pass_mark: 0.6", f"pass_mark: {mark}").encode())
    (problem,) = refusal.value.problems
    assert "pass_mark" in str(problem)
