"""The home page, the list of suites and the overview of a suite."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.scoring.types import Verdict
from evaluators.templatetags import figures
from runs.finishing import summarise_run
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.summary.cases import ExecutionRecord
from runs.summary.run import summarise
from tests.support.factories import (
    TREE,
    make_call,
    make_case,
    make_model,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
    make_target,
    make_user,
    refresh_cases,
)

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(make_user(role="editor"))
    return client


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(make_user(role="viewer"))
    return client


def page(client: Client, name: str, *args: Any, **query: str) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


class TestSuiteList:
    def test_an_editor_without_suites_is_led_to_the_import(self, editor: Client) -> None:
        html = page(editor, "home")
        assert "0 of 4 steps done" in html
        assert reverse("runs:suite-import") in html
        assert reverse("runs:suite-sample") in html
        assert "Start the run" not in html

    def test_the_first_steps_tick_themselves_and_go_with_the_first_run(
        self, editor: Client
    ) -> None:
        suite = make_suite()
        make_case(suite=suite)
        html = page(editor, "home")
        assert "1 of 4 steps done" in html
        assert "Start the run" in html
        assert 'id="dashboard"' not in html
        make_scored_run(suite=suite, verdicts=["pass"])
        html = page(editor, "home")
        assert "first-steps" not in html
        assert 'id="dashboard"' in html

    def test_a_viewer_without_suites_is_told_who_can_import(self, viewer: Client) -> None:
        html = page(viewer, "home")
        assert "An editor or admin can import one" in html
        assert reverse("runs:suite-import") not in html

    def test_a_suite_shows_gates_verdicts_and_cost_of_its_latest_completed_run(
        self, editor: Client
    ) -> None:
        suite = make_suite(title="Billing and refunds", cases_pass_threshold=0.7)
        make_scored_run(suite=suite, verdicts=["pass", "pass", "fail", "error"])
        html = page(editor, "home")
        assert "Billing and refunds" in html
        assert "4 cases · v1 · 2 evaluators" in html
        assert "74.6%" in html
        assert "50.0%" in html
        assert "Failed" in html
        assert "$0.064" in html
        run = reverse("runs:run", args=[suite.slug, 1])
        for verdict in ("pass", "fail", "error"):
            assert f'href="{run}?verdict={verdict}#results-title"' in html

    def test_verdicts_are_of_cases_not_of_executions(self, editor: Client) -> None:
        suite = make_suite(cases=1)
        run = make_run(suite=suite, repetitions=2)
        case = suite.cases.get()
        make_result(run=run, case=case, verdict="pass", score=0.9, repetition=1)
        make_result(run=run, case=case, verdict="fail", score=0.5, repetition=2)
        executions = [
            ExecutionRecord(case.key, "scored", Verdict(result.verdict), result.score)
            for result in run.results.all()
        ]
        summary = summarise(executions, suite.policy, is_completed=True, seed=1)
        run.summary = summary.as_json()
        run.save()
        assert '<b>1</b> <span class="unseen">borderline</span>' in page(editor, "home")

    def test_a_suite_that_never_ran_offers_its_first_run(self, editor: Client) -> None:
        suite = make_suite(cases=1)
        html = page(editor, "home")
        assert "No completed run yet." in html
        assert reverse("runs:run-new", args=[suite.slug]) in html

    def test_a_viewer_is_offered_no_run(self, viewer: Client) -> None:
        suite = make_suite(cases=1)
        html = page(viewer, "home")
        assert reverse("runs:run-new", args=[suite.slug]) not in html

    def test_a_run_at_work_is_shown_beside_the_completed_one_and_polled(
        self, editor: Client
    ) -> None:
        suite = make_suite()
        make_scored_run(suite=suite, verdicts=["pass", "pass"])
        make_scored_run(suite=suite, verdicts=["pass", "pending"], status="running")
        html = page(editor, "home")
        assert "#2 at 50.0%" in html
        assert 'hx-trigger="every 5s"' in html

    def test_outputs_that_are_judged_again_are_shown_while_that_lasts(self, editor: Client) -> None:
        suite = make_suite(title="Refunds")
        source = make_scored_run(suite=suite, verdicts=["pass", "pass"])
        again = make_scored_run(suite=suite, verdicts=["pass", "pending"], status="running")
        Run.objects.filter(pk=again.pk).update(source_run=source)
        html = page(editor, "home", show="running")
        assert ">Refunds</a>" in html
        assert "#2 at 50.0%" in html
        Run.objects.filter(pk=again.pk).update(status="completed")
        assert "No running suite" in page(editor, "home", show="running")
        assert "#2" not in page(editor, "home")

    def test_a_run_that_ended_otherwise_is_shown_with_its_status(self, editor: Client) -> None:
        suite = make_suite()
        make_scored_run(suite=suite, verdicts=["pass"])
        make_scored_run(suite=suite, verdicts=["error"], status="failed")
        html = page(editor, "home")
        assert "Run failed" in html
        assert "#1</a>" in html

    @pytest.mark.each_database
    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ({"q": "refund"}, ["Refunds"]),
            ({"q": "spanish"}, ["Escalation"]),
            ({"show": "failed"}, ["Escalation"]),
            ({"show": "running"}, ["Delivery"]),
            ({"sort": "cost"}, ["Escalation", "Refunds", "Delivery"]),
            ({"show": "nonsense", "sort": "nonsense"}, ["Escalation", "Delivery", "Refunds"]),
            ({"sort": "name"}, ["Delivery", "Escalation", "Refunds"]),
        ],
    )
    def test_the_address_narrows_and_orders_the_suites(
        self, editor: Client, query: dict[str, str], shown: list[str]
    ) -> None:
        make_scored_run(suite=make_suite(title="Refunds"), verdicts=["pass"])
        dear = make_suite(title="Escalation", tags=["Spanish"])
        make_scored_run(suite=dear, verdicts=["pass", "fail"])
        make_scored_run(suite=make_suite(title="Delivery"), verdicts=["pending"], status="running")
        html = page(editor, "home", **query)
        rows = html[html.index("<tbody") : html.index("</tbody>")]
        found = [
            title for title in ("Delivery", "Escalation", "Refunds") if f">{title}</a>" in rows
        ]
        assert sorted(found, key=rows.index) == shown

    def test_what_is_wrong_comes_first_and_suites_without_a_run_last(self, editor: Client) -> None:
        ends = {
            "A never ran": None,
            "B passed": ["pass"],
            "C waits": ["pass"],
            "D errors": ["pass", "error"],
            "E failed": ["fail"],
        }
        for title, verdicts in ends.items():
            suite = make_suite(title=title)
            if verdicts:
                run = make_scored_run(suite=suite, verdicts=verdicts)
                run.snapshot["policy"]["cases_pass_threshold"] = 0.5
                run.save()
        ReviewItem.objects.create(
            run=Run.objects.get(suite__title="C waits"),
            result=Run.objects.get(suite__title="C waits").results.get(),
        )
        html = page(editor, "home")
        order = sorted(ends, key=lambda title: html.index(f">{title}</a>", html.index("<tbody")))
        assert order == ["E failed", "D errors", "C waits", "B passed", "A never ran"]

    def test_a_filter_without_a_match_says_so_and_can_be_cleared(self, editor: Client) -> None:
        make_suite()
        html = page(editor, "home", q="warranty")
        assert "No suite matches “warranty”" in html
        assert "Clear filters" in html

    def test_more_suites_than_fit_are_reached_by_the_next_address(self, editor: Client) -> None:
        for number in range(51):
            make_suite(slug=f"s-{number:02}", title=f"Suite {number:02}")
        html = page(editor, "home")
        assert "50 of 51 suites" in html
        assert "after=s-49" in html
        rest = page(editor, "home", after="s-49")
        assert "51 to 51 of 51 suites" in rest
        assert "Suite 50" in rest
        assert "Suite 49" not in rest

    def test_a_trend_is_of_the_latest_target_and_has_three_runs_or_more(
        self, editor: Client
    ) -> None:
        suite = make_suite()
        mini, large = make_target(name="mini"), make_target(name="large")
        for verdict, target in (("fail", mini), ("pass", large), ("fail", mini), ("pass", large)):
            make_scored_run(suite=suite, verdicts=[verdict], target=target)
        rows = page(editor, "home") + page(editor, "runs:suite", suite.slug)
        assert "A trend needs three runs of one target" in rows
        assert "Metrics score of" not in rows
        assert 'class="spark"' not in rows

        make_scored_run(suite=suite, verdicts=["borderline"], target=mini)
        ends = "Mean score of mini in its last 3 runs, from 40.0% to 71.0%"
        assert ends in page(editor, "home")
        assert figures.delta(0.31, "pts") in page(editor, "home")

        make_scored_run(suite=suite, verdicts=["error"], target=make_target(name="new"))
        assert 'class="spark"' not in page(editor, "home")

    def test_an_archived_suite_is_left_out(self, editor: Client) -> None:
        make_suite(title="Old", archived_at=timezone.now())
        assert "0 of 4 steps done" in page(editor, "home")

    def test_the_number_of_queries_does_not_grow_with_the_suites(
        self, editor: Client, django_assert_max_num_queries: Any
    ) -> None:
        for _ in range(4):
            suite = make_suite()
            make_scored_run(suite=suite, verdicts=["pass", "fail"])
            make_scored_run(suite=suite, verdicts=["pending"], status="running")
        with django_assert_max_num_queries(16):
            page(editor, "home")

    def test_somebody_without_a_role_is_refused(self, client: Client) -> None:
        user = make_user(role="viewer")
        user.groups.clear()
        client.force_login(user)
        assert client.get(reverse("home")).status_code == 403


@pytest.mark.usefixtures("clock")
class TestToday:
    def test_the_cells_say_what_runs_fails_and_errs(self, editor: Client) -> None:
        make_scored_run(verdicts=["pass", "fail", "error"])
        make_scored_run(
            verdicts=["pass", "pending"],
            status="running",
            started_at=timezone.now() - timedelta(minutes=4),
        )
        html = page(editor, "runs:dashboard")
        assert ">1</a> <small>run · 50.0% · about 4\u00a0min left</small>" in html
        assert "1</a> <small>of 1 suite run</small>" in html
        assert "1</a> <small>result in 1 suite</small>" in html
        for list_ in ("/?show=failed", "/?show=errored", "/runs/?status=active"):
            assert f'href="{list_}"' in html

    def test_money_is_what_the_ledger_holds_of_this_month(self, editor: Client) -> None:
        run = make_scored_run(verdicts=["pass"])
        result = run.results.get()
        now = timezone.now()
        make_call(result=result, created_at=now, cost_usd=Decimal("1.25"))
        make_call(result=result, created_at=now, cost_usd=Decimal("0.50"), purpose="target")
        make_call(result=result, created_at=now, cost_usd=None)
        make_call(result=result, created_at=now - timedelta(days=40), cost_usd=Decimal(9))
        html = page(editor, "runs:dashboard")
        assert "$1.75</a>" in html
        assert ">$0.50 + $1.25 · 1 call without a price</small>" in html

    def test_quiet_times_are_polled_seldom(self, editor: Client) -> None:
        assert 'hx-trigger="every 30s"' in page(editor, "runs:dashboard")


class TestSuiteRows:
    def test_the_rows_come_with_their_chips_and_the_address_of_the_page(
        self, editor: Client
    ) -> None:
        make_suite(title="Refunds")
        response = editor.get(reverse("runs:suite-rows"), {"q": "refunds"}, headers=HTMX)
        html = response.content.decode()
        assert 'id="suite-rows"' in html
        assert 'id="suite-chips" hx-swap-oob="true"' in html
        assert "<html" not in html
        assert response["HX-Push-Url"] == "/?q=refunds"


class TestSuite:
    def test_the_overview_shows_policy_tree_and_runs(self, editor: Client) -> None:
        suite = make_suite(
            title="Customer support",
            description="What the agent must get right.",
            judge=make_model(slug="juno-2"),
            cases_pass_threshold=0.85,
        )
        make_scored_run(suite=suite, verdicts=["pass", "fail"])
        html = page(editor, "runs:suite", suite.slug)
        assert "What the agent must get right." in html
        assert "85%" in html
        assert "0.80" in html
        assert "juno-2" in html
        assert "<code>tone</code>" in html
        assert "66.6%" in html
        assert "×2" in html
        assert "#1</a>" in html

    def test_a_suite_without_runs_offers_the_first(self, editor: Client) -> None:
        suite = make_suite(cases=1)
        assert "Start the first run" in page(editor, "runs:suite", suite.slug)

    def test_a_viewer_of_a_suite_without_runs_is_told_who_starts_one(self, viewer: Client) -> None:
        suite = make_suite(cases=1)
        html = page(viewer, "runs:suite", suite.slug)
        assert "An editor or admin can start one" in html
        assert "Start run" not in html

    def test_a_suite_without_cases_says_so_and_cannot_be_run(self, editor: Client) -> None:
        suite = make_suite()
        html = page(editor, "runs:suite", suite.slug)
        assert "This suite has no cases." in html
        assert reverse("runs:run-new", args=[suite.slug]) not in html

    def test_a_run_that_is_not_completed_keeps_its_gates_open(self, editor: Client) -> None:
        suite = make_suite()
        make_scored_run(suite=suite, verdicts=["pass", "cancelled"], status="stopped")
        html = page(editor, "runs:suite", suite.slug)
        assert "Not evaluated" in html
        assert "Cancelled" in html

    def test_an_unknown_suite_is_not_found(self, editor: Client) -> None:
        assert editor.get(reverse("runs:suite", args=["nowhere"])).status_code == 404

    def test_the_number_of_queries_is_fixed(
        self, editor: Client, django_assert_max_num_queries: Any
    ) -> None:
        suite = make_suite()
        for _ in range(5):
            make_scored_run(suite=suite, verdicts=["pass", "fail"])
        with django_assert_max_num_queries(19):
            page(editor, "runs:suite", suite.slug)

    def test_health_is_of_the_newest_run_of_each_target_and_says_since_when(
        self, editor: Client
    ) -> None:
        suite = make_suite()
        mini, max_ = make_target(name="mini"), make_target(name="max")
        for target, verdicts in (
            (mini, ["pass", "pass"]),
            (max_, ["pass", "fail"]),
            (mini, ["pass", "fail"]),
            (mini, ["fail", "fail"]),
        ):
            run = make_scored_run(suite=suite, target=target, verdicts=verdicts)
            summarise_run(run.pk)
        html = page(editor, "runs:suite", suite.slug)
        health = html.partition('id="health"')[2].partition("</table>")[0]
        assert re.findall(r"/runs/\d/\">(\w+)</a>", health) == ["mini", "max"]
        newest, first = health.split("<tr>")[2:]
        assert "Failed</span>" in newest
        assert f'since <a href="{reverse("runs:run", args=[suite.slug, 3])}">#3</a>' in newest
        assert ">0.0%</a></b>" in newest
        assert "first run" in first
        assert "Best value: max #2, $" in html
        assert "per passed result. Not compared: 1 run without a passed result" in html

    def test_a_suite_without_a_completed_run_has_no_health_and_no_worst_cases(
        self, editor: Client
    ) -> None:
        suite = make_suite(cases=1)
        html = page(editor, "runs:suite", suite.slug)
        assert ('id="health"' in html, 'id="worst"' in html) == (False, False)

    def test_the_worst_cases_lead_to_their_last_failure(self, editor: Client) -> None:
        suite = make_suite(cases=2)
        good, bad = suite.cases.order_by("position")
        for verdict in ("pass", "fail"):
            run = make_run(suite=suite)
            make_result(run=run, case=good, verdict=verdict, score=0.5)
            make_result(run=run, case=bad, verdict="fail", score=0.1)
            refresh_cases(run)
        html = page(editor, "runs:suite", suite.slug)
        worst = html.partition('id="worst"')[2].partition("</table>")[0]
        assert re.findall(r"<code>([^<]+)", worst) == [bad.key, good.key]
        assert re.findall(r"<b>(\d)</b> <span class=\"quiet\">of (\d)", worst) == [
            ("2", "2"),
            ("1", "2"),
        ]
        assert reverse("runs:result", args=[suite.slug, 2, good.key, 1]) in worst


class TestSuiteCases:
    def test_the_table_shows_what_each_case_asks_and_expects(self, editor: Client) -> None:
        suite = make_suite()
        make_case(
            suite=suite,
            key="CS-1",
            title="Refund",
            tags=["refunds"],
            expected_output="Yes",
            expected_outcomes=["a", "b"],
            evaluators=dict(TREE),
        )
        html = page(editor, "runs:suite-cases", suite.slug)
        assert "<code>CS-1</code> Refund" in html
        assert "The tent arrived torn. What now?" in html
        assert '<td class="num">2</td>' in html
        assert "<td>Yes</td>" in html
        assert "own evaluators" in html
        assert "refunds (1)" in html

    def test_each_case_carries_the_verdict_of_the_latest_completed_run(
        self, editor: Client
    ) -> None:
        suite = make_suite(cases=3)
        make_scored_run(suite=suite, verdicts=["pass", "error"])
        make_scored_run(suite=suite, verdicts=["fail", "fail"], status="stopped")
        html = page(editor, "runs:suite-cases", suite.slug)
        assert "In <a" in html
        assert html.count('data-verdict="pass"') == 1
        assert "Errored" in html
        assert "not run" in html

    def test_several_repetitions_make_one_verdict_of_the_case(self, editor: Client) -> None:
        suite = make_suite(cases=2)
        run = make_run(suite=suite, repetitions=2)
        for case in suite.cases.all():
            make_result(run=run, case=case, verdict="pass", score=0.9, repetition=1)
            make_result(run=run, case=case, verdict="fail", score=0.5, repetition=2)
        html = page(editor, "runs:suite-cases", suite.slug)
        assert html.count('data-verdict="borderline"') == 2

    @pytest.mark.parametrize(
        ("query", "keys"),
        [
            ({"q": "CS-1"}, ["CS-1"]),
            ({"q": "GIFT"}, ["CS-2"]),
            ({"q": "kayak"}, ["CS-3"]),
            ({"tag": "refunds"}, ["CS-1", "CS-2"]),
            ({"tag": "refund"}, []),
            ({"tag": "Refunds"}, []),
            ({"tag": 'say "hi"'}, ["CS-3"]),
            ({"tag": "zurück"}, ["CS-3"]),
            ({"after": "nonsense"}, ["CS-1", "CS-2", "CS-3"]),
        ],
    )
    def test_the_address_narrows_the_cases(
        self, editor: Client, query: dict[str, str], keys: list[str]
    ) -> None:
        suite = make_suite()
        make_case(suite=suite, key="CS-1", tags=["refunds"])
        make_case(suite=suite, key="CS-2", title="Gift card", tags=["refunds"])
        kayak = [{"role": "user", "content": "My kayak leaks"}]
        make_case(suite=suite, key="CS-3", input=kayak, tags=["zurück", 'say "hi"'])
        html = page(editor, "runs:suite-cases", suite.slug, **query)
        assert [key for key in ("CS-1", "CS-2", "CS-3") if f"<code>{key}</code>" in html] == keys

    def test_a_filter_without_a_match_says_how_many_cases_there_are(self, editor: Client) -> None:
        suite = make_suite(cases=2)
        html = page(editor, "runs:suite-cases", suite.slug, q="warranty")
        assert "No case matches “warranty”" in html
        assert "2 cases match without" in html

    def test_a_suite_without_cases_says_where_they_come_from(self, editor: Client) -> None:
        assert "No cases yet" in page(editor, "runs:suite-cases", make_suite().slug)

    def test_the_second_stretch_begins_where_the_first_ends(self, editor: Client) -> None:
        suite = make_suite(cases=51)
        html = page(editor, "runs:suite-cases", suite.slug)
        assert "50 of 51 cases" in html
        last = suite.cases.get(key="C-050")
        after = f"{last.position}~{last.pk}"
        assert f"?after={after}" in html
        rest = page(editor, "runs:suite-cases", suite.slug, after=after)
        assert "51 to 51 of 51 cases" in rest
        assert "C-051" in rest
        assert "C-050" not in rest
        beyond = page(editor, "runs:suite-cases", suite.slug, after="9999~1")
        assert "No more cases" in beyond

    def test_only_the_current_revision_is_listed(self, editor: Client) -> None:
        suite = make_suite()
        make_case(suite=suite, key="CS-1", title="Old words", is_current=False)
        make_case(suite=suite, key="CS-1", title="New words", revision=2)
        html = page(editor, "runs:suite-cases", suite.slug)
        assert "New words" in html
        assert "Old words" not in html

    def test_the_rows_alone_name_the_address_of_the_page(self, editor: Client) -> None:
        suite = make_suite(slug="s", cases=1)
        address = reverse("runs:case-rows", args=[suite.slug])
        response = editor.get(address, {"q": "C-001"}, headers=HTMX)
        assert response["HX-Push-Url"] == "/suites/s/cases/?q=C-001"
        assert "<html" not in response.content.decode()
        added = editor.get(address, {"after": "0.0"}, headers=HTMX)
        assert "HX-Push-Url" not in added

    def test_the_number_of_queries_is_fixed(
        self, editor: Client, django_assert_max_num_queries: Any
    ) -> None:
        suite = make_suite(cases=20)
        make_scored_run(suite=suite, verdicts=["pass"] * 20)
        with django_assert_max_num_queries(16):
            page(editor, "runs:suite-cases", suite.slug)


class TestCase:
    def test_a_case_is_shown_in_full(self, editor: Client) -> None:
        suite = make_suite()
        make_case(suite=suite, key="CS-0")
        make_case(
            suite=suite,
            key="CS-1",
            title="Refund on day 34",
            expected_output="The **60-day** cover applies.",
            expected_outcomes=["States the refund time"],
            criteria="Kind and exact",
            metadata={"channel": "chat"},
            evaluators=dict(TREE),
            evaluators_append=True,
            recorded_output={
                "output": "You get your money back.",
                "trace": [{"type": "tool", "name": "find_order", "duration_ms": 400}],
            },
        )
        make_case(suite=suite, key="CS-2")
        html = page(editor, "runs:case", suite.slug, "CS-1")
        for words in (
            "Refund on day 34",
            "The tent arrived torn. What now?",
            "<strong>60-day</strong>",
            "States the refund time",
            "Kind and exact",
            "&quot;channel&quot;: &quot;chat&quot;",
            "Added to the suite&#x27;s",
            "You get your money back.",
            "find_order",
            "Previous case, CS-0",
            "Next case, CS-2",
            "No completed run has this case yet.",
        ):
            assert words in html, words

    def test_a_case_shows_what_the_last_runs_found(self, editor: Client) -> None:
        suite = make_suite(cases=1)
        make_scored_run(suite=suite, verdicts=["fail"])
        make_scored_run(suite=suite, verdicts=["pass"])
        make_scored_run(suite=suite, verdicts=["cancelled"], status="stopped")
        html = page(editor, "runs:case", suite.slug, "C-001")
        assert "Run #1: fail 0.40" in html
        assert "Run #2: pass 0.92" in html
        assert "Passed in 1 of 2 runs" in html

    def test_repetitions_of_a_run_make_one_mark(self, editor: Client) -> None:
        suite = make_suite(cases=1)
        run: Run = make_run(suite=suite, repetitions=2)
        case = suite.cases.get()
        make_result(run=run, case=case, verdict="pass", score=0.9, repetition=1)
        make_result(run=run, case=case, verdict="fail", score=0.5, repetition=2)
        assert "Run #1: borderline 0.70" in page(editor, "runs:case", suite.slug, case.key)

    def test_an_earlier_revision_points_to_the_current_one(self, editor: Client) -> None:
        suite = make_suite()
        make_case(suite=suite, key="CS-1", title="Old words", is_current=False)
        make_case(suite=suite, key="CS-1", title="New words", revision=2)
        assert "New words" in page(editor, "runs:case", suite.slug, "CS-1")
        html = page(editor, "runs:case", suite.slug, "CS-1", revision="1")
        assert "Old words" in html
        assert "An earlier revision." in html

    def test_an_unknown_case_is_not_found(self, editor: Client) -> None:
        suite: Suite = make_suite()
        assert editor.get(reverse("runs:case", args=[suite.slug, "CS-9"])).status_code == 404


def test_a_recorded_output_of_megabytes_is_cut_on_the_page(viewer: Client) -> None:
    step = {"type": "tool", "name": "find", "input": {"text": ["<i>" * 10_000]}}
    output = {"output": "<b>" * 1_000_000, "trace": [step] * 400}
    case = make_case(suite=make_suite(slug="long"), key="C-1", recorded_output=output)
    page = viewer.get(reverse("runs:case", args=["long", case.key])).text
    assert f"{figures.thousands(2_980_000)} characters and 100 steps are left out here" in page
    assert "characters more" in page
