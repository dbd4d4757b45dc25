"""The page that judges stored outputs of a run again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.documents import DetailLevel
from runs.execution.run_worker import work_on_run
from runs.models.runs import Campaign, Run
from runs.running.judging_again import judge_again
from runs.running.judging_plan import JudgingRequest
from runs.sharing.frozen import shared_run
from runs.suites.drafts import get_draft
from tests.support.factories import make_user
from tests.support.members import make_client
from tests.support.scored_runs import CHECK, EXACT, finished_run
from tests.support.trees import tree
from tests.support.white_space import text_of

NEW = {**CHECK, "name": "new", "config": {"operator": "contains", "value": "way"}}
pytestmark = pytest.mark.django_db(transaction=True)


def page_of(client: Client, run: Run, data: Mapping[str, object], **query: str) -> tuple[int, str]:
    place = reverse("runs:run-judge-again", args=(run.suite.slug, run.number), query=query)
    answer = client.post(place, data) if data else client.get(place)
    return answer.status_code, answer.content.decode()


def test_the_page_says_what_is_kept_judged_and_left_out_and_starts_exactly_that() -> None:
    source, mira = finished_run(), make_user(name="mira")
    client = make_client(mira)
    status, page = page_of(client, source, {})
    assert status == 200
    assert "<dd>4 of 5</dd>" in page
    assert "1 of 5 results is left out, because no output is stored: C-4." in page
    assert "My draft" not in page

    draft = get_draft(source.suite, mira)
    draft.content = {**draft.content, "evaluators": tree(CHECK, EXACT, NEW)}
    draft.save()
    filled = {"whole": "on", "rules": "draft", "note": "shorter", "form_key": "k"}
    _, estimate = page_of(client, source, filled, estimate="1")
    assert "4 scored: new" in estimate
    assert "Judge 4 results again" in estimate
    assert Run.objects.count() == 1

    sent = filled | {"sure": "1"}
    for _ in range(2):
        assert page_of(client, source, sent)[0] == 302
    run = Run.objects.exclude(pk=source.pk).get()
    work_on_run(run.pk)
    place = (run.suite.slug, run.number)
    head = client.get(reverse("runs:run", args=place)).content.decode()
    source_url = reverse("runs:run", args=(run.suite.slug, source.number))
    assert f'judges the outputs of <a href="{source_url}">run #1</a> again, 4 of 5 results' in head
    assert "by draft of v1, shorter" in head
    result = client.get(reverse("runs:result", args=(*place, "C-0", 1))).content.decode()
    assert result.count("kept from #1") == 2
    of_source = reverse("runs:result", args=(run.suite.slug, source.number, "C-0", 1))
    assert f'judges the output of <a href="{of_source}">run #1</a> again' in result
    shared = shared_run(run, detail_level=DetailLevel.FIGURES, now=timezone.now())
    assert "judges the outputs of run #1 again" in shared.facts
    rows = client.get(reverse("runs:run-list")).content.decode()
    assert f'judges outputs of <a href="{source_url}">#1</a>' in rows
    held = client.get(reverse("runs:run-delete", args=(run.suite.slug, source.number)))
    assert (
        "Run #2 judges the outputs of run #1 again. Delete run #2 first." in held.content.decode()
    )


def test_several_runs_are_judged_again_together_each_as_a_run_of_its_own() -> None:
    source, mira = finished_run(), make_user(name="mira")
    client, slug = make_client(mira), source.suite.slug
    [second] = judge_again([source], JudgingRequest(), by=mira)
    work_on_run(second.pk)
    [waiting] = judge_again([source], JudgingRequest(), by=mira)
    place = reverse("runs:runs-judge-again")
    listed = client.get(reverse("runs:run-list")).content.decode()
    assert f'form="ticked-runs" formaction="{place}"' in listed
    names = [f"{slug}:{run.number}" for run in (source, second, waiting)]
    page = text_of(client.get(place, {"run": names}))
    assert "This cannot be started. Run #3 is still running." in page
    assert f"#3 {source.target_name} cannot be judged" in page

    # It is left out, and what was filled in stays.
    filled = {"run": names, "rules": "v1", "ask_again": "on", "note": "both", "form_key": "k"}
    answer = client.post(place, filled | {"sure": "1", "leave_out": names[2]})
    page = text_of(answer)
    assert (answer.status_code, Run.objects.count()) == (200, 3)
    assert 'value="both"' in answer.content.decode()
    assert "Results 8 of 9" in page
    assert "Run #1: 1 of 5 results is left out, because no output is stored: C-4." in page
    assert f"#1 {source.target_name} 4 of 5 0 $0" in page
    assert f"#2 {source.target_name} 4 of 4 0 $0" in page
    assert "Judge 8 results again" in page
    assert "Evaluators that cases define keep their own." in page

    # The newest run ended meanwhile, so a stale page may still name it; nothing starts for runs that cannot.
    sent = filled | {"sure": "1"}
    answer = client.post(place, sent)
    assert (answer.status_code, Run.objects.count()) == (422, 3)
    assert "Run #3 is still running" in text_of(answer)
    for _ in range(2):
        answer = client.post(place, sent | {"run": names[:2]})
        campaign = Campaign.objects.get()
        assert answer["Location"] == reverse("runs:campaign", args=(campaign.pk,))
    started = campaign.runs.order_by("number")
    assert [run.source_run for run in started] == [source, second]
    assert (campaign.name, {run.note for run in started}) == ("both", {"both"})

    # One run has its own page, and runs of several suites have none.
    alone = client.get(place, {"run": names[0]}).content.decode()
    assert f'action="{reverse("runs:run-judge-again", args=(slug, 1))}"' in alone
    other = finished_run(suite_facts={"slug": "other"})
    for chosen in ([], [*names[:2], f"{other.suite.slug}:1"]):
        answer = client.get(place, {"run": chosen}, follow=True)
        assert "Tick 1 to 20 runs of one suite to judge them again." in text_of(answer)


def test_ticked_results_and_those_of_a_filter_are_judged_alone(editor_client: Client) -> None:
    source = finished_run()
    case = source.results.get(case__key="C-1").case_id
    for chosen, keys in (
        ({"case": case}, ["C-1"]),
        ({"everything": "on", "q": "case = C-2, C-3"}, ["C-2", "C-3"]),
    ):
        status, page = page_of(editor_client, source, chosen)
        assert (status, f"<dd>{len(keys)} of {len(keys)}</dd>" in page) == (200, True)
        rules = {"sure": "1", "rules": "v1"}
        assert page_of(editor_client, source, chosen | rules)[0] == 302
        run = Run.objects.latest("pk")
        assert list(run.results.values_list("case__key", flat=True)) == keys


def test_nothing_is_started_that_cannot_be_judged(editor_client: Client) -> None:
    source = finished_run()
    status, page = page_of(editor_client, source, {"sure": "1"})
    assert (status, "Nothing is chosen." in page) == (422, True)
    missing = source.results.get(case__key="C-4").case_id
    free = {"whole": "on", "rules": "v1", "budget": "0", "sure": "1"}
    status, page = page_of(editor_client, source, free)
    assert (status, "The budget must be more than $0." in page) == (422, True)
    _, page = page_of(editor_client, source, {"case": missing})
    assert (
        "<strong>This cannot be started.</strong> Run #1 has no output that can be judged" in page
    )
    status, page = page_of(editor_client, source, {"case": missing, "sure": "1", "rules": "v1"})
    assert (status, Run.objects.count()) == (422, 1)
