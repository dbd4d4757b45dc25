"""The comparison page: its figures are the command line's, its state is in its address."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from django.core.management import call_command
from django.test import Client

from evaluators.templatetags.figures import NO_BREAK, delta, pct
from runs.compare.comparison import COMPARED
from runs.compare.evidence import EVALUATOR, MeasuredChange, MeasuredFigure, OwnMean, Paired
from runs.compare.measures import metric_groups
from runs.engine.plan import read_plan
from runs.finishing import summarise_run
from runs.lists import read_run_name
from runs.models.runs import Run, RunStatus
from runs.what_if.changes import RuleSet
from runs.what_if.services import rescore_run, score_like
from runs.what_if.stored import ask
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
)
from tests.support.members import make_client, make_member
from tests.support.scored_runs import finished_run
from tests.support.trees import JUDGED, tree
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db
SIDES = ("baseline", "candidate")
BEFORE = ("pass", "pass", "borderline", "fail", "pass", "error")
AFTER = ("pass", "fail", "pass", "fail", "error", "error")


@pytest.fixture
def client() -> Client:
    return make_client(make_member("viewer"))


@pytest.fixture
def runs(db) -> tuple[Run, Run]:
    suite = make_suite(slug="support")
    done = {"status": RunStatus.COMPLETED}
    return (
        make_scored_run(verdicts=BEFORE, suite=suite, **done),
        make_scored_run(verdicts=AFTER, suite=suite, **done),
    )


def address(runs, **more) -> str:
    query = {"baseline": f"support:{runs[0].number}", "candidate": f"support:{runs[1].number}"}
    return "/compare/?" + "&".join(f"{name}={value}" for name, value in (query | more).items())


def keys(response) -> list[str]:
    return re.findall(r"<code>(C-\d+)</code>", response.content.decode())


def test_the_page_gives_the_figures_of_the_command_line(client, runs, tmp_path, capsys):
    file = tmp_path / "document.json"
    names = [f"support#{run.number}" for run in runs]
    with pytest.raises(SystemExit) as end:
        call_command("compare", *names, "--json", str(file), "--force")
    document, page = json.loads(file.read_text()), text_of(client.get(address(runs)))
    assert end.value.code == 1
    assert "Pass rate and mean score regressed" in page
    assert delta(document["pass_rate_change"], "pts").replace(NO_BREAK, " ") in page
    assert (
        f"{pct(document['baseline']['pass_rate'])} → {pct(document['candidate']['pass_rate'])}"
        in page
    )
    assert document["reasons"][0]["text"][1:] in page
    counts = {}
    for case in document["cases"]:
        counts[case["status"]] = counts.get(case["status"], 0) + 1
    for status, word in (
        ("regression", "Regressed"),
        ("improvement", "Improved"),
        ("error", "Errored"),
    ):
        assert f"{word} {counts[status]}" in page


def test_rows_stand_by_harm_and_filters_and_cells_narrow_them(client, runs):
    assert keys(client.get(address(runs))) == ["C-002", "C-005", "C-006", "C-003"]
    assert keys(client.get(address(runs, show="improved"))) == ["C-003"]
    whole = client.get(address(runs))
    assert "1 case got worse , 1 better ." in text_of(whole)
    links = re.findall(r'<a href="([^"]+)#changes">(?:1 case got worse|1 better)<', whole.text)
    listed = [keys(client.get(f"/compare/{html.unescape(link)}")) for link in links]
    assert listed == [["C-002"], ["C-003"]]
    assert keys(client.get(address(runs, show="all", cell="pass-fail"))) == ["C-002"]
    assert keys(client.get(address(runs, show="all", q="c-004"))) == ["C-004"]
    nothing = client.get(address(runs, show="added"))
    assert "No matching case" in text_of(nothing)


def test_filters_swap_the_cases_and_the_matrix_alone_and_stand_in_the_address(client, runs):
    part = client.get(
        address(runs, show="improved"), headers={"HX-Request": "true", "HX-Target": "changes"}
    )
    body = part.content.decode()
    assert body.lstrip().startswith('<div id="changes" hx-history="false">')
    assert 'id="flips" aria-labelledby="flip-title" hx-swap-oob="true"' in body
    assert "<html" not in body
    assert part["Cache-Control"] == "no-store"
    assert keys(part) == ["C-003"]
    whole = client.get(address(runs)).content.decode()
    cell = re.search(
        r'<a id="flip-pass-3" href="([^"]+)" hx-get="([^"]+)"[^>]+push-url="true"', whole
    )
    assert cell[1] == f"{cell[2]}#changes"
    assert keys(client.get("/compare/" + html.unescape(cell[2]))) == ["C-002"]


@pytest.mark.each_database
@pytest.mark.parametrize(
    ("sort", "head", "order"),
    [
        ("", "Change", ["C-002", "C-005", "C-006", "C-004", "C-001", "C-003"]),
        ("case", "Case", ["C-001", "C-002", "C-003", "C-004", "C-005", "C-006"]),
        ("change", "Change", ["C-003", "C-001", "C-004", "C-006", "C-005", "C-002"]),
        ("-case", "Case", ["C-006", "C-005", "C-004", "C-003", "C-002", "C-001"]),
        ("difference", "Difference", ["C-002", "C-004", "C-001", "C-003", "C-005", "C-006"]),
        ("-difference", "Difference", ["C-003", "C-004", "C-001", "C-002", "C-005", "C-006"]),
        ("-cost", "Cost", ["C-004", "C-002", "C-005", "C-006", "C-001", "C-003"]),
    ],
)
def test_rows_stand_in_the_order_of_a_column(client, runs, sort, head, order):
    runs[1].results.filter(case__key="C-004").update(run_cost_usd="0.5")
    page = client.get(address(runs, show="all", sort=sort))
    assert keys(page) == order
    sorted_by = re.search(r'<th[^>]*aria-sort="(\w+)"><a[^>]*>(\w+)</a>', page.content.decode())
    assert sorted_by[2] == head


def test_tolerances_are_entered_in_the_units_of_the_command_line(client, runs):
    kept = text_of(client.get(address(runs, max_pass_rate_drop="0.5", max_avg_score_drop="20")))
    assert "No regression" in kept
    assert "Limit: drop of 50 pts" in kept
    refused = text_of(client.get(address(runs, max_pass_rate_drop="7")))
    assert "less than or equal to 1" in refused
    assert "Limit: no drop" in refused


def test_the_conclusion_comes_first_then_figures_cases_evaluators_runs_and_comparability(
    client, runs
):
    page = client.get(address(runs)).content.decode()
    parts = (
        *(
            "<strong>Pass rate and mean score regressed.",
            'aria-label="Headline"',
            "Limits · change",
        ),
        *('id="cases-title"', 'id="metric-deltas"', 'id="flips"', 'aria-label="Baseline"'),
        *('aria-label="Candidate"', "Comparable: only the target differs", 'id="configuration"'),
    )
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "<details open>" not in page
    refused = client.get(address(runs, max_pass_rate_drop="7")).content.decode()
    assert "<details open>" in refused


def test_the_title_names_what_regressed(client, runs):
    runs[1].results.update(verdict="pass", status="scored", score=1.0, latency_ms=9000)
    runs[0].results.update(latency_ms=1000)
    page = text_of(client.get(address(runs)))
    assert "#2 vs #1 (baseline) Latency regressed" in page
    assert "Latency regressed. Mean latency grew by 800.0%, from 1.0 s to 9.0 s" in page
    assert "(limit: +20%)" in page
    assert "1.0 s → 9.0 s" in page


def test_an_inconclusive_comparison_says_of_no_limit_that_it_is_met(client, runs):
    Run.objects.filter(pk=runs[1].pk).update(status=RunStatus.STOPPED)
    loose = {"max_pass_rate_drop": "1", "max_avg_score_drop": "100"}
    assert "Within limit" not in text_of(client.get(address(runs, **loose)))
    Run.objects.filter(pk=runs[1].pk).update(status=RunStatus.COMPLETED)
    assert "Within limit" in text_of(client.get(address(runs, **loose)))


def test_outcomes_are_met_in_all_repetitions_only_where_there_are_several(client, runs):
    assert "Outcomes met" in text_of(client.get(address(runs)))
    Run.objects.filter(pk=runs[1].pk).update(repetitions=3)
    assert "Met every time" in text_of(client.get(address(runs)))


@pytest.mark.parametrize(("p", "tone"), [(0.2, ""), (0.01, "bad"), (None, "")])
def test_a_change_is_coloured_by_its_corrected_p_and_not_by_its_interval(p, tone):
    paired = Paired(cases=12, mean=-0.2, low=-0.3, high=-0.1, p=p, smallest=0.1)
    own = OwnMean(0.9, 12), OwnMean(0.7, 12)
    figure = MeasuredFigure(EVALUATOR, "tone")
    changed = MeasuredChange(figure, "tone", 0.9, 0.7, paired, own)
    tone_judge = {**JUDGED, "name": "tone", "pass_mark": 0.75}
    run = make_run()
    run.snapshot["evaluators"] = tree(tone_judge)
    comparison = SimpleNamespace(
        evidence=SimpleNamespace(measured=[changed]), candidate=SimpleNamespace(run=run)
    )
    (group,) = metric_groups(comparison)
    assert (group.rows[0].tone, group.rows[0].bar_tone) == (tone, tone or "same")
    assert (group.rows[0].mark, group.rows[0].mark_tone) == ("below its pass mark 0.75", "warn")


def test_few_cases_are_said_to_be_too_few(client, runs):
    page = text_of(client.get(address(runs)))
    assert "4 shared cases have a verdict on both sides; ten are needed" in page
    assert "There are too few shared cases to tell a change from chance" in page


def test_runs_of_two_suites_are_compared_by_the_keys_they_share(client, runs):
    other = make_suite(slug="other", title="Other suite")
    run = make_scored_run(verdicts=AFTER[:3], suite=other, status=RunStatus.COMPLETED)
    make_result(run=run, case=make_case(suite=other, key="X-1"), verdict="pass", score=0.9)
    whole = address((runs[0], runs[1]), candidate=f"other:{run.number}")
    page = text_of(client.get(whole))
    assert "runs of two suites" in page
    assert "3 cases have the same key in both" in page
    assert "Compare the shared cases" in page
    assert "Added 1" in page
    shared = text_of(client.get(f"{whole}&cases=shared"))
    assert "Added 0" in shared
    assert "2 of 3 → 2 of 3 results" in shared


def test_runs_without_a_shared_case_are_said_to_have_none(client, runs):
    other = make_suite(slug="other")
    run = make_run(suite=other, status=RunStatus.COMPLETED)
    make_result(run=run, case=make_case(suite=other, key="X-1"), verdict="pass", score=0.9)
    page = text_of(client.get(address(runs, candidate=f"other:{run.number}")))
    assert "No case has the same key in both" in page
    assert "No shared case has a verdict on both sides" in page


def test_an_unfinished_run_is_told(client, runs):
    Run.objects.filter(pk=runs[1].pk).update(status=RunStatus.STOPPED)
    assert f"Run #{runs[1].number} of" in text_of(client.get(address(runs)))
    assert "is not completed" in text_of(client.get(address(runs)))


def test_a_run_is_held_against_the_baseline_or_the_completed_run_before_it(client, runs):
    third = make_scored_run(verdicts=AFTER, suite=runs[0].suite, status=RunStatus.COMPLETED)
    page = client.get(f"/suites/support/runs/{third.number}/").content.decode()
    link = f"/compare/?candidate=support:{third.number}"
    assert link in page
    assert 'aria-keyshortcuts="c"' in page
    assert client.get(link)["Location"] == address((runs[1], third))
    assert "Compare latest with previous" in text_of(client.get("/suites/support/"))
    runs[0].suite.baseline_run = runs[0]
    runs[0].suite.save()
    assert client.get(link)["Location"] == address((runs[0], third))
    suite_page = client.get("/suites/support/").content.decode()
    assert re.search(rf'href="{re.escape(link)}"\s*>Compare latest with baseline<', suite_page)
    alone = client.get(f"/compare/?candidate=support:{runs[0].number}")
    assert "Which runs" in text_of(alone)


def test_two_runs_are_ticked_in_the_list(client, runs):
    page = client.get("/runs/").content.decode()
    assert f'name="run" value="support:{runs[0].number}" form="ticked-runs"' in page
    words = [f"support:{run.number}" for run in runs]
    assert client.get(f"/compare/?run={words[1]}&run={words[0]}")["Location"] == address(runs)
    one = client.get(f"/compare/?run={words[1]}", follow=True)
    assert "Select two runs, or up to six runs of one suite" in text_of(one)


def test_what_was_set_up_otherwise_is_shown_part_by_part(client, runs):
    after = runs[1].snapshot
    after["policy"]["pass_threshold"] = 0.9
    after["target"]["config"] = {"temperature": 0.7}
    runs[1].save()
    page = text_of(client.get(address(runs)))
    assert (
        "Inconclusive. The runs differ in policy, not only in their targets, so no change" in page
    )
    assert "can be attributed to the target. Pass rate fell by" in page
    assert "Not comparable: different policy" in page
    assert "Target" in page
    assert "config, temperature after: 0.7" in page
    assert re.search(r"Policy \D*before: 0\.\d+ after: 0\.90", page)


@pytest.mark.django_db(transaction=True)
def test_both_are_scored_under_the_policy_of_one_and_compared_anew():
    source = finished_run()
    pair = [rescored(source, pass_threshold=limit) for limit in (0.7, 0.9)]
    slug = source.suite.slug
    words = {"baseline": f"{slug}:{pair[0].number}", "candidate": f"{slug}:{pair[1].number}"}
    reader, editor = make_client(make_member("viewer")), make_client(make_member("editor"))
    seen = text_of(reader.get("/compare/", words))
    assert "Editors and admins can score both under one policy." in seen
    assert "Score both" not in seen
    assert reader.post("/compare/score/", words).status_code == 403
    assert f"Score both under the policy of #{pair[1].number}, v1" in text_of(
        editor.get("/compare/", words)
    )
    made = editor.post("/compare/score/", words | {"like": "candidate"}, follow=True)
    number = pair[1].number + 1
    assert made.redirect_chain[0][0] == (
        f"/compare/?baseline={slug}:{number}&candidate={words['candidate']}"
    )
    assert "Comparable: only the target differs" in text_of(made)
    assert "Refresh" not in made
    Run.objects.filter(number=number).update(status=RunStatus.RUNNING)
    editor.post("/compare/score/", words | {"like": "candidate"})
    assert source.suite.runs.count() == number, "one is being rescored already"
    waiting = editor.get(made.redirect_chain[0][0])
    assert waiting["Refresh"] == "3"
    assert "Rescoring." in text_of(waiting)
    assert "Inconclusive" in text_of(waiting)
    Run.objects.filter(number=number).update(status=RunStatus.COMPLETED)
    again = editor.post("/compare/score/", words | {"like": "candidate"})
    assert again["Location"] == made.redirect_chain[0][0]
    assert source.suite.runs.count() == number


@pytest.mark.django_db(transaction=True)
def test_two_who_score_alike_at_once_get_one_run(monkeypatch):
    source = finished_run()
    like = rescored(source, pass_threshold=0.9)
    faster = []

    def ask_slowly(run, rules, **facts):
        if not faster:
            faster.append(None)
            faster.append(score_like(run, like, by=None))
        return ask(run, rules, **facts)

    monkeypatch.setattr("runs.what_if.services.ask", ask_slowly)
    assert score_like(source, like, by=None) == faster[-1]
    assert source.suite.runs.count() == 3


@pytest.mark.django_db(transaction=True)
def test_runs_whose_evaluators_need_new_calls_are_not_scored_alike_and_stay_as_they_are():
    source = finished_run()
    other = rescored(source, pass_threshold=0.9)
    other.snapshot["evaluators"]["children"][0]["config"]["value"] = "money"
    other.save()
    words = {"baseline": f"{source.suite.slug}:1", "candidate": f"{source.suite.slug}:2"}
    editor = make_client(make_member("editor"))
    page = editor.post("/compare/score/", words | {"like": "candidate"}, follow=True)
    assert page.redirect_chain == [("/compare/?" + urlencode(words, safe=":"), 302)]
    assert "The runs were not rescored." in text_of(page)
    assert "mentions_refund: its settings changed" in text_of(page)
    assert "#2 vs #1 (baseline)" in text_of(page)
    assert Run.objects.count() == 2


def rescored(run: Run, **policy) -> Run:
    rules = RuleSet.of_plan(read_plan(run.snapshot))
    return rescore_run(run, replace(rules, policy=rules.policy.replace(**policy)), by=None)


def test_what_cannot_be_scored_alike_says_why(runs):
    runs[1].snapshot["policy"]["pass_threshold"] = 0.9
    runs[1].save()
    words = {name: f"support:{run.number}" for name, run in zip(SIDES, runs, strict=True)}
    editor = make_client(make_member("editor"))
    page = editor.post("/compare/score/", words, follow=True)
    assert "The runs were not rescored. Run #1 has no scores of evaluators" in text_of(page)
    other = make_scored_run(verdicts=BEFORE, suite=make_suite(slug="other"))
    other.snapshot["policy"]["pass_threshold"] = 0.9
    other.save()
    page = editor.get("/compare/", words | {"candidate": f"other:{other.number}"})
    assert "Runs of two suites cannot be rescored under one policy." in text_of(page)


def test_another_run_can_be_chosen_in_place_of_either_and_both_swapped(client, runs):
    third = make_scored_run(verdicts=AFTER, suite=runs[0].suite, status=RunStatus.STOPPED)
    response = client.get(address(runs))
    page = html.unescape(response.content.decode())
    assert f'href="{address((runs[0], third)).removeprefix("/compare/")}"' in page
    assert f'href="{address((third, runs[1])).removeprefix("/compare/")}"' in page
    assert f"#{third.number} {third.target_name}, cancelled" in text_of(response)
    assert f'href="{address(runs[::-1]).removeprefix("/compare/")}"' in page
    link = re.search(r'href="([^"]+choose=1)"', page)[1]
    chosen = client.get(link).content.decode()
    for run in runs:
        assert re.search(rf'value="support:{run.number}"[^>]+checked', chosen)


def test_runs_are_found_by_suite_or_target_and_the_chosen_ones_stay(client, runs):
    other = make_scored_run(verdicts=AFTER, suite=make_suite(slug="other"))
    page = text_of(client.get("/compare/"))
    assert "#1 Suite other" in page
    assert "Compare latest with previous Suite support #2 with the previous run" in page
    query = f"/compare/?choose=1&baseline=other:{other.number}&find=SUPPORT"
    part = client.get(query, headers={"HX-Request": "true", "HX-Target": "choice"}).text
    assert part.lstrip().startswith('<div id="choice">')
    assert part.count('name="candidate"') == 3
    assert len(re.findall(r'value="other:1"[^>]+checked', part)) == 1
    target = client.get(f"/compare/?choose=1&find={runs[1].target_name}").text
    assert 'value="support:2"' in target
    assert 'value="support:1"' not in target
    assert "No run matches" in text_of(client.get("/compare/?choose=1&find=nonsense"))
    nothing = text_of(client.get("/compare/?choose=1&compare=1"))
    assert "Choose a baseline and a candidate." in nothing
    both = client.get(
        "/compare/?choose=1&compare=1&baseline=support:1&candidate=support:2&find=x", follow=True
    )
    assert "#2 vs #1 (baseline)" in text_of(both)
    runs[0].suite.baseline_run = runs[0]
    runs[0].suite.save()
    assert "#2 with the baseline, #1" in text_of(client.get("/compare/"))


def test_one_run_twice_and_unknown_runs_are_answered(client, runs):
    assert "Both sides are the same run" in text_of(client.get(address((runs[0], runs[0]))))
    assert client.get(address(runs, candidate="support:999")).status_code == 404
    assert client.get(address(runs, candidate="support")).status_code == 404
    assert client.get(address(runs).replace("/compare/", "/compare/case/")).status_code == 404
    assert "Which runs" in text_of(client.get("/compare/"))


def test_queries_do_not_grow_with_the_cases(client, runs, django_assert_max_num_queries):
    client.get(address(runs))
    COMPARED.values.clear()
    # One of them asks how far the judges of both differ from themselves.
    with django_assert_max_num_queries(26) as few:
        client.get(address(runs))
    many = [make_scored_run(verdicts=BEFORE * 8, suite=runs[0].suite) for _ in range(2)]
    with django_assert_max_num_queries(len(few.captured_queries)):
        client.get(address(many, show="all"))


def test_a_filter_without_a_match_is_answered_once(client, runs, django_assert_max_num_queries):
    with django_assert_max_num_queries(30) as found:
        page = text_of(client.get(address(runs, q="latency > 9s", show="regressed")))
    assert "No matching case" in page
    statements = [query["sql"] for query in found if "latency_ms" in query["sql"]]
    assert len(statements) == len(set(statements))


def test_a_case_is_shown_side_by_side_with_what_was_lost(client, runs):
    suite = make_suite(slug="words")
    case = make_case(suite=suite, key="W/1", title="A tent")
    sides = (
        ("pass", 0.9, "Ship it by air today", True),
        ("fail", 0.2, "Ship it by sea today", False),
    )
    pair = []
    for verdict, score, text, met in sides:
        run = make_run(suite=suite, status=RunStatus.COMPLETED)
        result = make_result(run=run, case=case, verdict=verdict, score=score)
        outcomes = [{"text": "Names the way", "passed": met, "justification": "It says so."}]

        type(result).output.related.related_model.objects.create(
            result=result, text=text, outcomes=outcomes
        )
        pair.append(run)
    table = client.get(
        f"/compare/?baseline=words:{pair[0].number}&candidate=words:{pair[1].number}"
    )
    link = html.unescape(re.search(r'href="(/compare/case/[^"]+)"', table.content.decode())[1])
    found = client.get(link)
    page = text_of(found)
    assert "A tent" in page
    assert "Names the way No longer met" in page
    assert "<del>air</del>" in found.content.decode()
    assert "<ins>sea</ins>" in found.content.decode()
    assert "1 of 1 passed before, 0 of 1 now" in page


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("baseline", "Removed only in #1, 0 of 1 passed"),
        ("candidate", "Added only in #2, 0 of 1 passed"),
    ],
)
def test_a_case_of_one_run_alone_claims_nothing_of_the_other(client, runs, side, message):
    run = runs[SIDES.index(side)]
    case = make_case(suite=run.suite, key="ONLY")
    make_result(run=run, case=case, verdict="fail", score=0.3)
    page = text_of(client.get(address(runs, case="ONLY").replace("/compare/", "/compare/case/")))
    assert message in page
    assert "0 of 0" not in page
    assert "This run has no such result." in page


@pytest.mark.parametrize(
    "word", ["", "support", ":1", "support:", "support:1x", "a\0b:1", "a:9999999999"]
)
def test_what_names_no_run_is_asked_of_no_database(word):
    assert read_run_name(word) is None


def test_figures_are_said_to_be_tested_only_where_they_are(client):
    suite = make_suite(slug="words")
    pair = [make_scored_run(verdicts=["pass"] * 12, suite=suite) for _ in SIDES]
    few = {"baseline": f"words:{pair[0].number}", "candidate": f"words:{pair[1].number}"}
    for run in pair:
        for result in run.results.all()[:9]:
            make_score(result=result, path="tone", score=0.5)
    page = text_of(client.get("/compare/", few))
    assert "too few cases to test" in page
    assert "sign-flip permutation test" not in page
    for run in pair:
        make_score(result=run.results.last(), path="tone", score=0.5)
    assert "method for 1 figure" in text_of(client.get("/compare/", few))


def test_of_two_errors_of_a_case_the_candidates_is_told_whichever_run_is_older(client, runs):
    for run, error in zip(runs, ("HTTP 500 at first", "HTTP 503 later"), strict=True):
        run.results.filter(case__key="C-006").update(error=error)
    assert "HTTP 503 later" in text_of(client.get(address(runs)))
    page = text_of(client.get(address(runs[::-1])))
    assert "HTTP 500 at first" in page
    assert "HTTP 503 later" not in page


@pytest.mark.parametrize(
    ("verdicts", "status", "missed", "tone"),
    [
        (["pass"] * 3, "completed", "", "good"),
        (
            ["pass", "pass", "fail"],
            "completed",
            "both gates of #{} failed: mean score 74.6% of 80% needed, pass rate 66.6% of 100% needed",
            "warn",
        ),
        (
            ["pass"] * 4 + ["borderline"] * 2,
            "completed",
            "the pass rate gate of #{} failed: 66.6% of 100% needed",
            "warn",
        ),
        (
            ["pass"] * 3,
            "stopped",
            "",
            "warn",
        ),
    ],
)
def test_no_regression_is_not_all_green_where_gates_failed(client, verdicts, status, missed, tone):
    suite = make_suite(slug="support")
    before = make_scored_run(verdicts=verdicts, suite=suite, status="completed")
    after = make_scored_run(verdicts=verdicts, suite=suite, status=status)
    response = client.get(address((before, after)))
    page = text_of(response)
    tones = re.findall(r'<div class="banner" data-tone="(\w+)"', response.content.decode())
    assert tones[-1] == tone
    chip = {"": "No regression", "both": "No regression, gates failed"}
    said = chip.get(missed[:4], "No regression, gate failed")
    heading = "Inconclusive" if status == "stopped" else said
    assert (
        f"#{after.number} vs #{before.number} (baseline) {heading} {len(verdicts)} cases in both"
        in page
    )
    ended = "Inconclusive." if status == "stopped" else "No regression."
    assert (f"No regression, but {missed.format(after.number)}." if missed else ended) in page
    panel = page[page.index("candidate") :]
    assert "Pass rate needs 100%: " in panel
    assert ("not evaluated, the run is not completed" in page) == (status == "stopped")


def test_evaluators_of_a_case_stand_by_the_size_of_their_change_and_equal_ones_are_folded(client):
    suite = make_suite(slug="words")
    case = make_case(suite=suite, key="W-1")
    for scores in ({"tone": 0.9, "refund": 0.5}, {"tone": 0.9, "refund": 0.1}):
        run = make_run(suite=suite, status=RunStatus.COMPLETED)
        result = make_result(run=run, case=case, verdict="pass", score=0.9)
        for path, score in scores.items():
            make_score(result=result, path=path, score=score)
    page = client.get("/compare/case/?baseline=words:1&candidate=words:2&case=W-1").text
    panel = page[page.index('id="evaluators-title"') :]
    shown, _, folded = panel.partition("<details>")
    assert "refund" in shown
    assert '<span class="delta" data-tone="bad">−40.0' in shown
    assert ">tone<" not in shown
    assert "1 evaluator without a change" in folded
    assert ">tone<" in folded


def test_results_opened_from_a_comparison_are_stepped_through_in_its_list(
    client: Client, runs: tuple[Run, Run]
) -> None:
    """C-002 got worse, which comes first; C-003, C-005 and C-006 follow."""
    shown = address(runs, show="changed").partition("?")[2]
    case = client.get(f"/compare/case/?{shown}&case=C-002").text
    # Whoever may share the comparison need not go back to it.
    assert "/shares/new/" not in case
    editor = make_client(make_member("editor"))
    link = re.search(
        r'href="(/shares/new/[^"]+)"', editor.get(f"/compare/case/?{shown}&case=C-002").text
    )
    assert editor.get(html.unescape(link[1])).status_code == 200
    candidate = f"/suites/support/runs/{runs[1].number}/"
    opened = html.unescape(re.search(rf'href="({candidate}C-002/1/[^"]*)"', case)[1])
    assert "from=comparison" in opened
    page = html.unescape(client.get(opened).text)
    assert f'href="/compare/?{opened.partition("?")[2]}#changes"' in page
    asked = re.search(r'hx-get="(/compare/step/[^"]*)"', page)[1]
    step = html.unescape(client.get(asked).text)
    assert "1 of 4 changed" in step
    following = re.search(r'href="([^"]*)"\s+aria-keyshortcuts="j"', step)[1]
    assert following.startswith(f"{candidate}C-00")
    assert 'aria-keyshortcuts="k"' not in step
    assert client.get(following).status_code == 200
    back = html.unescape(client.get(f"/compare/step/?{shown}&case=C-003").text)
    assert "/compare/case/?" in re.search(r'href="([^"]*)"\s+aria-keyshortcuts="k"', back)[1]
    assert "changed" not in client.get(f"{asked}&blind=1").text.partition("<a")[0]
    for wrong in ("case=C-001", "case=nobody", "case=C-002&q=%28"):
        assert client.get(f"/compare/step/?{shown}&{wrong}").text == ""


def test_steps_from_a_comparison_lead_to_the_repetition_that_got_worst_and_say_which(
    client: Client, db: None
) -> None:
    suite = make_suite(slug="support")
    cases = [make_case(suite=suite, key=key) for key in ("C-1", "C-2")]
    for verdicts in (["pass"] * 3, ["pass", "borderline", "fail"]):
        run = make_run(suite=suite, repetitions=3, status=RunStatus.COMPLETED)
        for case in cases:
            for repetition, verdict in enumerate(verdicts, 1):
                place = {"run": run, "case": case, "repetition": repetition}
                make_result(**place, verdict=verdict, score=0.9 - 0.1 * repetition)
    shown, run = "baseline=support:1&candidate=support:2", Run.objects.get(number=2)
    first = text_of(client.get(f"/compare/case/?{shown}&case=C-1"))
    assert "Repetition 3 changed most" in first
    chosen = client.get(f"/compare/case/?{shown}&case=C-1&repetition=2")
    assert "changed most" not in text_of(chosen)
    step = f"/compare/step/?{shown}&show=all&case=C-1&run={run.pk}"
    page = client.get(step).text
    assert 'aria-label="J, next: C-2, repetition 3"' in page
    assert "/suites/support/runs/2/C-2/3/?from=comparison" in page
    blind = client.get(f"{step}&blind=1").text
    assert "/suites/support/runs/2/C-2/1/?from=comparison" in blind
    assert "repetition" not in blind, "which one changed would tell of its verdict"


def test_a_cost_that_lacks_prices_is_marked_and_not_compared(client, runs):
    runs[1].results.filter(verdict="pass").update(run_cost_usd=None)
    for run in runs:
        assert summarise_run(run.pk)
    both = "support:1,support:2"

    shown = text_of(client.get(address(runs))).partition("Total cost")[2]
    ids = {f"{side}_run_id": f"support:{run.number}" for side, run in zip(SIDES, runs, strict=True)}
    document = client.get("/api/runs/compare", ids).json()
    columns = client.get(f"/api/runs/compare/many?runs={both}").json()["runs"]
    beside = text_of(client.get(f"/compare/many/?runs={both}"))

    assert "≥ $0.072" in shown.partition("Regressions")[0]
    assert "Some answers have no known price" in shown
    assert "%" not in shown.partition("No limit")[0]
    assert [document[side]["costs_are_partial"] for side in SIDES] == [False, True]
    assert [column["costs_are_partial"] for column in columns] == [False, True]
    assert re.search(r"Total cost \$0\.096 ≥ \$0\.\d+ Mean latency", beside)
