"""Starting runs: the form, what it refuses, and the estimate with its basis."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evaluators.models import LanguageModel
from evaluators.scoring.tree import EvaluatorSpec
from runs.models.runs import Campaign, Run
from runs.models.suites import Suite, Target
from tests.support.factories import (
    STARTED,
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db

JUDGE = {"name": "kind", "kind": "llm_judge", "config": {"prompt": "Is the answer kind?"}}


@pytest.fixture
def suite() -> Suite:
    """Make a suite of two cases with recorded outputs and a judge."""
    made = make_suite(
        judge=make_model(
            slug="juno-2",
            input_price_usd_per_mtok=Decimal("0.4"),
            output_price_usd_per_mtok=Decimal("1.6"),
        )
    )
    make_case(suite=made, key="A", tags=["refunds"], recorded_output={"output": "hi"})
    make_case(suite=made, key="B", tags=["delivery"], recorded_output={"output": "ho"})
    return made


@pytest.fixture
def target() -> Target:
    """Make a recorded target."""
    return make_target(name="agent 1")


def at(suite: Suite, name: str = "run-new") -> str:
    return reverse(f"runs:{name}", kwargs={"slug": suite.slug})


def filled(suite: Suite, *targets: Target, **changes: object) -> dict[str, object]:
    return {
        "target": [target.pk for target in targets],
        "cases": "all",
        "repetitions": 1,
        "concurrency": 4,
        "judge": suite.judge_id,
        "budget": "",
        "note": "",
        **changes,
    }


def test_the_form_reads_no_tags_and_outcomes_of_single_cases(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    with CaptureQueriesContext(connection) as queries:
        editor_client.get(reverse("runs:run-new", args=[suite.slug]))
    by_case = [query["sql"] for query in queries if 'SELECT "runs_case"."key"' in query["sql"]]
    assert by_case
    assert not [sql for sql in by_case if '."tags" AS' in sql or '."expected_outcomes" AS' in sql]


def test_one_target_is_one_run(editor_client: Client, suite: Suite, target: Target) -> None:
    sent = filled(suite, target, repetitions=3, budget="$2.50", note="first try")
    response = editor_client.post(at(suite), sent)
    run = Run.objects.get()
    assert response["Location"] == reverse("runs:run", args=[suite.slug, run.number])
    assert (run.execution_count, run.budget_usd, run.note) == (6, Decimal("2.50"), "first try")
    assert run.created_by is not None


def test_a_budget_for_a_model_without_prices_is_refused_in_place(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    LanguageModel.objects.update(input_price_usd_per_mtok=None, output_price_usd_per_mtok=None)
    answer = editor_client.post(at(suite), filled(suite, target, budget="2"))
    assert answer.status_code == 422
    assert "There are no prices for juno-2" in answer.content.decode()
    assert not Run.objects.exists()


def test_several_targets_are_a_campaign_that_its_page_shows(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    sent = filled(suite, target, make_target(name="agent 2"), note="which one")
    response = editor_client.post(at(suite), sent)
    campaign = Campaign.objects.get()
    assert campaign.name == "which one"
    assert response["Location"] == reverse("runs:campaign", args=[campaign.pk])
    assert [run.target_name for run in campaign.runs.order_by("pk")] == ["agent 1", "agent 2"]
    page = editor_client.get(response["Location"]).content.decode()
    assert "no run has a final figure yet" in page
    assert f'<a href="{response["Location"]}"' in editor_client.get("/runs/").content.decode()


def test_a_form_that_is_sent_twice_starts_once(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    shown = editor_client.get(at(suite)).context["form"]
    several = filled(suite, target, make_target(), form_key=shown["form_key"].value())
    single = filled(suite, target, form_key="another form")
    for sent in (several, single):
        first, second = (editor_client.post(at(suite), sent)["Location"] for _ in range(2))
        assert first == second
    assert (Campaign.objects.count(), Run.objects.count()) == (1, 3)
    assert editor_client.get(at(suite)).context["form"]["form_key"].value() != several["form_key"]


def test_a_form_is_filled_in_with_all_an_address_names(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    other = make_target()
    asked = {"target": [target.pk, other.pk], "repetitions": 3, "note": "again", "budget": "2.5"}
    page = editor_client.get(at(suite), asked).content.decode()
    for ticked in (target, other):
        assert f'value="{ticked.pk}" checked' in page
    assert 'value="again"' in page
    assert 'value="2.5"' in page


def test_of_many_tags_the_most_frequent_and_the_ticked_are_listed(
    editor_client: Client, suite: Suite, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_case(suite=suite, key="C", tags=["refunds", "rare"])
    monkeypatch.setattr("runs.running.forms.MAX_OPTIONS", 1)
    page = editor_client.get(at(suite)).content.decode()
    assert [tag for tag in ("refunds", "delivery", "rare") if f'value="{tag}"' in page] == [
        "refunds"
    ]
    assert "The most frequent 1 of 3 tags" in page

    page = editor_client.get(at(suite), {"cases": "tag", "tag": "rare"}).content.decode()
    assert 'value="rare"' in page

    editor_client.post(at(suite), filled(suite, target, cases="tag", tag=["delivery"]))
    assert suite.runs.get().case_count == 1


def test_a_tag_chooses_the_cases(editor_client: Client, suite: Suite, target: Target) -> None:
    editor_client.post(at(suite), filled(suite, target, cases="tag", tag=["refunds"]))
    assert [r.case.key for r in Run.objects.get().results.all()] == ["A"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": []}, "Tick at least one target."),
        ({"repetitions": 0}, "greater than or equal to 1"),
        ({"concurrency": 999}, "less than or equal to 200"),
        ({"budget": "much"}, "Enter an amount in US dollars, such as 2.50."),
        ({"budget": "0"}, "The budget must be more than $0."),
        ({"cases": "tag", "tag": []}, "Tick at least one tag"),
        ({"cases": "tag", "tag": ["nowhere"]}, "nowhere"),
    ],
)
def test_what_cannot_be_started_is_refused_in_place(
    editor_client: Client, suite: Suite, target: Target, changes: dict[str, object], message: str
) -> None:
    response = editor_client.post(at(suite), filled(suite, target, note="kept", **changes))
    page = response.content.decode()
    assert response.status_code == 422
    assert message in page
    assert "kept" in page
    assert not Run.objects.exists()


def test_a_target_without_outputs_starts_nothing_at_all(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    bare = make_suite(judge=suite.judge)
    make_case(suite=bare, key="C")
    response = editor_client.post(at(bare), filled(bare, target))
    assert response.status_code == 422
    assert "has no recorded output for the case C. Upload outputs" in response.content.decode()
    assert not Run.objects.exists()


def test_a_recorded_target_says_how_many_cases_it_has_and_only_those_are_estimated(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    past_run(suite, target)
    suite.cases.filter(key="B").update(recorded_output=None)
    some = estimate(editor_client, suite, **filled(suite, target))
    assert "has recorded outputs for 1 of 2 cases. The other 1 will be errors" in some
    assert "Start run, about $0.150" in some
    assert "1 of 2 cases recorded; last run #1" in editor_client.get(at(suite)).content.decode()
    suite.cases.update(recorded_output=None)
    none = estimate(editor_client, suite, **filled(suite, target))
    assert "no recorded output for any of these cases. Upload outputs whose ids" in none
    assert "disabled" in none.partition("Start run")[0].rpartition("<button")[2]
    assert "$0" not in none
    assert "0 of 2 cases recorded" in editor_client.get(at(suite)).content.decode()


def test_evaluators_with_nothing_to_score_by_are_named_before_the_start(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    assert "has nothing to score by" not in estimate(editor_client, suite)
    for key, kind in (("A", "expected_output"), ("B", "llm_judge")):
        own = EvaluatorSpec(
            name="", kind="composite", children=(EvaluatorSpec(name="wanted", kind=kind),)
        ).as_json()
        suite.cases.filter(key=key).update(evaluators=own, evaluators_append=True)
    page = estimate(editor_client, suite, **filled(suite, target))
    assert "wanted has nothing to score by in 1 of 2 cases: it has no expected output." in page
    assert (
        "it has no criteria, expected outcomes or expected output. In these cases it will" in page
    )
    suite.cases.update(expected_output="yes")
    page = estimate(editor_client, suite, **filled(suite, target))
    assert "has nothing to score by" not in page


def test_targets_of_this_suite_stand_first_and_those_of_others_last(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    late, fresh, other = (make_target(name=name) for name in ("zoe", "new one", "abe"))
    past_run(suite, target)
    past_run(suite, late)
    make_run(suite=make_suite(), target=other)
    page = editor_client.get(at(suite)).content.decode()
    places = [page.index(f"<b>{one.name}</b>") for one in (late, target, fresh, other)]
    assert places == sorted(places)


def test_of_two_targets_one_that_cannot_run_stops_both(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    broken = make_target(name="no model", kind="chat")
    response = editor_client.post(at(suite), filled(suite, target, broken))
    assert response.status_code == 422
    assert "no model" in response.content.decode()
    assert not Run.objects.exists()
    assert not Campaign.objects.exists()


def past_run(suite: Suite, target: Target, *, priced: bool = True) -> Run:
    run = make_run(
        suite=suite,
        target=target,
        judge_name="juno-2",
        concurrency=1,
        started_at=STARTED,
        finished_at=STARTED + timedelta(seconds=20),
    )
    cost = Decimal("0.10") if priced else None
    for case in suite.cases.all():
        make_result(
            run=run,
            case=case,
            verdict="pass",
            score=1.0,
            run_cost_usd=cost,
            evaluation_cost_usd=Decimal("0.05"),
        )
    return run


def estimate(client: Client, suite: Suite, **sent: object) -> str:
    return client.get(at(suite, "run-estimate"), sent).content.decode()


def test_the_estimate_rests_on_past_runs_and_names_them(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    past_run(suite, target)
    page = estimate(editor_client, suite, **filled(suite, target, repetitions=2, concurrency=2))
    assert "from the last run of this target, 2 results" in page
    assert "$0.600" in page  # 4 results of $0.10 + $0.05
    assert "Start run, about $0.600" in page
    assert "20\u00a0s" in page  # 4 results of 10 s by two workers
    assert "1 × 2 × 2 = <b>4</b>" in page


def test_without_a_past_run_nothing_is_made_up(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    page = estimate(editor_client, suite, **filled(suite, target))
    assert "no finished run of this target or its model yet" in page
    assert "cost unknown" in page
    assert "Start run <kbd>" in page
    assert "$0" not in page


def test_a_model_without_a_price_is_no_cost_of_zero(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    past_run(suite, target, priced=False)
    page = estimate(editor_client, suite, **filled(suite, target))
    assert "the model has no price" in page
    assert "cost unknown" in page


def test_without_a_target_the_estimate_asks_for_one(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    page = estimate(editor_client, suite, **filled(suite, target, target=[]))
    assert "Tick a target first." in page
    # Nothing is counted, and nothing can be pressed.
    assert "0 ×" not in page
    assert "No past runs" not in page
    assert re.search(r'<button type="submit" data-kind="primary" disabled>', page)
    Target.objects.all().delete()
    assert "Add a target first." in estimate(editor_client, suite, target=[])


def test_a_budget_below_the_estimate_is_pointed_out(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    past_run(suite, target)
    page = estimate(editor_client, suite, **filled(suite, target, budget="0.08"))
    # What recorded outputs once cost is no part of a budget.
    assert "The budget is below the estimate of $0.100 a run." in page


def test_a_judge_of_the_targets_own_family_is_pointed_out(
    editor_client: Client, suite: Suite
) -> None:
    model = make_model(slug="juno-2-flash")
    target = make_target(name="flash", kind="chat", model=model)
    page = estimate(editor_client, suite, **filled(suite, target))
    assert "same model family as target flash" in page


def test_judge_calls_follow_from_the_tree(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    suite.cases.filter(key="A").update(expected_outcomes=["It is kind"])
    page = estimate(editor_client, suite, **filled(suite, target))
    assert "up to 3" in page  # tone for both cases, and the outcomes of one


@pytest.mark.parametrize("name", ["run-new", "run-estimate"])
def test_a_viewer_may_not_start(viewer_client: Client, suite: Suite, name: str) -> None:
    response = viewer_client.get(at(suite, name))
    assert response.status_code == 403
    assert "You are not allowed to do this" in response.content.decode()


def test_the_suite_is_chosen_first(editor_client: Client, suite: Suite) -> None:
    empty = make_suite(title="Nothing in it")
    page = editor_client.get(reverse("runs:run-start-any")).content.decode()
    assert at(suite) in page
    assert empty.title in page
    assert at(empty) not in page


def test_a_target_in_the_address_is_ticked(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    page = editor_client.get(at(suite) + f"?target={target.pk}").content.decode()
    assert f'value="{target.pk}" checked' in page


def test_an_archived_target_in_the_address_is_named(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    asked = f"{at(suite)}?target={target.pk}"
    Target.objects.update(archived_at=STARTED)
    page = editor_client.get(asked).content.decode()
    assert "agent 1 is archived, so it cannot be run." in page
    assert reverse("runs:target", args=[target.pk]) in page
    target.delete()
    assert "A requested target no longer exists." in editor_client.get(asked).content.decode()
    assert "not here any more" not in editor_client.get(at(suite)).content.decode()


def test_a_suite_without_cases_says_what_it_needs_before_a_run(
    editor_client: Client, target: Target
) -> None:
    empty = make_suite(slug="empty")
    page = editor_client.get(f"{at(empty)}?target={target.pk}").content.decode()
    assert "No cases yet" in page
    assert 'id="start-run"' not in page
    assert reverse("runs:case-new", args=["empty"]) in page
    assert reverse("runs:case-import", args=["empty"]) in page
    refused = editor_client.post(at(empty), filled(empty, target, judge=""))
    assert refused.status_code == 422
    assert "has no cases" in refused.content.decode()
    assert not Run.objects.exists()


def test_an_archived_suite_says_so_before_a_run_is_filled_in(
    editor_client: Client, suite: Suite
) -> None:
    Suite.objects.update(archived_at=STARTED)
    page = editor_client.get(at(suite)).content.decode()
    assert "This suite is archived" in page
    assert 'id="start-run"' not in page


@pytest.mark.parametrize("name", ["run-new", "run-estimate"])
def test_a_target_that_no_table_could_hold_is_no_crash(
    editor_client: Client, suite: Suite, target: Target, name: str
) -> None:
    asked = {"target": "9" * 30, "cases": "all", "repetitions": 1, "concurrency": 1}
    assert editor_client.get(at(suite, name), asked).status_code == 200


def test_such_a_target_is_refused(editor_client: Client, suite: Suite) -> None:
    sent = filled(suite) | {"target": ["9" * 30]}
    response = editor_client.post(at(suite), sent)
    assert response.status_code == 422
    assert "Tick targets that are listed." in response.text


def test_where_there_is_no_suite_the_first_one_can_be_made(editor_client):
    page = editor_client.get(reverse("runs:run-start-any")).content.decode()
    for name in ("runs:suite-import", "runs:suite-new"):
        assert f'href="{reverse(name)}"' in page[page.index('class="empty"') :]
    assert "Back to suites" not in page


def test_a_form_is_left_to_add_a_target_and_its_model_and_nothing_typed_is_lost(
    editor_client: Client, admin_client: Client, suite: Suite
) -> None:
    client = admin_client
    sent = filled(suite, repetitions=3, note="typed before", cases="case", add="target")
    away = client.post(at(suite), sent)
    assert away["Location"].startswith(reverse("runs:target-new"))
    kind = {"name": "agent 9", "system_prompt": "Be kind."}
    further = client.post(away["Location"], {**kind, "add": "model"})
    assert further["Location"].startswith(reverse("evaluators:language-model-new"))
    model = {"name": "Juno 9", "base_url": "https://models.example/v1", "model_id": "juno-9"}
    model |= {"reply_mode": "text", "concurrency": "4", "timeout_s": "60"}
    back = client.post(further["Location"], model)["Location"]
    form = client.get(back).context["form"]
    added = LanguageModel.objects.get(slug="juno-9")
    assert (form["name"].value(), form["system_prompt"].value()) == ("agent 9", "Be kind.")
    assert form["model"].value() == added.pk
    action = f"{reverse('runs:target-new')}?{back.partition('?')[2]}"
    back = client.post(action, {**kind, "model": added.pk})["Location"]
    page = client.get(back)
    target = Target.objects.get(name="agent 9")
    assert page.status_code == 200
    assert f'value="{target.pk}" checked' in page.content.decode()
    assert page.context["form"]["note"].value() == "typed before"
    assert page.context["form"]["repetitions"].value() == "3"


@pytest.mark.parametrize("address", ["https://elsewhere.example/", "//elsewhere.example", "x"])
def test_no_address_leads_off_the_site_after_adding(admin_client: Client, address: str) -> None:
    new = f"{reverse('evaluators:language-model-new')}?{urlencode({'next': address})}"
    assert "elsewhere" not in admin_client.get(new).content.decode().partition("Cancel")[0][-200:]
    model = {"name": "Juno 9", "base_url": "https://models.example/v1", "model_id": "juno-9"}
    model |= {"reply_mode": "text", "concurrency": "4", "timeout_s": "60"}
    assert admin_client.post(new, model)["Location"] == reverse(
        "evaluators:language-model", args=["juno-9"]
    )


def test_targets_of_other_suites_are_folded_and_the_only_one_that_fits_is_ticked(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    other = make_target(name="elsewhere", kind="chat", model=make_model())
    make_run(suite=make_suite(), target=other)
    form = editor_client.get(at(suite)).context["form"]
    assert [option.name for option in form.main_options] == ["agent 1"]
    assert [option.name for option in form.other_options] == ["elsewhere"]
    assert form.chosen_targets == {str(target.pk)}


def test_a_start_that_would_be_refused_is_not_offered(
    editor_client: Client, suite: Suite, target: Target
) -> None:
    def has_start(suite: Suite, **changes: object) -> bool:
        sent = filled(suite, target, **changes)
        html = editor_client.post(at(suite, "run-estimate"), sent).content.decode()
        return "disabled" not in html.partition("Start run")[0].rpartition("<button")[2]

    assert has_start(suite)
    assert not has_start(suite, target=[])
    assert not has_start(suite, repetitions=0)
    assert not has_start(suite, cases="chosen", keys="Z")
    judged = make_suite(tree={"name": "", "kind": "composite", "children": [JUDGE]})
    make_case(suite=judged, recorded_output={"output": "hi"})
    assert not has_start(judged, judge="")
    page = estimate(editor_client, judged, **filled(judged, target, judge=""))
    assert "Choose a language model as judge." in page
    assert has_start(judged, judge=suite.judge_id)
