"""Starting runs of chosen cases, with other weights, thresholds and samples, and starting one again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.scoring.metrics import DEFAULT_METRICS
from evaluators.scoring.tree import walk
from runs.engine.plan import read_plan
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from tests.support.factories import (
    change_evaluator,
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
)
from tests.support.sent_forms import sent_unchanged
from tests.support.trees import CHECK, LEAF, tree

pytestmark = pytest.mark.django_db
FORM = "start-run"


@pytest.fixture
def suite() -> Suite:
    """Make a suite of three cases with recorded outputs and a judge."""
    made = make_suite(slug="desk", judge=make_model(slug="juno-2"))
    for key, tags in (("A", ["refunds"]), ("B", ["delivery"]), ("C", [])):
        make_case(suite=made, key=key, tags=tags, recorded_output={"output": "hi"})
    return made


@pytest.fixture
def target() -> Target:
    """Make a recorded target."""
    return make_target(name="agent 1")


def at(name: str = "run-new", **place: Any) -> str:
    return reverse(f"runs:{name}", kwargs={"slug": "desk", **place})


def filled(target: Target, **changes: object) -> dict[str, object]:
    """Return the form as the page shows it for a suite nobody changed, with changes."""
    return {
        "target": [target.pk],
        "cases": "all",
        "repetitions": 1,
        "concurrency": 4,
        "judge": Suite.objects.get(slug="desk").judge_id,
        "version": 1,
        "weight:tone": "2",
        "below:tone": "",
        "weight:refund": "1",
        "below:refund": "",
        "pass_threshold": "0.8",
        "borderline_threshold": "0.6",
        "cases_pass_threshold": "100",
        **changes,
    }


def last_run() -> Run:
    return Run.objects.latest("pk")


OTHERWISE = {
    "pass_threshold": "0.75",
    "weight:tone": "4",
    "required:refund": "on",
    "below:refund": "0.5",
    "samples": "3",
}


def test_a_run_does_otherwise_than_its_suite_and_says_so_everywhere(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    page = editor_client.get(editor_client.post(at(), filled(target, **OTHERWISE))["Location"])
    run = last_run()
    assert "changed for this run: Pass from 0.80 → 0.75, tone: Weight ×2 → ×4" in page.text
    assert "refund: Required no → 0.50 or more" in page.text
    assert "tone: Samples 1 → 3" in page.text
    document = editor_client.get(at("run-summary-file", number=run.number)).json()
    assert document["changed"][0] == {
        "evaluator": None,
        "name": "pass_threshold",
        "old": 0.8,
        "new": 0.75,
    }
    assert len(document["changed"]) == 4
    suite.refresh_from_db()
    assert (suite.version, suite.policy.pass_threshold) == (1, 0.8)
    assert dict(walk(suite.spec.evaluators))["tone"].weight == 2.0

    # Run again is filled in with all of it, and starts the same.
    form = editor_client.get(at(), {"again": run.number})
    for shown in ('value="0.75"', 'value="0.5"', 'name="samples" value="3"'):
        assert shown in form.text
    assert "3 changed for this run only" in form.text
    Run.objects.update(status="completed")
    assert f"?again={run.number}" in editor_client.get(at("run", number=run.number)).text


def test_a_run_has_a_longest_time(
    editor_client: Client, suite: Suite, target: Target, settings: Any
) -> None:
    assert (
        "Minutes per run. Leave empty for 24\u00a0h\u00a000\u00a0min."
        in editor_client.get(at()).text
    )
    editor_client.post(at(), filled(target))
    assert last_run().max_minutes == 24 * 60
    editor_client.post(at(), filled(target, minutes="90"))
    run = last_run()
    assert run.max_minutes == 90
    document = editor_client.get(at("run-summary-file", number=run.number)).json()
    assert document["max_minutes"] == 90
    assert 'name="minutes" value="90"' in editor_client.get(at(), {"again": run.number}).text
    settings.MAX_RUN_MINUTES = 0
    editor_client.post(at(), filled(target))
    assert last_run().max_minutes is None
    suite.content["max_minutes"] = 45
    suite.save()
    assert "Minutes per run. Leave empty for 45\u00a0min" in editor_client.get(at()).text
    editor_client.post(at(), filled(target))
    assert last_run().max_minutes == 45
    editor_client.post(at(), filled(target, minutes="60"))
    assert last_run().max_minutes == 60


def test_a_form_that_changes_nothing_is_a_run_like_any_other(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    editor_client.post(at(), filled(target))
    assert {"changed", "asked"}.isdisjoint(last_run().snapshot)


@pytest.fixture
def travel(suite: Suite, target: Target) -> Suite:
    """Make a suite with a metrics judge of two metrics, one of its own."""
    empathy = {"key": "empathy", "name": "Empathy", "weight": 0.2}
    config = {"metrics": ["tool_routing", empathy]}
    work = {**LEAF, "name": "work", "kind": "metrics_judge", "config": config}
    made = make_suite(slug="travel", tree=tree(work, CHECK), judge=suite.judge)
    make_case(suite=made, key="A", recorded_output={"output": "hi"})
    return made


def test_a_run_judges_by_its_own_metrics_and_says_so_everywhere(
    editor_client: Client, travel: Suite, target: Target
) -> None:
    start = reverse("runs:run-new", kwargs={"slug": "travel"})
    page = editor_client.get(start)
    assert page.text.count("counts in work in this run") == len(DEFAULT_METRICS) + 2
    form = sent_unchanged(page.text, FORM)
    form.setlist("target", [str(target.pk)])
    editor_client.post(start, form)
    assert "changed" not in last_run().snapshot

    del form["metric:work:tool_routing"]
    form["metric-weight:work:empathy"] = "0.5"
    form["metric:work:task_completion"] = "on"
    form["form_key"] = "another"
    head = editor_client.get(editor_client.post(start, form)["Location"]).text
    assert "work: Metric tool_routing ×0.15 → left out" in head
    assert "work: Metric empathy ×0.2 → ×0.5" in head
    assert "work: Metric task_completion left out → ×0.1" in head
    run = last_run()
    judged = dict(walk(read_plan(run.snapshot).root))["work"].config["metrics"]
    assert {metric["key"]: metric["weight"] for metric in judged} == {
        "empathy": 0.5,
        "task_completion": 0.1,
    }
    place = reverse("runs:run-summary-file", kwargs={"slug": "travel", "number": run.number})
    assert editor_client.get(place).json()["changed"][0] == {
        "evaluator": "work",
        "name": "metric.tool_routing",
        "old": 0.15,
        "new": None,
    }

    # Run again is filled in with the same metrics, and starts the same.
    again = editor_client.get(start, {"again": run.number})
    assert "3 changed for this run only" in again.text
    repeated = sent_unchanged(again.text, FORM)
    assert "metric:work:tool_routing" not in repeated
    editor_client.post(start, repeated)
    assert last_run().pk != run.pk
    assert last_run().snapshot["changed"] == run.snapshot["changed"]

    # A metric that the suite has lost since is named.
    change_evaluator(travel, "work", config={"metrics": ["tool_routing"]})
    lost = editor_client.get(start, {"again": run.number}).text
    assert "The suite no longer has empathy of work" in lost


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric-weight:work:empathy": "much"}, "Enter a number of 0 or more."),
        (
            {"metric:work:empathy": None, "metric:work:tool_routing": None},
            "For this run only: “work”: no metric counts. Choose at least one.",
        ),
    ],
)
def test_metrics_that_cannot_score_a_run_are_refused(
    editor_client: Client,
    travel: Suite,
    target: Target,
    changes: dict[str, str | None],
    said: str,
) -> None:
    start = reverse("runs:run-new", kwargs={"slug": "travel"})
    form = sent_unchanged(editor_client.get(start).text, FORM)
    form["target"] = str(target.pk)
    for name, value in changes.items():
        if value is None:
            del form[name]
        else:
            form[name] = value
    answer = editor_client.post(start, form)
    assert answer.status_code == 422
    assert said in answer.text
    assert not Run.objects.exists()


def test_every_choice_is_filled_in_again(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    editor_client.post(at(), filled(target, cases="chosen", case=["A"], keys="C\r\n", note="why"))
    first = last_run()
    assert [result.case.key for result in first.results.all()] == ["A", "C"]
    page = editor_client.get(at(), {"again": first.number})
    assert page.context["form"].wanted_keys == ["A", "C"]
    assert 'name="case" value="A" checked' in page.text
    assert "1 × 2 × 1 = <b>2</b>" in page.text
    assert 'value="why"' in page.text

    editor_client.post(at(), filled(target, cases="tag", tag=["delivery"], repetitions=3))
    again = editor_client.get(at(), {"again": last_run().number})
    assert again.context["form"].wanted_tags() == ["delivery"]
    assert "1 × 1 × 3 = <b>3</b>" in again.text


def test_cases_can_be_named_by_an_address_and_searched(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    form = editor_client.get(at(), {"case": ["B", "C"]}).context["form"]
    assert (form.choice, form.wanted_keys) == ("chosen", ["B", "C"])
    sent = filled(target, cases="chosen", case=["B"], sought="case a", keys="C")
    found = editor_client.post(at("run-cases"), sent).text
    assert [found.count(f'value="{key}"') for key in "ABC"] == [1, 1, 1]
    assert "2 cases chosen of 3; 1 case with “case a”" in found
    nothing = editor_client.post(at("run-cases"), filled(target, sought="<b>nowhere")).text
    assert "No case has this" in nothing
    assert "&lt;b&gt;nowhere" in nothing


def test_what_was_not_passed_last_time_can_be_run_again(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    past = make_run(suite=suite, target=target)
    scores = {"pass": 0.9, "fail": 0.5, "borderline": 0.7}
    for case, verdict in zip(suite.cases.order_by("position"), scores, strict=True):
        make_result(run=past, case=case, verdict=verdict, score=scores[verdict])
    Suite.objects.update(baseline_run=past)
    shown = editor_client.get(at()).text
    assert "Not passed in #1 (2)" in shown
    assert "baseline #1</a>" in shown
    editor_client.post(at(), filled(target, cases="failed:1"))
    assert [result.case.key for result in last_run().results.all()] == ["B", "C"]

    ticked = {"case": [suite.cases.get(key="C").pk]}
    place = editor_client.post(at("run-chosen", number=1), ticked)["Location"]
    assert editor_client.get(place).context["form"].wanted_keys == ["C"]
    filtered = {"everything": "on", "verdict": "fail"}
    place = editor_client.post(at("run-chosen", number=1), filtered)["Location"]
    assert editor_client.get(place).context["form"].wanted_keys == ["B"]
    by_htmx = editor_client.post(at("run-chosen", number=1), ticked, headers={"HX-Request": "true"})
    assert by_htmx["HX-Redirect"].startswith(at())
    assert editor_client.post(at("run-chosen", number=1), {})["Location"] == at("run", number=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weight:tone": "NaN"}, "Enter a number of 0 or more."),
        ({"weight:tone": "-1"}, "Enter a number of 0 or more."),
        ({"weight:tone": "1e999"}, "Enter at most"),
        ({"weight:tone": ""}, "Enter a number of 0 or more."),
        ({"weight:tone": "9" * 100_000}, "Enter a number of 0 or more."),
        ({"weight:tone": "0", "weight:refund": "0"}, "For this run only:"),
        ({"required:tone": "on", "below:tone": "2"}, "Enter a number from 0 to 1."),
        ({"pass_threshold": "0.5"}, "Borderline begins above pass. Lower it."),
        ({"pass_threshold": "inf"}, "Enter a number from 0 to 1."),
        ({"cases_pass_threshold": "101"}, "Enter a number from 0 to 100."),
        ({"case_gate": "luck"}, "correct what is marked"),
        ({"samples": "16"}, "less than or equal to 15"),
        ({"samples": "0"}, "greater than or equal to 1"),
        ({"minutes": "0"}, "greater than or equal to 1"),
        ({"cases": "chosen"}, "Tick or name at least one case"),
        ({"cases": "chosen", "keys": "<b>X"}, "desk has no case “&lt;b&gt;X”"),
        ({"cases": "chosen", "keys": "\n".join(f"X{n}" for n in range(10_000))}, "and 9999 more"),
        ({"cases": "failed:" + "9" * 5_000}, "Select a valid choice"),
        ({"version": "9" * 5_000}, "version"),
    ],
)
def test_hostile_choices_start_nothing_and_say_why(
    editor_client: Client, suite: Suite, target: Target, changes: dict[str, object], said: str
) -> None:
    Suite.objects.update(title="desk")
    answer = editor_client.post(at(), filled(target, note="kept", **changes))
    assert answer.status_code == 422
    assert said in answer.text
    assert "kept" in answer.text
    assert not Run.objects.exists()
    assert editor_client.post(at("run-estimate"), filled(target, **changes)).status_code == 200


def test_ten_thousand_chosen_cases_are_no_trouble(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    keys = "\n".join(["A", "B"] * 5_000)
    editor_client.post(at(), filled(target, cases="chosen", keys=keys))
    assert last_run().execution_count == 2


@pytest.mark.parametrize("number", ["0", "x", "9" * 5_000, "-1"])
def test_an_address_that_names_no_run_fills_in_nothing(
    editor_client: Client, suite: Suite, number: str
) -> None:
    assert editor_client.get(at(), {"again": number}).status_code == 200


def test_a_suite_changed_meanwhile_is_shown_first_and_nothing_left_alone_counts_as_a_change(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    first = suite.versions.get()
    change_evaluator(suite, "tone", weight=5.0)
    suite.versions.create(number=2, content_hash="2", content=first.content)
    Suite.objects.update(version=2)
    answer = editor_client.post(at(), filled(target, **{"weight:refund": "3"}))
    assert answer.status_code == 422
    assert "it is at version 2 now, and this form was opened at version 1" in answer.text
    assert 'name="version" value="2"' in answer.text
    rules = answer.context["form"].rules
    assert [(row.weight.text, row.weight.saved) for row in rules.rows] == [("5", "5"), ("3", "1")]
    assert not Run.objects.exists()


def test_a_preview_shows_the_estimate_and_starts_nothing(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    sent = filled(target, preview="1", cases="chosen", case=["A"], samples="3", repetitions="2")
    page = editor_client.post(at(), sent)
    assert page.status_code == 200
    assert "1 × 1 × 2 = <b>2</b>" in page.text
    assert "up to 6<br><small>juno-2 6</small>" in page.text
    wrong = editor_client.post(at(), {**sent, "repetitions": "0"})
    assert "greater than or equal to 1" in wrong.text
    assert not Run.objects.exists()


def test_the_estimate_takes_samples_into_account_and_falls_back_on_what_is_nearest(
    editor_client: Client, suite: Suite
) -> None:
    model = make_model(slug="atlas", name="Atlas")
    mine = make_target(name="mine", kind="chat", model=model)
    other = make_target(name="other", kind="chat", model=model)
    elsewhere = make_suite(slug="elsewhere")
    case = make_case(suite=elsewhere)
    past = make_run(suite=elsewhere, target=other, judge_name="juno-2", concurrency=1)
    make_result(
        run=past,
        case=case,
        verdict="pass",
        score=1.0,
        run_cost_usd=Decimal("0.10"),
        evaluation_cost_usd=Decimal("0.05"),
    )
    once, thrice = (
        editor_client.post(
            at("run-estimate"), filled(mine, cases="chosen", case="A", samples=n)
        ).text
        for n in (1, 3)
    )
    assert "from the last run with the model Atlas, 1 result" in once
    assert "Judge cost from the last run with this judge in other suites, 1 result." in once
    assert "Start run, about $0.150" in once
    assert "Start run, about $0.250" in thrice
    Run.objects.update(target=mine)
    own = editor_client.post(at("run-estimate"), filled(mine)).text
    assert "from the last run of this target in other suites, 1 result" in own


def test_an_evaluator_that_is_gone_since_is_named_when_a_run_is_started_again(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    editor_client.post(at(), filled(target, **OTHERWISE))
    change_evaluator(suite, "refund")
    page = editor_client.get(at(), {"again": last_run().number}).text
    assert "The suite no longer has refund" in page
    assert "2 changed for this run only" in page
